"""How `tribunal shrink` and `tribunal bisect` run plans of described systems: again and again, on the system's own nodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from tribunal.harness.campaign.repetition import CONFIDENCE, SHARE, Repeated, SequentialTest
from tribunal.harness.campaign.runners import Runner
from tribunal.harness.cli.cluster import Place
from tribunal.harness.cli.session import conduct
from tribunal.harness.cli.usage import UsageError
from tribunal.harness.plan import Plan
from tribunal.results.intervals import interval
from tribunal.results.signature import Signature
from tribunal.results.verdict import RunVerdict

Share = Annotated[
    float | None, typer.Option(help="Of a described system: the share of runs that have to show it; default: 0.5.")
]
Confidence = Annotated[
    float | None, typer.Option(help="Of a described system: how surely each plan is judged; default: 0.9.")
]
FRESH: Final = 8  # runs of the smallest plan that had no say in its being chosen


def conducted(plan: Plan, out: Path) -> tuple[Path, RunVerdict] | None:
    """Run and judge one plan of many; None when interrupted."""
    judged = conduct(plan, out, "inline", quiet=True, is_one_of_many=True)
    return None if judged is None else (judged.run_dir, judged.verdict)


@contextmanager
def repeated_at(
    where: Place,
    jobs: int | None,
    sought: Signature,
    share: float | None,
    confidence: float | None,
    say: Callable[[str], None],
) -> Iterator[Repeated]:
    """Give what runs plans of a described system. Raises `UsageError`, and `BadScenario` for numbers that no test has."""
    if where.cluster is not None or (jobs or 1) > 1:
        raise UsageError(
            "--jobs, --master, --remote: runs of a described system are real ones on this machine, one after the other"
        )
    test = SequentialTest.of(SHARE if share is None else share, CONFIDENCE if confidence is None else confidence)
    say(test.words)
    yield Repeated(conducted, sought, test, say)


def again(runner: Runner, plan: Plan, scratch: Path) -> dict[str, object]:
    """Run the smallest plan some times more, and return the share with its interval; nothing where a seed repeats runs."""
    if not isinstance(runner, Repeated):
        return {}
    shown = sum(runner.attempt(plan, scratch).shows for _ in range(FRESH))
    low, high = interval(shown, FRESH)
    return {
        "test": runner.words,
        "runs": runner.runs,
        "fresh": f"{shown} of {FRESH} more runs show it (95 %: {low:.0%} to {high:.0%})",
    }
