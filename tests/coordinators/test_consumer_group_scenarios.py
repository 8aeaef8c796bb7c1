"""Groups of the new protocol (KIP-848), step by step: joining, moving partitions, fencing, static members, failover."""

from time import process_time
from typing import Any
from uuid import UUID

import pytest

from replog.coordinators.classic_group import GroupSettings
from replog.coordinators.consumer_group_coordinator import ConsumerGroupSettings, TopicView
from replog.coordinators.events import NotWritten, Write
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.errors import Error
from replog.types import TopicPartition
from replog.wire.messages import consumer_group_heartbeat as cgh
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from replog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from replog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from replog.wire.messages.sync_group import SyncGroupRequest
from tests.coordinators.driving import Driver, new_ids


class SomeTopics:
    """Metadata of a few topics that may grow."""

    def __init__(self, **counts: int) -> None:
        self.ids = {name: UUID(int=1000 + index) for index, name in enumerate(counts)}
        self.counts = dict(counts)

    def has_partition(self, partition: TopicPartition) -> bool:
        return partition.partition < self.counts.get(partition.topic, 0)

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)

    def view_of(self, name: str) -> TopicView | None:
        return TopicView(self.ids[name], self.counts[name]) if name in self.counts else None

    def names(self) -> list[str]:
        return sorted(self.counts)


class Reader:
    """A consumer that carries out its assignment when the test asks it to."""

    def __init__(self, driver: Driver, name: str, topics: list[str] | None = None, **said: Any) -> None:
        self.driver = driver
        self.name = name
        self.epoch = 0
        self.owned: set[tuple[UUID, int]] = set()
        self.topics = ["t"] if topics is None else topics
        self.said = said

    def beat(self, *, keeps: bool = False, epoch: int | None = None) -> cgh.ConsumerGroupHeartbeatResponse:
        """Send a full heartbeat; take over what the answer says, at once unless `keeps`."""
        said = self.epoch if epoch is None else epoch
        if said == 0:
            self.owned = set()
        by_topic: dict[UUID, list[int]] = {}
        for topic_id, partition in sorted(self.owned):
            by_topic.setdefault(topic_id, []).append(partition)
        body = cgh.ConsumerGroupHeartbeatRequest(
            **{"group_id": "g", "member_id": self.name, "member_epoch": said, "rebalance_timeout_ms": 30_000}
            | {"subscribed_topic_names": self.topics}
            | {
                "topic_partitions": [
                    cgh.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in by_topic.items()
                ]
            }
            | self.said
        )
        answer = self.driver.ask(body, version=1)
        if answer.error_code is Error.NONE and said >= 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None and not keeps:
                self.owned = {
                    (topic.topic_id, index)
                    for topic in answer.assignment.topic_partitions
                    for index in topic.partitions
                }
        return answer

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for _, partition in self.owned)


def a_driver(topics: SomeTopics | None = None, own: dict[str, dict[str, str]] | None = None, **settings: Any) -> Driver:
    of_groups = own or {}
    core = GroupCoordinator(
        GroupSettings(),
        topics or SomeTopics(t=4),
        new_ids(),
        expiry_interval_ms=600_000,
        consumer_settings=ConsumerGroupSettings(**settings),
        own_settings=lambda group_id: of_groups.get(group_id, {}),
    )
    core.on_loaded(Driver(core).now)
    return Driver(core)


def reconcile(*readers: Reader) -> None:
    for _ in range(4):
        for reader in readers:
            reader.beat()


def successor(driver: Driver) -> Driver:
    """Return what the next coordinator makes of the log."""
    after = a_driver(driver.core.topics)
    for write in driver.log:
        for offset, entry in enumerate(write.entries):
            after.core.replay(entry.key, entry.value, offset, None)
    after.core.on_loaded(after.now)
    return after


