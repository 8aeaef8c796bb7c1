"""Spark is started with low priority while nodes run; once somebody waits for it, it has that of the one who waits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.checkers.spark.starting import hurry

SLEEPS = "import os, time; os.nice(10); print(flush=True); time.sleep(60)"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_what_was_started_for_a_folder_gets_the_priority_of_who_waits_and_nothing_else(tmp_path: Path) -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    begun = [
        subprocess.Popen([sys.executable, "-c", SLEEPS, str(tmp_path / name)], stdout=subprocess.PIPE)
        for name in ("mine", "other")
    ]
    try:
        for process in begun:
            assert process.stdout is not None
            process.stdout.readline()
        before = [os.getpriority(os.PRIO_PROCESS, process.pid) for process in begun]

        os.setpriority(os.PRIO_PROCESS, 0, 3)
        hurry(tmp_path / "mine")

        after = [os.getpriority(os.PRIO_PROCESS, process.pid) for process in begun]
        assert (before, after) == ([min(19, usual + 10)] * 2, [3, min(19, usual + 10)])
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)
        for process in begun:
            process.kill()
            process.communicate()
