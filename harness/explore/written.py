"""What a search leaves: text for a terminal, JSON, a page, and a scenario where the counterexample can be outcome as one."""

from pathlib import Path

import msgspec

from tribunal.results.explored import Counterexample, Explored
from tribunal.results.report.exploration import render


def text(found: Explored) -> str:
    """Return what was explored, and the counterexample step by step."""
    lines = [
        f"world {found.world}: {found.states} states, {found.steps_taken} steps, {found.seconds:.1f} s; "
        f"ended by {found.stopped}",
        f"complete up to {found.depth} steps from the start" + (": there is nothing else" if found.is_whole else ""),
    ]
    if found.mutants:
        lines.append(f"known bugs switched on: {', '.join(found.mutants)}")
    if found.counterexample is None:
        return "\n".join([*lines, "no invariant is broken"])
    return "\n".join([*lines, *_way_lines(found.counterexample)])


def _way_lines(example: Counterexample) -> list[str]:
    lines = [f"BROKEN {broken.invariant}: {broken.words}" for broken in example.broken]
    for number, shown in enumerate(example.way):
        lines.append(f"{number:>3}. {shown.step or 'the beginning'}")
        before = {row.part: row.words for row in example.way[number - 1].rows} if number else {}
        lines += [f"       {row.part}: {row.words}" for row in shown.rows if before.get(row.part) != row.words]
    return lines


def names(found: Explored) -> list[str]:
    """Return the files that `write` leaves."""
    with_scenario = found.counterexample is not None and found.counterexample.scenario is not None
    return ["explored.json", "explored.html", *(["scenario.yaml"] if with_scenario else [])]


def write(found: Explored, out: Path) -> None:
    """Write the result into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "explored.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    (out / "explored.html").write_text(render(found), encoding="utf-8")
    if found.counterexample is not None and found.counterexample.scenario is not None:
        (out / "scenario.yaml").write_text(found.counterexample.scenario, encoding="utf-8")
