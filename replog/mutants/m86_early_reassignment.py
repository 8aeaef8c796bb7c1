"""M86: a reassignment completes with an ISR below min ISR.

Evidence: the replicas that hold what is acknowledged are deleted; the only one that is left loses its unsynced tail. KIP-966.
"""

from msgspec.structs import replace

from replog.controller import election
from replog.controller.election import Rules, _Target

SCENARIO = "early-reassignment"


def install() -> None:
    """Complete as soon as the newcomers are in the ISR."""
    strict = election._completed

    def _completed(target: _Target, rules: Rules) -> _Target:
        return strict(target, replace(rules, min_insync_replicas=1))

    election._completed = _completed