def test_the_first_member_gets_all_and_a_second_half_of_it_once_that_is_given_up() -> None:
    driver = a_driver()
    first, second = Reader(driver, "a"), Reader(driver, "b")

    first.beat()
    assert (first.epoch, first.partitions) == (1, [0, 1, 2, 3])

    second.beat()
    assert (second.epoch, second.partitions) == (2, [])  # all it shall have is held by another still

    answer = first.beat(keeps=True)
    assert (answer.member_epoch, len(answer.assignment.topic_partitions[0].partitions)) == (1, 2)
    second.beat()
    assert second.partitions == []

    first.owned = {(driver.core.topics.ids["t"], i) for i in answer.assignment.topic_partitions[0].partitions}
    first.beat()
    second.beat()
    assert (first.epoch, second.epoch) == (2, 2)
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
    assert driver.core.consumer.describe("g").group_state == "Stable"


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        pytest.param(7, Error.FENCED_MEMBER_EPOCH, id="from the future"),
        pytest.param(0, Error.NONE, id="joins again"),
        pytest.param(-3, Error.INVALID_REQUEST, id="no such epoch"),
    ],
)
def test_a_member_of_another_epoch_is_fenced_and_nothing_changes(epoch: int, error: Error) -> None:
    driver = a_driver()
    reader = Reader(driver, "a")
    reader.beat()
    before = driver.core.consumer.describe("g")

    answer = reader.beat(epoch=epoch)

    assert answer.error_code is error
    assert driver.core.consumer.describe("g") == before


def test_an_answer_that_was_lost_can_be_asked_for_again() -> None:
    driver = a_driver()
    first, second = Reader(driver, "a"), Reader(driver, "b")
    first.beat()
    second.beat()
    first.beat()
    kept, said = set(first.owned), first.epoch
    lost = first.beat()
    assert lost.member_epoch == said + 1

    first.owned, first.epoch = kept, said
    again = first.beat()

    assert again.error_code is Error.NONE
    assert again.member_epoch == lost.member_epoch


def test_unknown_members_and_members_without_a_group_are_refused() -> None:
    driver = a_driver()
    assert Reader(driver, "a").beat(epoch=3).error_code is Error.GROUP_ID_NOT_FOUND
    Reader(driver, "b").beat()
    assert Reader(driver, "a").beat(epoch=3).error_code is Error.UNKNOWN_MEMBER_ID
    assert Reader(driver, "a").beat(epoch=-1).error_code is Error.UNKNOWN_MEMBER_ID
    assert Reader(driver, "a", server_assignor="best").beat().error_code is Error.UNSUPPORTED_ASSIGNOR
    assert Reader(driver, "a", subscribed_topic_regex="(").beat().error_code is Error.INVALID_REGULAR_EXPRESSION
    assert list(driver.core.consumer.groups["g"].members) == ["b"]


def test_a_full_group_takes_nobody_in() -> None:
    driver = a_driver(member_count_max=1)
    Reader(driver, "a").beat()

    assert Reader(driver, "b").beat().error_code is Error.GROUP_MAX_SIZE_REACHED
    assert list(driver.core.consumer.groups["g"].members) == ["a"]


def test_who_is_silent_for_a_session_is_out_and_the_others_take_over() -> None:
    driver = a_driver()
    first, second = Reader(driver, "a"), Reader(driver, "b")
    reconcile(first, second)

    driver.pass_time(40_000)
    second.beat()
    driver.pass_time(10_000)
    reconcile(second)

    assert second.partitions == [0, 1, 2, 3]
    assert first.beat().error_code is Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("own", "silent_ms", "is_out"), [
    ({}, 45_000, True),
    ({"g": {"consumer.session.timeout.ms": "50000"}}, 49_999, False),
    ({"g": {"consumer.session.timeout.ms": "50000"}}, 50_000, True),
    ({"another": {"consumer.session.timeout.ms": "50000"}}, 45_000, True),
])  # fmt: skip
def test_a_groups_own_session_holds_for_its_members_and_for_no_others(
    own: dict[str, dict[str, str]], silent_ms: int, is_out: bool
) -> None:
    driver = a_driver(own=own)
    reader = Reader(driver, "a")
    reader.beat()

    driver.pass_time(silent_ms)

    assert (reader.beat().error_code is Error.UNKNOWN_MEMBER_ID) == is_out


