"""The commands of past failures: findings add, run, list."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from tribunal.harness.campaign import findings as known
from tribunal.harness.campaign.confirm import plan_of
from tribunal.harness.cli.repeated import conducted
from tribunal.harness.plan import in_simulator, read_plan
from tribunal.harness.scenario import BadScenario
from tribunal.harness.terminal import as_json, echo
from tribunal.results.scratch import Scratch
from tribunal.results.signature import Signature, of_violation, read
from tribunal.results.verdict import EXIT_ERROR, Verdict, load

app = typer.Typer(no_args_is_help=True, add_completion=False)
Folder = Annotated[Path, typer.Option(help="Folder of the findings.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
NO_VIOLATION: Final = "{run}: found nothing; give --signature, or a run with a violation"


@app.callback()
def findings() -> None:
    """Past failures, kept as plans and run again."""


@app.command()
def add(
    run: Annotated[Path, typer.Argument(help="Folder of a run that found something, or a plan.json.")],
    name: Annotated[str, typer.Option(help="Small letters, digits and hyphens; the file's name.")],
    about: Annotated[str, typer.Option(help="What was wrong, in one sentence.")],
    signature: Annotated[str | None, typer.Option(help="What it showed; default: the run's first finding.")] = None,
    state: Annotated[str, typer.Option(help="fixed: must not be found; known: must still be found.")] = "fixed",
    max_runs: Annotated[
        int, typer.Option(min=1, help="Seeds that may be tried until a known one shows; of a described system: runs.")
    ] = 1,
    folder: Folder = known.FOLDER,
    json: Json = False,
) -> None:
    """Keep a run's plan (the shrunk one, if there is one) with what it showed."""
    if state not in ("fixed", "known"):
        raise BadScenario(f"state {state!r}: fixed or known")
    path = plan_of(run)
    plan = read_plan(path)
    finding = known.of_plan(
        plan if plan.spec.system else in_simulator(path), name=name, about=about, signature=str(first_signature(run) if signature is None else signature_named(signature)),
        state="fixed" if state == "fixed" else "known", max_runs=max_runs,
    )  # fmt: skip
    kept = known.add(finding, folder)
    echo(as_json({"finding": name, "file": str(kept)}) if json else str(kept))


@app.command("run")
def run_(
    names: Annotated[list[str] | None, typer.Argument(help="Which; default: all.")] = None,
    folder: Folder = known.FOLDER,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once, of simulated runs.")] = os.cpu_count() or 1,
    out: Annotated[
        Path, typer.Option(help="Folder for runs of described systems; those that found something stay.")
    ] = Path("runs"),
    json: Json = False,
) -> None:
    """Run findings again: what was fixed must stay fixed, what is known must still show.

    Those of a described system are run on its own nodes, one after the other.
    """
    wanted = known.chosen(names or [], folder)
    if not wanted:  # nothing was run again, and that must not look as if nothing had come back
        raise BadScenario(f"no findings in {folder}; `tribunal findings add` puts some there")

    def notify(result: known.Rerun) -> None:
        if not json:
            echo(result.line())
            sys.stdout.flush()

    with Scratch("findings", in_memory=True) as scratch:
        real = known.RealRuns(conducted, out)
        results = known.rerun(wanted, jobs=jobs, scratch=scratch, real=real, notify=notify)
    if json:
        echo(as_json(results))
    raise typer.Exit(exit_code_of(results))


@app.command("list")
def list_(folder: Folder = known.FOLDER, json: Json = False) -> None:
    """List the findings that are kept."""
    found = known.all_findings(folder)
    if json:
        echo(as_json(found))
        return
    for finding in found:
        echo(f"{finding.state:<6} {finding.name:<36} {finding.signature}\n       {finding.about}")
    echo(f"{len(found)} findings in {folder}")


def exit_code_of(results: list[known.Rerun]) -> int:
    """Return 1 where something is wrong with the code under test, 3 where the harness cannot find any more what it could."""
    if any(result.is_bad for result in results):
        return 1
    return EXIT_ERROR if any(result.outcome in ("gone", "error") for result in results) else 0


def signature_named(text: str) -> Signature:
    """Return the signature that a user names, also as it was called before there were kinds; `BadScenario` when it is none."""
    try:
        return read(text)
    except ValueError as problem:
        raise BadScenario(str(problem)) from None


def must_have_found(run: Path) -> None:
    """Raise `BadScenario` for a run that passed: to run it again for what it showed takes time and finds that there was nothing."""
    stated = run / "verdict.json"
    if stated.is_file() and load(stated).verdict in (Verdict.PASS, Verdict.PERMITTED):
        raise BadScenario(NO_VIOLATION.format(run=run))


def first_signature(run: Path) -> Signature:
    """Return what a run showed first, as a sweep calls it; `BadScenario` when it showed nothing."""
    from tribunal.harness.simulated import FILE, known_of

    if not run.exists():
        raise BadScenario(f"{run}: no such run")
    folder = run if run.is_dir() else run.parent
    if (folder / FILE).is_file() and (violated := known_of(folder).violated) is not None:
        return of_violation(violated)
    if (folder / "verdict.json").is_file():
        for found in load(folder / "verdict.json").violations:
            return found.signature
    raise BadScenario(NO_VIOLATION.format(run=folder))
