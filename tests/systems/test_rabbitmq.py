"""RabbitMQ on trial, as `systems/rabbitmq` describes it: quorum queues are not accused."""

import shutil
from pathlib import Path

import pytest

from tests.systems.judged import judged_in
from tribunal.clusters.namespaces.spaces import way_in
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
