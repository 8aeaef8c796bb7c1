"""ZooKeeper on trial, as `systems/zookeeper` describes it: reads behind a sync are not accused, local ones and unsafe options are convicted."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.systems.judged import judged_in
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.results.verdict import RunVerdict, Verdict

ZOOKEEPER = Path(__file__).resolve().parents[2] / "systems" / "zookeeper"
JAR = Path("/usr/share/java/zookeeper.jar")
IS_THERE = JAR.exists() and shutil.which("java") is not None and importlib.util.find_spec("kazoo") is not None
NO_DISKS = str(way_in()) if isinstance(way_in(), str) else no_disks()
pytestmark = [
    pytest.mark.nightly,  # three Java servers take their time
    pytest.mark.skipif(not IS_THERE, reason="not installed: zookeeper (Debian), Java or kazoo"),
]


def judged(scenario: str, system: str, out: Path, *, seed: int = 1) -> RunVerdict:
    """Run a scenario of ZooKeeper and judge it; nothing of it stays running."""
    return judged_in(ZOOKEEPER, scenario, {"cluster.system": str(ZOOKEEPER / system)}, out, seed=seed)


def test_reads_behind_a_sync_are_not_accused(tmp_path: Path) -> None:
    """Servers are paused and killed, and registers stay linearizable."""
    verdict = judged("pause.yaml", "synced.toml", tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []


def test_reads_of_a_server_s_own_data_are_convicted(tmp_path: Path) -> None:
    """A server that was paused answers from what it had then: of some seeds one has to be convicted."""
    verdicts = (judged("old-reads.yaml", "local.toml", tmp_path, seed=seed) for seed in range(1, 9))

    convicted = next((one for one in verdicts if one.verdict is Verdict.VIOLATION), None)

    assert convicted is not None
    assert {finding.kind for finding in convicted.findings} == {"not_linearizable"}


def test_numbers_of_what_is_made_in_sequence_are_given_once(tmp_path: Path) -> None:
    """Servers are killed and paused."""
    verdict = judged("sequence.yaml", "synced.toml", tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.judged["calls on streams"] > 100


@pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "there are such disks")
@pytest.mark.parametrize("scenario", ["power-loss.yaml", "sequence-power-loss.yaml"])
@pytest.mark.parametrize(
    ("system", "loses"),
    [
        pytest.param("power.toml", False, id="synced before it is acknowledged"),
        pytest.param("power-unsafe.toml", True, id="forceSync=no"),
    ],
)
def test_a_loss_of_power_takes_what_was_not_synced(scenario: str, system: str, loses: bool, tmp_path: Path) -> None:
    """All three servers lose power at once; numbers of what was lost are given a second time."""
    verdict = judged(scenario, system, tmp_path)

    kinds = {finding.kind for finding in verdict.findings}
    assert ("element_lost" in kinds) is loses
    assert kinds <= {"element_lost", "entry_changed"}
