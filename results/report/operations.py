"""The operations window: what clients had under way around the first finding, one bar an operation, one band a process.

Sends and polls of the finding's partition from shortly before the record was sent to shortly after it was acknowledged, each
from its invocation to its completion. At most so many are drawn: the finding's own always, the others those nearest to it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.report.measures import LEFT, PLOT, step_of
from tribunal.results.report.wrong_read import WrongRead
from tribunal.results.rows import Poll, Send, typed
from tribunal.results.store import Recording
from tribunal.results.values import number_of, record_name
from tribunal.results.verdict import Finding

MARGIN_NS: Final = 300_000_000
MOST: Final = 2_000
LANES: Final = 8  # of one process, for operations that overlap
LANE: Final = 9
TOP: Final = 26
GAP: Final = 7
LEAST_WIDTH: Final = 1.5
TICKS: Final = 12
STEPS_MS: Final = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000)
HOUR_MS: Final = 3_600_000
CHARACTER: Final = 6.4


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. kind: ok, sent, fail, info, poll; `own`: the record that the finding is about, which has a `label`: words, and where they begin or end."""

    x: float
    y: float
    width: float
    kind: str
    own: bool
    is_open: bool
    title: str
    label: tuple[str, float, str] | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation, before it has its place in the drawing; the words are those of `Bar`."""

    process: int
    invoke_ns: int
    complete_ns: int | None
    kind: str
    own: bool
    title: str
    label: str = ""


class Band(msgspec.Struct, frozen=True):
    """One process."""

    name: str
    y: float
    height: float


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """The window; times in seconds. election: where that lies at which the record was lost, if it lies in the window."""

    name: str
    start_s: float
    end_s: float
    height: float
    bands: list[Band]
    bars: list[Bar]
    ticks: list[tuple[float, str]]
    left_out: int
    election: tuple[float, str] | None = None


def operations(recording: Recording, finding: Finding) -> Operations | None:
    """Return the window around a finding of a partition; None where no time or place is known."""
    if finding.topic is None or finding.acknowledged_ns is None:
        return None
    own = _row_of(recording.table("sends", f"{finding.topic}-{finding.partition}"), finding)
    start = (own.invoke_ns if own else finding.acknowledged_ns) - MARGIN_NS
    end = max(finding.acknowledged_ns, (own.complete_ns or 0) if own else 0) + MARGIN_NS
    start = max(0, min(start, end - 2 * MARGIN_NS))
    return _window(recording, finding, start, end, at_ns=finding.acknowledged_ns, read=None)


def operations_of_read(recording: Recording, finding: Finding, read: WrongRead) -> Operations | None:
    """Return the window around the first wrong read of a finding's record."""
    start, end = max(0, read.at_ns - MARGIN_NS), read.at_ns + MARGIN_NS
    return _window(recording, finding, start, end, at_ns=read.at_ns, read=read)


def _window(
    recording: Recording, finding: Finding, start: int, end: int, *, at_ns: int, read: WrongRead | None
) -> Operations | None:
    name = f"{finding.topic}-{finding.partition}"
    sends, polls = recording.table("sends", name), recording.table("polls", name)
    rows = [_send(row, finding) for row in typed(_within(sends, start, end), Send)]
    rows += [_poll(row, read) for row in typed(_within(polls, start, end), Poll)]
    if not rows:
        return None
    kept = sorted(rows, key=lambda row: (not row.own, abs(row.invoke_ns - at_ns)))[:MOST]
    bands, bars, height = _placed(kept, start, end)
    return Operations(
        name=name, start_s=start / 1e9, end_s=end / 1e9, height=height, bands=bands, bars=bars,
        ticks=_ticks(start, end), left_out=len(rows) - len(kept), election=_election(finding, start, end),
    )  # fmt: skip


def _row_of(sends: pa.Table, finding: Finding) -> Send | None:
    if finding.value is None:
        return None
    found = typed(sends.filter(pc.equal(sends["value"], finding.value)), Send)
    return found[0] if found else None


def _within(rows: pa.Table, start: int, end: int) -> pa.Table:
    done = pc.fill_null(rows["complete_ns"], end)
    return rows.filter(pc.and_(pc.less_equal(rows["invoke_ns"], end), pc.greater_equal(done, start)))


