"""Two runs beside each other: what was planned, what was done, with which code, and what came of it.

For simulated runs the first event that differs is named: from there on they are two histories.
"""

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from tribunal.harness.campaign.replay import first_difference, lines_at, trace_of
from tribunal.harness.evidence.bundle import counted
from tribunal.harness.plan import Plan, encoded, read_plan
from tribunal.harness.simulated import FILE
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import load

# Of a manifest: what a run was made with; the rest is what it recorded.
MADE_WITH: Final = ("commit", "lock_sha256", "python", "platform", "mutants", "settings")
NOTHING: Final = "-"


class Difference(msgspec.Struct, frozen=True):
    """One thing that differs: where, and what it is in the one and in the other."""

    what: str
    one: str
    other: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs' differences by what they concern; `first_event` are the last lines of each trace, the last one differs."""

    plan: list[Difference]
    schedule: list[Difference]
    made_with: list[Difference]
    verdict: list[Difference]
    trace: str
    first_event: dict[str, list[str]]

    @property
    def is_same(self) -> bool:
        """Whether nothing differs that should agree for the same seed and code."""
        return not (self.plan or self.schedule or self.made_with or self.verdict or self.first_event)

    @property
    def first_lines(self) -> list[str]:
        """What to show of where the traces part: each run's side says what it is of."""
        ends = {lines[-1] if lines else "" for lines in self.first_event.values()}
        roles = ("the first event that differs, in the one run", "what the other run did instead")
        if len(ends) == 1:
            roles = ("in the one run", "the same in words; what it carries or changes differs")
        shown = []
        for (name, lines), role in zip(self.first_event.items(), roles, strict=False):
            shown += [f"  {name}", *(f"      {line}" for line in lines[:-1])]
            shown += [f"    > {line}   <- {role}" for line in lines[-1:]]
        return shown


def compared(one: Path, other: Path) -> Compared:
    """Compare two runs' folders; `BadScenario` when one has no plan."""
    plans = read_plan(one / "plan.json"), read_plan(other / "plan.json")
    trace, first_event = _traces((one, other), plans)
    return Compared(
        plan=_differences(*(_flat(msgspec.json.decode(encoded(plan))) for plan in plans)),
        schedule=_differences(_schedule(one), _schedule(other)),
        made_with=_differences(_made_with(one), _made_with(other)),
        verdict=_differences(_said(one), _said(other)),
        trace=trace,
        first_event=first_event,
    )


def _differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(name, one.get(name, NOTHING), other.get(name, NOTHING))
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    ]


def _flat(value: object, prefix: str = "") -> dict[str, str]:
    """Return `a.b.0.c` -> value as JSON for everything inside a decoded JSON value."""
    if isinstance(value, dict):
        parts: Iterator[tuple[str, object]] = iter(value.items())
    elif isinstance(value, list):
        parts = ((str(index), part) for index, part in enumerate(value))
    else:
        return {prefix: msgspec.json.encode(value).decode()}
    found: dict[str, str] = {}
    for name, part in parts:
        found |= _flat(part, f"{prefix}.{name}" if prefix else name)
    return found


def _json(path: Path) -> dict[str, object]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, *UNREADABLE):
        return {}


def _made_with(run_dir: Path) -> dict[str, str]:
    manifest = _json(run_dir / "manifest.json")
    return _flat({name: manifest[name] for name in MADE_WITH if name in manifest})


def _schedule(run_dir: Path) -> dict[str, str]:
    path = run_dir / "schedule.jsonl"
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return _flat({f"fault {index}": _decoded(line) for index, line in enumerate(lines) if line})


def _decoded(line: bytes) -> object:
    """Return a line of a schedule; as text where its harness was killed while it wrote it."""
    try:
        return msgspec.json.decode(line)
    except UNREADABLE:
        return line.decode(errors="replace")


def _said(run_dir: Path) -> dict[str, str]:
    path = run_dir / "verdict.json"
    if not path.is_file():
        return {}
    verdict = load(path)
    return {"verdict": str(verdict.verdict), **{name: str(count) for name, count in counted(verdict).items()}}


def _traces(runs: tuple[Path, Path], plans: tuple[Plan, Plan]) -> tuple[str, dict[str, list[str]]]:
    if not all((run / FILE).is_file() for run in runs):
        return "not simulated both: there are no traces to compare", {}
    difference = first_difference(*(trace_of(run) for run in runs))
    if difference is None:
        return "the same history, event by event", {}
    have_own_names = runs[0].name != runs[1].name
    names = [run.name if have_own_names else str(run) for run in runs]
    lines = {name: _lines(plan, difference) for name, plan in zip(names, plans, strict=True)}
    return f"two histories from number {difference} of the trace on", lines


def _lines(plan: Plan, number: int) -> list[str]:
    """Run a plan up to there in a process of its own: a known bug that it switches on stays on for good."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as own:
        return own.submit(lines_at, plan, number).result()
