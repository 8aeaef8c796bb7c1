"""The command that installs what a described system needs: install."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tribunal.clusters.systems.description import BadSystem
from tribunal.harness.terminal import as_json, echo


def install(
    system: Annotated[Path, typer.Argument(help="Its system.toml.")],
    json: Annotated[
        bool, typer.Option("--json", help="Print what was run as JSON on stdout, what it says on stderr.")
    ] = False,
) -> None:
    """Run the command that a system.toml has under `install`, on this machine or on each of its hosts. Runs never do.

    Exit code 0: installed; 3: the command failed, or a host cannot be reached; 64: the file has none.
    """
    from tribunal.clusters.systems.installing import installed

    try:
        done = installed(system, lambda line: echo(line, err=True), (sys.stderr if json else sys.stdout).buffer)
    except BadSystem as problem:
        raise typer.BadParameter(str(problem)) from None
    if json:
        echo(as_json(done))
