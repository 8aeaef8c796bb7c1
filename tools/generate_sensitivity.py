"""Write docs/sensitivity.md from figures that `tribunal calibrate RUN --out FIGURES.json` has kept, a file a recording and draw.

python tools/generate_sensitivity.py COMMIT FIGURES.json...
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tribunal.checkers.calibration.api import classes
from tribunal.results.sensitivity import Figure, added, total

TARGET = Path(__file__).parent.parent / "docs" / "sensitivity.md"
HEAD = """# How much the judge sees

Anomalies put into copies of recordings with `tribunal calibrate` ([calibration](calibration.md)), one changed fact each, where no rule of [verdicts](verdicts.md) permits them.
{seen:,} of {injected:,} were seen: each as a violation in its own place that the recording itself has not. {faults:,} of them lie in runs of `unclean-recovery`, `power-loss-all`,
`consumer-group`, `exactly-once`, `transactions` and `rotating-swarm`, half of the recordings in KRaft and half in ZooKeeper mode, in which nodes were killed, lost power, were cut off, and
lost records by right. Judged by commit {commit}, on the simulator, inline; seeds {seeds}. The recordings that are named quiet are the short runs of
`tests/checkers/test_calibration.py`, in which nobody is hurt.

This page is made by `python tools/generate_sensitivity.py` from the figures that the command keeps. The nightly run measures its own recordings and fails when it sees less than the night
before ([nightly](nightly.md)).

| scenario | recordings | put in | seen |
|---|---|---|---|
"""
HURT = ("unclean-recovery", "power-loss-all", "consumer-group", "exactly-once", "transactions", "rotating-swarm")


class Measured(msgspec.Struct, frozen=True):
    """What a file of figures holds, as far as the page says it."""

    runs: list[str]
    figures: dict[str, Figure]

    @property
    def scenario(self) -> str:
        """The scenario of the run's name: time, scenario, cluster, seed."""
        return self.runs[0].partition("-")[2].rpartition("-simulated-")[0]

    @property
    def seed(self) -> int:
        """The seed of the run's name."""
        return int(self.runs[0].rpartition("-")[2])


def page(measured: Sequence[Measured], commit: str) -> str:
    """Return the page."""
    return "\n".join(_lines(measured, commit)) + "\n"


def _lines(measured: Sequence[Measured], commit: str) -> Iterator[str]:
    figures = added(one.figures for one in measured)
    whole = total(figures.values())
    faults = total(figure for one in measured if one.scenario in HURT for figure in one.figures.values())
    seeds = ", ".join(map(str, sorted({one.seed for one in measured})))
    yield HEAD.format(
        seen=whole.seen, injected=whole.injected, faults=faults.injected, commit=commit, seeds=seeds
    ).rstrip()
    for scenario in sorted({one.scenario for one in measured}):
        own = [one for one in measured if one.scenario == scenario]
        recordings = len({one.runs[0] for one in own})
        figure = total(figure for one in own for figure in one.figures.values())
        yield f"| {scenario} | {recordings} | {figure.injected} | {figure.seen} |"
    yield "\n| class | what is changed | put in | seen |\n|---|---|---|---|"
    for name, one in classes().items():
        figure = figures.get(name, Figure(injected=0, seen=0))
        yield f"| `{name}` | {one.changes} | {figure.injected} | {figure.seen} |"


if __name__ == "__main__":
    files = [msgspec.json.decode(Path(name).read_bytes(), type=Measured) for name in sys.argv[2:]]
    TARGET.write_text(page(files, sys.argv[1]), encoding="utf-8")
