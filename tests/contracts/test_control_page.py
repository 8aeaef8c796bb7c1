"""A page steers a node's clock and disk, and the node notes what it saw."""

import time

import pytest

from replog.host.sabotage.control_page import ControlPage, SteeredClock, Wanted
from replog.host.sabotage.undo_disk import UndoDisk


@pytest.fixture
def pages(tmp_path):
    harness, node = ControlPage(str(tmp_path / "page")), ControlPage(str(tmp_path / "page"))
    yield harness, node
    harness.close()
    node.close()


def test_wall_time_jumps_and_comes_back(pages):
    harness, node = pages
    clock = SteeredClock(node)

    harness.ask(Wanted(number=1, offset_ms=-60_000))
    jumped_ms = clock.wall_ms() - time.time_ns() // 1_000_000
    harness.ask(Wanted(number=2))
    right_ms = clock.wall_ms() - time.time_ns() // 1_000_000

    assert -60_050 < jumped_ms < -59_950
    assert -50 < right_ms < 50
    assert harness.seen().number == 2


def test_monotonic_time_drifts_and_never_goes_back(pages):
    harness, node = pages
    clock = SteeredClock(node)
    harness.ask(Wanted(number=1, drift_ppm=1_000_000))
    before = clock.now_ns(), time.monotonic_ns()
    readings = [clock.now_ns() for _ in range(2_000)]
    after = clock.now_ns(), time.monotonic_ns()

    harness.ask(Wanted(number=2, drift_ppm=-900_000))
    readings += [clock.now_ns() for _ in range(2_000)]

    assert readings == sorted(readings)
    assert (after[0] - before[0]) / (after[1] - before[1]) == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(("writes", "reason"), [(1, "No space left"), (2, "Read-only file system")])
def test_writes_are_refused_and_taken_again(pages, tmp_path, writes, reason):
    harness, node = pages
    disk = UndoDisk(str(tmp_path / "undo"), node)
    file = disk.open(str(tmp_path / "log"), create=True)

    harness.ask(Wanted(number=1, writes=writes))
    with pytest.raises(OSError, match=reason):
        file.append(b"x")
    with pytest.raises(OSError, match=reason):
        disk.replace_file(str(tmp_path / "checkpoint"), b"x")
    harness.ask(Wanted(number=2))
    file.append(b"y")

    assert harness.seen().refused_count == 2
    assert file.read_at(0, 9) == b"y"
    file.close()
    disk.close()


def test_fsyncs_take_their_time(pages, tmp_path):
    harness, node = pages
    disk = UndoDisk(str(tmp_path / "undo"), node)
    file = disk.open(str(tmp_path / "log"), create=True)
    harness.ask(Wanted(number=1, fsync_delay_ms=30))

    began = time.monotonic()
    file.sync()

    assert time.monotonic() - began >= 0.03
    assert harness.seen().delayed_count == 1
    file.close()
    disk.close()
