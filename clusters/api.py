"""What any place to run offers, and all that workloads and faults know of it. Read this first.

A *cluster* is a set of nodes with clients, links and disks. Faults ask it to hurt a node or a link and to prove
that it hurt; workloads ask it for clients; the runner asks it for what the nodes said. Whether the nodes are
processes, containers, hosts, a real Apache Kafka or objects in the simulator's world is hidden behind this page:
a new kind is one module with one function, `launch`, returning an object with these methods.

Words: a *link* is a directed pair of nodes; clients count as node 0, all of them together (a client library does
not choose its source address). Times are ns of the run's clock. A *proof* is what was seen, as plain JSON-able
facts, with the one bit that follows from it: a fault without effect must never pass for a fault.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from replog.types import TopicPartition
from tribunal.clusters.spec import ClusterSpec

__all__ = ["ClusterSpec", "TopicPartition"]

Acks = Literal[0, 1, -1]
CLIENTS: Final = 0  # the node id that stands for every client


class ClusterError(Exception):
    """The place to run failed: one line that says which node and why, and what its log said last."""


class Unsupported(ClusterError):
    """Not possible on this kind of cluster; the message says why."""


class Unsettled(ClusterError):
    """Something waited for did not come about in time."""


class Link(NamedTuple):
    """A directed pair: what `source` sends to `target`."""

    source: int
    target: int

    def __str__(self) -> str:
        return f"{self.source or 'clients'}->{self.target or 'clients'}"


class CutMode(StrEnum):
    """What becomes of bytes on a link that is cut."""

    HOLD = "hold"  # as a dead cable does to TCP: nothing passes; the senders' kernels send it again after the heal
    DROP = "drop"  # bytes are lost for good: connections that lost some are reset at the heal
    RESET = "reset"  # connections are reset at once, new ones refused


class Proof(msgspec.Struct, frozen=True):
    """What was seen of a fault or of its heal."""

    holds: bool
    facts: dict[str, Any]


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as last committed."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    recovering: bool = False


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's registration as last committed."""

    broker_epoch: int
    incarnation: str
    fenced: bool


class ClusterState(msgspec.Struct, kw_only=True):
    """What is known of the committed metadata: grows while the run goes on; read it, never write it."""

    metadata_offset: int = -1
    quorum_leader: int = -1
    quorum_epoch: int = -1
    brokers: dict[int, BrokerState] = {}
    partitions: dict[TopicPartition, PartitionState] = {}

    def whole(self, spec: ClusterSpec) -> bool:
        """Tell whether every broker serves and every partition has all its replicas in the ISR."""
        serving = sum(not broker.fenced for broker in self.brokers.values()) == spec.brokers
        return serving and all(
            partition.leader >= 0 and len(partition.isr) == len(partition.replicas)
            for partition in self.partitions.values()
        )


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a node's event file, or what the harness itself saw of the node's life."""

    node: int
    name: str
    node_ns: int | None
    at_ns: int
    fields: dict[str, Any]


class MetadataEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One committed metadata record."""

    metadata_offset: int
    quorum_epoch: int
    at_ns: int
    record_type: str
    topic: str | None
    partition: int | None
    body: dict[str, Any]


class LogEntry(NamedTuple):
    """One record of a replica's final log; value is null where it is not one of ours."""

    node: int
    topic: str
    partition: int
    log_offset: int
    leader_epoch: int
    value: int | None
    batch_first_offset: int
    is_control: bool


class Delivery(NamedTuple):
    """How a send ended (docs/verdicts.md, facts): `ok`, `sent` (acks=0), `fail` (surely not in the log), `info`."""

    outcome: Literal["ok", "fail", "info", "sent"]
    error: str | None
    log_offset: int | None
    leader_epoch: int | None
    attempts: int | None


class ReceivedRecord(NamedTuple):
    """A record that a consumer got."""

    log_offset: int
    key: bytes | None
    value: bytes | None
    leader_epoch: int | None


