"""What transactions promise, in pairs: exactly once, whole or not at all, no aborted read, no hanging end, no offset that goes back."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_sql import agree
from tribunal.checkers.judge import engine
from tribunal.checkers.judge.steps import ends

PLACE = {"topic": "t", "partition": 0}


class Transactions(Run):
    """A run whose process 7 sends in transactions."""

    def txn(self, outcome: str, at: int, *steps: tuple[str, int | None, int], process: int = 7) -> None:
        copied = [{"kind": kind, "log_offset": offset, "value": value} | PLACE for kind, offset, value in steps]
        times = {"begin_ns": at * MS, "end_ns": (at + 10) * MS}
        self.recorder.row("txns", process=process, txn_id=f"x{process}", outcome=outcome, operations=copied, **times)

    def offsets(self, kind: str, offset: int | None, at: int, *, process: int = 7, outcome: str = "ok") -> None:
        row = {"process": process, "group": "g", "kind": kind, "committed_offset": offset, "outcome": outcome}
        self.recorder.row("commits", **PLACE, **row, invoke_ns=at * MS, complete_ns=(at + 1) * MS)


CREATED = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 0}


@pytest.fixture
def run(tmp_path: Path) -> Transactions:
    return Transactions(tmp_path / "run", **{"transaction.max.timeout.ms": 1000})


def found(run_dir: Path, *names: str) -> list[tuple[str, str, int | None]]:
    tables = engine.judge_runs([run_dir], "inline")
    assert (tables.damages, tables.failures) == ([], [])
    found = [row.finding for row in tables.findings]
    return [(one.kind, one.severity, one.log_offset) for one in found if one.property_name in names]


def a_transformer(run: Transactions, *inputs: tuple[str, list[int]]) -> dict[int, int | None]:
    """Four records of input; each transaction polls some of them and commits the group's offset behind them."""
    values = {offset: run.send(offset, 100 + offset) for offset in range(4)}
    for number, (outcome, offsets) in enumerate(inputs):
        at = 200 + 20 * number
        run.txn(outcome, at, *[("poll", offset, values[offset]) for offset in offsets], process=8 + number)
        run.offsets("commit", max(offsets) + 1, at + 5, process=8 + number)
    return dict(values)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        pytest.param([("committed", [0, 1]), ("committed", [2, 3])], [], id="each once"),
        pytest.param([("committed", [0, 1]), ("committed", [1, 2, 3])], [("processed_twice", 1)], id="one twice"),
        pytest.param(
            [("aborted", [0, 1]), ("committed", [0, 1]), ("committed", [2, 3])], [], id="again after an abort"
        ),
        pytest.param([("committed", [0, 1]), ("committed", [3])], [("passed_over", 2)], id="one passed over"),
        pytest.param([("committed", [0, 1]), ("info", [2]), ("committed", [3])], [], id="one perhaps"),
    ],
)
def test_consume_transform_produce(run: Transactions, inputs: list[Any], expected: list[Any]) -> None:
    run.final_read(a_transformer(run, *inputs))

    assert [(kind, offset) for kind, _, offset in found(run.finish(), "exactly_once")] == expected


def test_of_others_than_its_groups_a_partition_does_not_ask_when_transactions_were_over(
    run: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a run's were sorted once for each partition with a group: half a second of two millions, and a run has many partitions."""
    values = a_transformer(run, ("committed", [0, 1]), ("committed", [1, 2, 3]))
    for number in range(40):
        run.txn("committed", 400 + number, process=20 + number)
    run.final_read(values)
    asked: list[int] = []

    def counted(txns: pa.Table) -> Any:
        asked.append(txns.num_rows)
        return ends(txns)

    monkeypatch.setattr("tribunal.checkers.properties.exactly_once.ends", counted)

    assert [(kind, offset) for kind, _, offset in found(run.finish(), "exactly_once")] == [("processed_twice", 1)]
    assert set(asked) == {2}


@pytest.mark.parametrize(("began", "process", "expected"), [
    pytest.param(0, 8, [("passed_over", 0), ("passed_over", 1)], id="from the beginning"),
    pytest.param(1, 9, [("passed_over", 1)], id="another member, behind the first record"),
    pytest.param(2, 8, [], id="from the first that it processed"),
    pytest.param(0, 10, [], id="who asked is no member"),
    pytest.param(None, 8, [], id="nobody knows from where it began"),
])  # fmt: skip
def test_what_a_group_asks_for_at_first_it_processes(
    run: Transactions, began: int | None, process: int, expected: list[Any]
) -> None:
    log = a_transformer(run, ("committed", [2]), ("committed", [3]))
    if began is not None:
        run.poll(process, "tail", began, 2, 150, high_watermark=4, isolation="read_committed")
    run.final_read(log)

    assert [(kind, offset) for kind, _, offset in found(run.finish(), "exactly_once")] == expected
    assert agree(run.run_dir, "exactly_once")["passed_over"] == len(expected)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param(1, [("processed_twice", "violation", 1)], id="the same record"),
        pytest.param(9, [], id="what was written there anew"),
    ],
)
def test_a_record_that_was_written_where_another_one_was_lost_is_another_one(
    run: Transactions, second: int, expected: list[Any]
) -> None:
    """Whoever is told that the log was cut off goes back to where it ends."""
    values = {sequence: run.send(sequence, 100 + sequence, offset=min(sequence, 1)) for sequence in (0, 1, 9)}
    run.txn("committed", 200, ("poll", 0, values[0]), ("poll", 1, values[1]), process=8)
    run.offsets("commit", 2, 205, process=8)
    run.txn("committed", 220, ("poll", 1, values[second]), process=9)
    run.offsets("commit", 2, 225, process=9)
    run.final_read({0: values[0], 1: values[second]})

    assert found(run.finish(), "exactly_once") == expected
    assert agree(run.run_dir, "exactly_once")["processed_twice"] == len(expected)


