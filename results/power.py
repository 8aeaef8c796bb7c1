"""What became of known bugs that were switched on: which were found, by what kind of search, how soon, and why others were not.

A file of measurements holds one for each bug and kind of search, the latest. Why a bug was missed is what somebody found out by reading the run;
it is kept until the bug is found. docs/power.md is the file as a page (`tools/generate_power.py`).
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.signature import Signature
from tribunal.results.verdict import Verdict
from tribunal.results.whole_files import put


class By(StrEnum):
    """What sought a bug."""

    OWN = "own"  # the scenario that its file names
    SWARM = "swarm"  # scenarios of random faults alone
    SEARCH = "search"  # the guided search, without scenarios that were written for known bugs


class Missed(StrEnum):
    """Why a bug was not found."""

    NO_FAULT = "no-fault"
    TOO_RARE = "too-rare"
    NOT_RECORDED = "not-recorded"
    NOT_JUDGED = "not-judged"
    HARMLESS = "harmless"


WORDS: Final = {
    Missed.NO_FAULT: "the fault never comes",
    Missed.TOO_RARE: "the schedule is too rare",
    Missed.NOT_RECORDED: "nothing records it",
    Missed.NOT_JUDGED: "nobody judges it",
    Missed.HARMLESS: "something else in the product prevents the harm",
}


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one bug.

    by:           the kind of search; None for a scenario that somebody named.
    seen_by:      the first finding's signatures in their text form, figures as `name a -> b`.
    what:         the gravest of them; None: a figure, or nothing.
    seeds:        how many were run until then, with the finding's own; verdicts: how many of them got which.
    seconds:      until then, by the clock; cpu_seconds: of all processes, with the runs without the bug that the finding was
                  compared with; 0 in measurements from before they were counted. Runs that only say why a bug was missed are not in it.
    compared:     of a bug that was missed: how many of its runs were compared with the same run without it, by their trace hashes.
    changed:      how many of them went otherwise: in all others the bug never came to do anything.
    why, because: of a bug that was missed, as far as somebody has looked; kept with the measurements.
    """

    mutant: str
    scenario: str
    found: bool
    by: By | None = None
    seen_by: list[str]
    what: Signature | None = None
    seed: int | None
    seeds: int
    verdicts: dict[str, int] = {}
    seconds: float
    cpu_seconds: float = 0
    run_dir: str = ""
    note: str = ""
    compared: int = 0
    changed: int = 0
    why: Missed | None = None
    because: str = ""


def read(path: Path) -> list[Power]:
    """Return what a file of measurements holds; nothing where there is none yet."""
    return msgspec.json.decode(path.read_bytes(), type=list[Power]) if path.exists() else []


def write(path: Path, measured: Iterable[Power]) -> None:
    """Write a file of measurements, to be read by people, too; whole or not at all: it holds what hours of runs came to."""
    lines = b",\n".join(msgspec.json.encode(one) for one in measured)
    put(path, b"[\n" + lines + b"\n]\n")


def brought_up_to_date(kept: Sequence[Power], measured: Sequence[Power]) -> list[Power]:
    """Return what is known with new measurements in the place of former ones; a reason stays while the bug is missed.

    A bug for which no time was left was not measured.
    """
    known = {(one.mutant, one.by): one for one in kept}
    for one in (one for one in measured if one.seeds):
        former = known.get((one.mutant, one.by))
        new = msgspec.structs.replace(one, run_dir="")
        if former is not None and not one.found:
            new = msgspec.structs.replace(new, why=former.why, because=former.because)
        known[one.mutant, one.by] = new
    order = list(By)
    return sorted(known.values(), key=lambda one: (one.mutant, -1 if one.by is None else order.index(one.by)))


def of_shards(shards: Iterable[tuple[Iterable[Power], Collection[str]]]) -> list[Power]:
    """Return the measurements of a night's shards as one: each knows its own bugs anew, and all others as they were before.

    shards:  what each wrote, and the bugs that it measured, its canaries.
    """
    kept, measured = list[Power](), list[Power]()
    for rows, own in shards:
        for one in rows:
            (measured if one.by is By.OWN and one.mutant in own else kept).append(one)
    return brought_up_to_date(kept, measured)