class PartitionPoll(msgspec.Struct, kw_only=True):
    """What one poll brought for one partition; watermarks as the last fetch answer showed them, else None."""

    partition: TopicPartition
    position: int  # where this poll began to read
    records: list[ReceivedRecord]
    error: str | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    next_position: int | None = None  # where reading goes on, when no record says it: behind transaction markers


class Offsets(NamedTuple):
    """Answer of ListOffsets for one partition: earliest and latest, or why not.

    answered_s:  when it came, by the event loop's clock: another leader that is asked at once may keep all waiting.
    """

    partition: TopicPartition
    log_start_offset: int | None
    latest_offset: int | None
    leader_epoch: int | None
    error: str | None
    answered_s: float | None = None

    def age_ns(self) -> int:
        """Return how long ago it came."""
        return 0 if self.answered_s is None else round((asyncio.get_running_loop().time() - self.answered_s) * 1e9)


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's behaviour. Idempotent producers retry inside; the others do not ask for retries."""

    acks: Acks
    idempotent: bool
    delivery_timeout_ms: int
    request_timeout_ms: int
    linger_ms: int = 2
    transactional_id: str | None = None


class Producer(Protocol):
    """Sends records; never raises for what a broker said: that is in the `Delivery`."""

    def send(
        self, partition: TopicPartition, key: bytes | None, value: bytes, done: Callable[[Delivery], None]
    ) -> None:
        """Offer one record; `done` is called once, on the event loop, possibly before this returns."""

    async def flush(self, timeout_ms: int) -> int:
        """Wait until nothing is under way; return how many still are."""

    async def close(self) -> None:
        """Give up what is under way (its `done` gets `info` or `fail`) and release everything."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A member's group: whoever does not poll for a session is taken to be dead."""

    group: str
    topic: str
    isolation: Literal["read_uncommitted", "read_committed"]
    session_timeout_ms: int


class Membership(NamedTuple):
    """Who a consumer is in its group, None where it cannot tell."""

    generation: int | None
    member: str | None


class Answered(NamedTuple):
    """How a call ended that has no other result: `ok`, `fail` (surely without effect), `info`."""

    outcome: Literal["ok", "fail", "info"]
    error: str | None


class Committed(NamedTuple):
    """Answer of OffsetFetch: what the group committed (None: nothing), or why there is no answer."""

    offsets: Mapping[TopicPartition, int | None]
    error: str | None


class Ended(NamedTuple):
    """How a transaction ended; `answered`: the coordinator said so, at this moment."""

    outcome: Literal["committed", "aborted", "info"]
    answered: bool
    error: str | None


class GroupConsumer(Protocol):
    """A member of a group: which partitions it reads is the group's doing, where it begins is its user's."""

    @property
    def membership(self) -> Membership:
        """Who it is now."""

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        """Stay a member, and return what has arrived of the partitions that were started."""

    def gained(self) -> list[TopicPartition]:
        """Return the partitions that are its own and were not started yet."""

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these of its own partitions from these offsets on."""

    async def committed(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> Committed:
        """Ask for the group's offsets."""

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> Answered:
        """Commit offsets as the member that it is."""

    async def close(self) -> None:
        """Leave the group and release everything."""


class TransactionalProducer(Protocol):
    """Sends records, all of them in transactions, one at a time; fenced, it begins again as a new producer."""

    @property
    def identity(self) -> tuple[int, int] | None:
        """Producer id and epoch, None where it cannot tell."""

    async def begin(self, timeout_ms: int) -> bool:
        """Begin a transaction; False when none can be begun in this time."""

    def send(
        self, partition: TopicPartition, key: bytes | None, value: bytes, done: Callable[[Delivery], None]
    ) -> None:
        """Offer one record of the transaction."""

    async def flush(self, timeout_ms: int) -> int:
        """Wait until nothing is under way; return how many still are."""

    async def send_offsets(
        self, consumer: GroupConsumer, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Answered:
        """Commit a group's offsets as part of the transaction."""

    async def end(self, *, commit: bool, timeout_ms: int) -> Ended:
        """Commit or abort; a transaction that cannot be committed is aborted."""

    async def close(self) -> None:
        """Give up what is under way and release everything."""


class Consumer(Protocol):
    """Reads partitions given by hand, never resetting its position by itself."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on; replaces what was assigned."""

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        """Return what has arrived, at most one entry a partition; empty after the time-out."""

    async def close(self) -> None:
        """Release everything."""


class Admin(Protocol):
    """Asks for topics and offsets."""

    async def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout_ms: int) -> None:
        """Create a topic; an existing one of this name is fine. `ClusterError` when it cannot be had."""

    async def offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: int, *, stable: bool = False
    ) -> list[Offsets]:
        """Ask each leader for earliest and latest offset; `stable`: latest is the last stable offset."""

    async def close(self) -> None:
        """Release everything."""


