"""The log matrix: offsets across, replicas down, around the first loss, at several moments and in the end.

Every cell is one offset of one replica's log, shaded by its leader epoch. A ring: the record that was
acknowledged at this offset is here. A cross: a record was acknowledged, and this log holds another one or none.
What is known of logs before the end is described in `photographs`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.report.photographs import Moment, Presence, Report, least_end_later, moments, presence, reports
from tribunal.results.report.story import acks_name
from tribunal.results.store import Recording
from tribunal.results.values import record_name
from tribunal.results.verdict import Finding

BEFORE: Final = 10
OFFSETS: Final = 44
SHADES: Final = 6
RUNS: Final = 200
NO_EPOCH: Final = -1  # Kafka's own
LABELS_APART: Final = 0.02  # of the drawing's breadth: three signs

CUT, LATER, UNKNOWN, NOTHING = "cut", "later", "unknown", "none"  # a cell's look where no leader epoch shades it

Logs = dict[int, dict[int, tuple[int | None, int | None]]]  # node -> offset -> (leader epoch, value)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One offset in one log. shade: 0..5 by leader epoch, or one of the words above. mark: "", ring, cross."""

    column: int
    shade: int | str
    epoch: int | None
    mark: str
    title: str


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's cells."""

    name: str
    cells: list[Cell]
    labels: list[tuple[int, str]]


class AcknowledgedOffset(msgspec.Struct, frozen=True):
    """An offset at which a record was acknowledged, or only sent (acks=0): the acks level, and whether it is a finding."""

    column: int
    acks: int
    severity: str
    title: str


class Photograph(msgspec.Struct, frozen=True, kw_only=True):
    """What logs held at a moment before the end, as far as it is known."""

    at_ns: int
    words: str
    logs: list[Log]


class Run(msgspec.Struct, frozen=True):
    """Neighbouring offsets of one log that were written in one leader epoch: `start` and `width` as shares of the longest log."""

    start: float
    width: float
    epoch: int | None
    shade: int


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The window: `logs` are the final ones; `whole` are their leader epochs from one end to the other, log by log.

    epochs: where the whole logs' leader epochs begin, as shares of the longest log, and their names, as many as have room.
    end:  where the longest final log ends.
    """

    name: str
    first: int
    count: int
    acknowledged: list[AcknowledgedOffset]
    logs: list[Log]
    ticks: list[tuple[int, int]]
    photographs: list[Photograph] = []
    whole: list[list[Run]] = []
    epochs: list[tuple[float, str]] = []
    end: int = 0


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
    shade = {epoch: _shade(place, len(epochs)) for place, epoch in enumerate(epochs)}
    severity = _severities(findings, finding)
    whole, end = _whole(recording, name, shade)
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
    unpromised = [
        AcknowledgedOffset(
            offset - first, 0, "", f"offset {offset}: {record_name(value)}, acks=0: sent, nobody answered"
        )
        for offset, value in _sent_without_answer(recording, name, logs)
        if offset not in acknowledged
    ]
    return Matrix(
        name=name,
        first=first,
        count=OFFSETS,
        acknowledged=sorted([*offsets, *unpromised], key=lambda one: one.column),
        logs=[_log(node, rows, first, acknowledged, shade) for node, rows in logs.items()],
        ticks=[(offset - first, offset) for offset in range(first, first + OFFSETS) if offset % 5 == 0],
        photographs=list(_photographs(recording, finding, first, logs, shade, acknowledged)),
        whole=whole,
        epochs=_epochs(whole),
        end=end,
    )


def _epochs(whole: Sequence[Sequence[Run]]) -> list[tuple[float, str]]:
    """Name each leader epoch once, where the first log begins it; of those that would overlap the first."""
    begins: dict[int, float] = {}
    for run in (run for runs in whole for run in runs):
        if run.epoch is not None:
            begins[run.epoch] = min(run.start, begins.get(run.epoch, 1.0))
    found: list[tuple[float, str]] = []
    for epoch, start in sorted(begins.items(), key=lambda item: (item[1], item[0])):
        if not found or start - found[-1][0] >= LABELS_APART:
            found.append((start, f"e{epoch}"))
    return found


def _whole(recording: Recording, name: str, shade: dict[int, int]) -> tuple[list[list[Run]], int]:
    """Return the final logs as runs of leader epochs, and where the longest of them ends; no log has more than `RUNS`."""
    rows = recording.table("logs", name, ["node", "log_offset", "leader_epoch"]).sort_by("log_offset")
    nodes, offsets = rows["node"].to_numpy(), rows["log_offset"].to_numpy()
    epochs = pc.fill_null(rows["leader_epoch"], NO_EPOCH).to_numpy()
    end = int(offsets.max(initial=0)) + 1
    found = []
    for node in np.unique(nodes).tolist():
        own = nodes == node
        own_offsets, own_epochs = offsets[own], epochs[own]
        breaks = (own_epochs[1:] != own_epochs[:-1]) | (own_offsets[1:] != own_offsets[:-1] + 1)
        starts = np.concatenate(([0], 1 + np.flatnonzero(breaks)))
        lasts = np.concatenate((starts[1:] - 1, [own_offsets.size - 1]))
        # The widest are those that can be seen.
        kept = np.sort(np.argsort(own_offsets[starts] - own_offsets[lasts], kind="stable")[:RUNS])
        found.append([
            Run(
                int(own_offsets[starts[at]]) / end, int(own_offsets[lasts[at]] - own_offsets[starts[at]] + 1) / end,
                _epoch(int(own_epochs[starts[at]])), _whole_shade(shade, int(own_epochs[starts[at]])),
            )
            for at in kept.tolist()
        ])  # fmt: skip
    return found, end


def _shade(place: int, count: int) -> int:
    """Return the shade of one of so many epochs, the later the darker; where there are more of them than shades, neighbours share one."""
    return (SHADES - count) // 2 + place if count <= SHADES else place * SHADES // count


def _whole_shade(shade: dict[int, int], epoch: int) -> int:
    """Return an epoch's shade in the window; one that the window has not is lighter before it, darker behind it."""
    if epoch in shade or not shade:
        return shade.get(epoch, 0)
    return max(0, min(shade.values()) - 1) if epoch < min(shade) else min(SHADES - 1, max(shade.values()) + 1)


