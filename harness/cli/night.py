"""The command of the night: nightly."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.nightly import Nightly, Shard, Terms, first_seed_of, read_config
from tribunal.harness.cli.session import conduct
from tribunal.harness.scenario import BadScenario, duration
from tribunal.results import night as nights
from tribunal.results.report.index import write as write_index
from tribunal.results.scratch import Scratch


def nightly(  # noqa: PLR0917 - options
    file: Annotated[Path, typer.Argument(help="What to run.")] = Path("nightly.yaml"),
    budget: Annotated[str, typer.Option(help="Time for all of it, e.g. 60m.")] = "60m",
    shard: Annotated[str, typer.Option(help="Part i of n, e.g. 2/4.")] = "1/1",
    first_seed: Annotated[int | None, typer.Option(min=0, help="Default: drawn from the date.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once; default: one a core.")] = os.cpu_count() or 1,
    last: Annotated[Path | None, typer.Option(help="Last night's nightly.json, to compare with.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for junit.xml, summary.md and runs.")] = Path("nightly"),
    engine: Annotated[str, typer.Option(help="Who judges runs on real nodes: spark, inline or spark-sql.")] = "spark",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Spend a fixed time as well as possible: past findings, canaries, sweeps, real nodes; JUnit and a summary."""
    config = read_config(file)
    former = None if last is None else _former(last)
    terms = Terms(
        budget_s=duration(budget, ClusterSpec()).most_ms / 1000,
        shard=_shard(shard),
        first_seed=first_seed_of(time.gmtime()) if first_seed is None else first_seed,
        jobs=jobs,
    )

    def notify(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    with Scratch("nightly", in_memory=True) as scratch:
        tonight = Nightly(
            config,
            terms=terms,
            base=file.parent,
            out=out,
            scratch=scratch,
            conduct=lambda plan, folder: conduct(plan, folder, engine, quiet=True),
            notify=notify,
        ).run()
    if former is not None:
        nights.compared(tonight, former)
    nights.save(tonight, out)
    if engine != "inline":
        _write_tables(tonight, out, None if last is None else last.parent, notify)
    write_index(out, None if config.findings is None else file.parent / config.findings)
    typer.echo(msgspec.json.encode(tonight).decode() if json else nights.summary(tonight))
    if not json:
        typer.echo(f"→ {out / 'junit.xml'}  {out / 'summary.md'}  {out / 'index.html'}")
    raise typer.Exit(tonight.exit_code)


def _shard(text: str) -> Shard:
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise BadScenario(f"shard {text!r}: write i/n, e.g. 2/4")
    return Shard(int(index), int(count))


def _write_tables(tonight: nights.Night, out: Path, before: Path | None, notify: Callable[[str], None]) -> None:
    """Write the night's tables by Spark; without one the night says so and is what it is."""
    from tribunal.checkers.spark import night_tables
    from tribunal.checkers.spark.java import NoJava
    from tribunal.checkers.spark.session import NoSpark, session

    try:
        with session() as spark:
            folders = night_tables.write(spark, [tonight], out, before)
    except (NoJava, NoSpark) as problem:
        notify(f"no tables     {problem}")
        return
    notify(f"tables       {', '.join(folders)} in {out / night_tables.FOLDER}")


def _former(path: Path) -> nights.Night:
    try:
        return nights.load(path)
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise BadScenario(f"{path}: not a nightly.json: {problem}") from None
