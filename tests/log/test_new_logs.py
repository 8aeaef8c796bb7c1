"""A log that was laid down in the background opens without waiting for the disk: of many that is what their creation takes."""

import asyncio

import pytest

from replog.node.directories.log_directories import LogDirectories, NewLog, StoredLog
from tests.log.batches import append
from tests.log.test_topic_again import LATTER, NAME, SETTINGS, formatted, opened
from tribunal.clusters.simulated.disk import SimulatedDisk


def created(disk: SimulatedDisk, directories: LogDirectories, leader_epoch: int | None) -> tuple[StoredLog, list[str]]:
    """Create a prepared log; return it with what was waited for meanwhile."""
    waits: list[str] = []
    asyncio.run(directories.prepare([NewLog(NAME, LATTER, leader_epoch)]))
    sync, replace = disk.sync_directory, disk.replace_file
    disk.sync_directory = lambda path: (waits.append(path), sync(path))[1]  # type: ignore[method-assign]
    disk.replace_file = lambda path, content: (waits.append(path), replace(path, content))[1]  # type: ignore[method-assign]
    stored = directories.create(NAME, SETTINGS)
    if leader_epoch is not None:
        stored.log.begin_epoch(leader_epoch)
    del disk.sync_directory, disk.replace_file
    return stored, waits


@pytest.mark.parametrize("leader_epoch", [pytest.param(3, id="leads"), pytest.param(None, id="follows")])
def test_what_was_laid_down_opens_without_a_sync(leader_epoch: int | None) -> None:
    disk = formatted()
    directories = asyncio.run(opened(disk))

    stored, waits = created(disk, directories, leader_epoch)

    assert waits == []
    assert (stored.log.topic_id, stored.log.log_end_offset) == (LATTER, 0)
    assert list(stored.log.epochs) == ([] if leader_epoch is None else [(leader_epoch, 0)])


def test_a_later_epoch_than_it_was_laid_down_with_is_written() -> None:
    disk = formatted()
    stored, _ = created(disk, asyncio.run(opened(disk)), 3)

    stored.log.begin_epoch(4)

    assert b"4 0" in disk.read_file(f"/data/a/{NAME}/leader-epoch-checkpoint")


def test_it_survives_a_power_failure_with_its_topic_and_what_was_flushed() -> None:
    disk = formatted()
    stored, _ = created(disk, asyncio.run(opened(disk)), 0)
    append(stored.log, epoch=0)
    stored.log.flush()

    disk.power_fail()
    disk.power_on()
    log = asyncio.run(opened(disk)).logs[NAME].log

    assert (log.topic_id, log.log_end_offset, log.last_epoch) == (LATTER, 1, 0)
