"""What the report says of a simulated run: what of its simulation.json it shows; and of any run, which rare states its nodes counted."""

from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.store import Recording
from tribunal.results.unreadable import UNREADABLE

POINT: Final = "point "  # a fault injection point: a fault of the plan, no state of a node


class Simulation(msgspec.Struct, frozen=True):
    """A simulation's figures; `violation`: the sentence of the invariant at which it stopped, at which event.

    unreached:  rare states that its nodes can count and did not.
    """

    simulated_ns: int = 0
    trace_hash: str = ""
    violation: str | None = None
    violated_at_event: int | None = None
    probes: dict[str, int] = {}
    unreached: list[str] = []


def simulation_of(run_dir: Path) -> Simulation | None:
    """Return what a simulation knows of its run; None for other kinds of cluster, and for a file that says something else."""
    try:
        return msgspec.json.decode((run_dir / "simulation.json").read_bytes(), type=Simulation)
    except (OSError, *UNREADABLE):
        return None


def rare_states(recording: Recording) -> dict[str, int]:
    """Return how often each rare state was reached, as nodes have counted: each process from one on."""
    rows = recording.table("probes", columns=["name", "node", "at_ns", "count"]).sort_by("at_ns").to_pylist()
    found: dict[str, int] = {}
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        name, count = row["name"], row["count"]
        if name.startswith(POINT):
            continue
        before = last.get((name, row["node"]), 0)
        found[name] = found.get(name, 0) + (count - before if count >= before else count)
        last[name, row["node"]] = count
    return dict(sorted(found.items()))
