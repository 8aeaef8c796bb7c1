"""Damaged batches are found by reading segments again, and put back byte by byte from another replica's log."""

from random import Random

import msgspec
import pytest

from replog.log.batch import CorruptBatch, batches
from replog.log.log import Log
from replog.log.scrubbing import Scrub
from replog.log.segment import Segment
from tests.log.batches import SMALL, a_disk, append, opened
from tests.log.test_damage import OF_SEGMENTS, Strike
from tribunal.clusters.simulated.disk import SimulatedDisk

IN_ONE = msgspec.structs.replace(SMALL, segment_bytes=1 << 20)


def replicas() -> tuple[SimulatedDisk, Log, Log]:
    """Return two logs that hold the same, and the first one's disk."""
    disk = a_disk()
    ours, theirs = opened(disk), opened(a_disk())
    for number in range(60):
        appended = append(ours, b"%04d" % number * 20, epoch=number // 25)
        theirs.append_as_follower(
            ours.read(appended.base_offset, max_bytes=1, end_offset=1 << 40, at_least_one=True), now_ms=0
        )
    for log in (ours, theirs):
        log.flush()
    assert len(ours.segments) > 4
    return disk, ours, theirs


def active_replicas() -> tuple[SimulatedDisk, Log, Log]:
    """Return two logs of one segment each that hold the same, and the first one's disk."""
    disk = a_disk()
    ours, theirs = opened(disk, IN_ONE), opened(a_disk(), IN_ONE)
    for log in (ours, theirs):
        for number in range(60):
            append(log, b"%04d" % number * 20, epoch=number // 25)
        assert len(log.segments) == 1
    return disk, ours, theirs


def struck(disk: SimulatedDisk, segment: Segment, strike: Strike, random: Random) -> bytes:
    """Damage a segment's file behind the log's back; return what it held."""
    before = disk.read_file(segment.file.path)
    damaged = strike(bytearray(before), random)
    segment.file.truncate(len(damaged))
    segment.file.write_at(0, damaged)
    return before


def scrubbed(scrub: Scrub, other: Log, max_bytes: int = 400) -> int:
    """Look through a segment, and put back what another log has; return how many batches."""
    count = 0
    while True:
        try:
            if not scrub.step(128):
                return count
        except CorruptBatch:
            content = other.read(scrub.offset, max_bytes=max_bytes, end_offset=1 << 40, at_least_one=True)
            count += scrub.put_back(content)


@pytest.mark.parametrize("kind", OF_SEGMENTS)
def test_every_damage_of_a_closed_segment_is_found_and_put_back(kind: str) -> None:
    disk, ours, theirs = replicas()
    for seed in range(5):
        random = Random(f"{kind} {seed}")
        segment = random.choice(ours.segments[:-1])
        before = struck(disk, segment, OF_SEGMENTS[kind], random)

        count = scrubbed(Scrub(ours, segment), theirs)

        assert disk.read_file(segment.file.path)[: segment.size] == before
        assert count or disk.read_file(segment.file.path)[: len(before)] == before
        segment.file.truncate(len(before))


@pytest.mark.parametrize("kind", OF_SEGMENTS)
def test_every_damage_to_what_is_committed_of_the_active_segment_is_found_and_put_back(kind: str) -> None:
    disk, ours, theirs = active_replicas()
    (segment,) = ours.segments
    for seed in range(5):
        committed = segment.position_of(40)
        before = disk.read_file(segment.file.path)
        damaged = OF_SEGMENTS[kind](bytearray(before[:committed]), Random(f"{kind} {seed}"))
        behind = before[len(damaged) :]  # what is appended stands where it stood
        segment.file.write_at(0, damaged[: len(before)] + behind)
        scrub = Scrub(ours, segment, 40)

        scrubbed(scrub, theirs)

        assert disk.read_file(segment.file.path)[:committed] == before[:committed]
        assert scrub.offset == 40
        segment.file.write_at(0, before)


def test_what_is_not_committed_of_the_active_segment_is_neither_looked_at_nor_written_over() -> None:
    """Of what is behind the high watermark a later leader may have something else."""
    disk, ours, theirs = active_replicas()
    (segment,) = ours.segments
    for offset in (39, 40):
        segment.file.write_at(segment.position_of(offset) + 65, b"!")
    damaged = disk.read_file(segment.file.path)
    scrub = Scrub(ours, segment, 40)

    count = scrubbed(scrub, theirs, max_bytes=1 << 20)

    assert count == 1
    assert (scrub.position, scrub.offset) == (segment.position_of(40), 40)
    assert disk.read_file(segment.file.path)[scrub.position :] == damaged[scrub.position :]


def test_the_active_segment_is_looked_through_on_while_it_grows_and_when_it_is_sealed() -> None:
    _, ours, theirs = active_replicas()
    (segment,) = ours.segments
    segment.file.write_at(segment.position_of(30) + 65, b"!")
    scrub = Scrub(ours, segment, 40)
    assert scrub.step(128)
    append(ours, b"more", epoch=2)
    ours.roll(0)
    assert scrub.is_current

    assert scrubbed(scrub, theirs) == 1

    ours.truncate_to(35)
    assert not scrub.is_current


def test_damage_in_the_cold_part_of_the_active_segment_is_seen_by_reads() -> None:
    """What was just appended is not checked at each read: it lies in memory as it was written."""
    _, ours, _ = active_replicas()
    (segment,) = ours.segments
    segment.file.write_at(segment.position_of(20) + 65, b"!")
    ours.count_as_cold()
    append(ours, b"new", epoch=2)
    assert ours.read(20, max_bytes=1, end_offset=61, at_least_one=True)

    ours.count_as_cold()

    assert ours.read(60, max_bytes=1, end_offset=61, at_least_one=True)
    with pytest.raises(CorruptBatch, match="checksum"):
        ours.read(20, max_bytes=1, end_offset=61, at_least_one=True)


def test_a_sound_log_is_read_to_its_end_and_left_alone() -> None:
    _, ours, theirs = replicas()
    for segment in ours.segments[:-1]:
        scrub = Scrub(ours, segment)
        assert scrubbed(scrub, theirs) == 0
        assert (scrub.position, scrub.offset) == (segment.size, segment.next_offset)


def test_what_lies_behind_a_damage_that_nobody_can_repair_is_looked_at_all_the_same() -> None:
    _, ours, _ = replicas()
    segment = ours.segments[1]
    segment.file.write_at(0, bytes(70))
    last = list(batches(segment.file.read_at(0, segment.size), position=segment.index_entries[-1][1]))[-1]
    segment.file.write_at(last.position + 65, b"!")
    scrub, found = Scrub(ours, segment), []
    while True:
        try:
            if not scrub.step():
                break
        except CorruptBatch:
            found.append(scrub.position)
            if not scrub.skip():
                break

    assert found == [0, last.position]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda content: content[:70] + b"!" + content[71:], "checksum", id="damaged as well"),
        pytest.param(lambda content: content[:15] + b"\x09" + content[16:], "leader epoch", id="of another leader"),
        pytest.param(lambda content: bytes(7) + b"\x01" + content[8:], "base offset", id="of another offset"),
    ],
)
def test_what_is_not_the_batch_that_stood_here_is_not_taken(change: object, reason: str) -> None:
    _, ours, theirs = replicas()
    segment = ours.segments[2]
    segment.file.write_at(70, b"!")
    scrub = Scrub(ours, segment)
    with pytest.raises(CorruptBatch, match="checksum"):
        scrub.step()
    content = theirs.read(scrub.offset, max_bytes=1, end_offset=1 << 40, at_least_one=True)
    assert callable(change)

    with pytest.raises(CorruptBatch, match=reason):
        scrub.put_back(change(content))

    assert scrub.put_back(content) == 1


