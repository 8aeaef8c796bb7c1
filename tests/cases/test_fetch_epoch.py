"""Family fetch_epoch: what a replica answers by epochs and offsets, and where a follower cuts (SPEC 3.2, 3.4, 3.9)."""

from pathlib import Path
from typing import Any

import pytest

from replog.broker.fetcher import truncation_point
from replog.broker.partition import LATEST_TIMESTAMP, READ_COMMITTED, Partition
from replog.log.batch import batches
from tests.cases.cases import load, only
from tests.cases.replicas import (
    NODE,
    PRODUCER_ID,
    WALL_MS,
    a_log,
    a_replica,
    apply_metadata,
    fetched_by,
    record_batch,
    state,
)

GIVEN = {"role", "leader_epoch", "start", "leo", "hwm", "lso", "epochs", "recovery", "epoch_start"}
THEN = {
    "error",
    "diverging",
    "records",
    "last_visible_offset",
    "offset",
    "leader_epoch",
    "end_offset",
    "truncated_to",
    "done",
    "leo",
    "hwm",
}
CALLS = {
    "fetch": {
        "current_leader_epoch",
        "leader_only",
        "fetch_offset",
        "consumer",
        "rack_match",
        "isolation",
        "replica",
        "last_fetched_epoch",
    },
    "list_offsets": {"current_leader_epoch", "leader_only", "timestamp", "isolation", "replica"},
    "offset_for_leader_epoch": {"current_leader_epoch", "leader_only", "leader_epoch"},
    "truncate_by_leader_answer": {"epoch", "end_offset"},
    "fetch_answer": {"records", "leader_hwm"},
    "offset_out_of_range": {"leader_start", "leader_leo"},
}
TIMESTAMPS = {"latest": LATEST_TIMESTAMP, "earliest": -2, "max_timestamp": -3}


@pytest.mark.parametrize("case", load("fetch_epoch"))
def test_fetch_epoch(case: dict[str, Any], tmp_path: Path) -> None:
    given = only(case["given"], GIVEN, "given")
    what = case["when"].get("api") or case["when"]["event"]
    when = only(case["when"], {"api", "event"} | CALLS[what], "when")
    then = only(case["then"], THEN, "then")

    found = HAPPENS[what](replica_of(given, tmp_path), when)

    assert {key: found[key] for key in then} == then


def replica_of(given: dict[str, Any], folder: Path) -> Partition:
    lso = given.get("lso", given["hwm"])
    log = a_log(
        folder,
        start=given.get("start", 0),
        end=given["leo"],
        epochs=given["epochs"],
        transactions={lso: PRODUCER_ID} if lso < given["hwm"] else {},
    )
    replica = a_replica(log, high_watermark=given["hwm"])
    leads = given["role"] == "leader"
    epoch = given.get("leader_epoch", max((epoch for epoch, _ in given["epochs"]), default=0))
    apply_metadata(replica, state(leader=NODE if leads else 2, leader_epoch=epoch, recovery=given.get("recovery", 0)))
    if replica.leadership is not None:
        replica.leadership.epoch_start_offset = given.get("epoch_start", log.epochs.latest_start)
    return replica


def epoch_of(when: dict[str, Any]) -> int:
    epoch = when.get("current_leader_epoch")
    return -1 if epoch is None else int(epoch)


def isolation_of(when: dict[str, Any]) -> int:
    return READ_COMMITTED if when.get("isolation") == "read_committed" else 0


def fetch(replica: Partition, when: dict[str, Any]) -> dict[str, Any]:
    if "replica" in when:
        answer, _ = fetched_by(
            replica,
            when["replica"],
            when.get("fetch_offset", 0),
            current_leader_epoch=epoch_of(when),
            last_fetched_epoch=when.get("last_fetched_epoch", -1),
        )
    else:
        answer = replica.fetch_as_consumer(
            current_leader_epoch=epoch_of(when),
            fetch_offset=when.get("fetch_offset", 0),
            last_fetched_epoch=when.get("last_fetched_epoch", -1),
            isolation=isolation_of(when),
            leader_only=when.get("leader_only", False),
            max_bytes=1 << 20,
            at_least_one=True,
        )
    headers = list(batches(answer.records))
    return {
        "error": answer.error.name,
        "diverging": list(answer.diverging) if answer.diverging else None,
        "records": sum(header.count for header in headers),
        "last_visible_offset": headers[-1].last_offset if headers else None,
        "hwm": answer.high_watermark,
    }


def list_offsets(replica: Partition, when: dict[str, Any]) -> dict[str, Any]:
    timestamp = when.get("timestamp", "latest")
    answer = replica.list_offset(
        current_leader_epoch=epoch_of(when),
        timestamp=TIMESTAMPS.get(timestamp, timestamp),
        isolation=isolation_of(when),
        is_replica="replica" in when,
        leader_only=when.get("leader_only", True),
    )
    return {"error": answer.error.name, "offset": answer.offset, "leader_epoch": answer.leader_epoch}


def offset_for_leader_epoch(replica: Partition, when: dict[str, Any]) -> dict[str, Any]:
    answer = replica.end_of_epoch(
        current_leader_epoch=epoch_of(when), leader_epoch=when.get("leader_epoch", replica.leader_epoch)
    )
    return {"error": answer.error.name, "leader_epoch": answer.leader_epoch, "end_offset": answer.end_offset}


def truncate(replica: Partition, when: dict[str, Any]) -> dict[str, Any]:
    point = truncation_point(
        replica.log.epochs,
        log_end_offset=replica.log.log_end_offset,
        high_watermark=replica.high_watermark,
        leader_epoch=when["epoch"],
        leader_end_offset=when["end_offset"],
    )
    replica.on_divergence(when["epoch"], when["end_offset"], leader_log_start_offset=0)
    return {"truncated_to": replica.log.log_end_offset, "done": point.done, "hwm": replica.high_watermark}


def fetch_answer(replica: Partition, when: dict[str, Any]) -> dict[str, Any]:
    records = record_batch(replica.log.log_end_offset, replica.leader_epoch, when["records"])
    replica.on_fetched(records, high_watermark=when["leader_hwm"], log_start_offset=0, wall_ms=WALL_MS)
    return {"leo": replica.log.log_end_offset, "hwm": replica.high_watermark}


def out_of_range(replica: Partition, when: dict[str, Any]) -> dict[str, Any]:
    replica.on_leader_range(log_start_offset=when["leader_start"], log_end_offset=when["leader_leo"])
    return {
        "truncated_to": replica.log.log_end_offset,
        "leo": replica.log.log_end_offset,
        "hwm": replica.high_watermark,
    }


HAPPENS = {
    "fetch": fetch,
    "list_offsets": list_offsets,
    "offset_for_leader_epoch": offset_for_leader_epoch,
    "truncate_by_leader_answer": truncate,
    "fetch_answer": fetch_answer,
    "offset_out_of_range": out_of_range,
}
