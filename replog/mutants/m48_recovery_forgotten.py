"""M48: a partition stops being RECOVERING when its leader is lost.

Evidence: RECOVERED without an AlterPartition of the leader: the next one serves without having recovered. KIP-704.
"""

from replog.controller import election
from replog.controller.election import Wish, _Elected, _Fields
from replog.metadata.state import Partition
from replog.types import NO_NODE, LeaderRecoveryState

SCENARIO = "lost-while-recovering"


def install() -> None:
    """Let nobody's partition need no recovery."""
    strict = election._write_recovery

    def _write_recovery(fields: _Fields, partition: Partition, wish: Wish, elected: _Elected) -> None:
        strict(fields, partition, wish, elected)
        recovering = partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
        if recovering and elected.leader == NO_NODE:
            fields["leader_recovery_state"] = int(LeaderRecoveryState.RECOVERED)

    election._write_recovery = _write_recovery
