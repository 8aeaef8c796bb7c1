"""Ctrl-C while Spark starts or judges ends quietly: without a traceback of py4j's, and without a Java that stays behind."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tribunal.checkers.spark.session import no_interrupt


@pytest.mark.parametrize(
    ("problem", "logged"),
    [
        pytest.param(KeyboardInterrupt(), False, id="Ctrl-C"),
        pytest.param(OSError("the gateway is gone"), True, id="an error of the connection"),
    ],
)
def test_an_interrupt_is_not_logged_and_an_error_is(problem, logged, caplog):
    root = logging.getLogger()
    root.addFilter(no_interrupt)

    try:
        raise problem
    except (KeyboardInterrupt, OSError):
        logging.exception("while sending command")
    finally:
        root.removeFilter(no_interrupt)

    assert bool(caplog.records) is logged


START = "from tribunal.checkers.spark.session import session\nwith session('local[1]'):\n    print('started')"


def javas(mark):
    """The processes that a test's program has started, Java among them, by a word in their environment."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().lower()
            # The script that starts it is there for a moment only, or for none that anybody sees.
            if mark in (entry / "environ").read_bytes() and (b"spark-submit" in command or b"sparksubmit" in command):
                found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()[0]
    return {pid for pid, state in found.items() if state != "Z"}


def test_an_interrupt_while_java_starts_leaves_none_behind(tmp_path):
    mark = f"STARTED_BY={tmp_path}".encode()
    with subprocess.Popen(
        [sys.executable, "-c", START], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "STARTED_BY": str(tmp_path), "TMPDIR": str(tmp_path)}, start_new_session=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 120
        while not (seen := javas(mark)) and process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
        left = javas(mark)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    assert seen
    assert "started" not in said
    assert not left
    assert not list(tmp_path.glob("tribunal-spark-*"))
