"""The command of guided search."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import msgspec
import typer

from tribunal.clusters.simulated.guards import counted as counted_guards
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.corpus import Corpus
from tribunal.harness.campaign.search import IDLE_RUNS, ROUND, Ran, Search, Searched, keep
from tribunal.harness.campaign.sweep import Keeper, Sweep
from tribunal.harness.catalog import mutant_named, scenario_file
from tribunal.harness.cli.cluster import Jobs, Master, PythonThere, Remote, RoundSize, WithPackages, place, runner_at
from tribunal.harness.cli.complete import named
from tribunal.harness.cli.simulate import finding_lines
from tribunal.harness.cli.stored import Kept
from tribunal.harness.scenario import BadScenario, Scenario, duration, load
from tribunal.harness.terminal import as_json, echo
from tribunal.results.scratch import Scratch
from tribunal.results.signature import texts
from tribunal.results.verdict import EXIT_INTERRUPTED, counted, worst

SAID_EVERY_S: Final = 10
CORPUS: Final = Path("runs/corpus")


def search(  # noqa: PLR0917 - options
    scenarios: Annotated[
        list[str], typer.Argument(help="Names of scenarios, or .yaml files.", autocompletion=named("scenarios"))
    ],
    budget: Annotated[str | None, typer.Option(help="Begin no more runs after this; default: 10m.")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="End after so many runs: repeatable on any machine.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every choice.")] = 0,
    corpus: Annotated[str, typer.Option(help="Folder of the corpus, or its URL: begun or continued.")] = str(CORPUS),
    jobs: Jobs = None,
    round_size: RoundSize = ROUND,
    mutant: Annotated[
        list[str] | None, typer.Option(help="Switch a known bug back on, e.g. M44.", autocompletion=named("mutants"))
    ] = None,
    mode: Annotated[str | None, typer.Option(help="kraft or zookeeper; default: the scenario's.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs that found something.")] = Path("runs/search"),
    master: Master = None,
    remote: Remote = None,
    python: PythonThere = "",
    with_packages: WithPackages = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Search the simulator for new states: runs that reach some are kept, and their faults moved, added, aimed anew."""
    where = place(master, remote, python, with_packages=with_packages)
    wanted = _scenarios(scenarios, mode)
    if budget is None and runs is None:
        budget = "10m"
    budget_s = None if budget is None else duration(budget, ClusterSpec()).most_ms / 1000
    screen, keeper, interrupted = Screen(", ".join(scenarios)), Keeper(out), False
    with Scratch("corpus") as copy, Scratch("search", in_memory=True) as scratch:
        begun = Kept(corpus, copy)
        kept = Corpus(begun.folder)

        def notify(ran: Ran, searched: Searched) -> None:
            screen.notify(ran, searched, keep(keeper, ran))

        try:
            with counted_guards() as guards, runner_at(where, jobs, guards) as runner:
                found = Search(
                    wanted, kept, seed=seed, runner=runner, scratch=scratch, round_size=round_size, notify=notify,
                    mutants=tuple(mutant_named(name) for name in mutant or []),
                )  # fmt: skip
                try:
                    found.run(runs=runs, budget_s=budget_s)
                except KeyboardInterrupt:
                    interrupted = True
        finally:  # also of a search whose cluster went away
            place_of_corpus = begun.put(kept.runs, CORPUS)
    _report(found.searched, found.account, keeper, place_of_corpus, json=json, interrupted=interrupted)
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    raise typer.Exit(worst(result.verdict for result in found.account.results).exit_code(strict=False))


def _scenarios(names: Sequence[str], mode: str | None) -> list[Scenario]:
    wanted = [load(scenario_file(name), {} if mode is None else {"cluster.mode": mode}) for name in names]
    if twice := [name for name, count in Counter(one.name for one in wanted).items() if count > 1]:
        raise BadScenario(f"scenario {twice[0]} is named twice")
    return wanted


class Screen:
    """Says what was found, and now and then how far the search is."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._said = time.monotonic()
        self._said_exhausted = False

    def notify(self, ran: Ran, searched: Searched, folder: Path | None) -> None:
        """Take note of a run."""
        if folder is not None:
            self._say(f"found    run {ran.number} ({ran.chosen.how}): {'; '.join(texts(ran.result.signatures))}")
            self._say(f"         tribunal shrink {quote(str(folder))}")
        if searched.is_exhausted and not self._said_exhausted:
            self._say(exhausted(searched))
        self._said_exhausted = searched.is_exhausted
        if time.monotonic() - self._said > SAID_EVERY_S:
            self._said = time.monotonic()
            self._say(f"{self._title}: {headline(searched)}")

    def _say(self, line: str) -> None:
        echo(line, err=True)


def headline(searched: Searched) -> str:
    """Say in a line how far a search is."""
    crossed = f", {searched.crossed} of {searched.pairs} pairs crossed" if searched.crossed else ""
    guards = f", {searched.guards} guards" if searched.guards else ""
    return (
        f"{searched.runs} runs, {searched.new} new states ({searched.new_per_minute:.0f} a minute), "
        f"{searched.states} in the corpus, the last {searched.idle_runs} runs ago, {searched.cpu_s:.0f} s of CPU{crossed}{guards}"
    )


def exhausted(searched: Searched) -> str:
    """Say that going on is of no use."""
    return f"nothing new in {searched.idle_runs} runs (more than {IDLE_RUNS}): other scenarios or workloads would lead further"


def _report(searched: Searched, account: Sweep, keeper: Keeper, corpus: str, *, json: bool, interrupted: bool) -> None:
    if json:
        content = {
            **msgspec.structs.asdict(searched),
            "new_per_minute": round(searched.new_per_minute, 1),
            "verdicts": dict(account.verdicts),
            "findings": {str(one): [result.name for result in found] for one, found in account.findings.items()},
            "kept": {str(one): folders for one, folders in keeper.folders.items()},
            "corpus": corpus,
            "interrupted": interrupted,
        }
        echo(as_json(content))
        return
    if interrupted:
        echo("interrupted; what had ended by then:")
    echo(headline(searched))
    echo(counted(account.verdicts))
    for line in finding_lines(account):
        echo(line)
    for signature, folders in keeper.folders.items():
        echo(f"kept     {signature}: {'  '.join(folders)}")
    if searched.is_exhausted:
        echo(exhausted(searched))
    echo(f"corpus   {corpus}")
