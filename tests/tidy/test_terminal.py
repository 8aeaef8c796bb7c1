"""Whatever a command prints goes through `harness/terminal.py`, which shows what strangers wrote harmlessly."""

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
WRITES: Final = (
    "print",
    "sys.stderr.write",
    "sys.stderr.writelines",
    "sys.stdout.write",
    "sys.stdout.writelines",
    "traceback.print_exc",
    "typer.echo",
    "typer.secho",
)
KNOWN: Final = {
    "harness/campaign/bisect_probe.py: traceback.print_exc",  # among the lines of git bisect, with the packages of an old commit
    "harness/cli/loading.py: sys.stderr.write",  # nothing is loaded yet; a sentence of ours
    "harness/cli/histories.py: sys.stdout.writelines",  # a history for another tool; on a terminal it is made plain
    "harness/guard.py: sys.stdout.write",  # into the log of the run's guard
    "harness/terminal.py: typer.echo",
}


def writes(source: str) -> list[str]:
    """What a module calls, or hands on to be called, to write to a terminal by itself."""
    found = (ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute | ast.Name))
    return [name for name in found if name in WRITES]


def test_nothing_is_printed_past_the_terminal() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "harness").rglob("*.py"))
        for name in writes(path.read_text())
    }

    assert found == KNOWN, "print with echo of tribunal.harness.terminal"


@pytest.mark.parametrize("name", WRITES)
def test_another_way_is_found(name: str) -> None:
    assert writes(f"say = {name}\n") == writes(f"{name}('words')\n") == [name]
