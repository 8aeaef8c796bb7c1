"""What the command line loads before it answers: who asks for the version or mistypes an option waits for no cluster and no judge."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tribunal.harness.cli.commands import COMMANDS, loaded
from tribunal.harness.cli.main import app

HEAVY = {
    *("pyarrow", "numpy", "pandas", "scipy", "networkx", "pyspark", "confluent_kafka", "jinja2", "uvloop"),
    *("replog", "tribunal.nemesis", "tribunal.clusters", "tribunal.workloads", "tribunal.checkers", "tribunal.results.report"),
}  # fmt: skip
ASK = """
import json, sys
from tribunal.harness.cli.main import exit_code
code = exit_code(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


def asked(*words: str) -> tuple[int, set[str]]:
    """Return the exit code of a command, and the modules that its process had loaded by then."""
    done = subprocess.run([sys.executable, "-c", ASK, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    return code, set(modules)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["--version"], 0, id="version"),
        pytest.param(["--help"], 0, id="help"),
        pytest.param(["runn"], 64, id="no such command"),
        pytest.param(["run", "--help"], 0, id="help of run"),
        pytest.param(["run", "produce-consume", "--sead", "3"], 64, id="no such option of run"),
        pytest.param(["run", "produce-consume", "--seed", "three"], 64, id="no number"),
        pytest.param(["run"], 64, id="no scenario"),
        pytest.param(["check", "here", "--engine", "duck"], 64, id="no such engine"),
    ],
)
def test_what_needs_no_run_loads_nothing_of_one(words: list[str], code: int) -> None:
    found, modules = asked(*words)

    assert found == code
    assert HEAVY & modules == set()


def test_a_command_loads_its_own_modules_and_not_those_of_others() -> None:
    _, modules = asked("doctor", "--help")

    others = {f"tribunal.harness.cli.{place.module}" for place in COMMANDS.values()} - {"tribunal.harness.cli.safety"}
    assert "tribunal.harness.cli.safety" in modules
    assert others & modules == set()


def test_the_list_of_commands_has_the_first_line_of_each_ones_own_help() -> None:
    """The list reads it out of the module's text; the command itself has it from the function."""
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "250", "NO_COLOR": "1"}).output

    for name in COMMANDS:
        (line,) = (line for line in shown.splitlines() if line.split()[1:2] == [name])
        first = (loaded(name).help or "").partition("\n\n")[0]
        assert " ".join(first.split()) in " ".join(line.split()), name
