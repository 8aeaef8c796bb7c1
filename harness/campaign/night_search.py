"""The guided search of a night: it goes on from the corpus that the last night has left, and leaves its own to the next one."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tribunal.harness.campaign.corpus import Corpus
from tribunal.harness.campaign.runners import Runner
from tribunal.harness.campaign.search import Ran, Search, Searched
from tribunal.harness.campaign.sweep import Sweep
from tribunal.harness.scenario import BadScenario, Scenario
from tribunal.results.night import Guided, bound_of, part_of_name

FOLDER: Final = "corpus"


def folder_of(mode: str, shard: str) -> str:
    """Return the name of a corpus below `FOLDER`: each mode and each shard (`i/n`) has its own."""
    return f"{mode}{part_of_name(shard)}"


def begun(out: Path, mode: str, shard: str, before: Path | None, note: Callable[[str], None]) -> Corpus:
    """Open a night's corpus of a mode: its own where it has one, else a copy of the last night's.

    before:  the folder of the last night's corpora; None: there is none.
    note:    takes a line about one that cannot be gone on with, which stays beside the new one.
    """
    folder = out / FOLDER / folder_of(mode, shard)
    former = None if before is None else before / folder.name
    if not folder.exists() and former is not None and former.is_dir():
        shutil.copytree(former, folder)
    try:
        return Corpus(folder)
    except BadScenario as problem:
        aside = folder.with_name(f"{folder.name}-not-used")
        shutil.rmtree(aside, ignore_errors=True)
        folder.replace(aside)
        note(f"search in {mode} mode began anew: {problem}; the old corpus is in {aside}")
        return Corpus(folder)


def search_for(
    scenarios: Sequence[Scenario],
    corpus: Corpus,
    *,
    seed: int,
    budget_s: float,
    runner: Runner,
    scratch: Path,
    account: Sweep,
    notify: Callable[[Ran, Searched], None],
) -> None:
    """Search from these scenarios for a time in seconds; what runs show goes to `account` and, run by run, to `notify`."""
    search = Search(scenarios, corpus, seed=seed, runner=runner, scratch=scratch, notify=notify, account=account)
    search.run(budget_s=budget_s)


def came_to(before: Guided, searched: Searched, account: Sweep) -> Guided:
    """Return what a search has come to by now, of all its runs that have ended."""
    verdicts = dict(Counter(result.verdict.value for result in account.results))
    return replace(
        before,
        runs=searched.runs,
        new=searched.new,
        states=searched.states,
        seconds=searched.seconds,
        cpu_s=searched.cpu_s,
        verdicts=verdicts,
        bound_95=bound_of(verdicts),
    )
