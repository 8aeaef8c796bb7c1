"""Requests of consumers: to the one coordinator they concern, or taken apart for several and put together again."""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from replog.controller.authorization import (
    CLUSTER,
    Asker,
    Operation,
    group,
    named_group,
    of_group,
    part_resource,
    writes_as,
)
from replog.controller.authorization import (
    topic as topic_resource,
)
from replog.controller.served_api import Parts, ServedApi
from replog.coordinators.classic_group import refused_join
from replog.coordinators.consumer_group_coordinator import refused_heartbeat
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.distinct import distinct
from replog.errors import Error
from replog.metadata.image import Image
from replog.node.coordinators.runtime import CoordinatorRuntime, CoordinatorShard, asked
from replog.node.coordinators.verifier import Unverified, Verifier, offsets_error
from replog.node.net.handlers import AnswersApi, HandledApi, contained
from replog.node.net.server import ServerRequest
from replog.types import ZERO_UUID, TopicPartition
from replog.wire.messages import consumer_group_describe as cgd
from replog.wire.messages import consumer_group_heartbeat as cgh
from replog.wire.messages import delete_groups as dg
from replog.wire.messages import describe_groups as desc
from replog.wire.messages import heartbeat as hb
from replog.wire.messages import join_group as jg
from replog.wire.messages import leave_group as lg
from replog.wire.messages import list_groups as ls
from replog.wire.messages import offset_commit as oc
from replog.wire.messages import offset_delete as od
from replog.wire.messages import offset_fetch as of
from replog.wire.messages import sync_group as sg
from replog.wire.messages import txn_offset_commit as toc

FIRST_VERSION_WITH_MANY_GROUPS: Final = 8  # of OffsetFetch
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10  # of OffsetFetch
FIRST_VERSION_WITH_GROUP_ERROR: Final = 2  # of OffsetFetch
FIRST_VERSION_WITH_IMPLICIT_ADD: Final = 5  # of TxnOffsetCommit

_replace = msgspec.structs.replace
ShownTopic = TypeVar("ShownTopic", of.OffsetFetchResponseTopic, of.OffsetFetchResponseTopics)


