"""Run a recorded seed again and say whether it is the same run, event by event.

Two simulations of a plan are the same if their trace hashes agree. Where they do not (the code or the machine's libraries
changed), the trace that every run keeps says which number is the first to differ; the new run is run once more up to
there, to say in words which event that is.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from clusters.simulated.trace import numbers_of
from clusters.simulated.world import Simulation
from harness.plan import Plan, read_plan
from harness.progress import Silent
from harness.run import commit, lock_sha256
from harness.simulated import TRACE, SimulatedRun, conduct_simulated, known_of
from harness.sweep import recording_hash

MANIFEST: Final = "manifest.json"
LINES_BEFORE: Final = 4


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
        """What to tell a user."""
        lines = list(self.remarks)
        if self.is_same:
            return [*lines, f"bit-exact: trace {self.after.trace_hash}, {self.after.event_count} events"]
        lines.append(f"another run: trace {self.before.trace_hash} before, {self.after.trace_hash} now")
        lines.append(f"events {self.before.event_count} before, {self.after.event_count} now")
        lines += [f"    {line}" for line in self.first_event[:-1]]
        lines += [f"  > {line}   <- the first event that differs" for line in self.first_event[-1:]]
        for name, one in (("before", self.before), ("now", self.after)):
            if one.invariant is not None:
                lines.append(f"{name}: {one.invariant} at event {one.violated_at_event}: {one.violation}")
        return lines


def replayed(
    run_dir: Path, again_dir: Path, progress: Silent | None = None, note: Callable[[str], None] = lambda line: None
) -> Replayed:
    """Run the plan of a recorded run again into another folder and compare."""
    plan, before = read_plan(run_dir / "plan.json"), known_of(run_dir)
    remarks = _remarks(run_dir)
    for remark in remarks:
        note(remark)
    again_dir.mkdir(parents=True)
    _, after = conduct_simulated(plan, again_dir, progress or Silent())
    hashes = recording_hash(run_dir), recording_hash(again_dir)
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
    except (OSError, msgspec.DecodeError):
        return []


def lines_at(plan: Plan, number: int) -> list[str]:
    """Run once more and return the line at which the trace reaches a number, with a few before it."""
    recent: deque[str] = deque(maxlen=LINES_BEFORE + 1)

    def listen(simulation: Simulation) -> None:
        trace = simulation.loop.trace

        def line(text: str) -> None:
            recent.append(text)
            if trace.number_count > number:
                trace.sink = None

        trace.sink = line

    with tempfile.TemporaryDirectory() as folder:
        conduct_simulated(plan, Path(folder), Silent(), listen)
    return list(recent)


def _remarks(run_dir: Path) -> list[str]:
    """Say what is known to have changed since the run was recorded."""
    try:
        manifest = msgspec.json.decode((run_dir / MANIFEST).read_bytes())
    except (OSError, msgspec.DecodeError):
        return ["the run has no manifest: nobody knows with which code it was recorded"]
    remarks = []
    for what, name, now in (("commit", "commit", commit()), ("lock file", "lock_sha256", lock_sha256())):
        then = manifest.get(name, "unknown")
        if then != now:
            remarks.append(f"recorded with another {what}: {str(then)[:20]}, this is {now[:20]}")
    return remarks