@pytest.mark.parametrize(("process", "expected"), [
    pytest.param(9, [("passed_over", 2)], id="it began another one, which did"),
    pytest.param(8, [], id="it did so while nobody had seen the end"),
])  # fmt: skip
def test_who_begins_the_next_transaction_is_done_with_the_one_before(
    run: Transactions, process: int, expected: list[Any]
) -> None:
    """Process 9 took a record, committed no position, and nobody saw how that ended."""
    values = {offset: run.send(offset, 100 + offset) for offset in range(4)}
    run.txn("committed", 200, ("poll", 0, values[0]), ("poll", 1, values[1]), process=7)
    run.offsets("commit", 2, 205)
    step = {"kind": "poll", "log_offset": 2, "value": values[2]} | PLACE
    run.recorder.row(
        "txns", process=process, txn_id="x9", outcome="info", operations=[step], begin_ns=220 * MS, end_ns=None
    )
    run.txn("committed", 240, ("poll", 3, values[3]), process=9)
    run.offsets("commit", 4, 245, process=9)
    if process == 8:
        run.offsets("commit", 3, 245, process=8)
    run.final_read(dict(values))

    assert [(kind, offset) for kind, _, offset in found(run.finish(), "exactly_once")] == expected
    assert agree(run.run_dir)["passed_over"] == len(expected)


def test_transactions_without_a_group_consume_as_they_like(run: Transactions) -> None:
    values = {offset: run.send(offset, 100 + offset) for offset in range(2)}
    for process in (8, 9):
        run.txn("committed", 200, ("poll", 0, values[0]), process=process)
    run.final_read(dict(values))

    assert found(run.finish(), "exactly_once") == []


@pytest.mark.parametrize(
    ("committed_at", "process", "expected"),
    [
        pytest.param(220, 9, [("processed_twice", "violation", 0)], id="at its begin"),
        pytest.param(230, 9, [("processed_twice", "violation", 0)], id="at its end"),
        pytest.param(219, 9, [], id="before it"),
        pytest.param(231, 9, [], id="behind it"),
        pytest.param(225, 8, [], id="by another process"),
        pytest.param(225, 10, [], id="by one without a transaction"),
    ],
)
def test_a_transaction_belongs_to_the_group_whose_offset_it_commits(
    run: Transactions, committed_at: int, process: int, expected: list[Any]
) -> None:
    value = run.send(0, 100)
    for own, at in ((8, 200), (9, 220)):
        run.txn("committed", at, ("poll", 0, value), process=own)
    run.offsets("commit", 1, 205, process=8)
    run.offsets("commit", 1, committed_at, process=process)
    run.final_read({0: value})

    assert found(run.finish(), "exactly_once") == expected


@pytest.mark.parametrize("kind", ["send", "append"])
@pytest.mark.parametrize(
    ("isolation", "outcome", "expected"),
    [
        pytest.param("read_committed", "committed", [], id="committed"),
        pytest.param("read_committed", "aborted", [("aborted_read", "violation", 0)], id="aborted"),
        pytest.param("read_uncommitted", "aborted", [], id="read_uncommitted may"),
    ],
)
def test_read_committed_never_sees_what_was_aborted(
    run: Transactions, isolation: str, outcome: str, expected: list[Any], kind: str
) -> None:
    value = run.send(0, 100, txn_id="x7")
    run.txn(outcome, 99, (kind, 0, value))
    run.final_read({0: value}, isolation=isolation)

    assert found(run.finish(), "aborted_reads") == expected


@pytest.mark.parametrize("kind", ["send", "append"])
@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        pytest.param([0, 1], [], id="whole"),
        pytest.param([], [], id="not at all"),
        pytest.param([0], [("torn", "violation", None)], id="half"),
    ],
)
def test_a_transaction_of_unknown_outcome_is_whole_or_not_there(
    run: Transactions, visible: list[int], expected: list[Any], kind: str
) -> None:
    values = [run.send(sequence, 100 + sequence, txn_id="x7") for sequence in range(2)]
    other = run.send(2, 103)
    run.txn("info", 99, *[(kind, offset, value) for offset, value in enumerate(values)])
    run.final_read({offset: values[offset] for offset in visible} | {2: other}, isolation="read_committed")

    assert found(run.finish(), "atomicity") == expected


@pytest.mark.parametrize(
    ("policy", "again", "is_other_there", "severity"),
    [
        pytest.param("compact", "a", True, "permitted", id="its key was written again"),
        pytest.param("compact", "c", True, "violation", id="another key was"),
        pytest.param("delete", "a", True, "violation", id="not compacted"),
        pytest.param("compact", "a", False, "violation", id="of another part it was not"),
    ],
)
def test_compaction_may_take_a_part_of_a_transaction_of_unknown_outcome(
    run: Transactions, policy: str, again: str, is_other_there: bool, severity: str
) -> None:
    """Gone by order, as any older record of a key: a register per key, of which the newest write has to survive."""
    run.metadata("ConfigRecord", 1, resource_type=2, resource_name="t", name="cleanup.policy", value=policy)
    keys = ("a", "b", "d")
    values = [run.send(number, 100 + number, txn_id="x7", key=key) for number, key in enumerate(keys)]
    run.txn("info", 99, *[("send", offset, value) for offset, value in enumerate(values)])
    newer = run.send(3, 200, key=again)
    left = {1: values[1], 2: values[2], 3: newer} if is_other_there else {2: values[2], 3: newer}
    run.final_read(left, isolation="read_committed")

    assert found(run.finish(), "atomicity") == [("torn", severity, None)]


