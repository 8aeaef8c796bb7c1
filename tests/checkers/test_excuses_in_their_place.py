"""Excuses just outside of their interval, their place or their holder, each beside the neighbour that is one."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_small_recordings import (
    BY_R4,
    BY_R5,
    CREATED,
    LOST,
    NO_ELR,
    TO_NODE_3,
    UNCLEAN,
    judged,
    uncleanly_elected,
)
from tests.checkers.test_sql import agree

BY_ORDER = ("permitted", "gone_by_order")
BY_R9 = ("permitted", "R9")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def ordered(run: Run, api: str, since: int, until: int | None, **named: Any) -> None:
    """Record an order that was given at a moment, and answered at another one or never."""
    times = {"invoke_ns": since * MS, "complete_ns": None if until is None else until * MS}
    row = {"api": api, "topic": "t", "outcome": "info" if until is None else "ok"} | named
    run.recorder.row("admin", **row, **times)


def behind_the_log_start(run: Run, sent_at: int = 100, read_at: int = 10_000) -> list[tuple[Any, Any]]:
    """A record that was acknowledged is gone before the log start in the end."""
    run.send(0, sent_at)
    run.poll(99, "final", 1, 0, read_at, high_watermark=1, log_start_offset=1)
    return judged(run)


# Orders.


@pytest.mark.parametrize(("order", "expected"), [
    pytest.param({"since": 3000, "until": 3010}, BY_ORDER, id="beyond it"),
    pytest.param({"since": 3000, "until": None}, BY_ORDER, id="nobody answered"),
    pytest.param({"since": 3000, "until": 3010, "log_offset": None}, BY_ORDER, id="up to the high watermark"),
    pytest.param({"since": 3000, "until": 3010, "log_offset": 0}, LOST, id="up to the record"),
    pytest.param({"since": 3000, "until": 3010, "partition": 1}, LOST, id="of another partition"),
    pytest.param({"since": 3000, "until": 3010, "topic": "u"}, LOST, id="of another topic"),
    pytest.param({"since": 3000, "until": 3010, "outcome": "fail"}, LOST, id="refused"),
    pytest.param({"since": 20, "until": 30}, LOST, id="answered before it was sent"),
    pytest.param({"since": 10_100, "until": 10_110}, LOST, id="given when it had been missed"),
])  # fmt: skip
@pytest.mark.nightly
def test_records_are_deleted_where_and_when_it_was_ordered(
    run: Run, order: dict[str, Any], expected: tuple[str, str]
) -> None:
    named = {"partition": 0, "log_offset": 1} | order
    ordered(run, "delete_records", named.pop("since"), named.pop("until"), **named)

    assert behind_the_log_start(run) == [expected]


@pytest.mark.parametrize(("api", "named"), [
    pytest.param("delete_records", {"partition": 0, "log_offset": 1}, id="records deleted"),
    pytest.param("set_config", {"setting": "retention.ms", "value": "1000"}, id="retention"),
])  # fmt: skip
@pytest.mark.parametrize(("topic_id", "expected"), [
    pytest.param("a", BY_ORDER, id="its own id"),
    pytest.param(None, BY_ORDER, id="no id"),
    pytest.param("b", LOST, id="another one of the name"),
])  # fmt: skip
def test_an_order_is_about_the_topic_of_its_id(
    run: Run, api: str, named: dict[str, Any], topic_id: str | None, expected: tuple[str, str]
) -> None:
    created = {"metadata_offset": 80, "quorum_epoch": 1, "at_ns": 1, "record_type": "TopicRecord"}
    run.recorder.row("metadata", **created, topic="t", topic_id="a", body='{"name": "t"}')
    ordered(run, api, 3000, 3010, topic_id=topic_id, **named)

    assert behind_the_log_start(run) == [expected]


@pytest.mark.parametrize(("topic_id", "expected"), [
    pytest.param("a", BY_R4, id="its own id"),
    pytest.param("b", LOST, id="another one of the name"),
])  # fmt: skip
def test_an_election_is_ordered_of_the_topic_of_its_id(run: Run, topic_id: str, expected: tuple[str, str]) -> None:
    created = {"metadata_offset": 80, "quorum_epoch": 1, "at_ns": 1, "record_type": "TopicRecord"}
    run.recorder.row("metadata", **created, topic="t", topic_id="a", body='{"name": "t"}')
    ordered(run, "elect_leaders", 2500, 3100, value="unclean", partition=0, topic_id=topic_id)
    run.change(50, isr=[1, 2])
    run.send(0, 100)
    run.metadata_offset = 90
    run.change(3000, **TO_NODE_3)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("since", "until", "expected"), [
    pytest.param(2500, 3100, BY_R4, id="while it was under way"),
    pytest.param(500, 600, LOST, id="when it had been answered"),
    pytest.param(500, None, BY_R4, id="nobody answered"),
])  # fmt: skip
@pytest.mark.nightly
def test_an_order_to_elect_is_over_when_it_was_answered(
    run: Run, since: int, until: int | None, expected: tuple[str, str]
) -> None:
    ordered(run, "elect_leaders", since, until, value="unclean", partition=0)
    run.change(50, isr=[1, 2])
    run.send(0, 100)
    run.change(3000, **TO_NODE_3)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("since", "until", "expected"), [
    pytest.param(1900, 1950, BY_ORDER, id="the removal was ordered"),
    pytest.param(20, 30, LOST, id="that was another removal"),
    pytest.param(20, None, BY_ORDER, id="it may be done at any time"),
])  # fmt: skip
def test_each_removal_of_a_topic_needs_its_order(
    run: Run, since: int, until: int | None, expected: tuple[str, str]
) -> None:
    ordered(run, "delete_topic", since, until)
    run.send(0, 100)
    run.metadata("RemoveTopicRecord", 2000)
    run.metadata("PartitionRecord", 2100, **CREATED)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


def test_the_removal_of_a_topic_says_nothing_of_the_next_one_of_its_name(run: Run) -> None:
    ordered(run, "delete_topic", 1900, 1950)
    run.metadata("RemoveTopicRecord", 2000)
    run.metadata("PartitionRecord", 2100, **CREATED)
    run.send(0, 3000)
    run.final_read({}, at=9000)

    assert judged(run) == [LOST]


@pytest.mark.parametrize(("since", "until", "expected"), [
    pytest.param(1900, 1950, BY_ORDER, id="the removal was ordered"),
    pytest.param(20, 30, LOST, id="that was another removal"),
])  # fmt: skip
@pytest.mark.nightly
def test_so_does_the_last_one(run: Run, since: int, until: int | None, expected: tuple[str, str]) -> None:
    ordered(run, "delete_topic", since, until)
    run.send(0, 100)
    run.metadata("RemoveTopicRecord", 2000)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


# Retention and compaction: a limit takes what had reached it while it was in force.


@pytest.mark.parametrize(("spells", "read_at", "expected"), [
    pytest.param([("t", 10, "5000")], 30_000, BY_ORDER, id="old enough"),
    pytest.param([("t", 10, "50000")], 30_000, LOST, id="too young"),
    pytest.param([("u", 10, "5000")], 30_000, LOST, id="another topic's"),
    pytest.param([("t", 10, "-1")], 30_000, LOST, id="no limit"),
    pytest.param([("t", 10, "20000"), ("t", 2000, "3600000")], 60_000, LOST, id="too young as long as it was in force"),
    pytest.param([("t", 10, "5000"), ("t", 9000, "3600000")], 60_000, BY_ORDER, id="old enough before it was replaced"),
    pytest.param([("t", 31_000, "5000")], 30_000, LOST, id="set when it had been missed"),
])  # fmt: skip
def test_retention_takes_what_had_reached_its_age(
    run: Run, spells: list[tuple[str, int, str]], read_at: int, expected: tuple[str, str]
) -> None:
    for topic, at, value in spells:
        run.metadata("ConfigRecord", at, resource_type=2, resource_name=topic, name="retention.ms", value=value)

    assert behind_the_log_start(run, read_at=read_at) == [expected]


@pytest.mark.parametrize(("set_at", "lasts", "expected"), [
    pytest.param(2000, 10, BY_ORDER, id="between"),
    pytest.param(20, 10_000, BY_ORDER, id="it was wrong when the record was sent"),
    pytest.param(200, 10, LOST, id="set right before the record was sent"),
    pytest.param(10_500, 10, LOST, id="set when it had been missed"),
])  # fmt: skip
def test_a_clock_makes_records_old_as_long_as_it_is_wrong(
    run: Run, set_at: int, lasts: int, expected: tuple[str, str]
) -> None:
    run.metadata("ConfigRecord", 1, resource_type=2, resource_name="t", name="retention.ms", value="3600000")
    run.fault("clock-jump", set_at, node=1, lasts=lasts)

    assert behind_the_log_start(run, sent_at=1000) == [expected]


HOUR_MS = 3_600_000


@pytest.mark.parametrize(("clock", "expected"), [
    pytest.param({"offset_ms": 1000}, LOST, id="ahead by a second"),
    pytest.param({"offset_ms": 2 * HOUR_MS}, BY_ORDER, id="ahead by hours"),
    pytest.param({"offset_ms": -1000}, LOST, id="behind by a second when it was written"),
    pytest.param({"offset_ms": -2 * HOUR_MS}, BY_ORDER, id="behind by hours when it was written"),
    pytest.param({"offset_ms": -2 * HOUR_MS, "at": 20, "until": 400}, LOST, id="set right before it was written"),
    pytest.param({"offset_ms": 2 * HOUR_MS, "node": 3}, LOST, id="of one that never led"),
])  # fmt: skip
@pytest.mark.nightly
def test_a_clock_makes_records_older_by_as_much_as_it_was_set(
    run: Run, clock: dict[str, Any], expected: tuple[str, str]
) -> None:
    run.metadata("ConfigRecord", 1, resource_type=2, resource_name="t", name="retention.ms", value=str(HOUR_MS))
    set_clock(run, **{"at": 500, "until": 3000} | clock)

    assert behind_the_log_start(run, sent_at=1000) == [expected]


def test_a_clock_that_was_a_second_ahead_makes_nothing_an_hour_old(run: Run) -> None:
    run.metadata("ConfigRecord", 1, resource_type=2, resource_name="t", name="retention.ms", value=str(HOUR_MS))
    set_clock(run, at=500, offset_ms=1000, until=3000)

    assert behind_the_log_start(run, sent_at=1000) == [LOST]


def lacking_its_beginning(run: Run, sent_at: int) -> list[tuple[Any, Any]]:
    """One replica's log begins two records behind those of the others."""
    values = [run.send(number, sent_at + number) for number in range(4)]
    run.watermark(4, sent_at + 500, epoch=0)
    run.final_read(dict(enumerate(values)), at=sent_at + 9000, epoch=0)
    for node in (1, 2, 3):
        run.log(node, {offset: value for offset, value in enumerate(values) if node != 2 or offset >= 2})
    return judged(run, "replica_lacks")


