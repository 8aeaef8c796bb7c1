"""Judge runs: findings and promises, and whether it was a real test; one verdict a run.

`check` is the door: `tribunal check`, `run`, `sweep` and `nightly` go through it. What was found comes from the
properties; here it becomes one of five verdicts (docs/verdicts.md, last section), and INCONCLUSIVE has its reasons: a
fault without effect, a phase without load, a partition that could not be judged, a run without an
acknowledged write.
"""

from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Final

import msgspec

from tribunal.checkers.judge import coverage, engine, permitted, restarts
from tribunal.checkers.judge.heal import stands_still
from tribunal.checkers.judge.looked_at import without_rows
from tribunal.checkers.judge.partition import settings_of
from tribunal.checkers.judge.presence import passed_over
from tribunal.checkers.judge.restarts import Restart
from tribunal.checkers.judge.tables import Permitted, Tables
from tribunal.checkers.judge.timeline import true
from tribunal.checkers.spark.java import NoJava
from tribunal.checkers.spark.session import NoSpark, Prepared
from tribunal.results.history import is_history
from tribunal.results.manifest import KRAFT, Manifest
from tribunal.results.rows import Fault, typed
from tribunal.results.signature import FAILED, RECORDING, RUN, Signature, read
from tribunal.results.store import MANIFEST, Recording
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import (
    SCHEMA_VERSION,
    Conditions,
    Coverage,
    Detail,
    Failure,
    Finding,
    InjectedFault,
    RunVerdict,
    Verdict,
    acks_word,
    how_much,
    save,
)
from tribunal.results.violation import Violation
from tribunal.results.words import of_violation

LEAST_LOAD: Final = 1  # unless the manifest's `least_load` asks for more
UNJUDGED: Final = "unjudged"
HANGING: Final = ("hanging_transactions", "hanging")


def _raised(path: Path, problem: OSError) -> None:
    raise problem


OF_A_RUN: Final = ("recording", MANIFEST, "plan.json")
"""A folder with any of these is a run's, and gets the verdict; nothing is written into any other."""


def check(
    run_dirs: Sequence[Path],
    engine_name: str,
    master: str | None = None,
    prepared: Prepared | None = None,
    unwritten: Callable[[Path, OSError], None] = _raised,
    stored: engine.Urls = engine.NOWHERE,
) -> list[RunVerdict]:
    """Judge runs in one job; write each run's verdict.json and return the verdicts in the order given.

    engine_name:  spark, inline or spark-sql.
    master:       local[n], spark://... or sc://...; None: this machine.
    prepared:     a Spark session that is starting already.
    unwritten:    called with a verdict.json that cannot be written, as in a folder that is read-only.
    stored:       URLs of runs that are mirrored here, by their folders: a cluster's tasks read these from storage.
    """
    try:
        tables = engine.judge_runs(
            list(dict.fromkeys(run_dirs)), engine_name, master, prepared, stored
        )  # one named twice is one
    except (NoJava, NoSpark) as error:
        return [_not_judged(run_dir, engine_name, str(error)) for run_dir in run_dirs]
    of_runs = tables.by_run(map(str, run_dirs))
    judged = [_judged(run_dir, engine_name, of_runs[str(run_dir)]) for run_dir in run_dirs]
    for run_dir, (verdict, excused_rows) in zip(run_dirs, judged, strict=True):
        if is_history(Path(run_dir)) or any((Path(run_dir) / name).exists() for name in OF_A_RUN):
            path = Path(run_dir) / "verdict.json"
            try:
                permitted.write(Path(run_dir), excused_rows)
                save(verdict, path)
            except OSError as problem:
                unwritten(path, problem)
    return [verdict for verdict, _ in judged]


def _not_judged(run_dir: Path, engine_name: str, reason: str) -> RunVerdict:
    return RunVerdict(
        run_id=Path(run_dir).name, verdict=Verdict.ERROR, claim="the judge could not work", reasons=[reason],
        engine=engine_name, schema_version=SCHEMA_VERSION,
    )  # fmt: skip


