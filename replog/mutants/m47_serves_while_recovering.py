"""M47: a leader after an unclean election serves before it has recovered.

Evidence: a produce or fetch succeeds between RECOVERING and RECOVERED. KIP-704.
"""

from replog.broker.partition import Partition

SCENARIO = "unclean-recovery"


def install() -> None:
    """Never refuse for the sake of a recovery."""
    Partition.is_recovering = property(lambda self: False)  # type: ignore[assignment,method-assign]