@pytest.mark.parametrize(("limit_ms", "expected"), [
    pytest.param(5000, BY_ORDER, id="old enough"), pytest.param(HOUR_MS, LOST, id="too young, two hours into the run")
])  # fmt: skip
def test_a_replica_s_beginning_goes_at_the_age_of_its_records(
    run: Run, limit_ms: int, expected: tuple[str, str]
) -> None:
    run.metadata("ConfigRecord", 10, resource_type=2, resource_name="t", name="retention.ms", value=str(limit_ms))

    assert lacking_its_beginning(run, 2 * HOUR_MS) == [expected]


def test_a_replica_goes_on_to_delete_until_its_log_is_read(run: Run) -> None:
    """Scenario retention, seed 7001: the records reached their age behind the final reads."""
    run.metadata("ConfigRecord", 10, resource_type=2, resource_name="t", name="retention.ms", value="15000")
    run.phase("collect", 9000, 16_000)

    assert lacking_its_beginning(run, 1000) == [BY_ORDER]


@pytest.mark.parametrize(("limit_ms", "log_start", "expected"), [
    pytest.param(5000, 3, BY_ORDER, id="the log start moved while it was read"),
    pytest.param(5000, 2, LOST, id="the log start stands in the hole"),
    pytest.param(HOUR_MS, 3, LOST, id="too young"),
    pytest.param(9500, 3, LOST, id="its last record is too young"),
])  # fmt: skip
def test_a_hole_in_the_final_read_is_what_retention_took_meanwhile(
    run: Run, limit_ms: int, log_start: int, expected: tuple[str, str]
) -> None:
    """A search of produce-consume with log.retention.ms 4000: the reader was out of range, and went on behind the hole."""
    run.metadata("ConfigRecord", 10, resource_type=2, resource_name="t", name="retention.ms", value=str(limit_ms))
    values = [run.send(number, at) for number, at in enumerate((1000, 1100, 2000, 9000))]
    run.final_read({0: values[0], 3: values[3]}, at=10_000, epoch=0)
    run.poll(99, "final", 4, 0, 10_002, high_watermark=4, log_start_offset=log_start)
    for node in (1, 2, 3):
        run.log(node, {3: values[3]})

    assert judged(run, "gap") == [expected]


@pytest.mark.parametrize(("since", "offset", "expected"), [
    pytest.param(2000, 2, BY_ORDER, id="up to where it begins"),
    pytest.param(2000, 1, LOST, id="not so far"),
    pytest.param(20, 2, LOST, id="answered before they were sent"),
    pytest.param(20, None, LOST, id="answered before they were sent, up to the high watermark"),
])  # fmt: skip
@pytest.mark.nightly
def test_a_replica_s_beginning_goes_by_an_order_given_since(
    run: Run, since: int, offset: int | None, expected: tuple[str, str]
) -> None:
    ordered(run, "delete_records", since, since + 10, partition=0, log_offset=offset)

    assert lacking_its_beginning(run, 1000) == [expected]


@pytest.mark.parametrize(("spells", "expected"), [
    pytest.param([("t", 10, "compact")], [], id="compacted"),
    pytest.param([("u", 10, "compact")], [LOST], id="another topic is"),
    pytest.param([("t", 10, "compact"), ("t", 50, "delete")], [LOST], id="it was, before the record was sent"),
])  # fmt: skip
def test_what_was_never_compacted_is_not_missing_by_that(
    run: Run, spells: list[tuple[str, int, str]], expected: list[object]
) -> None:
    for topic, at, value in spells:
        run.metadata("ConfigRecord", at, resource_type=2, resource_name=topic, name="cleanup.policy", value=value)
    values = [run.send(number, 100 + number) for number in range(3)]
    run.watermark(3, 500, epoch=0)
    run.final_read(dict(enumerate(values)), at=9000, epoch=0)
    for node in (1, 2, 3):
        run.log(node, {offset: value for offset, value in enumerate(values) if (node, offset) != (2, 1)})

    assert judged(run, "replica_lacks") == expected


@pytest.mark.parametrize(("spells", "expected"), [
    pytest.param([(10, "compact")], BY_ORDER, id="its key was written again"),
    pytest.param([(10, "compact"), (50, "delete")], LOST, id="it was compacted before"),
    pytest.param([(9500, "compact")], LOST, id="it was compacted when it had been missed"),
])  # fmt: skip
@pytest.mark.nightly
def test_compaction_takes_older_records_of_a_key(
    run: Run, spells: list[tuple[int, str]], expected: tuple[str, str]
) -> None:
    for at, value in spells:
        run.metadata("ConfigRecord", at, resource_type=2, resource_name="t", name="cleanup.policy", value=value)
    run.send(0, 100, key="k")
    run.final_read({1: run.send(1, 200, key="k")}, at=9000)

    assert judged(run) == [expected]


# Coordinators: a group's positions lie in the partition that it hashes to ("g" is 103), and so do decisions ("x" is 120).


@pytest.mark.parametrize(("partition", "severity"), [(1, "permitted"), (0, "violation")])
@pytest.mark.nightly
def test_a_position_is_lost_in_its_own_partition(tmp_path: Path, partition: int, severity: str) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    for number in (0, 1):
        of_number(run, "PartitionRecord", 0, "__consumer_offsets", number, **CREATED | {"isr": [1, 2]})
    row = {"process": 50, "group": "g", "topic": "t", "partition": 0, "outcome": "ok"}
    times = {"invoke_ns": 1000 * MS, "complete_ns": 1001 * MS}
    run.recorder.row("commits", **row, **times, kind="commit", committed_offset=3)
    of_number(run, "PartitionChangeRecord", 3000, "__consumer_offsets", partition, **TO_NODE_3)
    times = {"invoke_ns": 5000 * MS, "complete_ns": 5001 * MS}
    run.recorder.row("commits", **row, **times, kind="fetch", committed_offset=None)

    assert [one for one, _ in judged(run, "offset_forgotten")] == [severity]


