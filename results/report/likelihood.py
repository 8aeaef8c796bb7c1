"""The curve of a finding's likelihood over its run, on the time axis of the timeline."""

from typing import Final

import msgspec

from tribunal.results.likelihood import Likelihood
from tribunal.results.report.measures import LEFT, PLOT

TOP: Final = 12
HEIGHT: Final = 90


class LikelyAt(msgspec.Struct, frozen=True, kw_only=True):
    """A moment on the drawing: where it is, where its interval begins and ends, and what it says."""

    x: float
    y: float
    low: float
    high: float
    says: str


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The drawing; `sealed`: where the finding could no longer be avoided by chance."""

    signature: str
    points: list[LikelyAt]
    line: str
    sealed: float | None
    sealed_ns: int | None
    each: int
    top: int = TOP
    bottom: int = TOP + HEIGHT


def curve(found: Likelihood, end_ns: int) -> Curve:
    """Return the drawing; `end_ns` is where the timeline ends."""
    points = [
        LikelyAt(
            x=_x(moment.at_ns, end_ns),
            y=_y(moment.share),
            low=_y(moment.interval[0]),
            high=_y(moment.interval[1]),
            says=(
                f"from {moment.at_ns / 1e9:.3f} s on {moment.shown} of {moment.runs} runs show it "
                f"({100 * moment.interval[0]:.0f} to {100 * moment.interval[1]:.0f} %)"
            ),
        )
        for moment in found.moments
        if moment.runs
    ]
    sealed = found.sealed_ns
    return Curve(
        signature=found.signature,
        points=points,
        line=" ".join(f"{one.x},{one.y}" for one in points),
        sealed=None if sealed is None else _x(sealed, end_ns),
        sealed_ns=sealed,
        each=found.each,
    )


def _x(at_ns: int, end_ns: int) -> float:
    return round(LEFT + PLOT * min(1.0, at_ns / max(1, end_ns)), 1)


def _y(share: float) -> float:
    return round(TOP + HEIGHT * (1 - share), 1)
