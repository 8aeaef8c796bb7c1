"""The topics that an existing cluster has of its own: nothing is done to them, and nothing of them is written down."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from replog.metadata.records import MetadataRecord
from replog.security.acls import ResourceType
from replog.wire.records.metadata import ConfigRecord
from tribunal.clusters.api import ClusterError, ClusterState, TopicSeen
from tribunal.clusters.clients.operating import Asker, Operating
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.existing.acts import Acts


class OwnRecords(CommittedRecords):
    """The committed records of all but those topics; `foreign` are their names."""

    def __init__(self, state: ClusterState, foreign: Iterable[str]) -> None:
        super().__init__(state)
        self.foreign = frozenset(foreign)
        self._foreign_ids: set[UUID] = set()

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
        """Keep a record that says nothing of a foreign topic."""
        topic_id: UUID | None = getattr(record, "topic_id", None)
        name = topic
        if isinstance(record, ConfigRecord) and record.resource_type == ResourceType.TOPIC:
            name = record.resource_name
        if name in self.foreign or topic_id in self._foreign_ids:
            if topic_id is not None:
                self._foreign_ids.add(topic_id)  # its last record comes when its name is gone
            return
        super().note(
            record,
            metadata_offset=metadata_offset,
            quorum_epoch=quorum_epoch,
            at_ns=at_ns,
            stamped_ns=stamped_ns,
            topic=topic,
            partition=partition,
        )

    def refresh(self, metadata_offset: int) -> None:
        """Bring the state up to date."""
        super().refresh(metadata_offset)
        self.state.topic_ids = {name: one for name, one in self.state.topic_ids.items() if name not in self.foreign}
        self.state.partitions = {
            place: one for place, one in self.state.partitions.items() if place.topic not in self.foreign
        }


class OwnTopics:
    """Which topics a run may have: none that was there before; those that it makes are taken note of."""

    def __init__(self, foreign: frozenset[str], acts: Acts) -> None:
        self.foreign = foreign
        self._acts = acts

    def making(self, topic: str) -> None:
        """Take note of a topic; `ClusterError` for one that was there before the run."""
        if topic in self.foreign:
            raise ClusterError(
                f"the cluster has a topic {topic!r} already, which this run must not touch: rename or delete it"
            )
        self._acts.making(topic)


class OwnOperating(Operating):
    """An operator who sees and touches only what came into being during the run."""

    def __init__(self, asker: Asker, own: OwnTopics, groups: frozenset[str], transactional_ids: frozenset[str]) -> None:
        super().__init__(asker)
        self._own = own
        self._groups = groups
        self._transactional_ids = transactional_ids

    async def topics(self) -> dict[str, TopicSeen]:
        """Return the run's topics."""
        return {name: seen for name, seen in (await super().topics()).items() if name not in self._own.foreign}

    async def groups(self) -> list[str]:
        """Return the run's groups."""
        return [group for group in await super().groups() if group not in self._groups]

    async def transactional_ids(self) -> list[str]:
        """Return the run's transactional ids."""
        return [one for one in await super().transactional_ids() if one not in self._transactional_ids]

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, settings: Mapping[str, str]
    ) -> UUID:
        """Create a topic that was not there before."""
        self._own.making(topic)
        return await super().create_topic(topic, partitions, replication_factor, settings)
