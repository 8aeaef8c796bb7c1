"""M08: the high watermark waits for the committed ISR only, not for a proposed newcomer.

Evidence: the controller has committed the larger ISR, its answer is under way, and what the newcomer lacks is acknowledged.
"""

from typing import Any

from replog.broker import watermark

SCENARIO = "unheard-proposal"


def install() -> None:
    """Wait for nobody who is not a member yet."""
    strict = watermark.high_watermark

    def high_watermark(**given: Any) -> int:
        return strict(**{**given, "maximal_isr": given["isr"], "waiters": ()})

    watermark.high_watermark = high_watermark