def test_a_groups_own_interval_is_in_the_answer_from_the_next_heartbeat_on() -> None:
    own: dict[str, dict[str, str]] = {"another": {"consumer.heartbeat.interval.ms": "7000"}}
    reader = Reader(a_driver(own=own), "a")

    assert reader.beat().heartbeat_interval_ms == 5000
    own["g"] = {"consumer.heartbeat.interval.ms": "6000"}
    assert reader.beat().heartbeat_interval_ms == 6000
    del own["g"]
    assert reader.beat().heartbeat_interval_ms == 5000


def test_who_does_not_give_up_in_time_is_out() -> None:
    driver = a_driver()
    first, second = Reader(driver, "a", rebalance_timeout_ms=7_000), Reader(driver, "b")
    first.beat()
    second.beat()
    first.beat(keeps=True)
    for _ in range(2):
        driver.pass_time(3_000)
        assert first.beat(keeps=True).error_code is Error.NONE

    driver.pass_time(1_500)
    reconcile(second)

    assert first.beat().error_code is Error.UNKNOWN_MEMBER_ID
    assert second.partitions == [0, 1, 2, 3]


def test_a_static_member_that_is_back_in_time_finds_its_partitions() -> None:
    driver = a_driver()
    first, second = Reader(driver, "a", instance_id="one"), Reader(driver, "b")
    reconcile(first, second)
    had, epoch = first.partitions, driver.core.consumer.groups["g"].epoch

    assert Reader(driver, "c", instance_id="one").beat().error_code is Error.UNRELEASED_INSTANCE_ID
    assert first.beat(epoch=-2).error_code is Error.NONE
    back = Reader(driver, "c", instance_id="one")
    back.beat()

    assert back.partitions == had
    assert driver.core.consumer.groups["g"].epoch == epoch  # nobody else noticed
    assert first.beat(epoch=epoch).error_code is Error.FENCED_INSTANCE_ID


def test_a_topic_that_grows_is_noticed() -> None:
    topics = SomeTopics(t=2)
    driver = a_driver(topics)
    reader = Reader(driver, "a")
    reconcile(reader)
    topics.counts["t"] = 3

    driver.pass_time(2_000)
    reader.beat()

    assert reader.partitions == [0, 1, 2]


def test_a_pattern_subscribes_to_topics_that_come_later() -> None:
    topics = SomeTopics(**{"logs-a": 1, "other": 1})
    driver = a_driver(topics)
    reader = Reader(driver, "a", topics=[], subscribed_topic_regex="logs-.*")
    reconcile(reader)
    assert len(reader.owned) == 1
    topics.ids["logs-b"], topics.counts["logs-b"] = UUID(int=77), 2

    driver.pass_time(2_000)
    reader.beat()

    assert len(reader.owned) == 3


def test_a_pattern_lets_go_of_topics_that_are_deleted_and_takes_those_that_come_again() -> None:
    topics = SomeTopics(**{"logs-a": 1, "logs-b": 1})
    driver = a_driver(topics)
    reader = Reader(driver, "a", topics=[], subscribed_topic_regex="logs-.*")
    reconcile(reader)
    described = [driver.core.consumer.groups["g"].patterns["logs-.*"].topics]
    for there in ({"logs-b": 1}, {"logs-b": 1, "x": 1}, {"logs-a": 1, "logs-b": 1, "logs-c": 1}):
        topics.counts = there
        topics.ids |= {name: UUID(int=2000 + index) for index, name in enumerate(there)}
        driver.pass_time(2_000)
        reader.beat()
        described.append(driver.core.consumer.groups["g"].patterns["logs-.*"].topics)

    assert described == [["logs-a", "logs-b"], ["logs-b"], ["logs-b"], ["logs-a", "logs-b", "logs-c"]]