def test_compaction_took_no_part_before_the_topic_was_compacted(run: Transactions) -> None:
    policy = {"resource_type": 2, "resource_name": "t", "name": "cleanup.policy"}
    run.metadata("ConfigRecord", 1, value="compact", **policy)
    run.metadata("ConfigRecord", 50, value="delete", **policy)
    values = [run.send(number, 100 + number, txn_id="x7", key="ab"[number]) for number in range(2)]
    run.txn("info", 99, *[("send", offset, value) for offset, value in enumerate(values)])
    run.final_read({1: values[1], 2: run.send(2, 200, key="a")}, isolation="read_committed")

    assert found(run.finish(), "atomicity") == [("torn", "violation", None)]


@pytest.mark.parametrize(
    ("amounts", "read", "expected"),
    [
        pytest.param([5, -5], [0, 1], [], id="moved"),
        pytest.param([5, -4], [0, 1], [("unbalanced", "violation", None)], id="made"),
        pytest.param([5, -5], [0], [("unbalanced_by_loss", "note", None)], id="lost"),
        pytest.param([5, -5, 1], [0, 2], [("unbalanced", "violation", None)], id="lost, and made by another one"),
        pytest.param([5, -5], None, [("unjudged", "unjudged", None)], id="not read"),
    ],
)
def test_the_bank(run: Transactions, amounts: list[int], read: list[int] | None, expected: list[Any]) -> None:
    values = [
        run.send(sequence, 100 + sequence, txn_id="x7", worker_class="transactional-bank", key=f"acct:{amount}")
        for sequence, amount in enumerate(amounts)
    ]
    run.txn("committed", 99, *[("send", offset, value) for offset, value in enumerate(values)])
    if read is not None:
        run.final_read({offset: values[offset] for offset in read}, isolation="read_committed")

    assert found(run.finish(), "bank") == expected


def test_what_a_bank_s_deleted_records_held_nobody_knows(run: Transactions) -> None:
    keys = {"txn_id": "x7", "worker_class": "transactional-bank"}
    values = [run.send(number, 100 + number, key=f"acct:{amount}", **keys) for number, amount in enumerate((5, -5, 1))]
    run.txn("committed", 99, *[("send", offset, value) for offset, value in enumerate(values)])
    run.poll(99, "final", 1, 0, 890, high_watermark=3, isolation="read_committed", log_start_offset=1)
    run.final_read(dict(enumerate(values[1:], start=1)), isolation="read_committed")

    assert found(run.finish(), "bank") == [("unbalanced_by_loss", "note", None)]


@pytest.mark.parametrize(
    ("outcome", "log_start", "expected"),
    [
        pytest.param(
            "info", 1, [("unbalanced_by_loss", "note", None)], id="perhaps committed, before the log's beginning"
        ),
        pytest.param("info", 0, [("unbalanced", "violation", None)], id="the log begins at its beginning"),
        pytest.param("aborted", 1, [("unbalanced", "violation", None)], id="it never was there"),
    ],
)
def test_what_stood_before_a_bank_s_log_may_have_been_of_unknown_outcome(
    run: Transactions, outcome: str, log_start: int, expected: list[Any]
) -> None:
    keys = {"worker_class": "transactional-bank"}
    gone = run.send(0, 100, txn_id="x6", key="acct:5", outcome="info", **keys)
    seen = run.send(1, 101, txn_id="x7", key="acct:-5", **keys)
    run.txn(outcome, 99, ("send", None, gone), process=6)
    run.txn("committed", 99, ("send", 1, seen))
    run.poll(99, "final", 1, 0, 890, high_watermark=2, isolation="read_committed", log_start_offset=log_start)
    run.final_read({1: seen}, isolation="read_committed")

    assert found(run.finish(), "bank") == expected


@pytest.mark.parametrize(
    ("log_start", "expected"),
    [
        pytest.param(1, [("unbalanced", "violation", None)], id="behind the log's beginning"),
        pytest.param(2, [("unbalanced_by_loss", "note", None)], id="before it"),
    ],
)
def test_what_a_bank_s_log_lacks_behind_its_beginning_was_no_other_part_of_the_sum(
    run: Transactions, log_start: int, expected: list[Any]
) -> None:
    """The -5 at offset 1 is known, and makes up for the 5 at 2 only: somebody made the 1 at 3."""
    keys = {"txn_id": "x7", "worker_class": "transactional-bank"}
    amounts = {1: -5, 2: 5, 3: 1}
    values = {
        offset: run.send(offset, 100 + offset, offset=offset, key=f"acct:{amount}", **keys)
        for offset, amount in amounts.items()
    }
    run.txn("committed", 99, *[("send", offset, value) for offset, value in values.items()])
    run.poll(99, "final", 2, 0, 890, high_watermark=4, isolation="read_committed", log_start_offset=log_start)
    run.final_read({2: values[2], 3: values[3]}, isolation="read_committed")

    assert found(run.finish(), "bank") == expected
    assert agree(run.run_dir, "bank").total() == 1


