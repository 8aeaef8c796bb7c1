"""M06: the high watermark moves although the ISR is smaller than min ISR.

Evidence: records are read from a lone leader and are gone after a clean election of an ELR member. KIP-966, "Additional High Watermark advancement requirement".
"""

from typing import Any

from replog.broker import watermark

SCENARIO = "elr-chain"


def install() -> None:
    """Let one replica suffice."""
    strict = watermark.high_watermark

    def high_watermark(**given: Any) -> int:
        return strict(**{**given, "min_isr": 1})

    watermark.high_watermark = high_watermark