class GroupApi:
    """What consumers and their admins ask."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupCoordinator],
        verifier: Verifier,
        permits_consumer_groups: Callable[[], bool],
    ) -> None:
        """`permits_consumer_groups` says whether the new group protocol is on (feature `group.version`)."""
        self.runtime = runtime
        self.verifier = verifier
        self.permits_consumer_groups = permits_consumer_groups

    # --- one group ---------------------------------------------------------------------------

    def join(self, request: ServerRequest[jg.JoinGroupRequest, jg.JoinGroupResponse]) -> None:
        """JoinGroup."""
        self.runtime.ask(request.body.group_id, request, JOIN_GROUP.served.refused)

    def sync(self, request: ServerRequest[sg.SyncGroupRequest, sg.SyncGroupResponse]) -> None:
        """SyncGroup."""
        self.runtime.ask(request.body.group_id, request, SYNC_GROUP.served.refused)

    def heartbeat(self, request: ServerRequest[hb.HeartbeatRequest, hb.HeartbeatResponse]) -> None:
        """Heartbeat."""
        self.runtime.ask(request.body.group_id, request, HEARTBEAT.served.refused)

    def consumer_heartbeat(
        self, request: ServerRequest[cgh.ConsumerGroupHeartbeatRequest, cgh.ConsumerGroupHeartbeatResponse]
    ) -> None:
        """ConsumerGroupHeartbeat."""
        if self.permits_consumer_groups():
            self.runtime.ask(request.body.group_id, request, CONSUMER_GROUP_HEARTBEAT.served.refused)
        else:
            request.reply(refused_heartbeat(Error.UNSUPPORTED_VERSION))

    def leave(self, request: ServerRequest[lg.LeaveGroupRequest, lg.LeaveGroupResponse]) -> None:
        """LeaveGroup."""
        self.runtime.ask(request.body.group_id, request, LEAVE_GROUP.served.refused)

    def commit(self, request: ServerRequest[oc.OffsetCommitRequest, oc.OffsetCommitResponse]) -> None:
        """OffsetCommit."""
        self.runtime.ask(request.body.group_id, request, OFFSET_COMMIT.served.refused)

    def commit_in_transaction(
        self, request: ServerRequest[toc.TxnOffsetCommitRequest, toc.TxnOffsetCommitResponse]
    ) -> None:
        """TxnOffsetCommit: like a producer's first batch, it may open a transaction on its partition (KIP-890)."""
        body = request.body
        coordinator = self.runtime.find(body.group_id)
        if isinstance(coordinator, Error):
            request.reply(TXN_OFFSET_COMMIT.served.refused(body, coordinator))
        elif coordinator.replica.partition.needs_verification(
            body.producer_id, body.producer_epoch, adds=request.version >= FIRST_VERSION_WITH_IMPLICIT_ADD
        ):
            failed = contained(self.runtime.replicas.world.journal, request, TXN_OFFSET_COMMIT.served, body)
            self.verifier.start(self._verify(request, body, coordinator), failed=failed)
        else:
            self.runtime.ask(request.body.group_id, request, TXN_OFFSET_COMMIT.served.refused)

    async def _verify(
        self,
        request: ServerRequest[toc.TxnOffsetCommitRequest, toc.TxnOffsetCommitResponse],
        body: toc.TxnOffsetCommitRequest,
        coordinator: CoordinatorShard[GroupCoordinator],
    ) -> None:
        partition = coordinator.replica.partition
        async with self.verifier.turn(body.transactional_id):
            guard = partition.verifications.begin(body.producer_id, self.runtime.replicas.world.clock.now_ms())
            wanted = Unverified(partition.name, body.producer_id, body.producer_epoch, guard)
            adds = request.version >= FIRST_VERSION_WITH_IMPLICIT_ADD
            error = (await self.verifier.ask(body.transactional_id, [wanted], adds=adds))[partition.name]
            if request.is_answered:
                return
            if coordinator.is_ended:  # no fault of the producer's: the guards went with the leadership
                request.reply(TXN_OFFSET_COMMIT.served.refused(body, Error.NOT_COORDINATOR))
                return
            is_open = not partition.needs_verification(body.producer_id, body.producer_epoch, adds=adds)
            if error is Error.NONE and not is_open and not partition.verifications.holds(body.producer_id, guard):
                error = Error.INVALID_TXN_STATE  # ended while we asked
            if error is Error.NONE:
                self.runtime.ask(request.body.group_id, request, TXN_OFFSET_COMMIT.served.refused)
            else:
                error = offsets_error(error, request.version)
                who = f"{request.client_id} at {request.peer_host}"
                journal = self.runtime.replicas.world.journal
                journal.log("info", f"{partition.name}: {who}: {asked(body)}: {error.name}")
                request.reply(TXN_OFFSET_COMMIT.served.refused(body, error))

    def delete_offsets(self, request: ServerRequest[od.OffsetDeleteRequest, od.OffsetDeleteResponse]) -> None:
        """OffsetDelete."""
        self.runtime.ask(request.body.group_id, request, OFFSET_DELETE.served.refused)

    # --- several groups ----------------------------------------------------------------------

    def fetch(self, request: ServerRequest[of.OffsetFetchRequest, of.OffsetFetchResponse]) -> None:
        """OffsetFetch: one group before version 8, any number since."""
        body = request.body
        if request.version >= FIRST_VERSION_WITH_MANY_GROUPS:
            groups = [self._fetch(group, request) for group in _named_once(body)]
            request.reply(of.OffsetFetchResponse(groups=groups))
            return
        group = of.OffsetFetchRequestGroup(
            group_id=body.group_id,
            topics=None
            if body.topics is None
            else [
                of.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in body.topics
            ],
        )
        request.reply(_as_before_version_8(self._fetch(group, request), request.version))

    def _fetch(
        self, asked: of.OffsetFetchRequestGroup, request: ServerRequest[of.OffsetFetchRequest, of.OffsetFetchResponse]
    ) -> of.OffsetFetchResponseGroup:
        found = self.runtime.find(asked.group_id)
        if isinstance(found, Error):
            return self._not_fetched(asked, found)
        core = found.core
        refusal = core.fetch_error(asked.group_id, asked.member_id, asked.member_epoch)
        if refusal is not Error.NONE:
            return of.OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=refusal)
        topics: list[of.OffsetFetchResponseTopics] = []
        require_stable = request.body.require_stable
        if asked.topics is None:
            by_topic: dict[str, list[of.OffsetFetchResponsePartitions]] = {}
            for partition, answer in core.fetch(asked.group_id, None, require_stable=require_stable):
                by_topic.setdefault(partition.topic, []).append(answer)
            for topic_name, answers in by_topic.items():
                known = self.image.topics_by_name.get(topic_name)
                topic_id = known.topic_id if known is not None else ZERO_UUID
                if known is not None or request.version < FIRST_VERSION_WITH_TOPIC_IDS:
                    topics.append(of.OffsetFetchResponseTopics(name=topic_name, topic_id=topic_id, partitions=answers))
            return of.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)
        for topic in distinct(asked.topics, lambda topic: (topic.topic_id, topic.name)):
            name = topic.name if request.version < FIRST_VERSION_WITH_TOPIC_IDS else self._name_of(topic)
            if name is None:
                topics.append(_unknown(topic))
                continue
            partitions = [TopicPartition(name, index) for index in dict.fromkeys(topic.partition_indexes)]
            answers = [answer for _, answer in core.fetch(asked.group_id, partitions, require_stable=require_stable)]
            topics.append(of.OffsetFetchResponseTopics(name=name, topic_id=topic.topic_id, partitions=answers))
        return of.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)

    @property
    def image(self) -> Image:
        """The committed metadata, as far as it has come here."""
        return self.runtime.replicas.metadata.image

    def _name_of(self, topic: of.OffsetFetchRequestTopics) -> str | None:
        known = self.image.topics.get(topic.topic_id)
        return known.name if known is not None else None

    def _not_fetched(self, asked: of.OffsetFetchRequestGroup, error: Error) -> of.OffsetFetchResponseGroup:
        topics = [
            of.OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    of.OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=error)
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics or []
        ]
        return of.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=error)

    def list_groups(self, request: ServerRequest[ls.ListGroupsRequest, ls.ListGroupsResponse]) -> None:
        """ListGroups: those that are coordinated here."""
        body = request.body
        if self.runtime.partitions.is_loading:
            error = Error.COORDINATOR_LOAD_IN_PROGRESS
            request.reply(ls.ListGroupsResponse(error_code=error))
            return
        found: list[ls.ListedGroup] = []
        for coordinated in self.runtime.partitions.loaded():
            found += coordinated.core.core.listed(body.states_filter, body.types_filter)
        request.reply(ls.ListGroupsResponse(groups=found))

    def describe(self, request: ServerRequest[desc.DescribeGroupsRequest, desc.DescribeGroupsResponse]) -> None:
        """DescribeGroups."""
        body = request.body
        groups: list[desc.DescribedGroup] = []
        for group_id in dict.fromkeys(body.groups):
            found = self.runtime.find(group_id)
            if isinstance(found, Error):
                groups.append(desc.DescribedGroup(error_code=found, group_id=group_id))
            else:
                groups.append(found.core.describe(group_id, request.version))
        request.reply(desc.DescribeGroupsResponse(groups=groups))

    def describe_consumer_groups(
        self, request: ServerRequest[cgd.ConsumerGroupDescribeRequest, cgd.ConsumerGroupDescribeResponse]
    ) -> None:
        """ConsumerGroupDescribe."""
        body = request.body
        groups: list[cgd.DescribedGroup] = []
        for group_id in dict.fromkeys(body.group_ids):
            found = self.runtime.find(group_id) if self.permits_consumer_groups() else Error.UNSUPPORTED_VERSION
            if isinstance(found, Error):
                groups.append(cgd.DescribedGroup(error_code=found, group_id=group_id))
            elif not group_id:
                groups.append(cgd.DescribedGroup(error_code=Error.INVALID_GROUP_ID, group_id=group_id))
            else:
                core = found.core
                groups.append(core.consumer.describe(group_id))
        request.reply(cgd.ConsumerGroupDescribeResponse(groups=groups))

    def delete(self, request: ServerRequest[dg.DeleteGroupsRequest, dg.DeleteGroupsResponse]) -> None:
        """DeleteGroups: answered when the last tombstone is committed."""
        body = request.body
        if not body.groups_names:
            request.reply(dg.DeleteGroupsResponse())
            return
        results: dict[str, dg.DeletableGroupResult] = {}
        names = dict.fromkeys(body.groups_names)

        def one_done(result: dg.DeletableGroupResult) -> None:
            results[result.group_id] = result
            if len(results) == len(names):
                request.reply(dg.DeleteGroupsResponse(results=[results[name] for name in names]))

        for group_id in names:
            found = self.runtime.find(group_id)
            if isinstance(found, Error):
                one_done(dg.DeletableGroupResult(group_id=group_id, error_code=found))
            else:
                _delete(found, group_id, one_done, f"{request.client_id} at {request.peer_host}")


