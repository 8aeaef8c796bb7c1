"""Power failures in the middle of compaction, retention and deletion, and of whole directories starting and stopping.

The disk is checked at every write, sync and change of a name of a recorded run; what survives of what was not synced is
drawn anew each time.
"""

import random

import pytest

from replog.log.batch import NewRecord, batches, build, records
from replog.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from replog.log.clean_shutdown import LogDirectory, shutdown, startup, write_checkpoints
from replog.log.cleaner import Cleaner
from replog.log.log import Log
from replog.log.recovery import CLEANER_FILE
from replog.log.settings import LogSettings
from replog.types import BrokerEpoch, TopicPartition
from tests.log.batches import DIRECTORY, a_disk, append, content, opened, state
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk

SETTINGS = LogSettings(
    segment_bytes=400,
    index_interval_bytes=150,
    compacts=True,
    retention_bytes=2500,
    tombstone_retention_ms=20,
    cleanable_share_min=0.0,
    timestamp_after_ms_max=1 << 40,
)


class Run:
    """Puts, compactions, retention and deletions on one log, until the power fails."""

    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.written: list[tuple[bytes, bytes | None]] = []  # by offset
        self.flushed = self.recovery_point = self.log_start = self.asked_start = 0
        self.now_ms = 0
        self.crashed = False
        try:
            self._run(opened(disk, SETTINGS), random.Random(seed))
        except PowerLost:
            self.crashed = True
        disk.crash_at(None)

    def _run(self, log: Log, draw: random.Random) -> None:
        for _ in range(40):
            self.now_ms += 5
            kind = draw.choice(["put", "put", "put", "flush", "clean", "clean", "retain", "delete", "epoch"])
            if kind == "put":
                self._put(log, draw)
            elif kind == "flush":
                log.flush()
                self.flushed = self.recovery_point = log.flushed_offset
            elif kind == "clean":
                Cleaner(log, high_watermark=log.log_end_offset, now_ms=self.now_ms).run()
            elif kind == "retain":
                self.asked_start = log.log_end_offset
                log.delete_old_segments(self.now_ms, log.log_end_offset)
                self.asked_start = log.log_start_offset
            elif kind == "delete":
                self.asked_start = max(self.asked_start, draw.randint(log.log_start_offset, log.log_end_offset))
                log.move_log_start(self.asked_start)
            else:
                log.begin_epoch(log.last_epoch + 1)
            self.log_start = log.log_start_offset

    def _put(self, log: Log, draw: random.Random) -> None:
        count = draw.randint(1, 3)
        entries = [
            (b"k%d" % draw.randrange(4), None if draw.random() < 0.15 else b"%d" % draw.randrange(10**20))
            for _ in range(count)
        ]
        self.written += entries
        batch = build([NewRecord(key, value) for key, value in entries], timestamp_ms=self.now_ms)
        log.append_as_leader(batch, leader_epoch=max(log.last_epoch, 0), now_ms=self.now_ms)


def _check(run: Run, disk: SimulatedDisk, operation: int) -> None:
    log = opened(disk, SETTINGS, recover=True, recovery_point=run.recovery_point, log_start_offset=run.log_start)

    assert log.log_end_offset >= run.flushed or log.log_start_offset >= run.flushed, operation
    assert log.log_start_offset <= max(run.asked_start, run.log_start)
    found = {r.offset: (r.key, r.value) for h in batches(content(log)) for r in records(content(log), h)}
    assert all(run.written[offset] == entry for offset, entry in found.items()), "a record that was never written"
    last: dict[bytes, int] = {}
    for offset, (key, _) in enumerate(run.written[: log.log_end_offset]):
        last[key] = offset
    for key, offset in last.items():
        if offset >= log.log_start_offset and run.written[offset][1] is not None:
            assert offset in found, f"{key!r} at {offset} is gone, operation {operation}"

    before = state(log)
    for name in disk.list_directory(DIRECTORY):
        if not name.endswith((".log", CLEANER_FILE)):
            disk.remove(f"{DIRECTORY}/{name}")
    scanned = opened(disk, SETTINGS, recover=True, log_start_offset=log.log_start_offset)
    after = state(scanned)
    assert {**after, "epochs": None} == {**before, "epochs": None}, operation
    # What was compacted away may have begun an epoch: only what is there counts. And the log start may be checkpointed
    # later than the epochs that went with it; then the first records have none, as in Kafka.
    for header in batches(content(log)):
        assert log.epochs.epoch_for_offset(header.last_offset) in (header.leader_epoch, -1)


