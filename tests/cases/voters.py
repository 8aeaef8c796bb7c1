"""Puts a quorum member into the state that a raft case describes, and reads its state back.

The cases name states, not histories, so the role is set directly; everything after that goes through the one door.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from replog.config import Endpoint
from replog.quorum import events
from replog.quorum.log_shape import LogShape
from replog.quorum.quorum import Quorum
from replog.quorum.quorum_state import Settings
from replog.quorum.roles import Ballot, Candidate, Follower, Leader, Prospective, ResignedLeader, Role, Unattached
from replog.quorum.state_file import StoredQuorumState
from replog.quorum.voters import ReplicaKey, VoterSet, voter_set
from replog.types import NO_NODE, ZERO_UUID, NodeId, QuorumEpoch

CLUSTER = "C"
STATES = {
    Unattached: "unattached",
    Follower: "follower",
    Prospective: "prospective",
    Candidate: "candidate",
    Leader: "leader",
    ResignedLeader: "resigned",
}


def directory(name: str | None) -> UUID:
    return ZERO_UUID if name is None else UUID(bytes=name.encode().rjust(16, b"-"))


def node(number: int | None) -> NodeId:
    return NO_NODE if number is None else NodeId(number)


def outline(given: dict[str, Any]) -> LogShape:
    """The log of a case: `log: [last epoch, end offset]`, one earlier epoch at most."""
    last_epoch, end_offset = given.get("log") or [max(given["epoch"] - 1, 0), 10]
    return LogShape(end_offset=end_offset, epochs=[(last_epoch, 0)] if last_epoch or end_offset else [])


def a_member(
    given: dict[str, Any],
    log: LogShape,
    *,
    settings: Settings | None = None,
    stored: StoredQuorumState | None = None,
    voters: Iterable[int] = (1, 2, 3),
) -> Quorum:
    """A member that has not started; only voters have a known address."""
    members = voter_set(ReplicaKey(NodeId(voter)) for voter in voters)
    return Quorum(
        me=ReplicaKey(NodeId(given.get("id", 1)), directory(given.get("directory"))),
        cluster_id=CLUSTER,
        voters=members,
        endpoints={voter: Endpoint(f"node-{voter}", 9093) for voter in members.ids},
        settings=settings or Settings(),
        log=log,
        stored=stored,
        draw=lambda below: below // 2,
    )


def placed(member: Quorum, given: dict[str, Any]) -> Quorum:
    """Put the member into the state of `given` at time 0."""
    state = member._state
    state.epoch = QuorumEpoch(given["epoch"])
    voted = given.get("voted")
    if voted is None and given["state"] in ("leader", "resigned", "candidate"):
        voted = state.me.node_id
    if voted is not None:
        state.voted = state.me if voted == state.me.node_id else ReplicaKey(NodeId(voted))
    state.role = _role(given, state.me.node_id, state.voters, member)
    member._announced = (member.leader_id, member.epoch)
    return member


def _role(given: dict[str, Any], me: NodeId, voters: VoterSet, member: Quorum) -> Role:
    leader_id, election_ms = node(given.get("leader")), 1500
    match given["state"]:
        case "unattached":
            return Unattached(leader_id=leader_id, election_deadline_ms=election_ms)
        case "follower":
            follower = Follower(leader_id=leader_id, fetch_deadline_ms=2000)
            follower.has_fetched = bool(given.get("fetched", False))
            return follower
        case "prospective":
            ballot = Ballot(voters, me)
            return Prospective(leader_id=leader_id, election_deadline_ms=election_ms, ballot=ballot)
        case "candidate":
            return Candidate(election_deadline_ms=election_ms, ballot=Ballot(voters, me))
        case "leader":
            leader = Leader(
                own_id=me,
                epoch=QuorumEpoch(given["epoch"]),
                voters=voters,
                epoch_start_offset=given.get("epoch_start", member.log.end_offset),
                check_quorum_deadline_ms=member._state.settings.check_quorum_timeout_ms,
                begin_deadline_ms=member._state.settings.begin_interval_ms,
            )
            leader.progress[me].end_offset = member.log.synced_offset
            return leader
        case "resigned":
            others = [voter for voter in voters.ids if voter != me]
            return ResignedLeader(own_id=me, election_deadline_ms=election_ms, successors=(), unacknowledged=others)
        case other:
            raise AssertionError(f"unknown state {other}")


def seen(member: Quorum) -> dict[str, Any]:
    """The state as a case writes it."""
    leader_id = member.role.leader_id
    return {
        "state": STATES[type(member.role)],
        "epoch": member.epoch,
        "leader": None if leader_id == NO_NODE else leader_id,
        "voted": None if member.voted is None else member.voted.node_id,
    }


def answers(effects: list[events.Effect]) -> list[Any]:
    return [effect.answer for effect in effects if isinstance(effect, events.Answered)]


def promises_come_late(effects: list[events.Effect]) -> bool:
    """Return whether an answer leaves before what it depends on is durable (SPEC 1.1.2)."""
    kinds = [type(effect) for effect in effects]
    last_persist = max((index for index, kind in enumerate(kinds) if kind is events.Persist), default=-1)
    first_word = min((index for index, kind in enumerate(kinds) if kind in (events.Answered, events.Send)), default=99)
    return first_word < last_persist
