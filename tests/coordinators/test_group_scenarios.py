"""The classic protocol step by step: ids, static members, time-outs, refused writes, offsets of transactions."""

from typing import Any

import msgspec
import pytest

from replog.coordinators.classic_group import GroupSettings, GroupState
from replog.coordinators.events import Entry, NotWritten, Now
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.errors import Error
from replog.types import TopicPartition
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from replog.wire.messages.heartbeat import HeartbeatRequest
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from replog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from replog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from replog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.coordinators.driving import AllTopics, Driver, new_ids

PARTITION = TopicPartition("t", 0)
DAY_MS = 86_400_000


def a_coordinator(**settings: Any) -> Driver:
    chosen = GroupSettings(**({"initial_rebalance_delay_ms": 0} | settings))
    core = GroupCoordinator(chosen, AllTopics(), new_ids(), expiry_interval_ms=600_000)
    driver = Driver(core)
    driver.perform(core.on_loaded(driver.now))
    return driver


def join(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        **{
            "group_id": "g",
            "member_id": member_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range")],
        }
        | fields
    )


def sync(member_id: str, generation: int, shares: dict[str, bytes] | None = None) -> SyncGroupRequest:
    assignments = [SyncGroupRequestAssignment(member_id=m, assignment=share) for m, share in (shares or {}).items()]
    return SyncGroupRequest(group_id="g", member_id=member_id, generation_id=generation, assignments=assignments)


def commit(offset: int, member_id: str = "", generation: int = -1) -> OffsetCommitRequest:
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[asked])],
    )


def commit_in_transaction(offset: int, producer_id: int) -> TxnOffsetCommitRequest:
    asked = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=[asked])]
    return TxnOffsetCommitRequest(group_id="g", producer_id=producer_id, producer_epoch=0, topics=topics)


def committed(driver: Driver, *, stable: bool = False) -> tuple[int, Error]:
    ((_, found),) = driver.core.fetch("g", [PARTITION], require_stable=stable)
    return found.committed_offset, found.error_code


def a_stable_pair() -> tuple[Driver, str, str]:
    """Two members in a stable group; the first leads."""
    driver = a_coordinator()
    first = driver.ask(join(), version=3).member_id
    token = driver.send(join(), version=3)
    answer = driver.ask(join(first), version=3)
    second = driver.replies[token].member_id
    waiting = driver.send(sync(second, answer.generation_id))
    driver.send(sync(first, answer.generation_id, {first: b"\x00", second: b"\x01"}))
    assert driver.replies[waiting].assignment == b"\x01"
    return driver, first, second


def loaded_from(driver: Driver) -> Driver:
    """Return the next coordinator, which knows what the log says."""
    loaded = a_coordinator()
    offset = 0
    for write in driver.log:
        for entry in write.entries:
            producer_id = write.producer.producer_id if write.producer is not None else None
            loaded.core.replay(entry.key, entry.value, offset, producer_id)
            offset += 1
    loaded.perform(loaded.core.on_loaded(loaded.now))
    return loaded


