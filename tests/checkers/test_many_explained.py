"""What is found in great numbers is found and explained in a time that grows with how much it is, not with its square."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_small_recordings import CREATED, UNCLEAN, uncleanly_elected
from tribunal.checkers.api import Context, PartitionRows
from tribunal.checkers.graphs import send_poll
from tribunal.checkers.graphs.columns import Transactions
from tribunal.checkers.guarantees import (
    Acknowledged,
    CutLive,
    Elected,
    Fact,
    How,
    JoinedIsr,
    Ledger,
    ProvenLoss,
    Settings,
    ShutDownUncleanly,
)
from tribunal.checkers.judge.engine import judge_runs
from tribunal.checkers.judge.presence import below_min_isr
from tribunal.checkers.judge.timeline import Entry, Timeline
from tribunal.checkers.properties import exactly_once, group_offsets, watermarks
from tribunal.results.metadata import State
from tribunal.results.recording import TABLES

MOST_S = 12  # of CPU: one by one each of them took minutes
PLACE = {"topic": "t", "partition": 0}


@contextmanager
def soon() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < MOST_S


def table(name: str, count: int, **columns: Any) -> pa.Table:
    """Return so many rows of a table; a column is one value for all or one each, None where it is not named."""
    schema = TABLES[name].arrow
    arrays = []
    for field in schema:
        given = columns.get(field.name)
        values = given if isinstance(given, np.ndarray) else [given] * count
        arrays.append(pa.array(values).cast(field.type) if given is not None else pa.nulls(count, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def transactions(count: int, **columns: Any) -> pa.Table:
    times = np.arange(count) * 10
    named = {"process": 7, "txn_id": "x", "outcome": "committed", "begin_ns": times, "end_ns": times + 8}
    return table("txns", count, **named | columns)


def context_of(txns: pa.Table) -> Context:
    return Context(complete=True, of_run=lambda name: txns if name == "txns" else TABLES[name].arrow.empty_table())


def test_positions_that_very_many_transactions_committed() -> None:
    count = 100_000
    named = {"process": 7, "group": "g", "kind": "commit", "outcome": "ok", "committed_offset": np.arange(count)}
    times = {"invoke_ns": np.arange(count) * 10 + 2, "complete_ns": np.arange(count) * 10 + 3}
    rows = PartitionRows({"commits": table("commits", count, **PLACE, **named, **times)})
    columns = rows.columns("commits")

    with soon():
        done, outcome = group_offsets.effective(columns, context_of(transactions(count)))

    assert (done == np.arange(count) * 10 + 8).all()
    assert (outcome == 0).all()


def test_positions_of_unknown_outcome_that_were_fetched_very_often() -> None:
    count = 60_000
    offsets = np.repeat(np.arange(count), 2)
    kinds = np.where(np.arange(2 * count) % 2, "fetch", "commit").astype(object)
    outcomes = np.where(np.arange(2 * count) % 2, "ok", "info").astype(object)
    named = {"process": 7, "group": "g", "kind": kinds, "outcome": outcomes, "committed_offset": offsets}
    times = {"invoke_ns": np.arange(2 * count) * 10, "complete_ns": np.arange(2 * count) * 10 + 3}
    rows = PartitionRows({"commits": table("commits", 2 * count, **PLACE, **named, **times)})

    with soon():
        found = group_offsets.kernel(rows, context_of(TABLES["txns"].arrow.empty_table()))

    assert found.anomalies.num_rows == 0
    assert found.figures == {"offset fetches of groups": count}


def test_records_that_were_processed_twice() -> None:
    count = 100_000
    steps = {"kind": 1, "outcome": 0, "process": 7}
    rows = {
        "log_offset": np.repeat(np.arange(count), 2), "value": np.repeat(np.arange(count), 2), "txn": np.arange(2 * count),
        "begin_ns": np.arange(2 * count) * 10,
    }  # fmt: skip
    columns = {name: np.full(2 * count, value) for name, value in steps.items()} | rows

    with soon():
        found = exactly_once.twice(columns, np.arange(2 * count))

    assert found.num_rows == count
    assert found["at_ns"].to_pylist()[:2] == [10, 30]


def test_messages_of_which_two_stand_at_one_offset() -> None:
    count = 60_000
    numbers = np.arange(2 * count)
    history = send_poll.LogHistory(
        Transactions(numbers, np.zeros_like(numbers), np.zeros(numbers.size, np.int8), 2 * numbers, 2 * numbers + 1),
        send_poll.Messages(numbers, np.zeros_like(numbers), numbers, numbers // 2),
        send_poll.Messages(*(np.zeros(0, np.int64) for _ in range(4))),
        {0: "t-0"},
    )

    with soon():
        found = send_poll.check(history)

    assert found.counts["inconsistent-offsets"] == count
    assert found.contradictions[1].values == (2, 3)


def test_last_stable_offsets_beyond_the_high_watermark() -> None:
    count = 60_000
    numbers = np.arange(count)
    named = {"observer": "client-1", "source": "fetch", "leader_epoch": 0, "answered_by": 1}
    ends = {"high_watermark": numbers, "last_stable_offset": numbers + 1, "at_ns": numbers * 10}
    rows = PartitionRows({"watermarks": table("watermarks", count, **PLACE, **named, **ends)})

    with soon():
        found = watermarks.kernel(rows, Context(complete=True)).anomalies

    kinds = found["kind"].to_pylist()
    assert kinds.count("last_stable_offset_beyond_high_watermark") == 1  # that of the last, which nobody shows


SETTINGS = Settings(
    min_isr=2, replication_factor=3, elr=True, unclean=False, recovery="off", high_watermark_needs_min_isr=True
)


def test_leaders_whose_isr_is_too_small_very_often() -> None:
    changes, beats = 3000, 20_000
    history = [
        Entry(
            at_ns=place * 1_000_000_000, facts=(), settings=SETTINGS, changed=True,
            state=State(replicas=(1, 2, 3), isr=(1,) if place % 2 else (1, 2), leader=1, leader_epoch=0),
        )
        for place in range(changes)
    ]  # fmt: skip
    to_controller = np.arange(2 * beats) % 2 == 0
    named = {
        "from": np.where(to_controller, 1, 101), "to": np.where(to_controller, 101, 1), "api_key": 63, "fate": "delivered",
        "direction": np.where(to_controller, "request", "response").astype(object),
        "at_ns": np.arange(2 * beats) * (changes * 1_000_000_000 // (2 * beats)),
    }  # fmt: skip
    of_run = {
        "requests": table("requests", 2 * beats, **named),
        "metadata": table(
            "metadata", changes, metadata_offset=np.arange(changes), at_ns=np.arange(changes) * 1_000_000_000
        ),
    }

    with soon():
        found = below_min_isr(
            history, {"min.insync.replicas": 2}, lambda name: of_run.get(name, TABLES[name].arrow.empty_table())
        )

    assert len({one.until_ns for one in found}) == changes // 2 - 1


# What coordinators remember: at each of very many places it may have been written.


def history_of(random: Random, count: int) -> list[Entry]:
    """Return a partition's history in which replicas come and go, and disks lose what they had."""
    isr, leader, epoch = [1, 2, 3], 1, 0
    entries = []
    settings = Settings(
        min_isr=2, replication_factor=3, elr=random.random() < 0.5, unclean=random.random() < 0.5, recovery="off",
        high_watermark_needs_min_isr=True,
    )  # fmt: skip
    for place in range(count):
        facts: list[Fact] = []
        more: dict[str, int] = {}
        match random.randrange(7):
            case 0 if len(isr) > 1:
                isr.remove(random.choice([node for node in isr if node != leader] or isr))
            case 1 if len(isr) < 3 and leader != -1:
                joined = random.choice([node for node in (1, 2, 3) if node not in isr])
                isr.append(joined)
                facts = [JoinedIsr(joined)]
            case 2:
                facts = [ShutDownUncleanly(random.choice([1, 2, 3]))]
            case 3:
                facts = [random.choice([ProvenLoss, CutLive])(random.choice([1, 2, 3]))]
                more = {"from_offset": random.choice([0, 5]), "end_offset": random.choice([10, 20])}
            case 4:
                how = random.choice([How.CLEAN, How.CLEAN, How.UNCLEAN, How.LAST_KNOWN])
                leader, epoch = random.choice(isr if how is How.CLEAN else [1, 2, 3]), epoch + 1
                isr = isr if how is How.CLEAN else [leader]
                facts = [Elected(leader, how, empty=random.random() < 0.3)]
            case 5 if random.random() < 0.3:
                leader = -1
            case _:
                pass  # nothing of this partition
        state = State(replicas=(1, 2, 3), isr=tuple(isr), leader=leader, leader_epoch=epoch)
        entries.append(Entry(at_ns=place * 1_000_000_000, facts=tuple(facts), settings=settings, state=state, **more))
    return entries


