"""From a page to geometry: bars, strips, step lines, all on one time axis. Pure, testable without a browser.

The drawing is `WIDTH` wide: labels on the left, `PLOT` in the middle, nothing is clipped by it. Reductions are
said in the captions: at most `POINTS` points a line, but every step back is kept; narrow bars of crowded rows are folded.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from tribunal.results.digits import significant
from tribunal.results.report.cut import cut
from tribunal.results.report.folded import AROUND_NS, NARROW, folded
from tribunal.results.report.measures import LEFT, PLOT, ROW, rate, step_of
from tribunal.results.report.model import Page, Rates, Series
from tribunal.results.report.moments import Change
from tribunal.results.report.participants import Lanes
from tribunal.results.report.window import Window
from tribunal.results.rows import Fault

CHART: Final = 130
POINTS: Final = 1_200
POINTS_OF_A_WINDOW: Final = 20_000
MOST_EVENTS: Final = 400
KINDS: Final = {
    "quorum": "quiet",
    "member": "quiet",
    "committed": "quiet",
    "aborted": "refused hatched",
    "unknown": "open hatched",
}
OUTLINED: Final = ("phase", "noleader")
LENS: Final = 30  # offsets on each side of the finding's
COLOURS: Final = 6
LEAST_LATENCY_NS: Final = 100_000
WORDS: Final = 8  # of a chart, at most
LINE: Final = 12  # the height of words
SEEN_MS: Final = 50  # so long the read-out says what was reported once
LABEL: Final = 12  # from one label at a line's end to the next
TICKS: Final = 12
HOUR_S: Final = 3600
STEPS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 3600,
)  # fmt: skip
# What a history that was imported need not say is not known.
WITH_EFFECT: Final = {True: ", had its effect", False: ", NO EFFECT", None: ", whether it had an effect is not known"}
HEALED: Final = {True: ", healed", False: ", NOT HEALED", None: ""}
CHARACTER: Final = 6.4  # about the width of a character in the strips' font


class Bar(msgspec.Struct, frozen=True):
    """A rectangle with a word in it (`label`: where it fits; `text`: in any case), and a sentence for those who point at it.

    is_next:  whether it begins where one of its own look ends, so that only a line between them tells the two apart.
    """

    x: float
    y: float
    width: float
    kind: str
    label: str
    title: str
    text: str
    is_next: bool = False


class Line(msgspec.Struct, frozen=True):
    """A step line and the red dots where it went back; `title` is for those who point at it, `label` stands at its end.

    name, values: what the read-out says: milliseconds and values from then on, as they are in the recording; -1: not known.
    marks:        a path of points: what was reported once, and goes on in no line.
    """

    path: str
    kind: str
    label: str
    y: float
    dots: list[tuple[float, float, str]]
    title: str = ""
    name: str = ""
    values: list[tuple[int, float]] = []
    marks: str = ""


class Words(msgspec.Struct, frozen=True):
    """What is said beside a point of a curve; `anchor`: on which side of it the words begin, as SVG has it.

    kind:  whose colour the words have; "": that of what went back.
    """

    x: float
    y: float
    text: str
    anchor: str
    kind: str = ""


class Track(msgspec.Struct, frozen=True):
    """A headed group of rows or a chart; of a chart with a linear scale `low` and `high` are what its grid begins and ends with.

    is_lens:  whether it has the same lines as the track before.
    words:    what stands in the chart beside its curves.
    """

    title: str
    y: float
    rows: list[tuple[float, str]]
    bars: list[Bar]
    lines: list[Line]
    grid: list[tuple[float, str]]
    low: float = 0
    high: float = 0
    is_lens: bool = False
    words: list[Words] = []


class Drawing(msgspec.Struct, frozen=True):
    """The master timeline; `events` are moments to step through (seconds, words), in order of time.

    start_s, end_s:  where the axis begins and ends
    is_folded:       whether some bars stand for several
    """

    height: float
    ticks: list[tuple[float, str]]
    tracks: list[Track]
    marks: list[tuple[float, str]]
    end_s: float
    start_s: float = 0
    events: list[tuple[float, str]] = []
    is_folded: bool = False


def drawing(page: Page) -> Drawing:
    """Lay out all tracks one below the other."""
    page = cut(page)
    shown_of = page.window or Window(start_ns=0, end_ns=page.end_ns)
    axis = _Axis(shown_of)
    tracks: list[Track] = []
    y = 26.0
    for make in (
        _phases,
        _faults,
        _quorum,
        _broker_epochs,
        _leaders,
        _isr,
        _transactions,
        _groups,
        _watermarks,
        _rates,
        _latencies,
        _unread,
    ):
        for track in make(page, axis, y):
            tracks.append(track)
            y = _bottom(track) + 14
    moments = [] if page.story is None else page.story.marks
    if page.window is not None:
        moments = [(at_ns, label) for at_ns, label in moments if shown_of.start_ns <= at_ns <= shown_of.end_ns]
    marks = [(axis.x(at_ns), label) for at_ns, label in moments]
    clear = [(axis.x(at_ns - AROUND_NS), axis.x(at_ns + AROUND_NS)) for at_ns, _ in moments]
    shown = [replace(track, bars=_with_edges(folded(track.bars, clear))) for track in tracks]
    is_folded = any(len(after.bars) < len(before.bars) for before, after in zip(tracks, shown, strict=True))
    start_s, end_s = shown_of.start_ns / 1e9, shown_of.end_ns / 1e9
    events = [one for one in _events(page) if page.window is None or start_s <= one[0] <= end_s]
    return Drawing(y, axis.ticks(), shown, marks, end_s, start_s, events[:MOST_EVENTS], is_folded)


def _with_edges(bars: Sequence[Bar]) -> list[Bar]:
    """Mark each bar that begins where one of the same look ends: two broker epochs in a row were one grey bar."""
    ends = {(bar.y, bar.kind, round(bar.x + bar.width, 1)) for bar in bars}
    return [
        replace(bar, is_next=True)
        if bar.width >= NARROW and bar.kind not in OUTLINED and (bar.y, bar.kind, round(bar.x, 1)) in ends
        else bar
        for bar in bars
    ]


def _events(page: Page) -> list[tuple[float, str]]:
    """Return what a reader steps through by keys: faults begin and end, leaders change, the finding shows."""
    found = [(row.injected_ns, f"{row.kind} {_target(row)}") for row in page.faults]
    found += [(row.healed_ns, f"{row.kind} {_target(row)} healed") for row in page.faults]
    for name, changes in page.partitions.items():
        for before, after in pairwise(changes):
            if before.state.leader_epoch != after.state.leader_epoch:
                leader = "nobody leads" if after.state.leader < 0 else f"broker {after.state.leader} leads"
                found.append((after.at_ns, f"{name}: {leader}, leader epoch {after.state.leader_epoch}"))
    found += [] if page.story is None else page.story.marks
    known = sorted((at_ns, words) for at_ns, words in found if at_ns is not None)
    return [(round(at_ns / 1e9, 4), words) for at_ns, words in known]


class _Axis:
    def __init__(self, window: Window) -> None:
        self.start_ns, self.end_ns = window.start_ns, window.end_ns

    def x(self, at_ns: int) -> float:
        inside = min(max(at_ns, self.start_ns), self.end_ns) - self.start_ns
        return round(LEFT + PLOT * inside / (self.end_ns - self.start_ns), 2)

    def ticks(self) -> list[tuple[float, str]]:
        start, end = self.start_ns / 1e9, self.end_ns / 1e9
        step = step_of(end - start, TICKS, STEPS, HOUR_S)
        places = range(math.ceil(start / step), int(end / step) + 1)
        return [(self.x(round(i * step * 1e9)), f"{i * step:.10g}{' s' if i == places[-1] else ''}") for i in places]

    def bar(self, start_ns: int, end_ns: int | None, y: float, kind: str, label: str, title: str) -> Bar:
        x = self.x(start_ns)
        width = max(1.5, round(self.x(self.end_ns if end_ns is None else end_ns) - x, 2))
        fits = len(label) * CHARACTER <= width - 6
        return Bar(x, y, width, kind, label if fits else "", title, label)


def _bottom(track: Track) -> float:
    rows = [y + ROW for y, _ in track.rows]
    return max([*rows, track.y + CHART + 18 if track.lines or track.grid else 0.0, track.y + 18])


def _phases(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    phases = [(phase.start_ns, phase) for phase in page.phases if phase.start_ns is not None]
    if not phases:
        return
    # What the harness cuts off, it cuts off within a phase: a second row, where there is any.
    placed = [(start_ns, one, y + 16 + ROW * bool(one.cut_off)) for start_ns, one in phases]
    bars = [
        axis.bar(start_ns, one.end_ns, top, "phase", one.name, f"{one.name}: {_span(start_ns, one.end_ns)}")
        for start_ns, one, top in placed
    ]
    yield Track("Phases", y, [(top, "") for top in sorted({top for _, _, top in placed})], bars, [], [])


def _faults(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    injected = [(row.injected_ns, row) for row in page.faults if row.injected_ns is not None]
    if not injected:
        return
    targets = sorted({_target(row) for _, row in injected})
    place = {target: y + 16 + ROW * position for position, target in enumerate(targets)}
    bars = []
    for from_ns, row in injected:
        kind = "fault noeffect" if row.took_effect is False else "fault"
        words = f"{row.kind} {_target(row)}, {_span(from_ns, row.healed_ns)}"
        title = words + WITH_EFFECT[row.took_effect] + HEALED[row.healed]
        label = f"{row.kind}: no effect" if row.took_effect is False else row.kind
        bars.append(axis.bar(from_ns, row.healed_ns, place[_target(row)], kind, label, title))
    yield Track("Faults (hatched: no effect)", y, [(place[t], t) for t in targets], bars, [], [])


def _target(row: Fault) -> str:
    return row.resolved_target or row.planned_target or "?"


def _quorum(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    """Draw in which epoch metadata were committed; in the gaps nobody was seen to commit any."""
    if page.participants.quorum is None:
        return
    bosses = "Metadata quorum" if page.bosses == "controllers" else "ZooKeeper's controllers"
    yield from _lanes(page.participants.quorum, f"{bosses}: committed in each epoch", axis, y)


def _broker_epochs(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    yield from _lanes(page.participants.broker_epochs, "Broker epochs, each from one registration to the next", axis, y)


def _transactions(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    yield from _lanes(page.participants.transactions, "Transactions (hatched: not committed)", axis, y)


def _groups(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    title = "Groups: whose commits stood in each partition (process, generation; hatched: refused or unknown)"
    yield from _lanes(page.participants.groups, title, axis, y)


def _lanes(lanes: Lanes | None, title: str, axis: _Axis, y: float) -> Iterator[Track]:
    if lanes is None:
        return
    names = list(dict.fromkeys(one.lane for one in lanes.stretches))
    place = {name: y + 16 + ROW * position for position, name in enumerate(names)}
    bars = []
    for one in lanes.stretches:
        kind = KINDS[one.kind]
        words = f"{one.lane}: {one.words}{f', {one.count:,} of them' if one.count > 1 else ''}, {_span(one.start_ns, one.end_ns)}"
        bars.append(axis.bar(one.start_ns, one.end_ns, place[one.lane], kind, one.label, words))
    more = f" ({lanes.left_out} more not shown)" if lanes.left_out else ""
    yield Track(f"{title}{more}", y, [(place[name], name) for name in names], bars, [], [])


def _leaders(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    led = {name: changes for name, changes in page.partitions.items() if changes}
    if not led:
        return
    rows, bars = [], []
    for position, (name, changes) in enumerate(led.items()):
        top = y + 16 + ROW * position
        rows.append((top, name))
        for start, end, change in _stretches(changes, lambda c: (c.state.leader, c.state.leader_epoch)):
            leader, epoch = change.state.leader, change.state.leader_epoch
            kind = "noleader" if leader < 0 else colour(page, leader)
            label = "none" if leader < 0 else f"{leader} e{epoch}"
            words = f"{name}: {'no leader' if leader < 0 else f'leader {leader}'}, leader epoch {epoch}, {_span(start, end)}"
            bars.append(axis.bar(start, end, top, kind, label, words))
    more = page.partition_count - len(led)
    yield Track(
        f"Leader and leader epoch{f' ({more} more partitions not shown)' if more > 0 else ''}", y, rows, bars, [], []
    )


def _isr(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    for name in page.in_full:
        changes = page.partitions.get(name, [])
        if not changes:
            continue
        rows, bars = [], []
        least = ", then ".join(page.min_isrs.get(name, []))
        for position, broker in enumerate(sorted({b for change in changes for b in change.state.replicas})):
            top = y + 16 + ROW * position
            rows.append((top, f"broker {broker}"))
            for start, end, change in _stretches(changes, partial(_membership, broker=broker)):
                word = _membership(change, broker)
                if word:
                    kind = colour(page, broker) + (" elr" if word == "ELR" else "")
                    bars.append(
                        axis.bar(
                            start, end, top, kind, word, f"{name}: broker {broker} in the {word}, {_span(start, end)}"
                        )
                    )
        yield Track(
            f"{name}: ISR (solid) and ELR (hatched){f', min ISR {least}' if least else ''}", y, rows, bars, [], []
        )
        y += 16 + ROW * len(rows) + 14


def _membership(change: Change, broker: int) -> str:
    if broker in change.state.isr:
        return "ISR"
    return "ELR" if broker in change.state.elr else ""


def _stretches(
    changes: list[Change], key: Callable[[Change], tuple[int, int] | str]
) -> Iterator[tuple[int, int | None, Change]]:
    """Return stretches of equal state: from, to (None: the end), the state."""
    start = 0
    for position in range(1, len(changes) + 1):
        if position == len(changes):
            yield changes[start].at_ns, None, changes[start]
        elif key(changes[position]) != key(changes[start]):
            yield changes[start].at_ns, changes[position].at_ns, changes[start]
            start = position


def _watermarks(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    for name in page.in_full:
        series = [one for one in page.watermarks.get(name, []) if one.at_ns]
        if not series:
            continue
        top = max(max(one.offsets) for one in series) or 1
        least = 0 if page.window is None else min(top - 1, *(min(one.offsets) for one in series))
        lines = _apart([_line(page, one, axis, y + 18, top, least) for one in series])
        grid = [(y + 18 + CHART * (1 - part), f"{round(least + (top - least) * part):,}") for part in (0, 0.5, 1)]
        ends = ", replicas' log ends (thin; a point: reported once)" if any(one.is_log_end for one in series) else ""
        title = f"{name}: high watermark as observed (red dot: went back){ends}"
        yield Track(
            title,
            y,
            [],
            [],
            lines,
            grid,
            low=least,
            high=top,
            words=_words(_said(page, lines, series, axis, y + 18, (least, top)), y + 18),
        )
        y += CHART + 18 + 14
        lens = _lens(page, name, top)
        if lens is not None:
            low, high = lens
            lines = _apart([_line(page, one, axis, y + 18, high, low) for one in series])
            grid = [(y + 18 + CHART * (1 - part), f"{round(low + (high - low) * part):,}") for part in (0, 0.5, 1)]
            title = f"{name}: the same between offsets {low:,} and {high:,} only, around the finding's"
            said = _said(page, lines, series, axis, y + 18, (low, high), is_lens=True)
            yield Track(title, y, [], [], lines, grid, low=low, high=high, is_lens=True, words=_words(said, y + 18))
            y += CHART + 18 + 14


def _said(
    page: Page,
    lines: Iterable[Line],
    series: Iterable[Series],
    axis: _Axis,
    y: float,
    scale: tuple[int, int],
    *,
    is_lens: bool = False,
) -> Iterator[Words]:
    """Yield what is worth saying at the curves, the gravest first: what went back, which log was cut, in the lens where logs ended."""
    for x, dot_y, title in sorted({dot for line in lines for dot in line.dots}):
        yield Words(x, dot_y, title.rpartition(": ")[2], "start")
    low, high = scale
    ends = [one for one in series if one.is_log_end]
    cuts, others = [], []
    for one in ends:
        alone = {*one.alone}
        for i, after in enumerate(one.offsets):
            before = one.offsets[i - 1] if i else 0
            at = (axis.x(one.at_ns[i]), _height(after, y, scale))
            if after < before and (not is_lens or (before > low and after < high)):
                cuts.append(Words(*at, f"{one.name}: {before:,} → {after:,}", "start", _look(page, one.name)))
            elif is_lens and i in alone and low < after < high:
                others.append(Words(*at, f"{one.name} ends at {after:,}", "start", _look(page, one.name)))
    yield from sorted(cuts, key=lambda words: words.x)
    yield from sorted(others, key=lambda words: words.x)


def _words(said: Iterable[Words], top: float) -> list[Words]:
    """Place words beside their points, where no others are: right of it or left, above or below; those without room are left out."""
    placed: list[Words] = []
    taken: list[tuple[float, float, float]] = []  # left, right, base line
    for words in said:
        width = len(words.text) * CHARACTER
        for anchor, y in (("start", -7), ("end", -7), ("start", 14), ("end", 14)):
            left = words.x + 5 if anchor == "start" else words.x - 5 - width
            base = words.y + y
            is_inside = left >= LEFT and left + width <= LEFT + PLOT and top + 9 <= base <= top + CHART
            if (
                len(placed) < WORDS
                and is_inside
                and all(
                    left >= end or left + width <= begin or abs(base - other) >= LINE for begin, end, other in taken
                )
            ):
                taken.append((left, left + width, base))
                placed.append(
                    replace(
                        words, x=round(words.x + (5 if anchor == "start" else -5), 2), y=round(base, 2), anchor=anchor
                    )
                )
                break
    return placed


def _height(offset: int, y: float, scale: tuple[int, int]) -> float:
    low, top = scale
    return round(y + CHART * (1 - (min(max(offset, low), top) - low) / (top - low)), 2)


def _look(page: Page, observer: str) -> str:
    node = observer.removeprefix("node-")
    return colour(page, int(node)) if observer.startswith("node-") and node.isdecimal() else "client"


def _lens(page: Page, name: str, top: int) -> tuple[int, int] | None:
    """Return the offsets around the finding, where they are a small part of the log."""
    finding = None if page.story is None else page.story.finding
    if (
        finding is None
        or finding.log_offset is None
        or f"{finding.topic}-{finding.partition}" != name
        or top < 4 * LENS
    ):
        return None
    low = max(0, finding.log_offset - LENS)
    return low, low + 2 * LENS


def _apart(lines: list[Line]) -> list[Line]:
    """Move the labels at the lines' ends apart, upwards, until none covers another."""
    placed: list[Line] = []
    for line in sorted(lines, key=lambda line: -line.y):
        lowest = min((other.y for other in placed if other.label), default=math.inf)
        placed.append(replace(line, y=round(min(line.y, lowest - LABEL), 2)) if line.label else line)
    return placed


