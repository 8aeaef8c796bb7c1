"""The file that says a log directory was closed in order, and by which incarnation of the broker (KIP-966, SPEC 3.11).

`.kafka_cleanshutdown` holds `{"version":0,"brokerEpoch":E}`. It exists only between a clean stop and the next
start: a start reads it and removes it, durably, before it opens a log (KAFKA-10471), so that a crash while
loading counts as unclean. Its presence spares the directory the recovery of its logs; its epoch, if all
directories agree, reports to the controller which incarnation ended cleanly.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from replog.config.setting import LONG_MAX
from replog.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, rendered_offsets
from replog.log.log import Log, close_logs
from replog.ports import Disk
from replog.types import NO_BROKER_EPOCH, BrokerEpoch, TopicPartition

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
VERSION: Final = 0


class Startup(msgspec.Struct, frozen=True):
    """What the last stop left.

    previous_broker_epoch:  for the registration; -1 unless every directory was closed by the same incarnation.
    needs_recovery:         by directory, whether its logs have to be scanned.
    failures:               directories that cannot be used; they are in none of the others.
    """

    previous_broker_epoch: BrokerEpoch
    needs_recovery: dict[str, bool]
    failures: dict[str, OSError]


class LogDirectory(msgspec.Struct, frozen=True):
    """One log directory with all its open logs, and all their high watermarks (KAFKA-7235)."""

    path: str
    logs: Mapping[TopicPartition, Log]
    high_watermarks: Mapping[TopicPartition, int]


def startup(disk: Disk, directories: Sequence[str]) -> Startup:
    """Read and remove the clean-shutdown files; to be called before any log is opened."""
    epochs: list[BrokerEpoch] = []
    needs_recovery: dict[str, bool] = {}
    failures: dict[str, OSError] = {}
    for directory in directories:
        path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
        try:
            was_unclean = not disk.exists(path)
            epochs.append(NO_BROKER_EPOCH if was_unclean else broker_epoch(disk.read_file(path)))
            if not was_unclean:
                disk.remove(path)
                disk.sync_directory(directory)
        except OSError as problem:
            failures[directory] = problem
            epochs.append(NO_BROKER_EPOCH)  # what lay there is missing: nobody may take this for a clean start
        else:
            needs_recovery[directory] = was_unclean
    agreed = epochs[0] if len(set(epochs)) == 1 else NO_BROKER_EPOCH
    return Startup(agreed, needs_recovery, failures)


def shutdown(disk: Disk, directories: Iterable[LogDirectory], epoch: BrokerEpoch) -> dict[str, OSError]:
    """Close the logs, write the checkpoints, and then the clean-shutdown file of each directory.

    directories:  only those whose logs were all opened: one that was not may need recovery still (KAFKA-15375).
    epoch:        the one of this incarnation's registration, -1 if it never registered.
    returns:      the directories that failed; they get no file and will be recovered.
    """
    failures: dict[str, OSError] = {}
    for directory in directories:
        try:
            close_logs(list(directory.logs.values()))
            write_checkpoints(disk, directory)
            content = json.dumps({"version": VERSION, "brokerEpoch": epoch}, separators=(",", ":"))
            disk.replace_file(f"{directory.path}/{CLEAN_SHUTDOWN_FILE}", content.encode())
        except OSError as problem:
            failures[directory.path] = problem
    return failures


def write_checkpoints(disk: Disk, directory: LogDirectory) -> None:
    """Write recovery points, log starts and high watermarks of all logs of a directory."""
    for name, content in checkpoints_of(directory).items():
        disk.replace_file(f"{directory.path}/{name}", content)


def checkpoints_of(directory: LogDirectory) -> dict[str, bytes]:
    """Return what a directory's checkpoints have to say now, by file name, in the order in which they are written."""
    assert directory.logs.keys() == directory.high_watermarks.keys()
    return {**recovery_checkpoints_of(directory), HIGH_WATERMARKS: rendered_offsets(directory.high_watermarks)}


def recovery_checkpoints_of(directory: LogDirectory) -> dict[str, bytes]:
    """Return the checkpoints of how far logs are durable and where they begin."""
    recovery_points = {partition: log.flushed_offset for partition, log in directory.logs.items()}
    log_starts = {partition: log.log_start_offset for partition, log in directory.logs.items()}
    return {RECOVERY_POINTS: rendered_offsets(recovery_points), LOG_STARTS: rendered_offsets(log_starts)}


def broker_epoch(content: bytes) -> BrokerEpoch:
    """Return the epoch a clean-shutdown file names; -1 for what older releases wrote and for garbage."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return NO_BROKER_EPOCH
    if not isinstance(fields, dict) or fields.get("version") != VERSION or type(fields.get("brokerEpoch")) is not int:
        return NO_BROKER_EPOCH
    epoch = fields["brokerEpoch"]
    return BrokerEpoch(epoch) if 0 <= epoch <= LONG_MAX else NO_BROKER_EPOCH
