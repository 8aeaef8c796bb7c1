"""A recording's rows as typed values, and back to tables.

For the small tables of a run (faults, nodes, admin, metadata, phases), and for calibration, which changes a few rows of short runs. What looks
at a partition's many rows takes the columns instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from tribunal.results.recording import TABLES, DamagedRecording
from tribunal.results.unreadable import UNREADABLE


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of any table."""


class Send(Row, frozen=True, kw_only=True):
    """A record that was offered."""

    process: int
    worker_class: str
    topic: str
    partition: int
    value: int
    acks: int
    invoke_ns: int
    outcome: str
    key: str | None = None
    txn_id: str | None = None
    complete_ns: int | None = None
    error: str | None = None
    log_offset: int | None = None
    leader_epoch: int | None = None
    attempts: int | None = None
    answered_by: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    content: str | None = None


class Poll(Row, frozen=True, kw_only=True):
    """What one poll said of a partition."""

    process: int
    poll_index: int
    topic: str
    partition: int
    isolation: str
    phase: str
    invoke_ns: int
    outcome: str
    position: int | None = None
    complete_ns: int | None = None
    error: str | None = None
    record_count: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    answered_by: int | None = None
    leader_epoch: int | None = None


class Read(Row, frozen=True, kw_only=True):
    """A record that was received."""

    process: int
    poll_index: int
    topic: str
    partition: int
    log_offset: int
    phase: str
    value: int | None = None
    leader_epoch: int | None = None
    content: str | None = None


class Watermark(Row, frozen=True, kw_only=True):
    """What an observer was shown of a log's ends."""

    observer: str
    source: str
    topic: str
    partition: int
    at_ns: int
    leader_epoch: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_end_offset: int | None = None
    log_start_offset: int | None = None
    answered_by: int | None = None
    asked_ns: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a transaction."""

    kind: str
    topic: str | None = None
    partition: int | None = None
    log_offset: int | None = None
    value: int | None = None


class Transaction(Row, frozen=True, kw_only=True):
    """A transaction."""

    process: int
    txn_id: str
    begin_ns: int
    outcome: str
    producer_id: int | None = None
    producer_epoch: int | None = None
    end_ns: int | None = None
    operations: tuple[Step, ...] | None = None
    timeout_ms: int | None = None


class Commit(Row, frozen=True, kw_only=True):
    """A commit or a fetch of a group's position."""

    process: int
    group: str
    topic: str
    partition: int
    kind: str
    invoke_ns: int
    outcome: str
    generation: int | None = None
    member: str | None = None
    committed_offset: int | None = None
    complete_ns: int | None = None
    error: str | None = None
    answered_by: int | None = None


class Admin(Row, frozen=True, kw_only=True):
    """One thing that an operator asked for."""

    api: str
    invoke_ns: int
    outcome: str
    process: int | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    log_offset: int | None = None
    setting: str | None = None
    value: str | None = None
    group: str | None = None
    complete_ns: int | None = None
    error: str | None = None


class Metadata(Row, frozen=True, kw_only=True):
    """A committed metadata record."""

    metadata_offset: int
    quorum_epoch: int
    record_type: str
    body: str
    at_ns: int | None = None
    stamped_ns: int | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None


class NodeEvent(Row, frozen=True, kw_only=True):
    """What happened to a node."""

    node: int
    role: str
    event: str
    at_ns: int
    broker_epoch: int | None = None
    previous_broker_epoch: int | None = None
    incarnation: str | None = None
    pid: int | None = None
    node_ns: int | None = None
    clock_offset_ns: int | None = None


