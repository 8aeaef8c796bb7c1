"""Rows with more bars than can be seen: narrow ones that follow one another are drawn as one, which says how many it is.

An hour of faults changes leaders some thousand times in each row of the timeline, a bar of a fraction of a pixel each; drawn one by one they made the
report of a long run larger than what can be mailed. What is wide enough to be seen is never folded, nor what lies around the finding.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

if TYPE_CHECKING:
    from tribunal.results.report.layout import Bar

MOST_IN_FULL: Final = 300  # bars of a row
NARROW: Final = 3.0  # units of the drawing, about pixels
AROUND_NS: Final = 10_000_000_000


def folded(bars: "Sequence[Bar]", clear: Sequence[tuple[float, float]]) -> "list[Bar]":
    """Return the bars of all rows; in rows with too many, neighbours that are narrow are one.

    clear:  stretches of the drawing (from, to) in which nothing is folded.
    """
    rows: dict[float, list[Bar]] = {}
    for bar in bars:
        rows.setdefault(bar.y, []).append(bar)
    return [one for row in rows.values() for one in (row if len(row) <= MOST_IN_FULL else _fewer(row, clear))]


def _fewer(row: "Sequence[Bar]", clear: Sequence[tuple[float, float]]) -> "Iterator[Bar]":
    together: list[Bar] = []
    for bar in sorted(row, key=lambda one: one.x):
        is_kept = bar.width >= NARROW or any(low <= bar.x <= high for low, high in clear)
        if together and (is_kept or bar.x >= together[0].x + NARROW):
            yield _one(together)
            together = []
        if is_kept:
            yield bar
        else:
            together.append(bar)
    if together:
        yield _one(together)


def _one(together: "Sequence[Bar]") -> "Bar":
    first, last = together[0], together[-1]
    if len(together) == 1:
        return first
    marked = any(" " in bar.kind or bar.kind == "noleader" for bar in together)
    return replace(
        first,
        width=round(max(bar.x + bar.width for bar in together) - first.x, 2),
        kind="many hatched" if marked else "many",
        label="",
        text="",
        title=f"{len(together)} too narrow to be drawn one by one. The first: {first.title}. The last: {last.title}",
    )
