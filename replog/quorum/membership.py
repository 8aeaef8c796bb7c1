"""Changing who votes: one voter at a time is added or removed by a record in the log (KIP-853).

A new set is in force where it is written, committed or not. Old and new majority overlap because they differ by one voter,
and because the next change waits until this one is committed. So a controller that lost its disk is removed by its old
directory id and added back by its new one, once it has caught up as an observer.
"""

from typing import Final

from replog.errors import Error
from replog.quorum.events import Answered
from replog.quorum.messages import VoterChange, VoterChangeAnswer, VoterChangeRequest
from replog.quorum.quorum_state import QuorumState
from replog.quorum.replication import Replication
from replog.quorum.roles import Leader, PendingChange
from replog.quorum.voters import VoterSet, voter_set
from replog.types import ZERO_UUID

CAUGHT_UP_WITHIN_MS: Final = 3_600_000  # KIP-853: an observer that was at the leader's end within an hour may vote


class Membership:
    """One member's part in changing the voter set; only a leader does anything."""

    def __init__(self, state: QuorumState, replication: Replication) -> None:
        self._state = state
        self._replication = replication

    def on_request(self, token: int, request: VoterChangeRequest, now_ms: int) -> None:
        """Begin a change, or say why not."""
        role = self._state.role
        error, words = self._refusal(request)
        if error is not Error.NONE or not isinstance(role, Leader):
            self._answer(token, request, error, words)
        elif request.change is VoterChange.UPDATE:
            self._learn(request)
            self._answer(token, request, Error.NONE, None)
        else:
            role.voter_change = PendingChange(token=token, request=request, deadline_ms=now_ms + request.timeout_ms)

    def advance(self, now_ms: int) -> None:
        """Write the change that waits, answer the one that is committed or takes too long; go once this node is out."""
        state = self._state
        role = state.role
        if not isinstance(role, Leader):
            return
        if role.voter_change is not None:
            self._advance_change(role, role.voter_change, now_ms)
        # Whether or not anybody still waits for an answer, and also where another leader wrote the record.
        if not state.is_voter and role.high_watermark is not None and self._is_committed():
            state.become_resigned(now_ms, "no voter any more")

    def _advance_change(self, role: Leader, pending: PendingChange, now_ms: int) -> None:
        state = self._state
        if pending.offset is None and self._may_write(role, pending.request, now_ms):
            pending.offset = self._write(role, pending.request)
        committed = pending.offset is not None and state.high_watermark > pending.offset
        if committed or (pending.offset is not None and not pending.request.ack_when_committed):
            role.voter_change = None
            self._answer(pending.token, pending.request, Error.NONE, None)
        elif now_ms >= pending.deadline_ms:
            role.voter_change = None
            self._answer(pending.token, pending.request, Error.REQUEST_TIMED_OUT, "It may still come about.")

    def _is_committed(self) -> bool:
        written = self._state.log.voters
        return not written or written[-1][0] < self._state.high_watermark

    def _refusal(self, request: VoterChangeRequest) -> tuple[Error, str | None]:
        state, voter = self._state, request.voter
        if request.cluster_id not in (None, state.cluster_id):
            return Error.INCONSISTENT_CLUSTER_ID, None
        if not isinstance(state.role, Leader) or state.shutting_down:
            return Error.NOT_LEADER_OR_FOLLOWER, None
        if request.change is VoterChange.UPDATE and request.epoch != state.epoch:
            older = request.epoch < state.epoch
            return (Error.FENCED_LEADER_EPOCH if older else Error.UNKNOWN_LEADER_EPOCH), None
        if request.endpoint is not None and not request.endpoint.is_usable:
            return Error.INVALID_REQUEST, f"{request.endpoint} is not an address."
        member = state.voters.find(voter.node_id)
        if request.change is VoterChange.ADD:
            if member is not None:
                return Error.DUPLICATE_VOTER, f"{voter.node_id} votes already, with directory {member.directory_id}."
            if voter.node_id < 0 or voter.directory_id == ZERO_UUID or request.endpoint is None:
                return Error.INVALID_REQUEST, "A new voter needs a node id, a directory id and a listener."
        elif member is None or not member.names(voter):
            return Error.VOTER_NOT_FOUND, f"No voter {voter.node_id} with directory {voter.directory_id}."
        if request.change is VoterChange.REMOVE and len(state.voters.members) == 1:
            return Error.INVALID_REQUEST, "The last voter cannot be removed."
        under_way = state.role.voter_change is not None or not self._is_committed()
        if state.role.high_watermark is None or (under_way and request.change is not VoterChange.UPDATE):
            return Error.REQUEST_TIMED_OUT, "Another change, or the beginning of this epoch, is not committed yet."
        return Error.NONE, None

    def _may_write(self, role: Leader, request: VoterChangeRequest, now_ms: int) -> bool:
        if request.change is VoterChange.REMOVE:
            return True
        progress = role.observers.get(request.voter)
        if progress is None or progress.last_caught_up_ms < 0:
            return False
        return now_ms - progress.last_caught_up_ms < CAUGHT_UP_WITHIN_MS

    def _write(self, role: Leader, request: VoterChangeRequest) -> int:
        state, voter = self._state, request.voter
        if request.change is VoterChange.ADD:
            self._learn(request)
            members: VoterSet = voter_set([*state.voters.members, voter])
            role.progress[voter.node_id] = role.observers.pop(voter)
        else:
            members = voter_set(one for one in state.voters.members if one.node_id != voter.node_id)
            progress = role.progress.pop(voter.node_id)
            if progress.last_fetch_ms >= 0:  # it goes on fetching, as an observer, perhaps to be added back
                role.observers.setdefault(voter, progress)
            role.fetched_voters.pop(voter.node_id, None)
        offset = state.append_voters(members.members)
        state.note(f"{request.change.value} voter {voter.node_id}: {_shown(members)}")
        state.probe(f"quorum_voter_{request.change.value}")
        self._replication.update_leader_high_watermark()  # a smaller majority may hold enough already
        return offset

    def _learn(self, request: VoterChangeRequest) -> None:
        if request.endpoint is not None:
            self._state.learn_endpoint(request.voter.node_id, request.endpoint)

    def _answer(self, token: int, request: VoterChangeRequest, error: Error, words: str | None) -> None:
        state = self._state
        answer = VoterChangeAnswer(
            change=request.change,
            error=error,
            message=words,
            epoch=state.epoch,
            leader_id=state.leader_id,
            endpoint=state.announced_endpoint(state.leader_id),
        )
        state.outbox.append(Answered(token=token, answer=answer))


def _shown(voters: VoterSet) -> str:
    return ", ".join(f"{key.node_id}" for key in voters.members)
