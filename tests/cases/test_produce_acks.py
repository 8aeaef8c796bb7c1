"""Family produce_acks: what becomes of a produce by acks, ISR and progress (SPEC 3.7)."""

from pathlib import Path
from typing import Any

import pytest

from replog.broker.isr import Proposal
from replog.broker.partition import Partition
from replog.broker.purgatory import DelayedProduce, ProduceQueue, ProduceResult
from replog.errors import Error
from replog.wire.messages.produce import TopicProduceData
from tests.cases.cases import load, only
from tests.cases.replicas import (
    NODE,
    NOW_MS,
    WALL_MS,
    a_log,
    a_replica,
    apply_metadata,
    fetched_by,
    record_batch,
    state,
)

GIVEN = {"leader", "isr", "min_isr", "replication_factor", "recovery", "pending_add"}
WHEN = {"acks", "replicated_to", "wait", "isr_after_append", "hwm_reached", "producer_id"}
THEN = {"appended", "response", "visible", "when"}


@pytest.mark.parametrize("case", load("produce_acks"))
def test_produce_acks(case: dict[str, Any], tmp_path: Path) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], THEN, "then")
    replica = leader_of(given, tmp_path)
    producer = (when["producer_id"], 0, 0) if "producer_id" in when else (-1, -1, -1)

    appended, _ = replica.append(
        record_batch(0, -1, producer=producer), acks=when["acks"], now_ms=NOW_MS, wall_ms=WALL_MS
    )

    found = {
        "appended": replica.log.log_end_offset == 1,
        "response": appended.name if isinstance(appended, Error) else response(replica, given, when),
        "visible": replica.high_watermark == 1,
        "when": "after local append",
    }
    assert {key: found[key] for key in then} == then


def leader_of(given: dict[str, Any], folder: Path) -> Partition:
    replica = a_replica(a_log(folder, end=0, epochs=[]))
    replica.min_insync_replicas = given["min_isr"]
    apply_metadata(replica, committed(given, given["isr"], partition_epoch=1))
    if "pending_add" in given:
        assert replica.leadership is not None
        replica.leadership.pending = Proposal(
            leader_epoch=1, partition_epoch=1, isr=(), recovery=replica.leadership.state.recovery
        )
        replica.leadership.maximal_isr = (*given["isr"], *given["pending_add"])
    return replica


def committed(given: dict[str, Any], isr: list[int], *, partition_epoch: int) -> Any:
    return state(
        leader=NODE if given["leader"] else 2,
        leader_epoch=1,
        partition_epoch=partition_epoch,
        replicas=list(range(1, given["replication_factor"] + 1)),
        isr=isr,
        recovery=given.get("recovery", 0),
    )


def response(replica: Partition, given: dict[str, Any], when: dict[str, Any]) -> str | None:
    """What the client is answered after an append that happened."""
    assert replica.leadership is not None
    if when["acks"] != -1:
        return None if when["acks"] == 0 else "NONE"
    result = ProduceResult(TopicProduceData(name="t"), 0, None, last_offset=0)
    queue = ProduceQueue()
    op = DelayedProduce([result], NOW_MS, lambda _: None)
    queue.add(op, result)
    for node in when.get("replicated_to", []):
        if node != NODE:
            fetched_by(replica, node, 1)
    if "isr_after_append" in when:
        apply_metadata(replica, committed(given, when["isr_after_append"], partition_epoch=2))
    assert when.get("hwm_reached", replica.high_watermark == 1) == (replica.high_watermark == 1)
    queue.complete_ready(replica.leadership.produce_outcome)
    if when.get("wait") == "timeout":
        op.time_out()
    return result.error.name if result.error is not None else "waits"
