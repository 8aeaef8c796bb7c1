"""A node's part of the metadata quorum: the core (`replog.quorum`) carried out on a disk, a network and a clock.

Controllers vote, brokers observe; the code is the same. Effects are performed strictly in order. What concerns the state
machine (committed records, leadership) goes to the `QuorumListener` afterwards, in order too, when every effect of the
event is done: so a listener may append from within a call. Syncing the log runs beside; the only effects that wait for it
are those that would take files away under it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from replog.config import Endpoint, NodeConfig, Voter
from replog.controller.authorization import BY_NODES, Operation, of_cluster
from replog.controller.served_api import ServedApi, without_message
from replog.errors import Error
from replog.log.log import Flush, Log
from replog.node.fault_injection_points import linger, strikes
from replog.node.net.handlers import AnswersApi, HandledApi
from replog.node.net.server import AnyRequest, ServerRequest
from replog.node.quorum.description import description
from replog.node.quorum.metadata_log import CommittedBatch, MetadataLog, directory_id_of
from replog.node.quorum.peers import QuorumPeers
from replog.ports import World
from replog.quorum import events
from replog.quorum.events import Effect, Event, Failure
from replog.quorum.log_shape import FORMATTED_WITH
from replog.quorum.messages import (
    FetchAnswer,
    FetchSnapshotAnswer,
    OffsetAndEpoch,
    Reply,
    Request,
    VoterChangeAnswer,
    VoterChangeRequest,
)
from replog.quorum.quorum import Quorum
from replog.quorum.quorum_state import Settings
from replog.quorum.roles import Role
from replog.quorum.translate import MAX_FETCH_BYTES, answer_to_wire, from_wire
from replog.quorum.voter_changes import change_answer_to_wire, change_from_wire
from replog.quorum.voters import ReplicaKey, bootstrap_server, voter_set
from replog.types import METADATA_TOPIC, ZERO_UUID, NodeId, QuorumEpoch
from replog.wire.exchange import Q, R
from replog.wire.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from replog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

ChangeQ = TypeVar(
    "ChangeQ",
    add_raft_voter.AddRaftVoterRequest,
    remove_raft_voter.RemoveRaftVoterRequest,
    update_raft_voter.UpdateRaftVoterRequest,
)

BATCH_BYTES_MAX: Final = 1 << 20
NOTICE_BYTES: Final = 1 << 20  # of committed records that go to the listener in one turn of the event loop


class NotLeading(Exception):
    """The quorum is led by another node, or by nobody: nothing was appended."""


class SnapshotReader(Protocol):
    """A snapshot of the state machine: what it holds replaces everything."""

    @property
    def end_offset(self) -> int:
        """First offset that is not contained."""

    @property
    def epoch(self) -> int:
        """Epoch of the last record contained."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the record values."""


class QuorumListener(Protocol):
    """The state machine above the log."""

    def on_committed(self, base_offset: int, epoch: int, records: list[tuple[int, bytes]]) -> None:
        """Apply the records (offset, value) of one committed batch; batches come in offset order."""

    def on_snapshot(self, reader: SnapshotReader) -> None:
        """Start over from a snapshot; committed batches go on at its end offset."""

    def on_leading(self, epoch: QuorumEpoch, next_offset: int) -> None:
        """Begin to act: everything before this epoch is applied; the next record gets this offset or a later one."""

    def on_resigned(self, epoch: QuorumEpoch) -> None:
        """Stop acting: what was appended and is not committed may never be."""

    def on_leader_changed(self, leader: NodeId, epoch: QuorumEpoch) -> None:
        """Know who leads (NO_NODE: nobody known)."""


Notice = events.Committed | events.InstallSnapshot | events.Leading | events.Resigned | events.LeaderChanged


class Snapshot:
    """A snapshot on this node's disk."""

    def __init__(self, log: MetadataLog, snapshot: OffsetAndEpoch) -> None:
        self.end_offset = snapshot.offset
        self.epoch = snapshot.epoch
        self._log = log
        self._id = snapshot

    def __iter__(self) -> Iterator[bytes]:
        return self._log.snapshot_values(self._id)


