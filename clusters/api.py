"""What any place to run offers, and all that workloads and faults know of it. Read this first.

A *cluster* is a set of nodes with clients, links and disks. Faults ask it to disturb a node or a link and to prove
that it took effect; workloads ask it for clients; the runner asks it for what the nodes said. Whether the nodes are
processes, containers, hosts, a real Apache Kafka or objects in the simulator's world is hidden behind this page:
a new kind is one module of `tribunal.clusters.kinds` with one value, `KIND = Kind(launch=launch, ...)`, whose `launch` returns
an object with the methods of `Cluster`, and those of `tribunal.clusters.capabilities` that it claims.

Words: a *link* is a directed pair of nodes; clients count as node 0, all of them together (a client library does
not choose its source address). Times are ns of the run's clock. A *proof* is what was seen, as plain JSON-able
facts, with the one bit that follows from it: a fault without effect must never pass for a fault.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

import msgspec

from replog.types import TopicPartition
from tribunal.clusters.capabilities import Capability, FaultTarget
from tribunal.clusters.clock import RunClock, ago_ns
from tribunal.clusters.objects import ObjectClient, ObjectOperation
from tribunal.clusters.obstacles import Obstacle
from tribunal.clusters.orders import Order, OrderSeen
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.values import (
    CLIENTS,
    BrokerState,
    ClusterError,
    ClusterState,
    CutMode,
    Declined,
    Link,
    NotServing,
    PartitionState,
    Proof,
    Refused,
    Unsettled,
    Unsupported,
)
from tribunal.results.described import Described
from tribunal.results.values import value_in

__all__ = [
    "CLIENTS",
    "BrokerState",
    "ClusterError",
    "ClusterSpec",
    "ClusterState",
    "CutMode",
    "Declined",
    "FaultTarget",
    "Link",
    "NotServing",
    "Order",
    "OrderSeen",
    "PartitionState",
    "Proof",
    "Refused",
    "TopicPartition",
    "Unsettled",
    "Unsupported",
]

Acks = Literal[0, 1, -1]


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a node's event file, or what the harness itself saw of the node's process."""

    node: int
    name: str
    node_ns: int | None
    at_ns: int
    fields: Mapping[str, object]


class MetadataEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One committed metadata record.

    at_ns:       when the harness saw it.
    stamped_ns:  what the controller's wall clock said, None where nothing is stamped.
    """

    metadata_offset: int
    quorum_epoch: int
    at_ns: int
    stamped_ns: int | None
    record_type: str
    topic: str | None
    topic_id: str | None
    partition: int | None
    body: Mapping[str, object]


class RequestSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One message between nodes, as it was seen on its way."""

    source: int
    target: int
    api_key: int
    api_version: int
    correlation_id: int
    direction: str
    fate: str
    at_ns: int
    summary: str


class Content(Protocol):
    """A record as somebody has it, all but where it stands; `log_append_time` None: nobody says whose the timestamp is."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Its headers."""

    @property
    def timestamp_ms(self) -> int | None:
        """Its timestamp."""

    @property
    def log_append_time(self) -> bool | None:
        """Whether a broker stamped it."""

    @property
    def foreign_value(self) -> bytes | None:
        """Its value, where that is none of ours."""


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
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    log_append_time: bool | None = None
    topic_id: str | None = None
    foreign_value: bytes | None = None


class DumpedLog(NamedTuple):
    """A replica's log as it lies on its disk at the end, also one without records.

    log_start_offset:  where its first file begins.
    log_end_offset:    where its last file begins: the log ends there or behind its last record.
    """

    node: int
    topic: str
    partition: int
    topic_id: str | None
    log_start_offset: int
    log_end_offset: int
    entries: Iterator[LogEntry]


class Delivery(NamedTuple):
    """How a send ended (docs/verdicts.md, facts): `ok`, `sent` (acks=0), `fail` (surely not in the log), `info`."""

    outcome: Literal["ok", "fail", "info", "sent"]
    error: str | None
    log_offset: int | None
    leader_epoch: int | None
    attempts: int | None
    answered_by: int | None = None
    producer: tuple[int, int] | None = None  # producer id and epoch
    topic_id: str | None = None  # of the topic that it stands in, where who acknowledged it said so


