"""The schema of a recording: THE contract between running and judging.

A recording is a star of narrow tables, one row a fact. Whoever runs writes them through
`tribunal.results.store.Recorder`; whoever judges reads them through `tribunal.results.store.Recording`; nothing else passes
between the two. What each column means is in `docs/recording-format.md`; recordings of earlier versions are read by `tribunal.results.versions`.

Units and conventions: `*_ns` are nanoseconds of the harness's monotonic clock since the run's start
(`node_ns` is the node's own clock), ids and epochs int32, offsets and broker epochs int64, unknown is null.
Closed sets of words are dictionary strings; their legal words are in `WORDS`.
"""

from typing import Final

import msgspec
import pyarrow as pa

from tribunal.results.object_transactions import LISTS, REGISTERS

SCHEMA_VERSION: Final = 11
NO_PARTITION: Final = "none"
# Who waited for a processor: a node's process, the harness, or all of a machine, of which somebody else took it.
NODE: Final = "node"
HARNESS: Final = "harness"
MACHINE: Final = "machine"

ID: Final = pa.int32()
COUNT: Final = pa.int64()
OFFSET: Final = pa.int64()
TIME: Final = pa.int64()
TEXT: Final = pa.string()
WORD: Final = pa.dictionary(pa.int32(), pa.string())
BOOL: Final = pa.bool_()

OPERATION: Final = pa.struct(
    [("kind", TEXT), ("topic", TEXT), ("partition", ID), ("log_offset", OFFSET), ("value", pa.int64())]
)
LOAD: Final = pa.struct([("acks", ID), ("ok", COUNT), ("fail", COUNT), ("info", COUNT), ("sent", COUNT)])
LOSS: Final = pa.struct(
    [
        ("node", ID),
        ("topic", TEXT),
        ("topic_id", TEXT),
        ("partition", ID),
        ("from_offset", OFFSET),
        ("end_offset", OFFSET),
        ("begin_ns", TIME),
        ("end_ns", TIME),
        ("unseen_end_offset", OFFSET),
    ]
)


