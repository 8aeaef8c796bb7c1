"""The command that begins something new: new."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer


def new(
    kind: Annotated[str, typer.Argument(help="fault, workload, checker or scenario.")],
    name: Annotated[str, typer.Argument(help="Its name on the command line, e.g. slow-network.")],
    about: Annotated[str, typer.Option(help="What it is, in one sentence.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Write a new fault, workload, checker or scenario that works, with its test, to be changed."""
    from tribunal.harness.new import made

    paths = made(kind, name, about, Path())
    if json:
        typer.echo(msgspec.json.encode([str(path) for path in paths]).decode())
        return
    for path in paths:
        typer.echo(str(path))
    typer.echo(f"try it    pytest {paths[1]}")
