"""M17: the last known leader is elected although it is fenced.

Evidence: the committed leader is a fenced broker; clients find nobody there until its session begins. KAFKA-19522.
"""

from collections.abc import Callable

from replog.controller import election
from replog.controller.election import Rules, Wish, _Elected, _Target
from replog.controller.elr import Eligible
from replog.metadata.state import Partition
from replog.types import NO_NODE, NodeId

SCENARIO = "power-loss-all"


def install() -> None:
    """Take the last known leader back without asking whether it is there."""
    strict = election._elect

    def _elect(
        partition: Partition,
        target: _Target,
        lists: Eligible,
        wish: Wish,
        rules: Rules,
        acceptable: Callable[[NodeId], bool],
    ) -> _Elected:
        elected = strict(partition, target, lists, wish, rules, acceptable)
        last_known = election._last_known_leader(partition, target, lists, rules)
        if elected.leader == NO_NODE and last_known != NO_NODE:
            return _Elected(last_known, unclean=True)
        return elected

    election._elect = _elect
