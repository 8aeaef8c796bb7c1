"""The coordinator of consumer groups of the new protocol (KIP-848): one request, the heartbeat, is used for everything.

A heartbeat changes its group by records. They are applied at once, so that the next heartbeat finds what this one
decided, and its answer waits until they are committed; an answer that needed no record waits for the records before it.
A write that is refused is taken back. So what a member was answered is in the log, and the next coordinator knows it.

Whether a group is of this protocol or of the classic one is decided by who comes first; an empty group changes over. A
group with members of both is not offered (`group.consumer.migration.policy=disabled` of the released software).
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

import msgspec

from replog.config.groups import OWN_HEARTBEAT_INTERVAL_MS, OWN_SESSION_TIMEOUT_MS, GroupsConfig
from replog.coordinators.consumer_group import (
    CONSUMER_PROTOCOL,
    LEFT_FOR_A_WHILE,
    NOTHING,
    ConsumerGroup,
    ConsumerGroupState,
    Fact,
    MemberState,
    Partitions,
    Place,
    by_topic,
    place_value,
    target_value,
)
from replog.coordinators.consumer_group_assignors import ASSIGNORS, Wish
from replog.coordinators.consumer_group_reconciliation import reconciled
from replog.coordinators.events import Effect, Entry, Now, Reply, Request, Token, Write
from replog.coordinators.timers import Timers
from replog.coordinators.topic_names import TopicNames
from replog.coordinators.topic_pattern import WORK_MAX, BadPattern, TopicPattern
from replog.errors import Error
from replog.ports import Buffer
from replog.types import TopicIdPartition
from replog.wire.messages import consumer_group_describe as cgd
from replog.wire.messages import consumer_group_heartbeat as cgh
from replog.wire.messages.list_groups import ListedGroup
from replog.wire.records import coordinator as r

CONSUMER_TYPE: Final = "Consumer"
FIRST_VERSION_WITH_OWN_IDS: Final = 1  # of ConsumerGroupHeartbeat: members choose their ids (KIP-1082)
JOINS: Final = 0  # the member epoch of who joins; who leaves sends a negative one
SESSION: Final = "consumer session"
REVOCATION: Final = "consumer revocation"
REFRESH_MS: Final = 1_000  # topics are looked at again, at the earliest
REFRESH_WORK_MAX: Final = (
    400_000  # for a group's patterns at a time, as `TopicPattern.work` counts: some 100 ms; the others are next
)
WORK_OF_NAME: Final = 6  # what looking at one more name takes where nothing of it is new
_GROUPS: Final = GroupsConfig()
KEYS: Final[tuple[type[msgspec.Struct], ...]] = (
    r.ConsumerGroupMetadataKey,
    r.ConsumerGroupPartitionMetadataKey,
    r.ConsumerGroupMemberMetadataKey,
    r.ConsumerGroupTargetAssignmentMetadataKey,
    r.ConsumerGroupTargetAssignmentMemberKey,
    r.ConsumerGroupCurrentMemberAssignmentKey,
    r.ConsumerGroupRegularExpressionKey,
)
VALUES: Final[dict[type[msgspec.Struct], type[msgspec.Struct]]] = {
    r.ConsumerGroupMetadataKey: r.ConsumerGroupMetadataValue,
    r.ConsumerGroupPartitionMetadataKey: r.ConsumerGroupPartitionMetadataValue,
    r.ConsumerGroupMemberMetadataKey: r.ConsumerGroupMemberMetadataValue,
    r.ConsumerGroupTargetAssignmentMetadataKey: r.ConsumerGroupTargetAssignmentMetadataValue,
    r.ConsumerGroupTargetAssignmentMemberKey: r.ConsumerGroupTargetAssignmentMemberValue,
    r.ConsumerGroupCurrentMemberAssignmentKey: r.ConsumerGroupCurrentMemberAssignmentValue,
    r.ConsumerGroupRegularExpressionKey: r.ConsumerGroupRegularExpressionValue,
}

Timer = tuple[str, str, str]  # kind, group id, member id
Refusal = tuple[Error, str]


class TopicView(msgspec.Struct, frozen=True):
    """What a coordinator has to know of a topic."""

    topic_id: UUID
    partition_count: int


class KnownTopics(Protocol):
    """What the committed metadata says of topics."""

    def name_of(self, topic_id: UUID) -> str | None:
        """Return a topic's name."""

    def view_of(self, name: str) -> TopicView | None:
        """Return a topic, None when there is no such one."""

    def names(self) -> list[str]:
        """Return the names of all topics that are not internal, in order."""


class ConsumerGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What of the broker's configuration concerns these groups; the first assignor is the default."""

    session_timeout_ms: int = _GROUPS.consumer_session_timeout_ms
    heartbeat_interval_ms: int = _GROUPS.consumer_heartbeat_interval_ms
    member_count_max: int = _GROUPS.consumer_member_count_max
    assignors: tuple[str, ...] = _GROUPS.consumer_assignors

    @classmethod
    def of(cls, config: GroupsConfig) -> "ConsumerGroupSettings":
        """Return what a broker's configuration says of them."""
        return cls(
            session_timeout_ms=config.consumer_session_timeout_ms,
            heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
            member_count_max=config.consumer_member_count_max,
            assignors=config.consumer_assignors,
        )

    def with_own(self, own: Mapping[str, str]) -> "ConsumerGroupSettings":
        """Return what holds for a group that has these settings of its own (resource type 32, names as there)."""
        if not own:
            return self
        return msgspec.structs.replace(
            self,
            session_timeout_ms=int(own.get(OWN_SESSION_TIMEOUT_MS, self.session_timeout_ms)),
            heartbeat_interval_ms=int(own.get(OWN_HEARTBEAT_INTERVAL_MS, self.heartbeat_interval_ms)),
        )


def nothing_own(_: str) -> Mapping[str, str]:
    """Return the settings of a group that has none of its own."""
    return {}


class GroupChanged(msgspec.Struct, frozen=True):
    """Ticket: records of one group; `undo` takes them back, `reply` waits for them.

    number:    of the write; a later group of the same name has other ones.
    followed:  the number of the group's write before it, 0 where there was none.
    """

    group_id: str
    number: int
    followed: int
    undo: tuple[Fact, ...]
    reply: Reply | None


class Turn:
    """The records of one event in one group, applied as they are made."""

    def __init__(self, group: ConsumerGroup, entries: Iterable[Entry] = ()) -> None:
        self.group = group
        self.entries = list(entries)
        self.undo: list[Fact] = []

    def put(self, key: msgspec.Struct, value: msgspec.Struct | None) -> None:
        """Change something; None removes it."""
        self.undo.append(self.group.apply(key, value))
        self.entries.append(Entry(r.encode_key(key), None if value is None else r.encode_value(value)))

    def take_place(self, member_id: str, place: Place | None) -> None:
        """Change what a member holds."""
        key = r.ConsumerGroupCurrentMemberAssignmentKey(group_id=self.group.group_id, member_id=member_id)
        if place != self.group.places.get(member_id):
            self.put(key, None if place is None else place_value(place))

    def target(self, member_id: str, target: Partitions | None) -> None:
        """Change what a member shall have."""
        key = r.ConsumerGroupTargetAssignmentMemberKey(group_id=self.group.group_id, member_id=member_id)
        if target != self.group.targets.get(member_id):
            self.put(key, None if target is None else target_value(target))

    def describe(self, member_id: str, value: r.ConsumerGroupMemberMetadataValue | None) -> bool:
        """Change what a member says of itself; return whether that was needed."""
        key = r.ConsumerGroupMemberMetadataKey(group_id=self.group.group_id, member_id=member_id)
        if value == self.group.members.get(member_id):
            return False
        self.put(key, value)
        return True

    def bump(self, metadata_hash: int | None = None) -> None:
        """Begin a new group epoch."""
        group = self.group
        chosen = group.metadata_hash if metadata_hash is None else metadata_hash
        value = r.ConsumerGroupMetadataValue(epoch=group.epoch + 1, metadata_hash=chosen)
        self.put(r.ConsumerGroupMetadataKey(group_id=group.group_id), value)

    def remove(self, member_id: str) -> None:
        """Part with a member; what it held is free."""
        pattern = self.group.members[member_id].subscribed_topic_regex
        self.take_place(member_id, None)
        self.target(member_id, None)
        self.describe(member_id, None)
        self.forget_pattern(pattern)

    def forget_pattern(self, pattern: str | None) -> None:
        """Forget what a pattern stood for, once nobody subscribes by it."""
        if pattern and pattern in self.group.patterns and not self.group.is_used(pattern):
            key = r.ConsumerGroupRegularExpressionKey(group_id=self.group.group_id, regular_expression=pattern)
            self.put(key, None)
            self.group.compared.pop(pattern, None)


