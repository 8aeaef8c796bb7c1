"""Run a recorded seed again and say whether it is the same run, event by event.

Two simulations of a plan are the same if their trace hashes agree. Where they do not (the code or the machine's libraries
changed), the trace that every run keeps says which number is the first to differ; the new run is run once more up to
there, to say in words which event that is.

A run is repeatable with the code it was recorded with: commit, lock file and Python. With other code it may be run all the same,
and the first event that differs then says where the change begins to matter. `shown` runs a plan up to an event and
prints what happened on the way.
"""

import contextlib
import platform
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from replog.wire.apis import Api
from tribunal.clusters.capabilities import Fate
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.clusters.simulated.frames import Frame
from tribunal.clusters.simulated.guard import collect_quietly, without_complaints
from tribunal.clusters.simulated.trace import numbers_of
from tribunal.clusters.simulated.world import Simulation
from tribunal.harness.campaign.sweep import manifest_hash, recording_hash
from tribunal.harness.plan import Plan, encoded, read_plan
from tribunal.harness.progress import Silent
from tribunal.harness.run import commit, lock_sha256
from tribunal.harness.simulated import FILE, TRACE, SimulatedRun, conduct_simulated, known_of
from tribunal.results.recording import SCHEMA_VERSION
from tribunal.results.scratch import Scratch
from tribunal.results.store import Recording
from tribunal.results.store import recording_hash as hash_of
from tribunal.results.unreadable import UNREADABLE

MANIFEST: Final = "manifest.json"
LINES_BEFORE: Final = 4
RANGE: Final = re.compile(r"(\d*):(\d*)")
NO_END: Final = 1 << 62


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A run beside the run that it repeats.

    first_difference:  the first number of the trace that differs, None when none does.
    first_event:  the event that it belongs to in the run of now, behind a few before it.
    remarks:      what is known to be different (commit, lock file), one line each.
    """

    is_same: bool
    before: SimulatedRun
    after: SimulatedRun
    recording_hashes: tuple[str, str]
    first_difference: int | None
    first_event: list[str]
    remarks: list[str]

    @property
    def lines(self) -> list[str]:
        """What to show a user."""
        lines = list(self.remarks)
        if self.is_same:
            return [*lines, f"bit-exact: trace {self.after.trace_hash}, {self.after.event_count} events"]
        lines.append(f"another run: trace {self.before.trace_hash} before, {self.after.trace_hash} now")
        lines.append(f"events {self.before.event_count} before, {self.after.event_count} now")
        lines += [f"    {line}" for line in self.first_event[:-1]]
        lines += [f"  > {line}   <- the first event that differs, as it was now" for line in self.first_event[-1:]]
        for name, one in (("before", self.before), ("now", self.after)):
            if one.invariant is not None:
                lines.append(f"{name}: {one.invariant} at event {one.violated_at_event}: {one.violation}")
        return lines


def replayed(
    run_dir: Path, again_dir: Path, progress: Silent | None = None, note: Callable[[str], None] = lambda line: None
) -> Replayed:
    """Run the plan of a recorded run again into another folder and compare."""
    plan, before = read_plan(run_dir / "plan.json"), known_of(run_dir)
    remarks = other_code(run_dir)
    for remark in remarks:
        note(remark)
    again_dir.mkdir(parents=True)
    _, after = conduct_simulated(plan, again_dir, progress or Silent())
    hashes = comparable_hashes(run_dir, again_dir)
    difference = first_difference(trace_of(run_dir), trace_of(again_dir))
    return Replayed(
        is_same=before.trace_hash == after.trace_hash and before.event_count == after.event_count,
        before=before,
        after=after,
        recording_hashes=hashes,
        first_difference=difference,
        first_event=[] if difference is None else lines_at(plan, difference),
        remarks=remarks,
    )


def comparable_hashes(before: Path, after: Path) -> tuple[str, str]:
    """Return both recordings' hashes as the version of the earlier one has it; empty for a run without manifest."""
    hashed = manifest_hash(before)
    if hashed.schema_version == SCHEMA_VERSION or not hashed.recording_hash:
        return hashed.recording_hash, recording_hash(after)
    return hashed.recording_hash, hash_of(Recording.open(after), hashed.schema_version)