@pytest.mark.parametrize("seed", range(12))
def test_upkeep_is_interrupted_anywhere(seed: int) -> None:
    operation = seed % 4
    while True:
        disk = a_disk(seed * 7919 + operation)
        disk.crash_at(operation)
        run = Run(disk, seed)
        if not run.crashed:
            break
        disk.power_on()
        _check(run, disk, operation)
        operation += 4
    assert operation > 100


# --- directories ----------------------------------------------------------------------------------------------

PATHS = ("a", "b")
NAMES = [TopicPartition("t", number) for number in range(4)]


class Broker:
    """What a broker does with two directories of two logs, process after process, until the power fails."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.flushed = dict.fromkeys(NAMES, b"")
        self.epochs = [-1]
        self.crashed = False
        try:
            for epoch in range(3):
                self._live(epoch)
        except PowerLost:
            self.crashed = True
        disk.crash_at(None)

    def _live(self, epoch: int) -> None:
        directories = opened_directories(self.disk)[1]
        for turn in range(2):
            for directory in directories:
                for name, log in directory.logs.items():
                    append(log, b"%d %d %d" % (epoch, turn, name.partition) * 8, epoch=epoch)
                    log.flush()
                    self.flushed[name] = content(log)
            for directory in directories:
                write_checkpoints(self.disk, directory)
        self.epochs.append(epoch)
        assert shutdown(self.disk, directories, BrokerEpoch(epoch)) == {}


def opened_directories(disk: SimulatedDisk) -> tuple[int, list[LogDirectory]]:
    """Open as a broker does: previous broker epoch, directories; a clean directory is believed unread."""
    for path in PATHS:
        disk.make_directory(path)
    disk.sync_directory("")
    left = startup(disk, PATHS)
    found = []
    for number, path in enumerate(PATHS):
        points, starts = (read_offsets(disk, f"{path}/{file}") for file in (RECOVERY_POINTS, LOG_STARTS))
        high_watermarks = read_offsets(disk, f"{path}/{HIGH_WATERMARKS}")
        logs = {
            name: Log.open(
                disk,
                f"{path}/{name}",
                LogSettings(segment_bytes=300, index_interval_bytes=150, timestamp_after_ms_max=1 << 40),
                recover=left.needs_recovery[path],
                recovery_point=points.get(name, 0),
                log_start_offset=starts.get(name, 0),
                now_ms=0,
            )
            for name in NAMES[number * 2 : number * 2 + 2]
        }
        found.append(LogDirectory(path, logs, {name: high_watermarks.get(name, 0) for name in logs}))
    return left.previous_broker_epoch, found


def test_directories_are_interrupted_anywhere_in_three_processes() -> None:
    operation = clean = 0
    while True:
        disk = SimulatedDisk(random.Random(operation))
        disk.crash_at(operation)
        broker = Broker(disk)
        if not broker.crashed:
            break
        disk.power_on()

        previous_epoch, directories = opened_directories(disk)

        # Only a process that was closed to its end may be called clean; the one under way when the power failed never is.
        assert previous_epoch in (-1, broker.epochs[-1]), operation
        clean += previous_epoch >= 0
        for directory in directories:
            for name, log in directory.logs.items():
                assert content(log).startswith(broker.flushed[name]), f"{name} at operation {operation}"
                believed = state(log)
                log.close_files()
                for file in disk.list_directory(log.directory):
                    if not file.endswith(".log"):
                        disk.remove(f"{log.directory}/{file}")
                scanned = Log.open(
                    disk, log.directory, log.settings, recover=True, recovery_point=0, log_start_offset=0, now_ms=0
                )
                assert state(scanned) == believed, f"{name} at operation {operation}"
        operation += 3
    assert operation > 200
    assert clean > 1
