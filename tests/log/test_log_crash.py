"""Power failures at every write, sync and change of a name: nothing flushed is lost, nothing torn is served.

The recovery point given to the next start is the last one a flush reported and is *not* lowered by truncation: a
log has to survive a checkpoint that came too late.
"""

import random

import pytest

from replog.log.log import Log
from tests.log.batches import DIRECTORY, a_disk, append, content, opened, state
from tests.log.histories import Model, Operation, headers, perform
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk

SCRIPTED: list[Operation] = [
    ("append", 3, 60),
    ("produce", 1, 2, True),
    ("append", 2, 90),
    ("flush",),
    ("produce", 0, 1, False),
    ("end", 1, False),
    ("epoch",),
    ("append", 5, 80),
    ("append", 5, 80),
    ("produce", 2, 3, True),
    ("flush",),
    ("append", 4, 90),
    ("epoch",),
    ("append", 4, 90),
    ("truncate", 700),
    ("append", 3, 50),
    ("produce", 2, 1, True),
    ("roll",),
    ("append", 2, 20),
    ("truncate", 300),
    ("epoch",),
    ("append", 5, 90),
    ("append", 5, 90),
    ("end", 2, True),
    ("append", 5, 90),
    ("restart", 800),
    ("append", 2, 40),
    ("flush",),
    ("append", 3, 40),
]


class Run:
    """A history on a disk, up to its end or to the power failure."""

    def __init__(self, disk: SimulatedDisk, history: list[Operation]) -> None:
        self.disk = disk
        self.before = self.after = Model()
        self.recovery_point = 0
        self.floor = 0
        self.crashed = False
        try:
            self._run(opened(disk), history)
        except PowerLost:
            self.crashed = True
        disk.crash_at(None)

    def _run(self, log: Log, history: list[Operation]) -> None:
        for operation in history:
            self.before = self.after.copy()
            # What the operation would leave, should all of it survive; appends are learned from the log.
            self.after.perform(operation, b"")
            # Half a restart may have dropped everything: that was the operation.
            self.floor = 0 if operation[0] == "restart" else min(self.before.flushed, self.after.flushed)
            written = perform(log, operation, self.before)
            if written:
                self.after = self.before.copy()
                self.after.perform(operation, written)
            self.recovery_point = log.flushed_offset if operation[0] == "flush" else self.recovery_point


def _recovered(run: Run) -> Log:
    run.disk.power_fail()
    run.disk.power_on()
    # The log start checkpoint is written behind a restart: either side of it may be what the next start reads.
    start = run.before.start
    return opened(run.disk, recover=True, recovery_point=run.recovery_point, log_start_offset=start)


def _assert_sound(run: Run, log: Log) -> None:
    found = content(log)
    kept = [model for model in (run.before, run.after) if _is_prefix(found, log, model)]
    assert kept, f"{log.log_start_offset} to {log.log_end_offset} is no prefix of what was written"
    assert log.log_end_offset >= run.floor, "flushed batches are gone"


def _is_prefix(found: bytes, log: Log, model: Model) -> bool:
    if model.content.startswith(found):
        return True
    # The batch whose append was interrupted may have reached the disk whole: no caller got an answer.
    *_, last = headers(found)
    return found[: last.position] == model.content and last.base_offset == model.end


def _operation_count(history: list[Operation]) -> int:
    disk = a_disk()
    started = disk.operation_count
    run = Run(disk, history)
    assert not run.crashed
    return disk.operation_count - started


def _check_every_crash(history: list[Operation], seed: int, step: int = 1) -> None:
    for operation in range(seed % step, _operation_count(history), step):
        disk = a_disk(seed * 100_003 + operation)
        disk.crash_at(operation)
        run = Run(disk, history)
        assert run.crashed
        log = _recovered(run)

        _assert_sound(run, log)

        before = state(log)
        for name in disk.list_directory(DIRECTORY):
            if not name.endswith(".log"):
                disk.remove(f"{DIRECTORY}/{name}")
        scanned = opened(disk, recover=True, log_start_offset=log.log_start_offset)
        assert state(scanned) == before, f"operation {operation}"
        append(scanned, b"life goes on", epoch=50)
        assert content(scanned).endswith(b"life goes on\x00")


