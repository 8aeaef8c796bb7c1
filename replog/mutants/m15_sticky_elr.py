"""M15: the ELR keeps its members when the ISR is large enough again.

Evidence: the high watermark moves on without them; one of them, far behind, is elected as if it held everything.
"""

from msgspec.structs import replace

from replog.controller import election
from replog.controller.election import Rules, Wish, _Target
from replog.controller.elr import Eligible
from replog.metadata.state import Partition

SCENARIO = "elr-chain"


def install() -> None:
    """Never drop a member for the ISR's sake."""
    strict = election._eligible

    def _eligible(partition: Partition, target: _Target, wish: Wish, rules: Rules) -> Eligible:
        lists = strict(partition, target, wish, rules)
        below = strict(partition, target, wish, replace(rules, min_insync_replicas=len(target.replicas)))
        kept = tuple(node for node in below.elr if node in partition.elr)
        return Eligible((*lists.elr, *(node for node in kept if node not in lists.elr)), lists.last_known_elr)

    election._eligible = _eligible
