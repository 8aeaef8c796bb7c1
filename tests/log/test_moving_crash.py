"""The power fails at every disk operation of a move between directories (KIP-113): what was durable stays, in one log."""

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from replog.log.batch import batches
from replog.log.settings import LogSettings
from replog.node.directories.log_directories import LogDirectories
from replog.types import TopicPartition
from tests.log.batches import append, content
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk

PATHS = ["/data/a", "/data/b"]
NAME = TopicPartition("t", 0)
SETTINGS = LogSettings(segment_bytes=300, index_interval_bytes=100)
TOPIC_ID = UUID(int=7)
FIRST, MORE, LAST = 12, 3, 4  # batches before the move, while it is under way, after it


def directories_of(disk: SimulatedDisk) -> LogDirectories:
    journal = SimpleNamespace(log=lambda level, text: None, probe=lambda name: None)
    world: Any = SimpleNamespace(disk=disk, journal=journal, clock=SimpleNamespace(wall_ms=lambda: 1))
    directories = LogDirectories(world, PATHS, SETTINGS)
    directories.open()
    return directories


def formatted(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(seed))
    for number, path in enumerate(PATHS):
        disk.make_directory(path)
        disk.replace_file(f"{path}/meta.properties", f"version=1\ndirectory.id={UUID(int=number + 1)}\n".encode())
    disk.sync_directory("/data")
    disk.sync_directory("/")
    return disk


class Story:
    """A log that is written, moved, written; how many batches had become durable when the power failed."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.durable = 0
        self.directories = directories_of(disk)
        self.stored = self.directories.create(NAME, SETTINGS)
        self.stored.log.assign_topic_id(TOPIC_ID)
        self.stored.log.begin_epoch(3)
        self._append(FIRST)

    def _append(self, count: int) -> None:
        for _ in range(count):
            append(self.stored.log, epoch=3)
        self.stored.log.flush()
        self.durable = self.stored.log.log_end_offset

    def move(self, path: str) -> None:
        copy = self.directories.begin_copy(NAME, path)
        while not copy.is_complete:
            copy.add(copy.next_batches(), 1)
            if self.durable < FIRST + MORE:
                self._append(MORE)
        self.directories.take_copy(NAME, copy)
        self._append(LAST)


def test_a_log_that_was_moved_is_the_log() -> None:
    disk = formatted(0)
    story = Story(disk)
    former = story.stored.log
    story.move("/data/b")
    moved = story.stored.log

    assert moved is not former
    assert (moved.directory, moved.topic_id, moved.last_epoch) == ("/data/b/t-0", TOPIC_ID, 3)
    assert moved.log_end_offset == FIRST + MORE + LAST
    assert "t-0-delete" in disk.list_directory("/data/a")
    assert "t-0" not in disk.list_directory("/data/a")


def test_the_power_may_fail_at_any_operation_of_a_move() -> None:
    probe = formatted(0)
    story = Story(probe)
    begin = probe.operation_count
    story.move("/data/b")
    count = probe.operation_count - begin
    homes: dict[str, int] = dict.fromkeys(PATHS, 0)
    unfinished = 0
    for operation in range(count):
        disk = formatted(operation)
        story = Story(disk)
        disk.crash_at(disk.operation_count + operation)
        try:
            story.move("/data/b")
        except PowerLost:
            disk.power_on()
        disk.crash_at(None)

        directories = directories_of(disk)
        stored = directories.logs[NAME]
        assert stored.log.log_end_offset >= story.durable, operation
        assert sum(1 for _ in batches(content(stored.log))) >= story.durable
        assert stored.log.topic_id == TOPIC_ID
        assert stored.log.last_epoch == 3
        homes[stored.directory] += 1
        unfinished += NAME in directories.unfinished
        again = directories_of(disk)  # and nothing is left that a second start would take for the log
        assert (again.logs[NAME].directory, again.unfinished) == (stored.directory, {})

    assert min(homes.values()) > 5
    assert unfinished > 5