class _Was(msgspec.Struct, frozen=True):
    """What one offset of one log was in the photograph before."""

    there: bool = False
    had_record: bool = False


def _photographs(
    recording: Recording,
    finding: Finding,
    first: int,
    logs: Logs,
    shade: dict[int, int],
    acknowledged: dict[int, tuple[int, int]],
) -> Iterator[Photograph]:
    name = f"{finding.topic}-{finding.partition}"
    known = reports(recording, name, first, first + OFFSETS)
    answered = _answered(recording, name, first, acknowledged)
    before: dict[tuple[int, int], _Was] = {}
    for moment in moments(known, finding):
        drawn = []
        for node, rows in logs.items():
            reported = known.get(node, ())
            own = _Held(node, reported, least_end_later(reported, moment.at_ns), rows, answered, shade)
            cells = [own.cell(offset, offset - first, moment, before) for offset in range(first, first + OFFSETS)]
            shown = [cell for cell in cells if cell is not None]
            drawn.append(Log(name=f"broker {node}", cells=shown, labels=_labels(shown)))
        yield Photograph(at_ns=moment.at_ns, words=moment.words, logs=drawn)


class _Answer(msgspec.Struct, frozen=True):
    """An acknowledged record: when, and by whom."""

    at_ns: int
    value: int
    node: int | None


def _answered(
    recording: Recording, name: str, first: int, acknowledged: dict[int, tuple[int, int]]
) -> dict[int, list[_Answer]]:
    """Return the answers for the records that the drawing is about: one record an offset, also where two were acknowledged."""
    columns = ["value", "outcome", "log_offset", "complete_ns", "answered_by"]
    sends = recording.table("sends", name, columns)
    ok = pc.and_(_within(sends, first), pc.equal(sends["outcome"].cast(pa.string()), "ok"))
    found: dict[int, list[_Answer]] = {}
    for row in sends.filter(ok).sort_by("complete_ns").to_pylist():
        if row["value"] == acknowledged[row["log_offset"]][0]:
            answer = _Answer(row["complete_ns"] or 0, row["value"], row["answered_by"])
            found.setdefault(row["log_offset"], []).append(answer)
    return found