@pytest.mark.parametrize("seed", range(3))
def test_a_power_failure_at_any_operation_loses_nothing_flushed(seed: int) -> None:
    _check_every_crash(SCRIPTED, seed)


@pytest.mark.parametrize("seed", range(20))
def test_so_it_is_with_random_histories(seed: int) -> None:
    draw = random.Random(seed)
    kinds = ["append"] * 6 + ["produce"] * 3 + ["end"] * 2 + ["epoch", "roll", "flush", "flush", "truncate"]
    history: list[Operation] = []
    for _ in range(40):
        match draw.choice(kinds):
            case "append":
                history.append(("append", draw.randint(1, 5), draw.randint(0, 90)))
            case "produce":
                history.append(("produce", draw.randint(0, 2), draw.randint(1, 3), draw.random() < 0.5))
            case "end":
                history.append(("end", draw.randint(0, 2), draw.random() < 0.5))
            case "truncate":
                history.append(("truncate", draw.randint(200, 1100)))
            case kind:
                history.append((kind,))

    _check_every_crash(history, seed, step=5)


# What the cache holds and the disk does not.


@pytest.mark.parametrize("seed", range(20))
def test_what_a_failed_sync_left_in_the_cache_is_written_before_it_is_promised(seed: int) -> None:
    """Linux counts a page as clean that it could not write: the next process reads it, and syncs it without effect."""
    disk = a_disk(seed)
    log = opened(disk)
    append(log, b"durable")
    log.flush()
    recovery_point = log.flushed_offset
    for index in range(20):
        append(log, b"in the cache only %d" % index)
    disk.faults.sync_error_share = 1.0
    with pytest.raises(OSError, match="Input/output error"):
        log.flush()
    disk.faults.sync_error_share = 0.0

    second = opened(disk, recover=True, recovery_point=recovery_point)  # another process, the same cache
    expected = content(second)
    assert second.log_end_offset == 21
    second.flush()
    disk.power_fail()
    disk.power_on()

    third = opened(disk, recover=True, recovery_point=second.flushed_offset)
    assert third.cut is None
    assert content(third) == expected


@pytest.mark.parametrize("seed", range(40))
def test_syncs_fail_processes_end_and_the_power_goes_without_a_flushed_record_lost(seed: int) -> None:
    draw = random.Random(seed)
    disk = a_disk(seed)
    recovery_point, promised = 0, b""
    log = opened(disk)
    for _ in range(60):
        try:
            for _ in range(draw.randrange(6)):
                append(log, b"x" * draw.randrange(90))
            disk.faults.sync_error_share = 0.3
            log.flush()
            recovery_point, promised = log.flushed_offset, content(log)
        except OSError:
            disk.faults.sync_error_share = 0.0
            if draw.random() < 0.4:
                disk.power_fail()
                disk.power_on()
            log = opened(disk, recover=True, recovery_point=recovery_point)
        disk.faults.sync_error_share = 0.0
        assert content(log).startswith(promised)


@pytest.mark.parametrize("seed", range(10))
def test_a_name_that_was_never_synced_is_synced_by_the_next_incarnation(seed: int) -> None:
    """Kill -9 between the making of a log or a segment and the sync of its name, then a flush, then the power."""
    for operation in range(200):
        disk = a_disk(seed)
        disk.on_crash_point = lambda: None  # the process dies, the machine goes on
        disk.crash_at(operation)
        recovery_point = 0
        try:
            log = opened(disk)
            for _ in range(20):
                append(log, b"x" * 60)
                log.flush()
                recovery_point = log.flushed_offset
            break
        except PowerLost:
            disk.crash_at(None)
        second = opened(disk, recover=True, recovery_point=recovery_point)
        append(second, b"y")
        second.flush()
        expected = content(second)
        disk.power_fail()
        disk.power_on()
        assert content(opened(disk, recover=True, recovery_point=second.flushed_offset)) == expected
    assert 50 < operation < 199