def test_a_pattern_that_takes_too_long_is_refused_and_its_group_does_not_begin() -> None:
    driver = a_driver(SomeTopics(**{f"some-topic-{number}": 1 for number in range(300)}))

    answer = Reader(driver, "a", topics=[], subscribed_topic_regex="(.?){1600}").beat(epoch=0)

    assert answer.error_code is Error.INVALID_REGULAR_EXPRESSION
    assert "too long" in (answer.error_message or "")
    assert "g" not in driver.core.consumer.groups


def test_many_patterns_are_compared_with_new_names_alone() -> None:
    topics = SomeTopics(**{f"t{number}": 1 for number in range(1000)})
    driver = a_driver(topics)
    for number in range(30):
        Reader(driver, str(number), topics=[], subscribed_topic_regex=f".*(a|b|c|t)?{number}").beat(epoch=0)
    topics.counts["t1000"], topics.ids["t1000"] = 1, UUID(int=77)
    driver.pass_time(2_000)

    began = process_time()
    Reader(driver, "late").beat(epoch=0)

    patterns = driver.core.consumer.groups["g"].patterns
    assert [pattern for pattern, known in patterns.items() if "t1000" in known.topics] == [".*(a|b|c|t)?0"]
    assert process_time() - began < 1


def test_the_next_coordinator_knows_what_members_were_answered() -> None:
    driver = a_driver()
    first, second = Reader(driver, "a"), Reader(driver, "b", instance_id="two")
    reconcile(first, second)

    after = successor(driver)
    assert after.core.consumer.describe("g") == driver.core.consumer.describe("g")

    first.driver = second.driver = after
    assert first.beat().error_code is Error.NONE
    first.beat(epoch=-1)
    reconcile(second)
    assert second.partitions == [0, 1, 2, 3]
    assert successor_of(after, driver).core.consumer.describe("g") == after.core.consumer.describe("g")


def successor_of(after: Driver, before: Driver) -> Driver:
    after.log[:0] = before.log
    return successor(after)


def test_answers_wait_for_the_log_also_those_that_write_nothing() -> None:
    driver = a_driver()
    reader = Reader(driver, "a")
    driver.hold()
    body = cgh.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="a", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    tokens = [driver.send(body, version=1), driver.send(body, version=1)]
    assert driver.replies == {}

    driver.release()

    assert [driver.replies[token].member_epoch for token in tokens] == [1, 1]
    assert reader.beat().error_code is Error.NONE


def test_what_the_log_refuses_is_taken_back() -> None:
    driver = a_driver()
    reader = Reader(driver, "a")
    reconcile(reader)
    before = driver.core.consumer.describe("g")
    body = cgh.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="b", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    driver.held = []
    token = driver.send(body, version=1)
    write: Write = driver.held.pop()
    driver.held = None

    driver.perform(driver.core.on_not_written(NotWritten(write.ticket, Error.NOT_ENOUGH_REPLICAS), driver.now))

    assert driver.replies[token].error_code is Error.COORDINATOR_NOT_AVAILABLE
    assert driver.core.consumer.describe("g") == before


def test_who_does_not_give_up_in_time_is_out_also_where_its_removal_was_refused_before() -> None:
    driver = a_driver()
    first, second = Reader(driver, "a", rebalance_timeout_ms=7_000), Reader(driver, "b")
    first.beat()
    second.beat()
    first.beat(keeps=True)
    driver.pass_time(3_000)
    first.beat(keeps=True)
    driver.hold()
    driver.pass_time(4_500)
    driver.refuse()
    assert first.beat(keeps=True).error_code is Error.NONE

    for _ in range(3):
        driver.pass_time(3_000)
        first.beat(keeps=True)
        second.beat()

    assert first.beat(keeps=True).error_code is Error.UNKNOWN_MEMBER_ID
    assert second.partitions == [0, 1, 2, 3]


