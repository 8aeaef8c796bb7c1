"""Family clean_shutdown: what a broker leaves on its disks and reads at its next start (SPEC 3.11)."""

from random import Random
from typing import Any

import pytest

from replog.log.batch import NewRecord, build
from replog.log.checkpoints import RECOVERY_POINTS
from replog.log.clean_shutdown import CLEAN_SHUTDOWN_FILE, LogDirectory, shutdown, startup
from replog.log.log import Log
from replog.log.settings import LogSettings
from replog.types import BrokerEpoch, TopicPartition
from tests.cases.cases import load, only
from tribunal.clusters.simulated.disk import SimulatedDisk

PARTITION = TopicPartition("t", 0)
WORDS = {".log": "flush logs", RECOVERY_POINTS: "write recovery points", CLEAN_SHUTDOWN_FILE: "write file"}


class WatchedDisk(SimulatedDisk):
    """A simulated disk that notes in which order things become durable."""

    def __init__(self) -> None:
        super().__init__(Random(0))
        self.order: list[str] = []

    def replace_file(self, path: str, content: bytes) -> None:
        super().replace_file(path, content)
        self._note(path)

    def _note(self, path: str) -> None:
        self.order += [word for suffix, word in WORDS.items() if path.endswith(suffix)]


@pytest.mark.parametrize("case", load("clean_shutdown"))
def test_clean_shutdown(case: dict[str, Any]) -> None:
    given = only(case["given"], {"dirs", "broker_epoch", "wiped"}, "given")
    when = only(case["when"], {"event", "order"}, "when")
    then = only(case["then"], {"previous_epoch", "log_recovery", "file_deleted", "file", "fsynced"}, "then")

    after = EVENTS[when["event"]](given)

    assert {key: after[key] for key in then} == then
    if "order" in when:
        assert after["order"] == when["order"]


def _start(given: dict[str, Any]) -> dict[str, Any]:
    disk, paths = _disk(given["dirs"])
    if given.get("wiped"):
        disk.wipe(paths[0])
    return _started(disk, paths)


def _started(disk: WatchedDisk, paths: list[str]) -> dict[str, Any]:
    found = startup(disk, paths)
    disk.power_fail()
    disk.power_on()
    return {
        "previous_epoch": found.previous_broker_epoch,
        "log_recovery": any(found.needs_recovery.values()),
        "file_deleted": not any(disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}") for path in paths),
    }


def _start_then_kill_then_start(given: dict[str, Any]) -> dict[str, Any]:
    disk, paths = _disk(given["dirs"])
    _started(disk, paths)
    return _started(disk, paths)


def _shutdown(given: dict[str, Any]) -> dict[str, Any]:
    disk, paths = _disk([None for _ in given["dirs"]])
    logs = [_log(disk, path) for path in paths]
    directories = [LogDirectory(path, {PARTITION: log}, {PARTITION: 0}) for path, log in zip(paths, logs, strict=True)]
    synced = disk.sync_count
    failures = shutdown(disk, directories, BrokerEpoch(given["broker_epoch"]))
    assert not failures
    assert disk.sync_count > synced
    flushed = ["flush logs"] if all(log.flushed_offset == log.log_end_offset == 1 for log in logs) else []
    disk.power_fail()  # whatever is there now was durable
    disk.power_on()
    content = _file(disk, paths)
    return {"file": content, "fsynced": content is not None, "order": flushed + disk.order}


def _kill(given: dict[str, Any]) -> dict[str, Any]:
    disk, paths = _disk([None for _ in given["dirs"]])
    for path in paths:
        _log(disk, path)
    return {"file": _file(disk, paths)}


def _log(disk: WatchedDisk, path: str) -> Log:
    log = Log.open(disk, f"{path}/t-0", LogSettings(), recover=True, recovery_point=0, log_start_offset=0, now_ms=0)
    log.append_as_leader(build([NewRecord(None, b"")], timestamp_ms=0), leader_epoch=0, now_ms=0)
    return log


def _disk(contents: list[str | None]) -> tuple[WatchedDisk, list[str]]:
    """Return a disk with a log directory for each content of the file (None: no file)."""
    disk = WatchedDisk()
    paths = [f"data/d{index}" for index in range(len(contents))]
    disk.make_directory("data")
    for path, content in zip(paths, contents, strict=True):
        disk.make_directory(path)
        if content is not None:
            disk.replace_file(f"{path}/{CLEAN_SHUTDOWN_FILE}", content.encode())
    disk.sync_directory("data")
    disk.sync_directory("")
    disk.order.clear()
    return disk, paths


def _file(disk: WatchedDisk, paths: list[str]) -> str | None:
    contents = {
        disk.read_file(f"{path}/{CLEAN_SHUTDOWN_FILE}").decode()
        for path in paths
        if disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}")
    }
    return contents.pop() if contents else None


EVENTS = {
    "start": _start,
    "start_then_kill_then_start": _start_then_kill_then_start,
    "shutdown": _shutdown,
    "kill": _kill,
}
