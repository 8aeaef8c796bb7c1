"""What the cluster under test refuses to do is a fault without effect: the harness is whole, and says why."""

from pathlib import Path

import yaml

from tribunal.harness.campaign.sweep import run_seed
from tribunal.harness.catalog import SIMULATED, scenario_file
from tribunal.harness.plan import made
from tribunal.harness.scenario import scenario
from tribunal.results.verdict import Verdict


def test_a_reassignment_that_is_refused_is_no_error_of_the_harness(tmp_path: Path) -> None:
    content = yaml.safe_load(scenario_file("removed-leader").read_text())
    del content["modes"]  # in this mode it has no effect, which is what is looked at
    content["cluster"]["mode"] = "zookeeper"
    content["steps"][0] |= {"from": "nodes", "for": "6s"}  # its session ends

    result = run_seed(made(scenario(content), seed=7000, cluster=SIMULATED, time_ms=None, mutants=()), tmp_path / "run")

    assert result.verdict is Verdict.INCONCLUSIVE
    assert "INVALID_REPLICA_ASSIGNMENT" in result.reasons[0]
