"""One classic consumer group: its members, its generation, their assignments (SPEC 4.3).

A rebalance has two rounds. First every member joins; when all have, or the time for it is over, a new generation
begins, its leader learns who is in it and computes the assignment. Then every member syncs: the leader's assignment is
written to the log, and only when that is committed does anyone get its part. Cooperative rebalancing needs nothing more
of the coordinator: members keep what they own and join again.

States and moves between them are those of Apache Kafka's GroupCoordinator. Members that wait for an answer do not expire;
a member that never made it into a generation has five minutes. Static members (KIP-345) keep their place under
their instance id: who comes with it takes over, and the earlier member is fenced.
"""

from collections.abc import Callable, Iterable
from copy import copy
from enum import StrEnum
from typing import Final

import msgspec

from replog.config.groups import GroupsConfig
from replog.coordinators.classic_member import Member, Protocols, common_protocols, protocols_of, selected_protocol
from replog.coordinators.events import Effect, Now, Reply, Request, Token, Write
from replog.coordinators.group_records import group_entry
from replog.coordinators.timers import Timers
from replog.errors import Error
from replog.wire.messages.heartbeat import HeartbeatRequest
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from replog.wire.messages.leave_group import MemberIdentity
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
ABSENT_WAIT_MS_MIN: Final = 1_000  # members may say that a rebalance waits for them for 0 ms
FIRST_VERSION_WITH_REQUIRED_ID: Final = 4  # of JoinGroup (KIP-394)
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT: Final = 9  # of JoinGroup (KIP-814)

Timer = tuple[str, str, str]  # kind (session, join, sync), group id, member id or nothing


class GroupState(StrEnum):
    """Where a group stands; the words are those that DescribeGroups answers with."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MINUTE_MS: Final = 60_000
_GROUPS: Final = GroupsConfig()
BEFORE: Final[dict[GroupState, tuple[GroupState, ...]]] = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE,),
    GroupState.PREPARING_REBALANCE: (GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE),
    GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
    GroupState.STABLE: (GroupState.COMPLETING_REBALANCE,),
    GroupState.DEAD: tuple(GroupState),
}


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What of the broker's configuration concerns groups."""

    initial_rebalance_delay_ms: int = _GROUPS.initial_rebalance_delay_ms
    session_timeout_ms_min: int = _GROUPS.session_timeout_ms_min
    session_timeout_ms_max: int = _GROUPS.session_timeout_ms_max
    member_count_max: int = _GROUPS.member_count_max
    metadata_bytes_max: int = _GROUPS.offset_metadata_bytes_max
    offsets_retention_ms: int = _GROUPS.offsets_retention_minutes * MINUTE_MS

    @classmethod
    def of(cls, config: GroupsConfig) -> "GroupSettings":
        """Return what a broker's configuration says of them."""
        return cls(
            initial_rebalance_delay_ms=config.initial_rebalance_delay_ms,
            session_timeout_ms_min=config.session_timeout_ms_min,
            session_timeout_ms_max=config.session_timeout_ms_max,
            member_count_max=config.member_count_max,
            metadata_bytes_max=config.offset_metadata_bytes_max,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        )


class AssignmentStored(msgspec.Struct, frozen=True):
    """Ticket: a leader's assignment for this generation."""

    group_id: str
    generation: int
    assignments: dict[str, bytes]


class MemberReplaced(msgspec.Struct, frozen=True):
    """Ticket: a static member under a new member id, in an unchanged generation; and as what the log still knows it."""

    group_id: str
    member_id: str
    former: Member
    token: Token
    answer: JoinGroupResponse


class EmptyStored(msgspec.Struct, frozen=True):
    """Ticket: the group has a new generation without members; nobody waits for it."""

    group_id: str


