"""RabbitMQ on trial, as `systems/rabbitmq` describes it: what is promised to stay stays, and transient messages are missed."""

import shutil
from pathlib import Path

import pytest

from tests.systems.judged import judged_in
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.results.verdict import RunVerdict, Verdict

RABBITMQ = Path(__file__).resolve().parents[2] / "systems" / "rabbitmq"
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
IS_THERE = SERVER.exists() and shutil.which("epmd") is not None
pytestmark = [
    pytest.mark.nightly,  # a node takes ten seconds to start
    pytest.mark.skipif(not IS_THERE, reason="not installed: rabbitmq-server (Debian)"),
    pytest.mark.skipif(isinstance(way_in(), str), reason=str(way_in())),
]


def judged(scenario: str, system: str, out: Path, *, seed: int = 1) -> RunVerdict:
    """Run a scenario of RabbitMQ and judge it; nothing of it stays running."""
    return judged_in(RABBITMQ, scenario, {"cluster.system": str(RABBITMQ / system)}, out, seed=seed)


def test_quorum_queues_of_nodes_that_are_killed_and_paused_are_not_accused(tmp_path: Path) -> None:
    """What a majority has on disk stays, and comes again until it is acknowledged."""
    verdict = judged("kill.yaml", "quorum.toml", tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []


@pytest.mark.parametrize(
    ("scenario", "system"),
    [
        pytest.param("kill-all.yaml", "classic.toml", id="classic queues, killed"),
        pytest.param("power-loss.yaml", "power.toml", id="quorum queues without power"),
    ],
)
def test_persistent_messages_outlive_all_nodes_at_once(scenario: str, system: str, tmp_path: Path) -> None:
    """What was confirmed had been written, or synced by a majority."""
    verdict = judged(scenario, system, tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []


def test_streams_of_nodes_that_are_killed_and_paused_are_not_accused(tmp_path: Path) -> None:
    """A majority has what was confirmed, in its order."""
    verdict = judged("stream-kill.yaml", "stream.toml", tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []


@pytest.mark.skipif(bool(no_disks()), reason=no_disks() or "there are such disks")
def test_streams_are_lost_with_the_power_of_all_nodes(tmp_path: Path) -> None:
    """RabbitMQ says so: it syncs no stream before it confirms."""
    verdict = judged("stream-power-loss.yaml", "stream-power.toml", tmp_path)

    assert verdict.verdict is Verdict.VIOLATION
    assert "element_lost" in {finding.kind for finding in verdict.findings}


def test_transient_messages_do_not(tmp_path: Path) -> None:
    """They were confirmed, and a node that starts has none of them."""
    verdict = judged("kill-all.yaml", "transient.toml", tmp_path)

    assert verdict.verdict is Verdict.VIOLATION
    assert {finding.kind for finding in verdict.findings} == {"element_lost"}
