"""How much the judge would have seen: figures of a calibration by class of anomaly, as nights and pages keep them."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Final

import msgspec

MEASURED: Final = "sensitivity.json"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One class's figure: how many were put in, how many were seen."""

    injected: int
    seen: int

    @property
    def share(self) -> float:
        """What part was seen; of none at all: all."""
        return self.seen / self.injected if self.injected else 1.0


class Sensitivity(msgspec.Struct, kw_only=True):
    """Figures by class over some recordings, and each miss in words; classes without a place have figures of 0."""

    runs: list[str] = []
    figures: dict[str, Figure] = {}
    misses: list[str] = []

    @property
    def total(self) -> Figure:
        """All classes together."""
        return total(self.figures.values())


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of this judge: at which commit, in how many recordings, and figures by class of anomaly."""

    commit: str
    recordings: int
    figures: dict[str, Figure]


@cache
def measured() -> Measurement:
    """Return the last measurement that the repository keeps (docs/sensitivity.md)."""
    content = resources.files("tribunal.results").joinpath(MEASURED).read_bytes()
    return msgspec.json.decode(content, type=Measurement)


def total(figures: Iterable[Figure]) -> Figure:
    """Add figures up."""
    known = list(figures)
    return Figure(injected=sum(one.injected for one in known), seen=sum(one.seen for one in known))


def added(parts: Iterable[Mapping[str, Figure]]) -> dict[str, Figure]:
    """Add figures up class by class, in the order in which classes come first."""
    found: dict[str, Figure] = {}
    for part in parts:
        for name, figure in part.items():
            found[name] = total([figure, *([found[name]] if name in found else [])])
    return found


def fallen(last: Mapping[str, Figure], now: Mapping[str, Figure]) -> list[str]:
    """Return the classes of which less was seen than the last time; one that was not measured now is not among them."""
    return [
        f"{name}: {figure.seen} of {figure.injected}, last {last[name].seen} of {last[name].injected}"
        for name, figure in now.items()
        if name in last and figure.injected
        if figure.share < last[name].share and last[name].injected
    ]