class _Held(msgspec.Struct, frozen=True):
    """One replica's log at a moment before the end; `least_later`: where it ended at least behind that moment."""

    node: int
    known: Sequence[Report]
    least_later: int | None
    final: dict[int, tuple[int | None, int | None]]
    answered: dict[int, list[_Answer]]
    shade: dict[int, int]

    def cell(self, offset: int, column: int, moment: Moment, before: dict[tuple[int, int], _Was]) -> Cell | None:
        """Draw one offset, and remember it for the next photograph; None where nothing is and was."""
        place = (self.node, offset)
        was = before.get(place, _Was())
        at = presence(self.known, offset, moment.at_ns, finally_there=offset in self.final)
        later = at is Presence.THERE and (self._is_cut_later(offset) or offset not in self.final)
        epoch, value = (None, None) if later else self.final.get(offset, (None, None))
        own = self._acknowledged(offset, moment.at_ns)
        has_record = at is Presence.THERE and bool(own) and (self._gave(own) if later else value == own[-1].value)
        before[place] = _Was(at is Presence.THERE, has_record)
        shade: int | str
        mark = "ring" if has_record else ""
        match at:
            case Presence.THERE if later:
                shade, words = LATER, "a record that is gone from this log later"
            case Presence.THERE:
                shade = 0 if epoch is None else self.shade.get(epoch, 0)
                words = "a control record" if value is None else f"{record_name(value)}, leader epoch {epoch}"
                mark = "cross" if own and not has_record and was.had_record else mark
            case Presence.UNKNOWN:
                shade, words = UNKNOWN, "not known: between two reports of this node"
            case Presence.ABSENT if was.there:
                shade, words, mark = CUT, "cut away", "cross" if was.had_record else ""
            case _:
                return None
        title = f"{moment.at_ns / 1e9:.3f} s, broker {self.node}, offset {offset}: {words}"
        return Cell(column=column, shade=shade, epoch=epoch if at is Presence.THERE else None, mark=mark, title=title)

    def _is_cut_later(self, offset: int) -> bool:
        return self.least_later is not None and self.least_later <= offset

    def _acknowledged(self, offset: int, at_ns: int) -> list[_Answer]:
        return [answer for answer in self.answered.get(offset, ()) if answer.at_ns <= at_ns]

    def _gave(self, answers: Sequence[_Answer]) -> bool:
        return any(answer.node == self.node for answer in answers)


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


def _sent_without_answer(recording: Recording, name: str, logs: Logs) -> list[tuple[int, int]]:
    """Return where records stand that were sent with acks=0, and their values: only a log says what offset they got."""
    held = {value: offset for rows in logs.values() for offset, (_, value) in rows.items() if value is not None}
    sends = recording.table("sends", name, ["value", "acks"])
    own = pc.is_in(sends["value"], value_set=pa.array(sorted(held), sends["value"].type))
    values = sends.filter(pc.and_(own, pc.equal(sends["acks"], 0)))["value"].to_pylist()
    return sorted((held[value], value) for value in set(values))


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
        found[row["node"]][row["log_offset"]] = (_epoch(row["leader_epoch"]), row["value"])
    return found


def _epoch(recorded: int | None) -> int | None:
    """Return a leader epoch; None where there is none, as in what was written before there were any."""
    return None if recorded == NO_EPOCH else recorded


def _log(
    node: int,
    rows: dict[int, tuple[int | None, int | None]],
    first: int,
    acknowledged: dict[int, tuple[int, int]],
    shade: dict[int, int],
) -> Log:
    cells = []
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
                shade=NOTHING if held is None else shade.get(epoch, 0) if epoch is not None else 0,
                epoch=epoch,
                mark=mark,
                title=_title(node, offset, held, sent),
            )
        )
    return Log(name=f"broker {node}", cells=cells, labels=_labels(cells))


def _labels(cells: Sequence[Cell]) -> list[tuple[int, str]]:
    """Return in which columns another leader epoch begins than that of the cells before; cells without one say nothing."""
    known = [cell for cell in cells if cell.epoch is not None]
    firsts = [
        cell
        for before, cell in zip([None, *known], known, strict=False)
        if before is None or before.epoch != cell.epoch
    ]
    return [(cell.column, f"e{cell.epoch}") for cell in firsts]


def _title(node: int, offset: int, held: tuple[int | None, int | None] | None, sent: tuple[int, int] | None) -> str:
    if held is None:
        words = "nothing"
    else:
        words = "a control record" if held[1] is None else record_name(held[1])
        words += "" if held[0] is None else f", leader epoch {held[0]}"
    title = f"broker {node}, offset {offset}: {words}"
    if sent is not None and (held is None or held[1] != sent[0]):
        title += f"; acknowledged was {record_name(sent[0])}, {acks_name(sent[1])}"
    return title
