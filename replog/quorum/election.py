"""Electing a leader: votes and pre-votes, both ends of them, and how leaders come and go (KIP-595, KIP-996).

A member that misses its leader first asks whether it would be elected (pre-vote, in its old epoch). A follower that
fetches successfully from a leader says no: so a member that was merely cut off disturbs nobody. Only after a majority
said yes does the epoch grow and a real, durable vote is asked for.
"""

from typing import Final, Protocol

from replog.config import Endpoint
from replog.errors import Error
from replog.quorum.messages import (
    Answer,
    BeginQuorumEpochAnswer,
    BeginQuorumEpochRequest,
    EndQuorumEpochAnswer,
    EndQuorumEpochRequest,
    VoteAnswer,
    VoteRequest,
)
from replog.quorum.quorum_state import EPOCH_MAX, QuorumState, SafetyViolation
from replog.quorum.roles import Candidate, Follower, Leader, Prospective, ResignedLeader, Unattached
from replog.quorum.voters import ReplicaKey, hand_over_delay_ms
from replog.types import NO_NODE, NodeId, QuorumEpoch

EPOCHS_AHEAD_MAX: Final = 1000  # of an epoch in a request that nobody asked for


class Addressed(Protocol):
    """What vote, begin and end requests have in common."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster it is meant for; None in requests that do not say."""

    @property
    def only_metadata(self) -> bool:
        """Whether it names exactly the metadata partition."""


def top_error(own_cluster_id: str, request: Addressed) -> Error:
    """Return why a request is not for this log at all (SPEC 1.5.1 and 1.5.2)."""
    if request.cluster_id is not None and request.cluster_id != own_cluster_id:
        return Error.INCONSISTENT_CLUSTER_ID
    return Error.NONE if request.only_metadata else Error.INVALID_REQUEST


def has_legal_log_end(request: VoteRequest) -> bool:
    """Return whether the candidate's claim about its log can be true.

    A candidate has raised its epoch above its log's; a prospective one has not (SPEC 1.5.3).
    """
    if request.last_offset < 0 or request.last_epoch < 0:
        return False
    return request.last_epoch <= request.epoch if request.pre_vote else request.last_epoch < request.epoch


