"""Chaos tests of one's own, in pytest: a marker says what to run, a fixture runs it, a failure shows the story.

    import pytest

    @pytest.mark.tribunal("produce-consume", cluster="processes", time="20s")
    def test_nothing_acknowledged_is_lost(tribunal_run):
        judged = tribunal_run()
        assert judged.verdict.judged["acknowledged, acks=all"] > 100

`tribunal_run()` fails the test unless the verdict is PASS or PERMITTED, with what was found and the line that does it again;
`tribunal_run(expect="VIOLATION", mutant="M44")` wants one. Every run has a fresh seed unless the marker names one;
`--tribunal-seed` repeats a failing one. The run is a process of its own: nothing of it stays in pytest's.
"""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

GOOD: Final = ("PASS", "PERMITTED")


class Failed(Exception):
    """A run that is not what the test wants; the text is all that a reader needs."""


class TribunalRun:
    """What `tribunal_run` gives: call it to run."""

    def __init__(self, request: pytest.FixtureRequest, out: Path) -> None:
        self._request = request
        self._out = out

    def __call__(self, scenario: str | None = None, *, expect: str | None = None, **options: Any) -> "Judgement":
        """Run a scenario (the marker's, unless named) and judge it.

        expect:   the verdict wanted; None: PASS or PERMITTED.
        options:  of `tribunal run`: cluster, time, seed, mutant (one or a list), set (a dict), engine, mode; those given here go
                  before the marker's.
        Raises Failed, which pytest shows as the story of what was found.
        """
        marker = self._request.node.get_closest_marker("tribunal")
        wanted = {**(marker.kwargs if marker else {}), **options}
        name = scenario or (marker.args[0] if marker and marker.args else None)
        if name is None:
            raise Failed("name a scenario: @pytest.mark.tribunal('produce-consume') or tribunal_run('produce-consume')")
        config = self._request.config
        repeated = config.getoption("--tribunal-seed")
        if repeated is not None:
            wanted["seed"] = repeated
        wanted.setdefault("engine", config.getoption("--tribunal-engine"))
        return self._run(name, expect, wanted)

    def _run(self, name: str, expect: str | None, wanted: dict[str, Any]) -> "Judgement":
        known = {path.name for path in self._out.glob("*")}
        command = [
            sys.executable,
            "-m",
            "tribunal.harness.cli.main",
            "run",
            name,
            "--out",
            str(self._out),
            "--json",
            "--quiet",
        ]
        done = subprocess.run([*command, *_arguments(wanted)], check=False, capture_output=True, text=True)  # noqa: S603
        new = [path for path in sorted(self._out.glob("*")) if path.name not in known]
        if not new or not (new[0] / "verdict.json").is_file():
            raise Failed((done.stderr.strip().splitlines() or [f"tribunal ended with {done.returncode}"])[-1])
        judgement = Judgement(new[0], self._request.node.nodeid)
        found = judgement.verdict.verdict.value
        if found not in (GOOD if expect is None else (expect,)):
            raise Failed(judgement.story(None if expect is None else f"wanted {expect}"))
        return judgement


class Judgement:
    """A run that was judged: its folder, its verdict, and how to show it."""

    def __init__(self, run_dir: Path, test: str) -> None:
        from tribunal.results.verdict import load

        self.run_dir = run_dir
        self.verdict = load(run_dir / "verdict.json")
        self._test = test

    def story(self, remark: str | None = None) -> str:
        """Return what was found on one screen, with the line that runs the same seed again."""
        from tribunal.harness.cli.screen import one_screen
        from tribunal.harness.plan import read_plan

        plan = read_plan(self.run_dir / "plan.json")
        lines = [one_screen(self.verdict, self.run_dir, plan)]
        lines += [f"but       {remark}"] if remark else []
        lines.append(f"pytest    pytest {self._test!r} --tribunal-seed {plan.seed}")
        return "\n".join(lines)


def _arguments(wanted: dict[str, Any]) -> list[str]:
    arguments: list[str] = []
    for name, value in wanted.items():
        if isinstance(value, dict):
            values = [f"{key}={one}" for key, one in value.items()]
        elif isinstance(value, list | tuple):
            values = [str(one) for one in value]
        else:
            values = [str(value)]
        for one in values:
            arguments += [f"--{name.replace('_', '-')}", one]
    return arguments


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tribunal", "chaos runs")
    group.addoption("--tribunal-seed", type=int, default=None, help="run with this seed again")
    group.addoption("--tribunal-engine", default="inline", help="who judges: inline (default), spark, spark-sql")
    group.addoption("--tribunal-out", default=None, help="folder of the runs; default: a temporary one, kept by pytest")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and let tests import what lies in `tribunal_plugins`."""
    from tribunal.results.plugins import importable

    importable()
    config.addinivalue_line("markers", "tribunal(scenario, **options): what `tribunal_run` runs, as in `tribunal run`")


@pytest.fixture
def tribunal_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TribunalRun:
    """Run chaos scenarios and judge them."""
    folder = request.config.getoption("--tribunal-out")
    out = Path(folder) if folder else tmp_path_factory.mktemp("tribunal", numbered=True)
    return TribunalRun(request, out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a failed run as its story: where in pytest's own code it was raised helps nobody."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, Failed):
        report.longrepr = str(call.excinfo.value)
    return report
