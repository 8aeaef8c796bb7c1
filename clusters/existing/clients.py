"""Clients of an existing cluster: they touch no topic that was there before the run."""

from collections.abc import Mapping, Sequence

from tribunal.clusters.clients.confluent import ConfluentAdmin, ConfluentClients
from tribunal.clusters.clients.list_offsets import Leaders
from tribunal.clusters.clients.operating import Asker, Operating
from tribunal.clusters.existing.access import ExistingAccess
from tribunal.clusters.existing.topics import OwnOperating, OwnTopics
from tribunal.clusters.links.answers import Answers


class ExistingAdmin(ConfluentAdmin):
    """Creates topics that were not there before."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        leaders: Leaders,
        list_offsets_version: int,
        security: ExistingAccess,
        topic_settings: Mapping[str, str],
        own: OwnTopics,
    ) -> None:
        super().__init__(bootstrap, client_id, leaders, list_offsets_version, security, topic_settings)
        self._own = own

    async def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout_ms: int) -> None:
        """Create a topic; one that the run has made is fine."""
        self._own.making(topic)
        await super().create_topic(topic, partitions, replication_factor, timeout_ms)


class ExistingClients(ConfluentClients):
    """Makes clients that reach the brokers as the user's own do: no relay knows who answered whom."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        leaders: Leaders,
        answers: Answers,
        administration: Asker,
        *,
        list_offsets_version: int,
        security: ExistingAccess,
        topic_settings: Mapping[str, str],
        own: OwnTopics,
    ) -> None:
        super().__init__(
            bootstrap, leaders, answers, administration, list_offsets_version=list_offsets_version, security=security
        )
        self._access = security
        self._topic_settings = topic_settings
        self._own = own
        self.groups: frozenset[str] = frozenset()  # that were there before
        self.transactional_ids: frozenset[str] = frozenset()

    def admin(self, client_id: str) -> ExistingAdmin:
        """Make an admin client."""
        return ExistingAdmin(
            self.bootstrap,
            client_id,
            self._leaders,
            self._list_offsets_version,
            self._access,
            self._topic_settings,
            self._own,
        )

    def operator(self, client_id: str) -> Operating:
        """Make an operator."""
        return OwnOperating(self._administration, self._own, self.groups, self.transactional_ids)
