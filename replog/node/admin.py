"""Two questions that no other tool can ask: who is to lead (KIP-966), and topics page by page with their ELR.

`elect` names a leader or starts a search for the longest log; `describe_topics` follows the cursor to the end.
"""

from collections.abc import AsyncIterator
from typing import Final

from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config import Endpoint
from replog.errors import Error
from replog.ports import World
from replog.types import NO_NODE, NodeId
from replog.wire.apis import Api
from replog.wire.messages import describe_topic_partitions as dtp
from replog.wire.messages import elect_designated_leaders as edl

TIMEOUT_MS: Final = 30_000

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
        answer: edl.ElectDesignatedLeadersResponse = await self._connection.send(
            Api.ELECT_DESIGNATED_LEADERS, body, timeout_ms=TIMEOUT_MS
        )
        _insist(answer.error_code, topic)
        for told in answer.replica_election_results:
            for result in told.partition_results:
                _insist(result.error_code, f"{told.topic}-{result.partition}")

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
                Api.DESCRIBE_TOPIC_PARTITIONS, body, timeout_ms=TIMEOUT_MS
            )
            for topic in answer.topics:
                yield topic
            if answer.next_cursor is None:
                return
            cursor = dtp.DescribeTopicPartitionsRequestCursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )


def _insist(error: Error, what: str) -> None:
    if error is not Error.NONE:
        raise AdminFailed(f"{what}: {error.name}")


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