def consumer_heartbeat(member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip


def test_whoever_comes_without_an_id_gets_one_and_comes_again() -> None:
    """KIP-394."""
    driver = a_coordinator()

    given = driver.ask(join(), version=5)
    joined = driver.ask(join(given.member_id), version=5)

    assert given.error_code is Error.MEMBER_ID_REQUIRED
    assert (joined.error_code, joined.member_id, joined.leader) == (Error.NONE, given.member_id, given.member_id)


def test_a_static_member_that_returns_keeps_its_place_and_fences_its_earlier_member_id() -> None:
    """KIP-345: no rebalance, and what it comes back to is stored first."""
    driver = a_coordinator()
    before = driver.ask(join(group_instance_id="i"))
    driver.send(sync(before.member_id, before.generation_id, {before.member_id: b"mine"}))

    after = driver.ask(join(group_instance_id="i"))

    assert after.error_code is Error.NONE
    assert (after.generation_id, after.member_id != before.member_id) == (before.generation_id, True)
    assert driver.ask(sync(after.member_id, after.generation_id)).assignment == b"mine"
    stale = HeartbeatRequest(
        group_id="g", member_id=before.member_id, generation_id=before.generation_id, group_instance_id="i"
    )
    assert driver.ask(stale).error_code is Error.FENCED_INSTANCE_ID


def test_a_static_member_keeps_its_place_where_the_log_does_not_take_another_in_its_stead() -> None:
    """The log, and so the next coordinator, knows the earlier member id."""
    driver = a_coordinator()
    before = driver.ask(join(group_instance_id="i"))
    driver.send(sync(before.member_id, before.generation_id, {before.member_id: b"mine"}))
    driver.hold()

    waiting = driver.send(join(group_instance_id="i"))
    driver.refuse()

    assert driver.replies[waiting].error_code is Error.COORDINATOR_NOT_AVAILABLE
    as_before = HeartbeatRequest(
        group_id="g", member_id=before.member_id, generation_id=before.generation_id, group_instance_id="i"
    )
    assert driver.ask(as_before).error_code is Error.NONE
    group = driver.core.groups["g"]
    assert (group.leader, group.assignments()) == (before.member_id, {before.member_id: b"mine"})
    replaced = msgspec.structs.replace(as_before, member_id=driver.replies[waiting].member_id)
    assert driver.ask(replaced).error_code is Error.FENCED_INSTANCE_ID


@pytest.mark.parametrize("replacements", [2, 3])
def test_a_static_member_keeps_its_place_where_the_log_takes_none_of_several_in_its_stead(replacements: int) -> None:
    """The last of them was replaced by nobody, and had the place of one that the log never knew."""
    driver = a_coordinator()
    before = driver.ask(join(group_instance_id="i"))
    driver.send(sync(before.member_id, before.generation_id, {before.member_id: b"mine"}))
    driver.hold()

    waiting = [driver.send(join(group_instance_id="i")) for _ in range(replacements)]
    driver.refuse()

    assert {driver.replies[one].error_code for one in waiting} == {Error.COORDINATOR_NOT_AVAILABLE}
    group = driver.core.groups["g"]
    assert (group.leader, group.assignments()) == (before.member_id, {before.member_id: b"mine"})
    as_before = HeartbeatRequest(
        group_id="g", member_id=before.member_id, generation_id=before.generation_id, group_instance_id="i"
    )
    assert driver.ask(as_before).error_code is Error.NONE


def test_a_static_member_has_its_place_where_the_log_took_it_after_it_had_refused_another() -> None:
    driver = a_coordinator()
    before = driver.ask(join(group_instance_id="i"))
    driver.send(sync(before.member_id, before.generation_id, {before.member_id: b"mine"}))
    driver.hold()
    refused, stored = (driver.send(join(group_instance_id="i")) for _ in range(2))
    assert driver.held is not None
    second = driver.held.pop()
    driver.refuse()
    driver.held = [second]
    driver.release()

    assert driver.replies[refused].error_code is Error.COORDINATOR_NOT_AVAILABLE
    assert driver.replies[stored].error_code is Error.NONE
    driver.hold()
    driver.send(join(group_instance_id="i"))
    driver.refuse()

    assert list(driver.core.groups["g"].members) == [driver.replies[stored].member_id]


def test_a_static_member_whose_place_was_given_back_leaves_with_its_session() -> None:
    driver = a_coordinator()
    before = driver.ask(join(group_instance_id="i"))
    driver.send(sync(before.member_id, before.generation_id, {before.member_id: b"mine"}))
    driver.hold()
    driver.send(join(group_instance_id="i"))
    driver.refuse()

    driver.pass_time(9_000)
    assert list(driver.core.groups["g"].members) == [before.member_id]
    driver.pass_time(2_000)

    assert list(driver.core.groups["g"].members) == []


def test_a_member_that_does_not_come_back_in_time_is_left_behind() -> None:
    driver, first, second = a_stable_pair()

    waiting = driver.send(join(first, protocols=[JoinGroupRequestProtocol(name="range", metadata=b"new")]))
    assert driver.ask(HeartbeatRequest(group_id="g", member_id=second, generation_id=2)).error_code is (
        Error.REBALANCE_IN_PROGRESS
    )
    driver.pass_time(9_000)
    driver.ask(HeartbeatRequest(group_id="g", member_id=second, generation_id=2))
    driver.pass_time(11_000)

    assert driver.replies[waiting].generation_id == 3
    assert list(driver.core.groups["g"].members) == [first]


def test_a_silent_member_leaves_with_its_session() -> None:
    driver, first, second = a_stable_pair()

    driver.pass_time(9_000)
    driver.ask(HeartbeatRequest(group_id="g", member_id=first, generation_id=2))
    driver.pass_time(2_000)

    group = driver.core.groups["g"]
    assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, [first])
    assert driver.ask(HeartbeatRequest(group_id="g", member_id=second, generation_id=2)).error_code is (
        Error.UNKNOWN_MEMBER_ID
    )


