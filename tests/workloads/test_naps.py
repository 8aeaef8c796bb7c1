"""Members of groups nap for longer than their sessions; who naps when the workload is asked to stop is waited for."""

import pytest

from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import scenario
from tribunal.harness.simulated import conduct_simulated


@pytest.mark.parametrize("workload", ["consumer-group", "exactly-once"])
@pytest.mark.parametrize("session_ms", [6_000, 45_000])
def test_a_nap_that_lasts_on_when_the_load_ends_does_not_end_the_run(tmp_path, workload, session_ms):
    """Kafka's own sessions are of 45 s, and naps of up to 112 s: the run was given up after 18."""
    given = {
        "scenario": "naps",
        "workload": {"name": workload, "session_timeout_ms": session_ms, "nap_percent": 100},
        "time": "1s",
        "warm_up": "8s",
        "steps": [],
    }
    plan = made(scenario(given), seed=1, cluster="simulated", time_ms=None, mutants=())

    ending, _ = conduct_simulated(plan, tmp_path, Silent())

    assert ending.failure is None