def _endpoints(config: NodeConfig) -> dict[NodeId, Endpoint]:
    """Return where the configured voters are, and the bootstrap servers but this node itself."""
    own = {address for one in config.listeners.controllers for address in (one.endpoint, one.advertised)}
    servers = (address for address in config.bootstrap_servers if address not in own)
    voters = {voter.node_id: voter.endpoint for voter in config.voters}
    return voters | {bootstrap_server(position): address for position, address in enumerate(servers)}


class QuorumNode:
    """One node's part in the quorum."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        log: Log,
        listener: QuorumListener,
        *,
        directory_id: UUID | None = None,
    ) -> None:
        """Take the open metadata log (`open_metadata_log`); the caller closes it after `stop` or `close`.

        directory_id: None reads `meta.properties` of the metadata log directory.
        """
        self._world = world
        self._config = config
        self._listener = listener
        self._log = MetadataLog(world, log)
        if directory_id is None:
            directory_id = directory_id_of(world.disk, config.metadata_log_dir)
        self._core = Quorum(
            me=ReplicaKey(config.node_id, directory_id),
            cluster_id=config.cluster_id,
            voters=voter_set(ReplicaKey(voter.node_id) for voter in config.voters),
            endpoints=_endpoints(config),
            settings=Settings.of(config.quorum),
            log=self._log.outline(),
            stored=self._log.stored_state(),
            draw=world.entropy.random("quorum elections").randrange,
        )
        self._peers = QuorumPeers(
            world,
            f"quorum-{config.node_id}",
            config.controller_access,
            request_timeout_ms=config.quorum.request_timeout_ms,
            on_answer=self._on_answer,
            on_failure=self._on_failure,
        )
        self._events: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._notices: deque[Notice] = deque()
        self._requests: dict[int, AnyRequest] = {}
        self._next_token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._to_drop: events.MoveLogStart | None = None
        self._left: asyncio.Event | None = None
        self._notifying = False
        self._closed = False
        self._applied_offset = log.log_start_offset
        self._acting_epoch: QuorumEpoch | None = None
        self.bytes_since_snapshot = 0

    # --- start and stop

    def start(self) -> None:
        """Take part in the quorum. Stored state comes first: a snapshot goes to the listener before this returns."""
        latest = self._core.log.latest_snapshot
        if latest not in (None, FORMATTED_WITH):
            self._notify_snapshot(latest)
        self._take(events.Started(now_ms=self._now_ms))

    async def stop(self) -> None:
        """Leave in good order: a leader hands over before it goes, if anybody is there to take over."""
        self._left = asyncio.Event()
        self._take(events.ShutDownAsked(now_ms=self._now_ms))
        try:
            async with asyncio.timeout(self._config.quorum.request_timeout_ms / 1000):
                await self._left.wait()
        except TimeoutError:
            self._world.journal.log("info", "left the quorum without a word from the others")
        if self._syncing is not None:
            await asyncio.wait([self._syncing])  # the caller closes the files next
        self.close()

    def close(self) -> None:
        """Stop at once, without a word."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._syncing is not None:
            self._syncing.cancel()
        self._peers.close()

    def resign(self) -> None:
        """Stop leading, if this node does."""
        self._take(events.ResignAsked(now_ms=self._now_ms))

    # --- questions

    @property
    def leader(self) -> tuple[NodeId, QuorumEpoch, Endpoint | None]:
        """Who leads (NO_NODE: nobody known), which epoch, and how this node reaches it."""
        return self._core.leader_id, self._core.epoch, self._core.leader_endpoint

    @property
    def is_leading(self) -> bool:
        """Whether this node leads and its state machine was notified of it."""
        return self._acting_epoch is not None and self._core.is_leading and self._core.epoch == self._acting_epoch

    @property
    def high_watermark(self) -> int:
        """First offset not known to be committed."""
        return self._core.high_watermark

    @property
    def applied_offset(self) -> int:
        """First offset that has not gone to the listener."""
        return self._applied_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset."""
        return self._core.log.end_offset

    @property
    def log_end(self) -> OffsetAndEpoch:
        """Where its log ends."""
        return self._core.log.end

    @property
    def voter_directories(self) -> dict[NodeId, UUID]:
        """The members of the quorum by this node's log, with the directories that they vote with."""
        return {voter.node_id: voter.directory_id for voter in self._core.voters.members}

    @property
    def is_voter(self) -> bool:
        """Whether this node is a member of the quorum."""
        return self._core.is_voter

    @property
    def role(self) -> Role:
        """What it is in its epoch."""
        return self._core.role

    @property
    def has_voted(self) -> bool:
        """Whether it gave its vote away in its epoch."""
        return self._core.voted is not None

    @property
    def voters(self) -> list[Voter]:
        """The members of the quorum, with where they listen as far as this node knows."""
        members = [(node_id, self._core.endpoint_of(node_id)) for node_id in self._core.voters.ids]
        return [Voter(node_id, address) for node_id, address in members if address is not None]

    @property
    def voter_directories_known(self) -> bool:
        """Whether the log names every voter's directory: from then on a wiped voter is found out."""
        return all(voter.directory_id != ZERO_UUID for voter in self._core.voters.members)

    @property
    def has_voters_in_log(self) -> bool:
        """Whether it is committed that the log says who votes, and with which directories (kraft.version 1, KIP-853)."""
        committed = [voters for offset, voters in self._core.log.voters if offset < self._core.high_watermark]
        return bool(committed) and all(voter.directory_id != ZERO_UUID for voter in committed[-1])

    # --- the leader's log

    def append(self, records: Sequence[bytes], *, atomic: bool = True) -> int:
        """Append records and return the first one's offset; `NotLeading` when that is not for us.

        They are in the log, not yet committed: `on_committed` follows. With `atomic` they are one batch, committed
        together or not at all; without, large amounts become several.
        """
        assert records, "nothing to append"
        if self._closed or not self.is_leading:
            raise NotLeading(f"node {self._config.node_id} does not lead epoch {self._core.epoch}")
        base_offset = self.log_end_offset
        for chunk in [tuple(records)] if atomic else _chunks(records):
            self._take(events.AppendAsked(now_ms=self._now_ms, count=len(chunk), records=chunk))
        return base_offset

    def take_snapshot(self, values: Iterable[bytes]) -> None:
        """Write the state machine's state, as of the last notification, and let older log go in time."""
        offset = self._applied_offset
        latest = self._core.log.latest_snapshot
        if latest is not None and latest.offset >= offset:
            return
        snapshot = OffsetAndEpoch(offset, self._core.log.epoch_before(offset))
        log = self._core.log
        size = self._log.write_snapshot(snapshot, values, log.voters_before(offset), log.endpoints)
        self.bytes_since_snapshot = 0
        self._world.journal.probe("quorum_snapshot_taken")
        self._take(events.SnapshotTaken(now_ms=self._now_ms, snapshot=snapshot, size=size))

    # --- requests of others

    def describe(self, request: ServerRequest[DescribeQuorumRequest, DescribeQuorumResponse]) -> None:
        """DescribeQuorum."""
        wall_ms = self._world.clock.wall_ms() - self._now_ms
        request.reply(description(request.body, self._core, self.voters, self._now_ms, wall_ms))

    def receive(self, request: ServerRequest[Q, R]) -> None:
        """Let the quorum decide on a request of another member."""
        self._decide(request, from_wire(request.version, request.body))

    def change_voters(self, request: ServerRequest[ChangeQ, R]) -> None:
        """Let the quorum decide on a change of its members."""
        self._decide(request, change_from_wire(request.body))

    def _decide(self, request: ServerRequest[Q, R], translated: Request | VoterChangeRequest) -> None:
        self._next_token += 1
        self._requests[self._next_token] = cast(AnyRequest, request)
        self._take(events.Received(now_ms=self._now_ms, token=self._next_token, request=translated))

    def _reply(self, token: int, answer: Reply | VoterChangeAnswer) -> None:
        request = self._requests.pop(token)
        if request.is_answered:
            return  # its connection is gone
        if isinstance(answer, VoterChangeAnswer):
            request.reply(change_answer_to_wire(answer))
            return
        content = b""
        if isinstance(answer, FetchAnswer) and answer.read_offset >= 0:
            content = self._log.read(answer.read_offset, answer.read_end, MAX_FETCH_BYTES)
        elif isinstance(answer, FetchSnapshotAnswer) and answer.length and answer.snapshot is not None:
            content = self._log.read_snapshot(answer.snapshot, answer.position, answer.length)
        request.reply(answer_to_wire(answer, request.version, content))

    # --- events

    @property
    def _now_ms(self) -> int:
        return self._world.clock.now_ms()

    def _take(self, event: Event) -> None:
        self._events.append(event)
        self._go_on()

    def _go_on(self) -> None:
        """Perform what is queued, in order, as far as a sync under way permits."""
        while not self._closed:
            if self._effects:
                if self._syncing is not None and isinstance(self._effects[0], _TAKES_FILES_AWAY):
                    return
                self._perform(self._effects.popleft())
            elif self._events:
                self._effects.extend(self._core.handle(self._events.popleft()))
            else:
                break
        self._arm()
        self._tell()
        if self._left is not None and self._core.has_left:
            self._left.set()

    def _perform(self, effect: Effect) -> None:
        _PERFORM[type(effect)](self, effect)

    def _notice(self, effect: Notice) -> None:
        if isinstance(effect, events.InstallSnapshot):
            self._log.install(effect.snapshot)
            # The records that the listener was not notified of yet went with the log; the snapshot holds what came of them.
            gone = (events.Committed, events.InstallSnapshot)
            self._notices = deque(notice for notice in self._notices if not isinstance(notice, gone))
            named = self._log.snapshot_voters(effect.snapshot)
            if named is not None and named.voters is not None:
                # Before any event of the network: who votes is part of what was installed.
                event = events.SnapshotVoters(
                    now_ms=self._now_ms, snapshot=effect.snapshot, voters=named.voters, endpoints=named.endpoints
                )
                self._events.appendleft(event)
        elif isinstance(effect, events.LeaderChanged):
            self._world.journal.event("quorum_leader", epoch=effect.epoch, leader=effect.leader_id)
        self._notices.append(effect)

    def _truncate(self, effect: events.TruncateLog) -> None:
        before = self._log.truncate(effect.end_offset)
        self._world.journal.event(
            "truncated",
            topic=METADATA_TOPIC,
            partition=0,
            from_offset=before,
            to_offset=effect.end_offset,
            leader_epoch=self._core.epoch,
        )

    def _move_start(self, effect: events.MoveLogStart) -> None:
        # Later while a sync is under way, and alone: a leader that waited with all its effects would hand out the offset of
        # one append twice, and know neither of records of its own nor that it leads no more.
        if self._syncing is not None:
            self._to_drop = effect
            return
        self._to_drop = None
        self._log.move_start(effect.offset, self._core.high_watermark)

    def _sync(self, effect: events.SyncLog) -> None:
        flush = self._log.log.begin_flush()
        loop = asyncio.get_running_loop()
        self._syncing = loop.create_task(self._make_durable(flush))
        self._syncing.add_done_callback(partial(self._synced, flush, effect.sync_id))

    async def _make_durable(self, flush: Flush) -> None:
        await self._world.disk.sync_in_background(flush.files)
        await linger(self._world, "metadata's sync is noticed late")

    def _synced(self, flush: Flush, sync_id: int, task: "asyncio.Task[None]") -> None:
        if self._closed or task.cancelled():
            return
        task.result()  # an OSError ends the node: what the disk holds is unknown now
        self._syncing = None
        self._log.log.complete_flush(flush)
        self._log.note_synced()
        if self._to_drop is not None:
            self._move_start(self._to_drop)
        self._take(events.Synced(now_ms=self._now_ms, sync_id=sync_id))

    def _on_answer(self, request_id: int, answer: Reply) -> None:
        self._take(events.Replied(now_ms=self._now_ms, request_id=request_id, answer=answer))

    def _on_failure(self, request_id: int, failure: Failure) -> None:
        self._take(events.Unanswered(now_ms=self._now_ms, request_id=request_id, failure=failure))

    def _arm(self) -> None:
        deadline_ms = self._core.next_deadline_ms
        if deadline_ms == self._armed_ms or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_ms = deadline_ms
        if deadline_ms is not None:
            # The clock's milliseconds are cut off, so this is late by less than one, never early.
            delay_ms = max(deadline_ms - self._now_ms, 1)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = self._armed_ms = None
        if not self._closed:
            self._take(events.Tick(now_ms=self._now_ms))

    # --- the listener

    def _tell(self) -> None:
        """Notify the listener, in order; many notifications take several turns."""
        if self._notifying:
            return
        self._notifying = True
        try:
            budget_bytes = 1 if strikes(self._world, "metadata is told bit by bit") else NOTICE_BYTES
            while self._notices and not self._closed:
                notice = self._notices[0]
                if isinstance(notice, events.Committed):
                    budget_bytes = self._notify_committed(notice.high_watermark, budget_bytes)
                    if self._applied_offset < notice.high_watermark:
                        asyncio.get_running_loop().call_soon(self._tell)
                        return
                self._notices.popleft()
                self._notify_notice(notice)
        finally:
            self._notifying = False

    def _notify_committed(self, high_watermark: int, budget_bytes: int) -> int:
        while self._applied_offset < high_watermark and budget_bytes > 0:
            for batch in self._log.committed(self._applied_offset, high_watermark):
                self._notify_batch(batch)
                budget_bytes -= batch.size_bytes
        return budget_bytes

    def _notify_batch(self, batch: CommittedBatch) -> None:
        self._applied_offset = batch.next_offset
        self.bytes_since_snapshot += batch.size_bytes
        if batch.records:
            self._listener.on_committed(batch.base_offset, batch.epoch, batch.records)

    def _notify_notice(self, notice: Notice) -> None:
        match notice:
            case events.Committed():
                pass
            case events.InstallSnapshot():
                self._notify_snapshot(notice.snapshot)
            case events.Leading():
                if self._core.is_leading and self._core.epoch == notice.epoch:
                    self._acting_epoch = notice.epoch
                    self._listener.on_leading(notice.epoch, self.log_end_offset)
            case events.Resigned():
                if self._acting_epoch is not None:
                    self._acting_epoch = None
                    self._listener.on_resigned(notice.epoch)
            case events.LeaderChanged():
                self._listener.on_leader_changed(notice.leader_id, notice.epoch)

    def _notify_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        self._applied_offset = snapshot.offset
        self.bytes_since_snapshot = 0
        self._listener.on_snapshot(Snapshot(self._log, snapshot))


