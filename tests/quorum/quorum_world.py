"""Quorum members joined by an in-memory network in virtual time: the cores, no shell.

One heap of happenings, one seeded `Random`: same seed, same run. A member's disk is a list of batches of which a
prefix is synced, plus the quorum-state file; a crash keeps what was synced and, of the rest, as much as chance allows.
After every event the world checks what must always hold (docs/invariants.md: I1, I3, I14, I15) and raises `Broken` if it does not.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from replog.config import Endpoint
from replog.quorum import events
from replog.quorum.events import Event, Failure
from replog.quorum.log_shape import LogShape
from replog.quorum.messages import (
    BatchSpan,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchAnswer,
    FetchRequest,
    FetchSnapshotAnswer,
    FetchSnapshotRequest,
    OffsetAndEpoch,
    Reply,
    Request,
    VoteAnswer,
    VoteRequest,
)
from replog.quorum.quorum import Quorum
from replog.quorum.quorum_state import Settings
from replog.quorum.roles import Leader
from replog.quorum.state_file import StoredQuorumState, decode, encode
from replog.quorum.voters import ReplicaKey, voter_set
from replog.types import NO_NODE, NodeId

CLUSTER = "tribunal-test"
REPEAT_MS = 1500


class Broken(AssertionError):
    """The cluster did what no cluster may do."""


@dataclass
class Batch:
    span: BatchSpan
    content: str


@dataclass
class MemberDisk:
    directory_id: UUID
    state_file: bytes = b""
    batches: list[Batch] = field(default_factory=list)
    start_offset: int = 0
    synced_offset: int = 0
    snapshots: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].span.end_offset if self.batches else self.start_offset

    def outline(self) -> LogShape:
        epochs: list[tuple[int, int]] = []
        for batch in self.batches:
            if not epochs or epochs[-1][0] < batch.span.epoch:
                epochs.append((batch.span.epoch, batch.span.base_offset))
        return LogShape(
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            synced_offset=self.synced_offset,
            epochs=epochs,
            snapshots=[(known, len(content)) for known, content in self.snapshots.items()],
            voters=[(batch.span.base_offset, batch.span.voters) for batch in self.batches if batch.span.voters],
        )

    def cut(self, end_offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.span.end_offset <= end_offset]
        assert self.end_offset == min(self.end_offset, end_offset)
        self.synced_offset = min(self.synced_offset, self.end_offset)


class Member:
    """A node: its core while it runs, its disk for ever."""

    def __init__(self, node_id: NodeId, directory_id: UUID) -> None:
        self.node_id = node_id
        self.disk = MemberDisk(directory_id)
        self.core: Quorum | None = None
        self.incarnation = 0
        self.committed = 0
        self.leading: int | None = None
        self.download = b""
        self.tick_at: int | None = None
        self.tokens: dict[int, tuple[Member, int, int]] = {}  # token -> (asker, its incarnation, its request id)
        self.next_token = 0
        self.probes: dict[str, int] = {}


class World:
    """A quorum, its network and its clock."""

    def __init__(
        self,
        seed: int,
        voters: int | Iterable[int] = 3,
        observers: int = 0,
        *,
        settings: Settings | None = None,
        directories: bool = True,
        pre_vote_supported: bool = True,
    ) -> None:
        self.random = Random(seed)
        self.settings = settings or Settings()
        self.now_ms = 0
        numbers = range(101, 101 + voters) if isinstance(voters, int) else voters
        self.voters = [NodeId(number) for number in numbers]
        ids = [*self.voters, *(NodeId(1 + index) for index in range(observers))]
        self.directories = directories
        self.members = {node_id: Member(node_id, self._directory()) for node_id in ids}
        self.cuts: dict[tuple[NodeId, NodeId], None] = {}
        self.drop = self.duplicate = 0.0
        self.latency_ms = (1, 3)
        self.sync_ms = (0, 2)
        self.pre_vote_supported = pre_vote_supported
        self.events = 0
        self.standard_votes = 0
        self.transcript: list[str] | None = None
        self._said_ms: dict[str, int] = {}
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._leaders: dict[int, NodeId] = {}
        self._votes: dict[tuple[NodeId, int], NodeId] = {}
        self._epochs: dict[NodeId, int] = {}
        self._committed: list[tuple[int, str] | None] = []

    def _directory(self) -> UUID:
        return UUID(int=self.random.getrandbits(128)) if self.directories else UUID(int=0)

    # --- start and kill

    def start(self, *node_ids: NodeId) -> None:
        for node_id in node_ids or tuple(self.members):
            member = self.members[node_id]
            assert member.core is None
            member.incarnation += 1
            member.committed = member.disk.start_offset
            member.tokens, member.leading, member.tick_at = {}, None, None
            member.core = self.core_of(member)
            self.deliver(member, events.Started(now_ms=self.now_ms))

    def core_of(self, member: Member) -> Quorum:
        return Quorum(
            me=ReplicaKey(member.node_id, member.disk.directory_id),
            cluster_id=CLUSTER,
            voters=voter_set(ReplicaKey(voter) for voter in self.voters),
            endpoints={voter: Endpoint(f"node-{voter}", 9000 + voter) for voter in self.voters},
            settings=self.settings,
            log=member.disk.outline(),
            stored=decode(member.disk.state_file),
            draw=self.random.randrange,
        )

    def crash(self, node_id: NodeId, *, lose_unsynced: bool = True) -> None:
        """Kill a member; with `lose_unsynced` chance decides how much of the unsynced tail is on the disk."""
        member = self.members[node_id]
        member.core = None
        self.note(f"{node_id} crashes")
        if lose_unsynced:
            unsynced = [batch for batch in member.disk.batches if batch.span.end_offset > member.disk.synced_offset]
            lost = self.random.randint(0, len(unsynced))
            if lost:
                del member.disk.batches[-lost:]
        # Whatever is there after a restart has been read back from the disk.
        member.disk.synced_offset = member.disk.end_offset

    def wipe(self, node_id: NodeId) -> None:
        member = self.members[node_id]
        assert member.core is None
        self.note(f"{node_id} loses its disk")
        member.disk = MemberDisk(self._directory())
        # What a member without memory does does not count as its promise any more.
        self._epochs.pop(node_id, None)
        for node, epoch in [key for key in self._votes if key[0] == node_id]:
            del self._votes[node, epoch]

    def cut(self, one: Iterable[NodeId], other: Iterable[NodeId], *, both_ways: bool = True) -> None:
        others = list(other)
        for here in one:
            for there in others:
                self.cuts[here, there] = None
                if both_ways:
                    self.cuts[there, here] = None

    def isolate(self, node_id: NodeId) -> None:
        self.note(f"{node_id} is cut off")
        self.cut([node_id], [other for other in self.members if other != node_id])

    def heal(self) -> None:
        self.note("the network heals")
        self.cuts.clear()
        self.drop = self.duplicate = 0.0

    # --- time

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 60_000) -> None:
        end_ms = self.now_ms + limit_ms
        while not condition():
            if not self._heap or self._heap[0][0] > end_ms:
                raise Broken(f"nothing came of it within {limit_ms} ms: {self.describe()}")
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()

    # --- events and effects

    def deliver(self, member: Member, event: Event) -> None:
        assert member.core is not None
        self.events += 1
        for effect in member.core.handle(event):
            self.perform(member, effect)
        self._watch(member)
        self._arm(member)

    def _arm(self, member: Member) -> None:
        assert member.core is not None
        deadline_ms = member.core.next_deadline_ms
        if deadline_ms is None or (member.tick_at is not None and self.now_ms <= member.tick_at <= deadline_ms):
            return
        member.tick_at = max(deadline_ms, self.now_ms)
        incarnation, due_ms = member.incarnation, member.tick_at

        def tick() -> None:
            if member.core is not None and member.incarnation == incarnation and member.tick_at == due_ms:
                member.tick_at = None
                self.deliver(member, events.Tick(now_ms=self.now_ms))

        self.at(due_ms - self.now_ms, tick)

    def perform(self, member: Member, effect: events.Effect) -> None:
        disk = member.disk
        match effect:
            case events.Persist(state=state):
                disk.state_file = encode(state)
                self._watch_vote(member, state)
            case events.Send():
                self._send(member, effect)
            case events.Answered(token=token, answer=answer):
                self._reply(member, token, answer)
            case events.AppendRecords(base_offset=base, epoch=epoch, records=records):
                for index, record in enumerate(records):
                    assert isinstance(record, bytes)
                    disk.batches.append(Batch(BatchSpan(base + index, base + index + 1, epoch), record.decode()))
            case events.AppendLeaderChange(base_offset=base, epoch=epoch):
                disk.batches.append(Batch(BatchSpan(base, base + 1, epoch), f"leader {effect.leader_id}"))
            case events.AppendVoters(base_offset=base, epoch=epoch, voters=voters):
                disk.batches.append(Batch(BatchSpan(base, base + 1 + effect.with_version, epoch, voters), "voters"))
            case events.AppendFetched(records=records, batches=spans):
                contents = bytes(records).decode().split("\n")
                disk.batches += [Batch(span, content) for span, content in zip(spans, contents, strict=True)]
            case events.SyncLog(sync_id=sync_id, end_offset=end_offset):
                self._sync(member, sync_id, end_offset)
            case events.TruncateLog(end_offset=end_offset):
                disk.cut(end_offset)
            case events.Committed(high_watermark=high_watermark):
                self._watch_commit(member, high_watermark)
            case events.Leading(epoch=epoch):
                member.leading = epoch
            case events.Resigned():
                member.leading = None
            case events.Probe(name=name):
                member.probes[name] = member.probes.get(name, 0) + 1
            case events.LeaderChanged():
                self.note(f"{member.node_id} knows {self._who(effect.leader_id)} of epoch {effect.epoch}")
            case events.Note(text=text):
                self.note(f"{member.node_id} says: {text}")
            case _:
                self._perform_snapshot(member, effect)

    def _perform_snapshot(self, member: Member, effect: events.Effect) -> None:
        disk = member.disk
        match effect:
            case events.StoreSnapshotChunk(position=position, content=content):
                member.download = member.download[:position] + bytes(content)
            case events.InstallSnapshot(snapshot=snapshot):
                disk.batches, disk.snapshots = [], {snapshot: member.download}
                disk.start_offset = disk.synced_offset = snapshot.offset
                member.committed = snapshot.offset
            case events.MoveLogStart(offset=offset):
                disk.batches = [batch for batch in disk.batches if batch.span.base_offset >= offset]
                disk.start_offset = offset
                disk.snapshots = {known: text for known, text in disk.snapshots.items() if known.offset >= offset}
            case _:
                raise AssertionError(effect)

    def _sync(self, member: Member, sync_id: int, end_offset: int) -> None:
        incarnation, batches = member.incarnation, [id(batch) for batch in member.disk.batches]

        def synced() -> None:
            if member.core is None or member.incarnation != incarnation:
                return
            if [id(batch) for batch in member.disk.batches[: len(batches)]] == batches:
                member.disk.synced_offset = max(member.disk.synced_offset, end_offset)
            self.deliver(member, events.Synced(now_ms=self.now_ms, sync_id=sync_id))

        self.at(self.random.randint(*self.sync_ms), synced)

    def append(self, *contents: str) -> bool:
        """Append through whoever leads; False when nobody does."""
        for member in self.members.values():
            if member.core is not None and member.core.is_leading:
                for content in contents:
                    event = events.AppendAsked(now_ms=self.now_ms, count=1, records=(content.encode(),))
                    self.deliver(member, event)
                return True
        return False

    # --- network

    def _send(self, member: Member, effect: events.Send) -> None:
        target, incarnation = self.members[effect.to], member.incarnation
        self.note(f"{member.node_id} -> {effect.to}: {described(effect.request)}", effect.request)
        if isinstance(effect.request, VoteRequest):
            if not effect.request.pre_vote:
                self.standard_votes += 1
            elif not self.pre_vote_supported:
                self._fail(member, effect.request_id, Failure.UNSUPPORTED_VERSION)
                return
        if target.core is None:
            self._fail(member, effect.request_id, Failure.LOST)
            return
        for delay_ms in self._deliveries(member.node_id, effect.to):
            self.at(delay_ms, lambda: self._receive(target, member, incarnation, effect))

    def _fail(self, member: Member, request_id: int, failure: Failure) -> None:
        incarnation = member.incarnation

        def fail() -> None:
            if member.core is not None and member.incarnation == incarnation:
                event = events.Unanswered(now_ms=self.now_ms, request_id=request_id, failure=failure)
                self.deliver(member, event)

        self.at(1, fail)

    def _deliveries(self, here: NodeId, there: NodeId) -> list[int]:
        if (here, there) in self.cuts or self.random.random() < self.drop:
            return []
        copies = 2 if self.random.random() < self.duplicate else 1
        return [self.random.randint(*self.latency_ms) for _ in range(copies)]

    def _receive(self, target: Member, asker: Member, incarnation: int, effect: events.Send) -> None:
        if target.core is None:
            return
        target.next_token += 1
        target.tokens[target.next_token] = (asker, incarnation, effect.request_id)
        event = events.Received(now_ms=self.now_ms, token=target.next_token, request=effect.request)
        self.deliver(target, event)

    def _reply(self, member: Member, token: int, answer: Reply) -> None:
        asker, incarnation, request_id = member.tokens.pop(token)
        answer = self._filled(member, answer)
        self.note(f"{member.node_id} => {asker.node_id}: {described_answer(answer)}", answer)

        def arrive() -> None:
            if asker.core is not None and asker.incarnation == incarnation:
                event = events.Replied(now_ms=self.now_ms, request_id=request_id, answer=answer)
                self.deliver(asker, event)

        for delay_ms in self._deliveries(member.node_id, asker.node_id):
            self.at(delay_ms, arrive)

    def _filled(self, member: Member, answer: Reply) -> Reply:
        """Put what the answer names into it, as the shell does."""
        changes: dict[str, object] = {}
        if isinstance(answer, FetchAnswer) and answer.read_offset >= 0:
            chosen = [batch for batch in member.disk.batches if batch.span.base_offset >= answer.read_offset]
            chosen = [batch for batch in chosen if batch.span.end_offset <= answer.read_end][
                : self.random.randint(1, 9)
            ]
            changes = {
                "batches": tuple(batch.span for batch in chosen),
                "records": "\n".join(batch.content for batch in chosen).encode(),
                "read_offset": -1,
                "read_end": -1,
            }
        elif isinstance(answer, FetchSnapshotAnswer) and answer.length and answer.snapshot:
            content = member.disk.snapshots[answer.snapshot]
            changes = {"content": content[answer.position : answer.position + answer.length]}
        fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
        return type(answer)(**(fields | changes))

    # --- what must always hold

    def _watch(self, member: Member) -> None:
        core = member.core
        assert core is not None
        if core.epoch < self._epochs.get(member.node_id, 0):
            raise Broken(f"epoch of {member.node_id} fell to {core.epoch}")
        self._epochs[member.node_id] = core.epoch
        if isinstance(core.role, Leader):
            known = self._leaders.setdefault(core.epoch, member.node_id)
            if known != member.node_id:
                raise Broken(f"{known} and {member.node_id} both lead epoch {core.epoch}")
        if (core.log.end_offset, core.log.start_offset) != (member.disk.end_offset, member.disk.start_offset):
            raise Broken(f"{member.node_id}: outline {core.log.end} is not the log {member.disk.end_offset}")

    def _watch_vote(self, member: Member, state: StoredQuorumState) -> None:
        if state.voted is not None:
            known = self._votes.setdefault((member.node_id, state.epoch), state.voted.node_id)
            if known != state.voted.node_id:
                raise Broken(f"{member.node_id} voted twice in epoch {state.epoch}")

    def _watch_commit(self, member: Member, high_watermark: int) -> None:
        if high_watermark < member.committed:
            raise Broken(f"high watermark of {member.node_id} fell to {high_watermark}")
        for batch in member.disk.batches:
            if member.committed <= batch.span.base_offset < high_watermark:
                self._compare_committed(batch)
        member.committed = high_watermark

    def _compare_committed(self, batch: Batch) -> None:
        offset = batch.span.base_offset
        while len(self._committed) <= offset:
            self._committed.append(None)
        fact = (batch.span.epoch, batch.content)
        known = self._committed[offset]
        if known is not None and known != fact:
            raise Broken(f"offset {offset} was committed as {known} and as {fact}")
        self._committed[offset] = fact

    # --- questions

    def alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.core is not None]

    def core(self, node_id: NodeId) -> Quorum:
        core = self.members[node_id].core
        assert core is not None, f"{node_id} is down"
        return core

    def leader(self) -> NodeId:
        """Return who leads the highest epoch, NO_NODE if nobody does."""
        leading = [(core.epoch, core.leader_id) for core in self._cores() if core.is_leading]
        return max(leading)[1] if leading else NO_NODE

    def agrees(self) -> bool:
        """Return whether all living members follow one leader and have the same log, all of it committed."""
        cores = self._cores()
        if self.leader() == NO_NODE or len({(core.epoch, core.leader_id) for core in cores}) != 1:
            return False
        return len({(core.log.end_offset, core.high_watermark) for core in cores}) == 1 and all(
            core.high_watermark == core.log.end_offset for core in cores
        )

    def _cores(self) -> list[Quorum]:
        return [member.core for member in self.members.values() if member.core is not None]

    def epochs(self) -> list[int]:
        return [core.epoch for core in self._cores()]

    def lost(self, node_id: NodeId) -> list[int]:
        """Return offsets that were committed somewhere and read otherwise in this member's log, or are not there."""
        disk = self.members[node_id].disk
        held = {batch.span.base_offset: (batch.span.epoch, batch.content) for batch in disk.batches}
        offsets = range(disk.start_offset, len(self._committed))
        return [at for at in offsets if self._committed[at] is not None and held.get(at) != self._committed[at]]

    def committed(self) -> list[str]:
        return [entry[1] for entry in self._committed if entry is not None]

    def probes(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for member in self.members.values():
            for name, count in member.probes.items():
                total[name] = total.get(name, 0) + count
        return total

    def describe(self) -> str:
        return "; ".join(
            f"{member.node_id} {type(member.core.role).__name__} epoch {member.core.epoch} leader "
            f"{member.core.leader_id} log ({member.core.log.last_epoch}, {member.core.log.end_offset}) "
            f"committed {member.core.high_watermark}"
            for member in self.alive()
            if member.core is not None
        )

    # --- transcript

    def note(self, line: str, message: Request | Reply | None = None) -> None:
        """Write a line of the transcript. Left out: fetches, unless they diverge, and what was said a moment ago."""
        if self.transcript is None or isinstance(message, FetchRequest):
            return
        if isinstance(message, FetchAnswer) and message.diverging is None:
            return
        if message is not None and self.now_ms - self._said_ms.get(line, -REPEAT_MS) < REPEAT_MS:
            return
        self._said_ms[line] = self.now_ms
        self.transcript.append(f"{self.now_ms:>6} ms  {line}")

    def _who(self, leader_id: NodeId) -> str:
        return "no leader" if leader_id == NO_NODE else f"leader {leader_id}"


def described(request: Request) -> str:
    match request:
        case VoteRequest():
            kind = "pre-vote" if request.pre_vote else "vote"
            return f"{kind} epoch {request.epoch}, log ({request.last_epoch}, {request.last_offset})"
        case BeginQuorumEpochRequest():
            return f"begin epoch {request.epoch}"
        case EndQuorumEpochRequest():
            return f"end epoch {request.epoch}, next {[key.node_id for key in request.preferred]}"
        case FetchRequest():
            return f"fetch {request.fetch_offset} epoch {request.epoch}"
        case FetchSnapshotRequest():
            return f"fetch snapshot {request.snapshot} at {request.position}"


def described_answer(answer: Reply) -> str:
    leader = "no leader" if answer.leader_id == NO_NODE else f"leader {answer.leader_id}"
    error = (answer.top_error or answer.error).name
    known = f"epoch {answer.epoch}, {leader}"
    match answer:
        case VoteAnswer():
            said = ("granted" if answer.granted else "refused") if error == "NONE" else error
            return f"{said} ({known})"
        case FetchAnswer(diverging=OffsetAndEpoch() as diverging):
            return f"diverging at ({diverging.epoch}, {diverging.offset}) ({known})"
        case _:
            return f"{'yes' if error == 'NONE' else error} ({known})"
