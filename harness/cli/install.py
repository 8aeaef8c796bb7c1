"""The command that installs what a described system needs: install."""

from pathlib import Path
from typing import Annotated

import typer

from tribunal.clusters.systems.description import BadSystem
from tribunal.harness.terminal import echo


def install(system: Annotated[Path, typer.Argument(help="Its system.toml.")]) -> None:
    """Run the command that a system.toml has under `install`, on this machine or on each of its hosts. Runs never do.

    Exit code 0: installed; 3: the command failed, or a host cannot be reached; 64: the file has none.
    """
    from tribunal.clusters.systems.installing import installed

    try:
        installed(system, lambda line: echo(line, err=True))
    except BadSystem as problem:
        raise typer.BadParameter(str(problem)) from None
