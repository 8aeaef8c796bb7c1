"""Checkpoints know logs by name: what one says of a topic that is gone must not be taken for its successor's."""

import asyncio
import errno
import random
from itertools import product
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from replog.log.creation import PARTITION_METADATA_FILE
from replog.log.recovery import EPOCHS_FILE
from replog.log.settings import LogSettings
from replog.node.directories.log_directories import LogDirectories, NewLog
from replog.types import TopicPartition
from tests.log.batches import append
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk

NAME = TopicPartition("t", 0)
OTHER = TopicPartition("u", 0)
SETTINGS = LogSettings()
FORMER, LATTER = UUID(int=7), UUID(int=8)


async def opened(disk: SimulatedDisk, *paths: str) -> LogDirectories:
    journal = SimpleNamespace(log=lambda level, text: None, probe=lambda name: None)
    world: Any = SimpleNamespace(disk=disk, journal=journal, clock=SimpleNamespace(wall_ms=lambda: 1))
    directories = LogDirectories(world, list(paths or ["/data/a"]), SETTINGS)
    directories.open()
    return directories


async def with_former(disk: SimulatedDisk) -> LogDirectories:
    """A topic that was read, partly deleted, checkpointed; another one beside it."""
    directories = await opened(disk)
    for name in (NAME, OTHER):
        stored = directories.create(name, SETTINGS)
        stored.log.assign_topic_id(FORMER)
        stored.log.begin_epoch(0)
        for _ in range(12):
            append(stored.log, epoch=0)
        stored.log.flush()
        stored.log.move_log_start(8)
        directories.note_high_watermark(name, 12)
    await directories.flush()
    return directories


def formatted(*paths: str) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(1))
    for number, path in enumerate(paths or ("/data/a",), start=1):
        disk.make_directory(path)
        disk.replace_file(f"{path}/meta.properties", f"version=1\ndirectory.id={UUID(int=number)}\n".encode())
    disk.sync_directory("/data")
    disk.sync_directory("/")
    return disk


def put_aside(directories: LogDirectories) -> None:
    directories.put_aside(NAME)


def delete(directories: LogDirectories) -> None:
    directories.delete(NAME)


@pytest.mark.parametrize("ends_between", [False, True])
@pytest.mark.parametrize("go", [delete, put_aside])
def test_a_topic_created_again_does_not_inherit_from_checkpoints(go: Any, ends_between: bool) -> None:
    disk = formatted()

    async def story() -> tuple[LogDirectories, list[int]]:
        directories = await with_former(disk)
        go(directories)
        if ends_between:
            directories = await opened(disk)
        await directories.prepare([NewLog(NAME, LATTER, 0)])
        latter = directories.create(NAME, SETTINGS)
        for _ in range(10):
            append(latter.log, epoch=0)
        directories = await opened(disk)  # the process was killed, and comes again
        found = directories.logs[NAME]
        return directories, [found.log.log_start_offset, found.log.log_end_offset, found.high_watermark]

    directories, figures = asyncio.run(story())

    assert figures == [0, 10, 0]
    other = directories.logs[OTHER]
    assert (other.log.log_start_offset, other.log.log_end_offset, other.high_watermark) == (8, 12, 12)


@pytest.mark.parametrize("wanted", [FORMER, LATTER])
def test_of_two_topics_logs_of_one_name_the_committed_topics_is_kept(wanted: UUID) -> None:
    """A directory was offline while a topic was deleted and created again in another one: then it comes back."""
    disk = formatted("/data/a", "/data/b")

    async def story() -> LogDirectories:
        await with_former(disk)
        directories = await opened(disk, "/data/b")
        latter = directories.create(NAME, SETTINGS)
        latter.log.assign_topic_id(LATTER)
        for _ in range(3):
            append(latter.log, epoch=0)
        both = await opened(disk, "/data/a", "/data/b")
        both.choose(NAME, wanted)
        return both

    directories = asyncio.run(story())

    kept = directories.logs[NAME]
    assert (kept.log.topic_id, kept.log.log_end_offset) == (wanted, 12 if wanted == FORMER else 3)
    assert kept.directory == ("/data/a" if wanted == FORMER else "/data/b")
    other = "/data/b" if wanted == FORMER else "/data/a"
    assert f"{NAME}.0-stray" in disk.list_directory(other)


