"""Family group: the classic protocol and committed offsets at their coordinator (SPEC 4.3)."""

from typing import Any

import pytest

from replog.coordinators.classic_group import GroupSettings, GroupState
from replog.coordinators.classic_member import Member
from replog.coordinators.coordinated_partitions import CoordinatedPartition, CoordinatedPartitions
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.errors import Error
from replog.types import TopicPartition
from replog.wire.messages.heartbeat import HeartbeatRequest
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from replog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from replog.wire.messages.sync_group import SyncGroupRequest
from tests.cases.cases import load, only
from tests.coordinators.driving import AllTopics, Driver, new_ids

WHEN = {"api", "member", "version", "protocol_type", "session_timeout_ms", "group", "generation", "offset", "partition"}


@pytest.mark.parametrize("case", load("group"))
def test_group(case: dict[str, Any]) -> None:
    given = only(case["given"], {"state", "generation", "members", "role", "committed"}, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], {"error", "offset"}, "then")
    coordinated_partitions = _coordinated(given)

    found = coordinated_partitions.find(0)
    answer = {"error": found} if isinstance(found, Error) else _answer(Driver(found.core), when)

    assert answer["error"].name == then["error"]
    assert "offset" not in then or answer["offset"] == then["offset"]


def _coordinated(given: dict[str, Any]) -> CoordinatedPartitions[GroupCoordinator]:
    coordinated_partitions: CoordinatedPartitions[GroupCoordinator] = CoordinatedPartitions()
    role = given.get("role", "coordinator")
    assert role in ("coordinator", "loading", "none")
    core = GroupCoordinator(GroupSettings(), AllTopics(), new_ids(), expiry_interval_ms=1_000_000)
    if role != "none":
        coordinated = CoordinatedPartition(0, 0, core)
        coordinated.is_loaded = role == "coordinator"
        coordinated_partitions.take(coordinated)
    assert not given.get("committed")
    if given.get("state") is not None:
        _put_group(core, given)
    return coordinated_partitions


def _put_group(core: GroupCoordinator, given: dict[str, Any]) -> None:
    group = core._new_group("g")
    members = given.get("members", {})
    group.restore([_member(name) for name in members], is_stable=True)
    group.state = GroupState(given["state"])
    group.generation = given.get("generation", 0)
    group.leader = next((name for name, facts in members.items() if facts.get("leader")), None)
    if members:
        group.protocol_type, group.protocol = "consumer", "range"


def _member(member_id: str) -> Member:
    return Member(
        member_id,
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocols={"range": b""},
    )


def _answer(driver: Driver, when: dict[str, Any]) -> dict[str, Any]:
    group_id = when.get("group", "g")
    member, generation = when.get("member", ""), when.get("generation", -1)
    match when["api"]:
        case "join":
            body = JoinGroupRequest(
                group_id=group_id,
                member_id=member,
                session_timeout_ms=when.get("session_timeout_ms", 10_000),
                rebalance_timeout_ms=10_000,
                protocol_type=when.get("protocol_type", "consumer"),
                protocols=[JoinGroupRequestProtocol(name="range")],
            )
            return {"error": driver.ask(body, version=when.get("version", 5)).error_code}
        case "sync":
            body = SyncGroupRequest(group_id=group_id, member_id=member, generation_id=generation)
            return {"error": driver.ask(body).error_code}
        case "heartbeat":
            body = HeartbeatRequest(group_id=group_id, member_id=member, generation_id=generation)
            return {"error": driver.ask(body).error_code}
        case "commit":
            asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=when["offset"])
            body = OffsetCommitRequest(
                group_id=group_id,
                member_id=member,
                generation_id_or_member_epoch=generation,
                topics=[OffsetCommitRequestTopic(name="a", partitions=[asked])],
            )
            return {"error": driver.ask(body).topics[0].partitions[0].error_code}
        case "fetch_offsets":
            topic, _, index = when["partition"].rpartition("-")
            ((_, found),) = driver.core.fetch(group_id, [TopicPartition(topic, int(index))], require_stable=False)
            return {"error": found.error_code, "offset": found.committed_offset}
        case api:
            raise AssertionError(api)
