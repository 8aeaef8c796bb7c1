"""Damage to a log directory as a whole: segments that are gone, renamed or another's, and the small files beside the logs.

As for the bytes of single files (`test_damage.py`): what is read is what was written, or the damage is reported. Reported means here: the directory
is offline, its broker registers as one that shut down uncleanly (-1 instead of its epoch, KIP-966), the first segments are known to be
missing, or reading raises `CorruptBatch`. What a number says that is another number now nobody can see (docs/security.md).
"""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from replog.log.batch import CorruptBatch, batches
from replog.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, rendered, rendered_offsets
from replog.log.clean_shutdown import CLEAN_SHUTDOWN_FILE
from replog.log.creation import PARTITION_METADATA_FILE
from replog.log.log import Log
from replog.log.recovery import EPOCHS_FILE
from replog.log.settings import LogSettings
from replog.node.directories.log_directories import LogDirectories, NoDirectory
from replog.types import BrokerEpoch, TopicPartition
from tests.log.batches import a_disk, append
from tribunal.clusters.simulated.disk import SimulatedDisk

PATH = "data"
NAMES = (TopicPartition("t", 0), TopicPartition("u", 0))
EPOCH = BrokerEpoch(7)
LOGS = 40
QUICK = (3,)
Whole = dict[TopicPartition, dict[int, bytes]]
Damage = Callable[[SimulatedDisk, Random], None]


def settings(number: int) -> LogSettings:
    return LogSettings(
        segment_bytes=(800, 1000, 1600)[number % 3], index_interval_bytes=150, timestamp_after_ms_max=1 << 40
    )


def directories(disk: SimulatedDisk, number: int, said: list[str] | None = None) -> LogDirectories:
    lines = [] if said is None else said
    journal = SimpleNamespace(log=lambda level, text: lines.append(f"{level} {text}"), probe=lambda name: None)
    world: Any = SimpleNamespace(disk=disk, journal=journal, clock=SimpleNamespace(wall_ms=lambda: 1))
    return LogDirectories(world, [PATH], settings(number))


def written(number: int) -> tuple[SimulatedDisk, Whole, dict[TopicPartition, int]]:
    """Write two logs, delete the first records of one, close the directory in order; return what they hold and where they begin."""
    random, disk = Random(number), a_disk(number)
    disk.replace_file(f"{PATH}/meta.properties", f"version=1\ndirectory.id={UUID(int=5)}\n".encode())
    opened = directories(disk, number)
    opened.open()
    whole: Whole = {}
    for name in NAMES:
        log = opened.create(name, settings(number)).log
        log.assign_topic_id(UUID(int=name.topic == "u"))
        for _ in range(random.randint(40, 60)):
            values = [random.randbytes(random.randint(20, 120)) for _ in range(random.randint(1, 4))]
            append(log, *values, epoch=max(log.last_epoch, 0) + (random.random() < 0.2))
        opened.note_high_watermark(name, log.log_end_offset)
        whole[name] = dict(contents(log))
    first = opened.logs[NAMES[0]].log
    first.move_log_start(first.segments[1].base_offset + 1)
    first.delete_old_segments(0, first.log_end_offset)
    starts = {name: opened.logs[name].log.log_start_offset for name in NAMES}
    opened.close_in_order(EPOCH)
    assert len(first.segments) > 3
    return disk, whole, starts


def contents(log: Log) -> list[tuple[int, bytes]]:
    """Return each batch with its offset, read as consumers do."""
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=300, end_offset=log.log_end_offset, at_least_one=True)
        assert part, f"nothing at {offset} before {log.log_end_offset}"
        for header in batches(part):
            found.append((header.base_offset, bytes(part[header.position : header.end])))
            offset = header.next_offset
    return found


def served_falsely(disk: SimulatedDisk, whole: Whole, starts: dict[TopicPartition, int], number: int) -> str | None:
    """Open and read a damaged directory; return what was served that was not written, or is missing unreported."""
    opened = directories(disk, number)
    try:
        opened.open()
    except NoDirectory:
        return None
    for name in NAMES:
        stored = opened.logs.get(name)
        if stored is None:
            return f"{name} is not there, and nothing says so" if not opened.offline else None
        log = stored.log
        is_reported = opened.previous_broker_epoch != EPOCH or log.missing_from is not None
        try:
            read = contents(log)
        except CorruptBatch:
            continue
        others = [offset for offset, batch in read if whole[name].get(offset) != batch]
        if others:
            return f"{name}: other bytes at {others[0]}"
        wanted = [offset for offset in whole[name] if max(starts[name], log.log_start_offset) <= offset]
        if not is_reported and (
            log.log_start_offset > starts[name] or not set(wanted) <= {offset for offset, _ in read}
        ):
            return f"{name}: {len(read)} batches from {log.log_start_offset} on, and nothing says what is missing"
    return None