class ReceivedRecord(NamedTuple):
    """A record that a consumer got."""

    log_offset: int
    key: bytes | None
    value: bytes | None
    leader_epoch: int | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    log_append_time: bool | None = None

    @property
    def foreign_value(self) -> bytes | None:
        """Its value, where that is none of ours."""
        return self.value if value_in(self.value) is None else None


class PartitionPoll(msgspec.Struct, kw_only=True):
    """What one poll brought for one partition; watermarks as the last fetch answer showed them, else None.

    leader_epoch:  the partition's, as the one who answered had it, or as the client knew it when it asked.
    topic_id:      of the topic that was read, where the answer says so: there may be another one of that name.
    asked_s:       when the question of that answer was sent, or before, by the clock of `moment_s`; None where that is not known.
    """

    partition: TopicPartition
    position: int  # where this poll began to read
    records: list[ReceivedRecord]
    error: str | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    next_position: int | None = None  # where reading goes on, when no record says it: behind transaction markers
    answered_by: int | None = None
    leader_epoch: int | None = None
    topic_id: str | None = None
    asked_s: float | None = None


class Offsets(NamedTuple):
    """Answer of ListOffsets for one partition: earliest and latest, or why not.

    answered_s:  when it came, by the clock of `moment_s`: another leader that is asked at once may keep all waiting.
    asked_s:     when it was asked for, or before, by the same clock.
    """

    partition: TopicPartition
    log_start_offset: int | None
    latest_offset: int | None
    leader_epoch: int | None
    error: str | None
    answered_s: float | None = None
    answered_by: int | None = None
    asked_s: float | None = None

    def age_ns(self) -> int:
        """Return how long ago it came."""
        return 0 if self.answered_s is None else ago_ns(self.answered_s)


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's behaviour. Idempotent producers retry inside; the others do not ask for retries."""

    acks: Acks
    idempotent: bool
    delivery_timeout_ms: int
    request_timeout_ms: int
    linger_ms: int = 2
    batches_in_flight: int = 1  # at most, of an idempotent producer to one partition; replog's own client
    transactional_id: str | None = None


class Producer(Protocol):
    """Sends records; never raises for what a broker said: that is in the `Delivery`."""

    def send(
        self, partition: TopicPartition, key: bytes | None, value: bytes, done: Callable[[Delivery], None]
    ) -> int | None:
        """Offer one record; return the timestamp (ms) that it carries, None where it carries none.

        `done` is called once, on the event loop, possibly before this returns.
        """

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
    """Who a consumer is in its group, None where that is not known."""

    generation: int | None
    member: str | None


class Answered(NamedTuple):
    """How a call ended that has no other result: `ok`, `fail` (surely without effect), `info`.

    answered_by:  the node that said so; None: nobody knows.
    """

    outcome: Literal["ok", "fail", "info"]
    error: str | None
    answered_by: int | None = None


class Committed(NamedTuple):
    """Answer of OffsetFetch: what the group committed (None: nothing), or why there is no answer.

    answered_by:  the node that said so; None: nobody knows.
    """

    offsets: Mapping[TopicPartition, int | None]
    error: str | None
    answered_by: int | None = None


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
        """Producer id and epoch, None where that is not known."""

    async def begin(self, timeout_ms: int) -> bool:
        """Begin a transaction; False when none can be begun in this time."""

    def send(
        self, partition: TopicPartition, key: bytes | None, value: bytes, done: Callable[[Delivery], None]
    ) -> int | None:
        """Offer one record of the transaction; see `Producer.send`."""

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

    async def delete_topic(self, topic: str, timeout_ms: int) -> None:
        """Ask for a topic to be deleted; replicas may be there yet when it returns. `ClusterError` when nobody takes it on."""

    async def offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: int, *, stable: bool = False
    ) -> list[Offsets]:
        """Ask each leader for earliest and latest offset; `stable`: latest is the last stable offset."""

    async def close(self) -> None:
        """Release everything."""


class TopicSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as an operator sees it: its id, and each partition's replicas."""

    topic_id: UUID
    replicas: Mapping[int, tuple[int, ...]]


