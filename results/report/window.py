"""A stretch of a run that its timeline is drawn of, with all that would be thinned out in a drawing of the whole."""

import re
from typing import Final

import msgspec

WRITTEN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,12})?)s?[:,](\d{1,9}(?:\.\d{1,12})?)s?")  # thirty years


class BadWindow(ValueError):
    """A stretch of time that cannot be drawn, and why."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """From one moment of the run to a later one."""

    start_ns: int
    end_ns: int

    @property
    def name(self) -> str:
        """As it stands in the name of a file and as it is given: seconds."""
        return f"{self.start_ns / 1e9:.12g}:{self.end_ns / 1e9:.12g}"


def parsed(text: str) -> Window:
    """Read A:B in seconds; `BadWindow` says what is wrong with it."""
    found = WRITTEN.fullmatch(text.strip())
    if found is None:
        raise BadWindow(f"{text!r} is no stretch of time: write A:B in seconds, as 41:47 or 41.25:47")
    window = Window(start_ns=round(float(found[1]) * 1e9), end_ns=round(float(found[2]) * 1e9))
    if window.start_ns >= window.end_ns:
        raise BadWindow(f"{text!r} has no length: the first number has to be smaller than the second")
    return window
