"""A night that is killed, at whatever moment and by whatever signal, tells the truth: never green, never silent."""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import pytest

from tribunal.results.scratch import remove_abandoned

ROOT = Path(__file__).parents[2]
NIGHT = """nightly: killed
findings: findings
canaries: {mutants: [M01], share: 20}
sweeps: {last-replica-standing: 1}
calibrate: {share: 10, classes: [hole]}
confirm: {runs: [{scenario: produce-consume, cluster: processes}]}
"""
COMMAND = [sys.executable, "-m", "tribunal.harness.cli.main", "nightly"]
ANSWERS = {signal.SIGINT: 130, signal.SIGTERM: 130, signal.SIGKILL: -signal.SIGKILL}


def options(out, *more):
    return ["nightly.yaml", "--out", str(out), "--budget", "20s", "--engine", "inline", "--first-seed", "5", *more]


def killed_after(folder, *, after_s, number, until=None, begun=None):
    """Begin a night, wait for a moment (from when a file is there on), end it; return the exit code."""
    process = subprocess.Popen(
        [*COMMAND, *options("out")], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )  # fmt: skip
    while begun is not None and not begun.is_file() and process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    deadline = time.monotonic() + after_s
    while time.monotonic() < deadline and not (until is not None and until()):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            break
    os.kill(process.pid, number)
    code = process.wait(120)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # seeds under way that a killed parent has left
    return code


def is_truthful(out):
    """Check each file of a night that was ended early; return its data, None when it had not begun."""
    if not (out / "nightly.json").is_file():
        assert not (out / "summary.md").exists() or "did not end" in (out / "summary.md").read_text().splitlines()[0]
        return None
    summary = (out / "summary.md").read_text()
    assert "did not end" in summary.splitlines()[0]
    assert "This night did not end" in summary
    root = ElementTree.parse(out / "junit.xml").getroot()
    bad = [case for case in root.iter("testcase") if case.find("error") is not None]
    assert any("did not end" in case.find("error").get("message") for case in bad)
    if (out / "index.html").is_file():
        assert "did not end" in (out / "index.html").read_text()
    night = json.loads((out / "nightly.json").read_bytes())
    assert night["state"] in ("running", "interrupted", "failed")
    return night


def laid_out(folder):
    folder.mkdir()
    (folder / "findings").mkdir()
    (folder / "nightly.yaml").write_text(NIGHT)
    return folder


def test_a_killed_night_has_said_that_it_did_not_end_and_the_next_command_says_it_too(tmp_path):
    folder = laid_out(tmp_path / "night")
    begun = folder / "out" / "index.html"

    code = killed_after(folder, after_s=60, number=signal.SIGKILL, until=begun.is_file)

    assert code == -signal.SIGKILL
    night = is_truthful(folder / "out")
    assert night["under_way"] in ("past findings", "canaries", "sweeps")
    (folder / "short.yaml").write_text("nightly: killed\nfindings: findings\n")
    again = subprocess.run(
        [*COMMAND, "short.yaml", *options("out")[1:]], cwd=folder, capture_output=True, text=True, check=False
    )
    assert again.returncode == 2, "there are no past findings: nothing was run"
    assert f"did not end: killed at {night['under_way']}" in again.stderr
    assert "not enough seeds" in (folder / "out" / "summary.md").read_text().splitlines()[0]


def small_files():
    """Let no file grow beyond 8 KB, which a night's index page does: as where a disk is full, a write fails in its midst."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, 8_192))


def test_a_night_that_cannot_write_any_more_has_said_that_it_did_not_end(tmp_path):
    folder = laid_out(tmp_path / "night")

    ended = subprocess.run(
        [*COMMAND, *options("out")], cwd=folder, capture_output=True, text=True, check=False, preexec_fn=small_files
    )  # fmt: skip

    assert ended.returncode == 3
    assert ended.stderr.startswith("tribunal: out or /")
    assert ended.stderr.endswith(": File too large; the night did not end\n")
    assert is_truthful(folder / "out")["state"] == "failed"


EARLY = 2  # of ten: before the command was loaded; on a busy machine that alone takes ten seconds


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_nights_killed_at_ten_random_moments_are_truthful_ten_times(tmp_path):
    drawn = random.Random(int(os.environ.get("KILLED_NIGHT_SEED", "25")))
    for turn in range(10):
        folder = laid_out(tmp_path / str(turn))
        number = drawn.choice(list(ANSWERS))
        begun = None if turn < EARLY else folder / "out" / "nightly.json"

        code = killed_after(folder, after_s=drawn.uniform(0, 30), number=number, begun=begun)

        night = is_truthful(folder / "out")
        print(
            turn, number.name, code, None if night is None else (night["state"], night["under_way"], night["seconds"])
        )
        # Before the command was loaded there was no night that could say anything: the exit code does.
        assert code in (ANSWERS[number], -number if night is None else ANSWERS[number])
        assert night is not None or begun is None
        if night is not None and night["state"] == "running":
            resumed = subprocess.run(
                [*COMMAND, *options("out", "--resume")], cwd=folder, capture_output=True, text=True, check=False
            )
            after = json.loads((folder / "out" / "nightly.json").read_bytes())
            assert resumed.returncode in (0, 2, 3), resumed.stderr
            assert (after["state"], after["began"]) == ("ended", night["began"])
            assert after["seconds"] >= night["seconds"]


FINDING = "answered-before-it-was-committed.json"
SHORT = """nightly: killed
findings: findings
canaries: {mutants: [M01], share: 20}
sweeps: {last-replica-standing: 1}
calibrate: {share: 10, classes: [hole]}
"""
# Sends a signal to the night from within, when it does something for the nth time after so many of its parts have begun:
# no moment is missed by a few milliseconds, however fast or slow the machine is.
STRUCK = """
import os, sys
after, event, name, nth, number = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
night, parts, count = os.getpid(), 0, 0