def _judged(run_dir: Path, engine_name: str, tables: Tables) -> tuple[RunVerdict, list[Permitted]]:
    """Return a run's verdict, and what stands in `permitted.parquet`."""
    found = [row.finding for row in tables.findings]
    findings = [finding for finding in found if finding.severity != UNJUDGED]
    errors = [Failure(signature=Signature(RECORDING, "damaged"), words=row.words) for row in tables.damages]
    errors += [
        Failure(
            signature=Signature(row.property_name, FAILED), words=f"checker {row.property_name} failed: {row.words}"
        )
        for row in tables.failures
    ]
    errors = list(dict.fromkeys(errors))
    if _is_damaged(tables):
        # What is contradictory proves nothing, neither for nor against.
        findings = []
    judged = tables.counts
    figures = tables.folded[str(run_dir)]
    test, covered = Conditions(), Coverage()
    doubts: list[str] = []
    restarted: list[Restart] = []
    if not errors and not is_history(Path(run_dir)):
        recording = Recording.open(run_dir, compare=False)
        restarted = restarts.of(recording)
        test, doubts = was_it_a_real_test(recording, restarts.permitted_faults(restarted))
        covered = coverage.coverage(recording, _hanging(findings))
        doubts = [*coverage.reasons(covered), *doubts]
        findings += violated_invariant(Path(run_dir))
        findings += heal_without_end(recording)
        findings += restarts.findings(restarted)
        errors = [*_ended_early(recording.manifest), *restarts.failures(restarted)]
        covered = _with_empty(
            covered, recording.manifest, {name for name, count in judged.items() if count} | {*figures}
        )
    doubts = [*(_unjudged(finding) for finding in found if finding.severity == UNJUDGED), *doubts]
    verdict = _verdict(findings, errors, doubts)
    excused_rows = _permitted(tables, run_dir, restarted)
    said = RunVerdict(
        run_id=Path(run_dir).resolve().name,
        verdict=verdict,
        claim=_claim(verdict, findings, judged),
        findings=findings,
        permitted_rows=permitted.count(excused_rows),
        reasons=[*(error.words for error in errors), *doubts],
        failures=errors,
        judged=judged,
        coverage=covered,
        test=test,
        figures={name: msgspec.to_builtins(figure) for name, figure in figures.items()},
        engine=engine_name,
        schema_version=SCHEMA_VERSION,
    )
    return said, excused_rows


def _with_empty(covered: Coverage, manifest: Manifest | None, counted: set[str]) -> Coverage:
    """Say which properties had not one row; nothing of a run that was cut off, of which nobody counted the rows."""
    if manifest is None:
        return covered
    rows = {name: facts.rows for name, facts in manifest.tables.items()}
    return msgspec.structs.replace(covered, without_rows=without_rows(rows, counted))


def _hanging(findings: Sequence[Finding]) -> set[coverage.Place]:
    """Return the partitions in which a transaction was found, permitted or not, that holds readers back for ever."""
    return {
        (one.topic, one.partition)
        for one in findings
        if (one.property_name, one.kind) == HANGING and one.topic is not None and one.partition is not None
    }


def _is_damaged(tables: Tables) -> bool:
    return any(row.table not in _BESIDE for row in tables.damages)


def _permitted(tables: Tables, run_dir: Path, restarted: Sequence[Restart]) -> list[Permitted]:
    """Return what stands in `permitted.parquet`: of a damaged recording nobody could follow an excuse."""
    return [] if _is_damaged(tables) else [*tables.permitted, *restarts.permitted_rows(restarted, run_dir)]


def violated_invariant(run_dir: Path) -> list[Finding]:
    """Return the invariant (docs/invariants.md) at which a simulation stopped, as a finding; a real run has none."""
    try:
        known = msgspec.json.decode((run_dir / "simulation.json").read_bytes(), type=_Simulation)
    except (OSError, *UNREADABLE):
        return []
    if known.invariant is None:
        return []
    return [
        Finding(
            property_name="invariant",
            kind=known.invariant,
            severity="violation",
            explanation=known.violation or known.invariant,
            rule=f"docs/invariants.md#{known.invariant.lower()}",
            detail=Detail(event=known.violated_at_event),
            violation=_facts(known.violated),
        )
    ]


def heal_without_end(recording: Recording) -> list[Finding]:
    """Return a finding where full service did not come about after the last fault and nothing moved any more."""

    def is_passed_over(name: str, node: int, at_ns: int) -> bool:
        topic, _, partition = name.rpartition("-")
        given = settings_of(recording)
        if given.get("mode") != KRAFT or true(given.get("eligible.leader.replicas.enable", True)):
            return False
        spans = passed_over(recording.table("metadata"), (topic, int(partition)), node)
        return any(span.since_ns <= at_ns < span.until_ns for span in spans)

    manifest = recording.manifest
    violation = stands_still(None if manifest is None else manifest.unhealed, is_passed_over)
    if violation is None:
        return []
    return [
        Finding(
            property_name="invariant",
            kind=violation.invariant.value,
            severity="violation",
            explanation=of_violation(violation),
            rule="docs/verdicts.md#a-heal-that-does-not-come-about",
            violation=violation,
        )
    ]


class _Simulation(msgspec.Struct, frozen=True):
    """What of simulation.json is judged."""

    invariant: str | None = None
    violation: str | None = None
    violated_at_event: int | None = None
    violated: msgspec.Raw = msgspec.Raw(b"null")