def _line(page: Page, series: Series, axis: _Axis, y: float, top: int, low: int = 0) -> Line:
    height = partial(_height, y=y, scale=(low, top))
    chosen = list(_thinned(series, POINTS if page.window is None else POINTS_OF_A_WINDOW))
    steps, alone = [], {*series.alone}
    is_known = False  # whether the line goes on from the point before
    for position in chosen:
        x, level = axis.x(series.at_ns[position]), height(series.offsets[position])
        steps.append(f"H{x}V{level}" if is_known else f"M{x} {level}")
        is_known = position not in alone
    by_itself = [i for i in series.alone if i == 0 or i - 1 in alone]
    marks = [f"M{axis.x(series.at_ns[i])} {height(series.offsets[i])}h.01" for i in by_itself]
    dots = [
        (
            axis.x(series.at_ns[i]),
            height(series.offsets[i]),
            f"{series.name}: {series.offsets[i - 1]} → {series.offsets[i]}",
        )
        for i in series.back[:500]
    ]
    kind = _look(page, series.name)
    values: list[tuple[int, float]] = []
    for i in chosen:
        at_ms = series.at_ns[i] // 1_000_000
        values.append((at_ms, float(series.offsets[i])))
        if i in alone:
            values.append((at_ms + SEEN_MS, -1.0))  # from then on nobody knows
    name = f"{series.name}{' log end' if series.is_log_end else ''}"
    if series.is_log_end:
        title = f"{series.name}: log end"
        return Line(
            "".join(steps), f"{kind} logend", "", height(series.offsets[-1]), dots, title, name, values, "".join(marks)
        )
    level = height(series.offsets[-1])
    return Line("".join(steps), kind, series.name, level, dots, "", name, values, "".join(marks))