class Request(Row, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """A message that was seen on a link."""

    source: int
    target: int
    api_key: int
    direction: str
    fate: str
    at_ns: int
    api_version: int | None = None
    correlation_id: int | None = None
    summary: str | None = None


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's disk lost of a partition; without topic: of all of them; without end: all from there on.

    unseen_end_offset:  records from `from_offset` up to here may stay there for ever, damaged: no checksum covers the damaged bytes.
    """

    node: int | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    end_offset: int | None = None
    begin_ns: int | None = None
    end_ns: int | None = None
    unseen_end_offset: int | None = None


class Fault(Row, frozen=True, kw_only=True):
    """A fault."""

    index: int
    kind: str
    planned_target: str | None = None
    resolved_target: str | None = None
    planned_ns: int | None = None
    injected_ns: int | None = None
    healed_ns: int | None = None
    proof: str | None = None
    took_effect: bool | None = None
    heal_proof: str | None = None
    healed: bool | None = None
    undone: bool | None = None
    losses: tuple[Loss, ...] | None = None


class LogRecord(Row, frozen=True, kw_only=True):
    """A record of a replica's final log."""

    node: int
    topic: str
    partition: int
    log_offset: int
    leader_epoch: int | None = None
    value: int | None = None
    batch_first_offset: int | None = None
    is_control: bool | None = None
    content: str | None = None


class Dump(Row, frozen=True, kw_only=True):
    """A replica's log that was read from its disk at the end, whatever it holds."""

    node: int
    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    record_count: int


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How many records were sent in a phase, by how they ended."""

    acks: int | None = None
    ok: int | None = None
    fail: int | None = None
    info: int | None = None
    sent: int | None = None


CUT_OFF: Final = "cut-off"


def cut_off(nodes: Iterable[int]) -> str:
    """Return the name of a phase in which the harness itself has cut nodes off from all others and from clients; at least one."""
    return " ".join([CUT_OFF, *map(str, sorted(nodes))])


class Phase(Row, frozen=True, kw_only=True):
    """A phase of the run, or, within one, a time in which the harness itself had cut nodes off."""

    name: str
    start_ns: int | None = None
    end_ns: int | None = None
    load: tuple[Load, ...] | None = None

    @property
    def cut_off(self) -> tuple[int, ...]:
        """The nodes that the harness itself had cut off meanwhile, ascending; none of what is a phase of the run."""
        word, *nodes = self.name.split(" ")
        return tuple(map(int, nodes)) if word == CUT_OFF and all(map(str.isdecimal, nodes)) else ()


class ObjectCall(Row, frozen=True, kw_only=True):
    """A call of an operation on an object; argument and result are JSON."""

    process: int
    function: str
    key: str
    invoke_ns: int
    outcome: str
    argument: str | None = None
    result: str | None = None
    complete_ns: int | None = None
    error: str | None = None
    answered_by: int | None = None


class Probe(Row, frozen=True, kw_only=True):
    """How often a rare state was reached."""

    name: str
    node: int
    count: int
    at_ns: int | None = None


class Wait(Row, frozen=True, kw_only=True):
    """How long a node's process, the harness or all of its machine waited for a processor within a time."""

    holder: str
    since_ns: int
    until_ns: int
    waited_ns: int
    node: int | None = None


TABLE_OF: Final[dict[type[Row], str]] = {
    Send: "sends",
    Poll: "polls",
    Read: "reads",
    Watermark: "watermarks",
    Transaction: "txns",
    Commit: "commits",
    Admin: "admin",
    Metadata: "metadata",
    NodeEvent: "nodes",
    Request: "requests",
    Fault: "faults",
    Phase: "phases",
    LogRecord: "logs",
    Dump: "dumps",
    ObjectCall: "operations",
    Probe: "probes",
    Wait: "waits",
}
AnyRow = TypeVar("AnyRow", bound=Row)


def typed(rows: pa.Table, kind: type[AnyRow]) -> list[AnyRow]:
    """Return a table's rows as values of a type. Raises DamagedRecording when a row cannot be one."""
    return [_value(row, number, kind) for number, row in enumerate(rows.to_pylist())]


def _value(row: Mapping[str, object], number: int, kind: type[AnyRow]) -> AnyRow:
    try:
        return msgspec.convert(row, kind)
    except UNREADABLE as problem:
        raise DamagedRecording(TABLE_OF[kind], number, str(problem)) from problem


def table_of(kind: type[Row], rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table of the recording's types, without run_id."""
    fields = TABLES[TABLE_OF[kind]].fields
    schema = pa.schema([(name, pa.string() if pa.types.is_dictionary(of) else of) for name, of in fields.items()])
    return pa.Table.from_pylist([msgspec.to_builtins(row) for row in rows], schema=schema)
