"""How well does the judge see: anomalies put into copies of recordings, one changed fact each, and each copy judged.

An anomaly is seen when its copy has a violation, in the anomaly's place, that the recording itself has not. What a copy says
otherwise explains the miss: the verdict, and every finding in that place that is new, with the rule and the event that excused it.
All is drawn from (recording, seed, class), so a figure does not depend on which other classes or runs were measured.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal.checkers.calibration.api import AnomalyClass, Injected, Injection, classes
from tribunal.checkers.calibration.case import Case
from tribunal.checkers.judge.verdict import check
from tribunal.results.copies import copied
from tribunal.results.recording import DamagedRecording
from tribunal.results.rows import table_of
from tribunal.results.sensitivity import Figure, total
from tribunal.results.store import Recording, recording_hash
from tribunal.results.verdict import Finding, RunVerdict, Verdict

if TYPE_CHECKING:
    from tribunal.checkers.spark.session import Prepared

TOGETHER: Final = {
    "spark": 12,
    "spark-sql": 4,  # their rows are in Java's memory at once
    "inline": 1,  # a job of its own costs nothing here, and whoever waits sees each one end
}
"""Copies that are judged in one job."""
SAID: Final = 4  # findings that explain a miss


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One injection and what became of it.

    seen_by:  property/kind of the violations that it made.
    instead:  of one that was not seen: the verdict, and what is new in its place.
    """

    run: str
    class_name: str
    injection: Injection
    verdict: str
    seen_by: list[str]
    instead: list[str]

    @property
    def seen(self) -> bool:
        """Whether the judge saw it."""
        return bool(self.seen_by)


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """All figures by class, as they are kept and compared; every class is named, also those without a place."""

    seed: int
    engine: str
    runs: list[str]
    figures: dict[str, Figure]
    lacking: dict[str, str]
    misses: list[Outcome]

    @property
    def total(self) -> Figure:
        """All classes together."""
        return total(self.figures.values())


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure: how many injections a class and run, drawn how, judged by whom."""

    per_class: int
    seed: int
    engine: str
    chosen: tuple[str, ...]


def measure(
    run_dirs: Sequence[Path],
    options: Options,
    scratch: Path,
    notify: Callable[[Outcome, int], None] = lambda outcome, count: None,
    prepared: "Prepared | None" = None,
    say: Callable[[str], None] = lambda line: None,
) -> Measure:
    """Put anomalies into copies of recordings, judge them, and add up.

    notify:  called with each outcome, and how many there are by now.
    say:     called with what begins now, before it takes its time.
    """
    known = classes()
    chosen = [known[name] for name in options.chosen or known]
    outcomes: list[Outcome] = []
    for number, run_dir in enumerate(run_dirs):
        # A folder of its own also where another run has this name: Spark keeps what it has read by the files' names.
        for outcome in _of_run(run_dir, chosen, options, scratch / str(number), prepared, say):
            outcomes.append(outcome)
            notify(outcome, len(outcomes))
    injected = Counter(outcome.class_name for outcome in outcomes)
    seen = Counter(outcome.class_name for outcome in outcomes if outcome.seen)
    return Measure(
        seed=options.seed,
        engine=options.engine,
        runs=[run_dir.name for run_dir in run_dirs],
        figures={one.name: Figure(injected=injected[one.name], seen=seen[one.name]) for one in chosen},
        lacking={one.name: one.lacking for one in chosen if one.lacking},
        misses=[outcome for outcome in outcomes if not outcome.seen],
    )


def missed(outcome: Outcome) -> str:
    """Say where an anomaly was that was not seen, and what the judge said instead."""
    said_instead = "; ".join(outcome.instead) or "nothing of it"
    place, change = outcome.injection.where(), outcome.injection.change
    return f"{outcome.class_name}: {outcome.run}, {place}: {change}; the judge said {outcome.verdict}: {said_instead}"


def _of_run(
    run_dir: Path,
    chosen: Sequence[AnomalyClass],
    options: Options,
    scratch: Path,
    prepared: "Prepared | None",
    say: Callable[[str], None],
) -> Iterator[Outcome]:
    say(f"{run_dir.name}: being judged as it is")
    recording = Recording.open(run_dir)
    case = Case(recording)
    unchanged = copied(recording, scratch / f"{run_dir.name}-unchanged", {})
    (before,) = _judged([unchanged], options.engine, prepared)
    if before.verdict is Verdict.ERROR:
        raise DamagedRecording("", None, f"{run_dir} cannot be measured: {'; '.join(before.reasons)}")
    waiting: list[tuple[AnomalyClass, Injected, Path]] = []
    for number, (one, injected) in enumerate(injections(case, chosen, options.per_class, options.seed)):
        waiting.append((one, injected, scratch / f"{run_dir.name}-{number}"))
        if len(waiting) == TOGETHER[options.engine]:
            say(_judging(run_dir, waiting))
            yield from _outcomes(case, before, waiting, options.engine, prepared)
            waiting = []
    if waiting:
        say(_judging(run_dir, waiting))
        yield from _outcomes(case, before, waiting, options.engine, prepared)


def _judging(run_dir: Path, waiting: Sequence[tuple[AnomalyClass, Injected, Path]]) -> str:
    names = ", ".join(dict.fromkeys(one.name for one, _, _ in waiting))
    return f"{run_dir.name}: {len(waiting)} with an anomaly being judged: {names}"


def injections(
    case: Case, chosen: Sequence[AnomalyClass], per_class: int, seed: int
) -> Iterator[tuple[AnomalyClass, Injected]]:
    """Draw the injections of a recording, class by class."""
    manifest = case.recording.manifest
    identity = (manifest.recording_hash if manifest is not None else None) or recording_hash(case.recording)
    for one in chosen:
        if one.inject is not None:
            drawn = one.inject(case, Random(f"{seed}/{identity}/{one.name}"))
            yield from ((one, injected) for injected in islice(drawn, per_class))


def copy_with(case: Case, injected: Injected, folder: Path) -> Path:
    """Write the copy of a recording that an injection makes."""
    changed = {part: table_of(kind, rows) for part, (kind, rows) in injected.changed.items()}
    return copied(case.recording, folder, changed, injected.settings)


def _outcomes(
    case: Case,
    before: RunVerdict,
    waiting: Sequence[tuple[AnomalyClass, Injected, Path]],
    engine: str,
    prepared: "Prepared | None",
) -> Iterator[Outcome]:
    for _, injected, folder in waiting:
        copy_with(case, injected, folder)
    verdicts = _judged([folder for _, _, folder in waiting], engine, prepared)
    for (one, injected, _), verdict in zip(waiting, verdicts, strict=True):
        new = new_findings(before, verdict, injected.injection)
        yield Outcome(
            run=case.recording.run_dir.name,
            class_name=one.name,
            injection=injected.injection,
            verdict=str(verdict.verdict),
            seen_by=[f"{found.property_name}/{found.kind}" for found in new if found.severity == "violation"],
            instead=[*(said(found) for found in new[:SAID]), *verdict.reasons[:1]],
        )


def _judged(folders: Sequence[Path], engine: str, prepared: "Prepared | None") -> list[RunVerdict]:
    verdicts = check(folders, engine, prepared=prepared)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return verdicts


def new_findings(before: RunVerdict, after: RunVerdict, injection: Injection) -> list[Finding]:
    """Return one finding of each sort, in the injection's place, of which there are more than before."""
    former = Counter[tuple[object, ...]]()
    for found in before.findings:
        former[_sort(found)] += found.count
    counts = Counter[tuple[object, ...]]()
    witnesses: dict[tuple[object, ...], Finding] = {}
    for found in after.findings:
        if _is_there(found, injection):
            counts[_sort(found)] += found.count
            known = witnesses.setdefault(_sort(found), found)
            if known.log_offset != injection.log_offset == found.log_offset:
                witnesses[_sort(found)] = found
    return [found for sort, found in witnesses.items() if counts[sort] > former[sort]]


def _sort(found: Finding) -> tuple[object, ...]:
    return (found.property_name, found.kind, found.severity, found.rule, found.topic, found.partition)


def _is_there(found: Finding, injection: Injection) -> bool:
    place = injection.place
    return place is None or found.topic is None or (found.topic, found.partition) == (place.topic, place.partition)


def said(found: Finding) -> str:
    """Say a finding in a few words: severity, what, where, and the event that excused it."""
    rule = f" by {found.rule}" if found.severity == "permitted" else ""
    election = found.detail.election
    event = ""
    if election is not None:
        at = "" if election.at_ns is None else f" at {election.at_ns / 1e9:.3f} s"
        event = f" ({election.how} election of {election.leader}, epoch {election.leader_epoch},{at})"
    return f"{found.severity}{rule} {found.property_name}/{found.kind} {found.place}{event}"
