"""Shared memory that a killed node leaves: a run's own is found by its journal and removed, nobody else's."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tribunal.clusters.nodes.leftovers import mark, note_started
from tribunal.clusters.nodes.shared_memory import TABLE, left_segments, note_segments, remove_segments

pytestmark = pytest.mark.skipif(not TABLE.exists(), reason="no table of System V shared memory")
# Makes a segment of its own, says its id, and waits.
MAKER = "import ctypes, sys; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600), flush=True); sys.stdin.read()"
REMOVE = 0


@contextmanager
def a_maker(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a process that has made a segment; remove what it leaves."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as maker:
        assert maker.stdout is not None
        segment = int(maker.stdout.readline())
        try:
            yield maker, segment
        finally:
            maker.kill()
            ctypes.CDLL(None).shmctl(segment, REMOVE, None)


def test_a_segment_outlives_its_maker_until_the_run_s_clean_up(tmp_path: Path) -> None:
    with a_maker(os.environ | mark(tmp_path)) as (maker, segment):
        note_started(tmp_path, maker.pid)
        note_segments(tmp_path)
        note_segments(tmp_path)
        maker.kill()
        maker.wait()

        left, done = left_segments(tmp_path), remove_segments(tmp_path)

    assert left == [f"shared memory {segment}"]
    assert done == [f"shared memory {segment} removed"]
    assert left_segments(tmp_path) == []


def test_a_segment_that_an_ending_process_still_has_is_waited_for(tmp_path: Path) -> None:
    """A server's child that had no command line any more had it attached when the run removed its segments, and let go of it when that was over."""
    attached = "import ctypes, sys, time; ctypes.CDLL(None).shmat(int(sys.argv[1]), None, 0); print(flush=True); time.sleep(0.5)"
    with a_maker(os.environ | mark(tmp_path)) as (maker, segment):
        note_started(tmp_path, maker.pid)
        note_segments(tmp_path)
        with subprocess.Popen([sys.executable, "-c", attached, str(segment)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            maker.kill()
            maker.wait()

            done = remove_segments(tmp_path)

    assert done == [f"shared memory {segment} removed"]


def test_what_somebody_else_has_made_is_left_alone(tmp_path: Path) -> None:
    """A process that the run has not started, and one of the run whose segment was not noted while it lived: its id may be another's by now."""
    with a_maker(dict(os.environ)) as (_, _), a_maker(os.environ | mark(tmp_path)) as (unnoted, _):
        note_segments(tmp_path)
        note_started(tmp_path, unnoted.pid)
        unnoted.kill()
        unnoted.wait()
        note_segments(tmp_path)

        assert left_segments(tmp_path) == []
