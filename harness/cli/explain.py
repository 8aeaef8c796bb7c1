"""The command `explain`: the story of each lost or rewound record."""

from pathlib import Path
from typing import Annotated, Final

import typer

from tribunal.harness.cli.usage import must_hold_run
from tribunal.harness.terminal import as_json, echo
from tribunal.results.history import is_history
from tribunal.results.verdict import PERMITTED_TABLE

STORIES: Final = 5


def explain(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of any recording.", exists=True, file_okay=False)],
    offset: Annotated[int | None, typer.Option(help="Only what was found at this offset.")] = None,
    stories: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = STORIES,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Show each lost or rewound record's story: who took it, had it, acknowledged it, who led, who cut it away by whose order."""
    from tribunal.harness.evidence import explain as explaining

    must_hold_run(run)
    if is_history(run):
        _history(run, stories, json=json)
        return
    found = list(explaining.explained(run, at_offset=offset))
    if json:
        echo(as_json(found[:stories]))
        return
    for number, one in enumerate(found[:stories]):
        if number:
            echo("")
        for line in explaining.lines(one):
            echo(line)
    every = run / PERMITTED_TABLE
    if every.is_file():
        echo(f"\nevery permitted loss with its rule and the event that excuses it: {every}")
    if not found:
        echo("nothing was lost and nothing went back: there is no story to show")
    elif len(found) > stories:
        echo(f"\n{len(found) - stories} more; --stories {len(found)} shows them all")


def _history(run: Path, stories: int, *, json: bool) -> None:
    """Show what is known of an imported history's findings: the operations that they name."""
    from tribunal.harness.evidence import explain as explaining

    found = explaining.of_history(run)
    if json:
        content = [{"finding": finding, "operations": operations} for finding, operations in found[:stories]]
        echo(as_json(content))
        return
    for finding, operations in found[:stories]:
        for line in explaining.lines_of_history(finding, operations):
            echo(line)
    if not found:
        echo("nothing is wrong with it: there is no story to show")
    elif len(found) > stories:
        echo(f"\n{len(found) - stories} more; --stories {len(found)} shows them all")
