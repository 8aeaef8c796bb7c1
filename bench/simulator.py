"""How fast the simulator is: simulated seconds and events per CPU second, and where the time goes.

    python -m bench.simulator [--seconds 60] [--rate 150] [--seeds 3] [--profile] [--sweep 100]

Three brokers, three controllers, five clients (four producers of all acks levels, one consumer), 150 records a second
in all. Each row switches one more thing on: the bare cluster, then the invariants, then recording to Parquet with
the conductor, then judging.

--profile says how the time of a recorded and judged seed splits, by layer. cProfile makes calls dear, so layers of many small
functions look larger than they are; the shares add up, the seconds do not mean anything.
--sweep runs so many one-minute seeds as `tribunal sweep` does, all cores at once, and says seeds an hour, what a
seed costs besides its simulated time, and how the memory of the parent and of its children grows.

How it splits (CPython 3.11, November 2026, --profile --seconds 20): product 44 %, codec 12 %, clients and workload 8 %, loop 8 %,
network 7 %, invariants 7 %, recording 6 %, the interpreter's library 4 %, disk 3 %, judging 1 %. A simulated second is about
1,040 messages and 3,100 events; nine of ten messages are what 150 single records cost: a produce and two copies each.

The interpreter's build matters more than what is left to mend: one compiled without --enable-optimizations, as version managers
do, needs 10 to 13 % more CPU than Debian's 3.11; Debian's 3.13 and 3.14 are as fast as that one (paired, November 2026).
Traces are the same on 3.11 and 3.13.
"""

import argparse
import asyncio
import cProfile
import os
import platform
import pstats
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.sweep import run_seed, swept
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.scenario import load as load_scenario
from tribunal.harness.simulated import warm_up
from tribunal.results.scratch import Scratch
from tribunal.workloads.api import Stage
from tribunal.workloads.kinds.produce_consume import Options, plan, prepare, run


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
    with Scratch("bench", in_memory=True) as folder:
        began = time.process_time()
        result = run_seed(chosen, folder / "run")
        cpu_s = time.process_time() - began
    simulated_s = result.simulated_ms / 1000
    print(
        f"recorded and judged  seed {seed}: {simulated_s:.0f} simulated s in {cpu_s:.2f} CPU s: {simulated_s / cpu_s:.1f} "
        f"per CPU s, {3600 / cpu_s:,.0f} such seeds per hour and core; {result.verdict}"
    )


# The first prefix that fits names the layer.
LAYERS = (
    ("loop", "clusters/simulated/loop", "clusters/simulated/process", "clusters/simulated/trace", "asyncio/"),
    (
        "network",
        "clusters/simulated/network",
        "clusters/simulated/transport",
        "clusters/simulated/frames",
        "clusters/frame_rules",
    ),
    ("disk", "clusters/simulated/disk"),
    ("invariants", *(f"clusters/simulated/{name}" for name in ("watch", "replica_logs", "committed", "stability"))),
    ("codec", "replog/wire", "<encode", "<decode"),
    ("clients and workload", "replog/client", "clusters/", "workloads/"),
    ("product", "replog/"),
    ("recording", "results/store", "harness/collect", "harness/run", "pyarrow"),
    ("judging", "checkers/", "results/"),
)


def layer_of(file):
    """Return the layer that a source file belongs to."""
    return next((name for name, *prefixes in LAYERS if any(prefix in file for prefix in prefixes)), "the rest")


def profiled(seed, seconds, rate):
    """Show how the time of a recorded and judged seed splits; what is built in counts for who called it."""
    profile = cProfile.Profile()
    warm_up()
    profile.enable()
    whole_seed(seed, seconds, rate)
    profile.disable()
    shares = Counter()
    for (file, _, _), (_, _, own_s, _, callers) in pstats.Stats(profile).stats.items():
        if file == "~":
            for (caller, _, _), (_, _, share_s, _) in callers.items():
                shares[layer_of(caller)] += share_s
        else:
            shares[layer_of(file)] += own_s
    whole = sum(shares.values())
    for name, own_s in shares.most_common():
        print(f"{100 * own_s / whole:5.1f} %  {name}")


def whole_sweep(count, seconds, rate):
    """Run many seeds as a sweep does."""
    scenario = load_scenario(scenario_file("produce-consume"), {"workload.rate": str(rate), "workload.readers": "1"})
    plans = (made(scenario, seed=n, cluster="simulated", time_ms=seconds * 1000, mutants=()) for n in range(count))
    warm_up()
    memory = []
    began, busy = time.perf_counter(), children_s()
    with Scratch("bench", in_memory=True) as scratch:
        account = swept(
            plans, jobs=os.cpu_count() or 1, budget_s=None, scratch=scratch,
            notify=lambda result, sweep: memory.append(resident_kib()),
        )  # fmt: skip
    elapsed_s, cpu_s = time.perf_counter() - began, (children_s() - busy) / count
    most_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    simulated_s = account.simulated_ms / 1000 / count
    print(
        f"sweep  {count} seeds of {simulated_s:.0f} simulated s: {3600 * count / elapsed_s:,.0f} an hour, {cpu_s:.2f} CPU s "
        f"each ({simulated_s / cpu_s:.1f} simulated s per CPU s); parent {memory[0] / 1024:.1f} -> "
        f"{memory[-1] / 1024:.1f} MiB, largest child {most_mib:.0f} MiB; {dict(account.verdicts)}"
    )


def children_s():
    """Return the CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def resident_kib():
    """Return this process's resident memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sweep", type=int, metavar="SEEDS")
    chosen = parser.parse_args()
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}, {sys.executable}"
    )
    if chosen.sweep:
        whole_sweep(chosen.sweep, chosen.seconds, chosen.rate)
    elif chosen.profile:
        profiled(1, chosen.seconds, chosen.rate)
    else:
        for seed in range(1, chosen.seeds + 1):
            cluster_under_load(seed, chosen.seconds, chosen.rate, watched=False)
            cluster_under_load(seed, chosen.seconds, chosen.rate, watched=True)
            whole_seed(seed, chosen.seconds, chosen.rate)