def permitted_one_by_one(entries: list[Entry], begin: int, last: int, until: int, first_offset: int) -> Any:
    """Return the first place at which something was written whose loss is permitted, and by what: the slow and obvious way."""
    for start in range(begin, last + 1):
        before = entries[start - 1]
        ledger = Ledger(before.settings)
        ledger.add(Acknowledged(-1, before.state.isr, before.state.leader, before.state.isr))
        for entry in entries[start : max(start, until)]:
            if entry.end_offset is not None and entry.end_offset <= first_offset:
                continue
            for fact in entry.facts:
                ledger.add(fact)
            if any(isinstance(fact, Elected | CutLive) for fact in entry.facts) and ledger.promise().rule is not None:
                return ledger.promise().rule, entry.at_ns
        of_members = ledger.rule_of_members(entries[-1].state.isr)
        if max(start, until) == len(entries) and entries[-1].state.leader == -1 and of_members is not None:
            return of_members, entries[-1].at_ns
    return None


@pytest.mark.parametrize("seed", range(40))
def test_what_was_written_at_some_time_is_judged_at_each_place_at_which_it_may_have_been(seed: int) -> None:
    random = Random(seed)
    entries = history_of(random, random.randrange(1, 30))
    timeline = Timeline(entries, SETTINGS)

    for _ in range(30):
        since = random.randrange(len(entries))
        absent = random.choice([None, random.randrange(since, len(entries) + 2)])
        done = random.choice([None, random.randrange(since, len(entries) + 2)])
        first_offset = random.choice([0, 12, 25])
        times = [None if one is None else one * 1_000_000_000 for one in (absent, done)]
        found = timeline.permitting(since * 1_000_000_000, times[0], done_ns=times[1], first_offset=first_offset)

        until = len(entries) if absent is None else min(absent + 1, len(entries))
        last = until if done is None else max(since + 1, min(until, done + 1))
        expected = permitted_one_by_one(entries, since + 1, last, until, first_offset)
        assert (None if found is None else (found.promise.rule, found.at_ns)) == expected


