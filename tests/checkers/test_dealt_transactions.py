"""Transactions on lists, dealt out by lists and then by time, are judged as one task judges all of them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from tests.checkers.grouped_runs import in_row_groups
from tests.checkers.recorded import Run
from tests.checkers.test_ranges import cut_everything, judged
from tribunal.checkers.graphs import circles
from tribunal.checkers.graphs.columns import INFO, Transactions
from tribunal.checkers.graphs.operations import OPEN_END, Operation, paired
from tribunal.checkers.judge import dealt_transactions as dealt
from tribunal.checkers.judge import fenced
from tribunal.checkers.judge.items import Beside, Circles, Lists, Messages, Offsets, WholeRun, WorkItem, work_items
from tribunal.checkers.judge.items import Transactions as AllTransactions
from tribunal.checkers.judge.judge import judge_item, second_look
from tribunal.checkers.judge.tables import Figures, Place, Tables
from tribunal.checkers.judge.timeline import History
from tribunal.results.recording import TABLES
from tribunal.results.rows import Transaction, table_of
from tribunal.results.store import Recording

sys.path.insert(0, str(Path(__file__).parent.parent / "corpus"))
import corpus

OUTCOMES = {"ok": "committed", "fail": "aborted", "info": "info"}
PLANTS = ("", "stale", "aborted", "twice", "phantom", "swapped", "own", "lost", "crossed", "late", "fenced")


def deal_all(monkeypatch: pytest.MonkeyPatch, steps: int, *, stretch: int = 8, margin: int = 4) -> None:
    monkeypatch.setattr(dealt, "BIG_BYTES", 0)
    monkeypatch.setattr(dealt, "PART_STEPS", steps)
    monkeypatch.setattr(dealt, "STRETCH_TRANSACTIONS", stretch)
    monkeypatch.setattr(dealt, "MARGIN_TRANSACTIONS", margin)
    monkeypatch.setattr(dealt, "MADE_TRANSACTIONS", stretch)


class OneAtATime:
    """Lists as clients see them of a system whose transactions take effect one after the other, at some time between their ends."""

    def __init__(self, random: Random, count: int, *, clients: int = 4, live: int = 3, appends: int = 6) -> None:
        self.random, self.clients, self.live, self.appends = random, clients, live, appends
        self.held: dict[int, list[int]] = {}
        self.added = dict.fromkeys(range(live), 0)
        self.rows: list[dict[str, Any]] = []
        spans = sorted(self.spans(count), key=lambda span: span[2])
        for number, (process, begin, _, end) in enumerate(spans):
            self.act(number, process, begin, end)
        self.rows.sort(key=lambda row: row["end"])

    def spans(self, count: int) -> Iterator[tuple[int, int, int, int]]:
        for process in range(self.clients):
            at = self.random.randrange(5)
            for _ in range(count // self.clients):
                begin = at + self.random.randrange(1, 20)
                at = begin + self.random.choice([0, 3, 10, 10, 40])
                yield process, begin, self.random.randint(begin, at), at

    def act(self, number: int, process: int, begin: int, end: int) -> None:
        outcome = self.random.choice(["ok"] * 8 + ["info", "fail"])
        takes_effect = outcome == "ok" or (outcome == "info" and self.random.random() < 0.5)
        steps: list[tuple[str, int, Any]] = []
        own = {key: list(value) for key, value in self.held.items()}
        for _ in range(self.random.randint(1, 4)):
            slot = self.random.randrange(self.live)
            key = slot + self.live * (self.added[slot] // self.appends)
            if steps and steps[-1][:2] == ("r", key):
                continue  # (two neighbouring reads of one list are written as one)
            if self.random.random() < 0.5:
                steps.append(("r", key, list(own.get(key, []))))
                continue
            value = 100 * number + len(steps)
            steps.append(("append", key, value))
            own.setdefault(key, []).append(value)
            self.added[slot] += 1
        if takes_effect:
            self.held = own
        ends = {"begin": begin, "end": end, "outcome": outcome}
        self.rows.append({"process": process, "epoch": number // 10, "steps": steps, **ends})


def planted(rows: list[dict[str, Any]], kind: str, random: Random) -> list[dict[str, Any]]:
    """Make something wrong, if there is anything to make it wrong with."""
    reads = [
        (row, place)
        for row in rows
        if row["outcome"] == "ok"
        for place, step in enumerate(row["steps"])
        if step[0] == "r"
    ]
    long = [(row, place) for row, place in reads if len(row["steps"][place][2]) > 1]
    appends = [(row, step) for row in rows for step in row["steps"] if step[0] == "append"]
    if not long or not appends:
        return rows
    row, place = random.choice(long)
    _, key, seen = row["steps"][place]
    if kind == "stale":
        seen.pop()
    elif kind == "aborted":
        failed = [step for other, step in appends if other["outcome"] == "fail"]
        if failed:
            _, key, value = random.choice(failed)
            row["steps"][place] = ("r", key, [*seen[:0], value])
    elif kind == "twice":
        seen.append(seen[0])
    elif kind == "phantom":
        seen.append(7)
    elif kind == "swapped":
        seen[0], seen[1] = seen[1], seen[0]
    elif kind == "own":
        row["steps"].append(("r", key, seen[:-1]))
    elif kind == "lost":
        for other, _ in random.sample(long, min(2, len(long))):
            other["steps"] = [("r", key, seen[:1]), ("append", key, 9 + random.randrange(10**6) * 100)]
    elif kind == "crossed":
        (one, a), (other, b) = random.choice(appends), random.choice(appends)
        one["steps"].append(("r", b[1], [b[2]]))
        other["steps"].append(("r", a[1], [a[2]]))
    elif kind == "late":
        row["begin"], row["end"] = rows[-1]["end"] + 1, rows[-1]["end"] + 2
    elif kind == "fenced":
        random.choice([one for one in rows[: len(rows) // 4] if one["outcome"] == "ok"])["epoch"] += 30
    return rows


def recorded(folder: Path, rows: Sequence[dict[str, Any]], topics: int = 1, run: Run | None = None) -> Path:
    run = run or Run(folder)
    for row in rows:
        steps: list[dict[str, Any]] = []
        for function, key, value in row["steps"]:
            place = {"topic": f"t{key % topics}", "partition": key, "log_offset": None}
            kind = "append" if function == "append" else "read"
            values = [value] if kind == "append" else value or [None]
            steps += [{"kind": kind, "value": each, **place} for each in values]
        ends = {"begin_ns": row["begin"], "end_ns": row["end"], "outcome": OUTCOMES[row["outcome"]]}
        made = {"txn_id": f"x{row['process']}", "producer_id": row["process"], "producer_epoch": row.get("epoch", 0)}
        run.recorder.row("txns", process=row["process"], operations=steps, **made, **ends)
    return run.finish()


def looks(run_dir: Path) -> tuple[list[WorkItem], ...]:
    """Return the items of a run, and those of all looks at it again."""
    tables, items = Tables(), work_items(run_dir)
    found = [items]
    while items:
        tables.add(row for item in items for row in judge_item(item))
        items = second_look(tables)
        found.append(items)
    return tuple(found[:-1])


@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("kind", PLANTS)
def test_lists_are_judged_in_parts_as_they_are_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, steps: int
) -> None:
    found = set()
    for seed in range(2):
        random = Random(f"{kind}-{seed}")
        rows = planted(OneAtATime(random, 60).rows, kind, random)
        run_dir = in_row_groups(recorded(tmp_path / f"run-{seed}", rows, topics=1 + seed % 2), 7 + 20 * seed)
        at_once = judged(run_dir)
        with monkeypatch.context() as patched:
            deal_all(patched, steps)
            assert judged(run_dir) == at_once, seed
        found |= {row.finding.kind for row in at_once[0]}

    assert bool(found) == bool(kind)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_many_lists_are_judged_in_parts_as_they_are_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    for seed in range(first, first + 20):
        random = Random(seed)
        sizes = {
            "clients": random.choice([2, 4, 9]),
            "live": random.choice([1, 3, 5]),
            "appends": random.choice([2, 6, 99]),
        }
        rows = planted(OneAtATime(random, random.choice([20, 60, 150]), **sizes).rows, random.choice(PLANTS), random)
        random.shuffle(rows) if random.random() < 0.2 else None
        run_dir = in_row_groups(
            recorded(tmp_path / f"run-{seed}", rows, topics=1 + seed % 3), random.choice([5, 23, 999])
        )
        at_once = judged(run_dir)
        with monkeypatch.context() as patched:
            deal_all(
                patched, random.choice([1, 40, 150]), stretch=random.choice([3, 8, 30]), margin=random.choice([1, 4])
            )
            assert judged(run_dir) == at_once, seed


def as_rows(operations: Sequence[Operation]) -> list[dict[str, Any]] | None:
    """Return the operations of a history as transactions of a recording; None: something in it is no number."""
    keys: dict[Any, int] = {}
    rows = []
    for one in operations:
        steps = [(function, keys.setdefault(key, len(keys)), value) for function, key, value in one.steps]
        values = [value for function, _, value in steps if function == "append"]
        values += [element for function, _, value in steps if function == "r" for element in value or ()]
        if not all(type(value) is int for value in values):
            return None
        end = None if one.completed >= OPEN_END else one.completed
        rows.append({"process": one.process, "begin": one.invoked, "end": end, "outcome": one.outcome, "steps": steps})
    return rows


def corpus_lists() -> list[Any]:
    cases = [*corpus.elle_cli_cases(), *corpus.elle_cases()]
    return [case for case in cases if case["model"] == "list-append" and len(case["history"]) <= 400]


def are_judged_alike(
    recordings: Sequence[tuple[object, Sequence[dict[str, Any]] | None]],
    written: Callable[[Path, Sequence[dict[str, Any]]], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compare what is found of each at once and in parts; together they have to show several kinds of anomalies.

    recordings:  names, and transactions or None for what cannot be recorded.
    """
    found = set()
    for number, (name, rows) in enumerate(recordings):
        if rows is None:
            continue
        run_dir = in_row_groups(written(tmp_path / f"run-{number}", rows), 50)
        at_once = judged(run_dir)
        with monkeypatch.context() as patched:
            deal_all(patched, 1 + 13 * (number % 3))
            assert judged(run_dir) == at_once, name
        found |= {row.finding.kind for row in at_once[0]}
    assert len(found) > 3


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, 8))])
def test_histories_of_others_are_judged_in_parts_as_they_are_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    cases = corpus_lists()[part::8]
    if not cases:
        pytest.skip("these histories are not here")
    recordings = [(case["id"], as_rows(paired(case["history"]))) for case in cases]
    are_judged_alike(recordings, recorded, tmp_path, monkeypatch)


