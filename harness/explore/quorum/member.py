"""One member of a small quorum: the product's `Quorum`, with a disk that is a list of batches.

What is written is durable at once here: a sync is over before anything else happens. A request of an asker to a peer is known by
the two of them, because a member awaits at most one answer of each peer; so no counter is part of a state.

Each member has its own clock, which jumps to the next deadline when the world lets its time pass and stands still otherwise. A state
knows deadlines as distances from now.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from replog.config import Endpoint
from replog.quorum import events
from replog.quorum.log_shape import LogShape
from replog.quorum.messages import (
    BatchSpan,
    FetchAnswer,
    Reply,
    Request,
    VoterChange,
    VoterChangeAnswer,
    VoterChangeRequest,
)
from replog.quorum.quorum import Quorum
from replog.quorum.quorum_state import SafetyViolation, Settings
from replog.quorum.roles import Candidate, Follower, Leader, Progress, Prospective, ResignedLeader, Role, Unattached
from replog.quorum.state_file import StoredQuorumState
from replog.quorum.voters import ReplicaKey, voter_set
from replog.types import NodeId

CLUSTER: Final = "explored"
SETTINGS: Final = Settings(
    election_timeout_ms=1_000,
    fetch_timeout_ms=2_000,
    election_backoff_max_ms=0,
    request_timeout_ms=2_000,
    retry_backoff_ms=0,
    fetch_wait_ms_max=0,
)
OPERATOR: Final = -1  # whose requests nobody waits for here
ID_BEYOND_ALL: Final = 1_000_000
FOREVER_MS: Final = 1 << 40

Written = tuple[BatchSpan, str]


class Sent(msgspec.Struct, frozen=True):
    """A request that is to go to a peer."""

    to: NodeId
    request: Request


class Answer(msgspec.Struct, frozen=True):
    """An answer that is to go to an asker."""

    asker: NodeId
    answer: Reply


class Seen(NamedTuple):
    """What invariants and readers look at, of one member."""

    alive: bool
    directory: int
    role: str
    epoch: int
    leader: NodeId
    high_watermark: int
    log: tuple[Written, ...]
    voters: tuple[ReplicaKey, ...]
    is_voter: bool
    leads: bool  # and has committed a record of its epoch
    awaits: tuple[NodeId, ...]
    failed: str  # an assertion of its own


def no_chance(_: int) -> int:
    """Draw the least: time limits are drawn by the world, which decides whose time passes."""
    return 0


def key_of(node: NodeId, directory: int) -> ReplicaKey:
    """Return the name of a member with its n-th disk."""
    return ReplicaKey(node, UUID(int=(node << 8) + directory))


class SmallMember:
    """A member and its disk."""

    def __init__(self, node: NodeId, configured: tuple[NodeId, ...]) -> None:
        self.node = node
        self.configured = configured
        self.directory = 0
        self.stored: StoredQuorumState | None = None
        self.log: list[Written] = []
        self.core: Quorum | None = None
        self.now_ms = 0
        self.failed = ""

    # --- events

    def start(self) -> list[Sent | Answer]:
        """Start with what is on the disk."""
        epochs: list[tuple[int, int]] = []
        for span, _ in self.log:
            if not epochs or epochs[-1][0] < span.epoch:
                epochs.append((span.epoch, span.base_offset))
        self.core = Quorum(
            me=key_of(self.node, self.directory),
            cluster_id=CLUSTER,
            voters=voter_set(ReplicaKey(node) for node in self.configured),
            endpoints={node: Endpoint("explored", 9000 + node) for node in self.configured},
            settings=SETTINGS,
            log=LogShape(
                end_offset=self.log[-1][0].end_offset if self.log else 0,
                epochs=epochs,
                voters=[(span.base_offset, span.voters) for span, _ in self.log if span.voters],
            ),
            stored=self.stored,
            draw=no_chance,
        )
        return self._handle(events.Started(now_ms=self.now_ms))

    def crash(self, *, loses_disk: bool) -> None:
        """End the process; and, if asked, replace its disk by an empty one."""
        self.core = None
        if loses_disk:
            self.directory += 1
            self.stored, self.log = None, []

    def tick(self) -> list[Sent | Answer]:
        """Let time pass until the next deadline."""
        deadline_ms = self._running().next_deadline_ms
        if deadline_ms is not None:
            self.now_ms = max(self.now_ms, deadline_ms)
        return self._handle(events.Tick(now_ms=self.now_ms))

    def receive(self, asker: NodeId, request: Request) -> list[Sent | Answer]:
        """Take a request of a peer."""
        return self._handle(events.Received(now_ms=self.now_ms, token=asker, request=request))

    def take(self, peer: NodeId, answer: Reply) -> list[Sent | Answer]:
        """Take a peer's answer."""
        return self._handle(events.Replied(now_ms=self.now_ms, request_id=peer, answer=answer))

    def append(self, content: str) -> list[Sent | Answer]:
        """Append a record, as the leader's state machine does."""
        return self._handle(events.AppendAsked(now_ms=self.now_ms, count=1, records=(content.encode(),)))

    def add_voter(self, voter: ReplicaKey) -> list[Sent | Answer]:
        """Let an operator ask for another voter."""
        request = VoterChangeRequest(
            change=VoterChange.ADD,
            voter=voter,
            endpoint=Endpoint("explored", 9000 + voter.node_id),
            timeout_ms=FOREVER_MS,
        )
        return self._handle(events.Received(now_ms=self.now_ms, token=OPERATOR, request=request))

    # --- what the shell does

    def _handle(self, event: events.Event) -> list[Sent | Answer]:
        core, sent, due = self._running(), list[Sent | Answer](), [event]
        try:
            while due:
                for effect in core.handle(due.pop(0)):
                    self._perform(effect, sent, due)
        except (SafetyViolation, AssertionError) as problem:
            self.failed = str(problem) or type(problem).__name__
            self.core = None
            return []
        peers = core._state.peers
        peers._in_flight = {peer: (peer, deadline_ms) for peer, (_, deadline_ms) in peers._in_flight.items()}
        peers._last_request_id = ID_BEYOND_ALL
        peers.expire(self.now_ms)  # pauses after failures, which are none here
        peers._failures.clear()
        return sent

    def _perform(self, effect: events.Effect, sent: list[Sent | Answer], due: list[events.Event]) -> None:
        match effect:
            case events.Persist(state=state):
                self.stored = state
            case events.Send(to=to, request=request):
                sent.append(Sent(to, request))
            case events.Answered(token=token, answer=answer):
                if token != OPERATOR:
                    assert not isinstance(answer, VoterChangeAnswer)
                    sent.append(Answer(NodeId(token), self._filled(answer)))
            case events.SyncLog(sync_id=sync_id):
                due.append(events.Synced(now_ms=self.now_ms, sync_id=sync_id))
            case _:
                self._write(effect)

    def _write(self, effect: events.Effect) -> None:
        match effect:
            case events.AppendRecords(base_offset=base, epoch=epoch, records=records):
                for index, record in enumerate(records):
                    assert isinstance(record, bytes)
                    self.log.append((BatchSpan(base + index, base + index + 1, epoch), record.decode()))
            case events.AppendLeaderChange(base_offset=base, epoch=epoch, leader_id=leader_id):
                self.log.append((BatchSpan(base, base + 1, epoch), f"leader {leader_id}"))
            case events.AppendVoters(base_offset=base, epoch=epoch, voters=voters, endpoints=endpoints):
                span = BatchSpan(base, base + 1 + effect.with_version, epoch, voters, endpoints)
                self.log.append((span, f"voters {[voter.node_id for voter in voters]}"))
            case events.AppendFetched(records=records, batches=spans):
                self.log += zip(spans, bytes(records).decode().split("\n"), strict=True)
            case events.TruncateLog(end_offset=end_offset):
                self.log = [one for one in self.log if one[0].end_offset <= end_offset]
            case _:
                pass  # what is announced to the state machine, probes, notes

    def _filled(self, answer: Reply) -> Reply:
        """Put what a fetch answer names into it."""
        if not isinstance(answer, FetchAnswer) or answer.read_offset < 0:
            return answer
        chosen = [one for one in self.log if answer.read_offset <= one[0].base_offset < answer.read_end]
        return msgspec.structs.replace(
            answer,
            batches=tuple(span for span, _ in chosen),
            records="\n".join(content for _, content in chosen).encode(),
            read_offset=-1,
            read_end=-1,
        )

    def _running(self) -> Quorum:
        assert self.core is not None
        return self.core

    # --- what is

    def seen(self) -> Seen:
        """Return what invariants look at."""
        core = self.core
        return Seen(
            alive=core is not None,
            directory=self.directory,
            role="down" if core is None else type(core.role).__name__,
            epoch=-1 if core is None else core.epoch,
            leader=NodeId(-1) if core is None else core.leader_id,
            high_watermark=0 if core is None else core.high_watermark,
            log=tuple(self.log),
            voters=() if core is None else core.voters.members,
            is_voter=core is not None and core.is_voter,
            leads=core is not None and core.is_leading,
            awaits=() if core is None else tuple(core._state.peers._in_flight),
            failed=self.failed,
        )

    def key(self) -> Hashable:
        """Return all that can matter to what it does next."""
        core = self.core
        if core is None:
            return self.node, self.seen(), self.stored
        state, now_ms = core._state, self.now_ms
        in_flight = tuple((peer, limit - now_ms) for peer, (_, limit) in state.peers._in_flight.items())
        return (
            self.node,
            self.seen(),
            self.stored,
            state.voted,
            in_flight,
            tuple(state._learned_endpoints),
            core._replication._next_bootstrap % 6,  # as many as there are orders of three
            _role_key(core.role, now_ms),
        )