def _facts(facts: msgspec.Raw) -> Violation | None:
    """Return the facts of a violation; none where another version has facts of another sort: it is a violation all the same."""
    try:
        return msgspec.json.decode(facts, type=Violation | None)
    except UNREADABLE:
        return None


def _ended_early(manifest: Manifest | None) -> list[Failure]:
    if manifest is None or not manifest.failure:
        return []
    words = f"the run ended early: {manifest.failure}"
    kind = manifest.failure_kind
    return [Failure(signature=Signature(RUN, kind) if kind else read(f"ERROR: {words}"), words=words)]


# Damage in these cannot touch what was proven from the others.
_BESIDE: Final = frozenset({"probes", "requests"})


def _verdict(findings: Sequence[Finding], errors: Sequence[Failure], doubts: Sequence[str]) -> Verdict:
    """VIOLATION > ERROR > INCONCLUSIVE > PERMITTED > PASS."""
    if any(finding.severity == "violation" for finding in findings):
        return Verdict.VIOLATION
    if errors:
        return Verdict.ERROR
    if doubts:
        return Verdict.INCONCLUSIVE
    if any(finding.severity == "permitted" for finding in findings):
        return Verdict.PERMITTED
    return Verdict.PASS


def _unjudged(finding: Finding) -> str:
    if finding.topic is None:
        return f"{finding.property_name}: could not be judged"
    place = f"partition {finding.topic}-{finding.partition}"
    if finding.detail.promise is not None:
        return f"{place}: {finding.property_name} {finding.kind}: {finding.detail.promise}"
    return f"{place}: no complete final read and no final logs of all replicas that can lead"


def was_it_a_real_test(recording: Recording, permitted_faults: Set[int]) -> tuple[Conditions, list[str]]:
    """Return what the run was put through, and the doubts: why it may not have been a test.

    permitted_faults:  by index, faults that were not undone because the system need not start after them.
    """
    faults = typed(recording.table("faults"), Fault)
    load = coverage.load(recording)
    doubts = [doubt for fault in faults if fault.index not in permitted_faults for doubt in _fault_doubts(fault)]
    manifest = recording.manifest
    least_load = None if manifest is None else manifest.least_load
    least = LEAST_LOAD if least_load is None else least_load
    doubts += coverage.load_doubts(load, least, coverage.created(recording), coverage.passing(recording))
    if manifest is None or manifest.interrupted:
        doubts.append("the run was cut off: it did not come to its end")
    least_of_phases = dict.fromkeys(coverage.LOADED_PHASES, least)
    return Conditions(faults=tuple(map(_injected, faults)), load=tuple(load.of_run), least_load=least_of_phases), doubts


def _injected(fault: Fault) -> InjectedFault:
    return InjectedFault(
        index=fault.index,
        kind=fault.kind,
        resolved_target=fault.resolved_target,
        injected_ns=fault.injected_ns,
        healed_ns=fault.healed_ns,
        proof=fault.proof,
        took_effect=fault.took_effect,
        healed=fault.healed,
        heal_proof=fault.heal_proof,
    )


def _fault_doubts(fault: Fault) -> list[str]:
    name = f"fault {fault.index} `{fault.kind} {fault.resolved_target or fault.planned_target or ''}`"
    if fault.injected_ns is None:
        return [f"{name} was planned but never injected"]
    if fault.took_effect is not True:
        return [f"{name} had no effect: {fault.proof or 'no proof'}"]
    if fault.healed is not True:
        return [f"{name} was not healed: {fault.heal_proof or 'no proof'}"]
    return []


def _claim(verdict: Verdict, findings: Sequence[Finding], judged: dict[str, int]) -> str:
    match verdict:
        case Verdict.VIOLATION:
            return _summary([finding for finding in findings if finding.severity == "violation"])
        case Verdict.ERROR:
            return "no verdict can be given: the recording or the judge is broken"
        case Verdict.INCONCLUSIVE:
            return "no verdict can be given"
        case Verdict.PERMITTED:
            permitted = [finding for finding in findings if finding.severity == "permitted"]
            rules = sorted({finding.rule for finding in permitted})
            return f"no promise was broken; permitted by {', '.join(rules)}: {_summary(permitted)}"
        case Verdict.PASS:
            return f"nothing was lost and nothing went back: {', '.join(how_much(judged))}"


def _summary(findings: Sequence[Finding]) -> str:
    """One clause per kind, the gravest first by count: `2 x lost (acks=all)`."""
    counts: dict[tuple[str, int | None], int] = {}
    for found in findings:
        counts[found.kind, found.acks] = counts.get((found.kind, found.acks), 0) + found.count
    words = []
    for (kind, acks), count in counts.items():
        level = f" (acks={acks_word(acks)})" if acks is not None else ""
        words.append(f"{count} x {kind.replace('_', ' ')}{level}")
    return ", ".join(words)
