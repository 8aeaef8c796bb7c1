"""The command that begins something new: new."""

from pathlib import Path
from typing import Annotated

import typer

from tribunal.harness.terminal import as_json, echo


def new(
    kind: Annotated[str, typer.Argument(help="fault, workload, checker, scenario or system.")],
    name: Annotated[str, typer.Argument(help="Its name on the command line, e.g. slow-network.")],
    about: Annotated[str, typer.Option(help="What it is, in one sentence.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Write a new fault, workload, checker or scenario that works, with its test, or a system on trial, to be changed."""
    from tribunal.harness.new import SYSTEM, made, made_system

    paths = made_system(name, Path()) if kind == SYSTEM else made(kind, name, about, Path())
    if json:
        echo(as_json([str(path) for path in paths]))
        return
    for path in paths:
        echo(str(path))
    if kind == SYSTEM:
        echo(f"try it    tribunal run {paths[0]} --cluster system")
        echo(f"and       tribunal run {paths[0]} --cluster system --set cluster.system={paths[2]}")
        return
    echo(f"try it    pytest {paths[1]}")