def _role_key(role: Role, now_ms: int) -> Hashable:
    match role:
        case Unattached():
            return role.leader_id, _left(role.election_deadline_ms, now_ms)
        case Follower():
            return role.leader_id, _left(role.fetch_deadline_ms, now_ms), role.has_fetched, role.asks_anyone
        case Prospective() | Candidate():
            ballot = role.ballot
            left_ms = _left(role.election_deadline_ms, now_ms)
            return role.leader_id, left_ms, frozenset(ballot.granted), frozenset(ballot.refused), ballot._waived
        case ResignedLeader():
            return _left(role.election_deadline_ms, now_ms), tuple(role.unacknowledged), role.successors
        case Leader():
            return _leader_key(role, now_ms)


def _leader_key(role: Leader, now_ms: int) -> Hashable:
    change = role.voter_change
    return (
        role.epoch_start_offset,
        role.high_watermark,
        tuple(_progress_key(one, now_ms) for one in role.progress.values()),
        tuple(_progress_key(one, now_ms) for one in role.observers.values()),
        frozenset(role.fetched_voters),
        _left(role.check_quorum_deadline_ms, now_ms),
        _left(role.begin_deadline_ms, now_ms),
        None if change is None else (change.request, change.offset),
    )


def _progress_key(progress: Progress, now_ms: int) -> Hashable:
    # Of when a replica last fetched only matters whether it was a begin interval ago; of when it was caught up, whether it ever was.
    silent_ms = -1 if progress.last_fetch_ms < 0 else min(now_ms - progress.last_fetch_ms, SETTINGS.begin_interval_ms)
    return (
        progress.replica,
        progress.end_offset,
        silent_ms,
        progress.last_caught_up_ms >= 0,
        progress.end_offset_at_last_fetch,
        progress.needs_begin,
    )


def _left(deadline_ms: int, now_ms: int) -> int:
    return max(0, deadline_ms - now_ms)