def test_what_fails_on_the_closed_files_of_an_old_log_says_nothing_of_its_directory() -> None:
    """A late truncation or compaction of a deleted replica finds its files closed; its successor's are fine."""
    disk = formatted()

    async def story() -> list[list[str]]:
        directories = await with_former(disk)
        former = directories.logs[NAME].log
        directories.delete(NAME)
        latter = directories.create(NAME, SETTINGS)
        seen = []
        for log in (former, latter.log):
            directories.fail_directory_of(NAME, OSError(9, "Bad file descriptor"), log)
            seen.append(list(directories.offline))
        return seen

    assert asyncio.run(story()) == [[], ["/data/a"]]


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 0\ntopic_id: AAAA\n", bytes(30)])
def test_a_log_of_an_unknown_topic_takes_its_directory_offline(content: bytes) -> None:
    disk = formatted("/data/a", "/data/b")

    async def story() -> LogDirectories:
        await with_former(disk)
        disk.replace_file(f"/data/a/{NAME}/partition.metadata", content)
        return await opened(disk, "/data/a", "/data/b")

    directories = asyncio.run(story())

    assert list(directories.offline) == ["/data/a"]
    assert "partition.metadata is damaged" in directories.offline["/data/a"]


def test_a_disk_that_fails_under_a_log_that_nobody_wants_any_more_takes_only_its_directory() -> None:
    disk = formatted("/data/a", "/data/b")

    async def story() -> LogDirectories:
        directories = await opened(disk, "/data/a", "/data/b")
        await directories.prepare([NewLog(NAME, LATTER, None)])
        disk.break_below("/data/a", errno.EIO)
        directories.drop_prepared(NAME)
        return directories

    assert list(asyncio.run(story()).offline) == ["/data/a"]


@pytest.mark.parametrize("topic", ["t", "t" * 249])
@pytest.mark.parametrize("seed", range(4))
def test_a_log_that_was_being_deleted_is_nobodys(topic: str, seed: int) -> None:
    """Without the file that says whose it is, what was left of it was taken for a new topic's of its name."""
    name, operation = TopicPartition(topic, 0), 0
    while True:
        disk = SimulatedDisk(random.Random(seed * 100 + operation))
        disk.make_directory("/data/a")
        disk.replace_file("/data/a/meta.properties", f"version=1\ndirectory.id={UUID(int=1)}\n".encode())
        for path in ("/data", "/"):
            disk.sync_directory(path)
        directories = asyncio.run(opened(disk))
        former = directories.create(name, SETTINGS)
        former.log.assign_topic_id(FORMER)
        for _ in range(12):
            append(former.log, epoch=0)
        former.log.flush()
        disk.crash_at(operation)
        try:
            directories.delete(name)
        except PowerLost:
            disk.power_on()
        else:
            break

        again = asyncio.run(opened(disk))

        found = again.find(name)
        assert found is None or (found.log.topic_id, found.log.log_end_offset) == (FORMER, 12)
        assert not [folder for folder in disk.list_directory("/data/a") if folder.endswith("-delete")]
        operation += 1
    assert operation > 4


def test_a_log_that_was_being_laid_down_begins_anew_for_a_later_topic() -> None:
    """The file that says whose it is may be lost where the one with the leader epoch that it began in is not."""
    left: dict[tuple[str, ...], None] = {}
    for seed, operation in product(range(40), range(8, 14)):
        disk = formatted()
        disk._random = random.Random(seed)
        directories = asyncio.run(opened(disk))
        disk.crash_at(operation)
        with pytest.raises(PowerLost):
            asyncio.run(directories.prepare([NewLog(NAME, FORMER, 5)]))
        disk.power_on()
        if disk.exists(f"/data/a/{NAME}"):
            left[tuple(disk.list_directory(f"/data/a/{NAME}"))] = None

        found = asyncio.run(opened(disk)).find(NAME)

        if found is not None and found.log.topic_id is None:
            found.log.assign_topic_id(LATTER)
            found.log.begin_epoch(0)
            append(found.log, epoch=0)
            again = asyncio.run(opened(disk)).find(NAME)
            assert again is not None
            assert (again.log.topic_id, again.log.epochs.entries) == (LATTER, [(0, 0)])
    assert any(EPOCHS_FILE in names and PARTITION_METADATA_FILE not in names for names in left)
