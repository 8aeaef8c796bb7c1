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
TOP: Final = 46
ROW: Final = 34
BAND: Final = 8
CHARACTER: Final = 6.3


class Lane(msgspec.Struct, frozen=True):
    """A vertical line with its name."""

    name: str
    x: float


class Band(msgspec.Struct, frozen=True):
    """A stretch of a lane: kind is leader or fault."""

    x: float
    y: float
    height: float
    kind: str
    label: str
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
    bands = [*_leaders(story, place, height), *_faults(story.steps, place, height)]
    return Diagram(height, lanes, bands, marks)


def _lanes(story: Story) -> list[Lane]:
    named = [CLIENT, *map(broker_lane, story.brokers), CONTROLLERS]
    used = [name for step in story.steps for name in (step.lane, step.to) if name is not None]
    names = list(dict.fromkeys([*named[:-1], *(name for name in used if name != CONTROLLERS), CONTROLLERS]))
    apart = (WIDTH - LEFT - RIGHT) / max(1, len(names) - 1)
    return [Lane(name, round(LEFT + apart * position, 1)) for position, name in enumerate(names)]


def _y(row: int) -> float:
    return TOP + ROW * row + ROW / 2


def _mark(number: int, step: Step, place: dict[str, float]) -> Mark:
    x = place[step.lane]
    to_x = place[step.to] if step.to is not None and step.to != step.lane else None
    box = round(len(step.label) * CHARACTER + 16, 1)
    if to_x is not None:
        text_x, anchor = min(max((x + to_x) / 2, 64 + box / 2), WIDTH - box / 2), "middle"
    else:
        text_x, anchor = min(max(x, 70 + box / 2), WIDTH - box / 2 - 4), "middle"
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


def _leaders(story: Story, place: dict[str, float], height: float) -> Iterator[Band]:
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
        label = "" if labelled == change.state.leader_epoch else f"leader e{change.state.leader_epoch}"
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
            yield Band(place[step.lane] - 2, y, max(6.0, bottom - y), "fault", "", step.text)
