"""Many seeds, one forked process each, and what they found grouped by signature.

The parent has everything imported and runs nothing, so a child begins at once and ends without a trace: whatever a seed
leaves in memory (killed tasks, frozen garbage) goes with its process. A child writes its run below a scratch folder,
judges it inline and sends one line back; runs that found something are kept, the others removed.
"""

import contextlib
import gc
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from tribunal.clusters.simulated.guards import Guards
from tribunal.clusters.simulated.world import Simulation
from tribunal.harness.plan import Plan
from tribunal.harness.terminal import echo
from tribunal.results.guards import Place, Table, of_counts
from tribunal.results.recording import SCHEMA_VERSION
from tribunal.results.signature import HARNESS, PROCESS_DIED, Signature, of_exception, of_violation, without_numbers
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import Verdict

SEED_CPU_S: Final = 600  # of one seed: what a machine that is busy with others does not give does not count
SEED_TIMEOUT_S: Final = 3_600  # by the clock: a seed that waits for ever uses no CPU
POLL_S: Final = 0.02
CHUNK_BYTES: Final = 1 << 16
KEPT_PER_FINDING: Final = 3
FIGURES: Final = (
    *("quorum_epoch", "leader_epochs", "isolated_epoch_growth", "isolated_leader_ms", "needless_elections"),
    "lone_leader_ms",
)


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed said.

    signatures:  what was found: equal findings of different seeds are one.
    guards:      how often which guard of the nodes' code was reached, where they are counted.
    mode:        of the cluster, "kraft" or "zookeeper"; empty where nobody has said.
    cpu_ms:      of its process, judging included.
    crossed:     which of its faults held a message over an event in somebody's life, by their index.
    entered:     whether code of the known bug that was switched on was called at all; True without one.
    """

    scenario: str
    seed: int
    verdict: Verdict
    claim: str
    signatures: list[Signature] = []
    reasons: list[str] = []
    trace_hash: str = ""
    recording_hash: str = ""
    event_count: int = 0
    simulated_ms: int = 0
    wall_ms: int = 0
    cpu_ms: int = 0
    probes: dict[str, int] = {}
    guards: dict[str, int] = {}
    figures: dict[str, int] = {}
    crossed: list[int] = []
    entered: bool = True
    run_dir: str = ""
    mode: str = ""

    @property
    def name(self) -> str:
        """What `tribunal replay` calls it."""
        return f"{self.scenario}:{self.seed}"

    @property
    def folder(self) -> Path | None:
        """Where its judged run is; None where nothing stayed of it, or it stayed on another machine."""
        folder = Path(self.run_dir)
        return folder if self.run_dir and (folder / "verdict.json").is_file() else None


class Sweep:
    """A sweep's account so far."""

    def __init__(self) -> None:
        self.results: list[SeedResult] = []
        self.verdicts: Counter[str] = Counter()
        self.findings: dict[Signature, list[SeedResult]] = {}
        self.unclear: dict[str, list[SeedResult]] = {}  # why nothing could be said of a seed, without numbers
        self.probes: Counter[str] = Counter()
        self.guards: Counter[str] = Counter()
        self.simulated_ms = 0

    def add(self, result: SeedResult) -> None:
        """Count one seed."""
        self.results.append(result)
        self.verdicts[result.verdict.value] += 1
        self.simulated_ms += result.simulated_ms
        self.probes.update(result.probes)
        self.guards.update(result.guards)
        for name in result.signatures:
            self.findings.setdefault(name, []).append(result)
        if result.verdict is Verdict.INCONCLUSIVE:
            why = result.reasons[0] if result.reasons else result.claim
            self.unclear.setdefault(without_numbers(why), []).append(result)


class Keeper:
    """Moves the first runs of each finding to where they stay, as they are found: an interrupted sweep has them too."""

    def __init__(self, out: Path) -> None:
        self.folders: dict[Signature, list[str]] = {}  # by finding
        self._out = out

    def keep(self, result: SeedResult) -> Path | None:
        """Keep a seed's run if it shows something new enough, else let it go; return its new folder."""
        source = Path(result.run_dir)
        wanted = [name for name in result.signatures if len(self.folders.get(name, [])) < KEPT_PER_FINDING]
        if not result.run_dir or not source.is_dir():
            return None
        if not wanted:
            shutil.rmtree(source)
            return None
        self._out.mkdir(parents=True, exist_ok=True)
        target = self._free(source.name)
        shutil.move(source, target)
        for name in wanted:
            self.folders.setdefault(name, []).append(str(target))
        return target

    def moved(self, folder: Path, where: str) -> None:
        """Take note that a run that was kept is elsewhere now."""
        for names in self.folders.values():
            names[:] = [where if name == str(folder) else name for name in names]

    def _free(self, name: str) -> Path:
        """Return a folder that is not there: what an earlier sweep of the same seeds has kept stays."""
        places = (self._out / (name if number == 1 else f"{name}.{number}") for number in count(1))
        return next(place for place in places if not place.exists())