@pytest.mark.parametrize(("lost_at", "severity"), [
    pytest.param(4000, "permitted", id="since the position was committed"),
    pytest.param(2000, "violation", id="when the transaction before was open"),
])  # fmt: skip
def test_a_position_is_of_the_transaction_that_its_producer_began_last(
    tmp_path: Path, lost_at: int, severity: str
) -> None:
    """Nobody saw the end of the one before: it was over when the next one began."""
    run = Run(tmp_path / "run", **UNCLEAN)
    for topic in ("__consumer_offsets", "__transaction_state"):
        run.metadata("PartitionRecord", 0, topic=topic, **CREATED | {"isr": [1, 2]})
    for begin, end, outcome in ((1000, None, "info"), (3000, 3200 * MS, "committed")):
        run.recorder.row(
            "txns", process=50, txn_id="x", begin_ns=begin * MS, end_ns=end, outcome=outcome, operations=[]
        )
    row = {"process": 50, "group": "g", "topic": "t", "partition": 0, "outcome": "ok"}
    times = {"invoke_ns": 3100 * MS, "complete_ns": 3110 * MS}
    run.recorder.row("commits", **row, **times, kind="commit", committed_offset=3)
    uncleanly_elected(run, "__transaction_state", lost_at)
    times = {"invoke_ns": 6000 * MS, "complete_ns": 6001 * MS}
    run.recorder.row("commits", **row, **times, kind="fetch", committed_offset=None)

    assert [one for one, _ in judged(run, "offset_forgotten")] == [severity]


@pytest.mark.parametrize(("asked_at", "answered_by", "severity"), [
    pytest.param(3500, 3, "violation", id="the new coordinator had it"),
    pytest.param(3500, 1, "permitted", id="the deposed one had it"),
    pytest.param(3500, None, "permitted", id="nobody knows whose answer it was"),
    pytest.param(2500, 1, "permitted", id="it was there before the election"),
])  # fmt: skip
def test_who_showed_a_position_had_it(tmp_path: Path, asked_at: int, answered_by: int | None, severity: str) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"isr": [1, 2]})
    uncleanly_elected(run, "__consumer_offsets", 3000)
    row = {"process": 50, "group": "g", "topic": "t", "partition": 0, "outcome": "ok"}
    for kind, offset, at, node in (
        ("commit", 3, 1000, 1),
        ("fetch", 3, asked_at, answered_by),
        ("fetch", None, 5000, 3),
    ):
        times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
        run.recorder.row("commits", **row, **times, kind=kind, committed_offset=offset, answered_by=node)

    assert [one for one, _ in judged(run, "offset_forgotten")] == [severity]


@pytest.mark.parametrize(("answered_by", "severity"), [
    pytest.param(3, "violation", id="the new coordinator"),
    pytest.param(1, "permitted", id="the deposed one"),
    pytest.param(None, "permitted", id="nobody knows who"),
])  # fmt: skip
def test_a_generation_is_written_to_the_log_of_who_answered(
    tmp_path: Path, answered_by: int | None, severity: str
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"isr": [1, 2]})
    uncleanly_elected(run, "__consumer_offsets", 500)
    row = {"process": 50, "group": "g", "topic": "t", "partition": 0, "kind": "commit", "outcome": "ok"}
    for generation, at, node in ((5, 1000, answered_by), (4, 15_000, 3)):
        named = {"generation": generation, "committed_offset": 3, "answered_by": node}
        run.recorder.row("commits", **row, **named, invoke_ns=at * MS, complete_ns=(at + 1) * MS)

    assert [one for one, _ in judged(run, "stale_generation")] == [severity]


