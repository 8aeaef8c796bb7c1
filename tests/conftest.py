"""Order of the lanes: what answers in milliseconds first, what starts Spark or real processes last."""

import functools
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# The gate must say the same twice: examples are derived from the test's own text, not from chance.
settings.register_profile("gate", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("gate")

LANES = ("spark", "e2e", "containers", "nightly")


PROCESSES = "files that start processes"
_STARTS_PROCESSES = re.compile(r"\bmark\.(e2e|containers)\b")


class TwoLanes(LoadScopeScheduling):
    """One worker takes the files that start processes, one after the other, while the other takes the rest.

    Tests with processes mostly wait. Two of them at once would take each other's cores and network names.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return PROCESSES if _starts_processes(self.config.rootpath / path) else path

    def _assign_work_unit(self, node: WorkerController) -> None:
        if PROCESSES in self.workqueue:
            self.workqueue.move_to_end(PROCESSES, last=False)
        super()._assign_work_unit(node)


@functools.cache
def _starts_processes(path: Path) -> bool:
    return _STARTS_PROCESSES.search(path.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> TwoLanes:
    """Choose how tests are shared out among workers."""
    config.option.loadscopereorder = False
    return TwoLanes(config, log)


class NothingRunsBesideAnErrorOfCollection:
    """Ends a run on two workers at a file that does not import, as pytest does on one; xdist would run all the rest first."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Say that the run has failed."""
        if report.failed:
            self._session.shouldfail = f"{report.nodeid} cannot be collected"


class FailuresAreNamedAtOnce:
    """Names each failed test when it fails: among dots of half an hour a letter F says nothing of which one it was."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a line of its own; what failed in it comes at the end."""
        if report.failed:
            self._terminal.write_line(f"\n{report.when} failed: {report.nodeid}")


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    plugins.register(NothingRunsBesideAnErrorOfCollection(session))
    terminal = plugins.get_plugin("terminalreporter")
    if terminal is not None:  # a worker has none
        plugins.register(FailuresAreNamedAtOnce(terminal))


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
