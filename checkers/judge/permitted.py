"""Every permitted anomaly with its rule and the event that excuses it: `permitted.parquet` beside `verdict.json`.

A verdict shows few witnesses of each kind; whoever wants to check an excuse needs all of them. A partition's rows travel as compressed
bytes, and are written one after the other: a run that lost millions is never held at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tribunal.checkers.guarantees import Excuse
from tribunal.checkers.judge.promised_losses import KILL
from tribunal.checkers.judge.remembered import EXPIRED, HINDERED
from tribunal.checkers.judge.skews import CLOCK
from tribunal.checkers.judge.tables import Permitted, Place
from tribunal.checkers.judge.timeline import Judgement
from tribunal.results.verdict import PERMITTED_TABLE, ExcusingEvent

OF_A_START: Final = "R15"  # its event is the fault after which a node need not start
BY_ORDER: Final = Excuse.BY_ORDER.value
WITHOUT_ELECTION: Final = {
    CLOCK: "clock set back",
    EXPIRED: "producer expired",
    HINDERED: "fault in effect",
    KILL: "kill",
}
OF_ANOMALY: Final = {
    "kind": "kind",
    "log_offset": "log_offset",
    "value": "value",
    "acks": "acks",
    "acknowledged_ns": "at_ns",
}
SCHEMA: Final = pa.schema(
    [
        ("property", pa.string()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("value", pa.int64()),
        ("acks", pa.int32()),
        ("acknowledged_ns", pa.int64()),
        ("rule", pa.string()),
        ("by", pa.string()),
        ("event", pa.string()),
        ("event_topic", pa.string()),
        ("event_partition", pa.int32()),
        ("event_ns", pa.int64()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("holders", pa.list_(pa.int32())),
        ("lost", pa.list_(pa.int32())),
    ]
)


def permitted(
    name: str, anomalies: pa.Table, judgements: Mapping[int, Judgement], rows: Sequence[int], place: Place
) -> Permitted:
    """Return these anomalies of a property, each with what permits it."""
    own = anomalies.take(pa.array(rows, pa.int64()))
    of_event = [_event(judgements[row], place) for row in rows]
    columns = {
        "property": pa.repeat(pa.scalar(name), len(rows)),
        "topic": pa.repeat(pa.scalar(place.topic, pa.string()), len(rows)),
        "partition": pa.repeat(pa.scalar(place.partition, pa.int32()), len(rows)),
        **{column: own[stored] for column, stored in OF_ANOMALY.items()},
    }
    said = pa.Table.from_pylist(of_event, schema=pa.schema(list(SCHEMA)[SCHEMA.get_field_index("rule") :]))
    table = pa.Table.from_arrays(
        [columns[field.name] if field.name in columns else said[field.name] for field in SCHEMA], names=SCHEMA.names
    ).cast(SCHEMA)
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream, compression="zstd")
    return Permitted(place, name, stream.getvalue().to_pybytes())


def excuse(judgement: Judgement, place: Place) -> ExcusingEvent:
    """Return the event that a judgement excuses by."""
    election = judgement.election
    is_order = BY_ORDER in (judgement.promise.rule, judgement.by)
    if judgement.promise.rule == OF_A_START:
        without = judgement.by or ""
    else:
        without = "order" if is_order else WITHOUT_ELECTION.get(judgement.by or "", "loss on disk")
    elsewhere = judgement.topic is not None
    return ExcusingEvent(
        event=without if is_order or election is None else f"{election.how.value} election",
        topic=judgement.topic if elsewhere else place.topic,
        partition=judgement.partition if elsewhere else place.partition,
        at_ns=judgement.at_ns,
        holders=judgement.holders,
        lost=judgement.lost,
    )


def _event(judgement: Judgement, place: Place) -> dict[str, str | int | tuple[int, ...] | None]:
    event = excuse(judgement, place)
    return {
        "rule": judgement.promise.rule,
        "by": judgement.by,
        "event": event.event,
        "event_topic": event.topic,
        "event_partition": event.partition,
        "event_ns": event.at_ns,
        "leader": None if judgement.election is None else judgement.election.leader,
        "leader_epoch": judgement.leader_epoch if judgement.leader_epoch >= 0 else None,
        "holders": event.holders,
        "lost": event.lost,
    }


def write(run_dir: Path, found: Iterable[Permitted]) -> None:
    """Write a run's table completely or not at all; without rows there is none."""
    path, temporary = run_dir / PERMITTED_TABLE, run_dir / f"{PERMITTED_TABLE}.tmp"
    own = list(found)
    if not own:
        path.unlink(missing_ok=True)
        return
    with pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
        for one in own:
            writer.write_table(pq.read_table(pa.BufferReader(one.rows)))
    temporary.replace(path)


def count(found: Iterable[Permitted]) -> int:
    """Return how many rows there are."""
    return sum(pq.read_metadata(pa.BufferReader(one.rows)).num_rows for one in found)