class TableSchema(msgspec.Struct, frozen=True):
    """One table: its Arrow types, which columns no row may lack, and whether it has a folder a partition."""

    name: str
    fields: dict[str, pa.DataType]
    required: frozenset[str]
    by_partition: bool

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, `run_id` first."""
        return pa.schema([pa.field("run_id", WORD), *(pa.field(name, kind) for name, kind in self.fields.items())])


def _table(table: str, /, *, required: str, by_partition: bool = False, **fields: pa.DataType) -> TableSchema:
    assert set(required.split()) <= set(fields), f"{table}: {set(required.split()) - set(fields)}"
    return TableSchema(table, fields, frozenset(required.split()), by_partition)


_TABLES: Final = (
    _table(
        "sends",
        required="process worker_class topic partition value acks invoke_ns outcome",
        by_partition=True,
        process=ID,
        worker_class=WORD,
        topic=WORD,
        partition=ID,
        value=pa.int64(),
        key=TEXT,
        acks=ID,
        txn_id=WORD,
        invoke_ns=TIME,
        complete_ns=TIME,
        outcome=WORD,
        error=WORD,
        log_offset=OFFSET,
        leader_epoch=ID,
        attempts=ID,
        answered_by=ID,
        producer_id=pa.int64(),
        producer_epoch=ID,
        content=TEXT,
    ),
    _table(
        "polls",
        required="process poll_index topic partition isolation phase invoke_ns outcome",
        by_partition=True,
        process=ID,
        poll_index=COUNT,
        topic=WORD,
        partition=ID,
        isolation=WORD,
        phase=WORD,
        position=OFFSET,
        invoke_ns=TIME,
        complete_ns=TIME,
        outcome=WORD,
        error=WORD,
        record_count=COUNT,
        high_watermark=OFFSET,
        last_stable_offset=OFFSET,
        log_start_offset=OFFSET,
        answered_by=ID,
        leader_epoch=ID,
    ),
    _table(
        "reads",
        required="process poll_index topic partition log_offset phase",
        by_partition=True,
        process=ID,
        poll_index=COUNT,
        topic=WORD,
        partition=ID,
        log_offset=OFFSET,
        value=pa.int64(),
        leader_epoch=ID,
        phase=WORD,
        content=TEXT,
    ),
    _table(
        "watermarks",
        required="observer source topic partition at_ns",
        by_partition=True,
        observer=WORD,
        source=WORD,
        topic=WORD,
        partition=ID,
        leader_epoch=ID,
        high_watermark=OFFSET,
        last_stable_offset=OFFSET,
        log_end_offset=OFFSET,
        log_start_offset=OFFSET,
        at_ns=TIME,
        answered_by=ID,
        asked_ns=TIME,
    ),
    _table(
        "txns",
        required="process txn_id begin_ns outcome",
        process=ID,
        txn_id=WORD,
        producer_id=pa.int64(),
        producer_epoch=ID,
        begin_ns=TIME,
        end_ns=TIME,
        outcome=WORD,
        operations=pa.list_(OPERATION),
        timeout_ms=COUNT,
    ),
    _table(
        "commits",
        required="process group topic partition kind invoke_ns outcome",
        by_partition=True,
        process=ID,
        group=WORD,
        generation=ID,
        member=WORD,
        topic=WORD,
        partition=ID,
        kind=WORD,
        committed_offset=OFFSET,
        invoke_ns=TIME,
        complete_ns=TIME,
        outcome=WORD,
        error=WORD,
        answered_by=ID,
    ),
    _table(
        "admin",
        required="api invoke_ns outcome",
        process=ID,
        api=WORD,
        topic=WORD,
        topic_id=WORD,
        partition=ID,
        log_offset=OFFSET,
        setting=WORD,
        value=TEXT,
        group=WORD,
        invoke_ns=TIME,
        complete_ns=TIME,
        outcome=WORD,
        error=WORD,
    ),
    _table(
        "metadata",
        required="metadata_offset quorum_epoch record_type body",
        metadata_offset=OFFSET,
        quorum_epoch=ID,
        at_ns=TIME,
        stamped_ns=TIME,
        record_type=WORD,
        topic=WORD,
        topic_id=WORD,
        partition=ID,
        body=TEXT,
    ),
    _table(
        "nodes",
        required="node role event at_ns",
        node=ID,
        role=WORD,
        event=WORD,
        broker_epoch=pa.int64(),
        previous_broker_epoch=pa.int64(),
        incarnation=TEXT,
        pid=ID,
        node_ns=TIME,
        at_ns=TIME,
        clock_offset_ns=TIME,
    ),
    # `from` is a Python keyword: row("requests", **{"from": 1, "to": 2}).
    _table(
        "requests",
        required="from to api_key direction fate at_ns",
        **{
            "from": ID,
            "to": ID,
            "api_key": ID,
            "api_version": ID,
            "correlation_id": ID,
            "direction": WORD,
            "fate": WORD,
            "at_ns": TIME,
            "summary": TEXT,
        },
    ),
    _table(
        "faults",
        required="index kind",
        index=ID,
        kind=WORD,
        planned_target=TEXT,
        resolved_target=TEXT,
        planned_ns=TIME,
        injected_ns=TIME,
        healed_ns=TIME,
        proof=TEXT,
        took_effect=BOOL,
        heal_proof=TEXT,
        healed=BOOL,
        undone=BOOL,
        losses=pa.list_(LOSS),
    ),
    _table("phases", required="name start_ns", name=WORD, start_ns=TIME, end_ns=TIME, load=pa.list_(LOAD)),
    _table(
        "logs",
        required="node topic partition log_offset",
        by_partition=True,
        node=ID,
        topic=WORD,
        partition=ID,
        log_offset=OFFSET,
        leader_epoch=ID,
        value=pa.int64(),
        batch_first_offset=OFFSET,
        is_control=BOOL,
        content=TEXT,
    ),
    _table(
        "dumps",
        required="node topic partition log_start_offset log_end_offset record_count",
        node=ID,
        topic=WORD,
        partition=ID,
        log_start_offset=OFFSET,
        log_end_offset=OFFSET,
        record_count=COUNT,
    ),
    # What clients called on objects of a system that is no log; argument and result are JSON.
    _table(
        "operations",
        required="process function key invoke_ns outcome",
        process=ID,
        function=WORD,
        key=WORD,
        argument=TEXT,
        result=TEXT,
        invoke_ns=TIME,
        complete_ns=TIME,
        outcome=WORD,
        error=WORD,
        answered_by=ID,
    ),
    _table("probes", required="name node count", name=WORD, node=ID, at_ns=TIME, count=COUNT),
    _table(
        "waits",
        required="holder since_ns until_ns waited_ns",
        holder=WORD,
        node=ID,
        since_ns=TIME,
        until_ns=TIME,
        waited_ns=TIME,
    ),
)
TABLES: Final[dict[str, TableSchema]] = {table.name: table for table in _TABLES}

_OUTCOMES: Final = ("ok", "fail", "info")
WORDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("sends", "outcome"): (*_OUTCOMES, "sent"),
    ("polls", "outcome"): _OUTCOMES,
    ("polls", "isolation"): ("read_committed", "read_uncommitted"),
    ("polls", "phase"): ("tail", "final", "stray"),
    ("reads", "phase"): ("tail", "final", "stray"),
    ("watermarks", "source"): ("fetch", "list_offsets", "node"),
    ("txns", "outcome"): ("committed", "aborted", "info"),
    ("commits", "kind"): ("commit", "fetch"),
    ("commits", "outcome"): _OUTCOMES,
    ("admin", "outcome"): _OUTCOMES,
    ("operations", "outcome"): _OUTCOMES,
    ("operations", "function"): (
        "read",
        "write",
        "cas",
        "add",
        "read-all",
        "enqueue",
        "dequeue",
        "acknowledge",
        "redeliver",
        "increment",
        "read-counter",
        "acquire",
        "release",
        "publish",
        "publish-one",
        "publish-none",
        "read-stream",
        LISTS,
        REGISTERS,
    ),
    ("nodes", "event"): ("start", "registered", "fenced", "unfenced", "stop", "killed", "exit"),
    ("waits", "holder"): (NODE, HARNESS, MACHINE),
    ("requests", "fate"): ("delivered", "delayed", "dropped", "held", "duplicated"),
}


class DamagedRecording(Exception):
    """A recording that cannot be trusted: one clear line, exit code 3.

    table:  the table it is about, "" for the recording as a whole.
    row:    index of the first bad row in the table's (or partition's) order, None when it is not about a row.
    """

    def __init__(self, table: str, row: int | None, reason: str) -> None:
        self.table = table
        self.row = row
        self.reason = reason
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f"table {self.table}" if self.table else "recording"
        if self.row is not None:
            where += f", row {self.row}"
        return f"{where}: {self.reason}"

    def __reduce__(self) -> tuple[type["DamagedRecording"], tuple[str, int | None, str]]:
        return DamagedRecording, (self.table, self.row, self.reason)
