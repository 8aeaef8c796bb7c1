"""The page that publishes a campaign: what was claimed of which system, how hard it was tried, what was found, what was not tried.

Everything that can be counted is counted from the runs; what cannot (the system's name, what is not covered) comes from
a small file, and what it leaves out is said to be unsaid. A reader needs no trust: each run's evidence is beside the page.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.plain_words import LOSSES, acknowledged, calls_words, judged_calls
from tribunal.results.report import environment
from tribunal.results.report.index import Index, RunRow, index
from tribunal.results.report.rules import RuleInWords, rules_of
from tribunal.results.report.simulation import simulation_of
from tribunal.results.sensitivity import measured, total
from tribunal.results.verdict import RunVerdict, Verdict, load

MOST_NAMED: Final = 30
UNKNOWN: Final = "How many anomalies the judge would have seen in these runs is not known: none were put into copies of their recordings"


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a publisher says of a campaign; plain text, shown as text."""

    campaign: str
    system: str
    version: str
    summary: str = ""
    configuration: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


class FaultCount(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault over all runs: how often it was injected, provably took effect, provably healed."""

    kind: str
    about: str
    injected: int
    took_effect: int
    healed: int


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A property over all runs: in how many it had something to look at, and in how many of its cells (partitions) all of its inputs."""

    name: str
    about: str
    runs: int
    cells: int
    judged: int


class Sentence(msgspec.Struct, frozen=True):
    """A sentence of the abstract; `rules`: those that it goes on with, each in words and linked."""

    words: str
    rules: list[RuleInWords] = []


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page needs; `bound_95`: at most this share of runs has a violation, with 95 % confidence.

    What is counted is of `counted` runs: those that have an answer and no known bug switched on.
    """

    statement: Statement
    index: Index
    abstract: list[Sentence]
    claims: list[Claim]
    unjudged: list[Claim]
    faults: list[FaultCount]
    judged: dict[str, int]
    counted: int
    clusters: dict[str, int]
    hours: float
    bound_95: float
    permitted: list[RuleInWords]
    made_with: dict[str, str]
    evidence: dict[str, tuple[str, str]]


def write(
    folder: Path, statement: Statement, *, claims: Sequence[Claim], faults: Mapping[str, str],
    evidence: Mapping[str, tuple[str, str]], bound: float, target: Path, made_with: Mapping[str, str],
) -> Path:  # fmt: skip
    """Write index.html of a campaign into `target`.

    folder:    the runs.
    claims:    what the properties had to look at in these runs; `faults`: kind of fault -> what it does, in words.
    evidence:  run's place -> (bundle's path below the page's folder, its sha256).
    bound:     the 95 % bound over these runs.
    """
    content = campaign(folder, statement, claims, faults, evidence, bound, made_with)
    path = target / "index.html"
    template = environment().get_template("campaign.html.j2")
    path.write_text(template.render(campaign=content, index=content.index, most=MOST_NAMED), encoding="utf-8")
    return path


def campaign(
    folder: Path, statement: Statement, claims: Sequence[Claim], faults: Mapping[str, str],
    evidence: Mapping[str, tuple[str, str]], bound: float, made_with: Mapping[str, str],
) -> Campaign:  # fmt: skip
    """Count a folder of runs."""
    content = index(folder, most=None)
    own = counted(content.runs)
    verdicts = [load(folder / run.place / "verdict.json") for run in own]
    hours = sum(_seconds(folder / run.place) for run in own) / 3600
    return Campaign(
        statement=statement,
        index=content,
        abstract=_abstract(statement, content, verdicts, hours, bound),
        claims=[one for one in claims if one.runs],
        unjudged=[one for one in claims if not one.runs],
        faults=_faults(verdicts, faults),
        judged=_judged(verdicts),
        counted=len(own),
        clusters=dict(Counter(run.cluster for run in own)),
        hours=hours,
        bound_95=bound,
        permitted=rules_of(found for verdict in verdicts for found in verdict.permitted),
        made_with=dict(made_with),
        evidence=dict(evidence),
    )


def counted(runs: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs that count: with an answer, and without a known bug switched on."""
    answers = (Verdict.PASS, Verdict.PERMITTED, Verdict.VIOLATION)
    return [run for run in runs if not run.mutants and run.verdict in answers]


def clean_and_violating(runs: Sequence[RunRow]) -> tuple[int, int]:
    """Return how many runs can be counted for the bound, and how many of them violate."""
    own = counted(runs)
    return len(own), sum(run.verdict == Verdict.VIOLATION for run in own)


def _abstract(
    statement: Statement, content: Index, own: Sequence[RunVerdict], hours: float, bound: float
) -> list[Sentence]:
    """Return the campaign in a few sentences that can be quoted: each figure is counted from these runs."""
    if not own:
        return [Sentence("No run of this campaign has an answer: it says nothing of the system.")]
    faults = [fault for verdict in own for fault in verdict.test.faults]
    effective = sum(fault.took_effect is True for fault in faults)
    kinds = len({fault.kind for fault in faults})
    lived = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    promised = sum(sum(one.count for one in verdict.violations if one.kind in LOSSES) for verdict in own)
    bad = sum(verdict.verdict is Verdict.VIOLATION for verdict in own)
    records, calls = sum(map(acknowledged, own)), judged_calls(_judged(own))
    done = [f"{records:,} records were acknowledged"] if records or not calls else []
    done += [f"{calls_words(calls)} were judged"] if calls else []
    kept = "No promise was broken: no record that had to survive was lost." if records else "No promise was broken."
    gone = [one for verdict in own for one in verdict.permitted if one.kind in LOSSES]
    said = [
        Sentence(
            f"{statement.system}, version {statement.version}, was run {len(own)} {'time' if len(own) == 1 else 'times'}, {lived} in all, while {effective:,} of "
            f"{len(faults):,} injected faults of {kinds} kinds provably took effect; {' and '.join(done)}."
        ),
        Sentence(_broken(bad, promised) if bad else kept),
    ]
    if gone:
        words = f"{sum(one.count for one in gone):,} records were lost, each for a reason that permits it:"
        said.append(Sentence(words, rules_of(gone)))
    said.append(
        Sentence(
            f"With 95 % confidence at most {100 * bound:.3g} % of runs like these have a violation that these checks can see."
        )
    )
    said.append(Sentence(_seen(content, records=records, calls=bool(calls))))
    return said


def _seen(content: Index, *, records: int, calls: bool) -> str:
    """Say how much of what is wrong the judge would have seen, by which measurement; or that nobody knows it of these runs."""
    own = content.anomalies
    if own.injected:
        recordings = f"{content.measured_in} recording{'' if content.measured_in == 1 else 's'}"
        return f"Of {own.injected:,} anomalies that were put into copies of {recordings} of this campaign, the judge saw {own.seen:,}."
    if calls and not records:
        return f"{UNKNOWN}, and for calls on objects nobody has measured it elsewhere (tribunal calibrate knows logs)."
    elsewhere = measured()
    known = total(elsewhere.figures.values())
    return (
        f"{UNKNOWN}. In {elsewhere.recordings} recordings of replog, the log that comes with the judge, it saw {known.seen:,} of {known.injected:,} "
        f"(tribunal calibrate, commit {elsewhere.commit})."
    )


def _broken(bad: int, promised: int) -> str:
    what = f"{promised:,} records that had to survive were lost" if promised else "something was seen that must not be"
    return f"In {bad} of these runs a promise was broken: {what}."


def _faults(verdicts: Sequence[RunVerdict], about: Mapping[str, str]) -> list[FaultCount]:
    faults = [fault for verdict in verdicts for fault in verdict.test.faults]
    kinds = Counter(fault.kind for fault in faults)
    return [
        FaultCount(
            kind=kind,
            about=about.get(kind.replace("_", "-"), ""),
            injected=count,
            took_effect=sum(fault.took_effect is True for fault in faults if fault.kind == kind),
            healed=sum(fault.healed is True for fault in faults if fault.kind == kind),
        )
        for kind, count in sorted(kinds.items())
    ]


def _judged(verdicts: Sequence[RunVerdict]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for verdict in verdicts:
        sums.update(verdict.judged)
    return dict(sums)


def _seconds(run_dir: Path) -> float:
    """Return how long a run's cluster ran: by its own clock where it was simulated, by its last phase otherwise."""
    if (simulation := simulation_of(run_dir)) is not None:
        return simulation.simulated_ns / 1e9
    from tribunal.results.recording import DamagedRecording
    from tribunal.results.store import Recording

    try:
        ends = Recording.open(run_dir, compare=False).table("phases", columns=["end_ns"])["end_ns"].to_pylist()
    except DamagedRecording:
        return 0.0
    return max((end for end in ends if end is not None), default=0) / 1e9
