"""How fast the simulator is: simulated seconds and events per CPU second, and where the time goes.

    python bench/simulator.py [--seconds 60] [--rate 150] [--seeds 3] [--profile]

Three brokers, three controllers, five clients (four producers of all acks levels, one consumer), 150 records a second
in all. Each row switches one more thing on: the bare cluster, then the invariants, then recording to Parquet with
the conductor, then judging.
"""

import argparse
import asyncio
import cProfile
import pstats
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from clusters.clock import RunClock
from clusters.simulated import launch
from clusters.simulated.guard import sealed
from clusters.simulated.world import Simulation
from clusters.spec import ClusterSpec
from harness.catalog import scenario_file
from harness.plan import made
from harness.schedule import load as load_scenario
from harness.sweep import run_seed
from workloads.api import Stage
from workloads.produce_consume import Options, plan, prepare, run


class NoRecording:
    """Takes rows and forgets them."""

    def __init__(self):
        self.count = 0

    def row(self, table, **columns):
        self.count += 1


def cluster_under_load(seed, seconds, rate, *, watched):
    """Run a cluster under load; return the simulation and CPU seconds (start-up excluded and apart)."""
    began = time.process_time()
    marks = {}
    with sealed(Simulation(seed)) as simulation:

        async def main():
            clock = RunClock()
            cluster = await launch(ClusterSpec(), Path("/nonexistent"), clock, "bench")
            if not watched:
                cluster.watch._look = lambda: cluster.committed.advance(cluster.watch.replicas, {})
                for node in cluster.nodes.values():
                    node.machine.disk.watcher = None
            chosen = plan(Options(partitions=6, rate=rate, readers=1), simulation.loop.random("load"))
            stage = Stage(clients=cluster.clients, sink=NoRecording(), now_ns=clock.now_ns)
            await prepare(stage, chosen, 3)
            marks["up"] = (time.process_time(), simulation.loop.event_count, simulation.loop.now_ns)
            loading = asyncio.create_task(run(stage, chosen))
            await asyncio.sleep(seconds)
            marks["end"] = (time.process_time(), simulation.loop.event_count, simulation.loop.now_ns)
            stage.stopping.set()
            await loading
            return stage

        stage = simulation.run(main())
        messages = simulation.network.message_count
    (up_s, up_events, up_ns), (end_s, end_events, end_ns) = marks["up"], marks["end"]
    cpu_s, events, simulated_s = end_s - up_s, end_events - up_events, (end_ns - up_ns) / 1e9
    acknowledged = sum(count for (_, outcome), count in stage.tally.items() if outcome == "ok")
    print(
        f"{'with' if watched else 'without'} invariants  seed {seed}: start-up {up_s - began:.2f} s CPU; "
        f"{simulated_s / cpu_s:.1f} simulated s per CPU s, {events / cpu_s:,.0f} events/s "
        f"({1e6 * cpu_s / events:.1f} us each), {events / simulated_s:,.0f} events and "
        f"{messages / simulated_s:,.0f} messages per simulated s; {acknowledged:,} acknowledged"
    )


def whole_seed(seed, seconds, rate):
    """Run, record, judge one seed as a sweep does."""
    scenario = load_scenario(scenario_file("produce-consume"), {"workload.rate": str(rate), "workload.readers": "1"})
    chosen = made(scenario, seed=seed, cluster="simulated", time_ms=seconds * 1000, mutants=())
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    began = time.process_time()
    result = run_seed(chosen, folder / "run")
    cpu_s = time.process_time() - began
    shutil.rmtree(folder)
    simulated_s = result.simulated_ms / 1000
    print(
        f"recorded and judged  seed {seed}: {simulated_s:.0f} simulated s in {cpu_s:.2f} CPU s: {simulated_s / cpu_s:.1f} "
        f"per CPU s, {3600 / cpu_s:,.0f} such seeds per hour and core; {result.verdict}"
    )


def profiled(seed, seconds, rate):
    """Show where the time of a watched cluster goes, by package."""
    profile = cProfile.Profile()
    profile.enable()
    cluster_under_load(seed, seconds, rate, watched=True)
    profile.disable()
    shares = Counter()
    for (file, _, _), (_, _, own_s, _, _) in pstats.Stats(profile).stats.items():
        parts = Path(file).parts
        known = next(
            (parts[parts.index(name) :][:3] for name in ("replog", "clusters", "workloads") if name in parts), ()
        )
        shares["/".join(known) or "the interpreter"] += own_s
    whole = sum(shares.values())
    for name, own_s in shares.most_common(25):
        print(f"{100 * own_s / whole:5.1f} %  {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    if chosen.profile:
        profiled(1, chosen.seconds, chosen.rate)
    else:
        for seed in range(1, chosen.seeds + 1):
            cluster_under_load(seed, chosen.seconds, chosen.rate, watched=False)
            cluster_under_load(seed, chosen.seconds, chosen.rate, watched=True)
            whole_seed(seed, chosen.seconds, chosen.rate)