class ConsumerGroupCoordinator:
    """All groups of the new protocol on one partition of `__consumer_offsets`."""

    def __init__(
        self,
        settings: ConsumerGroupSettings,
        topics: KnownTopics,
        timers: Timers[Timer],
        new_id: Callable[[], UUID],
        own_settings: Callable[[str], Mapping[str, str]] = nothing_own,
    ) -> None:
        """`own_settings` are what a group has of its own, by its id, as the cluster's metadata is now."""
        self.settings = settings
        self.own_settings = own_settings
        self.topics = topics
        self.timers = timers
        self.new_id = new_id
        self.groups: dict[str, ConsumerGroup] = {}
        self._names = TopicNames()
        self._written_count = 0  # of all groups
        self._held: dict[tuple[str, int], list[Effect]] = {}  # answers that wait for a write that is not theirs

    # --- loading -----------------------------------------------------------------------------

    def replay(self, key: Buffer, value: Buffer | None) -> bool:
        """Take a record of the log over; return whether it was one of this protocol."""
        for kind in KEYS:
            found = r.decode_key(kind, key)
            if found is not None:
                self._replay(found, None if value is None else r.decode_value(VALUES[kind], value))
                return True
        return False

    def _replay(self, key: msgspec.Struct, value: msgspec.Struct | None) -> None:
        group_id: str = key.group_id  # type: ignore[attr-defined]  # all of them have it
        if value is None and isinstance(key, r.ConsumerGroupMetadataKey):
            self.groups.pop(group_id, None)
        elif value is not None or group_id in self.groups:
            self.groups.setdefault(group_id, ConsumerGroup(group_id)).apply(key, value)

    def on_loaded(self, now: Now) -> None:
        """Begin: every member has a whole session, what was to be given up a whole time for it."""
        for group in self.groups.values():
            for member_id in group.members:
                self._arm_session(group, member_id, now)
                self._arm_revocation(group, member_id, now)

    # --- heartbeats --------------------------------------------------------------------------

    def heartbeat(
        self, request: Request[cgh.ConsumerGroupHeartbeatRequest], now: Now, *, converted: Iterable[Entry] = ()
    ) -> list[Effect]:
        """Answer a member; `converted` are records that end a classic group of this name."""
        body = request.body
        malformed = self._malformed(body, request.version)
        if malformed is not None:
            return [_refused(request.token, malformed)]
        if body.member_epoch < JOINS:
            return self._leave(request.token, body)
        group = self.groups.get(body.group_id)
        if group is None and body.member_epoch != JOINS:
            return [_refused(request.token, (Error.GROUP_ID_NOT_FOUND, f"Group {body.group_id} not found."))]
        if group is not None and group.is_ending:
            return [_refused(request.token, (Error.COORDINATOR_NOT_AVAILABLE, "The group is being deleted."))]
        known = group or ConsumerGroup(body.group_id)
        member_id = body.member_id or str(self.new_id())
        refusal = self._refusal(known, member_id, body)
        if refusal is not None:
            return [_refused(request.token, refusal)]
        pattern, found = body.subscribed_topic_regex, None
        if pattern and pattern not in known.patterns:
            try:
                found, _ = self._compared(TopicPattern(pattern))
            except BadPattern as problem:
                return [_refused(request.token, _bad_pattern(pattern, problem))]
        self.groups[body.group_id] = known
        return self._beat(known, member_id, request, now, converted, found)

    def _malformed(self, body: cgh.ConsumerGroupHeartbeatRequest, version: int) -> Refusal | None:
        wants = body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None
        rules = (
            (not body.group_id, "GroupId can't be empty."),
            (body.instance_id is not None and not body.instance_id.strip(), "InstanceId can't be empty."),
            (body.rack_id is not None and not body.rack_id.strip(), "RackId can't be empty."),
            (
                not body.member_id and (version >= FIRST_VERSION_WITH_OWN_IDS or body.member_epoch != JOINS),
                "MemberId can't be empty.",
            ),
            (body.member_epoch < LEFT_FOR_A_WHILE, "MemberEpoch is invalid."),
            (body.member_epoch == LEFT_FOR_A_WHILE and body.instance_id is None, "InstanceId can't be null."),
            (
                body.member_epoch == JOINS and body.rebalance_timeout_ms == -1,
                "RebalanceTimeoutMs must be provided in first request.",
            ),
            (
                body.member_epoch == JOINS and (body.topic_partitions is None or bool(body.topic_partitions)),
                "TopicPartitions must be empty when (re-)joining.",
            ),
            (
                body.member_epoch == JOINS and not wants,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            ),
        )
        for is_broken, words in rules:
            if is_broken:
                return Error.INVALID_REQUEST, words
        if body.server_assignor is not None and body.server_assignor not in self.settings.assignors:
            offered = ", ".join(self.settings.assignors)
            words = f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: {offered}."
            return Error.UNSUPPORTED_ASSIGNOR, words
        return None

    def _refusal(self, group: ConsumerGroup, member_id: str, body: cgh.ConsumerGroupHeartbeatRequest) -> Refusal | None:
        joins = body.member_epoch == JOINS
        holder = group.static_members.get(body.instance_id) if body.instance_id is not None else None
        if joins and holder is not None:
            if group.place(holder).epoch != LEFT_FOR_A_WHILE and holder != member_id:
                words = f"Static member {holder} with instance id {body.instance_id} is still part of the group."
                return Error.UNRELEASED_INSTANCE_ID, words
            return None
        if joins:
            is_full = member_id not in group.members and len(group.members) >= self.settings.member_count_max
            return (
                (Error.GROUP_MAX_SIZE_REACHED, "The consumer group has reached its maximum capacity.")
                if is_full
                else None
            )
        wrong = self._wrong_identity(group, member_id, body.instance_id)
        if wrong is not None:
            return wrong
        return _wrong_epoch(group.place(member_id), body)

    def _wrong_identity(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> Refusal | None:
        if instance_id is not None:
            holder = group.static_members.get(instance_id)
            if holder is None:
                return Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            if holder != member_id:
                return Error.FENCED_INSTANCE_ID, f"Static member {member_id} was fenced by member {holder}."
        if member_id not in group.members:
            return Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        return None

    def _beat(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: Request[cgh.ConsumerGroupHeartbeatRequest],
        now: Now,
        converted: Iterable[Entry],
        found: list[str] | None,
    ) -> list[Effect]:
        """`found` are the topics of the member's pattern, where it is a new one."""
        body = request.body
        turn = Turn(group, converted)
        if body.member_epoch == JOINS and body.instance_id is not None:
            self._replace(turn, member_id, body.instance_id)
        before = group.place(member_id)
        wants_more = self._subscribe(turn, member_id, request, now, found)
        self._refresh(turn, now, at_once=wants_more)
        if group.epoch > group.assignment_epoch:
            self._assign(turn, now)
        owned = None if body.topic_partitions is None else _owned(body.topic_partitions)
        self._reconcile(turn, member_id, body.member_epoch, owned)
        self._arm_session(group, member_id, now)
        if group.place(member_id) != before:
            self._arm_revocation(group, member_id, now)
        return self._finish(turn, Reply(request.token, self._answer(group, member_id, before, request)))

    def _replace(self, turn: Turn, member_id: str, instance_id: str) -> None:
        """Let a static member that is back have the place of its earlier member id."""
        group = turn.group
        former = group.static_members.get(instance_id)
        if former is None or former == member_id:
            return
        place, target, metadata = group.place(former), group.targets.get(former), group.members[former]
        self._cancel(group, former)
        turn.take_place(former, None)
        turn.target(former, None)
        turn.describe(former, None)
        turn.describe(member_id, metadata)
        turn.target(member_id, target)
        turn.take_place(member_id, msgspec.structs.replace(place, epoch=JOINS, previous_epoch=JOINS))

    def _subscribe(
        self,
        turn: Turn,
        member_id: str,
        request: Request[cgh.ConsumerGroupHeartbeatRequest],
        now: Now,
        found: list[str] | None,
    ) -> bool:
        """Take over what the member says of itself; return whether it wants other topics than before."""
        body = request.body
        known = turn.group.members.get(member_id)
        base = known or r.ConsumerGroupMemberMetadataValue(
            instance_id=body.instance_id, rack_id=None, server_assignor=None, subscribed_topic_regex=None
        )
        regex = base.subscribed_topic_regex if body.subscribed_topic_regex is None else body.subscribed_topic_regex
        names = base.subscribed_topic_names
        if body.subscribed_topic_names is not None:
            names = sorted(dict.fromkeys(body.subscribed_topic_names))
        now_said = r.ConsumerGroupMemberMetadataValue(
            instance_id=base.instance_id,
            rack_id=base.rack_id if body.rack_id is None else body.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex or None,
            rebalance_timeout_ms=base.rebalance_timeout_ms
            if body.rebalance_timeout_ms < 0
            else body.rebalance_timeout_ms,
            server_assignor=base.server_assignor if body.server_assignor is None else body.server_assignor,
        )
        is_new = turn.describe(member_id, now_said) and known is None
        if found is not None and regex:
            self._put_pattern(turn, regex, found, now)
        turn.forget_pattern(base.subscribed_topic_regex)
        had = (base.subscribed_topic_names, base.subscribed_topic_regex)
        return is_new or had != (names, now_said.subscribed_topic_regex)

    def _compared(
        self, pattern: TopicPattern, since: int | None = None, known: Iterable[str] = ()
    ) -> tuple[list[str], int]:
        """Return the topics that a pattern describes, and what finding them took; `BadPattern` where that is too much.

        since, known:  the change that it was compared at before, and what it described then.
        """
        self._names.note(self.topics.names())
        added = None if since is None else self._names.added_since(since)
        names = self._names.all if added is None else added
        found = [name for name in names if pattern.matches(name)]
        if added is not None:
            found = sorted({*found, *(name for name in known if name in self._names)})
        return found, pattern.work + WORK_OF_NAME * len(names)

    def _put_pattern(self, turn: Turn, pattern: str, topics: list[str], now: Now) -> None:
        known = turn.group.patterns.get(pattern)
        if known is None or known.topics != topics:
            key = r.ConsumerGroupRegularExpressionKey(group_id=turn.group.group_id, regular_expression=pattern)
            turn.put(key, r.ConsumerGroupRegularExpressionValue(topics=topics, timestamp_ms=now.wall_ms))
        turn.group.compared[pattern] = self._names.change

    def _compare_again(self, turn: Turn, now: Now) -> None:
        """Look what patterns describe now; where one takes too long it stays with what it has."""
        group, work = turn.group, 0
        if group.patterns:
            self._names.note(self.topics.names())
        for pattern, known in list(group.patterns.items()):
            since = group.compared.get(pattern)
            if since == self._names.change:
                continue
            if work > REFRESH_WORK_MAX:
                return
            try:
                topics, taken = self._compared(TopicPattern(pattern), since, known.topics)
            except BadPattern:
                topics, taken = known.topics, WORK_MAX
            work += taken
            self._put_pattern(turn, pattern, topics, now)

    def _refresh(self, turn: Turn, now: Now, *, at_once: bool) -> None:
        """Look whether subscriptions or their topics changed; if so, a new group epoch begins."""
        group = turn.group
        if not at_once and 0 <= now.now_ms - group.refreshed_ms < REFRESH_MS and group.refreshed_ms >= 0:
            return
        group.refreshed_ms = now.now_ms
        self._compare_again(turn, now)
        metadata_hash = self._hash(group)
        if at_once or metadata_hash != group.metadata_hash:
            turn.bump(metadata_hash)

    def _hash(self, group: ConsumerGroup) -> int:
        """Return a number that changes when a topic that somebody wants comes, goes or grows."""
        found = [(name, self.topics.view_of(name)) for name in sorted(group.subscribed_topics())]
        seen = [f"{name} {view.topic_id} {view.partition_count}" for name, view in found if view is not None]
        return zlib.crc32("\n".join(seen).encode()) if seen else 0

    # --- assigning ---------------------------------------------------------------------------

    def _assign(self, turn: Turn, now: Now) -> None:
        """Compute the target of the newest group epoch."""
        group = turn.group
        views = {name: self.topics.view_of(name) for name in group.subscribed_topics()}
        counts = {view.topic_id: view.partition_count for view in views.values() if view is not None}
        wishes = {}
        for member_id, member in group.members.items():
            wanted = (views[name] for name in group.topics_of(member_id))
            topics = frozenset(view.topic_id for view in wanted if view is not None)
            before = group.targets.get(member_id, NOTHING)
            wishes[member_id] = Wish(topics=topics, before=before, order=member.instance_id or member_id)
        targets = ASSIGNORS[self.assignor(group)](wishes, counts)
        for member_id in sorted(targets):
            turn.target(member_id, targets[member_id])
        value = r.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.epoch, assignment_timestamp_ms=now.wall_ms
        )
        turn.put(r.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), value)

    def assignor(self, group: ConsumerGroup) -> str:
        """Return the assignor that most members ask for, the default when nobody asks."""
        votes: dict[str, int] = {}
        for member in group.members.values():
            if member.server_assignor in self.settings.assignors:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        order = self.settings.assignors
        return max(votes, key=lambda name: (votes[name], -order.index(name))) if votes else order[0]

    def _reconcile(self, turn: Turn, member_id: str, said_epoch: int, owned: Partitions | None) -> None:
        group = turn.group
        place = group.place(member_id)
        if said_epoch == JOINS and place.epoch != JOINS:
            # It begins anew and holds nothing, whatever we believed: what it was to give up is free.
            place = Place(epoch=JOINS, assigned=place.assigned)
        after = reconciled(
            place,
            target=group.targets.get(member_id, NOTHING),
            target_epoch=group.assignment_epoch,
            owned=NOTHING if said_epoch == JOINS else owned,
            is_free=lambda partition: group.holders.get(partition, member_id) == member_id,
        )
        turn.take_place(member_id, after)

    def _answer(
        self, group: ConsumerGroup, member_id: str, before: Place, request: Request[cgh.ConsumerGroupHeartbeatRequest]
    ) -> cgh.ConsumerGroupHeartbeatResponse:
        body = request.body
        place = group.place(member_id)
        says_all = (
            body.topic_partitions is not None
            and body.rebalance_timeout_ms >= 0
            and (body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None)
        )
        assignment = None
        if body.member_epoch == JOINS or says_all or place.assigned != before.assigned:
            assignment = cgh.Assignment(
                topic_partitions=[
                    cgh.ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in by_topic(place.assigned).items()
                ]
            )
        return cgh.ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=place.epoch,
            heartbeat_interval_ms=self._settings_of(group).heartbeat_interval_ms,
            assignment=assignment,
        )

    # --- leaving -----------------------------------------------------------------------------

    def _leave(self, token: Token, body: cgh.ConsumerGroupHeartbeatRequest) -> list[Effect]:
        group = self.groups.get(body.group_id)
        if group is None:
            return [_refused(token, (Error.GROUP_ID_NOT_FOUND, f"Group {body.group_id} not found."))]
        wrong = self._wrong_identity(group, body.member_id, body.instance_id)
        if wrong is not None:
            return [_refused(token, wrong)]
        turn = Turn(group)
        if body.member_epoch == LEFT_FOR_A_WHILE:
            # KIP-848: its place is kept until its session ends; it holds what it was given, and gave up the rest.
            place = msgspec.structs.replace(
                group.place(body.member_id), epoch=LEFT_FOR_A_WHILE, state=MemberState.STABLE, revoking=NOTHING
            )
            turn.take_place(body.member_id, place)
            self.timers.cancel((REVOCATION, group.group_id, body.member_id))
        else:
            self._remove(turn, [body.member_id])
        answer = cgh.ConsumerGroupHeartbeatResponse(member_id=body.member_id, member_epoch=body.member_epoch)
        return self._finish(turn, Reply(token, answer))

    def _remove(self, turn: Turn, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self._cancel(turn.group, member_id)
            turn.remove(member_id)
        turn.bump()

    def on_timers(self, due: Iterable[Timer]) -> list[Effect]:
        """Remove members whose session or rebalance timed out, group by group."""
        late: dict[str, dict[str, None]] = {}
        for kind, group_id, member_id in due:
            group = self.groups.get(group_id)
            if group is None or member_id not in group.members:
                continue
            if kind == SESSION or group.place(member_id).state is MemberState.UNREVOKED:
                late.setdefault(group_id, {})[member_id] = None
        effects: list[Effect] = []
        for group_id, member_ids in late.items():
            turn = Turn(self.groups[group_id])
            self._remove(turn, member_ids)
            effects += self._finish(turn, None)
        return effects

    def _arm_session(self, group: ConsumerGroup, member_id: str, now: Now) -> None:
        session_timeout_ms = self._settings_of(group).session_timeout_ms
        self.timers.set((SESSION, group.group_id, member_id), now.now_ms + session_timeout_ms)

    def _settings_of(self, group: ConsumerGroup) -> ConsumerGroupSettings:
        return self.settings.with_own(self.own_settings(group.group_id))

    def _arm_revocation(self, group: ConsumerGroup, member_id: str, now: Now) -> None:
        timer = (REVOCATION, group.group_id, member_id)
        if group.place(member_id).state is MemberState.UNREVOKED:
            self.timers.set(timer, now.now_ms + group.members[member_id].rebalance_timeout_ms)
        else:
            self.timers.cancel(timer)

    def _cancel(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in (SESSION, REVOCATION):
            self.timers.cancel((kind, group.group_id, member_id))

    # --- writing -----------------------------------------------------------------------------

    def _finish(self, turn: Turn, reply: Reply | None) -> list[Effect]:
        """Write what was changed; the answer comes when that, or what was written before it, is committed."""
        group = turn.group
        if turn.entries:
            self._written_count += 1
            followed, group.last_written = group.last_written, self._written_count
            ticket = GroupChanged(group.group_id, group.last_written, followed, tuple(turn.undo), reply)
            return [Write(entries=turn.entries, ticket=ticket)]
        if reply is None or not is_being_written(group):
            return [] if reply is None else [reply]
        self._held.setdefault((group.group_id, group.last_written), []).append(reply)
        return []

    def on_written(self, ticket: GroupChanged) -> list[Effect]:
        """Give the answers that waited for this."""
        group = self.groups.get(ticket.group_id)
        if group is not None:
            group.last_committed = ticket.number
        own: list[Effect] = [] if ticket.reply is None else [ticket.reply]
        return own + self._held.pop((ticket.group_id, ticket.number), [])

    def on_not_written(self, ticket: GroupChanged, error: Error, now: Now) -> list[Effect]:
        """Take it back: nobody was answered, and nothing came after it."""
        group = self.groups.get(ticket.group_id)
        if group is None:
            return []
        for key, value in reversed(ticket.undo):
            group.apply(key, value)
        group.last_written = ticket.followed
        group.refreshed_ms = -1
        group.compared.clear()
        for member_id in group.members:
            if (SESSION, group.group_id, member_id) not in self.timers:
                self._arm_session(group, member_id, now)
            if (REVOCATION, group.group_id, member_id) not in self.timers:
                self._arm_revocation(group, member_id, now)
        if not group.epoch:
            del self.groups[ticket.group_id]
        return [] if ticket.reply is None else [_refused(ticket.reply.token, (error, "The change was not stored."))]

    # --- what others ask ---------------------------------------------------------------------

    def commit_error(
        self, group_id: str, member_id: str, epoch: int, *, is_transactional: bool, names_members: bool
    ) -> Error:
        """Return whether a member of this epoch may commit offsets; `names_members`: the version has member epochs."""
        group = self.groups[group_id]
        if group.is_ending:
            return Error.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and not group.members:
            return Error.NONE  # an admin
        if is_transactional and epoch < 0 and not member_id:
            return Error.NONE  # a producer that does not say who reads for it
        if member_id not in group.members:
            return Error.UNKNOWN_MEMBER_ID
        if not names_members:
            return Error.UNSUPPORTED_VERSION
        return Error.NONE if epoch == group.place(member_id).epoch else Error.STALE_MEMBER_EPOCH

    def fetch_error(self, group_id: str, member_id: str | None, epoch: int) -> Error:
        """Return whether a member of this epoch may read offsets; who names nobody may."""
        group = self.groups.get(group_id)
        if group is None or (not member_id and epoch < 0):
            return Error.NONE
        if member_id not in group.members:
            return Error.UNKNOWN_MEMBER_ID
        return Error.NONE if epoch == group.place(member_id).epoch else Error.STALE_MEMBER_EPOCH

    def tombstones(self, group_id: str) -> list[Entry]:
        """Return the records that end a group without members."""
        group = self.groups[group_id]
        assert not group.members
        keys: list[msgspec.Struct] = [
            r.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
            for pattern in group.patterns
        ]
        keys += [
            r.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
            r.ConsumerGroupMetadataKey(group_id=group_id),
        ]
        return [Entry(r.encode_key(key), None) for key in keys]

    def listed(self, states: dict[str, None]) -> list[ListedGroup]:
        """Return the groups in these states; none named means all."""
        return [
            ListedGroup(
                group_id=group_id, protocol_type="consumer", group_state=group.state.value, group_type=CONSUMER_TYPE
            )
            for group_id, group in sorted(self.groups.items())
            if not states or group.state.lower() in states
        ]

    def describe(self, group_id: str) -> cgd.DescribedGroup:
        """Return a group with its members."""
        group = self.groups.get(group_id)
        if group is None or group.is_ending:
            words = f"Group {group_id} not found."
            return cgd.DescribedGroup(error_code=Error.GROUP_ID_NOT_FOUND, error_message=words, group_id=group_id)
        return cgd.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=self.assignor(group),
            members=[self._described(group, member_id) for member_id in group.members],
        )

    def _described(self, group: ConsumerGroup, member_id: str) -> cgd.Member:
        member = group.members[member_id]
        place = group.place(member_id)
        return cgd.Member(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=place.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.subscribed_topic_names,
            subscribed_topic_regex=member.subscribed_topic_regex,
            assignment=self._named(place.assigned),
            target_assignment=self._named(group.targets.get(member_id, NOTHING)),
            member_type=CONSUMER_PROTOCOL,
        )

    def _named(self, partitions: Partitions) -> cgd.Assignment:
        topics = []
        for topic_id, indexes in by_topic(partitions).items():
            name = self.topics.name_of(topic_id)
            if name is not None:
                topics.append(cgd.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes))
        return cgd.Assignment(topic_partitions=topics)


