"""Family raft_log: what a leader answers to a fetch, where a follower cuts, what a majority holds (SPEC 1.8, 1.10)."""

from typing import Any

import pytest

from replog.quorum import events
from replog.quorum.log_shape import LogShape
from replog.quorum.messages import FetchAnswer, FetchRequest, FetchSnapshotRequest, OffsetAndEpoch
from replog.quorum.quorum import Quorum
from replog.quorum.quorum_state import SafetyViolation
from replog.quorum.roles import Leader, Progress
from replog.quorum.voters import ReplicaKey
from replog.types import NO_OFFSET, NodeId
from tests.cases.cases import load, only
from tests.cases.voters import a_member, answers, placed

LOG = {"start", "end", "epochs", "snapshots", "epoch", "state", "shutting_down", "snapshot_size"}
LEADER = {"role", "voters", "leader", "epoch_start", "hwm"}
FOLLOWER = {"role", "end", "epochs", "hwm", "start", "snapshots"}
FETCH = {"fetch_offset", "last_fetched_epoch", "current_leader_epoch", "max_wait"}
FETCH_SNAPSHOT = {"fetch_snapshot", "position", "max_bytes", "current_leader_epoch"}
THEN = {"kind", "records", "epoch", "end_offset", "id", "error", "size", "position", "bytes"}


def log_of(given: dict[str, Any]) -> LogShape:
    return LogShape(
        start_offset=given.get("start", 0),
        end_offset=given["end"],
        epochs=[(epoch, start) for epoch, start in given["epochs"]],
        snapshots=[
            (OffsetAndEpoch(end, epoch), given.get("snapshot_size", 1)) for end, epoch in given.get("snapshots", [])
        ],
    )


def fetched(member: Quorum, when: dict[str, Any]) -> dict[str, Any]:
    request = FetchRequest(
        replica=ReplicaKey(NodeId(2)),
        epoch=when["current_leader_epoch"],
        fetch_offset=when["fetch_offset"],
        last_fetched_epoch=when["last_fetched_epoch"],
        max_wait_ms=when.get("max_wait", 0),
    )
    (answer,) = answers(member.handle(events.Received(now_ms=0, token=1, request=request)))
    if answer.error:
        return {"error": answer.error.name}
    if answer.diverging is not None:
        return {"kind": "diverging", "epoch": answer.diverging.epoch, "end_offset": answer.diverging.offset}
    if answer.snapshot is not None:
        return {"kind": "snapshot", "id": [answer.snapshot.offset, answer.snapshot.epoch]}
    return {"kind": "valid", "error": "NONE", "records": max(answer.read_end, 0) - max(answer.read_offset, 0)}


def snapshot_fetched(member: Quorum, when: dict[str, Any]) -> dict[str, Any]:
    end, epoch = when["fetch_snapshot"]
    request = FetchSnapshotRequest(
        replica=ReplicaKey(NodeId(2)),
        epoch=when.get("current_leader_epoch", member.epoch),
        snapshot=OffsetAndEpoch(end, epoch),
        position=when["position"],
        max_bytes=when.get("max_bytes", 1024),
    )
    (answer,) = answers(member.handle(events.Received(now_ms=0, token=1, request=request)))
    size = {"size": answer.size, "position": answer.position, "bytes": answer.length}
    return {"error": answer.error.name} | size


def leading(given: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    state = {"id": given["leader"], "state": "leader", "epoch": 1, "leader": given["leader"]}
    state["epoch_start"] = given["epoch_start"]
    member = placed(a_member(state, LogShape(), voters=given["voters"]), state)
    role = member.role
    assert isinstance(role, Leader)
    role.high_watermark = given["hwm"]
    for replica, end_offset in when["end_offsets"].items():
        key = ReplicaKey(NodeId(replica))
        progress = role.progress.get(key.node_id) or role.observers.setdefault(key, Progress(key))
        progress.end_offset = NO_OFFSET if end_offset is None else end_offset
    return {"hwm": role.majority_end_offset()}


def truncated(given: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    state = {"id": 1, "state": "follower", "epoch": 9, "leader": 2}
    member = placed(a_member(state, log_of(given)), state)
    member._state.high_watermark = given["hwm"]
    asked = [effect for effect in member.handle(events.Tick(now_ms=0)) if isinstance(effect, events.Send)]
    epoch, end_offset = when["diverging"]
    answer = FetchAnswer(epoch=9, leader_id=NodeId(2), diverging=OffsetAndEpoch(end_offset, epoch))
    try:
        effects = member.handle(events.Replied(now_ms=0, request_id=asked[0].request_id, answer=answer))
    except SafetyViolation as violation:
        return {"fatal": str(violation)}
    cuts = [effect.end_offset for effect in effects if isinstance(effect, events.TruncateLog)]
    return {"truncated_to": cuts[0] if cuts else member.log.end_offset, "hwm": member.high_watermark}


@pytest.mark.parametrize("case", load("raft_log"))
def test_log(case: dict[str, Any]) -> None:
    given, when, then = case["given"], case["when"], case["then"]

    if given.get("role") == "leader":
        found = leading(only(given, LEADER, "given"), only(when, {"end_offsets"}, "when"))
    elif given.get("role") == "follower":
        found = truncated(only(given, FOLLOWER, "given"), only(when, {"diverging"}, "when"))
    else:
        state = only(given, LOG, "given") | {"id": 1, "leader": 1 if given["state"] == "leader" else 3}
        member = placed(a_member(state, log_of(given)), state)
        member._state.shutting_down = given.get("shutting_down", False)
        if "fetch_snapshot" in when:
            found = snapshot_fetched(member, only(when, FETCH_SNAPSHOT, "when"))
        else:
            found = fetched(member, only(when, FETCH, "when"))

    expected = only(then, THEN | {"truncated_to", "hwm", "fatal"}, "then")
    if "fatal" in expected:
        assert set(expected["fatal"].split()) <= set(found["fatal"].split())
    else:
        assert {key: found[key] for key in expected} == expected