def test_a_history_of_sound_lists_is_never_in_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deal_all(monkeypatch, 100, margin=6)
    run_dir = in_row_groups(recorded(tmp_path / "run", OneAtATime(Random(3), 200, clients=2).rows), 20)

    first, second, third = looks(run_dir)

    assert WholeRun(str(run_dir), transactions_apart=True) in first
    assert sum(isinstance(one, Lists) for one in first) > 5
    assert len(second) > 3
    assert all(isinstance(one, Circles) for one in second)
    assert third == [Beside(str(run_dir), 200, ())]


def test_no_producer_is_suspect_where_tasks_answer_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more items than there may be tasks each takes several, and all producers seemed to go back: each of their rows was read as an object."""
    deal_all(monkeypatch, 100, margin=6)
    run_dir = in_row_groups(recorded(tmp_path / "run", OneAtATime(Random(3), 200, clients=2).rows), 20)
    tables = Tables()
    tables.add(row for item in reversed(work_items(run_dir)) for row in judge_item(item))
    assert len(tables.producers) > 5
    tables.add(row for item in second_look(tables) for row in judge_item(item))

    assert second_look(tables) == [Beside(str(run_dir), 200, ())]


@pytest.mark.parametrize(
    ("last", "looked"),
    [
        pytest.param([1, 2], [Beside("", 5, ())], id="nothing"),
        pytest.param([1], [AllTransactions("")], id="a read that lacks what it had to see, which leads in a circle"),
        pytest.param([2, 1], None, id="a read out of order, which its list alone shows"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_judged_by_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: list[int], looked: list[WorkItem] | None
) -> None:
    deal_all(monkeypatch, 4)
    steps = [("append", 0, 1), ("append", 0, 2), ("r", 0, [1, 2]), ("r", 1, []), ("r", 0, last)]
    rows = [
        {"process": 1, "begin": 10 * at, "end": 10 * at + 5, "outcome": "ok", "steps": [step]}
        for at, step in enumerate(steps)
    ]
    run_dir = recorded(tmp_path / "run", rows)

    _, second, *third = looks(run_dir)

    if looked is None:
        assert (second, third) == ([AllTransactions(str(run_dir))], [])
    else:
        assert {type(one) for one in second} == {Circles}
        assert third == [[msgspec.structs.replace(one, run_dir=str(run_dir)) for one in looked]]


def test_the_last_look_opens_no_file_where_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deal_all(monkeypatch, 100)
    run_dir = in_row_groups(recorded(tmp_path / "run", OneAtATime(Random(3), 200, clients=2).rows), 20)
    at_once = judge_item(AllTransactions(str(run_dir)))
    *_, (last,) = looks(run_dir)
    paths = [path for path in (run_dir / "recording" / "txns").rglob("*.parquet") if path.stem != "part-00000"]
    for path in paths:
        path.unlink()

    found = judge_item(last)

    assert paths
    assert found == at_once == [Figures(Place(str(run_dir)), "transactions", {"transactions": 200})]


COMMITS = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 3), st.integers(0, 9), st.booleans())


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.lists(COMMITS, max_size=12), st.integers(1, 12))
def test_who_was_fenced_is_found_in_pieces_as_at_once(
    commits: list[tuple[int, int, int, int, bool]], size: int
) -> None:
    rows = [
        Transaction(
            process=1, txn_id=f"x{name}", producer_id=producer, producer_epoch=epoch, begin_ns=begin, end_ns=begin + 4,
            outcome="committed" if is_committed else "aborted",
        )
        for name, producer, epoch, begin, is_committed in commits
    ]  # fmt: skip
    facts = (TABLES[name].arrow.empty_table() for name in ("metadata", "nodes", "faults", "admin"))
    txns, history = table_of(Transaction, rows), History(*facts, None)
    pieces = [(first, txns.slice(first, size)) for first in range(0, len(rows), size)]
    by_definition = {
        place
        for place, one in enumerate(rows)
        for other in rows
        if one.outcome == other.outcome == "committed"
        and (one.txn_id, one.producer_id) == (other.txn_id, other.producer_id)
        and (other.producer_epoch or 0) > (one.producer_epoch or 0)
        and other.begin_ns < one.begin_ns
    }

    chosen = fenced.going_back(one for _, piece in pieces for one in fenced.producers(piece))
    found = list(fenced.fenced_among(fenced.transactions_of(chosen, pieces), history))

    assert found == list(fenced.fenced_commits(txns, history))
    assert {one.row for one in found} == by_definition


def test_a_task_opens_the_row_groups_of_its_lists_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of a history change with time, and so do the row groups that hold their steps."""
    deal_all(monkeypatch, 60)
    run_dir = in_row_groups(recorded(tmp_path / "run", OneAtATime(Random(3), 200, appends=4).rows), 10)

    found = dealt.deal(Recording.open(run_dir, compare=False))

    assert found is not None
    assert sum(own.rows > 0 for own, _ in found.timed) == 20
    assert max(len(part.groups) for part in found.parts[:-1]) < 10


