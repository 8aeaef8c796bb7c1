"""Many logs are closed together: with fewer syncs than one by one, and no start can tell the difference."""

from random import Random

import pytest

from replog.log.log import Log, close_logs
from replog.ports import NewFolder
from tests.log.batches import SMALL, a_batch, append, content, state
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk

COUNT = 7
OPERATIONS_MAX = 2000


def opened(disk: SimulatedDisk, number: int, *, recover: bool = False, recovery_point: int = 0) -> Log:
    return Log.open(
        disk,
        f"data/t-{number}",
        SMALL,
        recover=recover,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=0,
    )


def with_logs(seed: int) -> tuple[SimulatedDisk, list[Log]]:
    """An empty log, one of one batch, and others of more, with producers and segments; some lead and some follow."""
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("data")
    disk.sync_directory("")
    logs = [opened(disk, number) for number in range(COUNT)]
    for number, log in enumerate(logs):
        for turn in range(number * number):
            if number % 2:
                append(log, b"v" * 30, epoch=turn // 5, producer=(number, 0, turn))
            else:
                batch = a_batch(b"v" * 30, base_offset=turn, leader_epoch=turn // 5, producer=(number, 0, turn))
                log.append_as_follower(batch)
    assert len(logs[-1].segments) > 2
    return disk, logs


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_start_finds_what_was_closed(seed: int) -> None:
    disk, logs = with_logs(seed)
    before = [(state(log), content(log)) for log in logs]

    close_logs(logs)
    disk.power_fail()
    disk.power_on()
    again = [opened(disk, number, recovery_point=log.log_end_offset) for number, log in enumerate(logs)]

    assert [(state(log), content(log)) for log in again] == before


def test_a_log_that_was_written_to_waits_four_times_for_the_disk_and_an_empty_one_never() -> None:
    disk, logs = with_logs(0)
    names: list[str] = []
    sync = disk.sync_directory
    disk.sync_directory = lambda path: (names.append(path), sync(path))[1]  # type: ignore[method-assign]
    contents = disk.sync_count

    close_logs(logs[:1])
    assert (disk.sync_count, names) == (contents, [])

    close_logs(logs[1:2])
    assert disk.sync_count == contents + 3  # the records, the index by time, the producers
    assert names == ["data/t-1"]


@pytest.mark.parametrize("seed", range(2))
def test_a_power_failure_on_the_way_loses_nothing_that_was_flushed(seed: int) -> None:
    for operation in range(1, OPERATIONS_MAX):
        disk, logs = with_logs(seed)
        flushed = [content(log) for log in logs]
        for log in logs:
            log.flush()
        disk.crash_at(operation)
        try:
            close_logs(logs)
        except PowerLost:
            disk.power_on()
            again = [opened(disk, number, recover=True, recovery_point=0) for number in range(COUNT)]
            assert [content(log) for log in again] == flushed, operation
        else:
            assert operation > COUNT
            return
    raise AssertionError("closing never ends")


def test_files_written_together_replace_what_a_former_process_left() -> None:
    disk = SimulatedDisk(Random(0))
    disk.make_directory("data")
    disk.open("data/f.tmp", create=True).append(b"left of one that was killed")
    disk.replace_file("data/f", b"former")

    disk.write_together([NewFolder("data", {"f": b"latter", "empty": b""})])
    disk.power_fail()
    disk.power_on()

    assert disk.list_directory("data") == ["empty", "f"]
    assert (disk.read_file("data/f"), disk.read_file("data/empty")) == (b"latter", b"")
