"""The command that shows known faults where they were real: museum."""

from pathlib import Path
from typing import Annotated

import typer

from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.museum import Tour, chosen
from tribunal.harness.campaign.museum_entries import ENTRIES
from tribunal.harness.plan import Plan
from tribunal.harness.scenario import BadScenario, duration
from tribunal.harness.terminal import as_json, echo
from tribunal.results.museum import FILE, summary
from tribunal.results.report import museum as page
from tribunal.results.verdict import EXIT_INTERRUPTED, RunVerdict


def museum(
    only: Annotated[list[str] | None, typer.Option(help="An entry, e.g. KIP-903, or several; default: all.")] = None,
    budget: Annotated[str, typer.Option(help="Time for all of it, e.g. 60m.")] = "90m",
    runs: Annotated[int, typer.Option("-n", "--runs", min=1, help="How many runs of each side, if time allows.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of each side's first run.")] = 1,
    out: Annotated[Path, typer.Option(help="New folder for index.html, museum.json, runs and evidence.")] = Path(
        "museum"
    ),
    engine: Annotated[str, typer.Option(help="Who judges: spark, inline or spark-sql.")] = "inline",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Show known faults on the releases that have them, beside those that have not, our own log and its mutants.

    Exit code 0: every side as expected; 1: one is not; 2: of one nothing is known, for lack of time, jars or Java.
    """
    from tribunal.harness.cli.session import conduct

    if (out / FILE).exists():
        raise BadScenario(f"{out}: there is a museum already; give another folder with --out")

    def one(plan: Plan, folder: Path) -> tuple[Path, RunVerdict] | None:
        judged = conduct(plan, folder, engine, quiet=True)
        return None if judged is None else (judged.run_dir, judged.verdict)

    def notify(line: str) -> None:
        echo(line, err=True)

    tour = Tour(
        chosen(ENTRIES, only or ()),
        budget_s=duration(budget, ClusterSpec()).most_ms / 1000,
        runs=runs,
        first_seed=first_seed,
        out=out,
        conduct=one,
        notify=notify,
    )
    interrupted = False
    try:
        tour.show()
    except KeyboardInterrupt:
        interrupted = True
    path = page.write(tour.museum, out)
    echo(as_json(tour.museum) if json else summary(tour.museum))
    if not json:
        echo(f"→ {path}")
    raise typer.Exit(EXIT_INTERRUPTED if interrupted else tour.museum.exit_code)
