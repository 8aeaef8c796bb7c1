"""The shipped scenarios of secured clusters: what is right passes, and a known bug is found as on any other."""

import pytest

from tribunal.harness.cli.main import exit_code

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(300)]
FINE = 0
VIOLATION = 1


@pytest.mark.parametrize("scenario", ["secured-produce-consume", "secured-passwords", "secured-certificates"])
@pytest.mark.parametrize("seed", ["3", "4"])
def test_a_right_cluster_loses_nothing_while_who_may_come_in_changes(tmp_path, scenario, seed):
    assert exit_code(["run", scenario, "--seed", seed, "--engine", "inline", "--out", str(tmp_path)]) == FINE


def test_a_known_bug_is_found_by_tls(tmp_path):
    order = ["run", "secured-produce-consume", "--seed", "2", "--mutant", "M44", "--engine", "inline"]

    assert exit_code([*order, "--out", str(tmp_path)]) == VIOLATION