class ClientFactory(Protocol):
    """Makes clients that reach the brokers through their links."""

    def producer(self, settings: ProducerSettings, client_id: str) -> Producer:
        """Make a producer."""

    def consumer(self, client_id: str, isolation: Literal["read_uncommitted", "read_committed"]) -> Consumer:
        """Make a consumer."""

    def admin(self, client_id: str) -> Admin:
        """Make an admin client."""

    def group_consumer(self, settings: GroupSettings, client_id: str) -> GroupConsumer:
        """Make a member of a group; it joins with its first poll."""

    def transactional_producer(
        self, transactional_id: str, transaction_timeout_ms: int, client_id: str
    ) -> TransactionalProducer:
        """Make a producer of transactions; it asks for its identity with its first one."""


class Cluster(Protocol):
    """A running cluster."""

    @property
    def kind(self) -> str:
        """Name of the kind, as on the command line."""

    @property
    def spec(self) -> ClusterSpec:
        """What was asked for."""

    @property
    def clients(self) -> ClientFactory:
        """Clients that reach the brokers through their links."""

    @property
    def state(self) -> ClusterState:
        """The committed metadata, as far as known."""

    @property
    def capabilities(self) -> frozenset[str]:
        """Names of the hurting methods that work here: stop, kill, pause, wipe, cut, ..."""

    def now_ns(self) -> int:
        """Return the run's clock."""

    async def start(self, node: int) -> None:
        """Start a node that is down; return when it accepts connections. `ClusterError` with its last log lines."""

    async def stop(self, node: int) -> None:
        """Ask a node to end in good order and wait for it."""

    async def kill(self, node: int) -> Proof:
        """Kill -9; prove that the process is gone and its port refuses."""

    async def pause(self, node: int) -> Proof:
        """Stop a node's execution; prove it."""

    async def resume(self, node: int) -> Proof:
        """Let a paused node go on; prove it."""

    async def wipe(self, node: int) -> Proof:
        """Empty the disk of a node that is down, formatted again; prove that no log is left."""

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Cut links; prove by probes that passed before and no longer do."""

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Undo cuts; prove by probes that pass."""

    def alive(self, node: int) -> bool:
        """Tell whether the node's process exists."""

    def failures(self) -> list[str]:
        """Return what went wrong with nodes that nobody hurt: one line each, with the last log lines."""

    def drain_events(self) -> list[NodeEvent]:
        """Return what nodes told since the last call."""

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""

    async def shut_down(self) -> None:
        """End every node; disks stay readable."""

    def final_logs(self) -> Iterator[LogEntry]:
        """Read every replica's log from the disks, after `shut_down`."""

    async def close(self) -> None:
        """Leave nothing behind: no process, port, cut. Safe at any moment, also twice."""


async def until(
    holds: Callable[[], bool], *, timeout_ms: int, what: str, poll_ms: int = 20, cluster: Cluster | None = None
) -> int:
    """Wait until `holds()`; return the ms it took. `Unsettled` names what did not come about.

    With a cluster, a node that dies meanwhile by itself ends the wait at once: waiting on would only hide why.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    while not holds():
        if cluster is not None and (failures := cluster.failures()):
            raise ClusterError(failures[0])
        if (loop.time() - start) * 1000 >= timeout_ms:
            raise Unsettled(f"{what}: not within {timeout_ms} ms")
        await asyncio.sleep(poll_ms / 1000)
    return round((loop.time() - start) * 1000)
