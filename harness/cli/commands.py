"""Which commands there are, and where each one lives. A command's module is loaded when it is used, not before.

All of them take seconds to load on a busy machine, and who asks for the version, the help or a completion needs none.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tribunal.harness.cli.loading import loading

if TYPE_CHECKING:
    from typer._click import Command, Context

PACKAGE: Final = "tribunal.harness.cli"


class Place(NamedTuple):
    """Where a command lives.

    module:    a module of `tribunal.harness.cli`.
    function:  its function there; its docstring is the command's help.
    of:        the `typer.Typer` there that has the command's own commands; "": it has none.
    """

    module: str
    function: str
    of: str = ""


def _places(module: str, *functions: str) -> dict[str, Place]:
    return {function: Place(module, function) for function in functions}


COMMANDS: Final = {
    **_places("verdicts", "run", "check"),
    **_places("pages", "report", "serve"),
    **_places("simulate", "sweep"),
    **_places("search", "search"),
    **_places("simulate", "power", "replay", "shrink", "likelihood", "demo"),
    **_places("explain", "explain"),
    **_places("night", "nightly", "merge"),
    **_places("trends", "trends"),
    **_places("museum", "museum"),
    **_places("calibrate", "calibrate"),
    "explore": Place("explore", "explore_"),
    **_places("make", "new"),
    **_places("install", "install"),
    **_places("evidence", "bundle", "verify", "publish", "diff", "bisect"),
    "import": Place("histories", "import_history"),
    "export": Place("histories", "export_history"),
    **_places("confirm", "confirm"),
    **_places("up", "up"),
    **_places("safety", "doctor", "heal", "clean"),
    "list": Place("listing", "list_"),
    "findings": Place("findings", "findings", of="app"),
}
"""In the order in which the help names them."""


class Commands(TyperGroup):
    """All commands: listed by names and helps, loaded when one is used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands.update({name: TyperCommand(name) for name in COMMANDS})

    def list_commands(self, ctx: "Context") -> list[str]:
        """Return the names in order. Who asks for them shows the helps, too."""
        for name, place in COMMANDS.items():
            self.commands[name].help = _docstring(place)
        return list(COMMANDS)

    def resolve_command(self, ctx: "Context", args: list[str]) -> "tuple[str | None, Command | None, list[str]]":
        """Return the command that is named first, with its options, and what is behind its name."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else loaded(name), rest


def loaded(name: str) -> "Command":
    """Return a command with its options."""
    place = COMMANDS[name]
    with loading():
        module = import_module(f"{PACKAGE}.{place.module}")
    if place.of:
        own: typer.Typer = getattr(module, place.of)
    else:
        own = typer.Typer(add_completion=False)
        own.command(name)(getattr(module, place.function))
    return get_command(own)


def _docstring(place: Place) -> str:
    """Return a function's docstring out of its module's text."""
    text = Path(__file__).with_name(f"{place.module}.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == place.function:
            return ast.get_docstring(node) or ""
    return ""
