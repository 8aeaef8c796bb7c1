"""The committed metadata as a cluster's observer has gathered it: the records, and the state that they add up to.

Where they come from is the observer's doing: a metadata log (`metadata.py`) or ZooKeeper's znodes (`zookeeper/znode_view.py`).
Targets of faults are chosen by the state; the records become the recording's table `metadata`.
"""

from collections.abc import Mapping
from uuid import UUID

import msgspec

from replog.metadata.image import Image
from replog.metadata.records import MetadataRecord
from replog.types import LeaderRecoveryState, TopicPartition
from tribunal.clusters.api import BrokerState, ClusterState, MetadataEntry, PartitionState


class CommittedRecords:
    """What the committed records say, and the records themselves until somebody takes them."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.image = Image()
        self._entries: list[MetadataEntry] = []

    def replay(self, record: MetadataRecord, metadata_offset: int) -> None:
        """Bring the image up to date with one record."""
        self.image.replay(record, metadata_offset)

    def note(
        self,
        record: MetadataRecord,
        *,
        metadata_offset: int,
        quorum_epoch: int,
        at_ns: int,
        stamped_ns: int | None,
        topic: str | None,
        partition: int | None,
    ) -> None:
        """Keep a record for the recording; `stamped_ns` is what its writer says of the time, where it does."""
        topic_id: UUID | None = getattr(record, "topic_id", None)
        self._entries.append(
            MetadataEntry(
                metadata_offset=metadata_offset,
                quorum_epoch=quorum_epoch,
                at_ns=at_ns,
                stamped_ns=stamped_ns,
                record_type=type(record).__name__,
                topic=topic,
                topic_id=None if topic_id is None else str(topic_id),
                partition=partition,
                body=msgspec.to_builtins(record),
            )
        )

    def refresh(self, metadata_offset: int) -> None:
        """Bring the state up to date: every record up to this offset was added."""
        brokers, partitions, topic_ids = self.state.brokers, self.state.partitions, self.state.topic_ids
        self.state.metadata_offset = metadata_offset
        self.state.brokers = {
            broker.broker_id: BrokerState(
                broker_epoch=broker.epoch, incarnation=str(broker.incarnation_id), fenced=broker.fenced
            )
            for broker in self.image.brokers.values()
        }
        self.state.topic_ids = {name: str(topic_id) for name, topic_id in self.topic_ids().items()}
        self.state.partitions = {
            TopicPartition(self.image.topics[key.topic_id].name, key.partition): PartitionState(
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=tuple(partition.replicas),
                isr=tuple(partition.isr),
                elr=tuple(partition.elr),
                recovering=partition.leader_recovery_state is LeaderRecoveryState.RECOVERING,
            )
            for key, partition in self.image.partitions()
        }
        self._count_missed(brokers, partitions, topic_ids)

    def _count_missed(
        self,
        brokers: Mapping[int, BrokerState],
        partitions: Mapping[TopicPartition, PartitionState],
        topic_ids: Mapping[str, str],
    ) -> None:
        """Keep who was taken for away since the former state: a later one may not show it any more."""
        now = self.state
        missed = [
            node
            for node, broker in brokers.items()
            if not broker.fenced and (node not in now.brokers or now.brokers[node].fenced)
        ]
        for partition, former in partitions.items():
            state = now.partitions.get(partition)
            if state is None or state.isr == former.isr:
                continue
            if topic_ids.get(partition.topic) == now.topic_ids.get(partition.topic):  # else it is another of that name
                missed += [node for node in former.isr if node in state.replicas and node not in state.isr]
        for node in missed:
            now.missed[node] = now.missed.get(node, 0) + 1

    def topic_ids(self) -> dict[str, UUID]:
        """Return the ids of the topics that there are."""
        return {name: topic.topic_id for name, topic in self.image.topics_by_name.items()}

    def setting(self, topic: str, name: str) -> str | None:
        """Return what the committed metadata say of a topic's setting; None: what the nodes were started with."""
        own = self.image.topic_config(topic, name)
        return own if own is not None else self.image.cluster_config(name)

    def drain(self) -> list[MetadataEntry]:
        """Hand over what was added since the last call."""
        taken, self._entries = self._entries, []
        return taken