def swept(  # noqa: PLR0913 - how children run
    plans: Iterable[Plan],
    *,
    jobs: int,
    budget_s: float | None,
    scratch: Path,
    notify: Callable[[SeedResult, Sweep], None] = lambda result, sweep: None,
    account: Sweep | None = None,
    guards: Guards | None = None,
    cut_at: float | None = None,
    notes_states: bool = False,
    ends_in_time: bool = False,
) -> Sweep:
    """Run plans until they or the budget are used up; `notify` is called with every seed as it ends.

    account:  what is counted into and returned; whoever gives one has it also when an interrupt ends the sweep.
    cut_at:   when runs under way are given up, without a result, as `time.monotonic` says.
    guards:   which are counted in this process, and so in those that it forks.
    ends_in_time:  no seed begins that would end after the budget, going by the mean of those that have ended; without it, none after the budget.
    notes_states:  every run writes the abstract states that it came to into `states_file`, for whoever takes it away.
    """
    from tribunal.harness.simulated import warm_up

    warm_up()
    sweep = Sweep() if account is None else account
    ended, took_s = 0, 0.0
    deadline = None if budget_s is None else time.monotonic() + budget_s
    children: dict[int, Child] = {}
    waiting = iter(plans)
    exhausted = False
    interrupts = Interrupts()
    try:
        while children or not exhausted:
            interrupts.check()
            if cut_at is not None and time.monotonic() >= cut_at:
                break
            needed_s = took_s / ended if ends_in_time and ended else 0.0
            exhausted = exhausted or (deadline is not None and time.monotonic() + needed_s >= deadline)
            while not exhausted and len(children) < jobs:
                plan = next(waiting, None)
                if plan is None:
                    exhausted = True
                else:
                    child = Child(plan, scratch, guards, notes_states=notes_states)
                    children[child.pid] = child
            for result in _ended(children):
                ended, took_s = ended + 1, took_s + result.wall_ms / 1000
                sweep.add(result)
                notify(result, sweep)
    finally:
        for child in children.values():
            child.kill()
        interrupts.close()
    interrupts.check()  # one that came while the last result was reported
    return sweep


class Interrupts:
    """Takes note of Ctrl-C and SIGTERM until somebody looks.

    What a signal raises where it strikes is lost in a finalizer, and between a fork and its being known leaves a child.
    """

    def __init__(self) -> None:
        self._noted = False
        is_ours = threading.current_thread() is threading.main_thread()  # no other may have handlers
        self._before = {
            number: signal.signal(number, self._note) for number in ((signal.SIGINT, signal.SIGTERM) if is_ours else ())
        }

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was one."""
        if self._noted:
            raise KeyboardInterrupt

    def close(self) -> None:
        """Let signals do again what they did before."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = True


class Child:
    """A forked process that runs one seed."""

    def __init__(self, plan: Plan, scratch: Path, guards: Guards | None, *, notes_states: bool = False) -> None:
        self.plan = plan
        self.run_dir = scratch / run_name(plan)
        self.began = time.monotonic()
        self._ended_for = ""
        self._said = bytearray()
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            _child_main(plan, self.run_dir, writer, guards, notes_states=notes_states)
        os.close(writer)

    def result(self, status: int, cpu_ms: int) -> SeedResult:
        """Read what the child said; a child without words is an ERROR of the harness."""
        self.listen()
        os.close(self._reader)
        wall_ms = int(1000 * (time.monotonic() - self.began))
        try:
            said = msgspec.json.decode(self._said, type=SeedResult)
        except UNREADABLE:
            return SeedResult(
                scenario=self.plan.scenario,
                seed=self.plan.seed,
                verdict=Verdict.ERROR,
                claim=self._ended_for or f"the process ended with status {status}",
                signatures=[Signature(HARNESS, PROCESS_DIED)],
                wall_ms=wall_ms,
                cpu_ms=cpu_ms,
                run_dir=str(self.run_dir),
                mode=self.plan.mode,
            )
        return msgspec.structs.replace(said, wall_ms=wall_ms, cpu_ms=cpu_ms, mode=self.plan.mode)

    def listen(self) -> None:
        """Take what it has said by now: who says more than a pipe holds waits until somebody listens."""
        with contextlib.suppress(BlockingIOError):
            while said := os.read(self._reader, CHUNK_BYTES):
                self._said += said

    def end_if_overdue(self) -> None:
        """Kill it if it has run too long."""
        wall_s = time.monotonic() - self.began
        if wall_s <= SEED_CPU_S:
            return
        used_s = cpu_s(self.pid)
        if used_s > SEED_CPU_S or wall_s > SEED_TIMEOUT_S:
            self._ended_for = f"the process was ended: no result after {wall_s:.0f} s, {used_s:.0f} s of CPU"
            os.kill(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._reader)


