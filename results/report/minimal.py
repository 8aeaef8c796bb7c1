"""The minimal run: what `tribunal shrink` left of the plan, which still shows the finding, and its story. Both are beside the run's own plan.

The minimal run's recording does not stay: its story is written when it is known, and drawn whenever a report is made.
"""

from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.report.moments import changes_of
from tribunal.results.report.story import Story, located, protagonist, story_of
from tribunal.results.signature import Signature
from tribunal.results.store import Recording
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import load

FILE: Final = "plan.min.json"
STORY: Final = "story.min.json"


class _Target(msgspec.Struct, frozen=True):
    text: str


class _Fault(msgspec.Struct, frozen=True):
    kind: str
    target: _Target
    lasts_ms: int
    after_ms: int
    origin: int | None = None


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
    """The minimal run: its size beside that of the whole plan, its faults in words, and its story where it was kept.

    kept:  the indices, in the whole plan, of the faults that are left; None where the plan does not say.
    """

    path: Path
    sizes: list[tuple[str, int, int]]
    faults: list[str]
    kept: frozenset[int] | None = None
    story: Story | None = None


def keep_story(minimal_run: Path, run_dir: Path, sought: Signature | None) -> Path | None:
    """Write the minimal run's story beside the run's own plan; None where the run has nothing to tell.

    minimal_run:  the folder of the judged run of the minimal plan.
    sought:       what it was shrunk for: the story is of that finding.
    """
    findings = [one for one in load(minimal_run / "verdict.json").findings if one.severity == "violation"]
    hero = protagonist([one for one in findings if one.signature == sought] or findings)
    if hero is None:
        return None
    recording = Recording.open(minimal_run, compare=False)
    hero = located(recording, hero)
    changes = [] if hero.topic is None else list(changes_of(recording, f"{hero.topic}-{hero.partition}"))
    end_ns = max((row["end_ns"] or 0 for row in recording.table("phases", columns=["end_ns"]).to_pylist()), default=1)
    target = run_dir / STORY
    target.write_bytes(msgspec.json.encode(story_of(recording, hero, changes, end_ns)))
    return target


def minimal_of(run_dir: Path) -> Minimal | None:
    """Return what was left of a run's plan; None when it was not shrunk."""
    try:
        whole, small = (msgspec.json.decode((run_dir / name).read_bytes(), type=_Plan) for name in ("plan.json", FILE))
    except (OSError, *UNREADABLE):
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
        kept=_kept(whole, small),
        story=_story(run_dir),
    )


def _kept(whole: _Plan, small: _Plan) -> frozenset[int] | None:
    if len(small.faults) == len(whole.faults):
        return frozenset(range(len(whole.faults)))
    origins = frozenset(fault.origin for fault in small.faults if fault.origin is not None)
    return origins if len(origins) == len(small.faults) else None


def _story(run_dir: Path) -> Story | None:
    try:
        return msgspec.json.decode((run_dir / STORY).read_bytes(), type=Story)
    except (OSError, *UNREADABLE):
        return None


def _words(fault: _Fault) -> str:
    return (
        f"{fault.kind} {fault.target.text} for {fault.lasts_ms:,} ms, {fault.after_ms:,} ms after the cluster was whole"
    )