@pytest.mark.parametrize(("partition", "expected"), [(0, BY_R9), (1, LOST)])
@pytest.mark.nightly
def test_a_decision_is_lost_in_its_own_partition(tmp_path: Path, partition: int, expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    for number in (0, 1):
        of_number(run, "PartitionRecord", 0, "__transaction_state", number, **CREATED | {"isr": [1, 2]})
    value = in_transaction(run, {"t": 0}, "committed")["t"]
    of_number(run, "PartitionChangeRecord", 4000, "__transaction_state", partition, **TO_NODE_3)
    run.final_read({}, at=9000, isolation="read_committed")
    for node in (1, 2, 3):
        run.log(node, {0: value})

    assert judged(run, "unread") == [expected]


def of_number(run: Run, kind: str, at: int, topic: str, partition: int, **body: Any) -> None:
    """Record a change of a partition of a number."""
    row = {"record_type": kind, "topic": topic, "partition": partition, "at_ns": at * MS}
    named = msgspec.json.encode(body | {"partition_id": partition}).decode()
    run.recorder.row("metadata", **row, metadata_offset=run.metadata_offset, quorum_epoch=1, body=named)
    run.metadata_offset += 1


def in_transaction(run: Run, sent: dict[str, int | None], outcome: str, **more: Any) -> dict[str, int]:
    """Send a record to each of these topics in a transaction, at an offset or nobody knows where."""
    values = {}
    for number, (topic, offset) in enumerate(sent.items()):
        known = {"outcome": "info", "complete_ns": None} if offset is None else {}
        values[topic] = run.send(number, 100 + number, topic=topic, log_offset=offset, txn_id="x", **known)
    steps = [
        {"kind": "send", "topic": topic, "partition": 0, "log_offset": sent[topic], "value": value}
        for topic, value in values.items()
    ]
    end_ns = None if outcome == "info" else 300 * MS
    row = {"begin_ns": 99 * MS, "end_ns": end_ns, "outcome": outcome, "operations": steps} | more
    run.recorder.row("txns", process=7, txn_id="x", **row)
    return values


def read_empty(run: Run, topic: str, process: int) -> None:
    """Read a topic to its end with isolation read_committed, and get nothing."""
    final = {"process": process, "topic": topic, "partition": 0, "isolation": "read_committed", "phase": "final"}
    answer = {"poll_index": 0, "position": 0, "record_count": 0, "high_watermark": 0, "log_start_offset": 0}
    run.recorder.row("polls", **final, **answer, invoke_ns=9000 * MS, complete_ns=9000 * MS, outcome="ok")


@pytest.mark.parametrize(("elected", "written", "expected"), [
    pytest.param(["u", "v"], True, BY_R9, id="in each partition that lacks its part"),
    pytest.param(["u"], True, LOST, id="in one of two"),
    pytest.param(["u"], False, BY_R9, id="nobody knows the other part to be written"),
    pytest.param(["__transaction_state"], True, BY_R9, id="its decision"),
    pytest.param([], True, LOST, id="nowhere"),
])  # fmt: skip
def test_a_torn_transaction_needs_an_excuse_for_each_part(
    tmp_path: Path, elected: list[str], written: bool, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    for topic in ("u", "v", "__transaction_state"):
        run.metadata("PartitionRecord", 0, topic=topic, **CREATED | {"isr": [1, 2]})
    values = in_transaction(run, {"t": 0, "u": 0, "v": 0 if written else None}, "info")
    for topic in elected:
        uncleanly_elected(run, topic, 3000)
    run.final_read({0: values["t"]}, at=9000, isolation="read_committed")
    read_empty(run, "u", 97)
    read_empty(run, "v", 98)

    assert judged(run, "torn") == [expected]


# Aborted transactions: the next one of the producer commits what nobody knows to be aborted.


@pytest.mark.parametrize(("lost", "other", "passed_at", "expected"), [
    pytest.param({}, {}, None, BY_R9, id="the decision was lost, the next one was committed"),
    pytest.param({}, {"outcome": "info", "end_ns": None}, None, BY_R9, id="it may have been"),
    pytest.param({}, {}, 5500, BY_R9, id="the record was passed when that was under way"),
    pytest.param({}, {"producer_id": None}, None, BY_R9, id="nobody knows whose it was"),
    pytest.param({}, {}, 2000, LOST, id="the abort's marker was there"),
    pytest.param({}, None, None, LOST, id="nothing was committed behind it"),
    pytest.param({}, {"outcome": "aborted"}, None, LOST, id="the next one was aborted, too"),
    pytest.param({}, {"txn_id": "y"}, None, LOST, id="another id's was committed"),
    pytest.param({}, {"producer_id": 8}, None, LOST, id="another producer's was committed"),
    pytest.param({}, {"begin_ns": 1500 * MS, "end_ns": 2500 * MS}, None, LOST, id="it ended before the loss"),
    pytest.param({}, {"begin_ns": 9000 * MS, "end_ns": 9100 * MS}, None, LOST, id="it began when the record was read"),
    pytest.param({"topic": "elsewhere"}, {}, None, LOST, id="lost in another partition"),
    pytest.param({"at": 50}, {}, None, LOST, id="before it began"),
    pytest.param({"at": 8500}, {}, None, LOST, id="when the record had been read"),
    pytest.param({"isr": [1, 2, 3]}, {}, None, LOST, id="elected was who held it"),
])  # fmt: skip
def test_an_abort_that_was_permitted_to_be_lost_is_forgotten(
    tmp_path: Path, lost: dict[str, Any], other: dict[str, Any] | None, passed_at: int | None, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    for topic in ("__transaction_state", "elsewhere"):
        run.metadata("PartitionRecord", 0, topic=topic, **CREATED | {"isr": lost.get("isr", [1, 2])})
    value = in_transaction(run, {"t": 0}, "aborted", producer_id=7, producer_epoch=3)["t"]
    where, at = lost.get("topic", "__transaction_state"), lost.get("at", 3000)
    if lost.get("isr") is None:
        uncleanly_elected(run, where, at)
    else:
        run.metadata("PartitionChangeRecord", at, topic=where, partition_id=0, leader=3)
    if other is not None:
        row = {
            "process": 7,
            "txn_id": "x",
            "producer_id": 7,
            "producer_epoch": 3,
            "outcome": "committed",
            "operations": [],
        }
        run.recorder.row("txns", **row | {"begin_ns": 5000 * MS, "end_ns": 6000 * MS} | other)
    if passed_at is not None:
        run.watermark(1, passed_at, epoch=0, last_stable_offset=1)
    run.read({0: value}, 8000, process=80, isolation="read_committed", epoch=0)
    run.final_read({0: value}, at=9000, isolation="read_committed", epoch=0)

    assert judged(run, "aborted_read") == [expected]


@pytest.mark.parametrize(("lost_at", "other", "passed_at", "expected"), [
    pytest.param(3000, {}, None, BY_R9, id="that it was open was lost, the next one was committed"),
    pytest.param(3000, {}, 5500, BY_R9, id="the record was passed when that was under way"),
    pytest.param(None, {}, None, LOST, id="nothing was lost"),
    pytest.param(50, {}, None, LOST, id="lost before it began"),
    pytest.param(8500, {}, None, LOST, id="lost when the record had been read"),
    pytest.param(3000, {}, 2000, LOST, id="somebody had aborted it before"),
    pytest.param(3000, None, None, LOST, id="nothing was committed behind it"),
    pytest.param(3000, {"outcome": "aborted"}, None, LOST, id="the next one was aborted, too"),
    pytest.param(3000, {"txn_id": "y"}, None, LOST, id="another id's was committed"),
    pytest.param(3000, {"begin_ns": 1500 * MS, "end_ns": 2500 * MS}, None, LOST, id="it ended before the loss"),
])  # fmt: skip
def test_who_gave_up_without_an_answer_may_be_taken_for_one_that_had_nothing_open(
    tmp_path: Path, lost_at: int | None, other: dict[str, Any] | None, passed_at: int | None, expected: tuple[str, str]
) -> None:
    """Its abort was asked of a coordinator that had lost that the transaction was open; found by the search (seed 1455492824)."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED | {"isr": [1, 2]})
    value = in_transaction(run, {"t": 0}, "aborted", producer_id=7, producer_epoch=3, end_ns=None)["t"]
    if lost_at is not None:
        uncleanly_elected(run, "__transaction_state", lost_at)
    if other is not None:
        row = {"process": 7, "txn_id": "x", "producer_id": 7, "producer_epoch": 4, "outcome": "committed"}
        span = {"begin_ns": 5000 * MS, "end_ns": 6000 * MS, "operations": []}
        run.recorder.row("txns", **row | span | other)
    if passed_at is not None:
        run.watermark(1, passed_at, epoch=0, last_stable_offset=1)
    run.read({0: value}, 8000, process=80, isolation="read_committed", epoch=0)
    run.final_read({0: value}, at=9000, isolation="read_committed", epoch=0)
    # A transaction polled it, too: the same fact, as a circle's kin.
    step = {"kind": "poll", "topic": "t", "partition": 0, "log_offset": 0, "value": value}
    made = {"process": 80, "txn_id": "reader", "producer_id": 80, "producer_epoch": 0, "outcome": "committed"}
    run.recorder.row("txns", **made, begin_ns=8000 * MS, end_ns=8100 * MS, operations=[step])

    assert judged(run, "aborted_read") == judged(run, "G1a") == [expected]


@pytest.mark.parametrize(("recovery", "sends_there", "expected"), [
    pytest.param(0, True, BY_R9, id="nobody aborted it anew, and the next one committed it"),
    pytest.param(1, True, LOST, id="who was elected aborted it anew"),
    pytest.param(0, False, LOST, id="the next one sent nothing there"),
])  # fmt: skip
def test_the_marker_of_an_abort_may_be_lost_to_a_leader_that_does_not_recover(
    tmp_path: Path, recovery: int, sends_there: bool, expected: tuple[str, str]
) -> None:
    """Before KIP-704, as in ZooKeeper mode with inter.broker.protocol.version 2.6, leaders are elected uncleanly and abort nothing."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED)
    run.change(50, isr=[1, 2])
    value = in_transaction(run, {"t": 0}, "aborted", producer_id=7, producer_epoch=3)["t"]
    run.change(3000, **TO_NODE_3 | {"leader_recovery_state": recovery})
    step = {"kind": "send", "topic": "t" if sends_there else "u", "partition": 0, "log_offset": 5, "value": None}
    row = {"process": 7, "txn_id": "x", "producer_id": 7, "producer_epoch": 3, "outcome": "committed"}
    run.recorder.row("txns", **row, operations=[step], begin_ns=5000 * MS, end_ns=6000 * MS)
    run.read({0: value}, 8000, process=80, isolation="read_committed", epoch=1)
    run.final_read({0: value}, at=9000, isolation="read_committed", epoch=1)

    assert judged(run, "aborted_read") == [expected]


# Clocks of coordinators: what nobody ends is ended by the clock of who leads the transaction's partition.


@pytest.mark.parametrize(("clock", "expected"), [
    pytest.param({}, LOST, id="nobody's was set"),
    pytest.param({"at": 2000, "offset_ms": -60_000}, BY_R9, id="set back while it was open"),
    pytest.param({"at": 2000, "offset_ms": -60_000, "node": 3}, LOST, id="set back at one that never led"),
    pytest.param({"at": 2000, "offset_ms": -1000}, LOST, id="set back too little"),
    pytest.param({"at": 2000, "offset_ms": 60_000}, LOST, id="set forward"),
    pytest.param({"at": 10, "offset_ms": 60_000, "until": 3000}, BY_R9, id="set right, from ahead"),
    pytest.param({"at": 10, "offset_ms": -60_000, "until": 50}, LOST, id="set right before it began"),
    pytest.param({"at": 19_000, "offset_ms": -60_000}, LOST, id="set back when it was overdue"),
    pytest.param({"at": 10, "offset_ms": -60_000, "node": 2}, BY_R9, id="the next leader's was behind"),
])  # fmt: skip
def test_a_coordinator_ends_what_is_open_by_its_own_clock(
    run: Run, clock: dict[str, Any], expected: tuple[str, str]
) -> None:
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED)
    in_transaction(run, {"t": 0}, "info", timeout_ms=5000)
    if clock:
        set_clock(run, **clock)
    if clock.get("node") == 2:
        run.metadata("PartitionChangeRecord", 1000, topic="__transaction_state", partition_id=0, leader=2)
    run.watermark(1, 20_000, epoch=0, last_stable_offset=0)

    assert judged(run, "hanging") == [expected]


@pytest.mark.parametrize("proof", ["the clock was set back", "{", '{"offset_ms": "far"}', "\\xff"])
def test_a_proof_that_nobody_can_read_says_not_how_far_a_clock_was_set(run: Run, proof: str) -> None:
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED)
    in_transaction(run, {"t": 0}, "info", timeout_ms=5000)
    run.fault("clock-jump", 2000, node=1, lasts=100_000, proof=proof)
    run.watermark(1, 20_000, epoch=0, last_stable_offset=0)

    assert judged(run, "hanging") == [BY_R9]


@pytest.mark.nightly
def test_what_was_answered_is_owed_whatever_the_clock_says(run: Run) -> None:
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED)
    in_transaction(run, {"t": 0}, "committed", timeout_ms=5000)
    set_clock(run, at=2000, offset_ms=-60_000)
    run.watermark(1, 20_000, epoch=0, last_stable_offset=0)

    assert judged(run, "hanging") == [LOST]