def commit(member_id: str, epoch: int) -> OffsetCommitRequest:
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="t", partitions=[asked])
    return OffsetCommitRequest(group_id="g", member_id=member_id, generation_id_or_member_epoch=epoch, topics=[topic])


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        pytest.param("a", 1, 9, Error.NONE, id="as it is"),
        pytest.param("a", 0, 9, Error.STALE_MEMBER_EPOCH, id="older epoch"),
        pytest.param("a", 2, 9, Error.STALE_MEMBER_EPOCH, id="later epoch"),
        pytest.param("x", 1, 9, Error.UNKNOWN_MEMBER_ID, id="stranger"),
        pytest.param("", -1, 9, Error.UNKNOWN_MEMBER_ID, id="admin while there are members"),
        pytest.param("a", 1, 8, Error.UNSUPPORTED_VERSION, id="version without member epochs"),
    ],
)
def test_offsets_are_committed_by_members_of_the_epoch(member_id: str, epoch: int, version: int, error: Error) -> None:
    driver = a_driver()
    Reader(driver, "a").beat()

    answer = driver.ask(commit(member_id, epoch), version=version)

    assert answer.topics[0].partitions[0].error_code is error
    assert bool(driver.core.offsets.get("g")) == (error is Error.NONE)


def test_offsets_are_read_by_members_of_the_epoch() -> None:
    driver = a_driver()
    Reader(driver, "a").beat()

    assert driver.core.fetch_error("g", None, -1) is Error.NONE
    assert driver.core.fetch_error("g", "a", 1) is Error.NONE
    assert driver.core.fetch_error("g", "a", 2) is Error.STALE_MEMBER_EPOCH
    assert driver.core.fetch_error("g", "x", 1) is Error.UNKNOWN_MEMBER_ID
    assert driver.core.fetch_error("none", "x", 1) is Error.NONE


def classic_join(driver: Driver, version: int = 3) -> Any:
    protocols = [JoinGroupRequestProtocol(name="range")]
    body = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    return driver.send(body, version=version)


def test_an_empty_group_changes_its_protocol_and_one_with_members_does_not() -> None:
    driver = a_driver()
    reader = Reader(driver, "a")
    reader.beat()
    refused = classic_join(driver)
    assert driver.replies[refused].error_code is Error.INCONSISTENT_GROUP_PROTOCOL

    reader.beat(epoch=-1)
    joined = classic_join(driver)
    driver.pass_time(6_000)
    assert driver.replies[joined].error_code is Error.NONE
    assert [one.group_type for one in driver.core.listed([], [])] == ["Classic"]
    assert reader.beat(epoch=0).error_code is Error.GROUP_ID_NOT_FOUND

    driver.pass_time(60_000)
    assert reader.beat(epoch=0).error_code is Error.NONE
    assert [one.group_type for one in driver.core.listed([], [])] == ["Consumer"]
    assert [one.group_type for one in successor(driver).core.listed([], ["consumer"])] == ["Consumer"]
    assert successor(driver).core.groups == {}


def test_a_group_keeps_its_protocol_where_the_log_refuses_another() -> None:
    """Else the next coordinator would find both in the log, and refuse the offsets of the classic group's members."""
    driver = a_driver()
    reader = Reader(driver, "a")
    reader.beat()
    reader.beat(epoch=-1)
    driver.hold()
    token = classic_join(driver)
    driver.refuse()

    assert driver.replies[token].error_code is Error.COORDINATOR_NOT_AVAILABLE
    assert [one.group_type for one in driver.core.listed([], [])] == ["Consumer"]

    joined = classic_join(driver)
    driver.pass_time(6_000)
    member_id = driver.replies[joined].member_id
    driver.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id))
    after = successor(driver)

    assert after.core.consumer.groups == {}
    assert after.ask(commit(member_id, 1)).topics[0].partitions[0].error_code is Error.NONE


