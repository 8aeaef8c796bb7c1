"""etcd on trial, as `systems/etcd` describes it: linearizable reads are not accused, serializable ones are convicted."""

import shutil
from pathlib import Path

import pytest

from tests.systems.judged import judged_in
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.results.verdict import RunVerdict, Verdict

ETCD = Path(__file__).resolve().parents[2] / "systems" / "etcd"
NO_DISKS = str(way_in()) if isinstance(way_in(), str) else no_disks()
pytestmark = pytest.mark.skipif(shutil.which("etcd") is None, reason="not installed: etcd (Debian: etcd-server)")


def judged(scenario: str, overrides: dict[str, str], out: Path, *, seed: int = 1) -> RunVerdict:
    """Run a scenario of etcd and judge it; nothing of it stays running."""
    return judged_in(ETCD, scenario, overrides, out, seed=seed)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scenario", "overrides"),
    [
        pytest.param("kill-and-pause.yaml", {}, id="killed and paused"),
        pytest.param(
            "old-reads.yaml", {"cluster.system": str(ETCD / "linearizable.toml")}, id="where others are convicted"
        ),
        pytest.param(
            "isolate.yaml",
            {},
            id="cut off",
            marks=pytest.mark.skipif(isinstance(way_in(), str), reason=str(way_in())),
        ),
        pytest.param(
            "power-loss.yaml",
            {},
            id="all without power",
            marks=pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "there are such disks"),
        ),
        pytest.param(
            "disks.yaml",
            {},
            id="bad disks",
            marks=pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "there are such disks"),
        ),
    ],
)
def test_reads_that_ask_the_leader_are_not_accused(scenario: str, overrides: dict[str, str], tmp_path: Path) -> None:
    """Killed, paused and powerless nodes take nothing from etcd's registers."""
    verdict = judged(scenario, overrides, tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []


@pytest.mark.nightly
def test_reads_from_a_follower_s_own_data_are_convicted(tmp_path: Path) -> None:
    """A run shows an old read in about every second case (10 of 16): of eight seeds one has to."""
    verdicts = (judged("old-reads.yaml", {}, tmp_path, seed=seed) for seed in range(1, 9))

    convicted = next((one for one in verdicts if one.verdict is Verdict.VIOLATION), None)

    assert convicted is not None
    assert {finding.kind for finding in convicted.findings} == {"not_linearizable"}


@pytest.mark.nightly
def test_a_node_that_is_killed_again_and_again_has_everything(tmp_path: Path) -> None:
    verdict = judged("kill-loop.yaml", {}, tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("etcd-3.5.2") is None, reason="not installed: etcd-3.5.2 (systems/etcd/README.md)")
def test_a_node_of_a_release_that_skips_changes_is_convicted(tmp_path: Path) -> None:
    """etcd-io/etcd#13766: it notes that an entry is applied before it is. Which kill meets that moment is chance."""
    runs = (
        judged("kill-loop.yaml", {"cluster.system": str(ETCD / "sets-3.5.2.toml")}, tmp_path, seed=seed)
        for seed in range(1, 5)
    )
    convicted = next((one for one in runs if one.verdict is Verdict.VIOLATION), None)

    assert convicted is not None
    assert {finding.kind for finding in convicted.findings} == {"element_lost"}
