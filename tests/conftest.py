"""Order of the lanes: what answers in milliseconds first, what starts Spark or real processes last."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The gate must say the same twice: examples are derived from the test's own text, not from chance.
settings.register_profile("gate", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("gate")

LANES = ("spark", "e2e", "containers", "nightly")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_lane)


@pytest.fixture(autouse=True)
def _litter_is_found_where_it_fell(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect after tests with real sockets: what one of them left open would be said of any later test."""
    yield
    if request.node.get_closest_marker("e2e") or request.node.get_closest_marker("containers"):
        gc.collect()


def _lane(item: pytest.Item) -> int:
    return max((index + 1 for index, name in enumerate(LANES) if item.get_closest_marker(name)), default=0)