def test_a_log_that_begins_later_and_lacks_nothing_makes_up_for_no_loss_elsewhere(run: Transactions) -> None:
    """The excuse has a place: the lost one stood in a log that begins at its beginning."""
    keys = {"txn_id": "x7", "worker_class": "transactional-bank"}
    values = [run.send(number, 100 + number, key=f"acct:{amount}", **keys) for number, amount in enumerate((5, -5, 1))]
    run.txn("committed", 99, *[("send", offset, value) for offset, value in enumerate(values)])
    run.final_read({0: values[0], 2: values[2]}, isolation="read_committed")
    elsewhere = run.send(9, 120, topic="u", offset=4, key="acct:0", **keys)
    final = {"process": 98, "topic": "u", "partition": 0, "isolation": "read_committed", "phase": "final"}
    times = {"invoke_ns": 900 * MS, "complete_ns": 900 * MS, "outcome": "ok"}
    for number, (position, count) in enumerate([(4, 1), (5, 0)]):
        fields = {"poll_index": number, "position": position, "record_count": count, "high_watermark": 5}
        run.recorder.row("polls", **final, **times, **fields, log_start_offset=4)
    read = {"process": 98, "poll_index": 0, "topic": "u", "partition": 0, "log_offset": 4, "phase": "final"}
    run.recorder.row("reads", **read, value=elsewhere)

    assert found(run.finish(), "bank") == [("unbalanced", "violation", None)]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        pytest.param("ok", [("offset_forgotten", "violation", None)], id="answered"),
        pytest.param("info", [], id="not answered: the coordinator ends a transaction without it"),
    ],
)
def test_a_commit_inside_of_a_transaction_takes_effect_with_it_if_it_was_answered(
    run: Transactions, outcome: str, expected: list[Any]
) -> None:
    value = run.send(0, 50)
    run.txn("committed", 100, ("poll", 0, value))
    run.offsets("commit", 1, 105, outcome=outcome)
    run.offsets("fetch", None, 200)

    assert found(run.finish(), "group_offsets") == expected


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        pytest.param("u", [], id="recorded"),
        pytest.param(None, [("unjudged", "unjudged", None)], id="missing"),
    ],
)
def test_a_sum_needs_every_account(run: Transactions, recorded: str | None, expected: list[Any]) -> None:
    keys = {"txn_id": "x7", "worker_class": "transactional-bank"}
    values = [run.send(0, 100, key="acct:5", **keys), (7 << 40) + 1]
    if recorded is not None:
        run.send(1, 101, topic=recorded, offset=0, key="acct:-5", **keys)
        final = {"process": 98, "topic": recorded, "partition": 0, "isolation": "read_committed", "phase": "final"}
        times = {"invoke_ns": 900 * MS, "complete_ns": 900 * MS, "outcome": "ok"}
        for number, (position, count) in enumerate([(0, 1), (1, 0)]):
            fields = {"poll_index": number, "position": position, "record_count": count, "high_watermark": 1}
            run.recorder.row("polls", **final, **times, **fields, log_start_offset=0)
        read = {"process": 98, "poll_index": 0, "topic": recorded, "partition": 0, "log_offset": 0, "phase": "final"}
        run.recorder.row("reads", **read, value=values[1])
    steps = [{"kind": "send", "topic": topic, "partition": 0, "log_offset": 0, "value": value}
             for topic, value in zip("tu", values, strict=True)]  # fmt: skip
    ends = {"begin_ns": 99 * MS, "end_ns": 110 * MS}
    run.recorder.row("txns", process=7, txn_id="x7", outcome="committed", operations=steps, **ends)
    run.final_read({0: values[0]}, isolation="read_committed")

    assert found(run.finish(), "bank") == expected


@pytest.mark.parametrize("kind", ["send", "append"])
@pytest.mark.parametrize(
    ("outcome", "stable", "at", "expected"),
    [
        pytest.param("committed", 1, 20_000, [], id="moved on"),
        pytest.param("committed", 0, 9_000, [], id="markers on their way"),
        pytest.param("committed", 0, 20_000, [("hanging", "violation", 0)], id="committed and still there"),
        pytest.param("info", 0, 9_000, [("open", "note", 0)], id="open"),
        pytest.param("info", 0, 20_000, [("hanging", "violation", 0)], id="beyond its time-out"),
    ],
)
def test_no_transaction_hangs(
    run: Transactions, outcome: str, stable: int, at: int, expected: list[Any], kind: str
) -> None:
    value = run.send(0, 100, txn_id="x7")
    run.txn(outcome, 99, (kind, 0, value))
    run.watermark(1, at, epoch=0, last_stable_offset=stable)

    assert found(run.finish(), "hanging_transactions") == expected


@pytest.mark.parametrize(
    ("since", "waited", "expected"),
    [
        pytest.param(1_000, 11_000, [], id="nobody had a processor"),
        pytest.param(1_000, 4_000, ["hanging"], id="not for long enough"),
        pytest.param(21_000, 11_000, ["hanging"], id="after it was looked at"),
    ],
)
def test_markers_need_a_processor(run: Transactions, since: int, waited: int, expected: list[str]) -> None:
    value = run.send(0, 100, txn_id="x7")
    run.txn("committed", 99, ("send", 0, value))
    run.watermark(1, 20_000, epoch=0, last_stable_offset=0)
    span = {"since_ns": since * MS, "until_ns": (since + 12_000) * MS}
    run.recorder.row("waits", holder="node", node=1, waited_ns=waited * MS, **span)

    assert [kind for kind in agree(run.finish(), "hanging_transactions") if kind in ("hanging", "open")] == expected


