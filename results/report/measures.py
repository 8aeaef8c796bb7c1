"""What all drawings that share the time axis agree in, in units of the drawing."""

import math
from collections.abc import Iterable
from typing import Final, TypeVar

from tribunal.results.digits import significant

WIDTH: Final = 1240
LEFT: Final = 126
RIGHT: Final = 92
PLOT: Final = WIDTH - LEFT - RIGHT
ROW: Final = 18
WHOLE_FROM: Final = 10  # rates below it are said with two digits


def rate(per_second: float) -> str:
    """Return a rate as it is read: one failure in a minute is not none."""
    return f"{per_second:,.0f}" if per_second >= WHOLE_FROM else significant(per_second, 2)


Time = TypeVar("Time", int, float)


def step_of(span: float, most: int, steps: Iterable[Time], hour: Time) -> Time:
    """Return how far two ticks of an axis are apart: by the finest of these steps with no more ticks than `most`, otherwise by whole hours."""
    return next((step for step in steps if span / step <= most), hour * math.ceil(span / (hour * most)))
