"""Checkpoints are written beside the event loop, and what is older never takes the place of what is newer."""

import asyncio
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from replog.host.world import RealDisk
from replog.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from replog.log.settings import LogSettings
from replog.node.directories.checkpoint_files import CheckpointFiles
from replog.node.directories.log_directories import LogDirectories
from replog.types import TopicPartition
from tests.log.batches import append
from tribunal.clusters.simulated.disk import SimulatedDisk

PATH = "/data/a"
NAME, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
SETTINGS = LogSettings()
Write = Callable[[OSError | None], None]


class HeldDisk(SimulatedDisk):
    """Writes in the background are durable, and put in place, only when the test says so."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.held: list[Write] = []

    def replace_in_background(
        self, files: Mapping[str, bytes], *, is_wanted: Callable[[str], bool], done: Write
    ) -> None:
        def go_on(problem: OSError | None) -> None:
            if problem is not None:
                done(problem)
            else:
                SimulatedDisk.replace_in_background(self, files, is_wanted=is_wanted, done=done)

        self.held.append(go_on)

    def release(self, problem: OSError | None = None) -> None:
        """Let the oldest of them be done."""
        self.held.pop(0)(problem)


def formatted() -> HeldDisk:
    disk = HeldDisk()
    disk.make_directory(PATH)
    disk.replace_file(f"{PATH}/meta.properties", f"version=1\ndirectory.id={UUID(int=1)}\n".encode())
    return disk


def opened(disk: SimulatedDisk) -> LogDirectories:
    journal = SimpleNamespace(log=lambda level, text: None, probe=lambda name: None)
    world: Any = SimpleNamespace(disk=disk, journal=journal, clock=SimpleNamespace(wall_ms=lambda: 1))
    directories = LogDirectories(world, [PATH], SETTINGS)
    directories.open()
    return directories


def filled(directories: LogDirectories, name: TopicPartition, topic_id: int, count: int) -> None:
    stored = directories.create(name, SETTINGS)
    stored.log.assign_topic_id(UUID(int=topic_id))
    for _ in range(count):
        append(stored.log, epoch=0)
    stored.log.flush()
    directories.note_high_watermark(name, count)


def stated(disk: SimulatedDisk, file: str) -> dict[TopicPartition, int]:
    return read_offsets(disk, f"{PATH}/{file}")


@pytest.mark.parametrize("begin", ["high watermarks", "all"])
def test_a_write_that_is_late_says_nothing_of_a_new_log_of_a_former_ones_name(begin: str) -> None:
    disk = formatted()
    directories = opened(disk)
    filled(directories, NAME, 7, 12)
    filled(directories, OTHER, 9, 3)

    if begin == "all":
        asyncio.run(directories.flush())
    else:
        directories.begin_high_watermarks()
    directories.delete(NAME)
    if begin == "high watermarks":  # as the periodic flush does: it takes the former log out
        asyncio.run(directories.flush())
    filled(directories, NAME, 8, 2)
    while disk.held:
        disk.release()

    found = opened(disk).logs[NAME]
    assert stated(disk, HIGH_WATERMARKS) == {OTHER: 3}
    assert NAME not in stated(disk, RECOVERY_POINTS)
    assert (found.high_watermark, found.log.log_end_offset) == (0, 2)


def test_a_former_log_is_taken_out_again_while_the_write_without_it_is_not_durable() -> None:
    disk = formatted()
    directories = opened(disk)
    filled(directories, NAME, 7, 12)
    filled(directories, OTHER, 9, 3)
    asyncio.run(directories.flush())
    disk.release()
    directories.delete(NAME)
    asyncio.run(directories.flush())  # under way, and not done when the power fails

    filled(directories, NAME, 8, 2)
    disk.held.clear()

    assert opened(disk).logs[NAME].high_watermark == 0


def test_what_goes_while_a_write_is_under_way_is_not_forgotten_with_what_was_gone_before() -> None:
    disk = formatted()
    directories = opened(disk)
    filled(directories, NAME, 7, 12)
    filled(directories, OTHER, 9, 3)
    asyncio.run(directories.flush())
    directories.delete(NAME)
    disk.release()

    filled(directories, NAME, 8, 2)

    assert opened(disk).logs[NAME].high_watermark == 0
    assert stated(disk, HIGH_WATERMARKS) == {OTHER: 3}


def test_a_recovery_point_that_a_cut_has_lowered_is_not_raised_by_an_older_write() -> None:
    disk = formatted()
    directories = opened(disk)
    filled(directories, NAME, 7, 12)
    asyncio.run(directories.flush())

    directories.logs[NAME].log.truncate_to(5)
    directories.write_recovery_points()
    disk.release()

    assert (stated(disk, RECOVERY_POINTS)[NAME], stated(disk, LOG_STARTS)[NAME]) == (5, 0)
    assert stated(disk, HIGH_WATERMARKS) == {NAME: 12}  # its neighbour in the same write is as new as before


def test_one_write_at_a_time_and_the_newest_content_is_the_last() -> None:
    disk, done = formatted(), list[str]()
    files = CheckpointFiles(disk, lambda path, problem: None)

    for number in range(4):
        files.begin(PATH, {"f": b"%d" % number}, lambda number=number: done.append(f"f{number}"))
    files.begin(PATH, {"g": b"g"}, lambda: done.append("g"))

    assert (len(disk.held), done) == (1, [])
    disk.release()
    assert (disk.read_file(f"{PATH}/f"), done) == (b"0", ["f0"])
    disk.release()
    assert (disk.read_file(f"{PATH}/f"), disk.read_file(f"{PATH}/g")) == (b"3", b"g")
    assert done == ["f0", "f1", "f2", "f3", "g"]
    assert not disk.held


def test_what_waits_gives_way_to_what_is_written_at_once() -> None:
    disk, done = formatted(), list[str]()
    files = CheckpointFiles(disk, lambda path, problem: None)
    files.begin(PATH, {"f": b"first", "g": b"first"}, lambda: done.append("first"))
    files.begin(PATH, {"f": b"second", "h": b"second"}, lambda: done.append("second"))

    files.write(PATH, {"f": b"third"})
    disk.release()
    disk.release()

    assert [disk.read_file(f"{PATH}/{name}") for name in "fgh"] == [b"third", b"first", b"second"]
    assert done == ["first", "second"]


def test_a_write_that_fails_takes_its_directory_offline_and_nothing_follows_it() -> None:
    disk = formatted()
    directories = opened(disk)
    filled(directories, NAME, 7, 12)
    asyncio.run(directories.flush())
    directories.note_high_watermark(NAME, 11)
    directories.begin_high_watermarks()

    disk.release(OSError(5, "Input/output error"))

    assert "Input/output error" in directories.offline[PATH]
    assert not disk.held
    assert stated(disk, HIGH_WATERMARKS) == {}


def test_a_log_that_was_closed_in_order_is_described_by_what_was_written_then() -> None:
    disk = formatted()
    directories = opened(disk)
    filled(directories, NAME, 7, 12)
    directories.begin_high_watermarks()
    directories.note_high_watermark(NAME, 10)

    directories.close_in_order(1)  # type: ignore[arg-type]
    disk.release()

    assert stated(disk, HIGH_WATERMARKS) == {NAME: 10}


class ThreadsOfSyncs(RealDisk):
    """A real disk that notes who waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def _write_durably(self, path: str, content: bytes) -> None:
        self.threads.add(threading.get_ident())
        super()._write_durably(path, content)

    def sync_directory(self, path: str) -> None:
        self.threads.add(threading.get_ident())
        super().sync_directory(path)


def test_the_event_loop_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    async def scenario(disk: ThreadsOfSyncs) -> None:
        files = CheckpointFiles(disk, lambda path, problem: None)
        is_done = asyncio.Event()
        files.begin(str(tmp_path), {"f": b"background", "g": b"background"}, is_done.set)
        files.write(str(tmp_path), {"g": b"at once"})
        disk.threads.clear()
        await is_done.wait()
        assert threading.get_ident() not in disk.threads

    disk = ThreadsOfSyncs()
    asyncio.run(scenario(disk))
    disk.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "g"]
    assert [(tmp_path / name).read_bytes() for name in "fg"] == [b"background", b"at once"]
