"""Whole runs on local processes: judged right, repeatable, interruptible, and without remains."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tribunal.harness.plan import ExecutedFault
from tribunal.results.store import Recording
from tribunal.results.verdict import Verdict, load

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
ROOT = Path(__file__).resolve().parents[2]

SCENARIO = """\
scenario: small
workload: {name: produce-consume, rate: 300}
time: 14s
warm_up: 1s
steps:
  - {FAULT, for: 1.2x session}
"""


def command(folder, *arguments):
    return [
        sys.executable,
        "-m",
        "tribunal.harness.cli.main",
        *arguments,
        "--out",
        str(folder / "runs"),
        "--engine",
        "inline",
    ]


def scenario(folder, fault):
    path = folder / "small.yaml"
    path.write_text(SCENARIO.replace("FAULT", fault))
    return str(path)


def run(folder, *arguments):
    """Run to the end; return exit code and the run's folder."""
    before = set(folder.glob("runs/*"))
    done = subprocess.run(command(folder, "run", *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    (made,) = set(folder.glob("runs/*")) - before
    return done.returncode, made


def begun(folder, *arguments, until):
    """Start a run and wait until it says a word; return its process and the nodes' pids as pidfds."""
    process = subprocess.Popen(command(folder, "run", *arguments), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if until in line:
            break
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and is_node_of(path, folder)]
    return process, [os.pidfd_open(pid) for pid in pids]


def is_node_of(process, folder):
    try:
        words = (process / "cmdline").read_bytes()
    except OSError:
        return False
    return str(folder).encode() in words and b"node.toml" in words


def all_end(descriptors):
    for descriptor in descriptors:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        assert poller.poll(10_000), "a node outlived its run"
        os.close(descriptor)


def test_a_correct_build_passes_and_can_be_run_again_as_it_was(tmp_path):
    code, made = run(tmp_path, scenario(tmp_path, "kill: leader(p0)"), "--seed", "1", "--set", "time=5s")

    verdict = load(made / "verdict.json")
    assert code == 0, verdict.reasons
    assert verdict.verdict in (Verdict.PASS, Verdict.PERMITTED)
    assert all(found.rule in ("R5", "R6") for found in verdict.permitted)
    assert (made / "report.html").stat().st_size > 10_000
    schedule = made / "schedule.jsonl"
    first = [msgspec.json.decode(line, type=ExecutedFault) for line in schedule.read_bytes().splitlines()]
    faults = Recording.open(made).table("faults").to_pylist()
    assert [line.resolved for line in first] == [int(row["resolved_target"].split()[1]) for row in faults]
    assert all(row["took_effect"] and row["healed"] for row in faults)

    code, again = run(tmp_path, "--schedule", str(schedule))

    second = [
        msgspec.json.decode(line, type=ExecutedFault) for line in (again / "schedule.jsonl").read_bytes().splitlines()
    ]
    assert code == 0
    assert [(line.kind, line.resolved) for line in second] == [(line.kind, line.resolved) for line in first]


def test_a_mutant_is_a_violation_that_names_the_records(tmp_path):
    code, made = run(tmp_path, scenario(tmp_path, "isolate: leader(p0), from: nodes"), "--seed", "1", "--mutant", "M44")

    verdict = load(made / "verdict.json")
    lost = [found for found in verdict.violations if found.kind == "lost" and found.acks == -1]
    assert code == 1
    assert lost
    assert all(found.partition is not None for found in lost)
    assert all(found.log_offset is not None for found in lost)
    assert all(found.value is not None and found.acknowledged_ns is not None for found in lost)


@pytest.mark.parametrize(
    "moment", ["start", "warm-up", "kill broker", pytest.param("collect", marks=pytest.mark.nightly)]
)
def test_an_interrupted_run_leaves_a_recording_and_nothing_else(tmp_path, moment):
    process, nodes = begun(tmp_path, scenario(tmp_path, "kill: leader(p0)"), until=moment)

    with process:
        process.send_signal(signal.SIGINT)
        process.stderr.read()

    assert process.returncode == 130
    all_end(nodes)
    (made,) = tmp_path.glob("runs/*")
    recording = Recording.open(made)
    assert recording.manifest.interrupted
    if moment == "collect":
        assert recording.table("logs").num_rows > 0  # what was under way came to its end
    judged = [sys.executable, "-m", "tribunal.harness.cli.main", "check", "--engine", "inline", str(made)]
    assert subprocess.run(judged, cwd=ROOT, capture_output=True, check=False).returncode == 2


def test_a_killed_harness_leaves_a_half_recording_and_no_node(tmp_path):
    process, nodes = begun(tmp_path, scenario(tmp_path, "pause: leader(p0)"), until="pause broker")
    time.sleep(3)  # noqa: TID251 - lets a segment of the recording close

    with process:
        process.kill()
        process.stderr.read()

    assert len(nodes) == 6
    all_end(nodes)
    (made,) = tmp_path.glob("runs/*")
    assert not Recording.open(made).complete
    judged = [sys.executable, "-m", "tribunal.harness.cli.main", "check", "--engine", "inline", str(made)]
    assert subprocess.run(judged, cwd=ROOT, capture_output=True, check=False).returncode == 2
