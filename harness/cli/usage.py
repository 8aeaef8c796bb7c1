"""What several commands take alike, and how what cannot be taken is said."""

from typing import cast

import typer

# (typer brings its own click: its usage errors are reached through what it exports.)
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])


def spark_at(master: str | None, remote: str | None) -> str | None:
    """Return the one Spark that was asked for; None: this machine. Raises `UsageError`."""
    for option, given, beginnings in (("master", master, ("local", "spark://")), ("remote", remote, ("sc://",))):
        if given is not None and not given.startswith(beginnings):
            raise UsageError(f"--{option} {given!r}: begins with {' or '.join(beginnings)}")
    if master is not None and remote is not None:
        raise UsageError("--master and --remote: one of them")
    return master or remote
