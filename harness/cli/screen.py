"""A verdict on one screen, and what to do next."""

from pathlib import Path
from shlex import quote
from typing import Final

from tribunal.harness.plan import Plan
from tribunal.harness.terminal import plain
from tribunal.results.plain_words import sentences
from tribunal.results.report.groups import Group, grouped
from tribunal.results.verdict import PERMITTED_TABLE, RunVerdict, Verdict, how_much

FINDINGS_SHOWN: Final = 5
PERMITTED_SHOWN: Final = 1
REASONS_SHOWN: Final = 6
REASON_WIDTH: Final = 220


def one_screen(verdict: RunVerdict, run_dir: Path, plan: Plan | None) -> str:
    """Return the verdict as lines."""
    first, *more = sentences(verdict)
    lines = [f"{verdict.verdict}  {first}", *(f"  {sentence}" for sentence in more)]
    if verdict.verdict is Verdict.VIOLATION:
        lines.append(f"  {verdict.claim}")
    found = verdict.violations or verdict.permitted
    most = FINDINGS_SHOWN if verdict.violations else PERMITTED_SHOWN
    causes = grouped(found)[:most]
    lines += [_cause(one) for one in causes]
    if len(found) > len(causes):
        lines.append(f"  … and {len(found) - len(causes)} more witnesses in {run_dir / 'verdict.json'}")
    if verdict.permitted_rows:
        lines.append(
            f"  all {verdict.permitted_rows:,} that are permitted, with rule and event: {run_dir / PERMITTED_TABLE}"
        )
    lines += [f"  ✗ {_short(reason)}" for reason in verdict.reasons[:REASONS_SHOWN]]
    lines += _coverage(verdict)
    report = run_dir / "report.html"
    if report.exists():
        lines.append(f"report    {report}")
    if plan is not None and verdict.verdict is Verdict.VIOLATION:
        lines.append(f"explain   tribunal explain {quote(str(run_dir))}")
    if plan is not None:
        lines.append(f"again     {again(plan, run_dir)}")
    return "\n".join(lines)


def _cause(cause: Group) -> str:
    """Say what many findings have in common in one line, by the earliest of them."""
    found = cause.witnesses[0]
    acks = {None: "", -1: "acks=all", 0: "acks=0", 1: "acks=1"}[found.acks]
    # Of a record it is when it was acknowledged, of anything else when it was.
    when = "at" if found.acks is None else "acked"
    at = f" {when} {found.acknowledged_ns / 1e9:.3f} s" if found.acknowledged_ns is not None else ""
    value = f" value {found.value}" if found.value is not None else ""
    many = f"  ({cause.count:,} alike)" if cause.count > 1 else ""
    rule = f"  [{found.rule}]" if found.rule else ""
    return plain(f"  {found.place}{value} {acks}{at}  {found.explanation}{rule}{many}")


def _short(reason: str) -> str:
    lines = reason.splitlines() or [""]
    first = lines[0] if len(lines[0]) <= REASON_WIDTH else f"{lines[0][:REASON_WIDTH]} …"
    return "\n".join([first, *lines[1:]])


def _coverage(verdict: RunVerdict) -> list[str]:
    faults = verdict.test.faults
    effective, healed = (
        sum(fault.took_effect is True for fault in faults),
        sum(fault.healed is True for fault in faults),
    )
    judged = ", ".join(how_much(verdict.judged))
    lines = [f"coverage  faults {effective}/{len(faults)} effective, heals {healed}/{len(faults)}"] if faults else []
    if verdict.coverage.cells:
        cells = f"in {verdict.coverage.judged:,} of {verdict.coverage.cells:,} cells (a property in a partition)"
        judged = f"{judged}, {cells}" if judged else cells  # SQL counts nothing
    return [*lines, f"judged    {judged}"] if judged else lines


def again(plan: Plan, run_dir: Path) -> str:
    """Return the line to paste that runs the same plan again."""
    return f"tribunal run --plan {quote(str(run_dir / 'plan.json'))}   (scenario {plan.scenario}, seed {plan.seed})"
