"""The page of trends: figures of all nights of a store over time, offline and without script."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.digits import significant
from tribunal.results.report import environment
from tribunal.results.trends import Chance, Series, Trends
from tribunal.results.whole_files import put

WIDTH: Final = 640
HEIGHT: Final = 160
MARGIN: Final = 40


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A night on the drawing: where it is, where its interval begins and ends, and what it says."""

    x: float
    y: float
    low: float
    high: float
    says: str


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """The chance of a violation over nights; `most`: the share at the upper edge."""

    points: list[Point]
    line: str
    most: float
    width: int = WIDTH
    height: int = HEIGHT
    margin: int = MARGIN


class Spark(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over nights as a small line; nights without it leave a gap."""

    name: str
    lines: list[str]
    dots: list[tuple[float, float, str]]
    lowest: float | None
    highest: float | None
    last: float | None


def write(found: Sequence[Trends], path: Path) -> Path:
    """Write the page; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return put(path, render(found).encode())


def render(found: Sequence[Trends]) -> str:
    """Return the page's HTML."""
    drawn = [(one, chances(one.chances)) for one in found]
    return environment().get_template("trends.html.j2").render(drawn=drawn, sparks=sparks)


def chances(nights: Sequence[Chance]) -> Drawing:
    """Return the drawing of chances with their intervals."""
    most = max((night.high for night in nights if night.runs), default=1.0)
    points = []
    for place, night in enumerate(nights):
        if not night.runs:
            continue
        x = MARGIN + (WIDTH - 2 * MARGIN) * (place / (len(nights) - 1) if len(nights) > 1 else 0.5)
        points.append(
            Point(
                x=round(x, 1),
                y=_height(night.share, most),
                low=_height(night.low, most),
                high=_height(night.high, most),
                says=(
                    f"{night.began}, commit {night.commit[:12]}: {night.violations} of {night.runs} runs, "
                    f"{significant(100 * night.low, 2)} to {significant(100 * night.high, 2)} %"
                ),
            )
        )
    return Drawing(points=points, line=" ".join(f"{one.x},{one.y}" for one in points), most=most)


def sparks(series: Sequence[Series], began: Sequence[str]) -> list[Spark]:
    """Return small drawings, each on a scale of its own."""
    return [_spark(one, began) for one in series]


def _spark(series: Series, began: Sequence[str]) -> Spark:
    known = [value for value in series.values if value is not None]
    low, span = min(known, default=0.0), (max(known, default=0.0) - min(known, default=0.0)) or 1.0
    lines: list[list[str]] = [[]]
    dots = []
    for place, value in enumerate(series.values):
        if value is None:
            lines.append([])
            continue
        x = round(4 + 192 * (place / (len(series.values) - 1) if len(series.values) > 1 else 0.5), 1)
        y = round(24 - 20 * (value - low) / span, 1)
        lines[-1].append(f"{x},{y}")
        dots.append((x, y, f"{began[place]}: {significant(value, 4)}"))
    return Spark(
        name=series.name,
        lines=[" ".join(line) for line in lines if len(line) > 1],
        dots=dots,
        lowest=min(known, default=None),
        highest=max(known, default=None),
        last=series.last,
    )


def _height(share: float, most: float) -> float:
    return round(HEIGHT - MARGIN / 2 - (HEIGHT - MARGIN) * share / most, 1)
