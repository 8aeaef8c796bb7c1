"""Seeing who votes."""

import asyncio
from typing import Final, cast

from tribunal.clusters.capabilities import CanChangeVoters, Capability, FaultTarget
from tribunal.nemesis.api import ClusterError, Proof

VOTES_TIMEOUT_MS: Final = 15_000
POLL_MS: Final = 200


def with_votes(cluster: FaultTarget) -> CanChangeVoters | None:
    """Return the cluster as one whose votes can be changed, None where they cannot."""
    can = Capability.REMOVE_VOTER in cluster.capabilities and not cluster.spec.is_zookeeper_mode
    return cast(CanChangeVoters, cluster) if can else None


async def voting(cluster: CanChangeVoters, node: int, *, votes: bool) -> Proof:
    """Wait until the quorum's leader reports that a node votes, or does not any more."""
    voters: list[int] = []
    for _ in range(VOTES_TIMEOUT_MS // POLL_MS):
        voters = await cluster.voters()
        if (node in voters) is votes:
            return Proof(holds=True, facts={"voters": voters})
        await asyncio.sleep(POLL_MS / 1000)
    return Proof(holds=False, facts={"voters": voters, "waited_ms": VOTES_TIMEOUT_MS})


async def vote_again(cluster: CanChangeVoters, node: int) -> Proof:
    """Give a controller that came back with another disk its vote: the old disk's is taken first."""
    if node in await cluster.voters():
        await cluster.remove_voter(node)
        await voting(cluster, node, votes=False)
    return await give_vote(cluster, node)


async def give_vote(cluster: CanChangeVoters, node: int) -> Proof:
    """Make an observing controller a voter, once the quorum's leader knows it as an observer."""
    for _ in range(VOTES_TIMEOUT_MS // POLL_MS):
        try:
            await cluster.add_voter(node)
        except ClusterError:  # it has not fetched from this leader yet, or is down by another fault
            await asyncio.sleep(POLL_MS / 1000)
        else:
            break
    return await voting(cluster, node, votes=True)
