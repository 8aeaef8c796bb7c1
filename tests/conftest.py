"""Order of the lanes: what answers in milliseconds first, what starts Spark or real processes last."""

import pytest
from hypothesis import settings

# The gate must say the same twice: examples are derived from the test's own text, not from chance.
settings.register_profile("gate", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("gate")

LANES = ("spark", "e2e", "containers", "nightly")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_lane)


def _lane(item: pytest.Item) -> int:
    return max((index + 1 for index, name in enumerate(LANES) if item.get_closest_marker(name)), default=0)
