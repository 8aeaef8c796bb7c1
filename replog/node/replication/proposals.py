"""AlterPartition: brings the leaders' proposals to the controller, one request at a time (SPEC 3.6.3).

Proposals that gather while a request is under way go together with the next. A proposal that its leader has given up
meanwhile is not sent; the leader recognises late answers by the proposal itself.
"""

import asyncio
from typing import Final
from uuid import UUID

from replog.broker.identity import BrokerIdentity
from replog.broker.isr import AlterPartitionAnswer, Proposal
from replog.errors import Error
from replog.node.fault_injection_points import linger
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.types import LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch, TopicIdPartition
from replog.wire.messages.alter_partition import (
    EXCHANGE,
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

REQUEST_TIMEOUT_MS: Final = 10_000
TOP_LEVEL_RETRY: Final = AlterPartitionAnswer(error=Error.NETWORK_EXCEPTION, top_level=True)

Sent = dict[TopicIdPartition, tuple[Replica, Proposal]]


class ProposalChannel:
    """The queue of proposals and the one request under way."""

    def __init__(
        self,
        replicas: Replicas,
        link: ControllerLink,
        tasks: Tasks,
        identity: BrokerIdentity,
        *,
        version: int | None,
    ) -> None:
        """`version` of AlterPartition; None: the highest that the controller offers."""
        self.replicas = replicas
        self.tasks = tasks
        self.link = link
        self.clock = replicas.world.clock
        self.identity = identity
        self.version = version
        self._queue: Sent = {}
        self._is_running = False

    def submit(self, replica: Replica, proposal: Proposal, after_ms: int) -> None:
        """Send the proposal, not before `after_ms` from now."""
        if after_ms > 0:
            asyncio.get_running_loop().call_later(after_ms / 1000, self.submit, replica, proposal, 0)
            return
        if not _is_wanted(replica, proposal):
            return  # given up while its time to be repeated came; the next proposal may wait in its place
        self._queue[replica.key] = (replica, proposal)
        if not self._is_running:
            self._is_running = True
            self.tasks.start(self._run())

    async def _run(self) -> None:
        # Once around the loop: proposals of one metadata batch or one tick go together.
        await asyncio.sleep(0)
        while batch := self._take():
            await self._exchange(batch)
        self._is_running = False

    def _take(self) -> Sent:
        queue, self._queue = self._queue, {}
        return {key: item for key, item in queue.items() if _is_wanted(*item)}

    async def _exchange(self, sent: Sent) -> None:
        request = self._request(sent)
        await linger(self.replicas.world, "proposal is sent late")
        try:
            response = await self.link.send(EXCHANGE, request, version=self.version, timeout_ms=REQUEST_TIMEOUT_MS)
            await linger(self.replicas.world, "proposal's answer is heard late")
        except NoController:
            self._retry_all(sent)
            return
        if response.error_code is not Error.NONE:
            if response.error_code is Error.NOT_CONTROLLER:
                self.link.drop()
            self._retry_all(sent)
            return
        answers = _answers(response, {replica.name.topic: key.topic_id for key, (replica, _) in sent.items()})
        now_ms = self.clock.now_ms()
        for key, (replica, proposal) in sent.items():
            # A partition that the answer leaves out is asked for again.
            self._answered(replica, proposal, answers.get(key, TOP_LEVEL_RETRY), now_ms)

    def _retry_all(self, sent: Sent) -> None:
        now_ms = self.clock.now_ms()
        for replica, proposal in sent.values():
            self._answered(replica, proposal, TOP_LEVEL_RETRY, now_ms)

    def _answered(self, replica: Replica, proposal: Proposal, answer: AlterPartitionAnswer, now_ms: int) -> None:
        leadership = replica.partition.leadership
        if leadership is None:
            return
        if answer.error is Error.INELIGIBLE_REPLICA:
            self.replicas.world.journal.probe("ineligible_replica_refused")
        if answer.error is Error.NOT_CONTROLLER:
            self.link.drop()
        self.replicas.perform(replica, leadership.on_alter_partition_answer(proposal, answer, now_ms))

    def _request(self, sent: Sent) -> AlterPartitionRequest:
        topics: dict[UUID, list[AlterPartitionRequestPartitionData]] = {}
        names: dict[UUID, str] = {}
        for key, (replica, proposal) in sent.items():
            names[key.topic_id] = replica.name.topic
            topics.setdefault(key.topic_id, []).append(
                AlterPartitionRequestPartitionData(
                    partition_index=key.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=[node for node, _ in proposal.isr],
                    new_isr_with_epochs=[
                        BrokerState(broker_id=node, broker_epoch=epoch) for node, epoch in proposal.isr
                    ],
                    leader_recovery_state=proposal.recovery,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self.replicas.node_id,
            broker_epoch=self.identity.broker_epoch,
            topics=[
                AlterPartitionRequestTopicData(topic_name=names[topic_id], topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )


def _is_wanted(replica: Replica, proposal: Proposal) -> bool:
    leadership = replica.partition.leadership
    return leadership is not None and leadership.pending is proposal


def _answers(response: AlterPartitionResponse, ids: dict[str, UUID]) -> dict[TopicIdPartition, AlterPartitionAnswer]:
    """Return answers by partition; versions 0 and 1 name topics instead of their ids."""
    return {
        TopicIdPartition(ids.get(topic.topic_name, topic.topic_id), partition.partition_index): _answer(partition)
        for topic in response.topics
        for partition in topic.partitions
    }


def _answer(partition: AlterPartitionResponsePartitionData) -> AlterPartitionAnswer:
    return AlterPartitionAnswer(
        error=partition.error_code,
        leader=NodeId(partition.leader_id),
        leader_epoch=LeaderEpoch(partition.leader_epoch),
        partition_epoch=PartitionEpoch(partition.partition_epoch),
        isr=tuple(NodeId(node) for node in partition.isr),
        recovery=LeaderRecoveryState(partition.leader_recovery_state),
    )