class Operator(Protocol):
    """Orders what operators order. `Refused`: surely nothing was done; any other `ClusterError`: nobody knows."""

    @property
    def left_in_doubt(self) -> bool:
        """Whether an attempt before the one that was answered last may be carried out yet."""

    async def topics(self) -> dict[str, TopicSeen]:
        """Return all topics but internal ones, by name."""

    async def groups(self) -> list[str]:
        """Return all groups that some broker knows of."""

    async def transactional_ids(self) -> list[str]:
        """Return all transactional ids that some broker knows of."""

    async def describe_transaction(self, transactional_id: str) -> None:
        """Ask what a transactional id is doing."""

    async def describe_producers(self, partition: TopicPartition) -> None:
        """Ask which producers a partition's leader knows."""

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, settings: Mapping[str, str]
    ) -> UUID:
        """Create a topic; return its id."""

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic."""

    async def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have so many partitions."""

    async def delete_records(self, partition: TopicPartition, offset: int) -> None:
        """Delete a partition's records before an offset."""

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings; None: back to the default."""

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Ask for these replicas; none: give up a reassignment under way."""

    async def elect(self, partition: TopicPartition, kind: Literal["preferred", "unclean"]) -> None:
        """Elect a partition's leader."""

    async def delete_group(self, group: str) -> None:
        """Delete a group; refused while it has members."""

    async def alter_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Set a group's position; refused while it has members."""

    async def delete_offset(self, group: str, partition: TopicPartition) -> None:
        """Delete a group's position."""

    async def fence_producer(self, transactional_id: str) -> None:
        """Let nobody go on under this transactional id as it is now: its transaction is aborted."""

    async def close(self) -> None:
        """Release everything."""


class ClientFactory(Protocol):
    """Makes clients that reach the brokers through their links; those of a system that is no log call operations on objects.

    `Unsupported`: for a client that the cluster does not have. The plan has asked before (`Kind.has_log`, `Kind.operations`).
    """

    def objects(self, client_id: str) -> ObjectClient:
        """Make a caller of operations."""

    def producer(self, settings: ProducerSettings, client_id: str) -> Producer:
        """Make a producer."""

    def consumer(
        self, client_id: str, isolation: Literal["read_uncommitted", "read_committed"], *, finds_end: bool = False
    ) -> Consumer:
        """Make a consumer; where brokers have racks (`ClusterSpec.racks`) and clients know theirs, it reads from the replica of one.

        finds_end:  its polls say where a log ends behind markers of transactions (`PartitionPoll.next_position`); of who reads what is committed they always do.
        """

    def admin(self, client_id: str) -> Admin:
        """Make an admin client."""

    def operator(self, client_id: str) -> Operator:
        """Make an operator."""

    def group_consumer(self, settings: GroupSettings, client_id: str) -> GroupConsumer:
        """Make a member of a group; it joins with its first poll."""

    def transactional_producer(
        self, transactional_id: str, transaction_timeout_ms: int, client_id: str
    ) -> TransactionalProducer:
        """Make a producer of transactions; it asks for its identity with its first one."""


class Cluster(FaultTarget, Protocol):
    """A running cluster: what faults may look at (and, each by its capability, do), and what the runner and the clients need."""

    @property
    def kind(self) -> str:
        """Name of the kind, as on the command line."""

    @property
    def place(self) -> str | None:
        """Where its nodes live, in a few words; None where there is no choice."""

    @property
    def described(self) -> Described | None:
        """What a described system is made of; None of any other."""

    @property
    def clients(self) -> ClientFactory:
        """Clients that reach the brokers through their links."""

    def clock_offset_ns(self, node: int) -> int:
        """Return by how much a node's monotonic clock is ahead of the harness's; 0 where they read the same one."""

    def process_ids(self) -> Mapping[int, int]:
        """Return the processes of this machine in which nodes run now, by node; none of nodes that run elsewhere."""

    def drain_events(self) -> list[NodeEvent]:
        """Return what nodes reported since the last call."""

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""

    def drain_requests(self) -> list[RequestSeen]:
        """Return the messages between nodes that were seen since the last call."""

    def drain_orders(self) -> list[OrderSeen]:
        """Return what was ordered as an operator does since the last call."""

    async def shut_down(self) -> None:
        """End every node; disks stay readable."""

    async def answers(self, node: int) -> bool:
        """Return whether a node's process exists and answers a request now, past all links."""

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Return where each log on a broker's disk ends now, by `topic-partition`; None where the disk cannot be read while it runs."""

    def final_logs(self) -> Iterator[DumpedLog]:
        """Read every replica's log from the disks, after `shut_down`."""

    async def close(self) -> None:
        """Leave nothing behind: no process, port, cut. Safe at any moment, also twice."""