@pytest.mark.parametrize("step", ["send", "append"])
@pytest.mark.parametrize(
    ("timeout_ms", "stable", "kind"),
    [
        pytest.param(5_000, 0, "hanging", id="beyond its own time-out"),
        pytest.param(60_000, 0, "open", id="within it"),
        pytest.param(None, 0, "open", id="within that of brokers"),
        pytest.param(5_000, 1, "open", id="another one, within its own"),
    ],
)
def test_a_transaction_hangs_that_outlives_its_own_time_out(
    tmp_path: Path, timeout_ms: int | None, stable: int, kind: str, step: str
) -> None:
    run = Transactions(tmp_path)
    place = {"topic": "t", "partition": 0, "kind": step}
    for sequence, own_ms in enumerate([timeout_ms, 60_000]):
        value = run.send(sequence, 100 + sequence, txn_id=f"x{sequence}")
        steps = [place | {"log_offset": sequence, "value": value}]
        ends = {"begin_ns": 99 * MS, "end_ns": None, "outcome": "info", "timeout_ms": own_ms}
        run.recorder.row("txns", process=7, txn_id=f"x{sequence}", operations=steps, **ends)
    run.watermark(2, 20_000, epoch=0, last_stable_offset=stable)

    assert [one for one, *_ in found(run.finish(), "hanging_transactions")] == [kind]


@pytest.mark.parametrize(
    ("log_start", "kind"),
    [
        pytest.param(0, "hanging", id="the one whose record stands there"),
        pytest.param(1, "open", id="one whose beginning was deleted, perhaps"),
        pytest.param(None, "hanging", id="no log start is known"),
    ],
)
def test_a_deleted_beginning_is_nobodys_record(tmp_path: Path, log_start: int | None, kind: str) -> None:
    """The last stable offset is not below the log start: what stands there need not be of the transaction that is open."""
    run = Transactions(tmp_path)
    first = 0 if log_start == 1 else 1
    ended = 1 - first
    for sequence, outcome in ((first, "info"), (ended, "committed")):
        value = run.send(sequence, 100 + sequence, txn_id=f"x{sequence}")
        steps = [{"topic": "t", "partition": 0, "kind": "send", "log_offset": sequence, "value": value}]
        ends = {"begin_ns": 99 * MS, "end_ns": None if outcome == "info" else 110 * MS, "outcome": outcome}
        run.recorder.row("txns", process=7, txn_id=f"x{sequence}", operations=steps, timeout_ms=60_000, **ends)
    run.watermark(2, 20_000, epoch=0, last_stable_offset=ended, log_start_offset=log_start)

    assert agree(run.finish(), "hanging_transactions") == {kind: 1}


@pytest.mark.parametrize(
    ("fetched", "expected"),
    [
        pytest.param(5, [], id="the newest"),
        pytest.param(3, [("offset_stale", "violation", 3)], id="an overwritten one"),
        pytest.param(4, [("offset_invented", "violation", 4)], id="one nobody committed"),
        pytest.param(None, [("offset_forgotten", "violation", None)], id="none"),
    ],
)
def test_a_committed_offset_is_a_register(run: Transactions, fetched: int | None, expected: list[Any]) -> None:
    run.offsets("commit", 3, 100)
    run.offsets("commit", 5, 110)
    run.offsets("fetch", fetched, 120)

    assert found(run.finish(), "group_offsets") == expected


def test_a_commit_in_an_aborted_transaction_has_no_effect(run: Transactions) -> None:
    run.offsets("commit", 3, 100, process=9)
    run.txn("aborted", 105, process=7)
    run.offsets("commit", 5, 110)
    run.offsets("fetch", 3, 120)

    assert found(run.finish(), "group_offsets") == []


LOST = {
    "node": 3,
    "topic": "__consumer_offsets",
    "partition": 0,
    "from_offset": 0,
    "begin_ns": 210 * MS,
    "end_ns": 220 * MS,
}


@pytest.mark.parametrize(
    ("lost", "severity"),
    [
        pytest.param(LOST, "permitted", id="its coordinator's log"),
        pytest.param(LOST | {"topic": "t"}, "violation", id="of another topic"),
        pytest.param(LOST | {"partition": 1}, "violation", id="of another coordinator"),
        pytest.param(LOST | {"node": 2}, "violation", id="of one that does not lead"),
        pytest.param(LOST | {"begin_ns": 10 * MS, "end_ns": 20 * MS}, "violation", id="before it was committed"),
        pytest.param(LOST | {"begin_ns": 5000 * MS, "end_ns": 5000 * MS}, "violation", id="when it had been missed"),
        pytest.param(LOST | {"from_offset": 12}, "violation", id="behind it"),
        pytest.param(LOST | {"end_offset": 7}, "violation", id="before it"),
        pytest.param(None, "violation", id="nothing"),
    ],
)
def test_a_position_is_lost_with_the_log_of_its_coordinator(
    tmp_path: Path, lost: dict[str, Any] | None, severity: str
) -> None:
    """Without ELR the last replica standing leads without what its disk lost (R3)."""
    run = Transactions(tmp_path, **{"eligible.leader.replicas.enable": False})
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"leader": 3, "isr": [3]})
    for high_watermark, at in ((8, 90), (11, 120)):
        asked = {"observer": "client-1", "source": "fetch", "asked_ns": (at - 1) * MS, "answered_by": 3}
        run.watermark(high_watermark, at, epoch=0, topic="__consumer_offsets", **asked)
    run.offsets("commit", 3, 100)
    run.offsets("commit", 5, 110)
    run.node(3, "killed", 200)
    fields = {"index": 0, "kind": "power-loss", "planned_ns": 1, "injected_ns": 1, "took_effect": True, "healed": True}
    run.recorder.row("faults", **fields, losses=[lost] if lost else [])
    run.registered(3, 230, previous=-1, fenced=False)
    run.metadata("PartitionChangeRecord", 250, topic="__consumer_offsets", partition_id=0, leader=3, isr=[3])
    run.offsets("fetch", None, 300)

    assert found(run.finish(), "group_offsets") == [("offset_forgotten", severity, None)]