# --- kinds of damage -----------------------------------------------------------------------


def segments_of(disk: SimulatedDisk) -> list[str]:
    folder = f"{PATH}/{NAMES[0]}"
    return sorted(f"{folder}/{name[:-4]}" for name in disk.list_directory(folder) if name.endswith(".log"))


def files_of(disk: SimulatedDisk, stem: str) -> list[str]:
    return [f"{stem}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex") if disk.exists(stem + suffix)]


def missing(place: int, *, data_only: bool = False) -> Damage:
    def damage(disk: SimulatedDisk, random: Random) -> None:
        stem = segments_of(disk)[place]
        for path in [f"{stem}.log"] if data_only else files_of(disk, stem):
            disk.remove(path)

    return damage


def renamed(by: int) -> Damage:
    def damage(disk: SimulatedDisk, random: Random) -> None:
        stem = random.choice(segments_of(disk)[1:-1])
        folder, _, offset = stem.rpartition("/")
        for path in files_of(disk, stem):
            disk.rename(path, f"{folder}/{int(offset) + by:020d}{path[len(stem) :]}")

    return damage


def copied(source: int, target: int, *, swap: bool = False) -> Damage:
    """Put one segment's files under another's name; or let the two change places."""

    def damage(disk: SimulatedDisk, random: Random) -> None:
        stems = segments_of(disk)
        one, other = stems[source], stems[target]
        for suffix in (".log", ".index", ".timeindex"):
            ours, theirs = disk.read_file(one + suffix), disk.read_file(other + suffix)
            disk.replace_file(other + suffix, ours)
            if swap:
                disk.replace_file(one + suffix, theirs)

    return damage


def of_another_log(disk: SimulatedDisk, random: Random) -> None:
    ours = segments_of(disk)
    folder = f"{PATH}/{NAMES[1]}"
    theirs = sorted(f"{folder}/{name}" for name in disk.list_directory(folder) if name.endswith(".log"))
    disk.replace_file(f"{random.choice(ours[:-1])}.log", disk.read_file(theirs[-2]))


def emptied(*, indexes: bool) -> Damage:
    def damage(disk: SimulatedDisk, random: Random) -> None:
        for path in files_of(disk, random.choice(segments_of(disk)[1:-1])):
            if indexes or path.endswith(".log"):
                disk.replace_file(path, b"")

    return damage


def an_empty_one_between(disk: SimulatedDisk, random: Random) -> None:
    stem = random.choice(segments_of(disk)[:-1])
    folder, _, offset = stem.rpartition("/")
    disk.replace_file(f"{folder}/{int(offset) + 1:020d}.log", b"")


def one_beyond_the_end(disk: SimulatedDisk, random: Random) -> None:
    stem = segments_of(disk)[-1]
    folder, _, offset = stem.rpartition("/")
    disk.replace_file(f"{folder}/{int(offset) + 1000:020d}.log", disk.read_file(f"{stem}.log"))


def of_file(path: str, change: Callable[[bytes, Random], bytes | None]) -> Damage:
    def damage(disk: SimulatedDisk, random: Random) -> None:
        content = change(disk.read_file(path), random)
        disk.remove(path) if content is None else disk.replace_file(path, content)

    return damage


def later_damage(disk: SimulatedDisk, random: Random) -> None:
    """Damage a sealed segment of a directory that was closed in order: nothing is scanned then."""
    stem = random.choice(segments_of(disk)[:-1])
    content = bytearray(disk.read_file(f"{stem}.log"))
    content[random.randrange(70, len(content))] ^= 1
    disk.replace_file(f"{stem}.log", bytes(content))


def other_start(offset: int) -> Damage:
    return of_file(f"{PATH}/{LOG_STARTS}", lambda content, random: rendered([f"t 0 {offset}", "u 0 0"]))


def later_start(disk: SimulatedDisk, random: Random) -> None:
    disk.replace_file(f"{PATH}/{LOG_STARTS}", rendered([f"t 0 {int(segments_of(disk)[-1][-20:])}", "u 0 0"]))


