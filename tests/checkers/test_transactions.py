"""Transactions in a recording, in pairs: a history that is fine and its nearest neighbour that is not."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.checkers.recorded import MS, Run
from tribunal.checkers.graphs import list_append
from tribunal.checkers.graphs.operations import Operation
from tribunal.checkers.judge import engine
from tribunal.checkers.judge.fenced import fenced_among, going_back, producers
from tribunal.checkers.judge.partition import history_of
from tribunal.checkers.judge.timeline import TRANSACTION_LOG, History, Timeline
from tribunal.results.recording import TABLES
from tribunal.results.rows import Transaction, typed
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding

Step = tuple[Any, ...]


def step(text: str) -> dict[str, Any]:
    """`append t-0 1`, `read t-0 1`, `send t-0 5@0`, `poll t-0 5@0`."""
    kind, place, element = text.split()
    topic, _, partition = place.rpartition("-")
    value, _, offset = element.partition("@")
    known = {"value": None if value == "nothing" else int(value), "log_offset": int(offset) if offset else None}
    return {"kind": kind, "topic": topic, "partition": int(partition), **known}


def judged(folder: Path, *transactions: tuple[str, int, int, str]) -> set[tuple[str, str]]:
    run = Run(folder)
    for process, (outcome, begin, end, steps) in enumerate(transactions):
        performed = [step(text) for text in steps.split("; ")]
        run.recorder.row(
            "txns",
            process=process,
            txn_id=f"x{process}",
            begin_ns=begin * MS,
            end_ns=end * MS,
            outcome=outcome,
            operations=performed,
        )
    run.finish()
    return {(one.kind, one.severity) for one in findings(folder)}


def findings(folder: Path) -> list[Finding]:
    rows = engine.judge_runs([folder], "inline").findings
    return [row.finding for row in rows if row.finding.property_name == "transactions"]


@pytest.mark.parametrize(
    ("outcome", "found"),
    [pytest.param("committed", set(), id="committed"), pytest.param("aborted", {("G1a", "violation")}, id="aborted")],
)
def test_an_aborted_message_is_never_polled(tmp_path: Path, outcome: str, found: set[Any]) -> None:
    assert judged(tmp_path, (outcome, 1, 2, "send t-0 5@0"), ("committed", 3, 4, "poll t-0 5@0")) == found


@pytest.mark.parametrize(("sent", "found"), [
    pytest.param("send t-0 5@0", {("duplicate", "violation")}, id="a transaction's"),
    pytest.param("send t-0 6@2", set(), id="of a producer without transactions: judged by what that promised"),
])  # fmt: skip
def test_a_message_that_was_polled_at_two_offsets(tmp_path: Path, sent: str, found: set[Any]) -> None:
    polls = ("committed", 3, 4, "poll t-0 5@0; poll t-0 5@1")

    violations = {one for one in judged(tmp_path, ("committed", 1, 2, sent), polls) if one[1] == "violation"}
    assert violations == found


@pytest.mark.parametrize(
    ("second", "found"),
    [
        pytest.param("send t-1 6@0", set(), id="one way"),
        pytest.param("send t-1 6@0; poll t-0 5@0", {("G1c", "violation")}, id="in a circle"),
    ],
)
def test_transactions_do_not_poll_each_other(tmp_path: Path, second: str, found: set[Any]) -> None:
    assert judged(tmp_path, ("committed", 1, 5, "send t-0 5@0; poll t-1 6@0"), ("committed", 2, 6, second)) == found


@pytest.mark.parametrize(
    ("read", "found"),
    [
        pytest.param("read t-0 1", set(), id="the newest"),
        pytest.param("read t-0 nothing", {("G-single-item-realtime", "violation")}, id="a stale one"),
    ],
)
def test_lists_are_strictly_serializable(tmp_path: Path, read: str, found: set[Any]) -> None:
    transactions = [("committed", 1, 2, "append t-0 1"), ("committed", 3, 4, read), ("committed", 5, 6, "read t-0 1")]

    assert judged(tmp_path, *transactions) == found


def test_a_finding_names_transactions_and_the_model_that_is_ruled_out(tmp_path: Path) -> None:
    judged(tmp_path, ("aborted", 1, 2, "append t-0 1"), ("committed", 3, 4, "read t-0 1"))

    (finding,) = [one for one in findings(tmp_path) if one.kind == "G1a"]

    assert "was read although its transaction failed; rules out read-committed" in finding.detail.detail


@pytest.mark.parametrize(
    ("leader", "recovery", "found"),
    [
        pytest.param(3, 1, {("inconsistent-offsets", "permitted", "R4")}, id="an unclean leader began there anew"),
        pytest.param(2, 0, {("inconsistent-offsets", "violation", "")}, id="a clean leader has what was acknowledged"),
    ],
)
def test_two_values_at_one_offset(tmp_path: Path, leader: int, recovery: int, found: set[Any]) -> None:
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    run.change(5, isr=[1, 2])
    for process, at in ((0, 10), (1, 30)):
        row = {"topic": "t", "partition": 0, "value": process, "acks": -1, "log_offset": 0, "outcome": "ok"}
        times = {"invoke_ns": at * MS, "complete_ns": at * MS + 1}
        run.recorder.row("sends", process=process, worker_class="transactional", txn_id=f"x{process}", **row, **times)
        performed = [step(f"send t-0 {process}@0")]
        ends = {"begin_ns": at * MS, "end_ns": (at + 1) * MS, "outcome": "committed"}
        run.recorder.row("txns", process=process, txn_id=f"x{process}", operations=performed, **ends)
        if process == 0:
            run.change(20, isr=[leader], leader=leader, leader_recovery_state=recovery, eligible_leader_replicas=[])
    run.finish()

    assert {(one.kind, one.severity, one.rule) for one in findings(tmp_path)} == found


@pytest.mark.parametrize(
    ("at", "isr", "found"),
    [
        pytest.param(
            25, [1, 2], {("incompatible-order", "permitted", "R10")}, id="an element was lost between the reads"
        ),
        pytest.param(25, [1, 2, 3], {("incompatible-order", "violation", "")}, id="the new leader had it"),
        pytest.param(
            1095, [1, 2], {("incompatible-order", "violation", "")}, id="nothing was lost before both had ended"
        ),
        pytest.param(26, [1, 2], {("incompatible-order", "violation", "")}, id="the element stands there to the end"),
    ],
)
def test_two_orders_of_a_list(tmp_path: Path, at: int, isr: list[int], found: set[Any]) -> None:
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    run.change(0, isr=isr)
    steps = ["append t-0 1", "append t-0 2", "append t-0 3"]
    reads = ["read t-0 1; read t-0 2", "read t-0 1; read t-0 3"]
    election = {"isr": [3], "leader": 3, "leader_recovery_state": 1, "eligible_leader_replicas": []}
    for process, steps_of in enumerate([steps[0], steps[1], reads[0], steps[2], reads[1]]):
        if process * 10 in (at - 5, at - 6):
            run.change(at, **election)
        performed = [step(text) for text in steps_of.split("; ")]
        ends = {"begin_ns": process * 10 * MS, "end_ns": (process * 10 + 1) * MS, "outcome": "committed"}
        run.recorder.row("txns", process=process, txn_id=f"x{process}", operations=performed, **ends)
        if performed[0]["kind"] == "append":
            keys = {"worker_class": "transactional-list", "txn_id": f"x{process}", "process": process}
            offset = process if at == 26 else None
            run.send(process, process * 10, value=performed[0]["value"], log_offset=offset, **keys)
    if at == 26:
        run.final_read({0: 1, 1: 2, 3: 3}, at=2000, isolation="read_committed")
    if at > 50:
        run.change(at, **election)
    run.finish()

    kinds = {kind for kind, *_ in found}
    assert {(one.kind, one.severity, one.rule) for one in findings(tmp_path) if one.kind in kinds} == found


@pytest.mark.parametrize(("epoch", "found"), [
    pytest.param(1, {("incompatible-order", "permitted", "R10")}, id="it was written anew there"),
    pytest.param(0, {("incompatible-order", "violation", "")}, id="it stands there as it was"),
])  # fmt: skip
def test_an_element_that_was_written_anew_had_been_lost(tmp_path: Path, epoch: int, found: set[Any]) -> None:
    run = Run(tmp_path, **{"unclean.leader.election.enable": True})
    run.change(0, isr=[1, 2])
    texts = [
        "append t-0 1", "append t-0 2", "read t-0 1; read t-0 2", "append t-0 3", "read t-0 1; read t-0 3",
    ]  # fmt: skip
    for process, text in enumerate(texts):
        if process == 3:
            run.change(2500, isr=[3], leader=3, leader_recovery_state=1, eligible_leader_replicas=[])
        performed = [step(one) for one in text.split("; ")]
        times = {"begin_ns": process * 1000 * MS, "end_ns": (process * 1000 + 1) * MS, "outcome": "committed"}
        run.recorder.row("txns", process=process, txn_id=f"x{process}", operations=performed, **times)
        if performed[0]["kind"] == "append":
            keys = {"worker_class": "transactional-list", "txn_id": f"x{process}", "process": process}
            run.send(process, process * 1000, value=performed[0]["value"], log_offset=process, **keys)
    run.final_read({0: 1, 1: 2, 3: 3}, at=9000, isolation="read_committed", epoch=epoch)
    run.finish()

    kinds = {kind for kind, *_ in found}
    assert {(one.kind, one.severity, one.rule) for one in findings(tmp_path) if one.kind in kinds} == found


@pytest.mark.parametrize(
    "elements", [pytest.param(["a", -2], id="texts and negative numbers"), pytest.param([1 << 70, 5], id="large ones")]
)
def test_elements_of_other_tools_are_distinguished(elements: list[Any]) -> None:
    steps = [["append", "x", element] for element in elements] + [["r", "x", elements]]
    operations = [
        Operation(
            index=0, process=0, outcome="ok", function="txn", invoked=0, completed=1, steps=tuple(map(tuple, steps))
        )
    ]  # fmt: skip

    assert list_append.check(operations).anomalies == set()


def a_commit(run: Run, process: int, begin: int, epoch: int | None, **more: Any) -> None:
    """Record a transaction of x that was committed, or as said."""
    ends = {"begin_ns": begin * MS, "end_ns": (begin + 50) * MS}
    row = {"process": process, "txn_id": "x", "outcome": "committed", "producer_id": 7, "producer_epoch": epoch}
    run.recorder.row("txns", **row | ends | more, operations=[])


@pytest.mark.parametrize("seed", range(20))
def test_producers_whose_epoch_goes_back_are_known_by_their_committed_transactions(seed: int) -> None:
    random = Random(seed)
    rows = [
        {
            "txn_id": random.choice("xy"), "producer_id": random.choice([7, 8, None]), "producer_epoch": random.choice([1, 2, 2, 3, None]),
            "begin_ns": random.randrange(9), "end_ns": random.choice([20, 20, None]), "outcome": random.choice(["committed", "committed", "aborted"]),
        }
        for _ in range(random.choice([0, 1, 6, 12]))
    ]  # fmt: skip
    ended = [one["outcome"] == "committed" and None not in one.values() for one in rows]
    of: dict[Any, list[int]] = {}
    for number in sorted(np.flatnonzero(ended), key=lambda number: rows[number]["begin_ns"]):
        of.setdefault((rows[number]["txn_id"], rows[number]["producer_id"]), []).append(number)
    back = [
        name
        for name, own in sorted(of.items(), key=lambda one: min(one[1]))
        if any(rows[b]["producer_epoch"] < rows[a]["producer_epoch"] for a, b in pairwise(own))
    ]

    table = pa.Table.from_pylist(
        rows,
        schema=pa.schema(
            [
                TABLES["txns"].arrow.field(name)
                for name in ("txn_id", "producer_id", "producer_epoch", "begin_ns", "end_ns", "outcome")
            ]
        ),
    )

    assert going_back(producers(table)) == tuple(back)


@pytest.mark.parametrize(("first", "second", "found"), [
    pytest.param({}, {}, ["violation"], id="of an older epoch"),
    pytest.param({}, {"epoch": 5}, [], id="of the next one"),
    pytest.param({}, {"epoch": 4}, [], id="of the same"),
    pytest.param({}, {"epoch": None}, [], id="nobody knows of which"),
    pytest.param({}, {"begin": 90}, [], id="it had begun before"),
    pytest.param({}, {"outcome": "aborted"}, [], id="it was refused"),
    pytest.param({}, {"outcome": "info", "end_ns": None}, [], id="nobody answered it"),
    pytest.param({}, {"txn_id": "y"}, [], id="of another id"),
    pytest.param({}, {"producer_id": 8}, [], id="of another producer, whose epochs are its own"),
    pytest.param({"outcome": "info", "end_ns": None}, {}, [], id="nobody knows that the other one was there"),
])  # fmt: skip
def test_who_was_fenced_commits_nothing(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], found: list[str]
) -> None:
    run = Run(tmp_path / "run")
    a_commit(run, 8, **{"begin": 100, "epoch": 4} | first)
    a_commit(run, 7, **{"begin": 200, "epoch": 3} | second)

    run.finish()

    assert [(one.kind, one.severity) for one in findings(run.run_dir)] == [("fenced_commit", one) for one in found]


@pytest.mark.parametrize(("topic", "at", "severity"), [
    pytest.param("__transaction_state", 170, "permitted", id="its epoch may be forgotten"),
    pytest.param("elsewhere", 170, "violation", id="another partition lost something"),
    pytest.param("__transaction_state", 50, "violation", id="before it was there"),
    pytest.param("__transaction_state", 2000, "violation", id="when the later one had ended"),
])  # fmt: skip
def test_an_epoch_that_was_permitted_to_be_lost_fences_nobody(
    tmp_path: Path, topic: str, at: int, severity: str
) -> None:
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 0}
    for name in ("__transaction_state", "elsewhere"):
        run.metadata("PartitionRecord", 0, topic=name, **created)
    unclean = {"leader": 3, "isr": [3], "leader_recovery_state": 1, "eligible_leader_replicas": []}
    run.metadata("PartitionChangeRecord", at, topic=topic, partition_id=0, **unclean)
    a_commit(run, 8, 100, 4)
    a_commit(run, 7, 200, 3)
    run.finish()

    (one,) = findings(run.run_dir)

    assert (one.kind, one.severity, one.rule) == ("fenced_commit", severity, "R9" if severity == "permitted" else "")


def with_losses(folder: Path, *at: int) -> Run:
    """A run whose coordinators were permitted to forget at some moments what they knew of transactions."""
    run = Run(folder, **{"unclean.leader.election.enable": True})
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 0}
    run.metadata("PartitionRecord", 0, topic=TRANSACTION_LOG, **created)
    for number, moment in enumerate(at):
        leader = (3, 1)[number % 2]
        unclean = {"leader": leader, "isr": [leader], "leader_recovery_state": 1, "eligible_leader_replicas": []}
        run.metadata("PartitionChangeRecord", moment, topic=TRANSACTION_LOG, partition_id=0, **unclean)
    return run


class Asked(History):
    """A history that counts how often somebody asked for what a coordinator may have lost."""

    def timeline(self, topic: str, partition: int) -> Timeline:
        self.asked = getattr(self, "asked", 0) + 1
        return super().timeline(topic, partition)


@pytest.mark.parametrize("lost", [(), (3350,)])
def test_what_a_zombie_commits_again_and_again_is_compared_with_each_other_transaction_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: tuple[int, ...]
) -> None:
    """Of 15,000 on each side, as a run of minutes has, it took hours."""
    run = with_losses(tmp_path / "run", *lost)
    for number in range(100):
        a_commit(run, 8, 100 + 30 * number, 4)
    for number in range(100):
        a_commit(run, 7, 4000 + 30 * number, 3)
    run.finish()
    monkeypatch.setattr("tribunal.checkers.judge.partition.History", Asked)
    recording = Recording.open(run.run_dir)
    history = history_of(recording)
    assert isinstance(history, Asked)

    found = list(fenced_among(enumerate(typed(recording.table("txns"), Transaction)), history))

    assert [(one.row, one.by, one.judgement is not None) for one in found] == [
        (100 + number, 99, bool(lost)) for number in range(100)
    ]
    assert history.asked < 500


@pytest.mark.parametrize("seed", range(30))
def test_an_epoch_fences_unless_each_transaction_with_it_was_permitted_to_be_forgotten(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    run = with_losses(tmp_path / "run", *sorted(random.sample(range(60, 900), random.choice([0, 1, 2, 3]))))
    for number in range(random.choice([4, 12, 30])):
        epoch = random.choice([number // 6, number // 6, random.randrange(6)])
        a_commit(run, number, random.randrange(50, 900), epoch, end_ns=random.randrange(950, 2200) * MS)
    run.finish()
    recording = Recording.open(run.run_dir)
    history, rows = history_of(recording), typed(recording.table("txns"), Transaction)
    timeline = history.timeline(TRANSACTION_LOG, 0)
    expected = {}
    for place, row in enumerate(rows):
        later = [
            (one.begin_ns, number)
            for number, one in enumerate(rows)
            if (one.producer_epoch or 0) > (row.producer_epoch or 0) and one.begin_ns < row.begin_ns
        ]
        lost = [
            timeline.permitting(rows[number].begin_ns, row.end_ns, done_ns=rows[number].end_ns) for _, number in later
        ]
        if later:
            kept = any(one is None or one.promise.must_survive for one in lost)
            expected[place] = max(later)[1], None if kept else lost[later.index(max(later))]

    found = {one.row: (one.by, one.judgement) for one in fenced_among(enumerate(rows), history)}

    assert {row: by for row, (by, _) in found.items()} == {row: by for row, (by, _) in expected.items()}
    for row, (_, judgement) in found.items():
        permitted = expected[row][1]
        assert (judgement is None) == (permitted is None)
        if judgement is not None and permitted is not None:
            assert (judgement.at_ns, judgement.by) == (permitted.at_ns, permitted.promise.rule)