def is_in_use(group: ConsumerGroup | None) -> bool:
    """Return whether a group has members."""
    return group is not None and group.state is not ConsumerGroupState.EMPTY


def is_being_written(group: ConsumerGroup | None) -> bool:
    """Return whether changes of a group are on their way to the log, which may refuse them."""
    return group is not None and group.last_written > group.last_committed


def is_ending(group: ConsumerGroup | None) -> bool:
    """Return whether the tombstones of a group are on their way to the log."""
    return group is not None and group.is_ending


def refused_heartbeat(error: Error, words: str | None = None) -> cgh.ConsumerGroupHeartbeatResponse:
    """Return the answer to a heartbeat that is not served."""
    return cgh.ConsumerGroupHeartbeatResponse(error_code=error, error_message=words)


def _refused(token: Token, refusal: Refusal) -> Reply:
    return Reply(token, refused_heartbeat(*refusal))


def _owned(topics: Iterable[cgh.ConsumerGroupHeartbeatRequestTopicPartitions]) -> Partitions:
    return frozenset(TopicIdPartition(topic.topic_id, index) for topic in topics for index in topic.partitions)


def _bad_pattern(pattern: str, problem: BadPattern) -> Refusal:
    words = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {problem}."
    return Error.INVALID_REGULAR_EXPRESSION, words


def _wrong_epoch(place: Place, body: cgh.ConsumerGroupHeartbeatRequest) -> Refusal | None:
    """Fence a member of another epoch, unless it missed one answer and believes to have nothing more than we do."""
    said = body.member_epoch
    if said == place.epoch:
        return None
    missed_one = said < place.epoch and said == place.previous_epoch and body.topic_partitions is not None
    if missed_one and _owned(body.topic_partitions or ()) <= place.assigned:
        return None
    words = f"The consumer group member has epoch {said}; the group coordinator knows it with epoch {place.epoch}."
    return Error.FENCED_MEMBER_EPOCH, words
