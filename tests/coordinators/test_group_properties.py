"""Whatever members do, and whenever the log is slow: generations grow, nothing has two owners, commits do not go back."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replog.coordinators.classic_group import GroupSettings, GroupState
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.errors import Error
from replog.types import TopicPartition
from replog.wire.messages.heartbeat import HeartbeatRequest
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from replog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from replog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from replog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinators.driving import AllTopics, Driver, new_ids

PARTITION_COUNT = 3
PARTITION = TopicPartition("t", 0)
ACTORS = st.integers(0, 2)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["join", "sync", "sync", "heartbeat", "commit", "commit"]), ACTORS),
        st.tuples(st.sampled_from(["leave", "forget"]), ACTORS),
        st.tuples(st.just("time"), st.sampled_from([10, 1000, 7000, 30_000])),
        st.tuples(st.sampled_from(["hold", "release"]), st.just(0)),
    ),
    min_size=10,
    max_size=60,
)


class Actor:
    """A client: what it believes of itself, and the requests whose answers it has not looked at."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.instance_id = "static" if number == 2 else None
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.members: list[str] = []
        self.joining: int | None = None
        self.syncing: int | None = None

    def look(self) -> None:
        """Take the answers that have come."""
        replies = self.world.driver.replies
        if self.joining in replies:
            answer: JoinGroupResponse = replies[self.joining]
            self.joining = None
            if answer.error_code in (Error.NONE, Error.MEMBER_ID_REQUIRED):
                self.member_id = answer.member_id
            if answer.error_code is Error.NONE:
                assert answer.generation_id >= self.world.newest_generation
                self.world.newest_generation = answer.generation_id
                self.generation = answer.generation_id
                self.members = [member.member_id for member in answer.members]
                self.is_leader = answer.leader == answer.member_id
            elif answer.error_code in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
                self.member_id = ""
        if self.syncing in replies:
            answer = replies[self.syncing]
            self.syncing = None
            if answer.error_code is Error.NONE:
                self.world.note_owner(self.generation, self.member_id, bytes(answer.assignment))

    def join(self) -> None:
        if self.joining is None:
            body = JoinGroupRequest(
                group_id="g",
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                session_timeout_ms=6000,
                rebalance_timeout_ms=20_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range")],
            )
            self.joining = self.world.driver.send(body)

    def sync(self) -> None:
        if self.syncing is None and self.joining is None and self.generation >= 0:
            owners = self.members if self.is_leader else []
            shares: dict[str, list[int]] = {member: [] for member in owners}
            for partition in range(PARTITION_COUNT) if owners else ():
                shares[owners[partition % len(owners)]].append(partition)
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=bytes(share))
                for member, share in shares.items()
            ]
            body = SyncGroupRequest(
                group_id="g",
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                generation_id=self.generation,
                assignments=assignments,
            )
            self.syncing = self.world.driver.send(body)

    def heartbeat(self) -> None:
        body = HeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation_id=self.generation,
        )
        self.world.driver.send(body)

    def commit(self) -> None:
        """Commit a position; they grow with time, as those of one reader after the other do."""
        self.world.position += 1
        asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.world.position)
        group = self.world.core.groups.get("g")
        body = OffsetCommitRequest(
            group_id="g",
            member_id=self.member_id or "nobody",
            group_instance_id=self.instance_id,
            generation_id_or_member_epoch=self.generation if self.generation >= 0 else 1_000_000,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[asked])],
        )
        token = self.world.driver.send(body)
        is_current = group is not None and self.member_id in group.members and self.generation == group.generation
        answer = self.world.driver.replies.get(token)
        if answer is not None and answer.topics[0].partitions[0].error_code is Error.NONE:
            assert is_current, "a commit of another generation was taken (M84)"

    def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        self.world.driver.send(LeaveGroupRequest(group_id="g", members=[identity]))
        self.forget()

    def forget(self) -> None:
        """Start over as a new process would."""
        self.member_id, self.generation, self.joining, self.syncing = "", -1, None, None


class World:
    """A group, its clients, and what was seen of it."""

    def __init__(self) -> None:
        self.core = GroupCoordinator(
            GroupSettings(initial_rebalance_delay_ms=500), AllTopics(), new_ids(), expiry_interval_ms=10**9
        )
        self.driver = Driver(self.core)
        self.actors = [Actor(self, number) for number in range(3)]
        self.newest_generation = 0
        self.position = 0
        self.committed = -1
        self.owned: dict[int, dict[int, str]] = {}

    def note_owner(self, generation: int, member: str, share: bytes) -> None:
        for partition in share:
            owner = self.owned.setdefault(generation, {}).setdefault(partition, member)
            assert owner == member, f"partition {partition} of generation {generation}: {owner} and {member}"

    def step(self, event: tuple[str, int]) -> None:
        match event:
            case ("time", duration_ms):
                self.driver.pass_time(duration_ms)
            case ("hold", _):
                self.driver.hold()
            case ("release", _):
                self.driver.release()
            case (name, number):
                getattr(self.actors[number], name)()
        for actor in self.actors:
            actor.look()
        self.check()

    def check(self) -> None:
        group = self.core.groups.get("g")
        if group is not None:
            assert (group.state is GroupState.EMPTY) == (not group.members) or group.state in (
                GroupState.PREPARING_REBALANCE,
                GroupState.DEAD,
            )
            assert set(group.static_members.values()) <= set(group.members)
            if group.state is GroupState.STABLE:
                assert group.leader in group.members
        ((_, found),) = self.core.fetch("g", [PARTITION], require_stable=False)
        assert found.committed_offset >= self.committed
        self.committed = found.committed_offset


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_a_group_keeps_its_promises(events: list[tuple[str, int]]) -> None:
    world = World()
    for event in events:
        world.step(event)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_a_group_is_stable_soon_after_its_members_behave(events: list[tuple[str, int]]) -> None:
    world = World()
    for event in events:
        world.step(event)
    world.step(("release", 0))
    for actor in world.actors:
        actor.forget()
    for _ in range(60):
        _behave(world)

    group = world.core.groups["g"]
    assert group.state is GroupState.STABLE
    assert set(group.members) == {actor.member_id for actor in world.actors}
    assert set(world.owned[group.generation]) == set(range(PARTITION_COUNT))


def _behave(world: World) -> None:
    """Let every client do what its state asks for; a second goes by."""
    group: Any = world.core.groups.get("g")
    for actor in world.actors:
        is_member = group is not None and actor.member_id in group.members and actor.generation == group.generation
        if not is_member or group.state is GroupState.PREPARING_REBALANCE:
            actor.join()
        elif group.state is GroupState.COMPLETING_REBALANCE or actor.member_id in group.not_synced:
            actor.sync()
        else:
            actor.heartbeat()
        actor.look()
        world.check()
    world.step(("time", 1000))
