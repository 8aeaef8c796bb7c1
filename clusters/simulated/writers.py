"""Who writes to which partition, and on whose coordination that depends: a fact of the clients that no recording has while the run lasts."""

from collections.abc import Iterable

from replog.coordinators.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from tribunal.clusters.api import TopicPartition


class Writer:
    """A process that writes, by the name of its client; it may go on under another transactional id.

    transactional_id:  the present one; None: it writes without transactions.
    groups:            whose positions its transactions have committed.
    """

    def __init__(self) -> None:
        self.transactional_id: str | None = None
        self.groups: set[str] = set()
        self._partitions: set[TopicPartition] = set()

    def sends_to(self, partition: TopicPartition) -> None:
        """Note that it offered a record, whatever became of it."""
        self._partitions.add(partition)

    def writes(self, partition: TopicPartition) -> bool:
        """Return whether it ever offered a record to a partition."""
        return partition in self._partitions

    def coordinated_by(self, counts: dict[str, int]) -> set[TopicPartition]:
        """Return the partitions whose leaders have to answer before it can write.

        counts:  how many partitions each topic has; one that is not there yet keeps nothing.
        """
        keys = [(OFFSETS_TOPIC, group) for group in self.groups]
        if self.transactional_id is not None:
            keys.append((TRANSACTIONS_TOPIC, self.transactional_id))
        return {TopicPartition(topic, partition_for(key, counts[topic])) for topic, key in keys if topic in counts}


class Writers:
    """All writers of a run, those that have ended among them."""

    def __init__(self) -> None:
        self._by_client: dict[str, Writer] = {}

    def named(self, client_id: str, transactional_id: str | None) -> Writer:
        """Return the writer behind a client that begins to write, under this transactional id from now on."""
        writer = self._by_client.setdefault(client_id, Writer())
        writer.transactional_id = transactional_id
        return writer

    def all_wait_for(
        self, partition: TopicPartition, known: Iterable[TopicPartition], unled: Iterable[TopicPartition]
    ) -> bool:
        """Return whether somebody writes to a partition, and each who does needs an answer that nobody can give.

        known:  all partitions there are.
        unled:  those of which nobody will be the leader.
        """
        counts: dict[str, int] = {}
        for topic, _ in known:
            counts[topic] = counts.get(topic, 0) + 1
        nobody_leads = {*unled}
        writers = [one for one in self._by_client.values() if one.writes(partition)]
        return bool(writers) and all(one.coordinated_by(counts) & nobody_leads for one in writers)