Launch = Callable[[ClusterSpec, Path, RunClock, str], Awaitable[Cluster]]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of cluster: how one is launched, what can be done to it, and what there is to know before and afterwards.

    launch:        starts a cluster (spec, the run's folder, clock, cluster id); whatever goes wrong, nothing of it stays.
    capabilities:  what its clusters can do to themselves.
    is_simulated:  its nodes live in virtual time: they cost nothing, and leave nothing outside of the harness's process.
    least:         the least values that its nodes accept, by setting.
    places:        tells where nodes live on this machine; empty: there is no choice.
    obstacles:     tells why it cannot be had on this machine.
    lacking:       tells which of the capabilities this machine does not give, and why.
    has_releases:  a spec may name the release of the software that its nodes run.
    is_mixed:      a spec says which of its nodes are Apache Kafka (`ClusterSpec.kafka`).
    can_be_secured:  a spec may ask for TLS, logins and an authorizer (`ClusterSpec.security`).
    is_there_already:  a spec names the file of a cluster that its user has (`ClusterSpec.file`).
    of_whole_nodes:  tells which capabilities a spec's cluster has for whole nodes, not for single links: the fault `isolate` alone needs no more.
    runs_systems:  it runs what a system.toml describes (`ClusterSpec.system`).
    has_log:       tells whether a spec's cluster has records, and with them the clients, partitions and metadata of a log.
    operations:    tells what clients of a spec's cluster can call on objects.
    missing:       tells which of the capabilities a cluster of this spec does not have, and why.
    refused:       tells why it cannot be what a spec asks for; empty: it can.
    prepare:       has what its nodes run by on this machine, also in the releases that they come to run, before a run has a folder; `ClusterError` in one
                   line where that is impossible.
    leftovers:     tells what a run of a folder has left.
    sweep:         ends what a run of a folder has left; returns what was done.
    commands_of:   tells which file's commands `sweep` runs on this machine; None: nobody's.
    end_own:       ends what of it needs no such command; returns what was done.
    """

    launch: Launch
    capabilities: frozenset[Capability]
    is_simulated: bool = False
    least: Mapping[str, int] = {}
    places: Callable[[], str] = lambda: ""
    obstacles: Callable[[], list[Obstacle]] = list
    lacking: Callable[[], Mapping[Capability, str]] = dict
    missing: Callable[[ClusterSpec], Mapping[Capability, str]] = lambda _: {}
    has_releases: bool = False
    is_mixed: bool = False
    can_be_secured: bool = False
    is_there_already: bool = False
    of_whole_nodes: Callable[[ClusterSpec], frozenset[Capability]] = lambda _: frozenset()
    runs_systems: bool = False
    has_log: Callable[[ClusterSpec], bool] = lambda _: True
    operations: Callable[[ClusterSpec], frozenset[ObjectOperation]] = lambda _: frozenset()
    refused: Callable[[ClusterSpec], str] = lambda _: ""
    prepare: Callable[[ClusterSpec, Sequence[str]], None] = lambda _, __: None
    leftovers: Callable[[Path], list[str]] = lambda _: []
    sweep: Callable[[Path], list[str]] = lambda _: []
    commands_of: Callable[[Path], Path | None] = lambda _: None
    end_own: Callable[[Path], list[str]] = lambda _: []


async def until(
    holds: Callable[[], bool], *, timeout_ms: int, what: str, poll_ms: int = 20, cluster: FaultTarget | None = None
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