def _send(row: Send, finding: Finding) -> Operation:
    acks = "all" if row.acks == -1 else row.acks
    at = "" if row.log_offset is None else f" at offset {row.log_offset}"
    return Operation(
        process=row.process,
        invoke_ns=row.invoke_ns,
        complete_ns=row.complete_ns,
        kind=row.outcome,
        own=row.value == finding.value,
        title=f"{record_name(row.value)} acks={acks} {row.outcome}{at}",
        label=f"record {number_of(row.value)}{at}" if row.value == finding.value else "",
    )


def _poll(row: Poll, read: WrongRead | None) -> Operation:
    own = read is not None and (row.process, row.poll_index) == (read.process, read.poll_index)
    return Operation(
        process=row.process,
        invoke_ns=row.invoke_ns,
        complete_ns=row.complete_ns,
        kind="poll",
        own=own,
        label=f"reads another record at offset {read.log_offset}" if own and read is not None else "",
        title=f"poll from {row.position}: {row.record_count} records, {row.outcome}",
    )


def _placed(rows: Sequence[Operation], start: int, end: int) -> tuple[list[Band], list[Bar], float]:
    """Give each process a band, and within it each operation the first lane that is free."""
    bands, bars, y = [], [], float(TOP)
    for process in sorted({row.process for row in rows}):
        free = [0] * LANES
        lanes = 1
        own = sorted((row for row in rows if row.process == process), key=lambda row: row.invoke_ns)
        for row in own:
            done = end if row.complete_ns is None else row.complete_ns
            lane = next((lane for lane, until in enumerate(free) if until <= row.invoke_ns), LANES - 1)
            free[lane] = max(free[lane], done)
            lanes = max(lanes, lane + 1)
            bars.append(_bar(row, done, start, end, y + lane * LANE))
        bands.append(Band(f"process {process}", y, lanes * LANE))
        y += lanes * LANE + GAP
    return bands, bars, y


def _bar(row: Operation, done: int, start: int, end: int, y: float) -> Bar:
    left, right = (max(start, row.invoke_ns) - start), (min(end, done) - start)
    scale = PLOT / (end - start)
    until = "no answer" if row.complete_ns is None else f"{row.complete_ns / 1e9:.3f} s"
    x, width = round(LEFT + left * scale, 2), round(max(LEAST_WIDTH, (right - left) * scale), 2)
    return Bar(
        x=x, y=y, width=width, kind=row.kind, own=row.own, is_open=row.complete_ns is None or done > end, label=_label(row.label, x, width),
        title=f"{row.title}: {row.invoke_ns / 1e9:.3f} s to {until}",
    )  # fmt: skip


def _label(text: str, x: float, width: float) -> tuple[str, float, str] | None:
    """Return words in a bar, or behind it, or before it, wherever there is room."""
    needed = len(text) * CHARACTER + 8
    if not text:
        return None
    if width >= needed:
        return text, round(x + 4, 2), "start"
    if x + width + needed <= LEFT + PLOT:
        return text, round(x + width + 4, 2), "start"
    return (text, round(x - 4, 2), "end") if x - needed >= LEFT else None


def _election(finding: Finding, start: int, end: int) -> tuple[float, str] | None:
    election = finding.detail.election
    if election is None or election.at_ns is None or not start <= election.at_ns <= end:
        return None
    x = round(LEFT + (election.at_ns - start) * PLOT / (end - start), 2)
    return x, f"broker {election.leader} is elected, leader epoch {election.leader_epoch}"


def _ticks(start: int, end: int) -> list[tuple[float, str]]:
    # A record may be under way as long as its client waits: by hours then.
    step = step_of((end - start) / 1_000_000, TICKS, STEPS_MS, HOUR_MS)
    first = -(-start // (step * 1_000_000))
    last = end // (step * 1_000_000)
    scale = PLOT / (end - start)
    return [
        (round(LEFT + (number * step * 1_000_000 - start) * scale, 2), f"{number * step / 1000:g}")
        for number in range(first, last + 1)
    ]