@pytest.mark.parametrize(("faults", "expected"), [
    pytest.param([{"at": 200, "lasts": 19_000, "node": 1}], BY_R9, id="the coordinator was cut off"),
    pytest.param([{"at": 200, "lasts": 19_000, "node": 2}], BY_R9, id="the leader was cut off"),
    pytest.param([{"at": 200, "lasts": 19_000, "node": 1, "target": "all brokers"}], BY_R9, id="everybody was"),
    pytest.param([{"at": 200, "lasts": 6000, "node": 1}, {"at": 8000, "lasts": 6000, "node": 2}], BY_R9, id="in turn"),
    pytest.param([{"at": 200, "lasts": 19_000, "node": 3}], LOST, id="a third node was cut off"),
    pytest.param([{"at": 200, "lasts": 9000, "node": 1}], LOST, id="it was healed ten seconds before"),
    pytest.param([{"at": 11_000, "lasts": 9000, "node": 1}], LOST, id="it began ten seconds after the end"),
    pytest.param([{"at": 200, "lasts": 19_000, "node": 3, "kind": "halves"}], BY_R9, id="a fault of several nodes"),
    pytest.param([{"at": 200, "lasts": 19_000, "node": 1, "kind": "clock-jump"}], LOST, id="only its clock was wrong"),
    pytest.param([], LOST, id="nobody was"),
])  # fmt: skip
def test_a_marker_needs_ten_seconds_in_which_coordinator_and_leader_are_whole(
    run: Run, faults: list[dict[str, Any]], expected: tuple[str, str]
) -> None:
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED)
    run.change(10, leader=2)
    in_transaction(run, {"t": 0}, "committed")
    for index, fault in enumerate(faults):
        run.fault(index=index, **{"kind": "isolate"} | fault)
    run.watermark(1, 20_000, epoch=1, last_stable_offset=0)

    assert judged(run, "hanging") == [expected]


WAITS = {"request.timeout.ms": 30_000}
RELEASED = {"leader.recovery": "off"}
ASKED = {"from": 1, "to": 2, "api_key": 27, "api_version": 1, "correlation_id": 5, "fate": "delivered"}


@pytest.mark.parametrize(("changed", "expected"), [
    pytest.param({}, BY_R9, id="it asked who had led, and lost power before it answered"),
    pytest.param({"looked": 40_000}, BY_R9, id="it may wait still"),
    pytest.param({"looked": 41_000}, LOST, id="it waits no longer"),
    pytest.param({"waits": {}}, LOST, id="nobody knows how long it waits"),
    pytest.param({"waits": RELEASED}, BY_R9, id="a released broker, where nothing else is set"),
    pytest.param({"waits": RELEASED | {"promises.acks": "all"}}, LOST, id="another system that speaks like it"),
    pytest.param({"answered": 350}, LOST, id="it was answered"),
    pytest.param({"asked": {"from": 3}}, LOST, id="somebody else asked"),
    pytest.param({"asked": {"to": 3}}, LOST, id="it asked somebody else"),
    pytest.param({"asked": {"api_key": 1}}, LOST, id="for something else"),
    pytest.param({"asked": None}, LOST, id="nobody saw what was asked"),
    pytest.param({"killed": None}, LOST, id="who was asked goes on"),
    pytest.param({"killed": 305}, LOST, id="it was gone before it was asked"),
    pytest.param({"fault": 6000}, LOST, id="it ended by itself"),
    pytest.param({"coordinator": 1500}, LOST, id="another one coordinates since"),
    pytest.param({"restarted": 1500}, LOST, id="another process of it coordinates since"),
    pytest.param({"deposed": 250}, LOST, id="the transaction ended when it led no longer"),
])  # fmt: skip
def test_a_coordinator_of_kafka_waits_for_who_lost_its_power_as_long_as_requests_may_take(
    tmp_path: Path, changed: dict[str, Any], expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **changed.get("waits", WAITS))
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED)
    run.change(10, leader=2)
    in_transaction(run, {"t": 0}, "committed")
    asked = changed.get("asked", {})
    if asked is not None:
        row = ASKED | {"summary": "write_txn_markers"} | asked
        run.recorder.row("requests", **row, direction="request", at_ns=310 * MS)
    if "answered" in changed:
        row = ASKED | {"from": 2, "to": 1, "summary": "write_txn_markers"}
        run.recorder.row("requests", **row, direction="response", at_ns=changed["answered"] * MS)
    if changed.get("killed", 400) is not None:
        run.node(2, "killed", changed.get("killed", 400))
    run.fault("power-loss", changed.get("fault", 300), node=2, lasts=3000)
    run.change(changed.get("deposed", 2000), leader=3, isr=[3, 1])
    if "coordinator" in changed:
        elected = {"partition_id": 0, "leader": 3}
        run.metadata("PartitionChangeRecord", changed["coordinator"], topic="__transaction_state", **elected)
    if "restarted" in changed:
        run.node(1, "killed", changed["restarted"])
        run.node(1, "start", changed["restarted"] + 100)
    run.watermark(1, changed.get("looked", 20_000), epoch=2, observer="node-3", last_stable_offset=0)

    assert judged(run, "hanging") == [expected]


