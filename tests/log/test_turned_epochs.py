"""A leader epoch is the one field of a batch that no checksum covers: an unclean start finds a damaged one by the batches around it."""

import pytest

from replog.log.recovery import EPOCHS_FILE
from replog.log.settings import LogSettings
from tests.log.batches import DIRECTORY, SMALL, a_disk, append, opened
from tribunal.clusters.simulated.disk import SimulatedDisk

EPOCH_AT = 12  # of a batch: four bytes
SIGN, HIGH_BIT, LOW_BIT = 8 * EPOCH_AT + 7, 8 * EPOCH_AT + 6, 8 * (EPOCH_AT + 3)
ONE_A_SEGMENT = LogSettings(segment_bytes=80, index_interval_bytes=150, timestamp_after_ms_max=1 << 40)


def a_log_of(disk: SimulatedDisk, *epochs: int, settings: LogSettings = SMALL) -> None:
    """Write a batch in each of these epochs; the process ends without closing its log."""
    log = opened(disk, settings)
    for number, epoch in enumerate(epochs):
        append(log, b"%04d" % number, epoch=epoch)
    log.flush()


def turn(disk: SimulatedDisk, offset: int, bit: int, settings: LogSettings = SMALL) -> None:
    """Turn a bit of the batch at an offset, where no checksum sees it."""
    segment = next(one for one in opened(disk, settings).segments if one.base_offset <= offset < one.next_offset)
    disk.flip_bit(segment.file.path, 8 * segment.position_of(offset) + bit)


@pytest.mark.parametrize("settings", [SMALL, ONE_A_SEGMENT], ids=["one segment", "a segment each"])
@pytest.mark.parametrize(("bit", "epochs"), [(HIGH_BIT, [(1, 0), (2, 2)]), (SIGN, [(1, 0), (2, 2)])])
def test_a_log_ends_before_a_batch_whose_epoch_its_neighbours_contradict(
    settings: LogSettings, bit: int, epochs: list[tuple[int, int]]
) -> None:
    disk = a_disk()
    a_log_of(disk, 1, 1, 2, 2, 2, settings=settings)
    turn(disk, 3, bit, settings)

    log = opened(disk, settings, recover=True)

    assert log.cut is not None
    assert log.cut.offset == log.log_end_offset == 3
    assert log.epochs.entries == epochs
    assert opened(disk, settings, recover=True).cut is None


def test_a_batch_is_whole_where_the_one_behind_it_fell_back_to_a_former_epoch() -> None:
    """The checkpoint knows that epoch 1 begins there: the other batch is the damaged one."""
    disk = a_disk()
    a_log_of(disk, 0, 0, 1, 1, 1)
    turn(disk, 3, LOW_BIT)

    log = opened(disk, recover=True)

    assert log.cut is not None
    assert log.log_end_offset == 3
    assert log.epochs.entries == [(0, 0), (1, 2)]


def test_epochs_that_rise_without_a_checkpoint_cut_nothing() -> None:
    """A follower's checkpoint lags behind its batches: that it knows less contradicts nothing."""
    disk = a_disk()
    a_log_of(disk, 0, 1, 1, 7)
    disk.remove(f"{DIRECTORY}/{EPOCHS_FILE}")

    log = opened(disk, recover=True)

    assert log.cut is None
    assert log.epochs.entries == [(0, 0), (1, 1), (7, 3)]


def test_a_raised_epoch_at_the_end_is_not_found() -> None:
    """Nothing is behind it that could contradict it: it might be the first batch of a new leader."""
    disk = a_disk()
    a_log_of(disk, 0, 0)
    turn(disk, 1, HIGH_BIT)

    assert opened(disk, recover=True).cut is None
