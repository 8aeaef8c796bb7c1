"""A checkpointed recovery point speaks of bytes that were durable; when a log ends before them, whatever comes next is not."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from replog.log.checkpoints import RECOVERY_POINTS, read_offsets
from replog.log.settings import LogSettings
from replog.node.directories.log_directories import LogDirectories
from replog.types import TopicPartition
from tests.log.batches import append
from tribunal.clusters.simulated.disk import SimulatedDisk

PATH = "data"
NAME = TopicPartition("t", 0)
COUNT = 40
BITS_MAX = 8


def formatted(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory(PATH)
    disk.sync_directory("")
    disk.replace_file(f"{PATH}/meta.properties", f"version=1\ndirectory.id={UUID(int=1)}\n".encode())
    return disk


def started(disk: SimulatedDisk, settings: LogSettings) -> LogDirectories:
    """Start as a process does that follows one that was killed."""
    journal = SimpleNamespace(log=lambda level, text: None, probe=lambda name: None)
    world: Any = SimpleNamespace(disk=disk, journal=journal, clock=SimpleNamespace(wall_ms=lambda: 1))
    directories = LogDirectories(world, [PATH], settings)
    directories.open()
    return directories


def filled(disk: SimulatedDisk, settings: LogSettings) -> None:
    """Write a log and checkpoint that all of it is durable."""
    directories = started(disk, settings)
    stored = directories.create(NAME, settings)
    stored.log.assign_topic_id(UUID(int=7))
    for number in range(COUNT):
        append(stored.log, b"%04d" % number * 20)
    asyncio.run(directories.flush())
    assert read_offsets(disk, f"{PATH}/{RECOVERY_POINTS}") == {NAME: COUNT}


def damage(disk: SimulatedDisk) -> None:
    """Turn a bit of the first segment's fourth batch, and have the next start look at it."""
    folder = f"{PATH}/{NAME}"
    first = min(name for name in disk.list_directory(folder) if name.endswith(".log"))
    disk.flip_bit(f"{folder}/{first}", BITS_MAX * (3 * 160 + 120))
    index = f"{folder}/{first.removesuffix('.log')}.index"
    if disk.exists(index):
        disk.remove(index)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 1000], ids=["one segment", "several segments"])
@pytest.mark.parametrize("seed", range(3))
def test_what_follows_in_a_log_that_recovery_has_cut_is_durable_when_a_flush_says_so(
    segment_bytes: int, seed: int
) -> None:
    settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=150, timestamp_after_ms_max=1 << 40)
    disk = formatted(seed)
    filled(disk, settings)
    damage(disk)
    log = started(disk, settings).logs[NAME].log
    assert log.cut is not None
    for number in range(log.log_end_offset, COUNT):
        append(log, b"%04d" % number * 20, epoch=1)

    directories = started(disk, settings)  # killed before anything else was checkpointed
    assert directories.logs[NAME].log.log_end_offset == COUNT
    asyncio.run(directories.flush())
    disk.power_fail(0.0)
    disk.power_on()

    assert started(disk, settings).logs[NAME].log.log_end_offset == COUNT