@pytest.mark.parametrize(("stands", "expected"), [
    pytest.param("former", BY_R9, id="one that an unclean election may have aborted"),
    pytest.param("later", LOST, id="one that began behind it"),
    pytest.param("", BY_R9, id="nobody knows whose"),
])  # fmt: skip
def test_whose_transaction_hangs_is_known_by_the_record_that_stands_there(
    tmp_path: Path, stands: str, expected: tuple[str, str]
) -> None:
    """Two transactions whose sends nobody answered: the last stable offset stays before a record of one of them."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED)
    run.change(50, isr=[1, 2])
    values: dict[str, int] = {}
    for number, (name, at) in enumerate([("former", 100), ("later", 5000)]):
        values[name] = run.send(number, at, txn_id="x", log_offset=None, outcome="info", complete_ns=None)
        step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": None, "value": values[name]}
        row = {"process": 7, "txn_id": "x", "begin_ns": (at - 1) * MS, "end_ns": None, "outcome": "info"}
        run.recorder.row("txns", **row, timeout_ms=5000, operations=[step])
    run.change(2000, **TO_NODE_3)
    run.watermark(1, 60_000, epoch=1, last_stable_offset=0, observer="node-3")
    if stands:
        run.log(3, {0: values[stands]})

    assert judged(run, "hanging") == [expected]


# Where groups' positions stand nobody is known to have sent: any transaction of the run may be open there.


@pytest.mark.parametrize(("began", "stands", "expected"), [
    pytest.param([100, 58_000], {60_000: 0}, [], id="since a moment ago"),
    pytest.param([100, 58_000], {20_000: 0, 60_000: 0}, [LOST], id="for longer than any may be open"),
    pytest.param([100, 58_000], {20_000: 0, 50_000: 1, 60_000: 0}, [LOST], id="there as before"),
    pytest.param([100, 58_000], {20_000: 1, 60_000: 0}, [], id="elsewhere before"),
    pytest.param([100], {60_000: 0}, [LOST], id="all have ended long ago"),
    pytest.param([100, 48_500], {60_000: 0}, [], id="one may have ended a moment ago"),
    pytest.param([100, 58_000], {60_000: 2}, [], id="nowhere"),
])  # fmt: skip
def test_a_transaction_that_holds_a_partition_of_positions_back_is_any_of_the_run(
    run: Run, began: list[int], stands: dict[int, int], expected: list[tuple[str, str]]
) -> None:
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED)
    for begin in began:
        without_an_answer(run, begin, timeout_ms=5000)
    for at, stable in stands.items():
        run.watermark(2, at, epoch=0, topic="__consumer_offsets", last_stable_offset=stable)

    assert judged(run, "hanging") == expected
    assert agree(run.run_dir, "hanging_transactions")["hanging"] == len(expected)


@pytest.mark.parametrize(("epochs", "expected"), [
    pytest.param([0, 0], [LOST], id="the same leader epoch"),
    pytest.param([0, 1], [], id="another one, whose log may be another one"),
    pytest.param([None, None], [], id="nobody knows of which"),
])  # fmt: skip
def test_since_when_something_is_open_is_said_within_one_leader_epoch(
    run: Run, epochs: list[int | None], expected: list[tuple[str, str]]
) -> None:
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED)
    without_an_answer(run, 58_000, timeout_ms=5000)
    for at, epoch in zip([20_000, 60_000], epochs, strict=True):
        run.watermark(2, at, epoch=epoch, topic="__consumer_offsets", last_stable_offset=0)

    assert judged(run, "hanging") == expected
    assert agree(run.run_dir, "hanging_transactions")["hanging"] == len(expected)


@pytest.mark.parametrize(("lost", "committed", "expected"), [
    pytest.param("__consumer_offsets", {}, BY_R9, id="its marker may be lost"),
    pytest.param("__transaction_state", {}, BY_R9, id="its decision may be lost"),
    pytest.param("elsewhere", {}, LOST, id="another partition says nothing"),
    pytest.param("__consumer_offsets", {"kind": "fetch"}, LOST, id="it committed nothing"),
    pytest.param("__consumer_offsets", {"process": 8}, LOST, id="another process did"),
    pytest.param("__consumer_offsets", {"at": 5000}, LOST, id="it did so later"),
])  # fmt: skip
def test_a_transaction_that_committed_a_position_may_hang_where_its_end_may_be_lost(
    tmp_path: Path, lost: str, committed: dict[str, Any], expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    for topic in ("__consumer_offsets", "__transaction_state", "elsewhere"):
        run.metadata("PartitionRecord", 0, topic=topic, **CREATED | {"isr": [1, 2]})
    in_transaction(run, {"t": 0}, "committed")
    row = {"process": 7, "group": "g", "topic": "t", "partition": 0, "kind": "commit", "outcome": "ok"} | committed
    at = row.pop("at", 200)
    run.recorder.row("commits", **row, committed_offset=1, invoke_ns=at * MS, complete_ns=(at + 10) * MS)
    uncleanly_elected(run, lost, 3000)
    run.watermark(2, 20_000, epoch=int(lost == "__consumer_offsets"), topic="__consumer_offsets", last_stable_offset=0)

    assert judged(run, "hanging") == [expected]


@pytest.mark.parametrize(("ended", "expected"), [
    pytest.param(0, LOST, id="the log ended there when it was done"),
    pytest.param(1, BY_R9, id="the log held it then"),
])  # fmt: skip
def test_who_was_done_before_the_log_reached_an_offset_is_not_open_there(
    tmp_path: Path, ended: int, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN)
    for topic in ("__consumer_offsets", "__transaction_state"):
        run.metadata("PartitionRecord", 0, topic=topic, **CREATED | {"isr": [1, 2]})
    in_transaction(run, {"t": 0}, "committed")
    row = {"process": 7, "group": "g", "topic": "t", "partition": 0, "kind": "commit", "outcome": "ok"}
    run.recorder.row("commits", **row, committed_offset=1, invoke_ns=200 * MS, complete_ns=210 * MS)
    uncleanly_elected(run, "__transaction_state", 3000)
    for at, end in ((4000, ended), (20_000, 2)):
        ends = {"last_stable_offset": 0, "log_end_offset": end}
        run.watermark(end, at, epoch=0, topic="__consumer_offsets", **ends)

    assert judged(run, "hanging") == [expected]


def without_an_answer(run: Run, begin: int, timeout_ms: int) -> None:
    """Record a transaction that sent to t-0 and whose end nobody answered."""
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": None, "value": None}
    row = {"process": 7, "txn_id": "x", "begin_ns": begin * MS, "end_ns": None, "outcome": "info"}
    run.recorder.row("txns", **row, timeout_ms=timeout_ms, operations=[step])


def set_clock(run: Run, *, at: int, offset_ms: int, node: int = 1, until: int = 100_000) -> None:
    """Record that a node's clock was set."""
    row = {
        "index": 0,
        "kind": "clock-jump",
        "planned_target": "leader",
        "resolved_target": f"broker {node}",
        "losses": [],
    }
    times = {"planned_ns": at * MS, "injected_ns": at * MS, "healed_ns": until * MS}
    proof = msgspec.json.encode({"offset_ms": offset_ms, "drift_ppm": 0}).decode()
    run.recorder.row("faults", **row, **times, proof=proof, took_effect=True, heal_proof="{}", healed=True)


# Topics of one name: what a broker took for one may stand in another.


@pytest.mark.parametrize(("send", "expected"), [
    pytest.param({"outcome": "info", "log_offset": None}, [], id="nobody answered"),
    pytest.param({"attempts": 2}, [], id="an attempt before the answered one"),
    pytest.param({"attempts": 1}, [LOST], id="it stands where it was acknowledged"),
    pytest.param({"outcome": "info", "log_offset": None, "partition": 1}, [LOST], id="of another partition"),
    pytest.param({"outcome": "info", "log_offset": None, "topic": "u"}, [LOST], id="of another name"),
])  # fmt: skip
def test_what_was_meant_for_the_next_topic_of_a_name_may_stand_in_the_deleted_one(
    run: Run, send: dict[str, Any], expected: list[object]
) -> None:
    ordered(run, "delete_topic", 900, 950)
    run.metadata("RemoveTopicRecord", 1000)
    run.metadata("PartitionRecord", 1100, topic="t@2", **CREATED)
    value = run.send(0, 2000, **{"topic": "t@2"} | send)
    poll = {"process": 90, "poll_index": 3, "topic": "t", "partition": 0, "phase": "stray"}
    answer = {"isolation": "read_uncommitted", "position": 4, "record_count": 1, "outcome": "ok", "answered_by": 1}
    run.recorder.row("polls", **poll, **answer, invoke_ns=2100 * MS, complete_ns=2101 * MS, high_watermark=5)
    run.recorder.row("reads", **poll, log_offset=4, value=value, leader_epoch=0)

    assert judged(run, "phantom") == expected


@pytest.mark.parametrize(("offset", "expected"), [
    pytest.param(4, [LOST], id="another record stood there"), pytest.param(5, [], id="it stood there")
])  # fmt: skip
def test_what_a_deleted_topic_answers_is_judged_as_its_own(run: Run, offset: int, expected: list[object]) -> None:
    """Two values at an offset of one leader epoch, the second of them received by a reader of the next topic of the name."""
    values = [run.send(number, 100 + number, offset=number + 4) for number in range(2)]
    run.final_read({4: values[0], 5: values[1]}, 200, epoch=0)
    ordered(run, "delete_topic", 900, 950)
    run.metadata("RemoveTopicRecord", 1000)
    poll = {"process": 91, "poll_index": 3, "topic": "t", "partition": 0, "phase": "stray"}
    answer = {"isolation": "read_uncommitted", "position": 4, "record_count": 1, "outcome": "ok", "answered_by": 1}
    run.recorder.row("polls", **poll, **answer, invoke_ns=2100 * MS, complete_ns=2101 * MS, high_watermark=6)
    run.recorder.row("reads", **poll, log_offset=offset, value=values[1], leader_epoch=0)

    assert judged(run, "offset_conflict") == expected


# Groups.


@pytest.mark.parametrize(("committed", "until", "severity"), [
    pytest.param(None, 211, "permitted", id="it went on from there"),
    pytest.param(0, 211, "violation", id="it had gone back by itself"),
    pytest.param(0, None, "permitted", id="the order may be carried out later"),
])  # fmt: skip
def test_a_position_that_was_set_holds_until_the_group_commits_another_one(
    run: Run, committed: int | None, until: int | None, severity: str
) -> None:
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    ordered(run, "alter_offset", 210, until, group="g", partition=0, log_offset=2)
    row = {
        "generation": 5,
        "topic": "t",
        "partition": 0,
        "kind": "commit",
        "outcome": "ok",
        "process": 50,
        "group": "g",
    }
    if committed is not None:
        run.recorder.row("commits", **row, committed_offset=committed, invoke_ns=250 * MS, complete_ns=251 * MS)
    for offset in (0, 2):
        run.read({offset: values[offset]}, 280 + offset, process=50, epoch=0)
    run.recorder.row("commits", **row, committed_offset=3, invoke_ns=300 * MS, complete_ns=301 * MS)
    run.final_read(dict(enumerate(values)), at=9000, epoch=0)

    assert {one for one, _ in judged(run, "unconsumed")} == {severity}


# What nothing but the metadata know of.