def _chunks(records: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Yield the records in order, in portions that make batches of a size to be copied in one fetch."""
    chunk: list[bytes] = []
    size = 0
    for record in records:
        if chunk and size + len(record) > BATCH_BYTES_MAX:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(record)
        size += len(record)
    yield tuple(chunk)


_TAKES_FILES_AWAY: Final = (events.TruncateLog, events.InstallSnapshot)  # both of followers

AnyEffect = TypeVar("AnyEffect", bound=events.Effect)


def _does(
    kind: type[AnyEffect], perform: Callable[[QuorumNode, AnyEffect], object]
) -> dict[type[msgspec.Struct], Callable[[QuorumNode, Effect], object]]:
    return {kind: cast("Callable[[QuorumNode, Effect], object]", perform)}


_PERFORM: Final = {
    **_does(events.Persist, lambda node, effect: node._log.store_state(effect.state)),
    **_does(events.Send, lambda node, effect: node._peers.send(effect)),
    **_does(events.Answered, lambda node, effect: node._reply(effect.token, effect.answer)),
    **_does(events.AppendRecords, lambda node, effect: node._log.append_records(effect)),
    **_does(events.AppendLeaderChange, lambda node, effect: node._log.append_leader_change(effect)),
    **_does(events.AppendVoters, lambda node, effect: node._log.append_voters(effect)),
    **_does(events.AppendFetched, lambda node, effect: node._log.append_fetched(effect)),
    **_does(events.SyncLog, QuorumNode._sync),
    **_does(events.TruncateLog, QuorumNode._truncate),
    **_does(
        events.StoreSnapshotChunk,
        lambda node, effect: node._log.store_chunk(effect.snapshot, effect.position, effect.content),
    ),
    **_does(events.MoveLogStart, QuorumNode._move_start),
    **_does(events.InstallSnapshot, QuorumNode._notice),
    **_does(events.Committed, QuorumNode._notice),
    **_does(events.Leading, QuorumNode._notice),
    **_does(events.Resigned, QuorumNode._notice),
    **_does(events.LeaderChanged, QuorumNode._notice),
    **_does(events.Probe, lambda node, effect: node._world.journal.probe(effect.name)),
    **_does(events.Note, lambda node, effect: node._world.journal.log("info", f"quorum: {effect.text}")),
}


def _refused_fetch(body: fetch.FetchRequest, error: Error) -> fetch.FetchResponse:
    """Say it at the top and of each partition: before version 7 there is no top."""
    responses = [
        fetch.FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                fetch.PartitionData(partition_index=one.partition, error_code=error, high_watermark=-1)
                for one in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return fetch.FetchResponse(error_code=error, responses=responses)


VOTE: Final = HandledApi(ServedApi(vote.EXCHANGE, questions=BY_NODES), QuorumNode.receive)
BEGIN_QUORUM_EPOCH: Final = HandledApi(ServedApi(begin_quorum_epoch.EXCHANGE, questions=BY_NODES), QuorumNode.receive)
END_QUORUM_EPOCH: Final = HandledApi(ServedApi(end_quorum_epoch.EXCHANGE, questions=BY_NODES), QuorumNode.receive)
FETCH: Final = HandledApi(  # of the metadata log
    ServedApi(fetch.EXCHANGE, questions=BY_NODES, refuse=_refused_fetch), QuorumNode.receive
)
FETCH_SNAPSHOT: Final = HandledApi(ServedApi(fetch_snapshot.EXCHANGE, questions=BY_NODES), QuorumNode.receive)
ADD_RAFT_VOTER: Final = HandledApi(
    ServedApi(
        add_raft_voter.EXCHANGE,
        questions=(of_cluster(Operation.ALTER),),
        refuse=without_message(add_raft_voter.EXCHANGE),
    ),
    QuorumNode.change_voters,
)
REMOVE_RAFT_VOTER: Final = HandledApi(
    ServedApi(
        remove_raft_voter.EXCHANGE,
        questions=(of_cluster(Operation.ALTER),),
        refuse=without_message(remove_raft_voter.EXCHANGE),
    ),
    QuorumNode.change_voters,
)
UPDATE_RAFT_VOTER: Final = HandledApi(
    ServedApi(update_raft_voter.EXCHANGE, questions=BY_NODES), QuorumNode.change_voters
)
DESCRIBE_QUORUM: Final = HandledApi(
    ServedApi(
        describe_quorum.EXCHANGE,
        questions=(of_cluster(Operation.DESCRIBE),),
        refuse=without_message(describe_quorum.EXCHANGE),
        changes_nothing=True,
    ),
    QuorumNode.describe,
)
APIS: Final[tuple[AnswersApi[QuorumNode], ...]] = (
    VOTE,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
    DESCRIBE_QUORUM,
)
