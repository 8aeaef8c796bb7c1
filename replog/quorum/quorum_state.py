"""Where a member stands: its epoch, its vote, its role, its log's outline, and the only code that changes them.

One method per transition (`become_<role>`); each asserts where it may come from, and queues what must be durable before
anything that follows from it (SPEC 1.1, 1.4). Forbidden for ever: a lower epoch, leading an epoch twice, following
oneself, a second leader in one epoch. The last would mean that committed metadata has split, so it stops the process.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from replog.config import Endpoint
from replog.config.quorum import QuorumConfig
from replog.config.setting import INT_MAX
from replog.errors import Error
from replog.quorum.events import Answered as AnsweredEffect
from replog.quorum.events import AppendLeaderChange, AppendVoters, Effect, Note, Persist, Probe, Send
from replog.quorum.events import Resigned as ResignedEffect
from replog.quorum.log_shape import LogShape
from replog.quorum.messages import BatchSpan, FetchAnswer, Request, VoterChangeAnswer
from replog.quorum.peers import Peers
from replog.quorum.roles import Ballot, Candidate, Follower, Leader, Prospective, ResignedLeader, Role, Unattached
from replog.quorum.state_file import StoredQuorumState
from replog.quorum.voters import ReplicaKey, VoterSet, is_bootstrap_server, voter_set
from replog.types import NO_NODE, NodeId, QuorumEpoch

EPOCH_MAX: Final = INT_MAX  # of messages and of the state file
_QUORUM: Final = QuorumConfig()


class SafetyViolation(AssertionError):
    """Two nodes remember different things that only one can be right about: stop, keep the evidence."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The quorum's time limits (SPEC 0.2)."""

    election_timeout_ms: int = _QUORUM.election_timeout_ms
    fetch_timeout_ms: int = _QUORUM.fetch_timeout_ms
    election_backoff_max_ms: int = _QUORUM.election_backoff_ms_max
    request_timeout_ms: int = _QUORUM.request_timeout_ms
    retry_backoff_ms: int = _QUORUM.retry_backoff_ms
    fetch_wait_ms_max: int = 500
    snapshot_chunk_bytes: int = 1 << 20

    @classmethod
    def of(cls, config: QuorumConfig) -> "Settings":
        """Return what a node's configuration says of them."""
        return cls(
            election_timeout_ms=config.election_timeout_ms,
            fetch_timeout_ms=config.fetch_timeout_ms,
            election_backoff_max_ms=config.election_backoff_ms_max,
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
        )

    @property
    def check_quorum_timeout_ms(self) -> int:
        """How long a leader goes on without fetches from a majority."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def fetch_wait_ms(self) -> int:
        """How long a leader may keep a fetch without news: an idle quorum must not let its own time-out pass."""
        return min(self.fetch_wait_ms_max, self.fetch_timeout_ms // 2)

    @property
    def begin_interval_ms(self) -> int:
        """How often a leader presents itself to voters that do not fetch."""
        return self.fetch_timeout_ms // 2


class QuorumState:
    """What election and replication share."""

    def __init__(
        self,
        *,
        me: ReplicaKey,
        cluster_id: str,
        voters: VoterSet,
        endpoints: Mapping[NodeId, Endpoint],
        settings: Settings,
        log: LogShape,
        draw: Callable[[int], int],
    ) -> None:
        self.me = me
        self.cluster_id = cluster_id
        self.settings = settings
        self.log = log
        self.epoch = QuorumEpoch(0)
        self.voted: ReplicaKey | None = None
        self.role: Role = Unattached(leader_id=NO_NODE, election_deadline_ms=0)
        # What the node applies: unlike a leader's own count it never goes back within one process (I3, docs/invariants.md).
        # A snapshot holds committed state only.
        self.high_watermark = max([log.start_offset, *(snapshot.offset for snapshot in log.snapshots)])
        self.shutting_down = False
        self.peers = Peers(request_timeout_ms=settings.request_timeout_ms, retry_backoff_ms=settings.retry_backoff_ms)
        self.outbox: list[Effect] = []
        self._configured_voters = voters
        # Asked with every event, new with a change of the voters only: the last answers, with what they were made of.
        self._written: tuple[tuple[ReplicaKey, ...], VoterSet] = (voters.members, voters)
        self._judged: tuple[VoterSet, bool] = (voters, voters.contains(me))
        self._configured_endpoints = dict(endpoints)
        self._bootstrap_servers = tuple(node_id for node_id in endpoints if is_bootstrap_server(node_id))
        self._learned_endpoints: dict[NodeId, Endpoint] = {}
        self._draw = draw

    # --- questions

    @property
    def voters(self) -> VoterSet:
        """The voter set in force: the last one in the log, else the configured one."""
        written = self.log.latest_voters
        if written is None:
            return self._configured_voters
        if written is not self._written[0]:
            self._written = (written, voter_set(written))
        return self._written[1]

    @property
    def bootstrap(self) -> tuple[NodeId, ...]:
        """Where to look for the leader: the configured voters, and those whom only the log names, but this node; bootstrap servers.

        All who are configured may have been removed; then none of them learns of the leader or can name it.
        """
        named = (voter for voter in self.voters.ids if self.endpoint_of(voter) is not None)
        known = dict.fromkeys((*self._configured_voters.ids, *named, *self._bootstrap_servers))
        return tuple(voter for voter in known if voter != self.me.node_id)

    @property
    def is_voter(self) -> bool:
        """Whether this node, with this directory, is a member of the quorum."""
        voters = self.voters
        if voters is not self._judged[0]:
            self._judged = (voters, voters.contains(self.me))
        return self._judged[1]

    @property
    def may_stand(self) -> bool:
        """Whether this node may ask for votes: as a voter, or as one of the last set where that it is out may never be committed.

        A leader that removes itself and ends may have the only log with that record: then nobody is elected without it
        (Raft's dissertation, 4.2.2: a server "that is not part of its own latest configuration should still start new elections").
        It does not count itself, and stands no more once it knows that its removal is committed (SPEC D20).
        Behind the last epoch there is none to stand in: no message and no state file can hold its number.
        """
        if self.epoch >= EPOCH_MAX:
            return False
        if self.is_voter:
            return True
        written = self.log.voters
        if not written or written[-1][0] < self.high_watermark:
            return False
        before = self.log.voters_before(written[-1][0])
        return (self._configured_voters if before is None else voter_set(before)).contains(self.me)

    @property
    def other_voters(self) -> list[NodeId]:
        """All members but this node, ascending."""
        return [voter for voter in self.voters.ids if voter != self.me.node_id]

    @property
    def leader_id(self) -> NodeId:
        """Who leads this epoch as far as this node knows."""
        return self.role.leader_id

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """Return how this node reaches another. Its own configuration wins: it may name a link of its own."""
        return (
            self._configured_endpoints.get(node_id)
            or self._learned_endpoints.get(node_id)
            or self.log.endpoints.get(node_id)
        )

    def append_voters(self, voters: tuple[ReplicaKey, ...]) -> int:
        """Write a voter set, and where its members listen; return its offset (KIP-853).

        The first of a log comes with the version that has voter sets in the log (kraft.version 1).
        """
        offset = self.log.end_offset
        is_first = not self.log.has_written_voters
        known = ((voter.node_id, self.endpoint_of(voter.node_id)) for voter in voters)
        endpoints = tuple((node_id, endpoint) for node_id, endpoint in known if endpoint is not None)
        self.log.append(BatchSpan(offset, offset + 1 + is_first, self.epoch, voters, endpoints))
        self.outbox.append(
            AppendVoters(
                base_offset=offset, epoch=self.epoch, voters=voters, endpoints=endpoints, with_version=is_first
            )
        )
        return offset

    def learn_endpoint(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """Remember where a node says it listens."""
        self._learned_endpoints[node_id] = endpoint

    def election_deadline_ms(self, now_ms: int) -> int:
        """Draw the election deadline: one to two election timeouts from now."""
        timeout_ms = self.settings.election_timeout_ms
        return now_ms + timeout_ms + self._draw(timeout_ms)

    def draw(self, below: int) -> int:
        """Draw a number from 0 up to below the bound."""
        return self._draw(below)

    # --- effects

    def persist(self) -> None:
        """Queue what must not be forgotten."""
        state = StoredQuorumState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted)
        self.outbox.append(Persist(state=state))

    def send(self, to: NodeId, request: Request, now_ms: int) -> None:
        """Queue a request to a peer."""
        request_id = self.peers.start(to, now_ms)
        self.outbox.append(Send(request_id=request_id, to=to, endpoint=self.endpoint_of(to), request=request))

    def probe(self, name: str) -> None:
        """Queue that a rare state was reached."""
        self.outbox.append(Probe(name=name))

    def note(self, text: str) -> None:
        """Queue a line for people."""
        self.outbox.append(Note(text=text))

    # --- start and adoption

    def start(self, stored: StoredQuorumState | None, now_ms: int) -> None:
        """Take up where the stored state left off (SPEC 1.3)."""
        stored = stored or StoredQuorumState()
        if stored.epoch < self.log.last_epoch:
            stored = StoredQuorumState(epoch=QuorumEpoch(self.log.last_epoch))
        self.epoch, self.voted = stored.epoch, stored.voted
        only_voter = self.is_voter and not self.other_voters
        deadline_ms = now_ms if only_voter else self.election_deadline_ms(now_ms)
        if stored.leader_id == self.me.node_id and only_voter:
            role: Role = Unattached(leader_id=NO_NODE, election_deadline_ms=deadline_ms)
        elif stored.leader_id == self.me.node_id:
            # Never lead again in this epoch: what was written but not flushed would be written differently.
            role = ResignedLeader(
                own_id=self.me.node_id,
                election_deadline_ms=deadline_ms,
                successors=(),
                unacknowledged=self.other_voters,
            )
        elif stored.voted == self.me and stored.leader_id == NO_NODE and self.may_stand:
            # With a leader stored the election is over: a candidate whose log has records of the very epoch it
            # stands in would ask for votes with an illegal log epoch (1.5.3; SPEC 1.3 names the rules the other way).
            role = Candidate(election_deadline_ms=deadline_ms, ballot=self._ballot())
        elif stored.leader_id != NO_NODE and self.endpoint_of(stored.leader_id) is not None:
            fetch_deadline_ms = now_ms + self.settings.fetch_timeout_ms
            role = Follower(leader_id=stored.leader_id, fetch_deadline_ms=fetch_deadline_ms)
        else:
            role = Unattached(leader_id=stored.leader_id, election_deadline_ms=deadline_ms)
        self._enter(role)

    def adopt(self, epoch: int, leader_id: NodeId, endpoint: Endpoint | None, now_ms: int) -> None:
        """Take in that somebody knows this epoch and perhaps its leader (SPEC 1.4, 1.6)."""
        if epoch < self.epoch:
            return
        if leader_id == self.me.node_id:
            self._adopt_own_past(epoch, now_ms)
            return
        if leader_id != NO_NODE and endpoint is not None:
            self._learned_endpoints[leader_id] = endpoint
        reachable = leader_id != NO_NODE and self.endpoint_of(leader_id) is not None
        if epoch > self.epoch:
            if reachable:
                self.become_follower(QuorumEpoch(epoch), leader_id, now_ms)
            else:
                self.become_unattached(QuorumEpoch(epoch), now_ms, leader_id=leader_id)
        elif leader_id != NO_NODE:
            self._refuse_second_leader(leader_id)
            if reachable and (self.leader_id == NO_NODE or isinstance(self.role, Unattached)):
                self.become_follower(self.epoch, leader_id, now_ms)

    def _adopt_own_past(self, epoch: int, now_ms: int) -> None:
        # Only a node whose disk was wiped learns of an epoch that it led itself and does not know.
        if epoch > self.epoch:
            self.become_unattached(QuorumEpoch(epoch), now_ms)
        else:
            self._refuse_second_leader(self.me.node_id)

    def _refuse_second_leader(self, leader_id: NodeId) -> None:
        if self.leader_id not in (NO_NODE, leader_id):
            raise SafetyViolation(
                f"inconsistent leader for epoch {self.epoch}: {self.leader_id} is known, {leader_id} is named"
            )

    # --- transitions

    def become_unattached(
        self,
        epoch: QuorumEpoch,
        now_ms: int,
        *,
        leader_id: NodeId = NO_NODE,
        election_deadline_ms: int | None = None,
    ) -> None:
        """Follow nobody; in a new epoch the vote is free again."""
        assert epoch >= self.epoch, f"epoch would fall from {self.epoch} to {epoch}"
        assert epoch > self.epoch or isinstance(self.role, Prospective | Candidate), self.role
        assert leader_id != self.me.node_id
        if election_deadline_ms is None:
            election_deadline_ms = self._carried_deadline_ms(now_ms)
        if epoch > self.epoch:
            self.epoch, self.voted = epoch, None
        self._enter(Unattached(leader_id=leader_id, election_deadline_ms=election_deadline_ms))

    def _carried_deadline_ms(self, now_ms: int) -> int:
        """Return the rest of a running election timeout, else a new one: no repeated full waits."""
        match self.role:
            case Unattached() | Candidate() | ResignedLeader() | Prospective():
                return self.role.election_deadline_ms
            case Follower() | Leader():
                return self.election_deadline_ms(now_ms)

    def become_follower(self, epoch: QuorumEpoch, leader_id: NodeId, now_ms: int) -> None:
        """Follow a leader; a vote given in the same epoch stays given."""
        assert epoch >= self.epoch, f"epoch would fall from {self.epoch} to {epoch}"
        assert leader_id not in (NO_NODE, self.me.node_id), "nobody follows itself"
        if epoch == self.epoch:
            assert not isinstance(self.role, Leader | ResignedLeader), "a leader does not follow in its own epoch"
            self._refuse_second_leader(leader_id)
        else:
            self.epoch, self.voted = epoch, None
        self._enter(Follower(leader_id=leader_id, fetch_deadline_ms=now_ms + self.settings.fetch_timeout_ms))

    def become_prospective(self, now_ms: int) -> None:
        """Ask whether an election could be won; nothing durable changes (KIP-996)."""
        assert isinstance(self.role, Unattached | Follower | Candidate), self.role
        assert self.may_stand, "observers do not stand for election"
        role = Prospective(
            leader_id=self.leader_id,
            election_deadline_ms=self.election_deadline_ms(now_ms),
            ballot=self._ballot(),
        )
        self._enter(role, durable=False)

    def become_candidate(self, now_ms: int) -> None:
        """Stand for election in the next epoch: the only place where a voter makes its own epoch grow for a vote."""
        assert isinstance(self.role, Prospective), self.role
        self.epoch, self.voted = QuorumEpoch(self.epoch + 1), self.me
        self._enter(Candidate(election_deadline_ms=self.election_deadline_ms(now_ms), ballot=self._ballot()))

    def _ballot(self) -> Ballot:
        return Ballot(self.voters, self.me.node_id, counts_own=self.is_voter)

    def become_leader(self, now_ms: int) -> None:
        """Lead: open the epoch in the log; whom to present oneself to follows from the progress."""
        assert isinstance(self.role, Candidate), self.role
        assert self.role.ballot.is_won
        granting = tuple(sorted(self.role.ballot.granted))
        start_offset = self.log.end_offset
        role = Leader(
            own_id=self.me.node_id,
            epoch=self.epoch,
            voters=self.voters,
            epoch_start_offset=start_offset,
            check_quorum_deadline_ms=now_ms + self.settings.check_quorum_timeout_ms,
            begin_deadline_ms=now_ms + self.settings.begin_interval_ms,
        )
        if self.me.node_id in role.progress:
            role.progress[self.me.node_id].end_offset = self.log.synced_offset
        self._enter(role)
        self.log.append(BatchSpan(start_offset, start_offset + 1, self.epoch))
        self.outbox.append(
            AppendLeaderChange(
                base_offset=start_offset,
                epoch=self.epoch,
                leader_id=self.me.node_id,
                voters=self.voters.members,
                granting=granting,
            )
        )
        if self.log.latest_voters is not None and not self.log.has_written_voters:
            # Others were formatted without the first voters: they learn of them from the log (KIP-853).
            self.append_voters(self.voters.members)

    def become_resigned(self, now_ms: int, reason: str) -> None:
        """Stop leading; the epoch stays, and with it the knowledge that this node led it."""
        assert isinstance(self.role, Leader), self.role
        role = ResignedLeader(
            own_id=self.me.node_id,
            election_deadline_ms=self.election_deadline_ms(now_ms),
            successors=self.role.successors(),
            unacknowledged=self.other_voters,
        )
        self._enter(role, durable=False)
        self.probe("quorum_leader_resigned")
        self.note(f"resigned from epoch {self.epoch}: {reason}")

    def _enter(self, role: Role, *, durable: bool = True) -> None:
        left, self.role = self.role, role
        self.peers.forget_all()
        if durable:
            self.persist()
        if isinstance(left, Leader):
            for parked in left.parked.values():
                self.outbox.append(
                    AnsweredEffect(token=parked.token, answer=self.refused_fetch(Error.NOT_LEADER_OR_FOLLOWER))
                )
            if left.voter_change is not None:
                change, error = left.voter_change, Error.NOT_LEADER_OR_FOLLOWER
                answer = VoterChangeAnswer(change=change.request.change, error=error, epoch=self.epoch)
                self.outbox.append(AnsweredEffect(token=change.token, answer=answer))
            self.outbox.append(ResignedEffect(epoch=left.epoch))

    def refused_fetch(self, error: Error) -> FetchAnswer:
        """Return a Fetch answer that says no, and who leads."""
        return FetchAnswer(
            error=error, epoch=self.epoch, leader_id=self.leader_id, endpoint=self.announced_endpoint(self.leader_id)
        )

    def announced_endpoint(self, node_id: NodeId) -> Endpoint | None:
        """Return the endpoint of a node that is sent to others."""
        return self.endpoint_of(node_id)