@pytest.mark.parametrize(("isr", "expected"), [([2], [LOST]), ([], [])])
def test_a_partition_that_nobody_used_is_led(run: Run, isr: list[int], expected: list[object]) -> None:
    for node in (1, 2, 3):
        run.node(node, "start", 0)
    run.metadata("PartitionRecord", 0, topic="u", **CREATED)
    home = {"topic": "u", "partition_id": 0}
    run.metadata("PartitionChangeRecord", 700, **home, leader=-1, isr=isr, eligible_leader_replicas=[])
    run.metadata("NoOpRecord", 9000)

    assert judged(run, "leaderless") == expected


# Disks.


@pytest.mark.parametrize(("rejoined_at", "expected"), [
    pytest.param(None, ("permitted", "R3"), id="it has not fetched again what it lost"),
    pytest.param(2500, LOST, id="it was whole again before"),
])  # fmt: skip
def test_who_is_whole_again_holds_no_leader_back(
    tmp_path: Path, rejoined_at: int | None, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.node(3, "start", 0)
    run.watermark(9, 1000, epoch=0)
    run.node(3, "killed", 1500)
    run.fault("wipe", 1510, node=3, lost_from=0)
    run.registered(3, 1600, previous=-1, fenced=False)
    if rejoined_at is not None:
        run.change(2000, isr=[1, 2])
        run.change(rejoined_at, isr=[1, 2, 3])
    run.change(4000, leader=2, isr=[2, 3])
    for high_watermark, at in ((5, 5000), (7, 5100)):
        run.watermark(high_watermark, at, epoch=1, observer="node-2")

    assert judged(run, "high_watermark_below_former") == [expected]


@pytest.mark.parametrize(("span", "expected"), [
    pytest.param({"begin_ns": 205 * MS, "end_ns": 210 * MS}, ("permitted", "R3"), id="proven by itself"),
    pytest.param({}, LOST, id="some time while a fault lasted that never began"),
    pytest.param({"begin_ns": 10 * MS, "end_ns": 50 * MS}, LOST, id="before the record was there"),
])  # fmt: skip
def test_what_a_disk_lost_is_lost_where_the_fault_was_broken_off_before_all_of_it_was_injected(
    tmp_path: Path, span: dict[str, int], expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.node(3, "start", 0)
    run.send(0, 100)
    run.node(3, "killed", 200)
    fields = {"index": 0, "kind": "part-kill", "planned_ns": 150 * MS, "took_effect": False, "healed": False}
    lost = {"node": 3, "topic": "t", "partition": 0, "from_offset": 0, **span}
    run.recorder.row("faults", **fields, losses=[lost])
    run.registered(3, 300, previous=-1, fenced=False)
    run.change(1000, leader=3)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("topic_id", "expected"), [
    pytest.param("a", ("permitted", "R3"), id="its own id"),
    pytest.param(None, ("permitted", "R3"), id="no id"),
    pytest.param("b", LOST, id="another one of the name"),
])  # fmt: skip
def test_a_disk_lost_the_topic_of_its_id(tmp_path: Path, topic_id: str | None, expected: tuple[str, str]) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    created = {"metadata_offset": 80, "quorum_epoch": 1, "at_ns": 1, "record_type": "TopicRecord"}
    run.recorder.row("metadata", **created, topic="t", topic_id="a", body='{"name": "t"}')
    run.metadata_offset = 90
    run.node(3, "start", 0)
    run.send(0, 100)
    run.node(3, "killed", 200)
    fields = {"index": 0, "kind": "wipe", "planned_ns": 1, "injected_ns": 210 * MS, "healed_ns": 300 * MS}
    lost = {"node": 3, "topic": "t", "topic_id": topic_id, "partition": 0, "from_offset": 0}
    run.recorder.row("faults", **fields, took_effect=True, healed=True, losses=[lost])
    run.registered(3, 300, previous=-1, fenced=False)
    run.change(1000, leader=3)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("shown_at", "expected"), [
    pytest.param(None, ("permitted", "R3"), id="nobody saw it there"),
    pytest.param(1500, LOST, id="it had shown the record since"),
])  # fmt: skip
def test_who_showed_a_record_has_it_whatever_its_disk_had_lost(
    tmp_path: Path, shown_at: int | None, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.node(3, "start", 0)
    run.send(0, 100)
    run.node(3, "killed", 200)
    run.fault("wipe", 210, node=3, lost_from=0)
    run.registered(3, 300, previous=-1, fenced=False)
    run.change(1000, leader=3)
    if shown_at is not None:
        run.watermark(1, shown_at, epoch=1, observer="node-3")
    run.change(2000, leader=1)
    run.change(3000, leader=3)
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize("taken", ["aborted", "of no group"])
@pytest.mark.parametrize(("process", "severity"), [
    pytest.param(50, "permitted", id="its own members"), pytest.param(60, "violation", id="somebody else")
])  # fmt: skip
def test_what_no_transaction_of_a_group_took_needs_its_own_excuse(
    tmp_path: Path, process: int, severity: str, taken: str
) -> None:
    """Whoever had read on in an older leader epoch excuses what a group passes over, if it is the group's member."""
    run = Run(tmp_path / "run", **UNCLEAN)
    run.change(40, isr=[1, 2])
    former = {"process": process, "group": "g" if process == 50 else "h", "generation": 5}
    row = {"topic": "t", "partition": 0, "kind": "commit", "outcome": "ok"}
    run.recorder.row("commits", **row, **former, committed_offset=3, invoke_ns=50 * MS, complete_ns=51 * MS)
    run.change(60, **TO_NODE_3)
    values = [run.send(sequence, 100 + sequence) for sequence in range(3)]
    between = "aborted" if taken == "aborted" else "info"
    for number, (outcome, offset) in enumerate([("committed", 0), (between, 1), ("committed", 2)]):
        at = 200 + 20 * number
        step = {"kind": "poll", "topic": "t", "partition": 0, "log_offset": offset, "value": values[offset]}
        times = {"begin_ns": at * MS, "end_ns": (at + 10) * MS, "outcome": outcome}
        run.recorder.row("txns", process=50, txn_id="x", operations=[step], **times)
        own = {"process": 50, "group": "g", "committed_offset": offset + 1}
        if outcome != "info":
            run.recorder.row("commits", **row, **own, invoke_ns=(at + 5) * MS, complete_ns=(at + 6) * MS)
    run.final_read(dict(enumerate(values)), at=9000, epoch=1)

    assert [one for one, _ in judged(run, "passed_over")] == [severity]


@pytest.mark.parametrize(("stands", "begins", "expected"), [
    pytest.param(True, 5, BY_R5, id="another record stood there, and its log begins behind it by now"),
    pytest.param(True, 0, BY_R5, id="another record stands there"),
    pytest.param(False, 0, LOST, id="nothing stands there"),
])  # fmt: skip
def test_what_was_shown_of_an_offset_was_what_was_written_there_anew(
    run: Run, stands: bool, begins: int, expected: tuple[str, str]
) -> None:
    """Scenario zookeeper-operator, seed 5: a deposed leader acknowledged records, and retention took the next leader's after the final read."""
    run.change(2000, leader=2, isr=[2, 3])
    run.send(0, 2100, acks=1, answered_by=1)
    final = {0: run.send(1, 4000, offset=0)} if stands else {}
    run.watermark(1, 5000, epoch=1, observer="node-2")
    run.change(6000, isr=[2, 3, 1])
    run.final_read(dict(final), at=9000, epoch=1)
    for node in (1, 2, 3):
        run.dump(node, start=begins, end=5 if begins else 1)
        run.log(node, {5: run.send(10 + node, 7000 + node)} if begins and node == 1 else {}, epoch=1)

    assert judged(run)[:1] == [expected]


@pytest.mark.parametrize(("lost", "other", "passed", "expected"), [
    pytest.param({}, {}, None, BY_R9, id="the next one that sent there was committed"),
    pytest.param({}, {}, (5500, 1), BY_R9, id="the record was passed when that was under way"),
    pytest.param({}, {}, (2000, 0), BY_R9, id="the marker was there before it was lost"),
    pytest.param({}, {}, (4000, 1), LOST, id="the marker was there afterwards"),
    pytest.param({}, None, None, LOST, id="nothing was committed behind it"),
    pytest.param({}, {"topic": "u"}, None, LOST, id="the next one sent elsewhere"),
    pytest.param({}, {"outcome": "aborted"}, None, LOST, id="the next one was aborted, too"),
    pytest.param({}, {"producer_id": 8}, None, LOST, id="another producer's was committed"),
    pytest.param({}, {"begin_ns": 1500 * MS, "end_ns": 2500 * MS}, None, LOST, id="it ended before the loss"),
    pytest.param({"lost_end": 1}, {}, None, LOST, id="no more than the record was lost"),
    pytest.param({"topic": "u"}, {}, None, LOST, id="lost in another partition"),
    pytest.param({"node": 1}, {}, None, LOST, id="lost by another one than who was elected"),
    pytest.param({"at": 8500}, {}, None, LOST, id="when the record had been read"),
    pytest.param(None, {}, None, LOST, id="nobody lost anything"),
])  # fmt: skip
def test_records_whose_abort_marker_was_permitted_to_be_lost_are_open_again(
    tmp_path: Path,
    lost: dict[str, Any] | None,
    other: dict[str, Any] | None,
    passed: tuple[int, int] | None,
    expected: tuple[str, str],
) -> None:
    """`M47`, wide-swarm-exactly-once, seed 981789198: the only member of the ISR lost its unsynced end, with the marker, and the next one committed all."""
    run = Run(tmp_path / "run", **{"eligible.leader.replicas.enable": False})
    for topic in ("__transaction_state", "u"):
        run.metadata("PartitionRecord", 0, topic=topic, **CREATED)
    value = in_transaction(run, {"t": 0}, "aborted", producer_id=7, producer_epoch=3)["t"]
    fault = {"at": 2990, "node": 2, "lost_end": None, "topic": "t"} | (lost or {})
    if lost is not None:
        place = {"node": fault["node"], "topic": fault["topic"], "partition": 0, "end_offset": fault["lost_end"]}
        names = {
            "index": 0,
            "kind": "power-loss",
            "planned_target": "broker",
            "resolved_target": f"broker {fault['node']}",
        }
        times = dict.fromkeys(("planned_ns", "injected_ns", "healed_ns"), fault["at"] * MS)
        losses = [
            place
            | {"from_offset": 0 if fault["lost_end"] else 1, "begin_ns": fault["at"] * MS, "end_ns": fault["at"] * MS}
        ]
        run.recorder.row(
            "faults", **names, **times, proof="{}", took_effect=True, heal_proof="{}", healed=True, losses=losses
        )
    run.change(fault["at"] + 10, leader=2, isr=[2])
    if other is not None:
        row = {"process": 7, "txn_id": "x", "producer_id": 7, "producer_epoch": 4, "outcome": "committed"} | other
        step = {
            "kind": "send",
            "topic": row.pop("topic", "t"),
            "partition": 0,
            "log_offset": 1,
            "value": run.send(1, 5100, txn_id="x"),
        }
        run.recorder.row("txns", **{"begin_ns": 5000 * MS, "end_ns": 6000 * MS} | row, operations=[step])
    if passed is not None:
        run.watermark(2, passed[0], epoch=passed[1], observer=f"node-{passed[1] + 1}", last_stable_offset=2)
    run.read({0: value}, 8000, process=80, isolation="read_committed", epoch=0)
    run.final_read({0: value}, at=9000, isolation="read_committed", epoch=0)

    assert judged(run, "aborted_read") == [expected]


# Leaders that recover (KIP-704): who was elected uncleanly aborts what its log leaves open, so nothing hangs by that election.


@pytest.mark.parametrize(("recovers", "ended", "then", "expected"), [
    pytest.param("on", 1000, {}, LOST, id="it must have been aborted"),
    pytest.param("off", 1000, {}, BY_R9, id="nobody aborts it in this cluster"),
    pytest.param(None, 1000, {}, BY_R9, id="nobody knows whether anybody would"),
    pytest.param("on", 3800, {}, BY_R9, id="it ended when the leader had recovered, or just before"),
    pytest.param("on", None, {}, BY_R9, id="nobody answered its end: it may have sent later"),
    pytest.param("on", 1000, {"stays": True}, BY_R9, id="the leader has not recovered yet"),
    pytest.param("on", 1000, {"again": True}, BY_R9, id="the abort was permitted to be lost"),
])  # fmt: skip
def test_a_leader_that_has_recovered_has_aborted_what_was_open(
    tmp_path: Path, recovers: str | None, ended: int | None, then: dict[str, bool], expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **UNCLEAN, **({} if recovers is None else {"leader.recovery": recovers}))
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **CREATED)
    run.change(50, isr=[1, 2])
    value = run.send(0, 100, txn_id="x")
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": 0, "value": value}
    end = {"end_ns": None if ended is None else ended * MS, "outcome": "info" if ended is None else "committed"}
    run.recorder.row("txns", process=7, txn_id="x", begin_ns=99 * MS, timeout_ms=5000, operations=[step], **end)
    run.change(3000, **TO_NODE_3)
    if not then.get("stays"):
        run.change(4000, leader_recovery_state=0)
    if then.get("again"):
        run.change(5000, isr=[2], leader=2)
    run.watermark(1, 60_000, epoch=1 + bool(then.get("again")), last_stable_offset=0, observer="node-3")

    assert judged(run, "hanging") == [expected]


