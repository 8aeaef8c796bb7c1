"""Each known bug is found by the scenario that its module names: a change of timing elsewhere can blind one unnoticed."""

import pytest

from tribunal.harness.campaign.mutation_score import power
from tribunal.harness.campaign.runners import LocalRunner
from tribunal.harness.catalog import mutants

BUDGET_S = 240


@pytest.mark.nightly
@pytest.mark.timeout(BUDGET_S + 120)
@pytest.mark.parametrize("mutant", sorted(mutants()))
def test_it_is_found(mutant, tmp_path):
    (found,) = power(
        [mutant], scenario=None, seeds=range(1000), budget_s=BUDGET_S, runner=LocalRunner(2), scratch=tmp_path
    )

    assert found.found, f"not by {found.seeds} seeds of {found.scenario}"
