"""What all drawings that share the time axis agree in, in units of the drawing."""

from typing import Final

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