def _thinned(series: Series, most: int) -> Iterable[int]:
    """Keep where the offset changes; of many such, an even choice, and every step back with its neighbour."""
    offsets = series.offsets
    alone = {*series.alone}
    changed = [
        i
        for i in range(len(offsets))
        if i in (0, len(offsets) - 1) or offsets[i] != offsets[i - 1] or i in alone or i - 1 in alone
    ]
    if len(changed) <= most:
        return changed
    stride = -(-len(changed) // most)
    return sorted({*changed[::stride], changed[-1], *series.back, *(i - 1 for i in series.back), *alone})


def _drawn(page: Page) -> Rates | None:
    return page.rates if page.window is None else page.rates_of_window


def _rates(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    """Draw what was accepted, and below it, on a scale of its own, what was not: ten failures in a second are nothing beside ten thousand records."""
    rates = _drawn(page)
    if rates is None:
        return
    good = [sum(pair) for pair in zip(rates.counts["ok"], rates.counts["sent"], strict=True)]
    failed, unknown = rates.counts["fail"], rates.counts["info"]
    asked = "calls" if page.is_of_a_system else "sends"
    if any(good) or any(failed) or any(unknown):
        title = f"Completed {asked} per second"
        yield _rate_track(title, rates, [(good, "rateok", "accepted")], axis, y)
        y += CHART + 18 + 14
    if any(failed) or any(unknown):
        title = f"{asked.capitalize()} per second that failed, or of which nobody knows the end"
        curves = [(failed, "ratebad", "failed"), (unknown, "rateinfo", "nobody knows")]
        yield _rate_track(title, rates, [one for one in curves if any(one[0])], axis, y, is_said=True)


def _rate_track(
    title: str,
    rates: Rates,
    curves: Sequence[tuple[Sequence[int], str, str]],
    axis: _Axis,
    y: float,
    *,
    is_said: bool = False,
) -> Track:
    """Draw counts per bin; `is_said`: each curve's name stands at its peak as well."""
    per_second = 1e9 / rates.bin_ns
    top = max([1, *(count for counts, _, _ in curves for count in counts)])
    lines, said = [], []
    for counts, kind, label in curves:
        ends = [axis.x(rates.start_ns + place * rates.bin_ns) for place in range(len(counts) + 1)]
        steps = [f"M{ends[0]} {_count_y(y, 0, top)}"]
        steps += [f"V{_count_y(y, count, top)}H{ends[place + 1]}" for place, count in enumerate(counts)]
        values = _binned(rates, [count * per_second for count in counts])
        lines.append(
            Line(
                "".join(steps),
                kind,
                label,
                _count_y(y, counts[-1] if counts else 0, top),
                [],
                name=label,
                values=values,
            )
        )
        most = max(counts, default=0)
        if is_said and most:
            place = list(counts).index(most)
            said.append(
                Words(
                    ends[place + 1],
                    _count_y(y, most, top) + 16,
                    f"{label}: up to {rate(most * per_second)}",
                    "start",
                    kind,
                )
            )
    grid = [(_count_y(y, top * part, top), rate(top * part * per_second)) for part in (0, 0.5, 1)]
    return Track(title, y, [], [], _apart(lines), grid, low=0, high=top * per_second, words=_words(said, y + 18))


def _binned(rates: Rates, counts: Sequence[float]) -> list[tuple[int, float]]:
    """Return bins as values from a moment on; equal ones once."""
    return [
        ((rates.start_ns + number * rates.bin_ns) // 1_000_000, round(count, 2))
        for number, count in enumerate(counts)
        if number == 0 or count != counts[number - 1]
    ]


def _latencies(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    """Draw p50, p99 and max of each bin on a logarithmic scale: a stall is a thousand times the usual."""
    rates = _drawn(page)
    if rates is None or not any(n for n in rates.latencies.get("max", [])):
        return
    most = max(n for n in rates.latencies["max"] if n is not None)
    decades = max(1, math.ceil(math.log10(max(most, 1) / LEAST_LATENCY_NS)))

    def height(latency_ns: int) -> float:
        share = math.log10(max(latency_ns, LEAST_LATENCY_NS) / LEAST_LATENCY_NS) / decades
        return round(y + 18 + CHART * (1 - share), 2)

    lines = []
    for place, name in enumerate(("max", "p99", "p50")):
        steps, last, drawn = [], None, False
        for i, latency in enumerate(rates.latencies[name]):
            if latency is None:
                drawn = False
                continue
            left, right = axis.x(rates.start_ns + i * rates.bin_ns), axis.x(rates.start_ns + (i + 1) * rates.bin_ns)
            steps.append(f"{'V' if drawn else f'M{left} '}{height(latency)}H{right}")
            last, drawn = latency, True
        if last is not None:
            known = [-1 if one is None else one / 1e6 for one in rates.latencies[name]]
            values = _binned(rates, known)
            lines.append(
                Line(
                    "".join(steps),
                    f"latency{name}",
                    f"{name} {_latency(last)}",
                    y + 26 + 13 * place,
                    [],
                    name=f"{name}, ms",
                    values=values,
                )
            )
    grid = [(height(LEAST_LATENCY_NS * 10**i), _milliseconds(LEAST_LATENCY_NS * 10**i)) for i in range(decades + 1)]
    asked = "calls" if page.is_of_a_system else "sends"
    yield Track(f"Latency of acknowledged {asked}, logarithmic", y, [], [], lines, grid)


def _unread(page: Page, axis: _Axis, y: float) -> Iterator[Track]:
    rates = _drawn(page)
    if rates is None or not any(rates.unread):
        return
    counts, top = rates.unread, max(rates.unread)
    steps = [f"M{axis.x(rates.start_ns)} {_count_y(y, 0, top)}"]
    steps += [f"V{_count_y(y, n, top)}H{axis.x(rates.start_ns + (i + 1) * rates.bin_ns)}" for i, n in enumerate(counts)]
    values = _binned(rates, counts)
    label = f"{counts[-1]:,} unread"
    lines = [Line("".join(steps), "rateok", label, _count_y(y, counts[-1], top), [], name="unread", values=values)]
    grid = [(_count_y(y, top * part, top), f"{round(top * part):,}") for part in (0, 0.5, 1)]
    yield Track("Acknowledged records that no consumer has received yet", y, [], [], lines, grid, low=0, high=top)


def _latency(latency_ns: int) -> str:
    """Return a latency as it is read: three digits are enough."""
    if latency_ns >= 1_000_000_000:
        return f"{significant(latency_ns / 1e9, 3)} s"
    return f"{significant(latency_ns / 1e6, 3)} ms"


def _milliseconds(latency_ns: int) -> str:
    return f"{latency_ns / 1e9:g} s" if latency_ns >= 1_000_000_000 else f"{latency_ns / 1e6:g} ms"


def _count_y(y: float, count: float, top: int) -> float:
    return round(y + 18 + CHART * (1 - count / top), 2)


def colour(page: Page, broker: int) -> str:
    """The broker's own colour; beyond six they repeat, the name is always printed."""
    position = page.brokers.index(broker) if broker in page.brokers else 0
    return f"b{position % COLOURS}"


def _span(start_ns: int, end_ns: int | None) -> str:
    end = "the end" if end_ns is None else f"{end_ns / 1e9:.3f} s"
    return f"{start_ns / 1e9:.3f} s to {end}"
