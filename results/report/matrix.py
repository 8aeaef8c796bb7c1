"""The log matrix: offsets across, replicas down, around the first loss.

Every cell is one offset of one replica's final log, shaded by its leader epoch. A ring: the record that clients were
told of at this offset stands here. A cross: clients were told of a record, and this log holds another one or none.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.report.story import acks_name, record_name
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding

BEFORE: Final = 10
OFFSETS: Final = 44
SHADES: Final = 6

Logs = dict[int, dict[int, tuple[int | None, int | None]]]  # node -> offset -> (leader epoch, value)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One offset in one log. shade: 0..5 by leader epoch, -1 nothing is there. mark: "", ring, cross."""

    column: int
    shade: int
    epoch: int | None
    mark: str
    title: str


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's cells."""

    name: str
    cells: list[Cell]
    labels: list[tuple[int, str]]


class AcknowledgedOffset(msgspec.Struct, frozen=True):
    """An offset at which a record was acknowledged: the acks level, and whether it is a finding."""

    column: int
    acks: int
    severity: str
    title: str


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The window."""

    name: str
    first: int
    count: int
    acknowledged: list[AcknowledgedOffset]
    logs: list[Log]
    ticks: list[tuple[int, int]]


def matrix(recording: Recording, finding: Finding, findings: Sequence[Finding]) -> Matrix | None:
    """Return the window around a finding's offset; None when it is not about one, or nobody's log is known."""
    if finding.topic is None or finding.log_offset is None:
        return None
    name = f"{finding.topic}-{finding.partition}"
    first = max(0, finding.log_offset - BEFORE)
    logs = _logs(recording, name, first)
    if not logs:
        return None
    acknowledged = _acknowledged(recording, name, first, logs)
    epochs = sorted({epoch for rows in logs.values() for epoch, _ in rows.values() if epoch is not None})
    shade = {epoch: max(0, SHADES - len(epochs)) // 2 + place for place, epoch in enumerate(epochs)}
    severity = _severities(findings, finding)
    offsets = [
        AcknowledgedOffset(
            offset - first,
            acks,
            # Witnesses are few: a record like them that no log holds any more is shown like them.
            severity.get(value, "" if _held_anywhere(logs, offset, value) else finding.severity),
            f"offset {offset}: {record_name(value)}, {acks_name(acks)}",
        )
        for offset, (value, acks) in sorted(acknowledged.items())
    ]
    return Matrix(
        name=name,
        first=first,
        count=OFFSETS,
        acknowledged=offsets,
        logs=[_log(node, rows, first, acknowledged, shade) for node, rows in logs.items()],
        ticks=[(offset - first, offset) for offset in range(first, first + OFFSETS) if offset % 5 == 0],
    )


def _severities(findings: Sequence[Finding], finding: Finding) -> dict[int, str]:
    own = [one for one in findings if (one.topic, one.partition) == (finding.topic, finding.partition)]
    return {one.value: one.severity for one in own if one.value is not None and one.severity != "note"}


def _acknowledged(recording: Recording, name: str, first: int, logs: Logs) -> dict[int, tuple[int, int]]:
    """Return offset -> (value, acks) of the acknowledged records.

    After a loss an offset is given twice, and both answers were given: the one that no log holds any more is shown,
    of several the one with the stronger promise.
    """
    sends = recording.table("sends", name, ["value", "acks", "outcome", "log_offset"])
    answered = pc.and_(_within(sends, first), pc.equal(sends["outcome"].cast(pa.string()), "ok"))
    rows = [(row["log_offset"], row["value"], row["acks"]) for row in sends.filter(answered).to_pylist()]
    found: dict[int, tuple[int, int]] = {}
    for offset, value, acks in sorted(rows, key=lambda row: (_held_anywhere(logs, row[0], row[1]), row[2], row[1])):
        found.setdefault(offset, (value, acks))
    return found


def _held_anywhere(logs: Logs, offset: int, value: int) -> bool:
    return any(rows.get(offset, (None, None))[1] == value for rows in logs.values())


def _within(rows: pa.Table, first: int) -> pa.ChunkedArray:
    offsets = rows["log_offset"]
    inside = pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, first + OFFSETS))
    return pc.fill_null(inside, False)  # noqa: FBT003 - pyarrow's own signature


def _logs(recording: Recording, name: str, first: int) -> Logs:
    logs = recording.table("logs", name, ["node", "log_offset", "leader_epoch", "value"])
    found: Logs = {node: {} for node in sorted(pc.unique(logs["node"]).to_pylist())}
    for row in logs.filter(_within(logs, first)).to_pylist():
        found[row["node"]][row["log_offset"]] = (row["leader_epoch"], row["value"])
    return found


def _log(
    node: int,
    rows: dict[int, tuple[int | None, int | None]],
    first: int,
    acknowledged: dict[int, tuple[int, int]],
    shade: dict[int, int],
) -> Log:
    cells = []
    labels = []
    known: int | None = None
    for offset in range(first, first + OFFSETS):
        held = rows.get(offset)
        sent = acknowledged.get(offset)
        if held is None and sent is None:
            continue
        epoch, value = held or (None, None)
        mark = "" if sent is None else ("ring" if held is not None and value == sent[0] else "cross")
        cells.append(
            Cell(
                column=offset - first,
                shade=-1 if held is None else shade.get(epoch, 0) if epoch is not None else 0,
                epoch=epoch,
                mark=mark,
                title=_title(node, offset, held, sent),
            )
        )
        if held is not None and epoch != known:
            labels.append((offset - first, f"e{epoch}"))
            known = epoch
    return Log(name=f"broker {node}", cells=cells, labels=labels)


def _title(node: int, offset: int, held: tuple[int | None, int | None] | None, sent: tuple[int, int] | None) -> str:
    if held is None:
        words = "nothing"
    else:
        words = "a control record" if held[1] is None else record_name(held[1])
        words += f", leader epoch {held[0]}"
    title = f"broker {node}, offset {offset}: {words}"
    if sent is not None and (held is None or held[1] != sent[0]):
        title += f"; acknowledged was {record_name(sent[0])}, {acks_name(sent[1])}"
    return title
