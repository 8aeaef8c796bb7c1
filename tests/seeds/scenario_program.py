"""A program for the determinism check: one seed of a shipped scenario, judged by trace, events and recording."""

import tempfile
from pathlib import Path

import msgspec

from tribunal.clusters.simulated.determinism import Fingerprint
from tribunal.harness.campaign.mutation_score import plan_of
from tribunal.harness.campaign.sweep import recording_hash
from tribunal.harness.catalog import scenarios
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import load
from tribunal.harness.simulated import conduct_simulated

SHORT_MS = 4_000  # how long rounds of faults go on: the first round is always whole


def any_scenario(seed, sink):
    """Run the seed's scenario: all of them in turn."""
    names = [name for name, path in sorted(scenarios().items()) if not load(path, {}).spec.security]  # of real nodes
    plan = msgspec.structs.replace(plan_of(names[seed % len(names)], seed, ()), time_ms=SHORT_MS, warm_up_ms=500)

    def listen(simulation):
        simulation.loop.trace.sink = sink

    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        run_dir.mkdir()
        _, known = conduct_simulated(plan, run_dir, Silent(), listen)
        return Fingerprint(known.trace_hash, known.event_count, recording_hash(run_dir))