SHOWN_TO_CLIENT = {"observer": "client-1", "source": "fetch", "answered_by": 3}


@pytest.mark.parametrize(("before", "behind", "lost", "severity"), [
    pytest.param((1900, {}), (2700, {}), {"from_offset": 12}, "violation", id="its journal, long after it"),
    pytest.param((1900, {}), (2300, {}), {"from_offset": 12}, "permitted", id="its journal, whose clock may be ahead"),
    pytest.param((1400, {}), (2700, {}), {"end_offset": 7}, "violation", id="its journal, long before it"),
    pytest.param((1900, {}), (2700, {}), {"end_offset": 7}, "permitted", id="its journal, whose clock may be behind"),
    pytest.param((1900, {}), (2030, {"asked_ns": 2020 * MS}), {"from_offset": 12}, "violation", id="asked for later"),
    pytest.param((1900, {}), (2030, {"asked_ns": 1990 * MS}), {"from_offset": 12}, "permitted", id="long on its way"),
    pytest.param((1900, {}), (2030, {"asked_ns": None}), {"from_offset": 12}, "permitted", id="nobody knows since when"),
    pytest.param((1990, {"asked_ns": 1980 * MS}), (2700, {}), {"end_offset": 7}, "violation", id="answered before it"),
])  # fmt: skip
def test_an_offset_is_bounded_by_what_was_surely_shown_before_and_behind_it(
    tmp_path: Path,
    before: tuple[int, dict[str, Any]],
    behind: tuple[int, dict[str, Any]],
    lost: dict[str, int],
    severity: str,
) -> None:
    run = Transactions(tmp_path, **{"eligible.leader.replicas.enable": False})
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED | {"leader": 3, "isr": [3]})
    for high_watermark, (at, asked) in ((8, before), (11, behind)):
        shown = SHOWN_TO_CLIENT | asked if asked else {"observer": "node-3"}
        run.watermark(high_watermark, at, epoch=0, topic="__consumer_offsets", **shown)
    run.offsets("commit", 3, 2000)
    run.node(3, "killed", 3000)
    fields = {"index": 0, "kind": "power-loss", "planned_ns": 1, "injected_ns": 1, "took_effect": True, "healed": True}
    gone = LOST | {"begin_ns": 3000 * MS, "end_ns": 3010 * MS} | lost
    run.recorder.row("faults", **fields, losses=[gone])
    run.registered(3, 3100, previous=-1, fenced=False)
    run.metadata("PartitionChangeRecord", 3200, topic="__consumer_offsets", partition_id=0, leader=3, isr=[3])
    run.offsets("fetch", None, 4000)

    assert found(run.finish(), "group_offsets") == [("offset_forgotten", severity, None)]


SET_BACK = {"api": "alter_offset", "group": "g", "topic": "t", "partition": 0, "log_offset": 3, "outcome": "ok"}


@pytest.mark.parametrize(
    ("order", "fetched", "severity"),
    [
        pytest.param(SET_BACK, 3, "permitted", id="the position was set back"),
        pytest.param(SET_BACK | {"log_offset": 4}, 4, "permitted", id="to what nobody had committed"),
        pytest.param(SET_BACK | {"log_offset": None}, 4, "violation", id="to nobody knows what"),
        pytest.param(SET_BACK | {"log_offset": 4, "group": "h"}, 4, "violation", id="another group's to it"),
        pytest.param(
            SET_BACK | {"log_offset": 4, "invoke_ns": 130 * MS, "complete_ns": 131 * MS}, 4, "violation", id="later"
        ),
        pytest.param(SET_BACK | {"group": "h"}, 3, "violation", id="another group's"),
        pytest.param(SET_BACK | {"partition": 1}, 3, "violation", id="in another partition"),
        pytest.param(SET_BACK | {"log_offset": 2}, 3, "violation", id="to another offset"),
        pytest.param(SET_BACK | {"outcome": "fail"}, 3, "violation", id="refused"),
        pytest.param(
            SET_BACK | {"invoke_ns": 105 * MS, "complete_ns": 106 * MS}, 3, "violation", id="and committed again"
        ),
        pytest.param(
            {"api": "delete_group", "group": "g", "outcome": "ok"}, None, "permitted", id="the group was deleted"
        ),
        pytest.param(
            {"api": "delete_group", "group": "g", "outcome": "ok"}, 3, "violation", id="deleting is not setting"
        ),
        pytest.param({"api": "delete_topic", "topic": "u", "outcome": "ok"}, None, "violation", id="another topic was"),
    ],
)
def test_an_operator_may_set_or_delete_positions(
    run: Transactions, order: dict[str, Any], fetched: int | None, severity: str
) -> None:
    run.recorder.row("admin", **{"invoke_ns": 115 * MS, "complete_ns": 117 * MS} | order)
    run.offsets("commit", 3, 100)
    run.offsets("commit", 5, 110)
    run.offsets("fetch", fetched, 120)

    assert [fields for _, fields, _ in found(run.finish(), "group_offsets")] == [severity]


