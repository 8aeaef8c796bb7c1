"""The controller of a small world: the product's `Controller`, alone in its quorum, so that every append commits at once.

It is asked as brokers and operators ask it, by requests of the wire; time passes only where a session is to end, and then the
heartbeats of all other brokers come in time.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from replog.broker.isr import AlterPartitionAnswer
from replog.controller.controller import Controller
from replog.controller.events import Append, Effect, Reply, Request, Tick
from replog.controller.policy import Settings
from replog.metadata import records as r
from replog.metadata.features import SUPPORTED
from replog.metadata.state import TOPIC_RESOURCE, Partition
from replog.types import BrokerEpoch, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch
from replog.wire.messages import alter_partition as ap
from replog.wire.messages import broker_heartbeat as hb
from replog.wire.messages import broker_registration as br
from replog.wire.messages import create_topics as ct
from replog.wire.messages import incremental_alter_configs as iac
from tribunal.harness.explore.cores import NO_CHANCE
from tribunal.harness.explore.partition.broker import KEY, MIN_ISR, TOPIC, TOPIC_ID, Proposed

CLUSTER: Final = "explored"
SESSION_MS: Final = 9_000
NEVER_MS: Final = 1 << 60
TOKEN: Final = 1

Batch = tuple[tuple[int, r.MetadataRecord], ...]


class Registered(NamedTuple):
    """A broker as the controller knows it."""

    node: NodeId
    epoch: BrokerEpoch
    fenced: bool
    has_session: bool


class Known(NamedTuple):
    """What invariants and readers look at, of the controller."""

    partition: Partition
    min_isr: int  # effective
    brokers: tuple[Registered, ...]
    last_offset: int

    @property
    def is_recovering(self) -> bool:
        """Whether the leader was elected uncleanly and has not said that it has recovered."""
        return self.partition.leader_recovery_state is LeaderRecoveryState.RECOVERING


def topic_id() -> UUID:
    """Return the only topic's id."""
    return TOPIC_ID