def test_no_member_gets_an_assignment_that_is_not_stored() -> None:
    driver = a_coordinator()
    joined = driver.ask(join(), version=3)
    driver.hold()

    waiting = driver.send(sync(joined.member_id, joined.generation_id, {joined.member_id: b"x"}))
    assert waiting not in driver.replies
    refused = NotWritten(driver.log[-1].ticket, Error.NOT_ENOUGH_REPLICAS)
    driver.perform(driver.core.on_not_written(refused, driver.now))

    assert driver.replies[waiting].error_code is Error.COORDINATOR_NOT_AVAILABLE
    assert driver.core.groups["g"].state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_syncs_twice_leaves_in_the_log_what_members_were_given() -> None:
    """Its first request got no answer in time; by the second it may have another assignment, of a topic that has grown."""
    driver = a_coordinator()
    joined = driver.ask(join(), version=3)
    driver.hold()

    given_up, waiting = (
        driver.send(sync(joined.member_id, joined.generation_id, {joined.member_id: share})) for share in (b"1", b"2")
    )
    driver.release()

    assert driver.replies[given_up].error_code is Error.REBALANCE_IN_PROGRESS
    given = driver.replies[waiting].assignment
    assert given == b"1"
    assert loaded_from(driver).core.groups["g"].assignments() == {joined.member_id: given}


def test_a_leader_syncs_again_where_the_log_did_not_take_its_assignment() -> None:
    driver = a_coordinator()
    joined = driver.ask(join(), version=3)
    driver.hold()
    driver.send(sync(joined.member_id, joined.generation_id, {joined.member_id: b"1"}))
    driver.refuse()

    again = driver.ask(join(joined.member_id), version=3)

    assert again.generation_id == joined.generation_id + 1
    assert driver.ask(sync(joined.member_id, again.generation_id, {joined.member_id: b"2"})).assignment == b"2"


def test_an_assignment_of_a_former_group_of_that_name_is_given_to_nobody() -> None:
    """Both are in their first generation; the former has made way, twice, before the log's end was committed."""
    driver = a_coordinator()
    former = driver.ask(join(), version=3)
    driver.hold()
    driver.send(sync(former.member_id, former.generation_id, {former.member_id: b"1"}))
    driver.ask(LeaveGroupRequest(group_id="g", member_id=former.member_id), version=1)
    for epoch in (0, -1):
        driver.send(consumer_heartbeat("m", epoch), version=1)
    joined = driver.ask(join(), version=3)
    assert joined.generation_id == former.generation_id

    waiting = driver.send(sync(joined.member_id, joined.generation_id, {joined.member_id: b"2"}))
    driver.release()

    assert driver.replies[waiting].assignment == b"2"


def test_an_offset_shows_when_it_is_committed() -> None:
    driver = a_coordinator()
    driver.hold()

    driver.send(commit(5))
    assert committed(driver) == (-1, Error.NONE)
    driver.release()

    assert committed(driver) == (5, Error.NONE)


def test_offsets_of_a_transaction_wait_for_its_end() -> None:
    """KIP-447: who wants stable offsets waits meanwhile."""
    driver = a_coordinator()
    driver.send(commit(5))

    driver.hold()
    driver.send(commit_in_transaction(9, producer_id=7))
    assert committed(driver, stable=True)[1] is Error.UNSTABLE_OFFSET_COMMIT
    driver.release()
    assert committed(driver, stable=True)[1] is Error.UNSTABLE_OFFSET_COMMIT
    assert committed(driver) == (5, Error.NONE)
    driver.core.on_marker(7, committed=True)
    assert committed(driver, stable=True) == (9, Error.NONE)

    driver.send(commit_in_transaction(12, producer_id=7))
    driver.core.on_marker(7, committed=False)
    assert committed(driver, stable=True) == (9, Error.NONE)


