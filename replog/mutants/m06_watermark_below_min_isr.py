"""M06: the high watermark moves although the ISR is smaller than min ISR (PITFALLS M06, `hwm.no_min_isr`).

Evidence: records are read from a lone leader and are gone after a clean election of an ELR member. KIP-966, "Strict min ISR".
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
