"""The story of each lost or rewound record, from a run's recording: the report's own story, for every finding.

Works for any recording, of a simulation, of local processes or of a real Kafka: what its tables do not say is left out. Findings
alike (one kind, partition and election) are shown once, with the others counted.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.checkers.judge.verdict import check
from tribunal.results.history import load as load_history
from tribunal.results.report.groups import Group, grouped
from tribunal.results.report.imported import Named, named
from tribunal.results.report.moments import changes_of
from tribunal.results.report.story import Story, acks_name, located, story_of
from tribunal.results.store import Recording
from tribunal.results.values import record_name
from tribunal.results.verdict import Finding, RunVerdict, load

EXPLAINED: Final = ("violation", "permitted")
NS_PER_S: Final = 1_000_000_000
MOST_CHARACTERS: Final = 1_000  # of a step


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A finding's story, and how many findings alike it stands for."""

    story: Story
    group: Group


def explained(
    run_dir: Path, *, at_offset: int | None = None, severities: Sequence[str] = EXPLAINED
) -> Iterator[Explained]:
    """Yield the stories of a run's findings, the gravest and earliest first; a run without a verdict is judged first.

    at_offset:  only the findings at this offset, each shown by itself.
    """
    verdict = _verdict(run_dir)
    findings = [one for one in verdict.findings if one.severity in severities]
    if at_offset is not None:
        findings = [one for one in findings if one.log_offset == at_offset]
    recording = Recording.open(run_dir, compare=False)  # says of a folder without one what it is
    end_ns = max((row["end_ns"] or 0 for row in recording.table("phases", columns=["end_ns"]).to_pylist()), default=1)
    for group in sorted(grouped(findings), key=lambda one: (severities.index(one.severity), one.first_ns or 0)):
        for witness in group.witnesses if at_offset is not None else group.witnesses[:1]:
            yield Explained(story=_story(recording, witness, end_ns), group=group)


def of_history(run_dir: Path) -> list[tuple[Finding, list[Named]]]:
    """Return an imported history's violations, each with the operations that it names: of a cluster nothing is known."""
    verdict = _verdict(run_dir)
    events, _ = load_history(run_dir)
    return [(one, named(events, [one])) for one in verdict.violations]


def lines_of_history(finding: Finding, operations: Sequence[Named]) -> Iterator[str]:
    """Yield what to print of one of them."""
    yield f"{finding.severity.upper()}  {finding.kind}{f', {finding.count} times' if finding.count > 1 else ''}"
    yield f"  {finding.explanation}"
    for one in operations:
        times = [f"{at / NS_PER_S:.6f}" for at in (one.start_ns, one.end_ns) if at is not None]
        when = f"{' to '.join(times)} s" if times else ""
        yield f"  {one.name:<8} process {one.process:<6} {one.outcome:<5} {when:<26} {one.steps}"


def _verdict(run_dir: Path) -> RunVerdict:
    stated = run_dir / "verdict.json"
    return load(stated) if stated.is_file() else check([run_dir], "inline")[0]


def _story(recording: Recording, finding: Finding, end_ns: int) -> Story:
    finding = located(recording, finding)
    changes = [] if finding.topic is None else list(changes_of(recording, f"{finding.topic}-{finding.partition}"))
    return story_of(recording, finding, changes, end_ns)


def _short(text: str) -> str:
    """Return a step as a terminal can show it: a circle of seventy transactions has whole lists of each."""
    left_out = len(text) - MOST_CHARACTERS
    return text if left_out <= 0 else f"{text[:MOST_CHARACTERS]} ... ({left_out:,} characters more are in verdict.json)"


def lines(one: Explained) -> Iterator[str]:
    """Yield what to print: a heading, a line a step, and what else is alike."""
    finding, group = one.story.finding, one.group
    about = [] if finding.value is None else [record_name(finding.value), acks_name(finding.acks)]
    if finding.topic is None and finding.value is not None:
        about = [f"value {finding.value}"]  # of a system's object, whose values are its client's own
    yield f"{finding.severity.upper()}  {finding.kind.replace('_', ' ')}  {finding.place}  {', '.join(about)}".rstrip()
    for sentence in dict.fromkeys((finding.explanation, finding.detail.promise or group.reason)):
        if sentence:
            yield f"  {sentence}" + (f" ({finding.rule})" if finding.rule else "")
    for step in one.story.steps:
        where = step.lane if step.to is None or step.to == step.lane else f"{step.lane} -> {step.to}"
        mark = "!" if step.tone == "bad" else "x" if step.tone == "fault" else " "
        yield f"{step.at_ns / NS_PER_S:>10.3f} s {mark} {where:<22} {_short(step.text)}"
    if one.story.folded:
        yield f"{'':>14} {one.story.folded} more steps between are left out"
    if group.count > 1:
        offsets = ", ".join(str(other.log_offset) for other in group.witnesses if other.log_offset is not None)
        yield f"{'':>14} {group.count} records alike{f', for example at {offsets}' if offsets else ''}"
