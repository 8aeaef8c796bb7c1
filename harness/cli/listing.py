"""The command that says what there is: list."""

from typing import Annotated

import typer

from tribunal.harness.catalog import KINDS, listing
from tribunal.harness.cli.complete import kinds
from tribunal.harness.terminal import as_json, echo

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


def list_(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS), autocompletion=kinds)],
    json: Json = False,
) -> None:
    """List what there is: scenarios, faults, workloads, checkers, mutants or clusters."""
    found = listing(kind)
    if json:
        echo(as_json(found))
        return
    width = max(map(len, found), default=0)
    for name, about in found.items():
        echo(f"{name:<{width}}  {about}")