def test_a_compacted_log_takes_only_what_is_proven_to_have_been_its_own() -> None:
    """Another replica, compacted further or less, may have something else there."""
    _, ours, theirs = replicas()
    ours.expect_gaps()
    segment = ours.segments[1]
    first = next(segment.headers())
    content = theirs.read(segment.base_offset, max_bytes=1, end_offset=1 << 40, at_least_one=True)

    segment.file.write_at(first.end - 1, b"!")  # its checksum is left
    assert Scrub(ours, segment).put_back(content) == 1
    segment.file.write_at(17, b"!!!!")  # all but its checksum is left
    assert Scrub(ours, segment).put_back(content) == 1
    segment.file.write_at(17, bytes(first.size - 17))
    with pytest.raises(CorruptBatch, match="may not be"):
        Scrub(ours, segment).put_back(content)


def test_a_segment_that_was_cut_or_deleted_meanwhile_is_left_alone() -> None:
    _, ours, _ = replicas()
    cut, deleted = Scrub(ours, ours.segments[3]), Scrub(ours, ours.segments[0])
    assert cut.is_current
    ours.move_log_start(ours.segments[1].base_offset)
    ours.delete_old_segments(0, ours.log_end_offset)
    assert not deleted.is_current
    assert cut.is_current

    ours.truncate_to(ours.segments[2].next_offset - 1)

    assert not cut.is_current
