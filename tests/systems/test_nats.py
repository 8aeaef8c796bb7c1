"""NATS JetStream on trial, as `systems/nats` describes it: what its defaults lose with the power is found, and what is synced is not missed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.systems.judged import judged_in
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.results.verdict import RunVerdict, Verdict

NATS = Path(__file__).resolve().parents[2] / "systems" / "nats"
SERVER = shutil.which("nats-server")
SYNCS_ALWAYS = (2, 10)  # the first version that knows `sync_interval: always`
NO_DISKS = str(way_in()) if isinstance(way_in(), str) else no_disks()
pytestmark = pytest.mark.skipif(SERVER is None, reason="not installed: nats-server (Debian: nats-server)")


def version() -> tuple[int, ...]:
    """Return the server's version; empty: there is none."""
    said = subprocess.run([SERVER, "--version"], capture_output=True, text=True, check=True).stdout if SERVER else ""
    found = re.search(r"v(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def judged(scenario: str, system: str, out: Path, *, seed: int = 1, **overrides: str) -> RunVerdict:
    """Run a scenario of NATS and judge it; nothing of it stays running."""
    return judged_in(NATS, scenario, {"cluster.system": str(NATS / system), **overrides}, out, seed=seed)


@pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "there are such disks")
def test_what_is_synced_within_two_minutes_is_lost_with_the_power_of_all_servers(tmp_path: Path) -> None:
    """Each lost element was acknowledged by a majority, and nobody had synced it."""
    verdict = judged("power-loss.yaml", "power.toml", tmp_path, time="3s")

    assert verdict.verdict is Verdict.VIOLATION
    assert {finding.kind for finding in verdict.findings} == {"element_lost"}


@pytest.mark.nightly
@pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "there are such disks")
@pytest.mark.skipif(version() < SYNCS_ALWAYS, reason="nats-server 2.10 or newer syncs always")
def test_what_is_synced_before_it_is_acknowledged_is_kept(tmp_path: Path) -> None:
    """The same servers on the same disks, with `sync_interval: always`."""
    verdict = judged("power-loss.yaml", "power-always.toml", tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []


@pytest.mark.nightly
def test_servers_that_are_killed_and_paused_are_not_accused(tmp_path: Path) -> None:
    """The kernel has what was acknowledged, so kill -9 takes nothing."""
    verdict = judged("kill.yaml", "default.toml", tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []
