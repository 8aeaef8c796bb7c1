"""Verify an evidence archive: its hashes, then everything that it states, then who signed it.

Whoever forges an archive can make its hashes fit. So nothing that is stated is believed: the recording is judged and the report is made
anew, and both must say the same; the bundle, the manifest, the plan, the schedule and the simulation must agree
with each other and with the recording. What one file alone states cannot be known this way (docs/security.md lists it): a
simulated run can be run again (`is_replayed`), and of any other only a signature says who vouches for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tribunal.clusters.api import ClusterError
from tribunal.clusters.simulated.trace import hashes_of
from tribunal.clusters.systems.description import read_system
from tribunal.clusters.systems.own_settings import with_given
from tribunal.harness.campaign.replay import other_code, replayed
from tribunal.harness.catalog import SIMULATED
from tribunal.harness.evidence.bundle import FIRST_VERSION, LIST, Bundle, canonical_report, counted, sha256_of, unpacked
from tribunal.harness.evidence.names import Plain, names_twice, unknown_names
from tribunal.harness.evidence.segments import false_segments, unknown_segments
from tribunal.harness.evidence.signing import Signed, signed, unchecked
from tribunal.harness.plan import ExecutedFault, Plan, PlannedFault, expression, read_plan
from tribunal.harness.run import LOCK, settings
from tribunal.harness.scenario import BadScenario
from tribunal.harness.simulated import FILE, TRACE, known_of
from tribunal.results.described import SYSTEM_FOLDER
from tribunal.results.manifest import Manifest
from tribunal.results.recording import DamagedRecording
from tribunal.results.report.minimal import FILE as MINIMAL
from tribunal.results.rows import Fault, Phase, typed
from tribunal.results.scratch import Scratch
from tribunal.results.store import MANIFEST, Recording, recording_hash
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import PERMITTED_TABLE, NoVerdict, RunVerdict, Verdict, load, save
from tribunal.workloads.objects import NO_ACKS

ENGINES: Final = ("spark", "inline", "spark-sql")
NOTE: Final = "note "  # how the names of notes begin among the counts of findings
LAST_SCHEMA_THEN: Final = 2  # of recordings when archives of the first version were made
VERDICT: Final = "verdict.json"
REPORT: Final = "report.html"
PLAN: Final = "plan.json"
SCHEDULE: Final = "schedule.jsonl"
OF_READERS: Final = (VERDICT, PERMITTED_TABLE, REPORT)  # made of the recording, and made anew
OF_A_RUN: Final = (*OF_READERS, MANIFEST, PLAN, SCHEDULE, FILE, TRACE, LOCK, LIST, MINIMAL)
SYSTEM_FILE: Final = "system.toml"  # of a described system, under whatever name it was given
RECORDING: Final = "recording"
FOLDERS: Final = (RECORDING, "logs")
MOST_PLACES: Final = 12
# Between two clocks read one after the other: no time passes in a simulation; elsewhere the machine may be busy.
NEAR_MS: Final = {True: 1, False: 2_000}
OUTCOMES: Final = ("ok", "fail", "info", "sent")


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """An archive beside what was found.

    differences:  what is stated and not so; remarks: what was not compared, or cannot be.
    signature:    a good one; None: nobody signed it, or `unchecked` names the file that might be a signature.
    """

    run_id: str
    stated: Verdict
    found: Verdict
    is_same: bool
    differences: list[str]
    remarks: list[str]
    files: int
    sha256: str
    signature: Signed | None
    unchecked: str | None


class Stated:
    """The files of an unpacked archive that state something, each read once; None where one is not there or not readable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def is_of_a_run(self) -> bool:
        """Whether a run recorded it: each writes plan and schedule before it begins, whatever its manifest says; an imported history has neither."""
        return (self.folder / RECORDING).is_dir()

    @cached_property
    def recording(self) -> Recording | None:
        """The recording; what is wrong with it is in the verdict that was made anew."""
        try:
            return Recording.open(self.folder, compare=False)
        except DamagedRecording:
            return None

    @cached_property
    def manifest(self) -> Manifest | None:
        """What the run was made with."""
        return None if self.recording is None else self.recording.manifest

    @property
    def is_broken_off(self) -> bool:
        """Whether the run says of itself that it did not come to its end."""
        return self.manifest is None or self.manifest.interrupted or self.manifest.failure is not None

    @cached_property
    def plan(self) -> Plan | None:
        """The plan."""
        try:
            return read_plan(self.folder / PLAN)
        except BadScenario:
            return None

    @cached_property
    def faults(self) -> dict[int, Fault]:
        """The recorded faults by their index."""
        rows = [] if self.recording is None else typed(self.recording.table("faults"), Fault)
        return {row.index: row for row in rows}

    @cached_property
    def phases(self) -> list[Phase]:
        """The recorded phases."""
        return [] if self.recording is None else typed(self.recording.table("phases"), Phase)


class Anew(msgspec.Struct, frozen=True, kw_only=True):
    """What is made of a recording: verdict, permitted anomalies, report."""

    verdict: RunVerdict
    content: Plain
    permitted: pa.Table | None
    report: bytes


def verified(
    archive_path: Path,
    engine: str | None,
    *,
    is_replayed: bool = False,
    signers: Path | None = None,
    notify: Callable[[str], None] = lambda line: None,
) -> Verified:
    """Compare an archive with what it is made of; `Tampered` names a file that is not as listed, or a signature that is false.

    engine:   who judges; None: who judged it before.
    signers:  whose signatures count: an allowed_signers file of ssh, or a public key of minisign.
    notify:   is called with a line before what takes longest.
    """
    not_checked = unchecked(archive_path, signers)
    signature = None if not_checked else signed(archive_path, signers)
    with Scratch("verify") as folder:
        stated = folder / "stated"
        content = unpacked(archive_path, stated)
        notify(f"the hashes of {len(content.files)} files agree; the recording is judged and its report made again")
        run_dir = folder / "again" / content.run_id
        anew = made_anew(stated, run_dir, engine)
        differences, remarks = compared(content, stated, anew)
        if is_replayed:
            more, words = _replayed(run_dir, folder / "replay")
            differences, remarks = [*differences, *more], [*remarks, *words]
    return Verified(
        run_id=content.run_id,
        stated=content.verdict,
        found=anew.verdict.verdict,
        is_same=not differences,
        differences=differences,
        remarks=remarks,
        files=len(content.files),
        sha256=sha256_of(archive_path),
        signature=signature,
        unchecked=not_checked,
    )


def made_anew(stated: Path, run_dir: Path, engine: str | None) -> Anew:
    """Judge an unpacked run in a folder of its own, which has all but what is made of the recording."""
    from tribunal.checkers.judge.verdict import check

    run_dir.mkdir(parents=True)
    for path in stated.iterdir():
        if path.name not in OF_READERS:
            (run_dir / path.name).symlink_to(path)
    stated_engine = _engine(stated)
    (verdict,) = check([run_dir], engine or stated_engine or ENGINES[0])
    if stated_engine is not None:  # a name that nobody can check; which engine judges makes no difference
        verdict = msgspec.structs.replace(verdict, engine=stated_engine)
    save(verdict, run_dir / VERDICT)
    return Anew(
        verdict=verdict,
        content=msgspec.json.decode((run_dir / VERDICT).read_bytes()),
        permitted=_permitted(run_dir),
        report=canonical_report(run_dir),
    )


def compared(content: Bundle, folder: Path, anew: Anew) -> tuple[list[str], list[str]]:
    """Return what an unpacked archive states and is not so, and what was not compared."""
    stated = Stated(folder)
    of_bundle = list(_of_bundle(content, anew.verdict))
    differences = [*of_bundle, *_of_segments(stated), *_of_names(folder)]
    remarks = list(_unknown_files(content, stated))
    words = [*_of_verdict(folder, anew), *_of_report(folder, anew)]
    if content.bundle_version == FIRST_VERSION:
        # What a note counts was defined otherwise then, and no verdict rests on it.
        notes = [one for one in of_bundle if one.startswith(NOTE)]
        remarks.append("an archive of version 1: only its verdict and the counts of its findings are compared")
        others = [one for one in differences if one not in notes]
        return [*others, *_of_first_version(stated)], [*remarks, *notes, *words]
    for part in (
        _of_manifest,
        _of_described,
        _of_settings,
        _of_plan,
        _of_faults,
        _of_schedule,
        _of_simulation,
        _of_rows,
        _of_loads,
    ):
        words += part(content, stated)
    if stated.manifest is None:
        remarks.append(f"{MANIFEST} is missing: the run was cut off, and nothing says with which code it was made")
    else:
        remarks += other_code(folder)
    return differences + words, remarks


# --- what is made of the recording -----------------------------------------------------------


def _of_bundle(content: Bundle, anew: RunVerdict) -> Iterator[str]:
    if anew.verdict != content.verdict:
        yield f"verdict: {content.verdict} stated, {anew.verdict} found"
        yield from anew.reasons
    found = counted(anew)
    for name in sorted({*content.findings, *found}):
        if content.findings.get(name) != found.get(name):
            yield f"{name}: {content.findings.get(name, 0)} stated, {found.get(name, 0)} found"
    if content.bundle_version != FIRST_VERSION and content.claim != anew.claim:
        yield f"{LIST}: claim: {content.claim!r} stated, {anew.claim!r} found"


def _of_first_version(stated: Stated) -> Iterator[str]:
    """Whoever calls an archive an old one would have less of it compared: its recording must be as old."""
    schema = None if stated.manifest is None else stated.manifest.schema_version
    if schema is None or schema > LAST_SCHEMA_THEN:
        named = "no manifest" if schema is None else f"a recording of version {schema}"
        yield f"{LIST}: bundle_version: {FIRST_VERSION} stated, no such archive has {named}"


def _of_verdict(stated: Path, anew: Anew) -> Iterator[str]:
    try:
        load(stated / VERDICT)
    except (OSError, NoVerdict) as problem:
        yield f"{VERDICT}: cannot be read: {problem}"
        return
    yield from _places(VERDICT, msgspec.json.decode((stated / VERDICT).read_bytes()), anew.content)
    if _engine(stated) is None:
        yield f"{VERDICT}: engine: no such judge"
    if _is_other(_permitted(stated), anew.permitted):
        yield f"{PERMITTED_TABLE}: the recording has other permitted anomalies"


def _is_other(stated: pa.Table | None, found: pa.Table | None) -> bool:
    if stated is None or found is None:
        return stated is not found
    return not stated.equals(found)


def _permitted(folder: Path) -> pa.Table | None:
    path = folder / PERMITTED_TABLE
    try:
        return pq.read_table(path) if path.is_file() else None
    except (OSError, pa.ArrowException):
        return pa.table({"unreadable": [path.name]})


def _of_report(stated: Path, anew: Anew) -> Iterator[str]:
    path = stated / REPORT
    if not path.is_file():
        yield f"{REPORT}: is missing"
        return
    lines, found = path.read_bytes().splitlines(), anew.report.splitlines()
    if lines != found:
        same = sum(1 for _ in _alike(lines, found))
        yield f"{REPORT}: not the report that this version makes of the recording, from line {same + 1} on"


def _alike(lines: Sequence[bytes], others: Sequence[bytes]) -> Iterator[bytes]:
    for line, other in zip(lines, others, strict=False):
        if line != other:
            return
        yield line


def _engine(stated: Path) -> str | None:
    try:
        engine = load(stated / VERDICT).engine
    except (OSError, NoVerdict):
        return None
    return engine if engine in ENGINES else None


# --- what is stated twice ----------------------------------------------------------------------


def _of_manifest(content: Bundle, stated: Stated) -> Iterator[str]:
    manifest, recording = stated.manifest, stated.recording
    if manifest is None or recording is None:
        return
    yield from _unknown_names(stated.folder / MANIFEST, msgspec.to_builtins(manifest, str_keys=True))
    for name, one, other in (
        ("run_id", content.run_id, manifest.run_id),
        ("commit", content.commit, manifest.commit),
        ("lock_sha256", content.lock_sha256, manifest.lock_sha256),
        ("python", content.python, manifest.python),
    ):
        if other is not None and one != other:
            yield f"{LIST}: {name}: {one!r} stated, {MANIFEST} has {other!r}"
    lock = stated.folder / LOCK
    if lock.is_file() and sha256_of(lock) != content.lock_sha256:
        yield f"{LOCK}: not the lock file that {LIST} names"
    try:
        found = recording_hash(recording, manifest.schema_version)
    except DamagedRecording as damage:
        yield f"recording: {damage}"
        return
    if found != manifest.recording_hash:
        yield f"{MANIFEST}: recording_hash: {manifest.recording_hash!r} stated, {found!r} found"


def _of_described(content: Bundle, stated: Stated) -> Iterator[str]:
    """Compare the files of a described system with what the manifest says of them."""
    listed = {one.name: one.sha256 for one in content.files}
    for name, sha256 in _files_of_system(stated).items():
        if name not in listed:
            yield f"{name}: is missing, {MANIFEST} names it"
        elif listed[name] != sha256:
            yield f"{name}: not the file that {MANIFEST} names"


def _of_settings(content: Bundle, stated: Stated) -> Iterator[str]:
    """Compare what a described system is said to promise, and its nodes to have been set to, with its file and its plan."""
    manifest, plan = stated.manifest, stated.plan
    if manifest is None or manifest.described is None or plan is None or not plan.spec.system:
        return
    try:
        system = read_system(stated.folder / SYSTEM_FILE)
        given = with_given(system.nodes.settings, plan.spec.settings) if plan.spec.has_objects else None
    except ValueError as problem:
        yield f"{SYSTEM_FILE}: {problem}"
        return
    yield from _places(f"{PLAN}: spec.promises", plan.spec.promises, system.promises.flat)
    if given is None:
        return
    yield from _places(f"{MANIFEST}: described.settings", msgspec.to_builtins(manifest.described.settings), given)


def _files_of_system(stated: Stated) -> dict[str, str]:
    """Return the sha256 of each file of a described system that is with the run, as the manifest has it."""
    described = None if stated.manifest is None else stated.manifest.described
    if described is None:
        return {}
    known = {one.name: one.sha256 for one in described.files if one.sha256 is not None}
    kept = {f"{SYSTEM_FOLDER}/{one.name}": known[one.name] for one in described.files if one.is_kept and one.sha256}
    return kept if described.file not in known else {SYSTEM_FILE: known[described.file], **kept}


def _of_plan(content: Bundle, stated: Stated) -> Iterator[str]:
    manifest, plan = stated.manifest, stated.plan
    if plan is None:
        if stated.is_of_a_run:
            yield f"{PLAN}: is missing, or is no plan"
        return
    yield from _unknown_names(stated.folder / PLAN, msgspec.to_builtins(plan, str_keys=True))
    if manifest is None:
        return
    modes = {"mode": plan.mode, "spec.mode": plan.spec.mode}
    if plan.spec.has_objects and manifest.mode is None:
        modes = {}  # who has objects has neither KRaft nor ZooKeeper; earlier versions wrote the plan's word
    for name, one, other in (
        ("scenario", plan.scenario, manifest.scenario),
        ("seed", plan.seed, manifest.seed),
        ("cluster", plan.cluster, manifest.cluster),
        *((name, one, manifest.mode) for name, one in modes.items()),
        ("spec.mutants", list(plan.spec.mutants), list(manifest.mutants)),
    ):
        if one != other:
            yield f"{PLAN}: {name}: {one!r} stated, {MANIFEST} has {other!r}"
    for field, given, cluster in (
        ("file", plan.spec.file, "existing"),
        ("kafka", plan.spec.kafka, "mixed"),
        ("roles", plan.spec.roles, "system"),
    ):
        if given and plan.cluster != cluster:
            yield f"{PLAN}: spec.{field}: {given!r} stated, which a cluster of kind {plan.cluster} has not"
    yield from _places(f"{MANIFEST}: settings", manifest.settings, settings(plan))
    if stated.recording is not None:
        yield from _of_nodes(stated.recording, plan)


def _of_nodes(recording: Recording, plan: Plan) -> Iterator[str]:
    nodes = recording.table("nodes", columns=["node", "role"])
    seen: dict[str, set[int]] = {}
    for node, role in zip(nodes["node"].to_pylist(), nodes["role"].cast(pa.string()).to_pylist(), strict=True):
        seen.setdefault(role, set()).add(node)
    for role, planned in (("broker", plan.spec.broker_ids), ("controller", plan.spec.controller_ids)):
        if role in seen and seen[role] != set(planned):
            yield f"{PLAN}: spec.{role}s: {len(planned)} stated, the recording has {sorted(seen[role])}"


def _of_faults(content: Bundle, stated: Stated) -> Iterator[str]:
    if stated.plan is None:
        return
    # By its index, which whoever takes faults out of a plan by hand leaves as it was: two of one index no plan has.
    planned = {one.index: one for one in stated.plan.faults}
    for index, fault in sorted(stated.faults.items()):
        if index not in planned:
            yield f"{PLAN}: faults: {index} ({fault.kind}) is missing, the recording has it"
        elif planned[index].kind != fault.kind:
            yield f"{PLAN}: fault {index}: kind: the recording has {fault.kind}"
        elif fault.planned_ns is not None and expression(planned[index]) != fault.planned_target:
            yield f"{PLAN}: fault {index}: target: the recording has {fault.planned_target}"


def _of_schedule(content: Bundle, stated: Stated) -> Iterator[str]:
    plan = stated.plan
    if not stated.is_of_a_run:
        return
    try:
        written = (stated.folder / SCHEDULE).read_bytes().splitlines()
        lines = [msgspec.json.decode(line, type=ExecutedFault) for line in written if line]
    except (OSError, *UNREADABLE) as problem:
        yield f"{SCHEDULE}: {problem.strerror if isinstance(problem, OSError) else problem}"
        return
    if plan is None or stated.recording is None:
        return
    began_ns = next((row.start_ns for row in stated.phases if row.name == "faults"), None)
    planned = {one.index: one for one in plan.faults}
    for line in lines:
        if line.index not in stated.faults or line.index not in planned:
            yield f"{SCHEDULE}: fault {line.index}: not in the recording"
            continue
        near_ms = NEAR_MS[plan.cluster == SIMULATED]
        if line.broken_off and stated.faults[line.index].healed_ns is not None and not stated.is_broken_off:
            yield f"{SCHEDULE}: fault {line.index}: broken_off: stated, but it healed in a run that came to its end"
        yield from _of_line(line, planned[line.index], stated.faults[line.index], began_ns, near_ms)
    # Of a run that was broken off earlier versions wrote no line of a fault that was in force then.
    struck = {
        index
        for index, fault in stated.faults.items()
        if fault.healed_ns is not None or (fault.injected_ns is not None and not stated.is_broken_off)
    }
    for index in sorted(struck - {line.index for line in lines}):
        yield f"{SCHEDULE}: fault {index}: is missing, the recording has it"
    if len({line.index for line in lines}) != len(lines):
        yield f"{SCHEDULE}: a fault is there twice"


def _of_line(
    line: ExecutedFault, planned: PlannedFault, fault: Fault, began_ns: int | None, near_ms: int
) -> Iterator[str]:
    place = f"{SCHEDULE}: fault {line.index}"
    for name, one, other, where in (
        ("kind", line.kind, planned.kind, PLAN),
        ("planned_target", line.planned_target, planned.target.text, PLAN),
        ("options", dict(line.options), dict(planned.options), PLAN),
        ("meanwhile", line.meanwhile, planned.meanwhile, PLAN),
        ("when", line.when, _waited_for(line, planned), PLAN),
        ("until", line.until, "" if planned.until is None else planned.until.text, PLAN),
        ("target", f"{line.role} {line.resolved}", fault.resolved_target, "the recording"),
    ):
        if one != other:
            yield f"{place}: {name}: {one!r} stated, {where} has {other!r}"
    if planned.until is None and not line.broken_off and line.lasted_ms + near_ms < planned.lasts_ms:
        yield f"{place}: lasted_ms: {line.lasted_ms} stated, {PLAN} has {planned.lasts_ms}"
    if began_ns is None or fault.planned_ns is None:
        return
    started_ms = (fault.planned_ns - began_ns) // 1_000_000
    if abs(line.started_ms - started_ms) > near_ms:
        yield f"{place}: started_ms: {line.started_ms} stated, {started_ms} recorded"
    if fault.healed_ns is not None and line.lasted_ms > (fault.healed_ns - fault.planned_ns) // 1_000_000 + near_ms:
        yield f"{place}: lasted_ms: {line.lasted_ms} stated, it was healed before"


def _waited_for(line: ExecutedFault, planned: PlannedFault) -> str:
    """Return what a fault's line names as its trigger: nothing where the fault came without it, its patience being over."""
    if planned.when is None or (planned.wait_ms is not None and not line.when):
        return ""
    return planned.when.text


def _of_simulation(content: Bundle, stated: Stated) -> Iterator[str]:
    if not (stated.folder / FILE).is_file():
        if stated.manifest is not None and stated.manifest.cluster == SIMULATED:
            yield f"{FILE}: is missing"
        return
    cluster = None if stated.manifest is None else stated.manifest.cluster
    if cluster not in (None, SIMULATED):
        yield f"{FILE}: is there, but {MANIFEST} has a run on {cluster}: nobody simulated that"
    try:
        known = known_of(stated.folder)
        blocks = msgspec.msgpack.decode((stated.folder / TRACE).read_bytes(), type=list[bytes])
        checkpoints, digest = hashes_of(blocks)
    except BadScenario as problem:
        yield f"{problem}"
        return
    except (OSError, ValueError) as problem:
        yield f"{TRACE}: {problem}"
        return
    yield from _unknown_names(stated.folder / FILE, msgspec.to_builtins(known, str_keys=True))
    if stated.plan is not None and stated.plan.seed != known.seed:
        yield f"{FILE}: seed: {known.seed} stated, {PLAN} has {stated.plan.seed}"
    if known.trace_hash != digest:
        yield f"{FILE}: trace_hash: {known.trace_hash} stated, {TRACE} has {digest}"
    if known.checkpoints != checkpoints:
        yield f"{FILE}: checkpoints: {TRACE} has others"
    facts = (known.invariant, known.violation, known.violated_at_event, known.violated)
    if any(fact is None for fact in facts) and any(fact is not None for fact in facts):
        yield f"{FILE}: invariant: what was violated, where and how do not belong together"


def _of_rows(content: Bundle, stated: Stated) -> Iterator[str]:
    if stated.recording is None:
        return
    for name in stated.recording.files:
        runs = stated.recording.table(name, columns=["run_id"])["run_id"].cast(pa.string()).unique().to_pylist()
        if others := sorted(set(runs) - {content.run_id}):
            yield f"recording: table {name}: rows of another run, {others[0]}"


def _of_loads(content: Bundle, stated: Stated) -> Iterator[str]:
    """Compare what the phases counted while the run went on with the rows: a send or a call that was taken out is missed here."""
    if stated.recording is None:
        return
    counted_then: Counter[tuple[int, str]] = Counter()
    for load_ in (one for phase in stated.phases for one in phase.load or ()):
        for outcome, count in zip(OUTCOMES, (load_.ok, load_.fail, load_.info, load_.sent), strict=True):
            counted_then[load_.acks or 0, outcome] += count or 0
    sends = stated.recording.table("sends", columns=["acks", "outcome"])
    rows = Counter(zip(sends["acks"].to_pylist(), sends["outcome"].cast(pa.string()).to_pylist(), strict=True))
    calls = stated.recording.table("operations", columns=["outcome"])["outcome"].cast(pa.string()).to_pylist()
    rows.update((NO_ACKS, outcome) for outcome in calls)
    tables = "tables sends and operations" if calls else "table sends"
    for (acks, outcome), count in sorted(counted_then.items()):
        if rows[acks, outcome] < count:
            place = f"recording: {tables}: {rows[acks, outcome]} rows with acks={acks} and outcome {outcome}"
            yield f"{place}, the phases counted {count}"