def test_messages_beside_lists_are_judged_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path / "run")
    for number in range(40):
        steps = [
            {"kind": "read", "topic": "l", "partition": number % 5, "log_offset": None, "value": None},
            {"kind": "send", "topic": "m", "partition": 0, "log_offset": number, "value": number},
            {
                "kind": "poll",
                "topic": "m",
                "partition": 0,
                "log_offset": 9 if number == 10 else 5,
                "value": 6 if number == 10 else 5,
            },
        ]
        ends = {"begin_ns": 10 * number, "end_ns": 10 * number + 5, "outcome": "committed"}
        own = steps[: 3 if number > 5 else 2]  # nobody reads what is not there yet
        run.recorder.row("txns", process=1, txn_id="x", operations=own, **ends)
    run_dir = run.finish()

    at_once = judged(run_dir)
    deal_all(monkeypatch, 1)

    assert judged(run_dir) == at_once
    assert at_once[0]
    ((last,),) = looks(run_dir)[-1:]
    assert isinstance(last, Beside)
    assert sum(own.counts.get("nonmonotonic-poll", 0) for own in last.messages) > 1


def test_where_steps_name_no_partition_one_task_looks_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deal_all(monkeypatch, 1)
    run = Run(tmp_path / "run")
    for number in range(12):
        partition = None if 4 <= number < 8 else number
        step = {"kind": "read", "topic": "l", "partition": partition, "log_offset": None, "value": None}
        ends = {"begin_ns": 10 * number, "end_ns": 10 * number + 5, "outcome": "committed"}
        run.recorder.row("txns", process=1, txn_id="x", operations=[step], **ends)
    run_dir = in_row_groups(run.finish(), 4)

    assert dealt.deal(Recording.open(run_dir, compare=False)) is None