def _delete(
    coordinator: CoordinatorShard[GroupCoordinator],
    group_id: str,
    done: Callable[[dg.DeletableGroupResult], None],
    who: str,
) -> None:
    token = coordinator.expect(
        group_id, done, lambda name, error: dg.DeletableGroupResult(group_id=name, error_code=error), who=who
    )
    coordinator.perform(coordinator.core.delete(group_id, token))


def _unknown(topic: of.OffsetFetchRequestTopics) -> of.OffsetFetchResponseTopics:
    partitions = [
        of.OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=Error.UNKNOWN_TOPIC_ID)
        for index in topic.partition_indexes
    ]
    return of.OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)


def _as_before_version_8(group: of.OffsetFetchResponseGroup, version: int) -> of.OffsetFetchResponse:
    topics = [
        of.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                of.OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    error = group.error_code if version >= FIRST_VERSION_WITH_GROUP_ERROR else Error.NONE
    return of.OffsetFetchResponse(topics=topics, error_code=error)


# --- who may ask, and how all of it is refused -----------------------------------------------------------


def _subscribes(ask: Asker, body: cgh.ConsumerGroupHeartbeatRequest) -> Error:
    names = dict.fromkeys(body.subscribed_topic_names or ())
    return next((error for name in names if (error := ask.error(Operation.DESCRIBE, topic_resource(name)))), Error.NONE)


def _assignment_shown(
    ask: Asker, _: cgh.ConsumerGroupHeartbeatRequest, answer: cgh.ConsumerGroupHeartbeatResponse
) -> cgh.ConsumerGroupHeartbeatResponse:
    """Show what is assigned of topics that may be seen: a pattern fits others, too."""
    if answer.assignment is None:
        return answer
    visible = [
        one
        for one in answer.assignment.topic_partitions
        if (resource := part_resource(one, one, ask.topics)) is None or ask.may(Operation.DESCRIBE, resource)
    ]
    return _replace(answer, assignment=_replace(answer.assignment, topic_partitions=visible))


def _fetches_offsets(ask: Asker, body: of.OffsetFetchRequest) -> Error:
    """Ask for the one group of versions below 8; of several each is decided by itself."""
    return Error.NONE if body.groups else ask.error(Operation.DESCRIBE, group(body.group_id))


def _groups_shown(ask: Asker, _: ls.ListGroupsRequest, answer: ls.ListGroupsResponse) -> ls.ListGroupsResponse:
    if ask.may(Operation.DESCRIBE, CLUSTER):
        return _replace(answer)
    return _replace(answer, groups=[one for one in answer.groups if ask.may(Operation.DESCRIBE, group(one.group_id))])


def _members_shown(
    ask: Asker, _: cgd.ConsumerGroupDescribeRequest, answer: cgd.ConsumerGroupDescribeResponse
) -> cgd.ConsumerGroupDescribeResponse:
    """Show nothing of a group whose members subscribe or are assigned what may not be seen."""

    def is_visible(member: cgd.Member) -> bool:
        assigned = (
            held.topic_name
            for assignment in (member.assignment, member.target_assignment)
            for held in assignment.topic_partitions
        )
        names = dict.fromkeys((*member.subscribed_topic_names, *assigned))
        return all(ask.may(Operation.DESCRIBE, topic_resource(name)) for name in names)

    words = "The group has described topic(s) that the client is not authorized to describe."
    shown = [
        one
        if all(map(is_visible, one.members))
        else _replace(one, error_code=Error.TOPIC_AUTHORIZATION_FAILED, error_message=words, members=[])
        for one in answer.groups
    ]
    return _replace(answer, groups=shown)


def _named_once(body: of.OffsetFetchRequest) -> list[of.OffsetFetchRequestGroup]:
    """Return what is asked of each group, once of all its topics and once of named ones: more of it would be the same again."""
    return distinct(body.groups, lambda one: (one.group_id, one.topics is None))


def _offsets_shown(ask: Asker, body: of.OffsetFetchRequest, answer: of.OffsetFetchResponse) -> of.OffsetFetchResponse:
    """Show of each group what may be seen: of all topics those, of named ones an error for the others."""
    if not body.groups:
        return _replace(answer, topics=_topics_shown(ask, answer.topics, all_of_them=body.topics is None))
    shown = []
    for asked_for, one in zip(_named_once(body), answer.groups, strict=True):
        if error := ask.error(Operation.DESCRIBE, group(one.group_id)):
            shown.append(_replace(one, topics=[], error_code=error))
        else:
            shown.append(_replace(one, topics=_topics_shown(ask, one.topics, all_of_them=asked_for.topics is None)))
    return _replace(answer, groups=shown)


def _topics_shown(ask: Asker, topics: list[ShownTopic], *, all_of_them: bool) -> list[ShownTopic]:
    shown: list[ShownTopic] = []
    for one in topics:
        resource = part_resource(one, one, ask.topics)
        error = ask.error(Operation.DESCRIBE, resource) if resource else Error.NONE
        if error and not all_of_them:
            hidden = [
                type(each)(partition_index=each.partition_index, committed_offset=-1, error_code=error)
                for each in one.partitions
            ]
            shown.append(_replace(one, partitions=hidden))
        elif not error:
            shown.append(one)
    return shown


def _refused_commit(body: oc.OffsetCommitRequest, error: Error) -> oc.OffsetCommitResponse:
    topics = [
        oc.OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                oc.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
                for one in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return oc.OffsetCommitResponse(topics=topics)


def _refused_in_transaction(body: toc.TxnOffsetCommitRequest, error: Error) -> toc.TxnOffsetCommitResponse:
    answer = toc.TxnOffsetCommitResponsePartition
    topics = [
        toc.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[answer(partition_index=one.partition_index, error_code=error) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return toc.TxnOffsetCommitResponse(topics=topics)


def _refused_fetch(body: of.OffsetFetchRequest, error: Error) -> of.OffsetFetchResponse:
    """Say it at the top and of each partition: version 1 has no top."""
    answer = of.OffsetFetchResponsePartition
    topics = [
        of.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                answer(partition_index=index, committed_offset=-1, error_code=error)
                for index in topic.partition_indexes
            ],
        )
        for topic in body.topics or []
    ]
    return of.OffsetFetchResponse(topics=topics, error_code=error)


def _refused_deletion(body: od.OffsetDeleteRequest, error: Error) -> od.OffsetDeleteResponse:
    """Refuse the group at the top, topics one by one."""
    if error is not Error.TOPIC_AUTHORIZATION_FAILED:
        return od.OffsetDeleteResponse(error_code=error)
    answer = od.OffsetDeleteResponsePartition
    topics = [
        od.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[answer(partition_index=one.partition_index, error_code=error) for one in topic.partitions],
        )
        for topic in body.topics
    ]
    return od.OffsetDeleteResponse(topics=topics)


_MAY_READ: Final = (of_group(Operation.READ),)
_TOPICS_READ: Final = Parts(("topics",), "topics", Operation.READ)
JOIN_GROUP: Final = HandledApi(
    ServedApi(jg.EXCHANGE, questions=_MAY_READ, refuse=lambda body, error: refused_join(body.member_id, error)),
    GroupApi.join,
)
SYNC_GROUP: Final = HandledApi(ServedApi(sg.EXCHANGE, questions=_MAY_READ), GroupApi.sync)
HEARTBEAT: Final = HandledApi(ServedApi(hb.EXCHANGE, questions=_MAY_READ), GroupApi.heartbeat)
LEAVE_GROUP: Final = HandledApi(ServedApi(lg.EXCHANGE, questions=_MAY_READ), GroupApi.leave)
CONSUMER_GROUP_HEARTBEAT: Final = HandledApi(
    ServedApi(
        cgh.EXCHANGE,
        questions=(*_MAY_READ, _subscribes),
        shown=_assignment_shown,
        refuse=lambda _, error: refused_heartbeat(error),
    ),
    GroupApi.consumer_heartbeat,
)
OFFSET_COMMIT: Final = HandledApi(
    ServedApi(oc.EXCHANGE, questions=_MAY_READ, parts=_TOPICS_READ, refuse=_refused_commit), GroupApi.commit
)
TXN_OFFSET_COMMIT: Final = HandledApi(
    ServedApi(toc.EXCHANGE, questions=(writes_as, *_MAY_READ), parts=_TOPICS_READ, refuse=_refused_in_transaction),
    GroupApi.commit_in_transaction,
)
OFFSET_FETCH: Final = HandledApi(
    ServedApi(of.EXCHANGE, questions=(_fetches_offsets,), shown=_offsets_shown, refuse=_refused_fetch), GroupApi.fetch
)
OFFSET_DELETE: Final = HandledApi(
    ServedApi(od.EXCHANGE, questions=(of_group(Operation.DELETE),), parts=_TOPICS_READ, refuse=_refused_deletion),
    GroupApi.delete_offsets,
)
LIST_GROUPS: Final = HandledApi(ServedApi(ls.EXCHANGE, shown=_groups_shown), GroupApi.list_groups)
DESCRIBE_GROUPS: Final = HandledApi(
    ServedApi(
        desc.EXCHANGE,
        parts=Parts(("groups",), "groups", Operation.DESCRIBE, named_group),
        refuse=lambda body, error: desc.DescribeGroupsResponse(
            groups=[desc.DescribedGroup(error_code=error, group_id=name) for name in body.groups]
        ),
    ),
    GroupApi.describe,
)
CONSUMER_GROUP_DESCRIBE: Final = HandledApi(
    ServedApi(
        cgd.EXCHANGE,
        parts=Parts(("group_ids",), "groups", Operation.DESCRIBE, named_group),
        shown=_members_shown,
        refuse=lambda body, error: cgd.ConsumerGroupDescribeResponse(
            groups=[cgd.DescribedGroup(error_code=error, group_id=name) for name in body.group_ids]
        ),
    ),
    GroupApi.describe_consumer_groups,
)
DELETE_GROUPS: Final = HandledApi(
    ServedApi(
        dg.EXCHANGE,
        parts=Parts(("groups_names",), "results", Operation.DELETE, named_group),
        refuse=lambda body, error: dg.DeleteGroupsResponse(
            results=[dg.DeletableGroupResult(group_id=name, error_code=error) for name in body.groups_names]
        ),
    ),
    GroupApi.delete,
)
APIS: Final[tuple[AnswersApi[GroupApi], ...]] = (
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    CONSUMER_GROUP_HEARTBEAT,
    OFFSET_COMMIT,
    TXN_OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_DELETE,
    LIST_GROUPS,
    DESCRIBE_GROUPS,
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
)
