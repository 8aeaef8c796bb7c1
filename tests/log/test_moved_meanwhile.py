"""Logs are moved, or cut below their start: what was begun before is not held against, or forgotten of, what is there then."""

import asyncio
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from replog.broker.partition import Partition
from replog.log.settings import LogSettings
from replog.node.directories.log_directories import LogDirectories
from replog.node.replication.flushing import Flushing
from replog.node.replication.replicas import Replica
from replog.ports import File
from replog.types import NodeId, TopicIdPartition, TopicPartition
from tests.log.batches import append
from tribunal.clusters.simulated.disk import SimulatedDisk

PATHS = ["/data/a", "/data/b"]
NAME = TopicPartition("t", 0)
SETTINGS = LogSettings()
TOPIC_ID = UUID(int=7)


class LateDisk(SimulatedDisk):
    """Syncs in the background end badly, and only after something else was done."""

    meanwhile: Callable[[], object] | None = None

    async def sync_in_background(self, files: Sequence[File]) -> None:
        if self.meanwhile is None:
            await super().sync_in_background(files)
            return
        self.meanwhile()
        raise OSError(5, "Input/output error")


def formatted() -> LateDisk:
    disk = LateDisk(random.Random(1))
    for number, path in enumerate(PATHS):
        disk.make_directory(path)
        disk.replace_file(f"{path}/meta.properties", f"version=1\ndirectory.id={UUID(int=number + 1)}\n".encode())
    return disk


def world_of(disk: SimulatedDisk) -> Any:
    journal = SimpleNamespace(log=lambda level, text: None, probe=lambda name: None)
    entropy = SimpleNamespace(strikes=lambda point: False)
    clock = SimpleNamespace(wall_ms=lambda: 1, now_ms=lambda: 1)
    return SimpleNamespace(disk=disk, journal=journal, clock=clock, entropy=entropy)


def directories_of(disk: SimulatedDisk) -> LogDirectories:
    directories = LogDirectories(world_of(disk), PATHS, SETTINGS)
    directories.open()
    return directories


def with_log(disk: SimulatedDisk) -> LogDirectories:
    directories = directories_of(disk)
    stored = directories.create(NAME, SETTINGS)
    stored.log.assign_topic_id(TOPIC_ID)
    for _ in range(12):
        append(stored.log, epoch=3)
    return directories


def move(directories: LogDirectories) -> None:
    copy = directories.begin_copy(NAME, PATHS[1])
    while not copy.is_complete:
        copy.add(copy.next_batches(), 1)
    directories.take_copy(NAME, copy)


def test_a_sync_that_fails_after_the_log_has_moved_away_fails_the_directory_that_it_left() -> None:
    disk = formatted()
    directories = with_log(disk)
    disk.meanwhile = lambda: move(directories)

    asyncio.run(directories.flush())

    assert list(directories.offline) == [PATHS[0]]
    assert directories.logs[NAME].directory == PATHS[1]


def test_an_early_flush_that_fails_after_the_log_has_moved_away_leaves_the_replica_in_use() -> None:
    disk = formatted()
    directories = with_log(disk)
    partition = Partition(
        name=NAME,
        topic_id=TOPIC_ID,
        node_id=NodeId(1),
        log=directories.logs[NAME].log,
        high_watermark=0,
        brokers={},
        lag_ms_max=1000,
        refuses_while_recovering=True,
    )
    partition.disk_failed = lambda problem: directories.fail_directory_of(NAME, problem, partition.log)
    replica = Replica(TopicIdPartition(TOPIC_ID, 0), partition)
    flushing = Flushing(SimpleNamespace(world=world_of(disk)), None)  # type: ignore[arg-type]

    def meanwhile() -> None:
        move(directories)
        partition.log = directories.logs[NAME].log

    disk.meanwhile = meanwhile

    asyncio.run(flushing.flush([replica]))

    assert not partition.is_offline
    assert PATHS[1] not in directories.offline


def cut_below_its_start(directories: LogDirectories) -> int:
    log = directories.logs[NAME].log
    log.truncate_to(5)
    directories.write_recovery_points()  # as the broker does after each truncation
    for _ in range(10):
        append(log, epoch=4)
    return 5


def move_and_delete_records(directories: LogDirectories) -> int:
    copy = directories.begin_copy(NAME, PATHS[1])
    while not copy.is_complete:
        copy.add(copy.next_batches(), 1)
    directories.logs[NAME].log.move_log_start(10)
    directories.take_copy(NAME, copy)
    return 10


@pytest.mark.parametrize("go", [cut_below_its_start, move_and_delete_records])
def test_where_a_log_begins_is_known_after_a_crash(go: Callable[[LogDirectories], int]) -> None:
    disk = formatted()
    directories = with_log(disk)
    directories.logs[NAME].log.move_log_start(8)
    asyncio.run(directories.flush())

    begins = go(directories)
    found = directories_of(disk).logs[NAME]  # the process was killed, and comes again

    assert directories.logs[NAME].log.log_start_offset == found.log.log_start_offset == begins
