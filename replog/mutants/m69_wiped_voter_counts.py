"""M69: a voter is known by its id alone, so one that lost its disk still counts and votes.

Evidence: committed metadata are lost when one of three voters is wiped while another lags. KIP-996, table of disk losses; the cure is
KIP-853's directory ids.
"""

from replog.quorum.voters import ReplicaKey

SCENARIO = "voter-disk-loss"


def install() -> None:
    """Leave the directory out of account."""

    def names(self: ReplicaKey, other: ReplicaKey) -> bool:
        return self.node_id == other.node_id

    ReplicaKey.names = names  # type: ignore[method-assign]
