"""Programs that run a whole simulated cluster: for the determinism check and for scenarios."""

from pathlib import Path

from tribunal.clusters.api import Link, TopicPartition
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.determinism import Fingerprint
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.workloads.api import Stage
from tribunal.workloads.kinds.produce_consume import Options, plan, prepare, read_to_end
from tribunal.workloads.kinds.produce_consume import run as load

LATE_S = 6  # what kernels still retransmit after a cut has arrived by then
NOWHERE = Path("/nonexistent")


class Rows:
    """A recording in memory."""

    def __init__(self):
        self.rows = []

    def row(self, table, **columns):
        self.rows.append((table, columns))

    def of(self, table):
        return [columns for name, columns in self.rows if name == table]


class Trial:
    """A cluster under load inside a simulation."""

    def __init__(self, seed, spec=None, sink=None, log_append_time=False):
        self.spec = spec or ClusterSpec()
        self.seed = seed
        self.sink = sink
        self.log_append_time = log_append_time
        self.rows = Rows()
        self.unread = None

    def run(self, scenario, rate=100):
        """Bring it up, load it, let the scenario happen, read everything; violations are raised."""
        with sealed(Simulation(self.seed)) as simulation:
            self.simulation = simulation
            simulation.loop.trace.sink = self.sink
            simulation.run(self._main(scenario, rate))
            self.trace_hash = simulation.loop.trace_hash()
            return self

    async def _main(self, scenario, rate):
        import asyncio

        clock = RunClock()
        self.cluster = cluster = await launch(self.spec, NOWHERE, clock, "trial")
        chosen = plan(Options(partitions=6, rate=rate, readers=1), self.simulation.loop.random("workload"))
        self.stage = stage = Stage(
            clients=cluster.clients, sink=self.rows, now_ns=clock.now_ns, log_append_time=self.log_append_time
        )
        await prepare(stage, chosen, self.spec.replication_factor)
        loading = asyncio.create_task(load(stage, chosen))
        await asyncio.sleep(1)
        await scenario(cluster)
        await wait_until_in_sync(cluster)
        stage.stopping.set()
        await loading
        await asyncio.sleep(LATE_S)
        self.unread = await read_to_end(stage, chosen, 20_000)
        await cluster.close()
        self.logs = [entry for log in cluster.final_logs() for entry in log.entries]
        if cluster.watch.violation is not None:
            raise cluster.watch.violation

    def lost(self, acks=-1):
        """Return acknowledged values that no final log of a leader holds."""
        held = {entry.value for entry in self.logs}
        return [
            row
            for row in self.rows.of("sends")
            if row["outcome"] == "ok" and row["acks"] == acks and row["value"] not in held
        ]

    def acknowledged(self, acks=-1):
        return [row for row in self.rows.of("sends") if row["outcome"] == "ok" and row["acks"] == acks]


async def wait_until_in_sync(cluster, timeout_ms=30_000):
    from tribunal.clusters.api import until

    await until(
        lambda: cluster.state.is_fully_in_sync(cluster.spec),
        timeout_ms=timeout_ms,
        what="every ISR full",
        cluster=cluster,
    )


def leader(cluster, partition=0, topic="produce-consume"):
    return cluster.state.partitions[TopicPartition(topic, partition)].leader


async def chaos(cluster):
    """Kill, cut, wipe and power off one broker after the other."""
    import asyncio

    victim = leader(cluster)
    await cluster.kill(victim)
    await asyncio.sleep(2)
    await cluster.start(victim)
    await wait_until_in_sync(cluster)
    victim = leader(cluster)
    links = [Link(victim, other) for other in cluster.spec.node_ids if other != victim]
    links += [Link(other, victim) for other in cluster.spec.node_ids if other != victim]
    from tribunal.clusters.api import CutMode

    await cluster.cut(links, CutMode.HOLD)
    await asyncio.sleep(3)
    await cluster.heal(links)
    await wait_until_in_sync(cluster)
    victim = leader(cluster, 1)
    await cluster.power_fail(victim)
    await asyncio.sleep(1)
    await cluster.start(victim)
    await wait_until_in_sync(cluster)
    await cluster.kill(cluster.state.quorum_leader)
    await asyncio.sleep(2)
    for node in cluster.spec.controller_ids:
        if not cluster.alive(node):
            await cluster.start(node)


def under_chaos(seed, sink):
    trial = Trial(seed, sink=sink).run(chaos)
    rows = repr([(table, sorted(columns.items())) for table, columns in trial.rows.rows])
    import hashlib

    return Fingerprint(trial.trace_hash, trial.simulation.loop.event_count, hashlib.sha256(rows.encode()).hexdigest())