def cpu_s(pid: int) -> float:
    """Return how much CPU a process has used; none where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ended(children: dict[int, Child]) -> Iterator[SeedResult]:
    """Yield the results of children that have ended; rest a moment when none has."""
    for pid in children:  # by name: this process may have other children, and whoever began them waits for them
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            yield children.pop(pid).result(status, int(1000 * (used.ru_utime + used.ru_stime)))
            return
    for child in list(children.values()):
        child.listen()
        child.end_if_overdue()
    time.sleep(POLL_S)  # noqa: TID251  # real time: children are real processes


def _child_main(plan: Plan, run_dir: Path, writer: int, guards: Guards | None, *, notes_states: bool) -> None:
    """Run, judge, say it, and leave without any clean-up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and the parent ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # what came from the parent stays: nobody has to look through it for garbage
    before = Counter[str]() if guards is None else guards.counts()  # of the parent, which makes plans and reads files
    try:
        result = run_seed(plan, run_dir, notes_states=notes_states)
    except BaseException as problem:  # noqa: BLE001  # the top of a process: whatever it is, it is this seed's result
        echo(traceback.format_exc().rstrip("\n"), err=True)
        result = SeedResult(
            scenario=plan.scenario,
            seed=plan.seed,
            verdict=Verdict.ERROR,
            claim=repr(problem),
            signatures=[of_exception(problem)],
            run_dir=str(run_dir),
        )
    if guards is not None:
        result = msgspec.structs.replace(result, guards=dict(guards.counts() - before))
    with os.fdopen(writer, "wb") as file:
        file.write(msgspec.json.encode(result))
    sys.stderr.flush()
    os._exit(0)


def run_name(plan: Plan) -> str:
    """Return what the folder of a seed's run is called."""
    return f"{plan.scenario}-{plan.seed}"


def states_file(run_dir: Path) -> Path:
    """Return where a run's abstract states are written: beside its folder, which may not stay."""
    return run_dir.with_name(f"{run_dir.name}.reached")


def run_seed(plan: Plan, run_dir: Path, *, notes_states: bool = False) -> SeedResult:
    """Run one plan in this process and judge it; keeps the run's folder only if there is something to look at."""
    from tribunal.clusters.simulated.reached import ReachedStates
    from tribunal.harness.cli.session import judged
    from tribunal.harness.progress import Silent
    from tribunal.harness.simulated import conduct_simulated

    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    observers: list[ReachedStates] = []

    def observe(simulation: Simulation) -> None:
        observers.extend([ReachedStates(simulation)] if notes_states else [])

    ending, known = conduct_simulated(plan, run_dir, Silent(), observe)
    for observer in observers:
        states_file(run_dir).write_bytes(msgspec.json.encode(observer.reached()))
    verdict = judged(ending, "inline")
    found = {finding.signature for finding in verdict.violations}
    found |= {of_violation(known.violated)} if known.violated is not None else set()
    found = found or set(verdict.signatures)
    result = SeedResult(
        scenario=plan.scenario,
        seed=plan.seed,
        verdict=Verdict.VIOLATION if known.invariant else verdict.verdict,
        claim=known.violation or verdict.claim,
        signatures=sorted(found),
        reasons=list(verdict.reasons),
        trace_hash=known.trace_hash,
        recording_hash=recording_hash(run_dir),
        event_count=known.event_count,
        simulated_ms=known.simulated_ns // 1_000_000,
        probes=known.probes,
        figures={name: getattr(known, name) for name in FIGURES},
        crossed=known.crossed,
        entered=known.entered,
        run_dir=str(run_dir) if found else "",
    )
    if not found:
        shutil.rmtree(run_dir, ignore_errors=True)
    return result


def guards_table(account: Sweep, guards: Guards) -> Table:
    """Return how often the account's runs reached each guard."""
    return of_counts([Place(one.module, one.function, one.what) for one in guards.known], account.guards)


def recording_hash(run_dir: Path) -> str:
    """Return the hash of a finished recording, empty without one."""
    return manifest_hash(run_dir).recording_hash


def manifest_hash(run_dir: Path) -> "RecordingHash":
    """Return the hash of a finished recording and the version that it is of."""
    try:
        return msgspec.json.decode((run_dir / "manifest.json").read_bytes(), type=RecordingHash)
    except (OSError, *UNREADABLE):
        return RecordingHash()


class RecordingHash(msgspec.Struct, frozen=True):
    """What of a manifest identifies its recording."""

    recording_hash: str = ""
    schema_version: int = SCHEMA_VERSION