def first_difference(before: Sequence[bytes], after: Sequence[bytes]) -> int | None:
    """Return the index of the first number that differs in two traces, None when they are the same."""
    base = 0
    for one, other in zip(before, after, strict=False):
        numbers, others = numbers_of(one), numbers_of(other)
        if numbers != others:
            same = (index for index, (a, b) in enumerate(zip(numbers, others, strict=False)) if a != b)
            return base + next(same, min(len(numbers), len(others)))
        base += len(numbers)
    return None if len(before) == len(after) else base


def trace_of(run_dir: Path) -> list[bytes]:
    """Return a run's trace; a run that kept none begins to differ at once."""
    try:
        return msgspec.msgpack.decode((run_dir / TRACE).read_bytes(), type=list[bytes])
    except (OSError, *UNREADABLE):
        return []


def lines_at(plan: Plan, number: int) -> list[str]:
    """Run once more as far as the trace's number, and return the line that reaches it, with a few before it."""
    recent: deque[str] = deque(maxlen=LINES_BEFORE + 1)

    def listen(simulation: Simulation) -> None:
        loop, trace = simulation.loop, simulation.loop.trace

        def line(text: str) -> None:
            recent.append(text)
            if trace.number_count > number:
                trace.sink = None
                loop.stop_at_event = loop.event_count  # before the next one

        trace.sink = line

    with Scratch("replay") as folder, without_complaints():
        with contextlib.suppress(InterruptedError):
            conduct_simulated(plan, folder, Silent(), listen)
        collect_quietly()  # whoever was stopped in the middle, and now closes its recording
    return list(recent)


def recorded_run(plan: Plan, runs: Path) -> Path | None:
    """Return the newest folder among these with a simulated run of this very plan; None when there is none."""
    wanted = encoded(plan)
    folders = sorted((path.parent for path in runs.glob(f"*/{FILE}")), key=lambda path: path.name, reverse=True)
    same = (path for path in folders if (path / "plan.json").is_file() and (path / "plan.json").read_bytes() == wanted)
    return next(same, None)


def other_code(run_dir: Path) -> list[str]:
    """Say what of a run's identity (commit, lock file, Python) is not what it was when it was recorded; [] when all is."""
    try:
        manifest = msgspec.json.decode((run_dir / MANIFEST).read_bytes(), type=dict[str, object])
    except (OSError, *UNREADABLE):
        return ["the run has no manifest: nobody knows with which code it was recorded"]
    remarks = []
    for what, name, now in (
        ("commit", "commit", commit()),
        ("lock file", "lock_sha256", lock_sha256()),
        ("Python", "python", platform.python_version()),
    ):
        then = manifest.get(name, "unknown")
        if then != now:
            remarks.append(f"recorded with another {what}: {_short(then)}, this is {_short(now)}")
    return remarks


def _short(identity: object) -> str:
    text, dirty = str(identity), "-dirty"
    return f"{text[:20]}{dirty}" if text.endswith(dirty) else text[:20]