def not_measured(mutants: Sequence[str], kept: Sequence[Power], by: By) -> list[str]:
    """Return the bugs that this kind of search was not measured with."""
    known = {one.mutant for one in kept if one.by is by}
    return [mutant for mutant in mutants if mutant not in known]


def page(measured: Sequence[Power], about: dict[str, str]) -> str:
    """Return the table: a row a bug, a column a kind of search; and what is known of those that were missed.

    about:  what is wrong, by mutant, in the order of the rows.
    """
    known = {(one.mutant, one.by): one for one in measured}
    lines = ["| bug | what is wrong | its own scenario | the swarm alone | guided search |", "|---|---|---|---|---|"]
    for mutant, words in about.items():
        cells = [_cell(known.get((mutant, by))) for by in By]
        lines.append(f"| {_number(mutant)} | {words} | {' | '.join(cells)} |")
    lines += [
        "",
        *_totals(known, about),
        "",
        "| missed | by | recorded | why | as far as it was looked into |",
        "|---|---|---|---|---|",
    ]
    for mutant in about:
        for by in By:
            one = known.get((mutant, by))
            if one is not None and not one.found:
                why = "not looked into" if one.why is None else WORDS[one.why]
                lines.append(f"| {_number(mutant)} | {by} | {_recorded(one)} | {why} | {one.because} |")
    return "\n".join(lines) + "\n"


def _totals(known: dict[tuple[str, By | None], Power], about: dict[str, str]) -> list[str]:
    lines = []
    for by in By:
        measured = [one for mutant in about if (one := known.get((mutant, by))) is not None]
        counted = [one for one in measured if one.cpu_seconds]
        found = sum(one.found for one in measured)
        cpu_s = sum(one.cpu_seconds for one in counted)
        per_minute = 60 * sum(one.found for one in counted) / max(cpu_s, 1)
        broken = sum(one.verdicts.get(Verdict.ERROR, 0) for one in measured)
        unanswered = sum(one.verdicts.get(Verdict.INCONCLUSIVE, 0) for one in measured)
        compared = [one for one in measured if one.compared and not one.found]
        unreached = sum(not one.changed for one in compared)
        facts = f" Of {len(compared)} missed that were compared {unreached} were never reached." if compared else ""
        if measured:
            lines.append(
                f"- {by}: {found} of {len(measured)} found. {len(counted)} of them were measured in {cpu_s:,.0f} CPU seconds, {per_minute:.2f} bugs found "
                f"per CPU minute; beside verdicts {broken} runs ended as ERROR and {unanswered} as INCONCLUSIVE.{facts}"
            )
        else:
            lines.append(f"- {by}: not run.")
    return lines


def _cell(one: Power | None) -> str:
    if one is None:
        return "not run"
    seconds = f"{one.cpu_seconds:.0f} s" if one.cpu_seconds else f"{one.seconds:.0f} s by the clock"
    effort = f"{one.seeds} seed{'' if one.seeds == 1 else 's'}, {seconds}"
    broken = [
        f"{count} {name}" for name in (Verdict.ERROR, Verdict.INCONCLUSIVE) if (count := one.verdicts.get(name, 0))
    ]
    counted = ", ".join([effort, *broken])
    if not one.found:
        return f"**missed**: {one.scenario}, {counted}"
    return f"{one.scenario}: {_seen(one)}; {counted}"


def _seen(one: Power) -> str:
    seen = [text.removeprefix("invariant/") for text in one.seen_by]
    return f"`{seen[0]}`" + (f" and {len(seen) - 1} more" if len(seen) > 1 else "")


def _recorded(one: Power) -> str:
    """Return what the runs themselves say of a miss: whether the bug came to do anything at all."""
    if not one.compared:
        return "not compared"
    runs = f"{one.compared} run{'' if one.compared == 1 else 's'} compared"
    if not one.changed:
        return f"never reached: none of {runs} went otherwise with it"
    return f"reached, not seen: {one.changed} of {runs} went otherwise with it"


def _number(mutant: str) -> str:
    return mutant.partition("_")[0].upper()
