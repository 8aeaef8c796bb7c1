"""No seed of any scenario differs when it runs twice in fresh interpreters with other hash seeds and environments."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tribunal.clusters.simulated.determinism import difference

PROGRAM = "tests.seeds.scenario_program:any_scenario"


def differing(seeds):
    with ThreadPoolExecutor(2) as pool:
        return [str(found) for found in pool.map(lambda seed: difference(PROGRAM, seed), seeds) if found is not None]


@pytest.mark.timeout(600)
def test_2_seeds():
    assert differing(range(2)) == []


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_200_seeds():
    assert differing(range(2, 202)) == []
