"""Exact intervals of shares: k of n runs say so much of the next one, and no more."""

from typing import Final

ALPHA: Final = 0.05


def interval(shown: int, runs: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934); of no run at all it is everything."""
    from scipy.stats import beta

    low = 0.0 if shown == 0 else float(beta.ppf(ALPHA / 2, shown, runs - shown + 1))
    high = 1.0 if shown == runs else float(beta.ppf(1 - ALPHA / 2, shown + 1, runs - shown))
    return low, high
