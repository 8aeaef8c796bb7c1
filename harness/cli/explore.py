"""The command of small worlds: explore."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import mutant_named, nearest
from tribunal.harness.cli.complete import named
from tribunal.harness.cli.usage import must_not_be_file
from tribunal.harness.explore import atlas, written
from tribunal.harness.explore.engine import explore
from tribunal.harness.scenario import BadScenario, duration
from tribunal.harness.switches import switched_on
from tribunal.harness.terminal import as_json, echo
from tribunal.results.explored import Bounds


def explore_(  # noqa: PLR0917 - options
    world: Annotated[str, typer.Argument(help=f"Which world: {', '.join(atlas.ABOUT)}.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting of the world: name=value.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Look no farther than this from the start.")] = 20,
    states: Annotated[int, typer.Option(min=1, help="End with so many states.")] = 1_000_000,
    time: Annotated[str, typer.Option(help="End after so long, e.g. 10m.")] = "10m",
    invariant: Annotated[list[str] | None, typer.Option(help="Look at this one alone, e.g. I6; default: all.")] = None,
    mutant: Annotated[
        list[str] | None,
        typer.Option(help="Switch a known bug back on, e.g. M10.", autocompletion=named("mutants")),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for explored.json, explored.html, scenario.yaml.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Explore a small world exhaustively: every interleaving up to a bound, the shortest way to a broken invariant."""
    if out is not None:
        must_not_be_file("--out", out)
    mutants = tuple(mutant_named(name) for name in mutant or [])
    bounds = Bounds(steps=steps, states=states, seconds=duration(time, ClusterSpec()).most_ms / 1000)
    with switched_on(mutants):
        made, settings = atlas.world(world, _given(set_ or []))
        for name in invariant or ():
            if name not in made.invariants:  # nothing would be looked at, and nothing would be broken
                raise nearest(f"invariant of world {world}", name, made.invariants)
        found = explore(
            made, bounds, name=world, settings=settings, mutants=mutants, only=tuple(invariant or []), notify=_notify
        )
    if out is not None:
        written.write(found, out)
    echo(as_json(found) if json else written.text(found))
    if out is not None and not json:
        echo(f"→ {'  '.join(str(out / name) for name in written.names(found))}")
    raise typer.Exit(0 if found.counterexample is None else 1)


def _given(settings: list[str]) -> Mapping[str, str]:
    given: dict[str, str] = {}
    for one in settings:
        name, equals, value = one.partition("=")
        if not equals:
            raise BadScenario(f"--set {one!r}: write name=value")
        given[name.strip()] = value.strip()
    return given


def _notify(depth: int, states: int, new: int) -> None:
    echo(f"{depth:>3} steps  {states:>9} states, {new} new", err=True)
