"""A described system that is a log and speaks Kafka's protocol: its committed metadata, its clients, and its logs' files.

Nothing of it is told by the nodes themselves: the metadata are fetched from the controllers as any broker fetches them, and librdkafka
writes and reads. So the recording has what that of an existing cluster has (docs/your-cluster.md), and the final logs besides.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tribunal.clusters.api import ClusterState, DumpedLog, MetadataEntry, TopicPartition
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.clients.confluent import ConfluentClients
from tribunal.clusters.clients.list_offsets import Leader
from tribunal.clusters.clock import moment_s
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.kafka.events import KafkaMetadata, Registrations, seen_from_outside
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.links.answers import ClientAnswers
from tribunal.clusters.metadata import MetadataObserver, MetadataView
from tribunal.clusters.nodes.final_logs import dumped_logs
from tribunal.clusters.orders import Orders, OrderSeen
from tribunal.clusters.run_context import RunContext

Endpoints = Mapping[int, tuple[str, int]]


def files_of(run: RunContext, node: int, *, are_copied: bool) -> Path:
    """Return where this process sees a node's log directory: in its data folder, or copied from a disk or a host that only the node sees."""
    return run.folder(node) / "disk" if are_copied else run.data_dir(node)


class KafkaView:
    """Implements `tribunal.clusters.systems.views.View`.

    advertised:   where clients find each node.
    brokers, controllers:  where the harness finds the nodes' listeners, past every cut.
    are_copied:   whether this process sees copies of what is on the nodes' disks.
    """

    def __init__(
        self, run: RunContext, *, advertised: Endpoints, brokers: Endpoints, controllers: Endpoints, are_copied: bool
    ) -> None:
        self.state = ClusterState()
        self._run = run
        self._advertised = advertised
        committed = CommittedRecords(self.state)
        self._files = partial(files_of, run, are_copied=are_copied)
        registrations = Registrations(committed, self._files, run.clock.now_ns)
        self.events = seen_from_outside(run.spec.node_ids, registrations, run.clock.now_ns)
        self._metadata = KafkaMetadata(registrations)
        self.orders = Orders(run.clock.now_ns, lambda: self.state.topic_ids)
        self.administration = Administration(lambda: brokers)
        chosen = release(run.spec.version)
        self.clients = ConfluentClients(
            list(advertised.values()),
            self._leader,
            ClientAnswers(lambda: self.state.topic_ids, moment_s),
            self.administration,
            list_offsets_version=chosen.list_offsets_version,
        )
        view = MetadataView(committed, now_ns=run.clock.now_ns, wall_start_ms=run.clock.wall_start_ms)
        self._observer = MetadataObserver(view, controllers, run.cluster_id, fetch_version=chosen.fetch_version)

    def _leader(self, partition: TopicPartition) -> Leader | None:
        known = self.state.partitions.get(partition)
        if known is None or known.leader not in self._advertised:
            return None
        return Leader(known.leader, self._advertised[known.leader], known.leader_epoch)

    def start(self) -> None:
        """Follow the metadata log from its beginning."""
        self._observer.start()

    def looked(self, node: int, incarnation: str, *, is_ready: bool) -> None:
        """Leave it: the metadata say who is in service."""

    def has_role(self, role: str, nodes: frozenset[int]) -> None:
        """Leave it: a log's leaders are those of its partitions."""

    def failures(self) -> list[str]:
        """Return what the observer has missed."""
        return [self._observer.overtaken] if self._observer.overtaken else []

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""
        return self._metadata.drain()

    def drain_orders(self) -> list[OrderSeen]:
        """Return what was ordered as an operator does since the last call."""
        return self.orders.drain()

    def final_logs(self) -> Iterator[DumpedLog]:
        """Read the nodes' files."""
        for node in self._run.spec.broker_ids:
            yield from dumped_logs(node, self._files(node))

    async def close(self) -> None:
        """Stop following; librdkafka's clients are closed by whoever made them."""
        await self._observer.stop()
