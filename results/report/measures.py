"""What all drawings that share the time axis agree in, in units of the drawing."""

from typing import Final

WIDTH: Final = 1240
LEFT: Final = 126
RIGHT: Final = 92
PLOT: Final = WIDTH - LEFT - RIGHT
ROW: Final = 18