CHANGES: dict[str, Callable[[bytes, Random], bytes | None]] = {
    "missing": lambda content, random: None,
    "garbage": lambda content, random: random.randbytes(max(16, len(content))),
    "empty": lambda content, random: b"",
    "cut in half": lambda content, random: content[: len(content) // 2],
    "zeros": lambda content, random: bytes(len(content)),
}
SMALL_FILES = {
    "recovery points": f"{PATH}/{RECOVERY_POINTS}",
    "log starts": f"{PATH}/{LOG_STARTS}",
    "high watermarks": f"{PATH}/{HIGH_WATERMARKS}",
    "clean shutdown": f"{PATH}/{CLEAN_SHUTDOWN_FILE}",
    "partition.metadata": f"{PATH}/{NAMES[0]}/{PARTITION_METADATA_FILE}",
    "leader epochs": f"{PATH}/{NAMES[0]}/{EPOCHS_FILE}",
}
DAMAGES: dict[str, Damage] = {
    "the first segment is missing": missing(0),
    "a middle segment is missing": missing(2),
    "the last segment is missing, its indexes are not": missing(-1, data_only=True),
    "only the data of a segment are missing": missing(1, data_only=True),
    "a segment is renamed to a later offset": renamed(1),
    "a segment is renamed to an earlier offset": renamed(-1),
    "a segment is there twice": copied(1, 2),
    "two segments change places": copied(1, 2, swap=True),
    "a segment is another log's": of_another_log,
    "a segment is empty": emptied(indexes=False),
    "a segment and its indexes are empty": emptied(indexes=True),
    "an empty segment stands between": an_empty_one_between,
    "a segment stands beyond the end": one_beyond_the_end,
    "damage after a clean stop": later_damage,
    "leader epochs of long ago": of_file(
        SMALL_FILES["leader epochs"], lambda content, random: rendered(content.decode().splitlines()[2:3])
    ),
    "recovery points beyond the end": of_file(
        SMALL_FILES["recovery points"], lambda content, random: rendered(["t 0 99999", "u 0 99999"])
    ),
    "a log start beyond the end": other_start(99_999),
    "a later log start": later_start,
    "a negative log start": other_start(-5),
    **{
        f"{name}: {kind}": of_file(path, change)
        for name, path in SMALL_FILES.items()
        for kind, change in CHANGES.items()
    },
}


def check(kind: str, numbers: tuple[int, ...] | range, *, recover: bool) -> None:
    found = {}
    for number in numbers:
        disk, whole, starts = written(number)
        DAMAGES[kind](disk, Random(number))
        clean = f"{PATH}/{CLEAN_SHUTDOWN_FILE}"
        if recover and disk.exists(clean):
            disk.remove(clean)
        problem = served_falsely(disk, whole, starts, number)
        if problem:
            found[number] = problem
    assert found == {}


@pytest.mark.parametrize("recover", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_directory_is_repaired_or_reported(kind: str, recover: bool) -> None:
    check(kind, QUICK, recover=recover)


@pytest.mark.nightly
@pytest.mark.parametrize("recover", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_forty_damaged_directories_are_repaired_or_reported(kind: str, recover: bool) -> None:
    check(kind, range(LOGS), recover=recover)


def test_a_directory_that_nobody_damaged_is_served_whole() -> None:
    disk, whole, starts = written(1)
    opened = directories(disk, 1)
    opened.open()
    assert opened.previous_broker_epoch == EPOCH
    for name in NAMES:
        log = opened.logs[name].log
        assert log.log_start_offset == starts[name]
        assert dict(contents(log)).items() <= whole[name].items()
        assert log.log_end_offset > starts[name]


@pytest.mark.parametrize("committed", [0, 1])
def test_a_log_that_ends_below_what_was_committed_is_reported_by_name(committed: int) -> None:
    """Cut where a batch begins it looks whole: only the checkpoint of the high watermark knows more."""
    disk, name = a_disk(1), NAMES[0]
    disk.replace_file(f"{PATH}/meta.properties", f"version=1\ndirectory.id={UUID(int=5)}\n".encode())
    before = directories(disk, 1)
    before.open()
    log = before.create(name, settings(1)).log
    log.assign_topic_id(UUID(int=1))
    append(log, b"value")
    log.flush()
    end = log.log_end_offset
    disk.replace_file(f"{PATH}/{HIGH_WATERMARKS}", rendered_offsets({name: end + committed}))

    said: list[str] = []
    directories(disk, 1, said).open()

    what = f"warning t-0: ends at {end}, and records below {end + 1} were committed"
    assert [line.partition(";")[0] for line in said] == [what] * committed