def watch(seen, args):
    global parts, count
    if seen not in (event, "os.rename") or os.getpid() != night:
        return
    what = str(args[0]) if args else ""
    if seen == event and parts == after and what.endswith(name):
        count += 1
        if count == nth:
            os.kill(night, number)
    if seen == "os.rename" and what.endswith("index.html.tmp"):
        parts += 1

sys.addaudithook(watch)
sys.argv = ["tribunal", "nightly", *sys.argv[6:]]
from tribunal.harness.cli.main import main
main()
"""
PARTS = ("past findings", "canaries", "every scenario", "search", "sweeps", "sensitivity", "real nodes", "tables")


class Moment(NamedTuple):
    """What a night does in its part of this number when it is struck; of which signal."""

    part: int
    event: str
    name: str
    nth: int
    number: signal.Signals


MOMENTS = {
    "a past finding is under way": Moment(1, "os.fork", "", 1, signal.SIGKILL),
    "past findings are done and about to be written down": Moment(1, "open", "summary.md.tmp", 1, signal.SIGTERM),
    "a canary is under way": Moment(2, "os.fork", "", 1, signal.SIGINT),
    "canaries are done, and JUnit is written": Moment(2, "open", "junit.xml.tmp", 1, signal.SIGKILL),
    "the index is written": Moment(3, "open", "index.html.tmp", 1, signal.SIGTERM),
    "the sweep begins": Moment(5, "os.fork", "", 1, signal.SIGTERM),
    "some runs of the sweep are done and others under way": Moment(5, "os.fork", "", 3, signal.SIGKILL),
    "a recording is measured": Moment(6, "os.mkdir", "last-replica-standing-5", 1, signal.SIGINT),
    "all but nightly.json says that a part is done": Moment(7, "os.rename", "nightly.json.tmp", 1, signal.SIGKILL),
    "its last account is written": Moment(8, "os.rename", "junit.xml.tmp", 1, signal.SIGTERM),
}
IN_THE_GATE = ("some runs of the sweep are done and others under way",)


@pytest.mark.timeout(900)  # a night of its own, and a busy machine may give it a tenth of a core
@pytest.mark.parametrize(
    "moment", [pytest.param(one, id=name, marks=() if name in IN_THE_GATE else pytest.mark.nightly) for name, one in MOMENTS.items()]
)  # fmt: skip
def test_a_night_that_was_struck_once_it_wrote_says_so_in_every_file(tmp_path, moment):
    folder = laid_out(tmp_path / "night")
    (folder / "nightly.yaml").write_text(SHORT)
    shutil.copy(ROOT / "tests" / "findings" / FINDING, folder / "findings")
    where = [str(moment.part), moment.event, moment.name, str(moment.nth), str(int(moment.number))]
    budget = "60s" if moment.part <= PARTS.index("sweeps") + 1 else "6s"  # on a busy machine past findings take six
    short = [
        "nightly.yaml",
        "--out",
        "out",
        "--budget",
        budget,
        "--jobs",
        "1",
        "--engine",
        "inline",
        "--first-seed",
        "5",
    ]

    with subprocess.Popen(
        [sys.executable, "-c", STRUCK, *where, *short],
        cwd=folder, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    ) as ended:  # fmt: skip
        try:
            ended.wait(800)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ended.pid, signal.SIGKILL)  # seeds under way that a killed parent has left
        said = ended.communicate()[1]
    remove_abandoned()

    assert ended.returncode == ANSWERS[moment.number], said
    assert (folder / "out" / "index.html").is_file()
    night = is_truthful(folder / "out")
    assert night is not None
    assert night["state"] == ("running" if moment.number is signal.SIGKILL else "interrupted")
    assert night["done"] in (list(PARTS[: moment.part - 1]), list(PARTS[: moment.part]))
