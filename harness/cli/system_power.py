"""How `tribunal power --bugs` switches on known bugs of a described system: on its own nodes."""

from collections.abc import Callable
from pathlib import Path

from tribunal.harness.campaign import system_power as powers
from tribunal.harness.cli.repeated import conducted
from tribunal.harness.terminal import echo
from tribunal.results.power import Power
from tribunal.results.scratch import Scratch
from tribunal.results.signature import texts
from tribunal.results.verdict import RunVerdict


def power_of_system(
    file: Path, names: list[str], *, seeds: range, budget_s: float, out: Path, say: Callable[[Power], None]
) -> tuple[list[Power], bool]:
    """Seek a system's known bugs; return what became of each, and whether the system without them was accused of something."""
    bugs = powers.read(file)
    accused: list[Path] = []

    def accuse(run_dir: Path, verdict: RunVerdict) -> None:
        accused.append(run_dir)
        echo(f"the sound system by itself: {'; '.join(texts(verdict.signatures))}: {run_dir}", err=True)

    how = powers.Sought(seeds=seeds, budget_s=budget_s, conduct=conducted, out=out, notify=say, accuse=accuse)
    with Scratch("power", in_memory=False) as scratch:
        found = powers.power(file.parent, bugs, powers.chosen(bugs, names), how, scratch)
    return found, bool(accused)