class ClassicGroup:
    """A group and its members, in the order they came."""

    def __init__(
        self, group_id: str, settings: GroupSettings, timers: Timers[Timer], new_member_id: Callable[[str], str]
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.timers = timers
        self.new_member_id = new_member_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self._in_the_log: dict[
            str, Member
        ] = {}  # by the member id of who was refused its place, and had lost it by then
        self.pending: dict[str, None] = {}  # member ids given out, not yet come back with
        self.not_synced: dict[str, None] = {}
        self._assigning: AssignmentStored | None = None  # on its way to the log
        self.state_since_ms = -1  # wall clock, stored
        self._is_first_round = True  # the rebalance began in an empty group
        self._someone_came = False
        self._first_round_left_ms = 0
        self._effects: list[Effect] = []

    def take_effects(self) -> list[Effect]:
        """Return what has to be done since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    # --- joining -----------------------------------------------------------------------------

    def join(self, request: Request[JoinGroupRequest], now: Now) -> None:
        """Take a member in, or back, for the next generation."""
        body = request.body
        error = self._join_error(body)
        if error is not Error.NONE:
            self._refuse_join(request.token, body.member_id, error)
            return
        if not self.members:
            self.protocol_type = body.protocol_type
        if body.member_id:
            self._join_known(request, now)
        elif body.group_instance_id is not None:
            self._join_static(request, now)
        elif request.version >= FIRST_VERSION_WITH_REQUIRED_ID:
            # KIP-394: whoever comes without an id gets one and comes back with it, so that lost answers leave no
            # members behind that nobody plays.
            member_id = self.new_member_id(request.client_id)
            self.pending[member_id] = None
            self._arm("session", now.now_ms + body.session_timeout_ms, member_id)
            self._refuse_join(request.token, member_id, Error.MEMBER_ID_REQUIRED)
        else:
            self._add(Member.joining_with(self.new_member_id(request.client_id), request), request.token, now)

    def _join_error(self, body: JoinGroupRequest) -> Error:
        if self.state is GroupState.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if not self._offers_fit(body.member_id, body.protocol_type, protocols_of(body)):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        is_newcomer = body.member_id not in self.members and body.group_instance_id not in self.static_members
        if is_newcomer and len(self.members) >= self.settings.member_count_max:
            return Error.GROUP_MAX_SIZE_REACHED
        # Ids are given out to dynamic members: who comes back with one and an instance id would take a static member's place.
        is_expected = body.member_id in self.pending and body.group_instance_id is None
        if body.member_id and not is_expected:
            return self.member_error(body.member_id, body.group_instance_id)
        return Error.NONE

    def _offers_fit(self, member_id: str, protocol_type: str, offers: Protocols) -> bool:
        if not protocol_type or not offers:
            return False
        if self.state is GroupState.EMPTY:
            return True
        others = [member for member in self.members.values() if member.member_id != member_id]
        return protocol_type == self.protocol_type and (
            not others or any(name in offers for name in common_protocols(others))
        )

    def _join_known(self, request: Request[JoinGroupRequest], now: Now) -> None:
        member_id = request.body.member_id
        if member_id in self.pending:
            self._add(Member.joining_with(member_id, request), request.token, now)
            return
        member = self.members[member_id]
        offers_the_same = member.protocols == protocols_of(request.body)
        if self.state is GroupState.COMPLETING_REBALANCE and offers_the_same:
            # The answer to its first join was lost: it is part of this generation already.
            self._effects.append(Reply(request.token, self._joined(member)))
        elif self.state is GroupState.STABLE and offers_the_same and member_id != self.leader:
            self._effects.append(Reply(request.token, self._joined(member)))
        else:
            self._rejoin(member, request, now)

    def _join_static(self, request: Request[JoinGroupRequest], now: Now) -> None:
        instance_id = request.body.group_instance_id
        assert instance_id is not None
        member_id = self.new_member_id(instance_id)
        former_id = self.static_members.get(instance_id)
        if former_id is None:
            self._add(Member.joining_with(member_id, request), request.token, now)
            return
        former = copy(self.members[former_id])
        member = self._replace(former_id, member_id)
        selected_before = self.protocol
        if self.state is not GroupState.STABLE:
            self._rejoin(member, request, now)
            return
        member.update(request)
        if selected_protocol(self.members.values()) != selected_before:
            self._rejoin(member, request, now)
            return
        # KIP-345: who comes back within its session finds its assignment, and nobody else notices. What is
        # stored names the new member id, or a later coordinator would fence the wrong one.
        answer = self._joined(member, skips=request.version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT)
        if self.leader == member_id and not answer.skip_assignment:
            # It would compute an assignment that nobody asked for: let it take its earlier member id for the leader.
            answer = msgspec.structs.replace(answer, leader=former_id, members=[])
        self._arm_session(member, now)
        ticket = MemberReplaced(self.group_id, member_id, former, request.token, answer)
        self._effects.append(Write(entries=[group_entry(self, self.assignments())], ticket=ticket))

    def on_replacement_refused(self, ticket: MemberReplaced, error: Error, now: Now) -> None:
        """Give the place back to who has it in the log: else it is fenced by somebody of whom no other coordinator knows."""
        self._refuse_join(ticket.token, ticket.member_id, error)
        member = self.members.get(ticket.member_id)
        former = self._in_the_log.pop(ticket.former.member_id, ticket.former)
        if self.state is GroupState.STABLE and member is None and former.instance_id in self.static_members:
            self._in_the_log[ticket.member_id] = (
                former  # somebody else has the place by now, and his own write is under way
            )
            return
        if self.state is GroupState.DEAD or member is None or member.joining is not None or member.syncing is not None:
            return
        self._replace(ticket.member_id, former.member_id)
        member.client_id, member.client_host = former.client_id, former.client_host
        member.session_timeout_ms, member.rebalance_timeout_ms = former.session_timeout_ms, former.rebalance_timeout_ms
        member.protocols = former.protocols
        self._arm_session(member, now)

    def on_replacement_stored(self, ticket: MemberReplaced) -> None:
        """Forget whom the log knew before."""
        self._in_the_log.pop(ticket.former.member_id, None)

    def _replace(self, former_id: str, member_id: str) -> Member:
        """Let a static member's place be held under a new member id; fence the earlier member id."""
        member = self.members[former_id]
        assert member.instance_id is not None
        self._answer_waiting(member, Error.FENCED_INSTANCE_ID)
        self.timers.cancel(("session", self.group_id, former_id))
        self.members = {(member_id if name == former_id else name): one for name, one in self.members.items()}
        member.member_id = member_id
        self.static_members[member.instance_id] = member_id
        if former_id in self.not_synced:
            del self.not_synced[former_id]
            self.not_synced[member_id] = None
        if self.leader == former_id:
            self.leader = member_id
        return member

    def _add(self, member: Member, token: Token, now: Now) -> None:
        self.pending.pop(member.member_id, None)
        member.is_new = True
        member.joining = token
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._someone_came = True
        self._arm("session", now.now_ms + NEW_MEMBER_TIMEOUT_MS, member.member_id)
        self._rebalance(now)

    def _rejoin(self, member: Member, request: Request[JoinGroupRequest], now: Now) -> None:
        self._answer_waiting(member, Error.REBALANCE_IN_PROGRESS)
        member.update(request)
        member.joining = request.token
        self._arm_session(member, now)
        self._rebalance(now)

    # --- rebalancing -------------------------------------------------------------------------

    def _rebalance(self, now: Now) -> None:
        """Begin a rebalance, or go on with the one that is under way."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._prepare_rebalance(now)
        if not self._is_first_round and self._all_joined:
            self._begin_generation(now)

    def _prepare_rebalance(self, now: Now) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._end_syncs(Error.REBALANCE_IN_PROGRESS)
        self.timers.cancel(("sync", self.group_id, ""))
        self.not_synced.clear()
        self._assigning = None
        self._in_the_log.clear()  # the next generation is stored as a whole
        self._is_first_round = self.state is GroupState.EMPTY
        self._move(GroupState.PREPARING_REBALANCE, now)
        wait_ms = self._rebalance_timeout_ms
        if self._is_first_round:
            # group.initial.rebalance.delay.ms: members of a new group rarely come all at once.
            delay_ms = min(self.settings.initial_rebalance_delay_ms, wait_ms)
            self._first_round_left_ms = wait_ms - delay_ms
            self._someone_came = False
            wait_ms = delay_ms
        self._arm("join", now.now_ms + wait_ms)
        if self._is_first_round and wait_ms == 0:
            self._on_join_timeout(now)

    @property
    def _all_joined(self) -> bool:
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _on_join_timeout(self, now: Now) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if self._is_first_round and self._someone_came and self._first_round_left_ms > 0:
            delay_ms = min(self.settings.initial_rebalance_delay_ms, self._first_round_left_ms)
            self._first_round_left_ms -= delay_ms
            self._someone_came = False
            self._arm("join", now.now_ms + delay_ms)
        else:
            self._begin_generation(now)

    def _begin_generation(self, now: Now) -> None:
        """Close the first round: who has not joined is out, static members excepted (they have their session)."""
        late = [m for m in self.members.values() if m.joining is None and m.instance_id is None]
        for member in late:
            self._forget(member)
        if not self._elect_leader() and self.members:
            wait_ms = max(ABSENT_WAIT_MS_MIN, self._rebalance_timeout_ms)  # only absent static members are left
            self._arm("join", now.now_ms + wait_ms)
            return
        self.timers.cancel(("join", self.group_id, ""))
        self.generation += 1
        if not self.members:
            self.protocol = None
            self._move(GroupState.EMPTY, now)
            self._effects.append(Write(entries=[group_entry(self, {})], ticket=EmptyStored(self.group_id)))
            return
        self.protocol = selected_protocol(self.members.values())
        self._move(GroupState.COMPLETING_REBALANCE, now)
        self.not_synced = dict.fromkeys(self.members)
        self._arm("sync", now.now_ms + self._rebalance_timeout_ms)
        for member in self.members.values():
            if member.joining is not None:
                self._effects.append(Reply(member.joining, self._joined(member)))
                member.joining = None
            member.is_new = False
            self._arm_session(member, now)

    def _elect_leader(self) -> bool:
        """Let someone lead who is here; return whether there is anyone."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    def _joined(self, member: Member, *, skips: bool = False) -> JoinGroupResponse:
        """Return the answer of this generation to a member; the group's leader gets the list of members."""
        is_leader = member.member_id == self.leader
        assert self.protocol is not None
        members = [
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.protocols.get(self.protocol, b""),
            )
            for one in (self.members.values() if is_leader else ())
        ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            skip_assignment=skips and is_leader,
            member_id=member.member_id,
            members=members,
        )

    # --- syncing -----------------------------------------------------------------------------

    def sync(self, request: Request[SyncGroupRequest], now: Now) -> None:
        """Take the leader's assignment; give each member its part once that is stored."""
        body = request.body
        error = self._sync_error(body)
        if error is not Error.NONE:
            self._effects.append(Reply(request.token, SyncGroupResponse(error_code=error)))
            return
        member = self.members[body.member_id]
        self.not_synced.pop(member.member_id, None)
        if self.state is GroupState.STABLE:
            self._arm_session(member, now)
            self._effects.append(Reply(request.token, self._synced(member)))
            return
        if member.syncing is not None:  # the client gave the first one up
            self._effects.append(Reply(member.syncing, SyncGroupResponse(error_code=Error.REBALANCE_IN_PROGRESS)))
        member.syncing = request.token
        # One that is given up may be on its way to the log: it counts, and the log has to end with it.
        if member.member_id == self.leader and self._assigning is None:
            given = {assignment.member_id: assignment.assignment for assignment in body.assignments}
            assignments = {member_id: bytes(given.get(member_id, b"")) for member_id in self.members}
            self._assigning = AssignmentStored(self.group_id, self.generation, assignments)
            self._effects.append(Write(entries=[group_entry(self, assignments)], ticket=self._assigning))

    def _sync_error(self, body: SyncGroupRequest) -> Error:
        error = self.member_error(body.member_id, body.group_instance_id)
        if error is not Error.NONE:
            return error
        if body.generation_id != self.generation:
            return Error.ILLEGAL_GENERATION
        if body.protocol_type is not None and body.protocol_type != self.protocol_type:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if body.protocol_name is not None and body.protocol_name != self.protocol:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        return Error.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else Error.NONE

    def _synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    def on_assignment_stored(self, ticket: AssignmentStored, now: Now) -> None:
        """Give everyone its part, unless the next rebalance has begun, or a former group of this name wrote it."""
        if self._assigning != ticket:
            return
        self._assigning = None
        self._move(GroupState.STABLE, now)
        for member in self.members.values():
            member.assignment = ticket.assignments.get(member.member_id, b"")
            if member.syncing is not None:
                self._effects.append(Reply(member.syncing, self._synced(member)))
                member.syncing = None
                self._arm_session(member, now)

    def on_assignment_refused(self, ticket: AssignmentStored, error: Error, now: Now) -> None:
        """Try again from the start: nobody may live by an assignment that is not stored."""
        if self._assigning == ticket:
            self._end_syncs(error)
            self._rebalance(now)

    def _end_syncs(self, error: Error) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.syncing is not None:
                self._effects.append(Reply(member.syncing, SyncGroupResponse(error_code=error)))
                member.syncing = None

    # --- staying and leaving -----------------------------------------------------------------

    def heartbeat(self, body: HeartbeatRequest, now: Now) -> Error:
        """Prolong a member's session; the error says when to join again."""
        error = self.member_error(body.member_id, body.group_instance_id)
        if error is Error.NONE and body.generation_id != self.generation:
            error = Error.ILLEGAL_GENERATION
        if error is not Error.NONE:
            return error
        self._arm_session(self.members[body.member_id], now)
        return Error.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else Error.NONE

    def commit_error(
        self, member_id: str, instance_id: str | None, generation: int, now: Now, *, is_transactional: bool
    ) -> Error:
        """Return whether these offsets may be committed (M84: not from an older generation)."""
        if self.state is GroupState.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self.members:
            return Error.NONE  # a consumer without a group membership, or an admin
        if generation < 0 and not member_id and instance_id is None:
            return Error.NONE if is_transactional else Error.UNKNOWN_MEMBER_ID
        error = self.member_error(member_id, instance_id)
        if error is not Error.NONE:
            return error
        if generation != self.generation:
            return Error.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            return Error.REBALANCE_IN_PROGRESS
        if self.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._arm_session(self.members[member_id], now)
        return Error.NONE

    def leave(self, identity: MemberIdentity, now: Now) -> Error:
        """Let a member go at once instead of when its session ends."""
        member_id = identity.member_id
        if identity.group_instance_id is not None:
            known = self.static_members.get(identity.group_instance_id)
            if known is None:
                return Error.UNKNOWN_MEMBER_ID
            if member_id not in ("", known):
                return Error.FENCED_INSTANCE_ID
            member_id = known
        elif member_id in self.pending:
            del self.pending[member_id]
            self.timers.cancel(("session", self.group_id, member_id))
            self._go_on(now)
            return Error.NONE
        member = self.members.get(member_id)
        if member is None:
            return Error.UNKNOWN_MEMBER_ID
        self._remove(member, now)
        return Error.NONE

    def on_timer(self, kind: str, member_id: str, now: Now) -> None:
        """Act on a time-out."""
        if kind == "join":
            self._on_join_timeout(now)
        elif kind == "sync":
            self._on_sync_timeout(now)
        elif member_id in self.pending:
            del self.pending[member_id]
            self._go_on(now)
        elif member_id in self.members:
            self._on_session_timeout(self.members[member_id], now)

    def _on_session_timeout(self, member: Member, now: Now) -> None:
        is_waiting = member.joining is not None or member.syncing is not None
        if is_waiting and not member.is_new:
            self._arm_session(member, now)  # it is we who let it wait
        else:
            self._remove(member, now)

    def _on_sync_timeout(self, now: Now) -> None:
        """Part with members that took their place in the generation and never asked for their part (KIP-862's kin)."""
        silent = [self.members[member_id] for member_id in self.not_synced if member_id in self.members]
        self.not_synced.clear()
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) and silent:
            for member in silent:
                self._forget(member)
            self._rebalance(now)

    def _remove(self, member: Member, now: Now) -> None:
        self._forget(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalance(now)
        else:
            self._go_on(now)

    def _go_on(self, now: Now) -> None:
        if self.state is GroupState.PREPARING_REBALANCE and not self._is_first_round and self._all_joined:
            self._begin_generation(now)

    def _forget(self, member: Member) -> None:
        self._answer_waiting(member, Error.UNKNOWN_MEMBER_ID)
        del self.members[member.member_id]
        self.not_synced.pop(member.member_id, None)
        self.timers.cancel(("session", self.group_id, member.member_id))
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    # --- what all of it needs ----------------------------------------------------------------

    def member_error(self, member_id: str, instance_id: str | None) -> Error:
        """Return whether this is a member, under the member id that its instance id now has."""
        if self.state is GroupState.DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return Error.UNKNOWN_MEMBER_ID
            if known != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    def assignments(self) -> dict[str, bytes]:
        """Return each member's part of the current generation."""
        return {member_id: member.assignment for member_id, member in self.members.items()}

    def die(self, error: Error) -> None:
        """End: the group was deleted, or is coordinated elsewhere; whoever waits is answered."""
        for member in self.members.values():
            self._answer_waiting(member, error)
            self.timers.cancel(("session", self.group_id, member.member_id))
        for kind in ("join", "sync"):
            self.timers.cancel((kind, self.group_id, ""))
        self.state = GroupState.DEAD

    def restore(self, members: Iterable[Member], *, is_stable: bool) -> None:
        """Take over what the log says."""
        self.members = {member.member_id: member for member in members}
        self.static_members = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        self.state = GroupState.STABLE if is_stable else GroupState.EMPTY

    def begin_sessions(self, now: Now) -> None:
        """Give every loaded member a whole session: the last heartbeats are not stored."""
        for member in self.members.values():
            self._arm_session(member, now)

    def _move(self, to: GroupState, now: Now) -> None:
        assert self.state in BEFORE[to], f"{self.group_id}: {self.state} to {to}"
        self.state = to
        self.state_since_ms = now.wall_ms

    def _answer_waiting(self, member: Member, error: Error) -> None:
        if member.joining is not None:
            self._refuse_join(member.joining, member.member_id, error)
            member.joining = None
        if member.syncing is not None:
            self._effects.append(Reply(member.syncing, SyncGroupResponse(error_code=error)))
            member.syncing = None

    def _refuse_join(self, token: Token, member_id: str, error: Error) -> None:
        self._effects.append(Reply(token, refused_join(member_id, error)))

    def _arm_session(self, member: Member, now: Now) -> None:
        timeout_ms = NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        self._arm("session", now.now_ms + timeout_ms, member.member_id)

    def _arm(self, kind: str, at_ms: int, member_id: str = "") -> None:
        self.timers.set((kind, self.group_id, member_id), at_ms)


def refused_join(member_id: str, error: Error) -> JoinGroupResponse:
    """Return the answer to a join that is not served."""
    return JoinGroupResponse(error_code=error, protocol_name="", member_id=member_id)