class Election:
    """One member's part in electing a leader."""

    def __init__(self, state: QuorumState) -> None:
        self._state = state

    # --- answering

    def on_vote_request(self, request: VoteRequest, now_ms: int) -> VoteAnswer:
        """Answer a vote or pre-vote; the steps and their order are SPEC 1.5."""
        state = self._state
        refused = top_error(state.cluster_id, request)
        if refused is not Error.NONE:
            return VoteAnswer(top_error=refused)
        if not has_legal_log_end(request):
            return self._vote(Error.INVALID_REQUEST)
        if request.epoch < state.epoch:
            return self._vote(Error.FENCED_LEADER_EPOCH)
        if request.candidate.node_id < 0:
            return self._vote(Error.INVALID_REQUEST)
        if self._is_far_ahead(request.epoch):
            return self._vote(Error.UNKNOWN_LEADER_EPOCH)
        if request.epoch > state.epoch:
            state.become_unattached(QuorumEpoch(request.epoch), now_ms)
        if request.voter is not None and not request.voter.names(state.me):
            # KIP-853: the vote of a voter that lost its disk is worth nothing; it does not even answer.
            state.probe("vote_refused_wrong_voter")
            return self._vote(Error.INVALID_VOTER_KEY)
        granted = self._would_grant(request)
        if request.pre_vote:
            state.probe("prevote_granted" if granted else "prevote_refused")
        else:
            state.probe("vote_granted" if granted else "vote_refused")
            if granted:
                self._record_vote(request.candidate, now_ms)
        return self._vote(Error.NONE, granted=granted)

    def _would_grant(self, request: VoteRequest) -> bool:
        """Return whether this member grants the vote in its present role (SPEC 1.5.8)."""
        state = self._state
        covers = state.log.is_covered_by(request.last_epoch, request.last_offset)
        match state.role:
            case Leader():
                return False
            case Follower(has_fetched=has_fetched):
                # KIP-996, "Rejecting Pre-Vote requests received within fetch timeout": whoever fetches
                # has a live leader. The role ends with the fetch timeout, so no clock is needed here.
                return request.pre_vote and covers and not has_fetched
            case Candidate() | ResignedLeader():
                return request.pre_vote and covers
            case Unattached() | Prospective():
                if request.pre_vote:
                    return covers
                if state.voted is not None:
                    return state.voted.names(request.candidate)
                return state.leader_id == NO_NODE and covers

    def _record_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        state = self._state
        if state.voted is None:
            state.voted = candidate
            state.persist()
        if isinstance(state.role, Unattached):
            state.role.election_deadline_ms = state.election_deadline_ms(now_ms)

    def _vote(self, error: Error, *, granted: bool = False) -> VoteAnswer:
        leader_id, endpoint = self._leader()
        return VoteAnswer(error=error, epoch=self._state.epoch, leader_id=leader_id, endpoint=endpoint, granted=granted)

    def _leader(self) -> tuple[NodeId, Endpoint | None]:
        leader_id = self._state.leader_id
        return leader_id, self._state.announced_endpoint(leader_id)

    def on_begin_request(self, request: BeginQuorumEpochRequest, now_ms: int) -> BeginQuorumEpochAnswer:
        """Take in a leader that presents itself (SPEC 1.9.1)."""
        state = self._state
        refused = top_error(state.cluster_id, request)
        if refused is not Error.NONE:
            return BeginQuorumEpochAnswer(top_error=refused)
        error = self._adopt_sender(request.epoch, request.leader_id, request.endpoint, now_ms)
        if error is Error.NONE:
            # The leader itself speaks: no need to wait the pre-vote round out.
            if isinstance(state.role, Prospective) and state.endpoint_of(request.leader_id) is not None:
                state.become_follower(state.epoch, request.leader_id, now_ms)
            if request.voter is not None and not request.voter.names(state.me):
                error = Error.INVALID_VOTER_KEY
        leader_id, endpoint = self._leader()
        return BeginQuorumEpochAnswer(error=error, epoch=state.epoch, leader_id=leader_id, endpoint=endpoint)

    def on_end_request(self, request: EndQuorumEpochRequest, now_ms: int) -> EndQuorumEpochAnswer:
        """Take in that the leader goes; stand for election when our turn has come (SPEC 1.9.2)."""
        state = self._state
        refused = top_error(state.cluster_id, request)
        if refused is not Error.NONE:
            return EndQuorumEpochAnswer(top_error=refused)
        error = self._adopt_sender(request.epoch, request.leader_id, request.endpoint, now_ms)
        if error is Error.NONE and isinstance(state.role, Follower):
            places = [index for index, key in enumerate(request.preferred) if key.names(state.me)]
            delay_ms = hand_over_delay_ms(
                places[0] if places else None, len(request.preferred), state.settings.election_backoff_max_ms
            )
            state.role.fetch_deadline_ms = min(state.role.fetch_deadline_ms, now_ms + delay_ms)
        leader_id, endpoint = self._leader()
        return EndQuorumEpochAnswer(error=error, epoch=state.epoch, leader_id=leader_id, endpoint=endpoint)

    def _adopt_sender(self, epoch: int, leader_id: NodeId, endpoint: Endpoint | None, now_ms: int) -> Error:
        state = self._state
        if epoch < state.epoch:
            return Error.FENCED_LEADER_EPOCH
        if leader_id < 0 or leader_id == state.me.node_id:
            return Error.INVALID_REQUEST
        if endpoint is not None and not endpoint.is_usable:
            return Error.INVALID_REQUEST
        if state.log.latest_voters is None and leader_id not in state.voters.ids:
            return Error.INCONSISTENT_VOTER_SET  # the configuration is all there is: nobody else can have been elected
        if self._is_far_ahead(epoch):
            return Error.UNKNOWN_LEADER_EPOCH
        if epoch == state.epoch and state.leader_id not in (NO_NODE, leader_id):
            # Anybody may claim it. A true second leader ends itself when it is answered so (SPEC 1.1); this node,
            # which has the answers of nodes that it asked itself, goes on.
            state.probe("second_leader_refused")
            state.note(f"node {leader_id} claims epoch {epoch}, which node {state.leader_id} leads")
            return Error.INVALID_REQUEST
        state.adopt(epoch, leader_id, endpoint, now_ms)
        return Error.NONE

    def _is_far_ahead(self, epoch: int) -> bool:
        """Return whether an epoch is beyond what somebody who was not asked may bring us.

        Epochs end at 2^31-1, and who is there can never elect a leader again. A member that really is far ahead is
        asked by this node, as all members are, and then its answer is believed.
        """
        if epoch <= self._state.epoch + EPOCHS_AHEAD_MAX:
            return False
        self._state.probe("epoch_far_ahead_refused")
        return True

    # --- answers of other nodes

    def handle_epoch_and_leader(self, peer: NodeId, answer: Answer, now_ms: int) -> bool:
        """Apply what every answer says of epoch and leader; return True when nothing else is left to count (SPEC 1.6)."""
        state = self._state
        if answer.top_error is not Error.NONE or answer.error is Error.INVALID_REQUEST:
            self._on_refusal(peer, answer, now_ms)
            return True
        if answer.epoch < state.epoch:
            state.peers.failed(peer, now_ms)
            return True
        if answer.epoch > state.epoch or answer.error in (
            Error.FENCED_LEADER_EPOCH,
            Error.NOT_LEADER_OR_FOLLOWER,
        ):
            if not self._adopted(answer, now_ms):
                state.peers.failed(peer, now_ms)
            return True
        if (state.leader_id == NO_NODE or isinstance(state.role, Unattached)) and self._adopted(answer, now_ms):
            return True
        if answer.error is not Error.NONE:
            # INVALID_VOTER_KEY, UNKNOWN_LEADER_EPOCH, BROKER_NOT_AVAILABLE: not counted, asked again later.
            state.peers.failed(peer, now_ms)
            return True
        return False

    def _adopted(self, answer: Answer, now_ms: int) -> bool:
        """Take in the answer's epoch and leader; return whether that changed this node's role."""
        role = self._state.role
        self._state.adopt(answer.epoch, answer.leader_id, answer.endpoint, now_ms)
        return self._state.role is not role

    def _on_refusal(self, peer: NodeId, answer: Answer, now_ms: int) -> None:
        if Error.INVALID_REQUEST in (answer.top_error, answer.error):
            raise SafetyViolation(f"node {peer} calls our request invalid: {answer}")
        self._state.note(f"node {peer} refused with {answer.top_error.name}")
        self._state.peers.failed(peer, now_ms)

    def on_vote_answer(self, peer: NodeId, answer: VoteAnswer, now_ms: int) -> None:
        """Count a vote."""
        if self.handle_epoch_and_leader(peer, answer, now_ms):
            return
        role = self._state.role
        if isinstance(role, Prospective | Candidate):
            role.ballot.count(peer, granted=answer.granted)

    def on_begin_answer(self, peer: NodeId, answer: BeginQuorumEpochAnswer, now_ms: int) -> None:
        """Note that a voter knows its leader."""
        if self.handle_epoch_and_leader(peer, answer, now_ms):
            return
        role = self._state.role
        if isinstance(role, Leader) and peer in role.progress:
            role.progress[peer].needs_begin = False

    def on_end_answer(self, peer: NodeId, answer: EndQuorumEpochAnswer, now_ms: int) -> None:
        """Note that a voter knows of our going."""
        if self.handle_epoch_and_leader(peer, answer, now_ms):
            return
        role = self._state.role
        if isinstance(role, ResignedLeader):
            role.unacknowledged.pop(peer, None)

    def on_unsupported_version(self) -> None:
        """Do without pre-vote when a voter cannot read one (SPEC 1.7.2)."""
        role = self._state.role
        if isinstance(role, Prospective):
            role.ballot.waive()

    # --- moving on

    def advance(self, now_ms: int) -> None:
        """Make every transition that time or votes make due."""
        while self._step(now_ms):
            pass

    def _step(self, now_ms: int) -> bool:
        """Make one transition if one is due."""
        state = self._state
        before = state.role
        match before:
            case Prospective() | Candidate() if not state.may_stand:
                self._stand_down(now_ms)
            case Unattached():
                if state.may_stand and before.election_deadline_ms <= now_ms:
                    state.become_prospective(now_ms)
            case Follower():
                self._step_follower(before, now_ms)
            case Prospective():
                self._step_prospective(before, now_ms)
            case Candidate():
                if before.ballot.is_won:
                    state.become_leader(now_ms)
                elif before.election_deadline_ms <= now_ms:
                    state.become_prospective(now_ms)
            case Leader():
                self._step_leader(before, now_ms)
            case ResignedLeader():
                if not state.shutting_down and before.election_deadline_ms <= now_ms:
                    # In the same epoch peers might name this node as the leader to itself (KAFKA-18379).
                    state.become_unattached(
                        QuorumEpoch(state.epoch + 1),
                        now_ms,
                        election_deadline_ms=state.election_deadline_ms(now_ms),
                    )
        return state.role is not before

    def _stand_down(self, now_ms: int) -> None:
        # SPEC D20: a voter that the log does not name any more asks for no votes.
        state = self._state
        is_last = state.epoch >= EPOCH_MAX
        state.note("no epochs are left" if is_last else "not a voter any more by the voter set in the log")
        state.become_unattached(state.epoch, now_ms, leader_id=state.leader_id)

    def _step_follower(self, role: Follower, now_ms: int) -> None:
        state = self._state
        if role.fetch_deadline_ms > now_ms:
            return
        if state.may_stand:
            state.become_prospective(now_ms)
            return
        # Others may know it as a voter already: one that came back with an empty disk is needed for the next leader.
        role.has_fetched = False
        role.asks_anyone = True
        role.fetch_deadline_ms = now_ms + state.settings.fetch_timeout_ms

    def _step_prospective(self, role: Prospective, now_ms: int) -> None:
        state = self._state
        if role.ballot.is_won:
            state.become_candidate(now_ms)
            return
        lost = role.ballot.is_lost
        if not lost and role.election_deadline_ms > now_ms:
            return
        state.probe("prevote_lost")
        if role.leader_id != NO_NODE and state.endpoint_of(role.leader_id) is not None:
            state.become_follower(state.epoch, role.leader_id, now_ms)
            return
        # A lost round ends in a fresh wait; a silent one has waited long enough already.
        deadline_ms = state.election_deadline_ms(now_ms) if lost else role.election_deadline_ms
        state.become_unattached(state.epoch, now_ms, leader_id=role.leader_id, election_deadline_ms=deadline_ms)

    def _step_leader(self, role: Leader, now_ms: int) -> None:
        state = self._state
        if state.other_voters and role.check_quorum_deadline_ms <= now_ms:
            state.become_resigned(now_ms, "no fetches from a majority of the voters")
            return
        if role.begin_deadline_ms <= now_ms:
            interval_ms = state.settings.begin_interval_ms
            for progress in role.progress.values():
                progress.needs_begin |= progress.last_fetch_ms + interval_ms <= now_ms
            role.begin_deadline_ms = now_ms + interval_ms

    # --- asking

    def send_due(self, now_ms: int) -> None:
        """Ask whoever has to be asked and can be."""
        match self._state.role:
            case Prospective() | Candidate() as role:
                for voter in role.ballot.unanswered:
                    self._ask_vote(voter, now_ms, pre_vote=isinstance(role, Prospective))
            case Leader() as role:
                for voter, progress in role.progress.items():
                    if progress.needs_begin and voter != role.leader_id:
                        self._present(voter, now_ms)
            case ResignedLeader() as role:
                for voter in role.unacknowledged:
                    self._say_goodbye(voter, role.successors, now_ms)
            case Unattached() | Follower():
                pass

    def _ask_vote(self, voter: NodeId, now_ms: int, *, pre_vote: bool) -> None:
        state = self._state
        if state.peers.is_ready(voter, now_ms):
            request = VoteRequest(
                cluster_id=state.cluster_id,
                epoch=state.epoch,
                candidate=state.me,
                voter=state.voters.find(voter),
                last_epoch=state.log.last_epoch,
                last_offset=state.log.end_offset,
                pre_vote=pre_vote,
            )
            state.send(voter, request, now_ms)

    def _present(self, voter: NodeId, now_ms: int) -> None:
        state = self._state
        if state.peers.is_ready(voter, now_ms):
            request = BeginQuorumEpochRequest(
                cluster_id=state.cluster_id,
                epoch=state.epoch,
                leader_id=state.me.node_id,
                voter=state.voters.find(voter),
                endpoint=state.announced_endpoint(state.me.node_id),
            )
            state.send(voter, request, now_ms)

    def _say_goodbye(self, voter: NodeId, successors: tuple[ReplicaKey, ...], now_ms: int) -> None:
        state = self._state
        if state.peers.is_ready(voter, now_ms):
            request = EndQuorumEpochRequest(
                cluster_id=state.cluster_id,
                epoch=state.epoch,
                leader_id=state.me.node_id,
                preferred=successors,
                endpoint=state.announced_endpoint(state.me.node_id),
            )
            state.send(voter, request, now_ms)
