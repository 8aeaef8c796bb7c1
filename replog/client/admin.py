"""What no other tool can ask: who is to lead (KIP-966), topics page by page with their ELR, and who votes (KIP-853).

`elect` names a leader or starts a search for the longest log; `describe_topics` follows the cursor to the end; `add_voter`
and `remove_voter` change the metadata quorum, by one voter at a time.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config import Endpoint
from replog.errors import Error
from replog.ports import World
from replog.types import METADATA_TOPIC, NO_NODE, NodeId
from replog.wire.messages import add_raft_voter, remove_raft_voter
from replog.wire.messages import describe_quorum as dq
from replog.wire.messages import describe_topic_partitions as dtp
from replog.wire.messages import elect_designated_leaders as edl

TIMEOUT_MS: Final = 30_000
ELECTION_TRIES: Final = 40
ELECTION_PAUSE_S: Final = 0.25

LONGEST_LOG: Final = {
    "aggressive": edl.ElectionType.LONGEST_LOG_AGGRESSIVE,
    "balanced": edl.ElectionType.LONGEST_LOG_BALANCED,
}


Lost = (ConnectionLost, UnsupportedVersion)


class AdminFailed(Exception):
    """The cluster said no; the message has its words."""


class Admin:
    """A connection to any broker."""

    def __init__(self, world: World, bootstrap: Endpoint) -> None:
        self._connection = Connection(world, bootstrap, "replog-admin")

    async def open(self) -> None:
        """Connect."""
        await self._connection.open(timeout_ms=TIMEOUT_MS)

    def close(self) -> None:
        """Let go."""
        self._connection.close()

    async def elect(self, topic: str, partition: int, *, leader: NodeId | None, longest_log: str | None) -> None:
        """Elect the named leader, or search for the longest log; `AdminFailed` when that is refused."""
        election_type = LONGEST_LOG[longest_log] if longest_log else edl.ElectionType.DESIGNATED
        wanted = edl.DesignatedPartition(partition=partition, designated_leader=NO_NODE if leader is None else leader)
        body = edl.ElectDesignatedLeadersRequest(
            election_type=election_type,
            topics=[edl.DesignatedTopic(topic=topic, partitions=[wanted])],
            timeout_ms=TIMEOUT_MS,
        )
        answer = await self._connection.send(edl.EXCHANGE, body, timeout_ms=TIMEOUT_MS)
        _insist(answer.error_code, topic)
        for topic_result in answer.replica_election_results:
            for result in topic_result.partition_results:
                _insist(result.error_code, f"{topic_result.topic}-{result.partition}")

    async def describe_topics(
        self, topics: list[str], page_size: int
    ) -> AsyncIterator[dtp.DescribeTopicPartitionsResponseTopic]:
        """Yield topics (parts of topics, where a page ended within) until the cursor is at the end."""
        cursor: dtp.DescribeTopicPartitionsRequestCursor | None = None
        while True:
            body = dtp.DescribeTopicPartitionsRequest(
                topics=[dtp.TopicRequest(name=name) for name in topics],
                response_partition_limit=page_size,
                cursor=cursor,
            )
            answer: dtp.DescribeTopicPartitionsResponse = await self._connection.send(
                dtp.EXCHANGE, body, timeout_ms=TIMEOUT_MS
            )
            for topic in answer.topics:
                yield topic
            if answer.next_cursor is None:
                return
            cursor = dtp.DescribeTopicPartitionsRequestCursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )

    async def quorum(self) -> dq.DescribeQuorumResponsePartitionData:
        """Return the metadata quorum as its leader sees it; during an election it is asked again."""
        described = await self._quorum()
        for _ in range(ELECTION_TRIES):
            if described.error_code is not Error.NOT_LEADER_OR_FOLLOWER:
                break
            await asyncio.sleep(ELECTION_PAUSE_S)
            described = await self._quorum()
        _insist(described.error_code, METADATA_TOPIC, described.error_message)
        return described

    async def _quorum(self) -> dq.DescribeQuorumResponsePartitionData:
        partition = dq.DescribeQuorumRequestPartitionData(partition_index=0)
        topic = dq.DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        answer = await self._connection.send(
            dq.EXCHANGE, dq.DescribeQuorumRequest(topics=[topic]), timeout_ms=TIMEOUT_MS
        )
        _insist(answer.error_code, METADATA_TOPIC, answer.error_message)
        (described,) = answer.topics[0].partitions
        return described

    async def add_voter(self, node: NodeId, directory_id: UUID | None, listener: Endpoint) -> UUID:
        """Let an observing controller vote; return its directory id, which is looked up unless given.

        Answered when the new set is committed; `AdminFailed` when the cluster says no.
        """
        found = directory_id or _directory((await self.quorum()).observers, node, "an observing controller")
        body = add_raft_voter.AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=TIMEOUT_MS,
            voter_id=node,
            voter_directory_id=found,
            listeners=[add_raft_voter.Listener(name="CONTROLLER", host=listener.host, port=listener.port)],
        )
        answer = await self._connection.send(add_raft_voter.EXCHANGE, body, timeout_ms=TIMEOUT_MS)
        _insist(answer.error_code, f"voter {node}", answer.error_message)
        return found

    async def remove_voter(self, node: NodeId, directory_id: UUID | None) -> UUID:
        """Take a voter out of the quorum; return its directory id, which is looked up unless given."""
        found = directory_id or _directory((await self.quorum()).current_voters, node, "a voter")
        body = remove_raft_voter.RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=found)
        answer = await self._connection.send(remove_raft_voter.EXCHANGE, body, timeout_ms=TIMEOUT_MS)
        _insist(answer.error_code, f"voter {node}", answer.error_message)
        return found


def _directory(replicas: list[dq.ReplicaState], node: NodeId, what: str) -> UUID:
    """Return the directory of a replica; of several registrations of one node the one that fetched last."""
    known = sorted((one.last_fetch_timestamp, one.replica_directory_id) for one in replicas if one.replica_id == node)
    if not known:
        raise AdminFailed(f"node {node} is not {what} of this quorum")
    return known[-1][1]


def _insist(error: Error, what: str, words: str | None = None) -> None:
    if error is not Error.NONE:
        raise AdminFailed(f"{what}: {error.name}{f': {words}' if words else ''}")


def shown_quorum(quorum: dq.DescribeQuorumResponsePartitionData) -> list[str]:
    """Return who votes and who observes as lines of text."""
    head = f"leader={quorum.leader_id} epoch={quorum.leader_epoch} high_watermark={quorum.high_watermark}"
    return [
        head,
        *(
            f"{kind} {one.replica_id} directory={one.replica_directory_id} log_end_offset={one.log_end_offset}"
            for kind, replicas in (("voter", quorum.current_voters), ("observer", quorum.observers))
            for one in replicas
        ),
    ]


def shown(topic: dtp.DescribeTopicPartitionsResponseTopic) -> list[str]:
    """Return a topic as lines of text, one a partition."""
    if topic.error_code is not Error.NONE:
        return [f"{topic.name}: {topic.error_code.name}"]
    return [
        f"{topic.name}-{each.partition_index} leader={each.leader_id} epoch={each.leader_epoch} "
        f"replicas={_ids(each.replica_nodes)} isr={_ids(each.isr_nodes)} elr={_ids(each.eligible_leader_replicas)} "
        f"last_known_elr={_ids(each.last_known_elr)} offline={_ids(each.offline_replicas)}"
        for each in topic.partitions
    ]


def _ids(nodes: list[int] | None) -> str:
    return ",".join(map(str, nodes)) if nodes else "-"
