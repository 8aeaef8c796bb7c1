"""The pytest plugin, used as a user would: in a project of its own, in a pytest of its own."""

import re

import pytest

pytest_plugins = ["pytester"]

SCENARIO = """scenario: small
about: a short run
workload: {name: produce-consume, rate: 60, partitions: 2}
time: 2s
warm_up: 500ms
steps:
  - {kill: leader(p0), for: 1s}
"""

TEST = """
import pytest

@pytest.mark.tribunal("small.yaml", cluster="simulated", seed=1)
def test_nothing_acknowledged_is_lost(tribunal_run):
    judged = tribunal_run()
    assert judged.verdict.judged["acknowledged, acks=all"] > 10
"""

VIOLATING = """
import pytest

@pytest.mark.tribunal("last-replica-standing", cluster="simulated", mutant="M01", seed=3)
def test_it(tribunal_run):
    tribunal_run()
"""


@pytest.fixture
def project(pytester):
    (pytester.path / "small.yaml").write_text(SCENARIO)
    return pytester


def test_ten_lines_are_a_chaos_test(project):
    project.makepyfile(TEST)

    result = project.runpytest_subprocess("-q", "--strict-markers")

    result.assert_outcomes(passed=1)
    assert len(TEST.strip().splitlines()) <= 10


def test_a_failure_shows_the_story_and_how_to_do_it_again(project):
    project.makepyfile(VIOLATING)

    result = project.runpytest_subprocess("-q")

    result.assert_outcomes(failed=1)
    said = result.stdout.str()
    assert "VIOLATION" in said
    assert "--tribunal-seed 3" in said
    assert "Traceback" not in said
    assert "pytest_plugin.py" not in said


def test_a_seed_given_by_hand_goes_before_the_markers(project):
    project.makepyfile(VIOLATING)

    result = project.runpytest_subprocess("-q", "--tribunal-seed", "7", "--tribunal-out", "kept")

    assert "--tribunal-seed 7" in result.stdout.str() or result.ret == 0
    assert re.search(r"simulated-7$", next((project.path / "kept").iterdir()).name)


def test_a_violation_can_be_what_is_wanted(project):
    project.makepyfile(VIOLATING.replace("tribunal_run()", "tribunal_run(expect='VIOLATION')"))

    project.runpytest_subprocess("-q").assert_outcomes(passed=1)


def test_a_run_better_than_wanted_fails_too(project):
    project.makepyfile(TEST.replace("tribunal_run()", "tribunal_run(expect='VIOLATION')"))

    result = project.runpytest_subprocess("-q")

    result.assert_outcomes(failed=1)
    assert "wanted VIOLATION" in result.stdout.str()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param(("small.yaml", "smal"), "unknown scenario", id="scenario"),
        pytest.param(('cluster="simulated"', 'cluster="simulatd"'), "did you mean simulated", id="cluster"),
        pytest.param(
            ('@pytest.mark.tribunal("small.yaml", cluster="simulated", seed=1)', ""), "name a scenario", id="none"
        ),
    ],
)
def test_a_wrong_word_is_one_line(project, change, line):
    project.makepyfile(TEST.replace(*change))

    result = project.runpytest_subprocess("-q")

    result.assert_outcomes(failed=1)
    assert line in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
