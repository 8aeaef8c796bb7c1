"""What a follower notes of leader epochs costs no sync of its own, and every start finds it again."""

from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from replog.log.batch import CorruptBatch, batches
from replog.log.log import Log
from tests.cases.replicas import NODE, WALL_MS, a_log, a_replica, apply_metadata, record_batch, state
from tests.log.batches import DIRECTORY, SMALL, a_batch, a_disk, content, opened
from tribunal.clusters.simulated.disk import SimulatedDisk

STEPS = 60
EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"


def followed(log: Log, epoch: int) -> None:
    log.append_as_follower(a_batch(b"v" * 40, base_offset=log.log_end_offset, leader_epoch=epoch))


def of_batches(log: Log) -> list[tuple[int, int]]:
    """Return the epochs that the stored batches name, with their first offsets."""
    starts: dict[int, int] = {}
    for header in batches(content(log)):
        starts.setdefault(header.leader_epoch, header.base_offset)
    return list(starts.items())


def copied(disk: SimulatedDisk, random: Random) -> tuple[Log, int]:
    """Lead once, follow leaders through many epochs and segments, with flushes; return the log and what was flushed last."""
    log, epoch = opened(disk), 0
    log.begin_epoch(epoch)
    for _ in range(STEPS):
        epoch += random.random() < 0.2
        followed(log, epoch)
        if random.random() < 0.1:
            log.flush()
    assert len(log.segments) > 2
    assert epoch > 2
    return log, log.flushed_offset


def test_the_first_batch_of_an_epoch_waits_for_no_disk() -> None:
    disk = a_disk()
    log = opened(disk)
    waits: list[str] = []
    sync, replace = disk.sync_directory, disk.replace_file
    disk.sync_directory = lambda path: (waits.append(path), sync(path))[1]  # type: ignore[method-assign]
    disk.replace_file = lambda path, what: (waits.append(path), replace(path, what))[1]  # type: ignore[method-assign]

    for epoch in (3, 5):
        followed(log, epoch)

    assert waits == []
    assert log.epochs.entries == [(3, 0), (5, 1)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ends_by", ["kill", "power"])
def test_an_unclean_start_finds_the_epochs_of_all_batches_that_are_left(ends_by: str, seed: int) -> None:
    disk = a_disk(seed)
    log, flushed_offset = copied(disk, Random(seed))
    ended_at = log.log_end_offset

    if ends_by == "power":
        disk.power_fail()
        disk.power_on()
    again = opened(disk, recover=True, recovery_point=flushed_offset)

    assert flushed_offset <= again.log_end_offset <= ended_at
    assert ends_by == "power" or again.log_end_offset == ended_at
    assert again.epochs.entries == of_batches(again)


@pytest.mark.parametrize("seed", range(5))
def test_a_start_after_a_stop_in_order_reads_them_from_the_checkpoint(seed: int) -> None:
    disk = a_disk(seed)
    log, _ = copied(disk, Random(seed))
    log.close()
    at_stop = disk.read_file(EPOCHS)

    again = opened(disk, recovery_point=log.flushed_offset)

    assert again.epochs.entries == of_batches(again)
    assert disk.read_file(EPOCHS) == at_stop == again.epochs.to_checkpoint()


def test_who_leads_next_saves_what_it_followed_with_its_own_epoch() -> None:
    disk = a_disk()
    log = opened(disk, SMALL)
    followed(log, 3)

    log.begin_epoch(4)

    assert disk.read_file(EPOCHS) == b"0\n2\n3 0\n4 1\n"


def test_leaders_of_many_partitions_note_their_epochs_together_and_durably() -> None:
    disk = a_disk()
    logs = [opened(disk), opened(disk, directory="data/t-1"), opened(disk, directory="data/t-2")]
    followed(logs[0], 3)
    logs[2].begin_epoch(4)
    contents = disk.sync_count

    Log.begin_epochs([(log, 4) for log in logs])
    for log in logs:
        log.begin_epoch(4)  # as each takes its role: there is nothing left to be written

    assert disk.sync_count == contents + 2  # the third knew
    disk.power_fail()
    disk.power_on()
    saved = [disk.read_file(f"{log.directory}/leader-epoch-checkpoint") for log in logs]
    assert saved == [b"0\n2\n3 0\n4 1\n", b"0\n1\n4 0\n", b"0\n1\n4 0\n"]


@pytest.mark.parametrize("together", [False, True])
def test_what_a_leader_saved_is_not_written_again_when_it_stops_and_what_it_follows_later_is(together: bool) -> None:
    disk = a_disk()
    logs = [opened(disk), opened(disk, directory="data/t-1")]
    for log in logs:
        followed(log, 3)
        assert "leader-epoch-checkpoint" in log.files_at_close()

    if together:
        Log.begin_epochs([(log, 4) for log in logs])
    else:
        for log in logs:
            log.begin_epoch(4)

    assert ["leader-epoch-checkpoint" in log.files_at_close() for log in logs] == [False, False]
    followed(logs[0], 5)
    assert ["leader-epoch-checkpoint" in log.files_at_close() for log in logs] == [True, False]


@pytest.mark.parametrize(
    ("leader_epoch", "is_taken"), [pytest.param(5, True, id="its own"), pytest.param(9, False, id="a later one")]
)
def test_a_batch_of_a_later_epoch_than_its_leader_has_is_damaged(
    tmp_path: Path, leader_epoch: int, is_taken: bool
) -> None:
    """KAFKA-18723: no checksum covers it, and whoever noted it could never lead again."""
    follower = a_replica(a_log(tmp_path, end=3, epochs=[[4, 0]]))
    apply_metadata(follower, state(leader=2, leader_epoch=5))
    batch = record_batch(3, leader_epoch)

    with nullcontext() if is_taken else pytest.raises(CorruptBatch, match="epoch 9"):
        follower.on_fetched(batch, high_watermark=0, log_start_offset=0, wall_ms=WALL_MS)
    apply_metadata(follower, state(leader=NODE, leader_epoch=6, partition_epoch=1))

    assert follower.log.log_end_offset == 3 + is_taken
    assert follower.leadership is not None