def test_the_next_coordinator_knows_what_is_in_the_log() -> None:
    driver, first, second = a_stable_pair()
    driver.send(commit(5, first, 2))
    driver.send(commit_in_transaction(8, producer_id=7))

    loaded = loaded_from(driver)

    group = loaded.core.groups["g"]
    assert (group.state, group.generation, list(group.members)) == (GroupState.STABLE, 2, [first, second])
    assert committed(loaded) == (5, Error.NONE)
    assert loaded.ask(HeartbeatRequest(group_id="g", member_id=second, generation_id=2)).error_code is Error.NONE
    loaded.core.on_marker(7, committed=True)
    assert committed(loaded) == (8, Error.NONE)
    loaded.pass_time(10_001)  # no heartbeat came: all sessions end
    assert loaded.core.groups["g"].members == {}


def test_offsets_of_an_abandoned_group_expire() -> None:
    driver, first, second = a_stable_pair()
    driver.send(commit(5, first, 2))
    leaving = [MemberIdentity(member_id=first), MemberIdentity(member_id=second)]
    driver.ask(LeaveGroupRequest(group_id="g", members=leaving))

    driver.pass_time(6 * DAY_MS)
    assert committed(driver) == (5, Error.NONE)
    driver.pass_time(2 * DAY_MS)

    assert committed(driver) == (-1, Error.NONE)
    assert driver.core.groups == {}
    tombstones: list[Entry] = driver.log[-1].entries
    assert [entry.value for entry in tombstones] == [None, None]


@pytest.mark.parametrize(
    ("retention_time_ms", "kept_ms", "gone_ms"),
    [
        pytest.param(-1, 6 * DAY_MS, 8 * DAY_MS, id="not said: the broker's"),
        pytest.param(DAY_MS, DAY_MS - 600_000, DAY_MS + 600_000, id="shorter"),
        pytest.param(9 * DAY_MS, 8 * DAY_MS, 10 * DAY_MS, id="longer"),
        pytest.param(2**63 - 1, 20 * DAY_MS, None, id="beyond all numbers"),
        pytest.param(-(2**63), 0, 600_000, id="before all numbers"),
    ],
)
def test_offsets_are_kept_for_as_long_as_their_commit_says(
    retention_time_ms: int, kept_ms: int, gone_ms: int | None
) -> None:
    """As Apache Kafka: versions 2 to 4 of OffsetCommit say it; the broker's setting, which counts from a group's end, is for the others (KIP-211)."""
    driver = a_coordinator()
    driver.ask(msgspec.structs.replace(commit(5), retention_time_ms=retention_time_ms), version=4)

    driver.pass_time(kept_ms)
    assert committed(driver) == committed(replayed(driver)) == (5, Error.NONE)

    if gone_ms is not None:
        driver.pass_time(gone_ms - kept_ms)
        assert committed(driver) == committed(replayed(driver)) == (-1, Error.NONE)


def test_a_group_with_members_cannot_be_deleted() -> None:
    driver, _, _ = a_stable_pair()
    replies: dict[int, Any] = driver.replies

    driver.perform(driver.core.delete("g", 1000))
    driver.perform(driver.core.delete("unknown", 1001))

    assert (replies[1000].error_code, replies[1001].error_code) == (Error.NON_EMPTY_GROUP, Error.GROUP_ID_NOT_FOUND)


def test_offsets_of_the_group_without_a_name_are_kept_and_deleted() -> None:
    """Apache Kafka's coordinators take them for old clients; nobody joins that group, and no transaction commits in it."""
    driver = a_coordinator()
    replies: dict[int, Any] = driver.replies
    unnamed = msgspec.structs.replace

    assert driver.ask(unnamed(commit(5), group_id="")).topics[0].partitions[0].error_code is Error.NONE
    ((_, found),) = driver.core.fetch("", [PARTITION], require_stable=False)
    assert (found.committed_offset, found.error_code) == (5, Error.NONE)
    in_transaction = driver.ask(unnamed(commit_in_transaction(9, producer_id=7), group_id=""))
    assert in_transaction.topics[0].partitions[0].error_code is Error.INVALID_GROUP_ID
    assert driver.ask(unnamed(join(), group_id="")).error_code is Error.INVALID_GROUP_ID

    driver.perform(driver.core.delete("", 1000))
    driver.perform(driver.core.delete("", 1001))

    assert (replies[1000].error_code, replies[1001].error_code) == (Error.NONE, Error.GROUP_ID_NOT_FOUND)


