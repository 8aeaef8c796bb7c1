"""Folders of a process go with it; what a killed one left is found, and what is in use is left alone."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.harness.cli.main import exit_code
from tribunal.results import scratch
from tribunal.results.scratch import Scratch, remove_abandoned

HOLDER = """
import os, sys, time
from tribunal.results.scratch import Scratch
folder = Scratch("held")
(folder.path / "run").write_bytes(bytes(1000))
if sys.argv[1] == "forks" and os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print(folder.path, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def holder(how="alone"):
    """Start a process that holds a folder; return both."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, how],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, Path(process.stdout.readline().strip())


def test_it_goes_with_its_owner(tmp_path):
    with Scratch("mine") as folder:
        (folder / "run").write_bytes(b"x")
        assert remove_abandoned() == []

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path):
    process, folder = holder()
    with process:
        assert remove_abandoned() == []
        process.send_signal(signal.SIGKILL)
        process.wait()

        assert remove_abandoned() == [folder]
    assert list(tmp_path.iterdir()) == []


def test_what_a_child_of_a_killed_process_still_uses_is_left_alone(tmp_path):
    process, folder = holder("forks")
    with process:
        process.send_signal(signal.SIGKILL)
        process.wait()

        assert remove_abandoned() == []
        process.stdin.close()  # the child's too
        assert process.stdout.read() == ""  # it has ended

    assert remove_abandoned() == [folder]


def test_folders_of_others_are_left_alone(tmp_path):
    (tmp_path / "tribunal-notes").mkdir()
    (tmp_path / "tribunal-file").write_bytes(b"x")

    assert remove_abandoned() == []
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("ended", [pytest.param(True, id="killed"), pytest.param(False, id="under way")])
def test_who_takes_memory_frees_what_a_killed_process_holds_of_it_and_nothing_else(ended):
    process, folder = holder()
    with process:
        if ended:
            process.send_signal(signal.SIGKILL)
            process.wait()

        with Scratch("next", in_memory=True):
            assert folder.exists() is not ended
        process.kill()


def test_heal_says_what_it_removed(tmp_path, capsys):
    process, folder = holder()
    with process:
        process.send_signal(signal.SIGKILL)

    assert exit_code(["heal", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{folder}: removed; the process that used it was killed\n"


def test_what_is_written_into_it_while_it_goes_is_removed_later(tmp_path, monkeypatch):
    rmtree = scratch.shutil.rmtree

    def beside(entry, **options):
        rmtree(entry, **options)
        (entry.parent / "late").write_bytes(b"written by somebody who is about to end")

    with Scratch("mine") as folder:
        (folder / "run").mkdir()
        monkeypatch.setattr(scratch.shutil, "rmtree", beside)
    monkeypatch.undo()
    monkeypatch.setattr(scratch, "MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    assert [one.name for one in folder.iterdir() if one.name != scratch.LOCK] == ["late"]

    assert remove_abandoned() == [folder]
    assert list(tmp_path.iterdir()) == []
