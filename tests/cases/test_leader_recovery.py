"""Family leader_recovery: KIP-704 at leader and follower (SPEC 3.10), and its invariants on the controller's side."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from replog.broker.isr import AlterPartitionAnswer, Proposal
from replog.broker.partition import Partition, Propose
from replog.controller.election import Election, Rules, Wish, partition_change
from replog.controller.elr import LastKnownMode
from replog.errors import Error
from replog.log.batch import ControlType, batches, end_transaction
from replog.metadata.image import merged
from replog.metadata.state import Partition as ControllerPartition
from replog.types import NO_NODE, LeaderRecoveryState, NodeId
from tests.cases.cases import load, only
from tests.cases.partitions import KEY, nodes, partition
from tests.cases.replicas import NODE, NOW_MS, a_log, a_replica, apply_metadata, state

GIVEN = {
    "role",
    "leader_epoch",
    "recovery",
    "isr",
    "open_transactions",
    "leo",
    "hwm",
    "partition_history",
}
EVENTS = {
    "became_leader": set(),
    "restart": set(),
    "alter_partition_response": {"error", "recovery"},
    "metadata": {"leader_epoch", "recovery"},
}
THEN = {
    "aborts",
    "then_sends",
    "serves_clients",
    "recovery",
    "repeats_recovery",
    "starts_recovery",
    "serves_consumers",
    "always",
}
CASES = load("leader_recovery")


@pytest.mark.parametrize("case", [case for case in CASES if "event" in case.values[0]["when"]])
def test_leader_recovery(case: dict[str, Any], tmp_path: Path) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], {"event"} | EVENTS[case["when"]["event"]], "when")
    then = only(case["then"], THEN, "then")
    replica = replica_of(given, tmp_path)

    found = HAPPENS[when["event"]](replica, given, when, tmp_path)

    assert {key: found[key] for key in then} == then


def replica_of(given: dict[str, Any], folder: Path) -> Partition:
    opened = {entry["first"]: entry["pid"] for entry in given.get("open_transactions", [])}
    end = given.get("leo", 0)
    log = a_log(folder, end=end, epochs=[[0, 0]] if end else [], transactions=opened)
    return a_replica(log, high_watermark=given.get("hwm", 0))


def elected(replica: Partition, given: dict[str, Any]) -> dict[str, Any]:
    """Make the replica what the case says; return what it did about it."""
    before = replica.log.log_end_offset
    leader = NODE if given["role"] == "leader" else 2
    effects = apply_metadata(
        replica,
        state(
            leader=leader,
            leader_epoch=given["leader_epoch"],
            isr=given.get("isr", [leader]),
            recovery=given["recovery"],
        ),
    )
    proposals = [effect.proposal for effect in effects if isinstance(effect, Propose)]
    return {
        "aborts": aborted_producers(replica, before),
        "then_sends": {
            "alter_partition": {
                "isr": [node for node, _ in proposals[0].isr],
                "recovery": int(proposals[0].recovery),
            }
        }
        if proposals
        else None,
        "recovery": int(replica.state.recovery),
        "serves_clients": replica.append_error(1) is Error.NONE,
        "serves_consumers": replica.reader_error(-1, leader_only=False) is Error.NONE,
        "starts_recovery": bool(proposals),
    }


def aborted_producers(replica: Partition, start: int) -> list[int]:
    end = replica.log.log_end_offset
    written = replica.log.read(start, max_bytes=1 << 20, end_offset=end, at_least_one=True) if start < end else b""
    markers = [(header.producer_id, end_transaction(written, header)) for header in batches(written)]
    assert all(marker is not None and marker.control_type is ControlType.ABORT for _, marker in markers)
    return [producer_id for producer_id, _ in markers]


def became_leader(replica: Partition, given: dict[str, Any], *_: Any) -> dict[str, Any]:
    return elected(replica, given)


def restart(replica: Partition, given: dict[str, Any], _: Any, folder: Path) -> dict[str, Any]:
    elected(replica, given)
    replica.log.close()
    again = a_replica(a_log(folder, end=0, epochs=[]), high_watermark=given["hwm"])
    found = elected(again, given)
    return found | {"repeats_recovery": found["starts_recovery"]}


def alter_partition_response(
    replica: Partition, given: dict[str, Any], when: dict[str, Any], _: Path
) -> dict[str, Any]:
    elected(replica, given)
    leader = replica.leadership
    assert leader is not None
    leader.pending = Proposal(
        leader_epoch=given["leader_epoch"], partition_epoch=0, isr=((NODE, 101),), recovery=leader.state.recovery
    )
    before = replica.log.log_end_offset
    answer = AlterPartitionAnswer(
        error=Error[when["error"]],
        leader=NODE,
        leader_epoch=given["leader_epoch"],
        partition_epoch=1,
        isr=tuple(given["isr"]),
        recovery=LeaderRecoveryState(when["recovery"]),
    )
    leader.on_alter_partition_answer(leader.pending, answer, NOW_MS)
    return {"starts_recovery": replica.is_recovering or replica.log.log_end_offset != before}


def metadata(replica: Partition, given: dict[str, Any], when: dict[str, Any], _: Path) -> dict[str, Any]:
    assert elected(replica, given)["serves_consumers"] is False
    return elected(replica, given | when | {"event": None})


HAPPENS = {
    "became_leader": became_leader,
    "restart": restart,
    "alter_partition_response": alter_partition_response,
    "metadata": metadata,
}
INVARIANTS = {
    "recovery == 1 implies len(isr) == 1 or leader == -1": lambda _, after: (
        after.leader_recovery_state == 0 or len(after.isr) == 1 or after.leader == NO_NODE
    ),
    "a new leader while recovery == 1 and old leader outside ISR keeps recovery == 1": lambda before, after: (
        before.leader_recovery_state == 0
        or after.leader in (before.leader, NO_NODE)
        or before.leader in after.isr
        or after.leader_recovery_state == 1
    ),
}


@pytest.mark.parametrize("case", [case for case in CASES if "check" in case.values[0]["when"]])
def test_recovery_invariants_on_any_history(case: dict[str, Any]) -> None:
    given = only(case["given"], {"partition_history"}, "given")
    only(case["when"], {"check", "name"}, "when")
    holds = INVARIANTS[only(case["then"], {"always"}, "then")["always"]]
    assert given["partition_history"] == "any"

    for seed in range(20):
        history = histories(Random(seed))
        assert all(holds(before, after) for before, after in pairwise(history))


def histories(random: Random) -> list[ControllerPartition]:
    """Fence, unfence and elect at random; one partition through 60 changes."""
    rules = Rules(min_insync_replicas=2, elr_enabled=random.random() < 0.5, last_known_mode=LastKnownMode.LEADER)
    history = [partition({"replicas": [1, 2, 3]})]
    alive: dict[NodeId, None] = dict.fromkeys(nodes([1, 2, 3]))
    for _ in range(60):
        now = history[-1]
        node = random.choice(now.replicas)
        isr = now.isr
        if node in alive:
            del alive[node]
            isr = tuple(member for member in isr if member != node)
        else:
            alive[node] = None
        wish = Wish(target_isr=isr, election=random.choice(list(Election)[:3]))
        change = partition_change(KEY, now, wish, rules, lambda node: node in alive)
        history.append(now if change is None else merged(now, change))
    return history