# --- messages ------------------------------------------------------------------------------------------

OF_MESSAGES = (
    "",
    "aborted",
    "own",
    "twice",
    "two at one",
    "passed over",
    "back",
    "unknown",
    "before",
    "elsewhere",
    "fenced",
)


class Log:
    """Messages as clients see them that send to partitions in transactions and poll what is committed: now and then a poll skips, or goes back."""

    def __init__(self, random: Random, count: int, *, clients: int = 4, partitions: int = 5, steady: int = 12) -> None:
        self.random, self.partitions, self.steady = random, partitions, steady
        self.log: list[list[tuple[int, str]]] = [[] for _ in range(partitions)]  # what stands there, and how it ended
        self.position: dict[tuple[int, int], int] = {}
        self.rows: list[dict[str, Any]] = []
        for number, (process, begin, _, end) in enumerate(sorted(self.spans(count, clients), key=lambda span: span[2])):
            outcome = random.choice(["ok"] * 8 + ["info", "fail"])
            takes_effect = outcome == "ok" or (outcome == "info" and random.random() < 0.6)
            steps = [*self.polls(process), *self.sends(number, outcome, takes_effect=takes_effect)]
            made = {"process": process, "epoch": number // 10, "outcome": outcome}
            self.rows.append({**made, "begin": begin, "end": end, "steps": steps})
        self.rows.sort(key=lambda row: row["end"])

    def spans(self, count: int, clients: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield process, begin, when it takes effect, and end."""
        for process in range(clients):
            at = self.random.randrange(5)
            for _ in range(count // clients):
                begin = at + self.random.randrange(1, 20)
                at = begin + self.random.choice([0, 3, 10, 10, 40])
                yield process, begin, self.random.randint(begin, at), at

    def polls(self, process: int) -> Iterator[tuple[str, int, int | None, int | None]]:
        for partition in self.random.sample(range(self.partitions), self.random.randrange(3)):
            start = self.position.get((process, partition), 0) + self.random.choice([0] * self.steady + [1, -1])
            end = min(len(self.log[partition]), max(start, 0) + self.random.randrange(1, 6))
            for offset in range(max(start, 0), end):
                value, ended = self.log[partition][offset]
                if ended == "committed":
                    yield "poll", partition, offset, value
            self.position[process, partition] = max(end, 0)

    def sends(
        self, number: int, outcome: str, *, takes_effect: bool
    ) -> Iterator[tuple[str, int, int | None, int | None]]:
        for place in range(self.random.randrange(3)):
            partition, value = self.random.randrange(self.partitions), 100 * number + place
            is_known = outcome == "ok" or self.random.random() < 0.7
            yield "send", partition, len(self.log[partition]) if is_known else None, value
            self.log[partition].append((value, "committed" if takes_effect else "aborted"))


def planted_in(rows: list[dict[str, Any]], kind: str, random: Random) -> list[dict[str, Any]]:
    """Make something wrong with messages, if there is anything to make it wrong with."""
    ended = [row for row in rows if row["outcome"] == "ok"]
    polls = [(row, n) for row in ended for n, step in enumerate(row["steps"]) if step[0] == "poll"]
    sends = [(row, step) for row in rows for step in row["steps"] if step[0] == "send" and step[2] is not None]
    (row, place), (sender, (_, partition, offset, value)) = random.choice(polls), random.choice(sends)
    match kind:
        case "aborted":
            sender["outcome"] = "fail"
            ended[-1]["steps"].append(("poll", partition, offset, value))
        case "own":
            sender["outcome"] = "ok"
            sender["steps"].append(("poll", partition, offset, value))
        case "twice":
            ended[-1]["steps"].append(("poll", partition, offset + 90, value))
        case "two at one":
            ended[-1]["steps"].append(("poll", partition, offset, value + 7))
        case "passed over":
            _, partition, offset, _ = row["steps"][place]
            row["steps"][place] = ("poll", partition, offset + 60, 9_000_000)
        case "back":
            row["steps"].append(row["steps"][place])
        case "unknown":
            sender["outcome"] = "info"
        case "before":  # whoever read it was over before it was sent
            sender["outcome"] = "ok"
            late = rows[-1]["end"] + 50
            ended[0]["steps"].append(("poll", partition, offset, value))
            sender["begin"], sender["end"] = late, late + 4
        case "elsewhere":  # of a transaction that nobody saw end one message is read, the other one passed over
            late, end = rows[-1]["end"] + 50, 200
            lost = [("send", 0, end, 9_000_001), ("send", 3, end, 9_000_002)]
            seen = [("poll", 0, end, 9_000_001), ("poll", 3, end - 1, 9_000_003), ("poll", 3, end + 1, 9_000_004)]
            for process, outcome, steps in ((1, "info", lost), (2, "ok", seen)):
                made = {"process": process, "epoch": 99, "outcome": outcome, "begin": late, "end": late + 5}
                rows.append({**made, "steps": steps})
        case "fenced":
            ended[0]["epoch"] += 30
    return rows


def logged(folder: Path, rows: Sequence[dict[str, Any]], topics: int = 1) -> Path:
    run = Run(folder)
    for row in rows:
        steps = [
            {
                "kind": kind,
                "topic": f"t{9 - partition % topics}",
                "partition": partition,
                "log_offset": offset,
                "value": value,
            }
            for kind, partition, offset, value in row["steps"]
        ]
        made = {"txn_id": f"x{row['process']}", "producer_id": row["process"], "producer_epoch": row["epoch"]}
        ends = {"begin_ns": row["begin"], "end_ns": row["end"], "outcome": OUTCOMES[row["outcome"]]}
        run.recorder.row("txns", process=row["process"], operations=steps, **made, **ends)
    return run.finish()


KINDS_OF_MESSAGES = {
    "aborted": "G1a", "own": "precommitted-read", "twice": "duplicate", "two at one": "inconsistent-offsets", "passed over": "lost-write",
    "back": "int-nonmonotonic-poll", "before": "G1c-realtime", "elsewhere": "lost-write", "fenced": "fenced_commit",
}  # fmt: skip


@pytest.mark.parametrize("kind", OF_MESSAGES)
def test_messages_are_judged_in_parts_as_they_are_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    found = set()
    for seed in range(3):
        random = Random(f"{kind}-{seed}")
        rows = planted_in(Log(random, 80).rows, kind, random)
        run_dir = in_row_groups(logged(tmp_path / f"run-{seed}", rows, topics=1 + seed % 2), 7 + 20 * seed)
        at_once = judged(run_dir)
        with monkeypatch.context() as patched:
            deal_all(patched, (1, 15, 40)[seed])
            assert any(isinstance(one, Offsets) for one in work_items(run_dir))
            assert judged(run_dir) == at_once, seed
        found |= {
            row.finding.kind for row in at_once[0] if row.finding.severity == "violation" or kind in KINDS_OF_MESSAGES
        }

    assert (KINDS_OF_MESSAGES[kind] in found) if kind in KINDS_OF_MESSAGES else not found


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_many_messages_are_judged_in_parts_as_they_are_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    for seed in range(first, first + 20):
        random = Random(seed)
        sizes = {"clients": random.choice([2, 4, 9]), "partitions": random.choice([4, 6, 12])}
        rows = Log(random, random.choice([40, 80, 150]), **sizes).rows
        for kind in random.choices(OF_MESSAGES, k=random.choice([1, 1, 3])):
            rows = planted_in(rows, kind, random)
        random.shuffle(rows) if random.random() < 0.2 else None
        run_dir = in_row_groups(logged(tmp_path / f"run-{seed}", rows, 1 + seed % 3), random.choice([5, 23, 999]))
        at_once = judged(run_dir)
        with monkeypatch.context() as patched:
            deal_all(
                patched, random.choice([1, 40, 150]), stretch=random.choice([3, 8, 30]), margin=random.choice([1, 4])
            )
            assert judged(run_dir) == at_once, seed


def as_messages(operations: Sequence[Operation]) -> list[dict[str, Any]] | None:
    """Return the operations of a history as transactions of a recording; None: something in it is no number."""
    keys: dict[Any, int] = {}
    rows = []
    for one in operations:
        steps: list[tuple[str, int, int | None, int | None]] = []
        for function, *parts in one.steps if one.function in {"send", "poll", "txn"} else ():
            if function == "send":
                offset, value = parts[1] if isinstance(parts[1], list | tuple) else (None, parts[1])
                steps.append(("send", keys.setdefault(parts[0], len(keys)), offset, value))
            elif parts and isinstance(parts[0], dict):
                for key, messages in parts[0].items():
                    place = keys.setdefault(key, len(keys))
                    steps += [("poll", place, offset, value) for offset, value in messages]
        if not all(type(value) is int and type(offset) in (int, type(None)) for *_, offset, value in steps):
            return None
        end = None if one.completed >= OPEN_END else one.completed
        made = {"process": one.process if type(one.process) is int else 0, "epoch": 0, "outcome": one.outcome}
        rows.append({**made, "begin": one.invoked, "end": end, "steps": steps})
    return rows


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, 8))])
def test_messages_of_others_are_judged_in_parts_as_they_are_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    cases = [case for case in corpus.kafka_cases() if len(case.get("history", ())) in range(1, 400)][part::8]
    if not cases:
        pytest.skip("these histories are not here")
    recordings = [(case["id"], as_messages(paired(case["history"]))) for case in cases]
    are_judged_alike(recordings, logged, tmp_path, monkeypatch)


def test_messages_are_never_in_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These readers go back and forth: so messages are looked at by partitions after all."""
    deal_all(monkeypatch, 40, margin=6)
    run_dir = in_row_groups(logged(tmp_path / "run", Log(Random(3), 200, partitions=12).rows), 20)

    first, second, *others, last = looks(run_dir)

    assert any(isinstance(one, Offsets) for one in first)
    assert all(isinstance(one, Lists) and one.part.extents for one in second)
    again = [one for items in others for one in items]
    assert sum(isinstance(one, Lists) for one in again) > 5
    assert {type(one) for one in again} <= {Lists, Circles, Messages}
    assert [type(one) for one in last] == [Beside]


def test_messages_are_looked_at_again_where_others_prove_that_their_transaction_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deal_all(monkeypatch, 1)
    run_dir = logged(tmp_path / "run", planted_in(Log(Random(4), 20, clients=2).rows, "elsewhere", Random(1)))

    again = [one for items in looks(run_dir) for one in items if isinstance(one, Messages)]

    assert 3 in [one.part.first for one in again]


@pytest.mark.parametrize("damage", ["time goes back", "a value twice"])
def test_of_a_damaged_run_the_same_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """Its files are dealt out in both cases: then transactions are judged before it is known that a value was sent twice."""
    cut_everything(monkeypatch, 3)
    rows = OneAtATime(Random(1), 40).rows
    run = Run(tmp_path / "run")
    for sequence in (0, 0) if damage == "a value twice" else (0, 1):
        run.send(sequence, 100)
    if damage == "time goes back":
        rows[20] |= {"begin": 500, "end": 400}
    run_dir = recorded(tmp_path / "run", rows, run=run)

    at_once = judged(run_dir)
    deal_all(monkeypatch, 20)

    assert judged(run_dir) == at_once
    assert at_once[1]


# --- circles alone --------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Transactions, list[list[tuple[int, int]]]]:
    """Transactions, and the edges of several keys; some of them at once, some nobody saw end."""
    count = draw(st.integers(1, 12))
    begins = [draw(st.integers(0, 30)) for _ in range(count)]
    lasts = [draw(st.integers(0, 12)) for _ in range(count)]
    outcome = [draw(st.sampled_from([0, 0, 0, INFO])) for _ in range(count)]
    number = st.integers(0, count - 1)
    keys = draw(st.lists(st.lists(st.tuples(number, number), max_size=8), min_size=1, max_size=3))
    if draw(st.booleans()):  # mostly forwards, as where nothing is wrong
        keys = [[edge for edge in own if begins[edge[0]] <= begins[edge[1]] + 3] for own in keys]
    invoked, moment = np.array(begins), np.array(begins) + np.array(lasts)
    completed = np.where(np.array(outcome) == INFO, OPEN_END, moment)
    index = 3 * np.arange(count)
    return Transactions(index, index * 0, np.array(outcome, np.int8), invoked, completed), moment, keys


def has_circle_at_once(transactions: Transactions, edges: Sequence[tuple[int, int]]) -> bool:
    count = len(transactions)
    before = transactions.completed[:, None] < transactions.invoked[None, :]
    before &= (transactions.outcome == 0)[:, None]
    for source, target in edges:
        before[source, target] |= source != target
    source, target = np.nonzero(before)
    matrix = coo_matrix((np.ones(source.size), (source, target)), shape=(count, count))
    label = connected_components(matrix, directed=True, connection="strong")[1]
    return bool(np.bincount(label).max() > 1)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(graphs(), st.lists(st.integers(0, 45), unique=True, max_size=4), st.integers(1, 6))
def test_a_circle_is_in_some_stretch_or_nowhere(history: Any, starts: list[int], width: int) -> None:
    transactions, moments, keys = history
    ordered = sorted(starts)
    margins = [(one, min(one + width, behind)) for one, behind in pairwise([*ordered, 99])]
    every = []
    for own in keys:
        source, target = (np.array([edge[side] for edge in own if edge[0] != edge[1]], np.int64) for side in (0, 1))
        every.append(circles.reported(transactions, moments, source, target, margins))

    found = False
    for stretch in circles.stretches(every, margins):
        inside = (moments >= stretch.from_ns) & (moments < stretch.until_ns)
        names = ("index", "process", "outcome", "invoked", "completed")
        own = Transactions(*(getattr(transactions, name)[inside] for name in names))
        found |= circles.has_circle(own, stretch.edges)

    assert found == has_circle_at_once(transactions, [edge for own in keys for edge in own])


@pytest.mark.parametrize(
    ("spans", "count", "bounds"),
    [
        pytest.param([(0, 100, 10)], 4, [0, 25, 50, 75, 100], id="evenly"),
        pytest.param([(0, 10, 30), (10, 100, 10)], 4, [0, 3, 7, 10, 100], id="more where more lies"),
        pytest.param([(5, 6, 1000)], 8, [5, 6], id="what cannot be cut"),
        pytest.param([(5, 8, 0)], 8, [], id="nothing"),
        pytest.param([(0, 10, 5), (90, 100, 5)], 2, [0, 90, 100], id="with a hole"),
    ],
)
def test_what_lies_in_spans_is_cut_evenly(spans: list[dealt.Span], count: int, bounds: list[int]) -> None:
    assert dealt.cuts(spans, count) == bounds