def replayed(driver: Driver) -> Driver:
    """Return the next coordinator, loaded from the log."""
    loaded = a_coordinator()
    for index, write in enumerate(driver.log):
        for entry in write.entries:
            producer_id = write.producer.producer_id if write.producer is not None else None
            loaded.core.replay(entry.key, entry.value, 10 * index, producer_id)
    loaded.perform(loaded.core.on_loaded(loaded.now))
    return loaded


def test_who_joins_while_a_group_without_members_is_being_deleted_stays() -> None:
    """What is deleted were offsets only; the joiner was never answered, for its group was gone."""
    driver = a_coordinator()
    driver.send(commit(5))
    driver.hold()
    driver.perform(driver.core.delete("g", 1000))
    joining = driver.send(join(), version=3)
    driver.release()

    assert driver.replies[1000].error_code is Error.NONE
    assert driver.replies[joining].error_code is Error.NONE
    member_id = driver.replies[joining].member_id
    assert driver.send(sync(member_id, 1, {member_id: b"all"})) in driver.replies
    assert committed(driver) == (-1, Error.NONE)
    assert list(replayed(driver).core.groups["g"].members) == [member_id]


def test_a_refused_deletion_leaves_those_who_joined_meanwhile() -> None:
    driver = a_coordinator()
    driver.send(commit(5))
    driver.hold()
    driver.perform(driver.core.delete("g", 1000))
    driver.send(join(), version=3)
    state = driver.core.groups["g"].state

    refused = NotWritten(driver.log[-1].ticket, Error.NOT_ENOUGH_REPLICAS)
    driver.perform(driver.core.on_not_written(refused, driver.now))

    assert driver.core.groups["g"].state is state is not GroupState.EMPTY


def test_offsets_on_their_way_outlive_a_deletion_that_does_not_know_them() -> None:
    """One written before the tombstones that do not name it, and one of a transaction behind them."""
    driver = a_coordinator()
    driver.send(commit_in_transaction(3, producer_id=6))  # named by the deletion: gone, whatever becomes of it
    driver.hold()
    first = driver.send(commit(5))
    driver.perform(driver.core.delete("g", 1000))
    second = driver.send(commit_in_transaction(9, producer_id=7))
    driver.release()

    assert {driver.replies[token].topics[0].partitions[0].error_code for token in (first, second)} == {Error.NONE}
    loaded = replayed(driver)
    for one in (driver, loaded):
        one.core.on_marker(6, committed=True)
        assert committed(one) == (-1, Error.NONE)
        one.core.on_marker(7, committed=True)
        assert committed(one, stable=True) == (9, Error.NONE)
    assert loaded.core.offsets["g"].committed == driver.core.offsets["g"].committed


def test_an_offset_written_before_a_deletion_that_does_not_name_it_stays() -> None:
    driver = a_coordinator()
    driver.send(commit_in_transaction(9, producer_id=7))
    driver.core.on_marker(7, committed=False)  # leaves an empty book
    driver.send(OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=_other(4)))
    driver.hold()
    driver.send(commit(5))
    driver.perform(driver.core.delete("g", 1000))
    driver.release()

    assert committed(driver) == committed(replayed(driver)) == (5, Error.NONE)


def _other(offset: int) -> list[OffsetCommitRequestTopic]:
    asked = OffsetCommitRequestPartition(partition_index=1, committed_offset=offset)
    return [OffsetCommitRequestTopic(name="t", partitions=[asked])]


def test_offsets_of_a_deleted_topic_are_forgotten_also_those_of_open_transactions() -> None:
    driver, first, _ = a_stable_pair()
    driver.send(commit(5, first, 2))
    driver.send(commit_in_transaction(9, producer_id=7))

    driver.perform(driver.core.on_topics_deleted({"other": None}))
    assert committed(driver) == (5, Error.NONE)
    driver.perform(driver.core.on_topics_deleted({"t": None}))
    driver.core.on_marker(7, committed=True)

    assert committed(driver, stable=True) == (-1, Error.NONE)
    assert committed(replayed(driver), stable=True) == (-1, Error.NONE)