def _of_names(folder: Path) -> Iterator[str]:
    for name in (MANIFEST, PLAN, VERDICT, FILE):
        if (folder / name).is_file():
            yield from names_twice(name, (folder / name).read_bytes())
    if (folder / SCHEDULE).is_file():
        for line in (folder / SCHEDULE).read_bytes().splitlines():
            yield from names_twice(SCHEDULE, line)


def _of_segments(stated: Stated) -> Iterator[str]:
    if stated.recording is not None:
        yield from false_segments(stated.recording)


# --- running it again --------------------------------------------------------------------------


def _replayed(run_dir: Path, again: Path) -> tuple[list[str], list[str]]:
    """Run a simulated run's plan again, and compare trace, recording and all that the simulation knew of itself."""
    if not (run_dir / FILE).is_file():
        return [], ["not replayed: only a simulated run can be run again bit by bit"]
    try:
        result = replayed(run_dir, again)
    except ClusterError as problem:
        return [f"replay: {problem}"], []
    differences = [] if result.is_same else [f"replay: {line}" for line in result.lines]
    before, after = result.recording_hashes
    if before != after:
        differences.append(f"replay: recording_hash: {before} stated, {after} now")
    zero = partial(msgspec.structs.replace, cpu_ns=0)
    differences += _places(
        f"replay: {FILE}", msgspec.to_builtins(zero(result.before)), msgspec.to_builtins(zero(result.after))
    )
    return differences, [] if differences else [f"replayed: trace {result.after.trace_hash}, the same events and rows"]


# --- reading -----------------------------------------------------------------------------------


def _unknown_files(content: Bundle, stated: Stated) -> Iterator[str]:
    known = {*OF_A_RUN, *_files_of_system(stated)}
    names = [one.name for one in content.files if Path(one.name).parts[0] not in FOLDERS and one.name not in known]
    more = () if stated.recording is None else unknown_segments(stated.recording)
    for name in (*names, *more):
        yield f"{name}: no file that a run makes; nothing vouches for what it says"


def _unknown_names(path: Path, known: Plain) -> Iterator[str]:
    yield from unknown_names(path.name, msgspec.json.decode(path.read_bytes()), known)


def _places(file: str, stated: Plain, found: Plain) -> list[str]:
    places = list(_differing("", stated, found))
    lines = [f"{file}: {place.lstrip('.') or 'all of it'}: {words}" for place, words in places[:MOST_PLACES]]
    return lines + ([f"{file}: and {len(places) - MOST_PLACES} more"] if len(places) > MOST_PLACES else [])


def _differing(place: str, stated: Plain, found: Plain) -> Iterator[tuple[str, str]]:
    if isinstance(stated, Mapping) and isinstance(found, Mapping):
        for name in sorted({*stated, *found}):
            if name not in stated or name not in found:
                yield f"{place}.{name}", "not stated" if name not in stated else "stated, not found"
            else:
                yield from _differing(f"{place}.{name}", stated[name], found[name])
    elif isinstance(stated, list | tuple) and isinstance(found, list | tuple):
        if len(stated) != len(found):
            yield place, f"{len(stated)} stated, {len(found)} found"
        for index, (one, other) in enumerate(zip(stated, found, strict=False)):
            yield from _differing(f"{place}[{index}]", one, other)
    elif stated != found:
        yield place, f"{_cut(stated)} stated, {_cut(found)} found"


def _cut(value: Plain) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:77]}..."
