"""The coordinator of all groups of one `__consumer_offsets` partition: requests, time, log, in one state machine.

It answers what concerns one group. Requests that name several (they may belong to several partitions) are taken apart
by the shell, which asks `describe`, `fetch`, `listed` and `delete` group by group.

Groups of the classic protocol are kept here, those of the new one (KIP-848) in `consumer`; an id belongs to one of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, assert_never
from uuid import UUID

import msgspec

from replog.coordinators.classic_group import (
    AssignmentStored,
    ClassicGroup,
    EmptyStored,
    GroupSettings,
    GroupState,
    MemberReplaced,
    Timer,
    refused_join,
)
from replog.coordinators.consumer_group import ConsumerGroup
from replog.coordinators.consumer_group_coordinator import (
    CONSUMER_TYPE,
    REVOCATION,
    SESSION,
    ConsumerGroupCoordinator,
    ConsumerGroupSettings,
    GroupChanged,
    KnownTopics,
    is_being_written,
    is_ending,
    is_in_use,
    nothing_own,
    refused_heartbeat,
)
from replog.coordinators.events import (
    AnyRequest,
    Effect,
    Entry,
    NotWritten,
    Now,
    Producer,
    Reply,
    Request,
    Token,
    Write,
    Written,
    asks,
)
from replog.coordinators.group_records import (
    NO_EXPIRY,
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    decode,
    group_tombstone,
    offset_entry,
    offset_tombstone,
    restored_members,
)
from replog.coordinators.offsets import GroupOffsets
from replog.coordinators.subscriptions import CONSUMER, subscribed_topics
from replog.coordinators.timers import Timers
from replog.errors import Error
from replog.ports import Buffer
from replog.types import TopicPartition
from replog.wire.messages import leave_group as lg
from replog.wire.messages import offset_commit as oc
from replog.wire.messages import offset_delete as od
from replog.wire.messages import txn_offset_commit as toc
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from replog.wire.messages.delete_groups import DeletableGroupResult
from replog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from replog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from replog.wire.messages.join_group import JoinGroupRequest
from replog.wire.messages.list_groups import ListedGroup
from replog.wire.messages.offset_fetch import OffsetFetchResponsePartitions
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_PREFIX_MAX: Final = 4096  # characters
CLASSIC: Final = "Classic"
FIRST_VERSION_WITH_NOT_FOUND: Final = 6  # of DescribeGroups (KIP-1043)
FIRST_VERSION_WITH_MANY_LEAVING: Final = 3  # of LeaveGroup
FIRST_VERSION_WITH_MEMBER_EPOCH: Final = 9  # of OffsetCommit (KIP-848)
NO_RETENTION_TIME: Final = -1
TIMESTAMP_MAX: Final = (1 << 63) - 1
EXPIRY: Final[Timer] = ("expiry", "", "")

Commits = tuple[tuple[TopicPartition, CommittedOffset], ...]


class Topics(KnownTopics, Protocol):
    """What the committed metadata says of topics."""

    def has_partition(self, partition: TopicPartition) -> bool:
        """Return whether there is such a partition."""


class OffsetsStored(msgspec.Struct, frozen=True):
    """Ticket: offsets of a group; those of a transaction wait for its end."""

    group_id: str
    commits: Commits
    token: Token
    answer: "CommitAnswer"
    producer: Producer | None


class OffsetsForgotten(msgspec.Struct, frozen=True):
    """Ticket: tombstones of offsets, asked for by somebody (a token) or by time; perhaps of the group too."""

    group_id: str
    partitions: tuple[TopicPartition, ...]
    token: Token | None
    answer: od.OffsetDeleteResponse | None


class GroupDeleted(msgspec.Struct, frozen=True):
    """Ticket: tombstones of a group and of these offsets of it; without a token it was time that ended it."""

    group_id: str
    partitions: tuple[TopicPartition, ...]
    token: Token | None


class WayMade(msgspec.Struct, frozen=True):
    """Ticket: an empty group of the new protocol has made way for a classic one."""

    group_id: str


CommitAnswer = oc.OffsetCommitResponse | toc.TxnOffsetCommitResponse
Ticket = (
    AssignmentStored
    | MemberReplaced
    | EmptyStored
    | OffsetsStored
    | OffsetsForgotten
    | GroupDeleted
    | GroupChanged
    | WayMade
)


class GroupCoordinator:
    """Groups and their offsets."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Topics,
        new_id: Callable[[], UUID],
        *,
        expiry_interval_ms: int,
        consumer_settings: ConsumerGroupSettings | None = None,
        own_settings: Callable[[str], Mapping[str, str]] = nothing_own,
    ) -> None:
        """`own_settings` are what a group of the new protocol has of its own, by its id."""
        self.settings = settings
        self.topics = topics
        self.new_id = new_id
        self.expiry_interval_ms = expiry_interval_ms
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.timers: Timers[Timer] = Timers()
        self.consumer = ConsumerGroupCoordinator(
            consumer_settings or ConsumerGroupSettings(), topics, self.timers, new_id, own_settings
        )
        # Groups of either protocol that make way for one of the other, until that is certain.
        self._converted: dict[str, ClassicGroup] = {}
        self._replaced: dict[str, ConsumerGroup] = {}
        self._in_transaction: dict[int, dict[str, None]] = {}  # producer id -> groups it holds offsets of
        # By group: partitions of which offsets are on their way to the log, outside of transactions, and how many.
        self._storing: dict[str, Counter[TopicPartition]] = {}

    @property
    def next_ms(self) -> int | None:
        """When `on_tick` is worth calling next."""
        return self.timers.next_ms

    # --- loading -----------------------------------------------------------------------------

    def replay(self, key: Buffer, value: Buffer | None, log_offset: int, producer_id: int | None) -> None:
        """Take over a record from the log; `producer_id` of its transaction, None outside of any."""
        record = decode(key, value, log_offset)
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, producer_id)
        elif isinstance(record, GroupRecord):
            self._replay_group(record)
        else:
            self.consumer.replay(key, value)

    def _replay_offset(self, record: OffsetRecord, producer_id: int | None) -> None:
        offsets = self.offsets.setdefault(record.group_id, GroupOffsets())
        if record.value is None:
            offsets.forget(record.partition)
        elif producer_id is None:
            offsets.commit(record.partition, record.value)
        else:
            self._hold(record.group_id, producer_id, ((record.partition, record.value),))

    def _replay_group(self, record: GroupRecord) -> None:
        self.groups.pop(record.group_id, None)
        if record.value is None:
            return
        group = self._new_group(record.group_id)
        group.protocol_type = record.value.protocol_type or None
        group.generation = record.value.generation
        group.protocol = record.value.protocol
        group.leader = record.value.leader
        group.state_since_ms = record.value.current_state_timestamp_ms
        group.restore(restored_members(record.value), is_stable=bool(record.value.members))

    def on_marker(self, producer_id: int, *, committed: bool) -> None:
        """Let the offsets of a transaction count or go: its end marker is committed."""
        for group_id in self._in_transaction.pop(producer_id, {}):
            offsets = self.offsets.get(group_id)
            if offsets is not None:
                offsets.end_transaction(producer_id, committed=committed)

    def on_loaded(self, now: Now) -> list[Effect]:
        """Begin to coordinate: all sessions start afresh."""
        for group in self.groups.values():
            group.begin_sessions(now)
        self.consumer.on_loaded(now)
        self.timers.set(EXPIRY, now.now_ms + self.expiry_interval_ms)
        return []

    # --- events ------------------------------------------------------------------------------

    def handle(self, request: AnyRequest, now: Now) -> list[Effect]:
        """Answer a request that concerns one group."""
        if asks(request, ConsumerGroupHeartbeatRequest):
            return self._consumer_heartbeat(request, now)
        if asks(request, JoinGroupRequest):
            return self._join(request, now)
        if asks(request, SyncGroupRequest):
            return self._sync(request, now)
        if asks(request, HeartbeatRequest):
            return self._heartbeat(request, now)
        if asks(request, lg.LeaveGroupRequest):
            return self._leave(request, now)
        if asks(request, oc.OffsetCommitRequest):
            return self._commit(request, now)
        if asks(request, toc.TxnOffsetCommitRequest):
            return self._commit_in_transaction(request, now)
        if asks(request, od.OffsetDeleteRequest):
            return self._delete_offsets(request)
        raise AssertionError(f"{type(request.body).__name__} is not for a group coordinator")

    def on_tick(self, now: Now) -> list[Effect]:
        """Act on every time-out that is due."""
        effects: list[Effect] = []
        due = self.timers.due(now.now_ms)
        effects += self.consumer.on_timers(timer for timer in due if timer[0] in (SESSION, REVOCATION))
        for kind, group_id, member_id in due:
            if kind == EXPIRY[0]:
                effects += self._expire(now)
                self.timers.set(EXPIRY, now.now_ms + self.expiry_interval_ms)
                continue
            group = self.groups.get(group_id)
            if group is not None and kind not in (SESSION, REVOCATION):
                group.on_timer(kind, member_id, now)
                effects += group.take_effects()
        return effects

    def on_written(self, written: Written, now: Now) -> list[Effect]:
        """Take over what is committed."""
        ticket: Ticket = written.ticket  # type: ignore[assignment]  # we made it
        match ticket:
            case AssignmentStored():
                return self._in_group(ticket.group_id, lambda group: group.on_assignment_stored(ticket, now))
            case MemberReplaced():
                if ticket.group_id in self.groups:
                    self.groups[ticket.group_id].on_replacement_stored(ticket)
                return [Reply(ticket.token, ticket.answer)]
            case EmptyStored():
                return []
            case OffsetsStored():
                return self._offsets_stored(ticket, written.base_offset)
            case OffsetsForgotten():
                return self._offsets_forgotten(ticket)
            case GroupDeleted():
                return self._group_deleted(ticket)
            case GroupChanged():
                self._converted.pop(ticket.group_id, None)
                return self.consumer.on_written(ticket)
            case WayMade():
                self._replaced.pop(ticket.group_id, None)
                return []
            case _:
                assert_never(ticket)

    def on_not_written(self, refused: NotWritten, now: Now) -> list[Effect]:
        """Answer whoever asked; nothing has changed."""
        ticket: Ticket = refused.ticket  # type: ignore[assignment]  # we made it
        error = client_error(refused.error)
        match ticket:
            case AssignmentStored():
                return self._in_group(ticket.group_id, lambda group: group.on_assignment_refused(ticket, error, now))
            case MemberReplaced():
                return self._replacement_refused(ticket, error, now)
            case EmptyStored():
                return []  # the log still has the members of the generation before: their sessions will end
            case OffsetsStored():
                return self._offsets_refused(ticket, error)
            case OffsetsForgotten():
                if ticket.token is None:
                    return []
                return [Reply(ticket.token, od.OffsetDeleteResponse(error_code=error))]
            case GroupDeleted():
                return self._deletion_refused(ticket, error)
            case GroupChanged():
                effects = self.consumer.on_not_written(ticket, error, now)
                # Only the first write of a group turns it into one of the new protocol: that one is on its way to the log, or was refused.
                if ticket.group_id in self._converted and ticket.group_id not in self.consumer.groups:
                    self.groups[ticket.group_id] = self._converted.pop(ticket.group_id)
                return effects
            case WayMade():
                return self._way_refused(ticket, error)
            case _:
                assert_never(ticket)

    def _replacement_refused(self, ticket: MemberReplaced, error: Error, now: Now) -> list[Effect]:
        if ticket.group_id not in self.groups:
            return [Reply(ticket.token, refused_join(ticket.member_id, error))]
        return self._in_group(ticket.group_id, lambda group: group.on_replacement_refused(ticket, error, now))

    def _in_group(self, group_id: str, act: Callable[[ClassicGroup], None]) -> list[Effect]:
        group = self.groups.get(group_id)
        if group is None:
            return []
        act(group)
        return group.take_effects()

    # --- membership --------------------------------------------------------------------------

    def _join(self, request: Request[JoinGroupRequest], now: Now) -> list[Effect]:
        body = request.body
        group = self.groups.get(body.group_id)
        error = Error.NONE
        limits = self.settings
        if not body.group_id:
            error = Error.INVALID_GROUP_ID
        elif not limits.session_timeout_ms_min <= body.session_timeout_ms <= limits.session_timeout_ms_max:
            error = Error.INVALID_SESSION_TIMEOUT
        elif group is None and body.member_id:
            error = Error.UNKNOWN_MEMBER_ID
        if error is not Error.NONE:
            return [Reply(request.token, refused_join(body.member_id, error))]
        if group is None and is_in_use(self.consumer.groups.get(body.group_id)):
            return [Reply(request.token, refused_join(body.member_id, Error.INCONSISTENT_GROUP_PROTOCOL))]
        effects = self._make_way(body.group_id)
        if group is None:
            group = self._new_group(body.group_id)
        group.join(request, now)
        return [*effects, *group.take_effects()]

    def _make_way(self, group_id: str) -> list[Effect]:
        """Let an empty group of the new protocol become a classic one."""
        if group_id not in self.consumer.groups:
            return []
        entries = self.consumer.tombstones(group_id)
        self._replaced[group_id] = self.consumer.groups.pop(group_id)
        return [Write(entries=entries, ticket=WayMade(group_id))]

    def _way_refused(self, ticket: WayMade, error: Error) -> list[Effect]:
        """Go on as what the log says we are: with both kinds in it the next coordinator would know no classic members."""
        former = self._replaced.pop(ticket.group_id, None)
        if former is None:
            return []
        self.consumer.groups[ticket.group_id] = former
        classic = self.groups.pop(ticket.group_id, None)
        if classic is None:
            return []
        classic.die(error)
        return classic.take_effects()

    def _consumer_heartbeat(self, request: Request[ConsumerGroupHeartbeatRequest], now: Now) -> list[Effect]:
        """Serve a member of the new protocol; a classic group without members becomes one of it (KIP-848)."""
        body = request.body
        classic = self.groups.get(body.group_id)
        if classic is None:
            return self.consumer.heartbeat(request, now)
        if classic.state is GroupState.DEAD:
            return [Reply(request.token, refused_heartbeat(Error.COORDINATOR_NOT_AVAILABLE))]
        if classic.members or classic.pending:
            words = f"Group {body.group_id} is not a consumer group."
            return [Reply(request.token, refused_heartbeat(Error.GROUP_ID_NOT_FOUND, words))]
        effects = self.consumer.heartbeat(request, now, converted=[group_tombstone(body.group_id)])
        if body.group_id in self.consumer.groups:
            self._converted[body.group_id] = self.groups.pop(body.group_id)
        return effects

    def _sync(self, request: Request[SyncGroupRequest], now: Now) -> list[Effect]:
        group, error = self._existing(request.body.group_id)
        if group is None:
            return [Reply(request.token, SyncGroupResponse(error_code=error))]
        group.sync(request, now)
        return group.take_effects()

    def _heartbeat(self, request: Request[HeartbeatRequest], now: Now) -> list[Effect]:
        group, error = self._existing(request.body.group_id)
        if group is not None:
            error = group.heartbeat(request.body, now)
        return [Reply(request.token, HeartbeatResponse(error_code=error))]

    def _leave(self, request: Request[lg.LeaveGroupRequest], now: Now) -> list[Effect]:
        body = request.body
        group, error = self._existing(body.group_id)
        if group is None:
            return [Reply(request.token, lg.LeaveGroupResponse(error_code=error))]
        if request.version < FIRST_VERSION_WITH_MANY_LEAVING:
            left = group.leave(lg.MemberIdentity(member_id=body.member_id), now)
            return [*group.take_effects(), Reply(request.token, lg.LeaveGroupResponse(error_code=left))]
        members = [
            lg.MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=group.leave(identity, now),
            )
            for identity in body.members
        ]
        return [*group.take_effects(), Reply(request.token, lg.LeaveGroupResponse(members=members))]

    def _existing(self, group_id: str) -> tuple[ClassicGroup | None, Error]:
        if not group_id:
            return None, Error.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        return group, Error.NONE if group is not None else Error.UNKNOWN_MEMBER_ID

    def _new_group(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self.settings, self.timers, self._new_member_id)
        self.groups[group_id] = group
        return group

    def _new_member_id(self, prefix: str) -> str:
        """Return a new member's id; a client's name may be as long as a string can be, its id must be one as well."""
        return f"{prefix[:MEMBER_PREFIX_MAX]}-{self.new_id()}"

    # --- committing offsets ------------------------------------------------------------------

    def _commit(self, request: Request[oc.OffsetCommitRequest], now: Now) -> list[Effect]:
        body = request.body
        generation = body.generation_id_or_member_epoch
        expire_timestamp_ms = _expiry_of(body, now)
        error = self._commit_error(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            generation,
            now,
            is_transactional=False,
            names_members=request.version >= FIRST_VERSION_WITH_MEMBER_EPOCH,
        )
        commits: list[tuple[TopicPartition, CommittedOffset]] = []
        topics: list[oc.OffsetCommitResponseTopic] = []
        for topic in body.topics:
            name = topic.name or self.topics.name_of(topic.topic_id)
            results = []
            for asked in topic.partitions:
                outcome = error
                if error is Error.NONE:
                    outcome = self._take(commits, name, asked, now, expire_timestamp_ms)
                results.append(
                    oc.OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=outcome)
                )
            topics.append(oc.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results))
        answer = oc.OffsetCommitResponse(topics=topics)
        return self._store(body.group_id, commits, request.token, answer, None)

    def _commit_in_transaction(self, request: Request[toc.TxnOffsetCommitRequest], now: Now) -> list[Effect]:
        body = request.body
        error = self._commit_error(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id, now, is_transactional=True
        )
        commits: list[tuple[TopicPartition, CommittedOffset]] = []
        topics: list[toc.TxnOffsetCommitResponseTopic] = []
        for topic in body.topics:
            results = []
            for asked in topic.partitions:
                outcome = error
                if error is Error.NONE:
                    outcome = self._take(commits, topic.name, asked, now, NO_EXPIRY)
                results.append(
                    toc.TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=outcome)
                )
            topics.append(toc.TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
        answer = toc.TxnOffsetCommitResponse(topics=topics)
        producer = Producer(body.producer_id, body.producer_epoch)
        return self._store(body.group_id, commits, request.token, answer, producer)

    def _commit_error(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Now,
        *,
        is_transactional: bool,
        names_members: bool = True,
    ) -> Error:
        if not group_id and is_transactional:  # otherwise it is a group like any other: old clients have offsets there
            return Error.INVALID_GROUP_ID
        if group_id in self.consumer.groups:
            return self.consumer.commit_error(
                group_id, member_id, generation, is_transactional=is_transactional, names_members=names_members
            )
        group = self.groups.get(group_id)
        if group is None:
            return Error.NONE if generation < 0 else Error.ILLEGAL_GENERATION
        return group.commit_error(member_id, instance_id, generation, now, is_transactional=is_transactional)

    def _take(
        self,
        commits: list[tuple[TopicPartition, CommittedOffset]],
        topic: str | None,
        asked: oc.OffsetCommitRequestPartition | toc.TxnOffsetCommitRequestPartition,
        now: Now,
        expire_timestamp_ms: int,
    ) -> Error:
        if topic is None:
            return Error.UNKNOWN_TOPIC_ID
        partition = TopicPartition(topic, asked.partition_index)
        metadata = asked.committed_metadata or ""
        if not self.topics.has_partition(partition):
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        if len(metadata) > self.settings.metadata_bytes_max:
            return Error.OFFSET_METADATA_TOO_LARGE
        committed = CommittedOffset(
            offset=asked.committed_offset,
            leader_epoch=asked.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=now.wall_ms,
            log_offset=-1,
            expire_timestamp_ms=expire_timestamp_ms,
        )
        commits.append((partition, committed))
        return Error.NONE

    def _store(
        self,
        group_id: str,
        commits: list[tuple[TopicPartition, CommittedOffset]],
        token: Token,
        answer: CommitAnswer,
        producer: Producer | None,
    ) -> list[Effect]:
        if not commits:
            return [Reply(token, answer)]
        if producer is not None:
            offsets = self.offsets.setdefault(group_id, GroupOffsets())
            offsets.offer(producer.producer_id, [partition for partition, _ in commits])
        else:
            self._storing.setdefault(group_id, Counter()).update(partition for partition, _ in commits)
        entries = [offset_entry(group_id, partition, committed) for partition, committed in commits]
        ticket = OffsetsStored(group_id, tuple(commits), token, answer, producer)
        return [Write(entries=entries, ticket=ticket, producer=producer)]

    def _offsets_stored(self, ticket: OffsetsStored, base_offset: int) -> list[Effect]:
        offsets = self.offsets.setdefault(ticket.group_id, GroupOffsets())
        commits = tuple(
            (partition, committed._replace(log_offset=base_offset + index))
            for index, (partition, committed) in enumerate(ticket.commits)
        )
        if ticket.producer is None:
            self._arrived(ticket)
            for partition, committed in commits:
                offsets.commit(partition, committed)
        else:
            offsets.withdraw(ticket.producer.producer_id, [partition for partition, _ in commits])
            self._hold(ticket.group_id, ticket.producer.producer_id, commits)
        return [Reply(ticket.token, ticket.answer)]

    def _hold(self, group_id: str, producer_id: int, commits: Commits) -> None:
        offsets = self.offsets.setdefault(group_id, GroupOffsets())
        self._in_transaction.setdefault(producer_id, {})[group_id] = None
        for partition, committed in commits:
            offsets.hold(producer_id, partition, committed)

    def _offsets_refused(self, ticket: OffsetsStored, error: Error) -> list[Effect]:
        if ticket.producer is None:
            self._arrived(ticket)
        else:
            partitions = [partition for partition, _ in ticket.commits]
            self.offsets[ticket.group_id].withdraw(ticket.producer.producer_id, partitions)
        return [Reply(ticket.token, _with_error(ticket.answer, error))]

    def _arrived(self, ticket: OffsetsStored) -> None:
        """Note that offsets outside of transactions are on their way no more."""
        storing = self._storing[ticket.group_id]
        storing.subtract(partition for partition, _ in ticket.commits)
        left = +storing
        if left:
            self._storing[ticket.group_id] = left
        else:
            del self._storing[ticket.group_id]

    # --- reading offsets ---------------------------------------------------------------------

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> list[tuple[TopicPartition, OffsetFetchResponsePartitions]]:
        """Return where a group stands; None asks for all partitions it has committed."""
        offsets = self.offsets.get(group_id) or GroupOffsets()
        asked = sorted(offsets.committed) if partitions is None else partitions
        return [(partition, _fetched(offsets, partition, require_stable=require_stable)) for partition in asked]

    def fetch_error(self, group_id: str, member_id: str | None, member_epoch: int) -> Error:
        """Return whether who asks for offsets may have them (OffsetFetch version 9)."""
        return self.consumer.fetch_error(group_id, member_id, member_epoch)

    # --- forgetting offsets ------------------------------------------------------------------

    def _delete_offsets(self, request: Request[od.OffsetDeleteRequest]) -> list[Effect]:
        body = request.body
        group = self.groups.get(body.group_id)
        offsets = self.offsets.get(body.group_id)
        consumer_group = self.consumer.groups.get(body.group_id)
        error = Error.NONE
        if not body.group_id:
            error = Error.INVALID_GROUP_ID
        elif group is None and consumer_group is None and not offsets:
            error = Error.GROUP_ID_NOT_FOUND
        elif group is not None and group.members and group.protocol_type != CONSUMER:
            error = Error.NON_EMPTY_GROUP
        if error is not Error.NONE:
            return [Reply(request.token, od.OffsetDeleteResponse(error_code=error))]
        subscribed = consumer_group.subscribed_topics() if consumer_group is not None else subscribed_topics(group)
        known = offsets.committed if offsets is not None else {}
        gone: list[TopicPartition] = []
        topics: list[od.OffsetDeleteResponseTopic] = []
        for topic in body.topics:
            is_used = subscribed is None or topic.name in subscribed
            outcome = Error.GROUP_SUBSCRIBED_TO_TOPIC if is_used else Error.NONE
            partitions = [TopicPartition(topic.name, asked.partition_index) for asked in topic.partitions]
            gone += [partition for partition in partitions if partition in known and not is_used]
            results = [
                od.OffsetDeleteResponsePartition(partition_index=partition.partition, error_code=outcome)
                for partition in partitions
            ]
            topics.append(od.OffsetDeleteResponseTopic(name=topic.name, partitions=results))
        answer = od.OffsetDeleteResponse(topics=topics)
        if not gone:
            return [Reply(request.token, answer)]
        ticket = OffsetsForgotten(body.group_id, tuple(gone), request.token, answer)
        return [Write(entries=[offset_tombstone(body.group_id, partition) for partition in gone], ticket=ticket)]

    def on_topics_deleted(self, names: Mapping[str, None]) -> list[Effect]:
        """Forget the offsets of topics that are gone, as Apache Kafka does: who reads others of these names begins anew."""
        effects: list[Effect] = []
        for group_id in {**self.offsets, **self._storing}:
            offsets = self.offsets.get(group_id) or GroupOffsets()
            # Those on their way, too: their tombstones come behind them.
            written = dict.fromkeys([*offsets.partitions, *offsets.offered, *self._storing.get(group_id, ())])
            gone = tuple(partition for partition in written if partition.topic in names)
            if gone:
                entries = [offset_tombstone(group_id, partition) for partition in gone]
                effects.append(Write(entries=entries, ticket=OffsetsForgotten(group_id, gone, None, None)))
        return effects

    def _offsets_forgotten(self, ticket: OffsetsForgotten) -> list[Effect]:
        self._forget(ticket.group_id, ticket.partitions)
        if ticket.token is None or ticket.answer is None:
            return []
        return [Reply(ticket.token, ticket.answer)]

    def _forget(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Note tombstones of a group's offsets."""
        offsets = self.offsets.get(group_id)
        if offsets is not None:
            for partition in partitions:
                offsets.forget(partition)

    def _expire(self, now: Now) -> list[Effect]:
        """Forget offsets of groups without members, and of topics that members no longer want (KIP-211)."""
        effects: list[Effect] = []
        for group_id in list({**self.groups, **self.consumer.groups, **self.offsets}):
            group = self.groups.get(group_id)
            consumer_group = self.consumer.groups.get(group_id)
            offsets = self.offsets.get(group_id) or GroupOffsets()
            # One that is being committed anew has not expired: a tombstone would come behind it, and take it.
            storing = self._storing.get(group_id, ())
            gone = [one for one in self._expired(group_id, group, offsets, now) if one not in storing]
            is_over = group is None or (group.state is GroupState.EMPTY and not group.pending)
            is_over = is_over and not is_in_use(consumer_group) and not is_ending(consumer_group)
            # Who left within this very event may be back: the log has yet to take that.
            is_over = is_over and not is_being_written(consumer_group)
            if is_over and len(gone) == len(offsets.committed) and not offsets.has_pending and not storing:
                if group is not None or consumer_group is not None or offsets.committed:
                    effects.append(self._ending(group_id, group, offsets, None))
                else:
                    self.offsets.pop(group_id, None)
            elif gone:
                entries = [offset_tombstone(group_id, partition) for partition in gone]
                effects.append(Write(entries=entries, ticket=OffsetsForgotten(group_id, tuple(gone), None, None)))
        return effects

    def _expired(
        self, group_id: str, group: ClassicGroup | None, offsets: GroupOffsets, now: Now
    ) -> list[TopicPartition]:
        retention_ms = self.settings.offsets_retention_ms
        consumer_group = self.consumer.groups.get(group_id)
        if consumer_group is not None:
            in_use = consumer_group.subscribed_topics()
            old = offsets.expired(now.wall_ms, retention_ms=retention_ms, not_before_ms=-1)
            return [partition for partition in old if partition.topic not in in_use]
        if group is None or not group.members:
            empty_since_ms = group.state_since_ms if group is not None else -1
            return offsets.expired(now.wall_ms, retention_ms=retention_ms, not_before_ms=empty_since_ms)
        wanted = subscribed_topics(group)
        if wanted is None or group.state is not GroupState.STABLE:
            return []
        old = offsets.expired(now.wall_ms, retention_ms=retention_ms, not_before_ms=-1)
        return [partition for partition in old if partition.topic not in wanted]

    # --- deleting groups ---------------------------------------------------------------------

    def delete(self, group_id: str, token: Token) -> list[Effect]:
        """Delete a group without members; the reply is a `DeletableGroupResult`."""
        group = self.groups.get(group_id)
        offsets = self.offsets.get(group_id) or GroupOffsets()
        consumer_group = self.consumer.groups.get(group_id)
        error = Error.NONE
        if is_in_use(consumer_group):
            error = Error.NON_EMPTY_GROUP
        elif is_ending(consumer_group):
            error = Error.GROUP_ID_NOT_FOUND
        elif consumer_group is not None:
            error = Error.NONE
        elif (group is None and not offsets) or (group is not None and group.state is GroupState.DEAD):
            error = Error.GROUP_ID_NOT_FOUND
        elif group is not None and (group.members or group.pending):
            error = Error.NON_EMPTY_GROUP
        if error is not Error.NONE:
            return [Reply(token, DeletableGroupResult(group_id=group_id, error_code=error))]
        return [self._ending(group_id, group, offsets, token)]

    def _ending(self, group_id: str, group: ClassicGroup | None, offsets: GroupOffsets, token: Token | None) -> Write:
        """Return the write that ends a group; nobody may join it meanwhile."""
        gone = offsets.partitions
        entries: list[Entry] = [offset_tombstone(group_id, partition) for partition in gone]
        if group is not None:
            group.die(Error.COORDINATOR_NOT_AVAILABLE)
        consumer_group = self.consumer.groups.get(group_id)
        if consumer_group is not None:
            consumer_group.is_ending = True
            entries += self.consumer.tombstones(group_id)
        return Write(entries=[*entries, group_tombstone(group_id)], ticket=GroupDeleted(group_id, gone, token))

    def _group_deleted(self, ticket: GroupDeleted) -> list[Effect]:
        # Where there were offsets only, somebody may have joined meanwhile, or committed: that is no part of what goes.
        if self._is_dead(ticket.group_id):
            del self.groups[ticket.group_id]
        consumer_group = self.consumer.groups.get(ticket.group_id)
        if consumer_group is not None and consumer_group.is_ending:
            del self.consumer.groups[ticket.group_id]
        self._forget(ticket.group_id, ticket.partitions)
        if not self.offsets.get(ticket.group_id):
            self.offsets.pop(ticket.group_id, None)
        if ticket.token is None:
            return []
        return [Reply(ticket.token, DeletableGroupResult(group_id=ticket.group_id))]

    def _is_dead(self, group_id: str) -> bool:
        return group_id in self.groups and self.groups[group_id].state is GroupState.DEAD

    def _deletion_refused(self, ticket: GroupDeleted, error: Error) -> list[Effect]:
        if self._is_dead(ticket.group_id):
            self.groups[ticket.group_id].state = GroupState.EMPTY
        if ticket.group_id in self.consumer.groups:
            self.consumer.groups[ticket.group_id].is_ending = False
        if ticket.token is None:
            return []
        return [Reply(ticket.token, DeletableGroupResult(group_id=ticket.group_id, error_code=error))]

    # --- describing --------------------------------------------------------------------------

    def listed(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """Return the groups in these states and of these types; none named means all."""
        wanted_states = {state.lower(): None for state in states}
        wanted_types = {kind.lower(): None for kind in types}
        found: list[ListedGroup] = []
        if not wanted_types or CONSUMER_TYPE.lower() in wanted_types:
            found += self.consumer.listed(wanted_states)
        if wanted_types and CLASSIC.lower() not in wanted_types:
            return found
        for group_id in sorted({**self.groups, **{name: one for name, one in self.offsets.items() if one}}):
            if group_id in self.consumer.groups:
                continue
            group = self.groups.get(group_id)
            state = group.state if group is not None else GroupState.EMPTY
            if not wanted_states or state.lower() in wanted_states:
                kind = (group.protocol_type if group is not None else None) or ""
                found.append(
                    ListedGroup(group_id=group_id, protocol_type=kind, group_state=state.value, group_type=CLASSIC)
                )
        return found

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """Return a group with its members; an unknown one is dead, as the protocol has it."""
        group = self.groups.get(group_id)
        if group is None and group_id not in self.consumer.groups and self.offsets.get(group_id):
            return DescribedGroup(group_id=group_id, group_state=GroupState.EMPTY.value)
        if group is None or group.state is GroupState.DEAD:
            error = Error.GROUP_ID_NOT_FOUND if version >= FIRST_VERSION_WITH_NOT_FOUND else Error.NONE
            message = f"Group {group_id} not found." if version >= FIRST_VERSION_WITH_NOT_FOUND else None
            dead = GroupState.DEAD.value
            return DescribedGroup(error_code=error, error_message=message, group_id=group_id, group_state=dead)
        is_stable = group.state is GroupState.STABLE
        protocol = (group.protocol or "") if is_stable else ""
        members = [
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.protocols.get(protocol, b"") if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ]
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol,
            members=members,
        )


def _expiry_of(body: oc.OffsetCommitRequest, now: Now) -> int:
    """Return when offsets expire of which versions 2 to 4 say how long they are kept, as far as a record can name it."""
    if body.retention_time_ms == NO_RETENTION_TIME:
        return NO_EXPIRY
    return min(max(0, now.wall_ms + body.retention_time_ms), TIMESTAMP_MAX)


def client_error(error: Error) -> Error:
    """Return what a refused write means to the client that waits for it."""
    return CLIENT_ERRORS.get(error, error)


CLIENT_ERRORS: Final = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.INVALID_COMMIT_OFFSET_SIZE,
    Error.RECORD_LIST_TOO_LARGE: Error.INVALID_COMMIT_OFFSET_SIZE,
}


def _fetched(
    offsets: GroupOffsets, partition: TopicPartition, *, require_stable: bool
) -> OffsetFetchResponsePartitions:
    index = partition.partition
    if require_stable and not offsets.is_stable(partition):
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, error_code=Error.UNSTABLE_OFFSET_COMMIT
        )
    committed = offsets.committed.get(partition)
    if committed is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _with_error(answer: CommitAnswer, error: Error) -> CommitAnswer:
    """Return the answer with this error in place of every success."""
    replace = msgspec.structs.replace
    topics = [
        replace(
            topic,
            partitions=[
                replace(result, error_code=error) if result.error_code is Error.NONE else result
                for result in topic.partitions
            ],
        )
        for topic in answer.topics
    ]
    return replace(answer, topics=topics)