class SmallController:
    """An active controller and the end of its log."""

    def __init__(self, *, min_isr: int, elr: bool, unclean: bool) -> None:
        settings = Settings(
            cluster_id=CLUSTER,
            session_timeout_ms=SESSION_MS,
            min_insync_replicas=min_isr,
            unclean_leader_election=unclean,
            unclean_leader_election_interval_ms=NEVER_MS,
            unclean_recovery_manager=False,
            leader_rebalance=False,
            leader_imbalance_check_interval_ms=NEVER_MS,
            eligible_leader_replicas=elr,
        )
        self.core = Controller(settings, {}, topic_id, NO_CHANCE)
        self.now_ms = 0
        self._carry_out(self.core.activate(self.now_ms, 0))

    # --- events

    def register(self, node: NodeId) -> tuple[BrokerEpoch, list[Batch]]:
        """Register a new incarnation, as soon as the session of the former one is over; -1 when it is refused."""
        epoch = self.core.image.broker_epoch(node)
        if self.core.sessions.is_valid(node, epoch, self.now_ms):
            self._let_expire(node)
        answer, batches = self._ask(
            br.BrokerRegistrationRequest(
                broker_id=node,
                cluster_id=CLUSTER,
                incarnation_id=UUID(int=(node << 32) + self._next_offset),
                log_dirs=[UUID(int=5000 + node)],
                features=[
                    br.Feature(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
                    for name, levels in SUPPORTED.items()
                ],
            )
        )
        assert isinstance(answer, br.BrokerRegistrationResponse)
        return BrokerEpoch(answer.broker_epoch), batches

    def heartbeat(self, node: NodeId, epoch: BrokerEpoch) -> list[Batch]:
        """Take a heartbeat of a broker that has replayed its own registration."""
        _, batches = self._ask(
            hb.BrokerHeartbeatRequest(broker_id=node, broker_epoch=epoch, current_metadata_offset=epoch)
        )
        return batches

    def expire(self, node: NodeId) -> list[Batch]:
        """Let a broker's session end."""
        self._let_expire(node)
        return self._carry_out(self.core.handle(Tick(), self.now_ms, self._next_offset))[1]

    def alter_partition(self, proposed: Proposed) -> tuple[AlterPartitionAnswer, list[Batch]]:
        """Decide on a leader's proposal."""
        answer, batches = self._ask(
            ap.AlterPartitionRequest(
                broker_id=proposed.sender,
                broker_epoch=proposed.broker_epoch,
                topics=[
                    ap.AlterPartitionRequestTopicData(
                        topic_name=TOPIC,
                        topic_id=TOPIC_ID,
                        partitions=[
                            ap.AlterPartitionRequestPartitionData(
                                partition_index=0,
                                leader_epoch=proposed.leader_epoch,
                                new_isr=[node for node, _ in proposed.isr],
                                new_isr_with_epochs=[
                                    ap.BrokerState(broker_id=node, broker_epoch=epoch) for node, epoch in proposed.isr
                                ],
                                leader_recovery_state=proposed.recovery,
                                partition_epoch=proposed.partition_epoch,
                            )
                        ],
                    )
                ],
            )
        )
        assert isinstance(answer, ap.AlterPartitionResponse)
        if not answer.topics:
            return AlterPartitionAnswer(error=answer.error_code, top_level=True), batches
        only = answer.topics[0].partitions[0]
        return (
            AlterPartitionAnswer(
                error=only.error_code,
                leader=NodeId(only.leader_id),
                leader_epoch=LeaderEpoch(only.leader_epoch),
                partition_epoch=PartitionEpoch(only.partition_epoch),
                isr=tuple(NodeId(node) for node in only.isr),
                recovery=LeaderRecoveryState(only.leader_recovery_state),
            ),
            batches,
        )

    def create_topic(self, replicas: tuple[NodeId, ...]) -> None:
        """Create the only topic, with one partition on these brokers."""
        assignment = ct.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
        wanted = ct.CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assignment])
        answer, _ = self._ask(ct.CreateTopicsRequest(topics=[wanted], timeout_ms=NEVER_MS))
        assert isinstance(answer, ct.CreateTopicsResponse)
        assert not answer.topics[0].error_code, answer

    def set_min_isr(self, value: int) -> list[Batch]:
        """Set the topic's min.insync.replicas, as an operator does."""
        edit = iac.AlterableConfig(name=MIN_ISR, config_operation=0, value=str(value))
        resource = iac.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[edit])
        answer, batches = self._ask(iac.IncrementalAlterConfigsRequest(resources=[resource]))
        assert isinstance(answer, iac.IncrementalAlterConfigsResponse)
        assert not answer.responses[0].error_code, answer
        return batches

    # --- what the shell does

    @property
    def _next_offset(self) -> int:
        return self.core.image.last_offset + 1

    def _let_expire(self, node: NodeId) -> None:
        self.now_ms += SESSION_MS
        for other, broker in self.core.image.brokers.items():
            if other != node and (not broker.fenced or self._has_session(other, self.now_ms - SESSION_MS)):
                self.core.sessions.touch(other, broker.epoch, self.now_ms)

    def _has_session(self, node: NodeId, now_ms: int) -> bool:
        return self.core.sessions.is_valid(node, self.core.image.broker_epoch(node), now_ms)

    def _ask(self, body: msgspec.Struct) -> tuple[msgspec.Struct, list[Batch]]:
        request = Request(token=TOKEN, body=body, received_ms=self.now_ms)
        answer, batches = self._carry_out(self.core.handle(request, self.now_ms, self._next_offset))
        assert answer is not None
        return answer, batches

    def _carry_out(self, effects: list[Effect]) -> tuple[msgspec.Struct | None, list[Batch]]:
        written = [record for effect in effects if isinstance(effect, Append) for record in effect.records]
        first = self._next_offset - len(written)
        self.core.committed(self.core.image.last_offset)
        answers = [effect.body for effect in effects if isinstance(effect, Reply)]
        batch = tuple(enumerate(written, start=first))
        return (answers[0] if answers else None), [batch] if batch else []

    # --- what is

    def known(self) -> Known:
        """Return what invariants look at."""
        image = self.core.image
        partition = image.partition(*KEY)
        assert partition is not None
        return Known(
            partition=partition,
            min_isr=self.core.policy.effective_min_isr(TOPIC, partition),
            brokers=tuple(
                Registered(
                    node=node,
                    epoch=broker.epoch,
                    fenced=broker.fenced,
                    has_session=self._has_session(node, self.now_ms),
                )
                for node, broker in sorted(image.brokers.items())
            ),
            last_offset=image.last_offset,
        )

    def key(self) -> Hashable:
        """Return all that can matter to what it does next: `known` is all.

        Left out: how far each broker has replayed the metadata. It decides when a controlled shutdown may end, and there is none here.
        """
        return self.known()