class Trace:
    """Which lines of a trace are wanted: within any of the ranges, if there are some, and with any of the words."""

    def __init__(self, wanted: Sequence[str]) -> None:
        """Parse `first:last` (numbers of events), and words such as a machine, an API or a function; `all` is no word."""
        self._ranges: list[tuple[int, int]] = []
        self._words: list[str] = []
        for text in wanted:
            bounds = RANGE.fullmatch(text)
            if bounds is not None:
                self._ranges.append((int(bounds[1] or 0), int(bounds[2] or NO_END)))
            elif text != "all":
                self._words.append(text)

    @property
    def ends_before(self) -> int | None:
        """The first event that is behind all ranges; None where one is without end, or there is none."""
        last = max((last for _, last in self._ranges), default=NO_END)
        return None if last == NO_END else last + 1

    def takes(self, event: int, line: str) -> bool:
        """Return whether a line is wanted."""
        in_range = not self._ranges or any(first <= event <= last for first, last in self._ranges)
        return in_range and (not self._words or any(word in line for word in self._words))


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """How a simulation stood when it was stopped, or when it ended.

    last:  the last few lines of its trace.
    """

    event: int
    at_ns: int
    ended: bool
    state: list[str]
    last: list[str]
    probes: dict[str, int]
    violation: str | None


def shown(plan: Plan, *, until: int | None, trace: Trace | None, say: Callable[[str], None]) -> Moment:
    """Run a plan up to before the event of this number, and yield the wanted lines of its trace.

    until:  None: to the end, or to where the trace's ranges end.
    """
    if until is None and trace is not None:
        until = trace.ends_before
    seen: list[Simulation] = []
    recent: deque[str] = deque(maxlen=LINES_BEFORE)

    def listen(simulation: Simulation) -> None:
        seen.append(simulation)
        loop = simulation.loop
        loop.stop_at_event = until

        def line(text: str) -> None:
            recent.append(text)
            if trace is not None and trace.takes(loop.event_count, text):
                say(text)

        def observe(frame: Frame, fate: Fate) -> None:
            kind = "request" if frame.is_request else "response"
            what = f"{api_name(frame.api)} v{frame.version} {kind} {frame.correlation_id}"
            source, target = frame.transport.host.name, frame.transport.peer.host.name
            line(f"{loop.event_count} {loop.now_ns} {fate.value} {source} -> {target} {what}")

        loop.trace.sink = line
        simulation.network.frames.observers.append(observe)

    ended = True
    # Who is stopped in the middle of its `finally` block goes with the exception that stops it.
    with Scratch("replay") as folder, contextlib.nullcontext() if until is None else without_complaints():
        try:
            conduct_simulated(plan, folder, Silent(), listen)
        except InterruptedError:
            ended = False
        moment = _moment(seen.pop(), list(recent), ended=ended)
        collect_quietly()  # whoever was stopped in the middle, and now closes its recording
    return moment


def api_name(key: int) -> str:
    """Return an API's name; its key where we know none."""
    try:
        return Api(key).name
    except ValueError:
        return f"api {key}"


def _moment(simulation: Simulation, recent: list[str], *, ended: bool) -> Moment:
    loop, cluster = simulation.loop, simulation.cluster
    probes: Counter[str] = Counter()
    for (name, _), count in sorted(simulation.probes.counts.items()):
        probes[name] += count
    violation = cluster.watch.violation if isinstance(cluster, SimulatedCluster) else None
    return Moment(
        event=loop.event_count,
        at_ns=loop.now_ns,
        ended=ended,
        state=list(_standing(cluster)) if isinstance(cluster, SimulatedCluster) else [],
        last=recent,
        probes=dict(probes),
        violation=None if violation is None else str(violation),
    )


def _standing(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield who leads what, and where every replica's log ends, as the disks and the committed metadata have it."""
    state = cluster.committed.state
    yield f"quorum epoch {state.quorum_epoch}, led by {state.quorum_leader}"
    for partition, known in sorted(state.partitions.items()):
        ends = {
            node: log.end_offset
            for node, replicas in sorted(cluster.watch.replicas.items())
            if (log := replicas.logs.get(partition)) is not None
        }
        logs = ", ".join(f"{node}: {end}" for node, end in ends.items())
        elr = f", ELR {list(known.elr)}" if known.elr else ""
        yield f"{partition} leader {known.leader} epoch {known.leader_epoch}, ISR {list(known.isr)}{elr}; log ends {logs}"
