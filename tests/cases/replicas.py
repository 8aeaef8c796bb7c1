"""Replicas on a real disk, built from a case's words; used by several adapters."""

from pathlib import Path
from typing import Any
from uuid import UUID

from replog.broker.isr import BrokerView, PartitionState
from replog.broker.partition import Partition
from replog.host.world import RealDisk
from replog.log.batch import TRANSACTIONAL, NewRecord, build
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.types import LeaderRecoveryState, NodeId, TopicPartition
from tests.identities import an_identity

NOW_MS = 1_000_000
WALL_MS = 1_700_000_000_000
NODE = NodeId(1)
PRODUCER_ID = 77


def record_batch(
    offset: int, epoch: int, count: int = 1, *, producer: tuple[int, int, int] = (-1, -1, -1), attributes: int = 0
) -> bytes:
    return build(
        [NewRecord(None, b"value") for _ in range(count)],
        timestamp_ms=WALL_MS,
        base_offset=offset,
        leader_epoch=epoch,
        producer=producer,
        attributes=attributes,
    )


def transactional(offset: int, epoch: int, producer_id: int) -> bytes:
    return record_batch(offset, epoch, producer=(producer_id, 0, 0), attributes=TRANSACTIONAL)


def a_log(
    folder: Path,
    *,
    end: int,
    epochs: list[list[int]],
    start: int = 0,
    transactions: dict[int, int] | None = None,
) -> Log:
    """A log of one-record batches. transactions: offset -> producer id of records that open one."""
    log = Log.open(
        RealDisk(), f"{folder}/t-0", LogSettings(), recover=False, recovery_point=0, log_start_offset=0, now_ms=WALL_MS
    )
    for offset in range(end):
        epoch = max((epoch for epoch, first in epochs if first <= offset), default=-1)
        opens = (transactions or {}).get(offset)
        log.append_as_follower(
            record_batch(offset, epoch) if opens is None else transactional(offset, epoch, opens), now_ms=WALL_MS
        )
    log.move_log_start(start)
    return log


def state(
    *,
    leader: int,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    replicas: list[int] | None = None,
    isr: list[int] | None = None,
    recovery: int = 0,
) -> PartitionState:
    return PartitionState(
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        replicas=tuple(replicas or [1, 2, 3]),
        isr=tuple(isr or [1, 2]),
        recovery=LeaderRecoveryState(recovery),
    )


def a_replica(log: Log, *, high_watermark: int = 0, refuses_while_recovering: bool = True) -> Partition:
    return Partition(
        name=TopicPartition("t", 0),
        topic_id=UUID(int=7),
        node_id=NODE,
        log=log,
        high_watermark=high_watermark,
        brokers={node: BrokerView(epoch=100 + node, fenced=False, shutting_down=False) for node in range(1, 10)},
        lag_ms_max=30_000,
        refuses_while_recovering=refuses_while_recovering,
    )


def apply_metadata(replica: Partition, news: PartitionState) -> Any:
    return replica.on_metadata(news, identity=an_identity(100 + NODE), now_ms=NOW_MS, wall_ms=WALL_MS)


def fetched_by(replica: Partition, node: int, offset: int, **fields: Any) -> Any:
    """A follower's fetch without surprises, unless the fields say otherwise."""
    fetch = {
        "broker_epoch": 100 + node,
        "current_leader_epoch": replica.leader_epoch,
        "last_fetched_epoch": -1,
        "log_start_offset": 0,
        "known_high_watermark": 0,
        "max_bytes": 1 << 20,
        "at_least_one": True,
        "takes_position": True,
        "now_ms": NOW_MS,
    }
    return replica.fetch_as_replica(replica=node, fetch_offset=offset, **(fetch | fields))
