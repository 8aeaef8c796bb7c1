"""The minimal run: what `tribunal shrink` left of the plan, which still shows the finding. It is beside the run's own plan."""

from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "plan.min.json"


class _Target(msgspec.Struct, frozen=True):
    text: str


class _Fault(msgspec.Struct, frozen=True):
    kind: str
    target: _Target
    lasts_ms: int
    after_ms: int


class _Spec(msgspec.Struct, frozen=True):
    brokers: int
    controllers: int


class _Plan(msgspec.Struct, frozen=True):
    """What of a plan stands in a report."""

    seed: int
    spec: _Spec
    time_ms: int
    faults: list[_Fault]


class Minimal(msgspec.Struct, frozen=True, kw_only=True):
    """The minimal run: its size beside that of the whole plan, and its faults in words."""

    path: Path
    sizes: list[tuple[str, int, int]]
    faults: list[str]


def minimal_of(run_dir: Path) -> Minimal | None:
    """Return what was left of a run's plan; None when it was not shrunk."""
    try:
        whole, small = (msgspec.json.decode((run_dir / name).read_bytes(), type=_Plan) for name in ("plan.json", FILE))
    except (OSError, msgspec.DecodeError):
        return None
    return Minimal(
        path=run_dir / FILE,
        sizes=[
            ("faults", len(whole.faults), len(small.faults)),
            ("brokers", whole.spec.brokers, small.spec.brokers),
            ("controllers", whole.spec.controllers, small.spec.controllers),
            ("milliseconds", whole.time_ms, small.time_ms),
        ],
        faults=[_words(fault) for fault in small.faults],
    )


def _words(fault: _Fault) -> str:
    return (
        f"{fault.kind} {fault.target.text} for {fault.lasts_ms:,} ms, {fault.after_ms:,} ms after the cluster was whole"
    )
