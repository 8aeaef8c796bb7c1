"""Damaged files of a log: whatever happened to them, what is read is what was written, or the damage is reported.

Each kind of damage strikes logs of different shapes (segments, sizes, epochs, transactions), after a clean stop and after a crash. Reported means: the
log was cut (its broker registers as one that shut down uncleanly, and what is gone is fetched again), its first segments are known to be missing, or
reading raises `CorruptBatch`. Fewer records without any of these, or other bytes than were appended, is what must not be.
Two things nobody can see in a log alone (docs/security.md): that its last whole batches are gone, and a leader epoch in a header.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from random import Random

import pytest

from replog.log.batch import HEADER_BYTES, BatchHeader, CorruptBatch, batches, header_at
from replog.log.log import Log
from replog.log.settings import LogSettings
from tests.log.batches import DIRECTORY, a_disk, append, opened
from tribunal.clusters.simulated.disk import SimulatedDisk

Strike = Callable[[bytearray, Random], bytes]
LOGS = 40
QUICK = (7,)
STEP_BYTES = 300


def flipped(first: float, last: float) -> Strike:
    """Flip one bit between two parts of the file."""

    def strike(content: bytearray, random: Random) -> bytes:
        place = int(len(content) * random.uniform(first, last))
        content[min(place, len(content) - 1)] ^= 1 << random.randrange(8)
        return bytes(content)

    return strike


def in_header(first: int, last: int) -> Strike:
    """Flip a bit of a field in the header of some batch."""

    def strike(content: bytearray, random: Random) -> bytes:
        chosen = random.choice(places(content))
        content[chosen + random.randrange(first, last)] ^= 1 << random.randrange(8)
        return bytes(content)

    return strike


def places(content: bytearray) -> list[int]:
    found, position = [], 0
    while position + HEADER_BYTES <= len(content):
        found.append(position)
        position = header_at(bytes(content), position, "").end
    return found


def pieces(content: bytearray) -> list[bytes]:
    cuts = [*places(content), len(content)]
    return [bytes(content[one:other]) for one, other in pairwise(cuts)]


def zeroed(first: float, last: float) -> Strike:
    def strike(content: bytearray, random: Random) -> bytes:
        begin, end = int(len(content) * first), max(int(len(content) * last), 1)
        content[begin:end] = bytes(end - begin)
        return bytes(content)

    return strike


def without_a_batch(content: bytearray, random: Random) -> bytes:
    found = pieces(content)
    del found[random.randrange(len(found))]
    return b"".join(found)


def swapped(content: bytearray, random: Random) -> bytes:
    found = pieces(content)
    if len(found) > 1:
        place = random.randrange(len(found) - 1)
        found[place], found[place + 1] = found[place + 1], found[place]
    return b"".join(found)


def doubled(content: bytearray, random: Random) -> bytes:
    found = pieces(content)
    place = random.randrange(len(found))
    return b"".join([*found[: place + 1], *found[place:]])


def of_another_offset(content: bytearray, random: Random) -> bytes:
    found = pieces(content)
    place = random.randrange(len(found))
    found[place] = (int.from_bytes(found[place][:8], "big") + 1).to_bytes(8, "big") + found[place][8:]
    return b"".join(found)


def cut_to(part: float) -> Strike:
    return lambda content, random: bytes(content[: int(len(content) * part)])


OF_SEGMENTS: dict[str, Strike] = {
    "a bit in the first third": flipped(0, 0.33),
    "a bit in the middle": flipped(0.33, 0.66),
    "a bit in the last third": flipped(0.66, 1),
    "a bit of an offset": in_header(0, 8),
    "a bit of a length": in_header(8, 12),
    "a bit of a leader epoch": in_header(12, 16),
    "a bit of the format": in_header(16, 17),
    "a bit of a checksum": in_header(17, 21),
    "a bit of the attributes": in_header(21, 23),
    "a bit of the last offset": in_header(23, 27),
    "a bit of a timestamp": in_header(27, 43),
    "a bit of a producer": in_header(43, 57),
    "a bit of the count": in_header(57, 61),
    "zeros at the beginning": zeroed(0, 0.3),
    "zeros in the middle": zeroed(0.4, 0.6),
    "zeros at the end": zeroed(0.7, 1),
    "zeros everywhere": zeroed(0, 1),
    "cut by a byte": lambda content, random: bytes(content[:-1]),
    "cut in half": cut_to(0.5),
    "cut between batches": lambda content, random: b"".join(pieces(content)[:-1]),
    "empty": cut_to(0),
    "garbage behind the end": lambda content, random: bytes(content) + random.randbytes(90),
    "zeros behind the end": lambda content, random: bytes(content) + bytes(200),
    "a batch is missing": without_a_batch,
    "two batches change places": swapped,
    "a batch is there twice": doubled,
    "a batch has another offset": of_another_offset,
}
OF_OTHER_FILES: dict[str, Strike] = {
    "garbage": lambda content, random: random.randbytes(max(16, len(content))),
    "cut in half": cut_to(0.5),
    "empty": cut_to(0),
    "a bit": flipped(0, 1),
    "zeros": zeroed(0, 1),
}
OTHER_FILES = (".index", ".timeindex", "leader-epoch-checkpoint", ".snapshot")


def a_log(number: int) -> tuple[SimulatedDisk, dict[int, bytes]]:
    """Write a log of several segments, close it in order, and return what it holds by base offset."""
    random = Random(number)
    disk = a_disk(number)
    log = opened(disk, settings(number))
    for _ in range(random.randint(12, 40)):
        values = [random.randbytes(random.randint(1, 120)) for _ in range(random.randint(1, 4))]
        append(log, *values, epoch=max(log.last_epoch, 0) + (random.random() < 0.1))
    whole = {header.base_offset: content for header, content in contents(log)}
    log.close()
    return disk, whole


def settings(number: int) -> LogSettings:
    return LogSettings(
        segment_bytes=(800, 1000, 1600)[number % 3], index_interval_bytes=150, timestamp_after_ms_max=1 << 40
    )


def contents(log: Log) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield each batch with its bytes, read as consumers do."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=STEP_BYTES, end_offset=log.log_end_offset, at_least_one=True)
        assert part, f"nothing at {offset} before {log.log_end_offset}"
        for header in batches(part):
            yield header, bytes(part[header.position : header.end])
            assert header.next_offset > offset
            offset = header.next_offset


def served_falsely(disk: SimulatedDisk, whole: dict[int, bytes], number: int, *, recover: bool) -> str | None:
    """Open and read a damaged log; return what was served that was not written, or is missing unreported."""
    log = opened(disk, settings(number), recover=recover)
    read: dict[int, bytes] = {}
    is_reported = log.cut is not None or log.missing_from is not None
    try:
        for header, content in contents(log):
            read[header.base_offset] = content
    except CorruptBatch:
        is_reported = True
    others = [offset for offset, content in read.items() if seen(whole.get(offset, b"")) != seen(content)]
    if others:
        return f"other bytes at {others[0]}"
    is_prefix = list(read) == list(whole)[: len(read)]
    if len(read) < len(whole) and not is_reported and not is_prefix:
        return f"{len(whole) - len(read)} of {len(whole)} batches are missing, and nothing says so"
    return None


def seen(batch: bytes) -> bytes:
    """Return a batch without its leader epoch."""
    return batch[:12] + batch[16:]


def struck(disk: SimulatedDisk, random: Random, suffix: str, strike: Strike) -> bool:
    names = sorted(name for name in disk.list_directory(DIRECTORY) if name.endswith(suffix))
    if not names:
        return False
    path = f"{DIRECTORY}/{random.choice(names)}"
    content = bytearray(disk.read_file(path))
    if not content:
        return False
    disk.replace_file(path, strike(content, random))
    return True


def check(numbers: Iterable[int], suffix: str, strike: Strike, *, recover: bool) -> None:
    found = {}
    strikes = 0
    for number in numbers:
        disk, whole = a_log(number)
        strikes += struck(disk, Random(number + 1000), suffix, strike)
        problem = served_falsely(disk, whole, number, recover=recover)
        if problem:
            found[number] = problem
    assert found == {}
    assert strikes or suffix == ".snapshot"


KINDS = [(".log", name) for name in OF_SEGMENTS] + [(suffix, name) for suffix in OTHER_FILES for name in OF_OTHER_FILES]


def strike_of(suffix: str, name: str) -> Strike:
    return (OF_SEGMENTS if suffix == ".log" else OF_OTHER_FILES)[name]


@pytest.mark.parametrize("recover", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize(("suffix", "name"), KINDS)
def test_what_is_damaged_is_repaired_or_reported(suffix: str, name: str, recover: bool) -> None:
    check(QUICK, suffix, strike_of(suffix, name), recover=recover)


@pytest.mark.nightly
@pytest.mark.parametrize("recover", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize(("suffix", "name"), KINDS)
def test_what_is_damaged_is_repaired_or_reported_in_forty_logs(suffix: str, name: str, recover: bool) -> None:
    check(range(LOGS), suffix, strike_of(suffix, name), recover=recover)