# A disk's loss: by the clock that says when something was missed.


@pytest.mark.parametrize(("at", "expected"), [
    pytest.param(8900, ("permitted", "R7"), id="before the final read"),
    pytest.param(9300, LOST, id="just behind it"),
    pytest.param(20_000, LOST, id="long behind it"),
])  # fmt: skip
@pytest.mark.parametrize("missed", ["a record", "what was shown"])
def test_files_that_are_cut_behind_the_final_read_excuse_nothing_that_it_lacks(
    run: Run, missed: str, at: int, expected: tuple[str, str]
) -> None:
    """The record of the metadata log behind all of it is what would bring the loss into the history."""
    run.node(1, "start", 0)
    if missed == "a record":
        run.send(0, 100)
    else:
        run.watermark(1, 200, epoch=0, source="list_offsets")
        run.change(500, leader=1, isr=[1, 2, 3])
    run.final_read({}, at=9000)
    run.fault("bit-flip", at, node=1, lost_from=0)
    run.metadata("NoOpRecord", 30_000)

    assert judged(run, *([] if missed == "a record" else ["shown_end_lost"])) == [expected]


@pytest.mark.parametrize(("at", "expected"), [
    pytest.param(8900, ("permitted", "R3"), id="before the final read"),
    pytest.param(9150, LOST, id="behind it"),
])  # fmt: skip
def test_a_wipe_behind_the_final_read_excuses_nothing_that_it_lacks(
    tmp_path: Path, at: int, expected: tuple[str, str]
) -> None:
    run = Run(tmp_path / "run", **NO_ELR)
    run.node(2, "start", 0)
    run.send(0, 100)
    run.node(2, "killed", at - 10)
    run.fault("wipe", at, node=2, lost_from=0)
    run.registered(2, 9200, previous=-1)
    run.change(9300, leader=2, isr=[2, 3])
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


# ZooKeeper mode: several writes of a partition may be seen as one.


@pytest.mark.parametrize(("left", "expected"), [
    pytest.param([1, 2, 3], ("permitted", "R3"), id="it was there all the time"),
    pytest.param([1, 3], LOST, id="it had left it"),
])  # fmt: skip
def test_who_is_new_in_the_isr_of_a_new_leader_epoch_has_joined_it(
    tmp_path: Path, left: list[int], expected: tuple[str, str]
) -> None:
    """Who joined is whole again, whatever its disk had lost before: R3 excuses nothing any more."""
    run = Run(tmp_path / "run", mode="zookeeper", **NO_ELR)
    run.node(2, "start", 0)
    run.send(0, 100)
    run.node(2, "killed", 500)
    run.fault("wipe", 510, node=2, lost_from=0)
    run.change(550, isr=left)
    run.registered(2, 600, previous=-1)
    run.change(1000, leader=1, isr=[1, 2, 3])
    run.change(3000, leader=2, isr=[2])
    run.final_read({}, at=9000)

    assert judged(run) == [expected]


@pytest.mark.parametrize(("unseen", "settings", "expected"), [
    pytest.param(True, NO_ELR, [], id="behind a write that nobody saw"),
    pytest.param(False, NO_ELR, [LOST], id="in the very next write"),
    pytest.param(True, NO_ELR | {"mode": "kraft"}, [LOST], id="where each write is seen"),
])  # fmt: skip
def test_a_leader_from_outside_of_the_isr_may_have_joined_it_unseen(
    tmp_path: Path, unseen: bool, settings: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    run = Run(tmp_path / "run", **{"mode": "zookeeper"} | settings)
    run.change(500, isr=[1])
    if unseen:
        run.change(1000, leader=-2)
    run.change(1000, leader=2, isr=[2])
    run.final_read({}, at=9000)

    assert judged(run, "unclean_election_not_allowed") == expected
