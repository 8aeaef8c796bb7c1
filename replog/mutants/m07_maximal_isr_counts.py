"""M07: a proposed ISR counts towards min ISR before the controller has committed it.

Evidence: as M06; needs a leader whose proposal does not reach the controller. KIP-966, PartitionTest.
"""

from typing import Any

from replog.broker import watermark

SCENARIO = "unsent-proposal"


def install() -> None:
    """Count the hoped-for ISR."""
    strict = watermark.high_watermark

    def high_watermark(**given: Any) -> int:
        return strict(**{**given, "isr": given["maximal_isr"]})

    watermark.high_watermark = high_watermark