def test_what_was_written_at_some_time_behind_very_many_changes() -> None:
    entries = history_of(Random(5), 4000)
    timeline = Timeline(
        [entry for entry in entries if not any(isinstance(fact, Elected) for fact in entry.facts)], SETTINGS
    )

    with soon():
        found = [timeline.permitting(at * 1_000_000_000, None, first_offset=at) for at in range(300)]

    assert len(found) == 300


def test_records_that_are_lost_beside_very_many_watermarks(tmp_path: Path) -> None:
    lost, shown = 3000, 100_000
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(50, isr=[1, 2])
    for number in range(lost):
        run.send(number, 100 + number // 10)
    for number in range(shown):
        run.watermark(lost + number // 50, 500 + number // 50, epoch=0, observer="node-1")
    run.change(4000, leader=3, isr=[3], leader_recovery_state=1)
    run.final_read({}, at=9000, epoch=1)
    run_dir = run.finish()

    with soon():
        found = [row.finding for row in judge_runs([run_dir], "inline").findings]

    assert sum(one.count for one in found if (one.kind, one.rule) == ("lost", "R4")) == lost


def test_positions_that_are_forgotten_very_often(tmp_path: Path) -> None:
    fetches = 3000
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"isr": [1, 2]})
    row = {"process": 50, "group": "g", "outcome": "ok", **PLACE}
    run.recorder.row("commits", **row, kind="commit", committed_offset=3, invoke_ns=1000 * MS, complete_ns=1001 * MS)
    for number in range(fetches):
        begin_ns = (1100 + number) * MS
        step = {"kind": "poll", "log_offset": number, "value": number, **PLACE}
        run.recorder.row(
            "txns",
            process=51,
            txn_id="x",
            begin_ns=begin_ns,
            end_ns=begin_ns + MS // 2,
            outcome="committed",
            operations=[step],
        )
        times = {"invoke_ns": begin_ns + 1, "complete_ns": begin_ns + 2}
        run.recorder.row(
            "commits", **row | {"group": "h", "process": 51}, kind="commit", committed_offset=number, **times
        )
        times = {"invoke_ns": (5000 + number) * MS, "complete_ns": (5000 + number) * MS + 1}
        run.recorder.row("commits", **row, kind="fetch", committed_offset=None, **times)
    run_dir = run.finish()

    with soon():
        found = [row.finding for row in judge_runs([run_dir], "inline").findings]

    assert sum(one.count for one in found if (one.kind, one.severity) == ("offset_forgotten", "violation")) == fetches


def test_positions_that_were_lost_and_are_forgotten_very_often(tmp_path: Path) -> None:
    """What was permitted to be lost is found to be so once, not at each fetch; what is committed behind the loss is lost by nothing."""
    commits, fetches, late = 1000, 300, 50
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"isr": [1, 2]})
    row = {"process": 50, "group": "g", "outcome": "ok", **PLACE}

    def add(kind: str, offset: int | None, at_ns: int) -> None:
        times = {"invoke_ns": at_ns, "complete_ns": at_ns + 1}
        run.recorder.row("commits", **row, kind=kind, committed_offset=offset, **times)

    for number in range(commits):
        add("commit", number, 1000 * MS + 10 * number)
    uncleanly_elected(run, "__consumer_offsets", 3000)
    for number in range(fetches):
        add("fetch", None, (6000 + number) * MS)
    add("commit", commits, 8000 * MS)
    for number in range(late):
        add("fetch", None, (8100 + number) * MS)
    run_dir = run.finish()

    with soon():
        found = [row.finding for row in judge_runs([run_dir], "inline").findings]

    by_severity: dict[str, int] = {}
    for one in found:
        if one.kind == "offset_forgotten":
            by_severity[one.severity] = by_severity.get(one.severity, 0) + one.count
    assert by_severity == {"permitted": fetches, "violation": late}
