"""Who belongs to the cluster: brokers forgotten, voters taken away and given back (KIP-853), as an administrator asks."""

from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

from replog.errors import Error
from replog.node.directories.meta_properties import short
from replog.types import METADATA_TOPIC
from replog.wire.exchange import Exchange, Q, R
from replog.wire.messages import add_raft_voter as arv
from replog.wire.messages import describe_quorum as dq
from replog.wire.messages import remove_raft_voter as rrv
from replog.wire.messages import unregister_broker as ub
from tribunal.clusters.api import ClusterError

LISTENER: Final = "CONTROLLER"
DESCRIBE_VERSION: Final = 2  # with directory ids
CHANGE_TIMEOUT_MS: Final = 5_000


class Administrator(Protocol):
    """Who asks for it: `tribunal.clusters.clients.administration`, or the simulated operator."""

    async def insist(self, exchange: Exchange[Q, R], version: int, body: Q, errors: Callable[[R], list[Error]]) -> R:
        """Ask until an answer stands, and return it; `ClusterError` when it is no, or none comes."""


class Membership:
    """Asks until there is an answer that stands; a change that came about by an earlier attempt is fine."""

    def __init__(self, administration: Administrator) -> None:
        self._administration = administration

    async def unregister(self, node: int) -> None:
        """Let the controllers forget a broker."""
        body = ub.UnregisterBrokerRequest(broker_id=node)
        await self._administration.insist(ub.EXCHANGE, 0, body, lambda answer: [answer.error_code])

    async def _described(self) -> dq.DescribeQuorumResponsePartitionData:
        topic = dq.DescribeQuorumRequestTopicData(
            topic_name=METADATA_TOPIC, partitions=[dq.DescribeQuorumRequestPartitionData(partition_index=0)]
        )
        answer = await self._administration.insist(
            dq.EXCHANGE, DESCRIBE_VERSION, dq.DescribeQuorumRequest(topics=[topic]), _errors
        )
        return answer.topics[0].partitions[0]

    async def voters(self) -> list[int]:
        """Return who votes."""
        return sorted(voter.replica_id for voter in (await self._described()).current_voters)

    async def remove_voter(self, node: int) -> None:
        """Take a controller's vote."""
        directory = _directory((await self._described()).current_voters, node, "a voter")
        body = rrv.RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=directory)
        await self._administration.insist(
            rrv.EXCHANGE, 0, body, lambda answer: _unless(Error.VOTER_NOT_FOUND, answer.error_code)
        )

    async def add_voter(self, node: int, listener: tuple[str, int], own: str | None) -> None:
        """Give an observing controller a vote.

        own: the id of the directory that it has now, as Kafka's tools write it, None where it is not known. A leader also
             names directories that are gone: one that a vote was taken from, until the new one has fetched.
        """
        observers = (await self._described()).observers
        present = [one for one in observers if own in (None, short(one.replica_directory_id))]
        directory = _directory(present, node, "an observing controller")
        body = arv.AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=CHANGE_TIMEOUT_MS,
            voter_id=node,
            voter_directory_id=directory,
            listeners=[arv.Listener(name=LISTENER, host=listener[0], port=listener[1])],
        )
        await self._administration.insist(
            arv.EXCHANGE, 0, body, lambda answer: _unless(Error.DUPLICATE_VOTER, answer.error_code)
        )


def _directory(replicas: list[dq.ReplicaState], node: int, what: str) -> UUID:
    """Return the directory of a replica; of several directories of one node the one that fetched last."""
    known = [(one.last_fetch_timestamp, one.replica_directory_id) for one in replicas if one.replica_id == node]
    if not known:
        raise ClusterError(f"node {node} is not {what} of the metadata quorum")
    return max(known)[1]


def _unless(fine: Error, error: Error) -> list[Error]:
    return [] if error is fine else [error]


def _errors(answer: dq.DescribeQuorumResponse) -> list[Error]:
    return [answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)]
