"""What the report says of a simulated run: what of its simulation.json it shows."""

from pathlib import Path

import msgspec

from tribunal.results.unreadable import UNREADABLE


class Simulation(msgspec.Struct, frozen=True):
    """A simulation's figures; `violation`: the sentence of the invariant at which it stopped, at which event."""

    simulated_ns: int = 0
    trace_hash: str = ""
    violation: str | None = None
    violated_at_event: int | None = None
    probes: dict[str, int] = {}


def simulation_of(run_dir: Path) -> Simulation | None:
    """Return what a simulation knows of its run; None for other kinds of cluster, and for a file that says something else."""
    try:
        return msgspec.json.decode((run_dir / "simulation.json").read_bytes(), type=Simulation)
    except (OSError, *UNREADABLE):
        return None
