"""Write docs/sensitivity.md, and what every report says of it, from figures that `tribunal calibrate RUN --out FIGURES.json` has kept, a file a recording and draw.

python tools/generate_sensitivity.py COMMIT FIGURES.json...
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tribunal.checkers.calibration.api import classes
from tribunal.results.sensitivity import MEASURED, Figure, Measurement, added, total

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "sensitivity.md"
HEAD = """# How much the judge sees

Anomalies put into copies of recordings with `tribunal calibrate` ([calibration](calibration.md)), one changed fact each, where no rule of [verdicts](verdicts.md) permits them.
{seen:,} of {injected:,} were seen: each as a violation in its own place that the recording itself has not. {faults:,} of them lie in runs of `unclean-recovery`, `power-loss-all`,
`consumer-group`, `exactly-once`, `transactions` and `rotating-swarm`, in KRaft and in ZooKeeper mode, in which nodes were killed, lost power, were cut off, and
lost records by right. Recorded and judged on the simulator, inline, by commit {commit}; seeds {seeds}.
Copies that turned out to break no promise are left out, each with its reason: [calibration](calibration.md#an-injection-is-a-real-violation).

To repeat it, for each scenario, mode and seed, at that commit (anomalies were drawn by {drawn}):

```
tribunal run SCENARIO --cluster simulated --mode MODE --seed SEED --engine inline --out runs/figures
tribunal calibrate runs/figures/<run> --per-class 2 --seed DRAW --out <run>.json
python tools/generate_sensitivity.py COMMIT *.json
```

This page is made by `python tools/generate_sensitivity.py` from the figures that the command keeps. The nightly run measures its own recordings and fails when it sees less than the night
before ([nightly](nightly.md)).
"""
INLINE = "inline"
HURT = ("unclean-recovery", "power-loss-all", "consumer-group", "exactly-once", "transactions", "rotating-swarm")


class Measured(msgspec.Struct, frozen=True):
    """What a file of figures holds, as far as the page says it; `drawn`: the seed of the anomalies."""

    runs: list[str]
    engine: str
    figures: dict[str, Figure]
    drawn: int = msgspec.field(name="seed")

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


def _lines(every: Sequence[Measured], commit: str) -> Iterator[str]:
    measured = [one for one in every if one.engine == INLINE]
    figures = added(one.figures for one in measured)
    whole = total(figures.values())
    faults = total(figure for one in measured if one.scenario in HURT for figure in one.figures.values())
    seeds = sorted({one.seed for one in measured})
    yield HEAD.format(
        seen=whole.seen, injected=whole.injected, faults=faults.injected, commit=commit,
        seeds=", ".join(map(str, seeds)), drawn=", ".join(map(str, sorted({one.drawn for one in measured}))),
    ).rstrip()  # fmt: skip
    yield from _of_others([one for one in every if one.engine != INLINE])
    yield "\n| scenario | recordings | put in | seen |\n|---|---|---|---|"
    for scenario in sorted({one.scenario for one in measured}):
        own = [one for one in measured if one.scenario == scenario]
        recordings = len({one.runs[0] for one in own})
        figure = total(figure for one in own for figure in one.figures.values())
        yield f"| {scenario} | {recordings} | {figure.injected} | {figure.seen} |"
    yield "\n| class | what is changed | put in | seen |\n|---|---|---|---|"
    for name, one in classes().items():
        figure = figures.get(name, Figure(injected=0, seen=0))
        yield f"| `{name}` | {one.changes} | {figure.injected} | {figure.seen} |"


def _of_others(others: Sequence[Measured]) -> Iterator[str]:
    """Say what the other engines saw of anomalies that they judged as well."""
    for engine in sorted({one.engine for one in others}):
        own = [one for one in others if one.engine == engine]
        figures = added(one.figures for one in own)
        figure, kinds = total(figures.values()), sum(1 for one in figures.values() if one.injected)
        runs = len({one.runs[0] for one in own})
        yield (
            f"\nThe engine `{engine}` judged {figure.injected:,} anomalies of {kinds} classes in {runs} of these recordings, and saw {figure.seen:,} "
            f"(`tribunal calibrate RUN --engine {engine} --out FILE`; such files are given to the tool beside the others)."
        )


if __name__ == "__main__":
    files = [msgspec.json.decode(Path(name).read_bytes(), type=Measured) for name in sys.argv[2:]]
    TARGET.write_text(page(files, sys.argv[1]), encoding="utf-8")
    own = [one for one in files if one.engine == INLINE]
    summary = Measurement(
        commit=sys.argv[1], recordings=len({one.runs[0] for one in own}), figures=added(one.figures for one in own)
    )
    Path(ROOT, "results", MEASURED).write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")
