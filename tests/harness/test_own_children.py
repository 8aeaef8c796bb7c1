"""A sweep waits for its own seeds alone, and takes nobody else's files for theirs."""

import os
import subprocess
import sys

from tribunal.harness.campaign.sweep import SeedResult, _ended
from tribunal.results.verdict import Verdict


class Seed:
    """A process that runs one."""

    def __init__(self, code: int) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])
        self.pid = self.process.pid

    def result(self, status: int, _cpu_ms: int) -> SeedResult:
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return SeedResult(scenario="s", seed=self.process.returncode, verdict=Verdict.PASS, claim="")

    def listen(self) -> None:
        """Hear nothing."""

    def end_if_overdue(self) -> None:
        """Let it be."""


def test_a_child_of_somebody_else_is_left_to_who_began_it():
    """Its status was taken, and whoever waited for it was told that it had ended well."""
    foreign = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    os.waitid(os.P_PID, foreign.pid, os.WEXITED | os.WNOWAIT)
    seed = Seed(3)
    children = {seed.pid: seed}

    results = []
    while children:
        results += _ended(children)

    assert [result.seed for result in results] == [3]
    assert foreign.wait() == 7


def test_a_run_that_stayed_elsewhere_is_not_looked_for_here(tmp_path, monkeypatch):
    """On Spark an empty folder's name was the current one, and the verdict that happened to lie there was told as the minimal run's story."""
    (tmp_path / "verdict.json").touch()
    monkeypatch.chdir(tmp_path)
    here = SeedResult(scenario="s", seed=1, verdict=Verdict.PASS, claim="", run_dir=str(tmp_path))

    assert here.folder == tmp_path
    assert SeedResult(scenario="s", seed=1, verdict=Verdict.PASS, claim="").folder is None
