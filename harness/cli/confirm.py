"""The command that tries a simulated finding on real nodes: confirm."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tribunal.harness.campaign.confirm import Attempt, confirmed
from tribunal.harness.cli.complete import named
from tribunal.harness.plan import Plan
from tribunal.harness.terminal import as_json, echo
from tribunal.results.confirmation import keep
from tribunal.results.verdict import EXIT_INTERRUPTED, RunVerdict


def confirm(
    run: Annotated[Path, typer.Argument(help="Folder of a run that found something, or its plan.json.")],
    cluster: Annotated[
        str, typer.Option(help="Kind of cluster with real nodes.", autocompletion=named("clusters"))
    ] = "processes",
    runs: Annotated[int, typer.Option("-n", "--runs", min=1, help="How many runs.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder that the runs' folders are made in.")] = Path("runs"),
    engine: Annotated[str, typer.Option(help="Who judges: spark, inline or spark-sql.")] = "inline",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Plain lines also on a terminal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Run a simulated finding's plan on real nodes: k of N runs show it, with the 95 % interval.

    The rate stays beside the run, and its report has it. Exit code 1: shown at least once; 0: never; 2: no run was a real test; 3: every run broke.
    """
    from tribunal.harness.cli.session import conduct
    from tribunal.results.report import write

    def one(plan: Plan) -> tuple[Path, RunVerdict] | None:
        judged = conduct(plan, out, engine, quiet=quiet)
        return None if judged is None else (judged.run_dir, judged.verdict)

    def notify(attempt: Attempt) -> None:
        if not json:
            echo(attempt.line())
            sys.stdout.flush()

    found = confirmed(run, cluster, runs, one, notify)
    if found is None:
        raise typer.Exit(EXIT_INTERRUPTED)
    echo(as_json(found) if json else found.line())
    if run.is_dir():
        keep(found.rate, run)
        write(run)
    raise typer.Exit(found.exit_code)