@pytest.mark.parametrize(
    ("order", "severity"),
    [
        pytest.param({"log_offset": 1}, "permitted", id="the position was set back"),
        pytest.param(
            {"api": "delete_group", "topic": None, "partition": None}, "permitted", id="the group was deleted"
        ),
        pytest.param({"log_offset": 2}, "violation", id="behind the record"),
        pytest.param({"log_offset": 1, "group": "h"}, "violation", id="another group's"),
        pytest.param({"log_offset": 1, "partition": 1}, "violation", id="in another partition"),
        pytest.param({"log_offset": 1, "outcome": "fail"}, "violation", id="refused"),
        pytest.param({"log_offset": 1, "invoke_ns": 150 * MS, "complete_ns": 151 * MS}, "violation", id="before both"),
        pytest.param({"log_offset": 1, "invoke_ns": 400 * MS, "complete_ns": 401 * MS}, "violation", id="behind both"),
    ],
)
def test_what_lies_behind_a_position_that_was_set_back_is_processed_again(
    run: Transactions, order: dict[str, Any], severity: str
) -> None:
    run.recorder.row("admin", **{**SET_BACK, "invoke_ns": 212 * MS, "complete_ns": 214 * MS} | order)
    run.final_read(a_transformer(run, ("committed", [0, 1]), ("committed", [1, 2, 3])))

    assert found(run.finish(), "exactly_once") == [("processed_twice", severity, 1)]


@pytest.mark.parametrize(
    ("order", "severity"),
    [
        pytest.param({}, "permitted", id="the group was deleted"),
        pytest.param({"group": "h"}, "violation", id="another group was"),
        pytest.param({"api": "delete_offset"}, "violation", id="its position only"),
        pytest.param({"outcome": "fail"}, "violation", id="refused"),
        pytest.param({"invoke_ns": 50 * MS, "complete_ns": 51 * MS}, "violation", id="before it had that generation"),
        pytest.param({"invoke_ns": 150 * MS, "complete_ns": 151 * MS}, "violation", id="afterwards"),
    ],
)
def test_a_group_that_was_deleted_counts_its_generations_anew(
    run: Transactions, order: dict[str, Any], severity: str
) -> None:
    deletion = {"api": "delete_group", "group": "g", "outcome": "ok", "invoke_ns": 115 * MS, "complete_ns": 117 * MS}
    run.recorder.row("admin", **deletion | order)
    for at, generation in ((110, 4), (120, 1)):
        times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
        row = {"process": 7, "group": "g", "kind": "commit", "committed_offset": 0, "outcome": "ok"}
        run.recorder.row("commits", **PLACE, **row, **times, generation=generation)

    assert found(run.finish(), "group_members") == [("stale_generation", severity, 0)]


@pytest.mark.parametrize(
    ("topic", "at", "severity"),
    [
        pytest.param("__consumer_offsets", 250, "permitted", id="positions may be lost with it"),
        pytest.param("elsewhere", 250, "violation", id="they lie elsewhere"),
        pytest.param("__consumer_offsets", 1400, "violation", id="it came later"),
    ],
)
def test_an_unclean_leader_of_the_groups_topic_may_know_older_positions(
    tmp_path: Path, topic: str, at: int, severity: str
) -> None:
    run = Transactions(tmp_path, **{"unclean.leader.election.enable": True})
    run.metadata("PartitionRecord", 0, topic=topic, **CREATED)
    values = a_transformer(run, ("committed", [0, 1]))
    run.metadata("PartitionChangeRecord", at, topic=topic, partition_id=0, isr=[3], leader=3, leader_recovery_state=1)
    run.offsets("commit", 1, 150)
    run.offsets("fetch", 1, 300)
    run.txn("committed", 310, ("poll", 1, values[1]), process=9)
    run.offsets("commit", 2, 315, process=9)
    run.final_read(values)

    wanted = {("offset_stale", severity, 1), ("processed_twice", severity, 1)}
    assert set(found(run.finish(), "group_offsets", "exactly_once")) == wanted


@pytest.mark.parametrize(
    ("outcome", "first", "then", "expected"),
    [
        pytest.param("info", 5, 3, [("offset_stale", "violation", 3)], id="it had been seen"),
        pytest.param(
            "info", 5, None, [("offset_forgotten", "violation", None)], id="it had been seen, then nothing is"
        ),
        pytest.param("info", 5, 5, [], id="it came late and stays"),
        pytest.param("info", 3, 3, [], id="it never came"),
    ],
)
def test_a_commit_of_unknown_outcome_that_was_fetched_has_overwritten_what_was_before(
    run: Transactions, outcome: str, first: int, then: int | None, expected: list[Any]
) -> None:
    run.offsets("commit", 3, 100)
    run.offsets("commit", 5, 110, outcome=outcome)
    run.offsets("fetch", first, 120)
    run.offsets("fetch", then, 130)

    assert found(run.finish(), "group_offsets") == expected


def test_what_two_have_committed_does_not_say_whose_was_fetched(run: Transactions) -> None:
    run.offsets("commit", 5, 90)
    run.offsets("commit", 3, 100)
    run.offsets("commit", 5, 101, outcome="info")
    run.offsets("fetch", 5, 101)
    run.offsets("fetch", 3, 130)

    assert found(run.finish(), "group_offsets") == []


@pytest.mark.parametrize(
    ("is_read", "expected"),
    [
        pytest.param(True, [("torn", "violation", None)], id="read to its end, empty"),
        pytest.param(False, [], id="not read"),
    ],
)
def test_a_partition_where_nothing_is_visible_lacks_its_part(
    run: Transactions, is_read: bool, expected: list[Any]
) -> None:
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}
    run.metadata("PartitionRecord", 0, topic="u", **created)
    values = [run.send(0, 100, txn_id="x7"), run.send(1, 101, txn_id="x7", topic="u", offset=0)]
    steps = [{"kind": "send", "log_offset": 0, "value": value} for value in values]
    copied = [step | {"topic": topic, "partition": 0} for step, topic in zip(steps, "tu", strict=True)]
    run.recorder.row(
        "txns", process=7, txn_id="x7", outcome="info", operations=copied, begin_ns=99 * MS, end_ns=None
    )  # fmt: skip
    run.final_read({0: values[0]}, isolation="read_committed")
    if is_read:
        empty = {"process": 99, "poll_index": run.polls, "topic": "u", "partition": 0, "isolation": "read_committed"}
        times = {"invoke_ns": 950 * MS, "complete_ns": 950 * MS, "outcome": "ok", "record_count": 0}
        run.recorder.row("polls", **empty, **times, phase="final", position=0, high_watermark=0, log_start_offset=0)

    assert found(run.finish(), "atomicity") == expected