@pytest.mark.parametrize("asked", [commit(5), commit_in_transaction(5, producer_id=7)], ids=["plain", "transaction"])
def test_offsets_of_a_deleted_topic_are_forgotten_also_those_on_their_way(asked: msgspec.Struct) -> None:
    """Another topic of the name would be read from where the former one was."""
    driver = a_coordinator()
    driver.hold()
    committing = driver.send(asked)
    driver.perform(driver.core.on_topics_deleted({"t": None}))
    driver.release()

    assert driver.replies[committing].topics[0].partitions[0].error_code is Error.NONE
    loaded = replayed(driver)
    for one in (driver, loaded):
        one.core.on_marker(7, committed=True)
        assert committed(one, stable=True) == (-1, Error.NONE)
    driver.send(commit(2))  # of the topic that has the name now
    driver.perform(driver.core.on_topics_deleted({"other": None}))
    assert committed(driver) == committed(replayed(driver)) == (2, Error.NONE)


def test_an_offset_that_is_being_committed_anew_does_not_expire() -> None:
    """Its tombstone would come behind it: an offset that was acknowledged would be gone."""
    driver = a_coordinator()
    driver.send(commit(5))
    driver.pass_time(7 * DAY_MS - 1_000)
    driver.hold()
    again = driver.send(commit(6))
    driver.pass_time(600_000)
    driver.release()

    assert driver.replies[again].topics[0].partitions[0].error_code is Error.NONE
    assert committed(driver) == committed(replayed(driver)) == (6, Error.NONE)
    driver.pass_time(8 * DAY_MS)
    assert committed(driver) == committed(replayed(driver)) == (-1, Error.NONE)


def test_an_offset_whose_renewal_is_refused_expires() -> None:
    driver = a_coordinator()
    driver.send(commit(5))
    driver.pass_time(7 * DAY_MS - 1_000)
    driver.hold()
    again = driver.send(commit(6))
    driver.refuse()
    driver.pass_time(600_000)

    assert driver.replies[again].topics[0].partitions[0].error_code is Error.COORDINATOR_NOT_AVAILABLE
    assert committed(driver) == committed(replayed(driver)) == (-1, Error.NONE)


def test_nobody_takes_a_static_members_place_by_an_id_that_was_given_to_a_dynamic_one() -> None:
    """Two members of one instance id: the second to be forgotten ended the node (found by tests/fuzz/test_conversations.py)."""
    driver = a_coordinator()
    pending = driver.ask(join(), version=5).member_id

    unknown = driver.ask(join(pending, group_instance_id="i"), version=5)
    static = driver.send(join(group_instance_id="i"), version=5)
    fenced = driver.ask(join(pending, group_instance_id="i"), version=5)
    driver.send(join(pending), version=5)

    assert [unknown.error_code, fenced.error_code] == [Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID]
    assert driver.replies[static].error_code is Error.NONE
    driver.pass_time(60_000)
    assert driver.core.groups["g"].static_members == {}


def test_who_waits_for_an_absent_static_member_does_not_wait_without_a_pause() -> None:
    """With a rebalance time-out of 0 the coordinator would look again at once, until the absent one's session is over."""
    driver = a_coordinator()
    static = driver.ask(join(group_instance_id="i", rebalance_timeout_ms=0))
    driver.ask(sync(static.member_id, static.generation_id))
    other = driver.ask(join(rebalance_timeout_ms=1_000)).member_id
    driver.send(join(other, rebalance_timeout_ms=1_000))
    driver.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=other)]))
    assert driver.core.groups["g"].state is GroupState.PREPARING_REBALANCE

    looks = 0
    while driver.core.groups["g"].members and looks < 1000:
        looks += 1
        step_ms = max(0, driver.core.next_ms - driver.now.now_ms)
        driver.now = Now(driver.now.now_ms + step_ms, driver.now.wall_ms + step_ms)
        driver.perform(driver.core.on_tick(driver.now))

    assert looks <= 20
