"""The story as a drawing: lanes for the client, the brokers and the controllers, one row a step, downwards in time.

Rows are in order, not to scale. A thick band on a broker's lane says who led; a bar says where a fault was.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tribunal.results.report.story import CLIENT, CONTROLLERS, Step, Story, broker_lane

WIDTH: Final = 1240
LEFT: Final = 150
RIGHT: Final = 130
TOP: Final = 52
TIMES: Final = 84  # the column of numbers and times ends here
ROW: Final = 34
BAND: Final = 8
CHARACTER: Final = 6.3


class Lane(msgspec.Struct, frozen=True):
    """A vertical line with its name."""

    name: str
    x: float


class Label(msgspec.Struct, frozen=True):
    """Words at a point: x is where they begin, y their base line."""

    x: float
    y: float
    text: str


class Band(msgspec.Struct, frozen=True):
    """A stretch of a lane: kind is leader or fault."""

    x: float
    y: float
    height: float
    kind: str
    label: Label | None
    title: str


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One step: an arrow from x to to_x, or a box at x."""

    number: int
    y: float
    time: str
    x: float
    to_x: float | None
    text_x: float
    box: float
    anchor: str
    label: str
    tone: str
    title: str


class Diagram(msgspec.Struct, frozen=True):
    """The drawing."""

    height: float
    lanes: list[Lane]
    bands: list[Band]
    marks: list[Mark]


def sequence(story: Story) -> Diagram:
    """Lay a story out."""
    lanes = _lanes(story)
    place = {lane.name: lane.x for lane in lanes}
    marks = [_mark(number, step, place) for number, step in enumerate(story.steps)]
    height = TOP + ROW * len(marks) + 12
    bands = [*_leaders(story, place, height, [_taken(mark) for mark in marks]), *_faults(story.steps, place, height)]
    return Diagram(height, lanes, bands, marks)


def _lanes(story: Story) -> list[Lane]:
    named = [CLIENT, *map(broker_lane, story.brokers), CONTROLLERS]
    used = [name for step in story.steps for name in (step.lane, step.to) if name is not None]
    last = [CONTROLLERS] if story.brokers or CONTROLLERS in used else []  # a system's nodes have none
    names = list(dict.fromkeys([*named[:-1], *(name for name in used if name != CONTROLLERS), *last]))
    apart = (WIDTH - LEFT - RIGHT) / max(1, len(names) - 1)
    return [Lane(name, round(LEFT + apart * position, 1)) for position, name in enumerate(names)]


def _y(row: int) -> float:
    return TOP + ROW * row + ROW / 2


def _mark(number: int, step: Step, place: dict[str, float]) -> Mark:
    x = place[step.lane]
    to_x = place[step.to] if step.to is not None and step.to != step.lane else None
    box = round(len(step.label) * CHARACTER + 16, 1)
    if to_x is not None:
        text_x, anchor = min(max((x + to_x) / 2, TIMES + box / 2), WIDTH - box / 2), "middle"
    else:
        text_x, anchor = min(max(x, TIMES + box / 2), WIDTH - box / 2 - 4), "middle"
    return Mark(
        number=number + 1,
        y=_y(number),
        time=f"{step.at_ns / 1e9:.3f}",
        x=x,
        to_x=to_x,
        text_x=round(text_x, 1),
        box=box,
        anchor=anchor,
        label=step.label,
        tone=step.tone,
        title=step.text,
    )


def _row_at(steps: Sequence[Step], at_ns: int) -> int:
    """Return how many steps lie before a moment."""
    return sum(step.at_ns < at_ns for step in steps)


Box = tuple[float, float, float, float]  # left, top, right, bottom


def _taken(mark: Mark) -> Box:
    """Return the room that a step's words take."""
    if mark.to_x is None:
        return (mark.text_x - mark.box / 2, mark.y - 10, mark.text_x + mark.box / 2, mark.y + 10)
    return (mark.text_x - mark.box / 2, mark.y - 16, mark.text_x + mark.box / 2, mark.y + 2)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _placed(text: str, x: float, top: float, bottom: float, taken: Sequence[Box]) -> Label | None:
    """Return where a lane's words can stand: right of it or left, as high as there is room; None where there is none."""
    width = len(text) * CHARACTER
    for y in (top - 8 if top == TOP else top + 21, *range(int(top) + 30, int(bottom), 6)):
        for left in (x + 9, x - 9 - width):
            if not any(_overlap((left, y - 10, left + width, y + 3), box) for box in taken):
                return Label(round(left, 1), round(y, 1), text)
    return None


def _leaders(story: Story, place: dict[str, float], height: float, taken: Sequence[Box]) -> Iterator[Band]:
    changes = story.changes
    labelled = -1
    for position, change in enumerate(changes):
        lane = broker_lane(change.state.leader)
        later = changes[position + 1].at_ns if position + 1 < len(changes) else None
        top = 0.0 if position == 0 else float(_row_at(story.steps, change.at_ns)) + 0.5
        end = len(story.steps) if later is None else _row_at(story.steps, later) + 0.5
        if change.state.leader < 0 or lane not in place or top >= min(end, len(story.steps)):
            continue
        y = TOP + ROW * top
        bottom = min(TOP + ROW * end, height - 6)
        label = None
        if labelled != change.state.leader_epoch:
            label = _placed(f"leader e{change.state.leader_epoch}", place[lane], y, bottom, taken)
        labelled = change.state.leader_epoch
        yield Band(
            place[lane] - BAND / 2,
            y,
            max(2.0, bottom - y),
            "leader",
            label,
            f"{lane} leads, leader epoch {change.state.leader_epoch}",
        )


def _faults(steps: Sequence[Step], place: dict[str, float], height: float) -> Iterator[Band]:
    for row, step in enumerate(steps):
        if step.tone == "fault" and step.lane in place:
            end = len(steps) if step.until_ns is None else _row_at(steps, step.until_ns)
            y, bottom = _y(row), min(_y(max(end - 1, row)) + ROW / 3, height - 6)
            yield Band(place[step.lane] - 2, y, max(6.0, bottom - y), "fault", None, step.text)