def joining(member_id: str) -> cgh.ConsumerGroupHeartbeatRequest:
    return cgh.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def test_a_group_that_is_changing_its_protocol_stays_what_it_becomes_where_the_log_refuses_a_later_change() -> None:
    """The classic group came back beside it, and the next classic member ended the broker."""
    driver = a_driver()
    classic_join(driver)
    driver.pass_time(60_000)
    assert [one.group_type for one in driver.core.listed([], [])] == ["Classic"]
    driver.hold()
    first = driver.send(joining("a"), version=1)
    converting, driver.held = driver.held, []
    second = driver.send(joining("b"), version=1)
    driver.refuse()
    assert driver.replies[second].error_code is Error.COORDINATOR_NOT_AVAILABLE
    driver.held = converting
    driver.release()

    assert driver.replies[first].error_code is Error.NONE
    assert [one.group_type for one in driver.core.listed([], [])] == ["Consumer"]
    assert driver.replies[classic_join(driver)].error_code is Error.INCONSISTENT_GROUP_PROTOCOL
    assert successor(driver).core.groups == driver.core.groups == {}


def test_answers_of_a_group_wait_for_its_own_records_and_not_for_those_of_a_former_one_of_its_name() -> None:
    """The last member's leaving, and the classic group that came between, are still on their way to the log."""
    former = a_driver()
    Reader(former, "a").beat()
    driver = successor(former)
    driver.hold()
    driver.send(cgh.ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=-1), version=1)
    given = driver.replies[classic_join(driver, version=4)].member_id
    driver.send(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=given)]))
    before = len(driver.held or [])
    first = driver.send(joining("b"), version=1)
    second = driver.send(joining("b"), version=1)

    held, driver.held = driver.held or [], []
    for write in held[:before]:
        driver._commit(write)

    assert first not in driver.replies
    assert second not in driver.replies
    driver.held = held[before:]
    driver.release()
    assert [driver.replies[token].member_epoch for token in (first, second)] == [1, 1]


def test_a_group_is_deleted_when_it_has_no_members() -> None:
    driver = a_driver()
    reader = Reader(driver, "a", subscribed_topic_regex="t.*")
    reader.beat()
    token = next(driver._tokens)
    driver.perform(driver.core.delete("g", token))
    assert driver.replies[token].error_code is Error.NON_EMPTY_GROUP

    reader.beat(epoch=-1)
    token = next(driver._tokens)
    driver.perform(driver.core.delete("g", token))

    assert driver.replies[token].error_code is Error.NONE
    assert driver.core.consumer.describe("g").error_code is Error.GROUP_ID_NOT_FOUND
    assert successor(driver).core.listed([], []) == []


def test_a_group_that_is_being_deleted_is_not_looked_at_for_its_expiry() -> None:
    """A second deletion that the log refused called off the first one, which was on its way there."""
    driver = a_driver()
    reader = Reader(driver, "a")
    reader.beat()
    reader.beat(epoch=-1)
    driver.hold()
    token = next(driver._tokens)
    driver.perform(driver.core.delete("g", token))
    deleting, driver.held = driver.held, []
    driver.pass_time(driver.core.expiry_interval_ms)
    driver.refuse()
    driver.held = deleting
    driver.release()

    assert driver.replies[token].error_code is Error.NONE
    assert driver.core.listed([], []) == successor(driver).core.listed([], []) == []


def test_a_group_is_not_ended_for_members_whose_removal_the_log_may_refuse() -> None:
    """Session and expiry came up at once: the group was ended as empty, and its members, taken back, with it."""
    driver = a_driver()
    Reader(driver, "a").beat()
    driver.hold()
    late_ms = driver.core.expiry_interval_ms
    driver.now = driver.now._replace(now_ms=driver.now.now_ms + late_ms, wall_ms=driver.now.wall_ms + late_ms)
    driver.perform(driver.core.on_tick(driver.now))

    removal, *behind = driver.held or []
    driver.held = [removal]
    driver.refuse()
    driver.held = behind
    driver.release()

    assert [member.member_id for member in driver.core.consumer.describe("g").members] == ["a"]
    assert [one.group_id for one in successor(driver).core.listed([], [])] == ["g"]
