"""What is seen of Apache Kafka's nodes, which write no event files, and report nothing of others as controllers.

Starts and ends are the harness's own doing (`FileEvents`, silent nodes). Registrations are read off the committed metadata; how a broker's previous incarnation
ended is not in them (KIP-966), so it is read, before each start, off the file that the broker itself will read.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.api import MetadataEntry, NodeEvent
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.kafka.disk import previous_broker_epoch
from tribunal.clusters.nodes.node_events import FileEvents, NodeEvents, seen_by_harness

REGISTRATION: Final = "RegisterBrokerRecord"
REGISTERED: Final = "registered"


class Registration(msgspec.Struct):
    """What is read of a record of this type."""

    broker_id: int
    broker_epoch: int
    incarnation_id: str


class Registrations:
    """Registrations of brokers as the committed metadata have them; whoever takes the metadata takes them here."""

    def __init__(
        self, committed: CommittedRecords, data_dir: Callable[[int], Path] | None, now_ns: Callable[[], int]
    ) -> None:
        """`data_dir`: each node's log directory; None: nobody can read there, so that nobody knows how a process ended before."""
        self._committed = committed
        self._data_dir = data_dir
        self._now_ns = now_ns
        self._starts: dict[
            int, list[tuple[int, int | None]]
        ] = {}  # node -> when each process began, and how the one before ended
        self._seen: list[NodeEvent] = []
        self._entries: list[MetadataEntry] = []

    def starting(self, node: int) -> None:
        """Take note of how the process before ended, before the one that starts removes the file that says it."""
        if self._data_dir is not None:
            self._starts.setdefault(node, []).append((self._now_ns(), previous_broker_epoch(self._data_dir(node))))

    def drain(self) -> list[NodeEvent]:
        """Return the registrations since the last call."""
        self._read_metadata()
        seen, self._seen = self._seen, []
        return seen

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""
        self._read_metadata()
        taken, self._entries = self._entries, []
        return taken

    def _read_metadata(self) -> None:
        for entry in self._committed.drain():
            self._entries.append(entry)
            if entry.record_type == REGISTRATION:
                self._on_registered(entry)

    def _on_registered(self, entry: MetadataEntry) -> None:
        """Say what the broker said of its previous incarnation: the metadata log does not keep it (KIP-966)."""
        said = msgspec.convert(entry.body, Registration)
        node = said.broker_id
        former = [previous for began_ns, previous in self._starts.get(node, []) if began_ns <= entry.at_ns]
        self._seen.append(
            seen_by_harness(
                node,
                REGISTERED,
                entry.at_ns,
                broker_epoch=said.broker_epoch,
                incarnation=said.incarnation_id,
                previous_broker_epoch=former[-1] if former else None,
            )
        )


class RegisteredEvents:
    """What others see of nodes' starts and ends, beside the registrations that the metadata have."""

    def __init__(self, seen: NodeEvents, registrations: Registrations) -> None:
        self._seen = seen
        self._registrations = registrations

    def starting(self, node: int) -> None:
        """Take note of a start, and of how the process before it ended."""
        self._registrations.starting(node)
        self._seen.starting(node)

    def stopped(self, node: int) -> None:
        """Take note of an orderly end."""
        self._seen.stopped(node)

    def killed(self, node: int, pid: int | None) -> None:
        """Take note that a node was killed."""
        self._seen.killed(node, pid)

    def exited(self, node: int, reason: str) -> None:
        """Take note that a node ended without being asked to."""
        self._seen.exited(node, reason)

    def drain(self) -> list[NodeEvent]:
        """Return what came since the last call; what controllers report of registrations the metadata say already."""
        reported = [event for event in self._seen.drain() if event.name != REGISTERED]
        return sorted([*reported, *self._registrations.drain()], key=lambda event: event.at_ns)


def seen_from_outside(
    nodes: Collection[int], registrations: Registrations, now_ns: Callable[[], int]
) -> RegisteredEvents:
    """Return the events of a cluster none of whose nodes reports anything."""
    return RegisteredEvents(FileEvents({}, now_ns, silent=nodes), registrations)


class KafkaMetadata:
    """The metadata records of the same reading."""

    def __init__(self, registrations: Registrations) -> None:
        self._registrations = registrations

    def drain(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""
        return self._registrations.drain_metadata()
