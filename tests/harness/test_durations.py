"""Durations of scenarios and of the command line's budgets."""

import pytest

from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.scenario import BadScenario, duration


@pytest.mark.parametrize(
    ("given", "ends_ms"),
    [
        ("300ms", (300, 300)),
        ("2.5s", (2_500, 2_500)),
        ("10m", (600_000, 600_000)),
        ("8h", (28_800_000, 28_800_000)),
        ("1..2h", (3_600_000, 7_200_000)),
    ],
)
def test_what_can_be_written(given: str, ends_ms: tuple[int, int]) -> None:
    found = duration(given, ClusterSpec())

    assert (found.least_ms, found.most_ms) == ends_ms


@pytest.mark.parametrize("given", ["8d", "h", "8 hours", "2..1h"])
def test_what_cannot(given: str) -> None:
    with pytest.raises(BadScenario, match="duration"):
        duration(given, ClusterSpec())
