"""The page of an exploration: how far it went, what it did not look at, and the counterexample step by step.

The counterexample is a table: a row a step, a column a part of the world; what the step changed is marked, by a mark and by a word
for those who do not see it. The page is static: no script, nothing from elsewhere.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tribunal.results.explored import Counterexample, Explored
from tribunal.results.report import environment

BARS: Final = 720
BAR: Final = 18


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What a part looks like after a step; `changed` by this step."""

    words: str
    changed: bool


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A step and all parts after it."""

    number: int
    step: str
    cells: list[Cell]


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """New states at a distance from the start, as a bar."""

    steps: int
    states: int
    y: int
    width: float


def render(found: Explored) -> str:
    """Return the page's HTML."""
    example = found.counterexample
    return (
        environment()
        .get_template("explored.html.j2")
        .render(
            found=found,
            example=example,
            parts=[] if example is None else [row.part for row in example.way[0].rows],
            lines=[] if example is None else lines(example),
            levels=levels(found.levels),
            bar=BAR,
            width=BARS + 200,
        )
    )


def lines(example: Counterexample) -> list[Line]:
    """Return the counterexample's rows."""
    found, before = [], [row.words for row in example.way[0].rows]
    for number, shown in enumerate(example.way):
        now = [row.words for row in shown.rows]
        cells = [Cell(words=words, changed=words != was) for words, was in zip(now, before, strict=True)]
        found.append(Line(number=number, step=shown.step or "the beginning", cells=cells))
        before = now
    return found


def levels(states: Sequence[int]) -> list[Level]:
    """Return a bar for each number of steps; the longest is as wide as there is room."""
    most = max(states)
    return [
        Level(steps=steps, states=count, y=steps * BAR, width=max(1.0, round(BARS * count / most, 1)))
        for steps, count in enumerate(states)
    ]
