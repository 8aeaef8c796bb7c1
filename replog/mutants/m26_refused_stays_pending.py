"""M26: a proposal that was refused for an ineligible replica stays pending.

Evidence: the high watermark waits for a replica that died while it joined; acks=all times out although the ISR is large enough,
and no other replica is ever proposed. KIP-903.
"""

from replog.broker import isr
from replog.errors import Error

SCENARIO = "ineligible-newcomer"


def install() -> None:
    """Wait for metadata, which say nothing of it."""
    isr.REVERTING = isr.REVERTING - {Error.INELIGIBLE_REPLICA}  # type: ignore[misc]
    isr.AWAITING_METADATA = isr.AWAITING_METADATA | {Error.INELIGIBLE_REPLICA}  # type: ignore[misc]