def test_an_account_that_holds_nothing_was_read(run: Transactions) -> None:
    value = run.send(0, 100, txn_id="x7", worker_class="transactional-bank", key="acct:5")
    run.txn("aborted", 99, ("send", 0, value))
    run.final_read({}, isolation="read_committed")

    assert found(run.finish(), "bank") == []


UNCLEAN = {"partition_id": 0, "isr": [3], "leader": 3, "leader_recovery_state": 1}
WHERE_ENDS_LIE = [
    pytest.param("__transaction_state", 300, "permitted", id="its decision may be lost"),
    pytest.param("t", 300, "permitted", id="its marker may be lost"),
    pytest.param("elsewhere", 300, "violation", id="another partition says nothing"),
]


def elected_uncleanly(run_dir: Path, topic: str, at: int) -> Transactions:
    run = Transactions(run_dir, **{"unclean.leader.election.enable": True, "transaction.max.timeout.ms": 1000})
    for name in ("__transaction_state", "elsewhere"):
        run.metadata("PartitionRecord", 0, topic=name, **CREATED)
    run.metadata("PartitionChangeRecord", at, topic=topic, **UNCLEAN)
    return run


@pytest.mark.parametrize(
    ("topic", "at", "severity"), [*WHERE_ENDS_LIE, pytest.param("t", 50, "violation", id="it began later")]
)
def test_a_transaction_whose_end_may_be_lost_may_be_torn(tmp_path: Path, topic: str, at: int, severity: str) -> None:
    run = elected_uncleanly(tmp_path, topic, at)
    keys = {"worker_class": "transactional-bank", "txn_id": "x7"}
    values = [run.send(sequence, 100 + sequence, key=f"acct:{1 - 2 * sequence}", **keys) for sequence in range(2)]
    run.txn("info", 99, *[("send", offset, value) for offset, value in enumerate(values)])
    run.final_read({0: values[0]}, isolation="read_committed")

    rows = found(run.finish(), "atomicity", "bank")

    assert ("torn", severity, None) in rows
    assert ("unbalanced", severity, None) in rows


@pytest.mark.parametrize("kind", ["send", "append"])
@pytest.mark.parametrize(("topic", "at", "severity"), WHERE_ENDS_LIE)
def test_a_transaction_whose_end_may_be_lost_may_hang(
    tmp_path: Path, topic: str, at: int, severity: str, kind: str
) -> None:
    run = elected_uncleanly(tmp_path, topic, at)
    value = run.send(0, 100, txn_id="x7")
    run.txn("committed", 99, (kind, 0, value))
    run.watermark(1, 20_000, epoch=0, last_stable_offset=0)

    assert found(run.finish(), "hanging_transactions") == [("hanging", severity, 0)]


@pytest.mark.parametrize(("topic", "at", "severity"), WHERE_ENDS_LIE)
def test_a_transaction_whose_end_may_be_lost_may_be_seen_in_some_lists_only(
    tmp_path: Path, topic: str, at: int, severity: str
) -> None:
    run = elected_uncleanly(tmp_path, topic, at)
    values = [run.send(sequence, 100 + sequence, txn_id="x7") for sequence in range(2)]
    run.txn("info", 99, *[("append", offset, value) for offset, value in enumerate(values)])
    run.final_read({0: values[0]}, isolation="read_committed")

    assert found(run.finish(), "atomicity") == [("torn", severity, None)]


@pytest.mark.parametrize(("api", "severity"), [("elect_leaders", "permitted"), ("list_topics", "violation")])
def test_an_operator_may_order_what_takes_positions(tmp_path: Path, api: str, severity: str) -> None:
    run = Transactions(tmp_path)
    run.metadata("PartitionRecord", 0, topic="__consumer_offsets", **CREATED)
    asked = {"value": "unclean", "invoke_ns": 240 * MS, "complete_ns": 260 * MS}
    run.recorder.row("admin", process=1, api=api, outcome="ok", **asked)
    run.metadata("PartitionChangeRecord", 250, topic="__consumer_offsets", **UNCLEAN)
    run.offsets("commit", 3, 100)
    run.offsets("commit", 5, 110)
    run.offsets("fetch", 3, 300)

    assert found(run.finish(), "group_offsets") == [("offset_stale", severity, 3)]


@pytest.mark.parametrize(("start", "expected"), [(0, [("torn", "violation", None)]), (1, [])])
def test_what_lies_before_the_log_start_is_not_lacking(run: Transactions, start: int, expected: list[Any]) -> None:
    values = [run.send(sequence, 100 + sequence, txn_id="x7") for sequence in range(2)]
    run.txn("info", 99, *[("send", offset, value) for offset, value in enumerate(values)])
    run.final_read({1: values[1]}, isolation="read_committed")
    fields = {"process": 99, "poll_index": run.polls, "position": 2, "record_count": 0, "high_watermark": 2}
    times = {"invoke_ns": 950 * MS, "complete_ns": 950 * MS, "outcome": "ok"}
    run.recorder.row(
        "polls", **PLACE, **fields, **times, isolation="read_committed", phase="final", log_start_offset=start
    )  # fmt: skip

    assert found(run.finish(), "atomicity") == expected
