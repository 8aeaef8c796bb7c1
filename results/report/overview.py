"""The whole run in one narrow picture: faults above, what was acknowledged and where nothing was below, leaders between.

It stands on the first screen, so that a reader sees what the cluster was put through before reading a word; below the
timeline's tools the same picture is where a stretch is chosen.
"""

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from tribunal.results.report.measures import LEFT, PLOT, WIDTH, rate, step_of
from tribunal.results.report.model import Page
from tribunal.results.report.story import acks_name

LANES = 6
LANE = 15
TICKS_APART = 70
RATES = 44
CHARACTER = 6.4
HOUR_S = 3600
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, HOUR_S)  # seconds
EFFECT = {True: "took effect", False: "NO EFFECT", None: "whether it took effect is not known"}


class Frame(msgspec.Struct, frozen=True):
    """How wide the picture is, where its time axis begins, and how long that is."""

    width: int
    left: int
    plot: int


WIDE = Frame(WIDTH, LEFT, PLOT)
NARROW = Frame(400, 88, 268)  # a telephone's: the wide one would be cut off there, or too small to be read


class Block(msgspec.Struct, frozen=True):
    """A stretch of time: a fault with its word where it fits, or a stretch without an acknowledgement."""

    x: float
    y: float
    width: float
    kind: str
    label: str
    title: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The picture; `area` is what was acknowledged over time, `elections` are moments with a new leader."""

    frame: Frame
    height: float
    faults: list[Block]
    area: str
    base: float
    top: float
    most: str
    silences: list[Block]
    elections: list[tuple[float, str]]
    marks: list[tuple[float, str]]
    ticks: list[tuple[float, str]]
    end_s: float


def overview(page: Page, frame: Frame = WIDE) -> Overview | None:
    """Lay the picture out; None without a recording."""
    if page.damage is not None or page.rates is None:
        return None
    faults = list(_faults(page, frame))
    below = max((block.y + LANE for block in faults), default=0.0)
    elections = sorted(
        {
            (
                _x(page, frame, after.at_ns),
                f"{name}: {_leader(after.state.leader)}, leader epoch {after.state.leader_epoch}",
            )
            for name, changes in page.partitions.items()
            for before, after in pairwise(changes)
            if before.state.leader_epoch != after.state.leader_epoch
        }
    )
    top = below + 16
    base = top + RATES
    good = [sum(pair) for pair in zip(page.rates.counts["ok"], page.rates.counts["sent"], strict=True)]
    most = _usual(good)
    return Overview(
        frame=frame,
        height=base + 18,
        faults=faults,
        area=_area(page, frame, good, most, base) if any(good) else "",
        base=base,
        top=top,
        most="" if not any(good) else f"{rate(most * 1e9 / page.rates.bin_ns)}/s" + (f" (peak {rate(max(good) * 1e9 / page.rates.bin_ns)})" if max(good) > most else ""),
        silences=[
            Block(_x(page, frame, start), top, max(1.0, _x(page, frame, end) - _x(page, frame, start)), "silence", "", f"{one.partition}: nothing of {acks_name(one.acks)} was acknowledged from {start / 1e9:.3f} s to {end / 1e9:.3f} s")
            for one in page.silences
            for start, end in one.gaps[:100]
        ],
        elections=elections[:400],
        marks=[] if page.story is None else [(_x(page, frame, at_ns), label) for at_ns, label in page.story.marks],
        ticks=_ticks(page, frame),
        end_s=page.end_ns / 1e9,
    )  # fmt: skip


def _usual(counts: list[int]) -> int:
    """Return the top of the scale: what comes at once after a pause would make everything else a line, so it is cut."""
    busy = sorted(count for count in counts if count)
    return max(1, min(busy[-1], 2 * busy[len(busy) // 2])) if busy else 1


def _leader(node: int) -> str:
    return "nobody leads" if node < 0 else f"broker {node} leads"


def _x(page: Page, frame: Frame, at_ns: int) -> float:
    return round(frame.left + frame.plot * min(max(at_ns, 0), page.end_ns) / page.end_ns, 1)


def _faults(page: Page, frame: Frame) -> Iterator[Block]:
    """Yield faults on as few lines as they need, at most `LANES`."""
    free = [0.0] * LANES
    for row in page.faults:
        if row.injected_ns is None:
            continue
        x = _x(page, frame, row.injected_ns)
        end = _x(page, frame, page.end_ns if row.healed_ns is None else row.healed_ns)
        lane = next((number for number, until in enumerate(free) if until <= x), LANES - 1)
        free[lane] = max(free[lane], end + 1)
        target = row.resolved_target or row.planned_target or ""
        words = f"{row.kind} {target}".strip()
        width = max(2.0, round(end - x, 1))
        fits = (
            words if len(words) * CHARACTER <= width - 6 else row.kind if len(row.kind) * CHARACTER <= width - 6 else ""
        )
        kind = "fault none" if row.took_effect is False else "fault"
        yield Block(x, 2.0 + LANE * lane, width, kind, fits, f"{words}: {EFFECT[row.took_effect]}")


def _area(page: Page, frame: Frame, counts: list[int], most: int, base: float) -> str:
    assert page.rates is not None
    steps = [f"M{frame.left} {base}"]
    for number, count in enumerate(counts):
        x = _x(page, frame, (number + 1) * page.rates.bin_ns)
        steps.append(f"V{round(base - RATES * min(1, count / most), 1)}H{x}")
    return "".join([*steps, f"V{base}Z"])


def _ticks(page: Page, frame: Frame) -> list[tuple[float, str]]:
    seconds = page.end_ns / 1e9
    most = max(2, frame.plot // TICKS_APART)
    step = step_of(seconds, most, STEPS, HOUR_S)
    count = int(seconds / step) + 1
    return [
        (_x(page, frame, round(number * step * 1e9)), f"{number * step:g}{' s' if number == count - 1 else ''}")
        for number in range(count)
    ]
