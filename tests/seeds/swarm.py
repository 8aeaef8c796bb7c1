"""A swarm: every seed draws its own cluster, load and faults; what acks=all acknowledged must survive.

    python -m tests.seeds.swarm 0:200 [JOBS]

Faults permit no loss here: power fails only where every append is synced, and one broker at a time is wiped, after
every ISR is full again.
"""

import asyncio
import os
import sys
import time
import traceback

import msgspec

from replog.wire.apis import Api
from tests.simulated.cluster_program import Trial, wait_until_in_sync
from tribunal.clusters.api import CutMode, Link
from tribunal.clusters.capabilities import Fate, FrameRule
from tribunal.clusters.spec import ClusterSpec

# With this off, power losses permit losses: replicas are trusted then, not disks.
FLUSHES_ARE_HONOURED = True
APIS = (Api.ALTER_PARTITION, Api.BROKER_REGISTRATION, Api.BROKER_HEARTBEAT, Api.FETCH, Api.VOTE, Api.PRODUCE)


def spec_of(random):
    """Draw a cluster."""
    synced = FLUSHES_ARE_HONOURED and random.random() < 0.5
    settings = {"log.segment.bytes": random.choice([4096, 65536, 1 << 30])}
    if synced:
        settings["log.flush.interval.messages"] = 1
    brokers = random.choice([3, 3, 4, 5])
    return ClusterSpec(
        brokers=brokers,
        controllers=random.choice([1, 3, 3, 3]),
        replication_factor=random.choice([3, 3, min(brokers, 4)]),
        min_insync_replicas=random.choice([1, 2, 2, 2, 3]),
        settings=settings,
    )


class Swarm:
    """One seed's faults."""

    def __init__(self, trial, random):
        self.trial, self.random = trial, random
        self.said = []

    async def __call__(self, cluster):
        self.cluster = cluster
        synced = "log.flush.interval.messages" in cluster.spec.settings
        faults = [
            self.kill,
            self.pause,
            self.isolate,
            self.one_way,
            self.hold,
            self.wipe,
            self.slow_disk,
            self.bounce,
            self.controller,
            self.reset,
            self.drift,
        ]
        faults += [self.power, self.power_all] * synced
        chosen = self.random.sample(faults, self.random.randrange(1, 5))
        for _ in range(self.random.randrange(2, 6)):
            fault = self.random.choice(chosen)
            self.said.append(f"{cluster.now_ns() / 1e9:.3f} {fault.__name__}")
            await fault()
            if self.random.random() < 0.5 or fault in (self.wipe, self.power):
                await wait_until_in_sync(cluster)

    def broker(self):
        leaders = [state.leader for state in self.cluster.state.partitions.values() if state.leader > 0]
        return self.random.choice(leaders + list(self.cluster.spec.broker_ids))

    def any_node(self):
        active = self.cluster.state.quorum_leader
        return self.random.choice([self.broker(), active if active > 0 else self.broker()])

    async def rest(self):
        session_s = self.cluster.spec.timeout_ms("broker.session.timeout.ms") / 1000
        await asyncio.sleep(session_s * self.random.choice([0.1, 0.3, 0.9, 1.1, 2]))

    async def restart(self, node):
        if not self.cluster.alive(node):
            await self.cluster.start(node)

    async def kill(self):
        node = self.broker()
        await self.cluster.kill(node)
        await self.rest()
        await self.restart(node)

    async def bounce(self):
        node = self.broker()
        await self.cluster.stop(node)
        await self.restart(node)

    async def wipe(self):
        await wait_until_in_sync(self.cluster)
        if self.cluster.spec.min_insync_replicas < 2:
            return
        node = self.broker()
        await self.cluster.kill(node)
        await self.rest()
        await self.cluster.wipe(node)
        await self.restart(node)

    async def power(self):
        await wait_until_in_sync(self.cluster)
        node = self.broker()
        await self.cluster.power_fail(node)
        await self.rest()
        await self.restart(node)

    async def power_all(self):
        for node in self.cluster.spec.node_ids:
            if self.cluster.alive(node):
                await self.cluster.power_fail(node)
        await self.rest()
        for node in self.cluster.spec.node_ids:
            self.cluster.machine(node).power_on()
        await asyncio.gather(*(self.cluster.start(node) for node in self.cluster.spec.node_ids))

    async def pause(self):
        node = self.any_node()
        await self.cluster.pause(node)
        await self.rest()
        await self.cluster.resume(node)

    async def isolate(self):
        node = self.broker()
        others = [other for other in self.cluster.spec.node_ids if other != node]
        await self.cut([Link(node, other) for other in others] + [Link(other, node) for other in others])

    async def one_way(self):
        nodes = self.cluster.spec.node_ids
        node = self.any_node()
        others = self.random.sample([other for other in nodes if other != node], self.random.randrange(1, len(nodes)))
        links = [Link(node, other) for other in others]
        await self.cut(links if self.random.random() < 0.5 else [Link(b, a) for a, b in links])

    async def cut(self, links):
        await self.cluster.cut(links, self.random.choice(list(CutMode)))
        await self.rest()
        await self.cluster.heal(links)

    async def reset(self):
        network = self.cluster.simulation.network
        for _ in range(5):
            network.reset(self.random.choice(network.hosts), self.random.choice(network.hosts))
            await asyncio.sleep(0.1)

    async def hold(self):
        api, is_request = self.random.choice(APIS), self.random.random() < 0.5
        fate = self.random.choice([Fate.HELD, Fate.DELAYED, Fate.DROPPED])
        broker = self.broker()
        wanted = FrameRule(
            fate=fate,
            api=api,
            direction="request" if is_request else "response",
            delay_ms=self.random.randrange(1000),
            limit=self.random.choice([1, 5, 50]),
            overtaking=self.random.random() < 0.3,
        )
        sent = self.cluster.add_rule(msgspec.structs.replace(wanted, source=broker))
        got = self.cluster.add_rule(msgspec.structs.replace(wanted, target=broker))
        await self.rest()
        self.cluster.remove_rule(sent)
        self.cluster.remove_rule(got)

    async def slow_disk(self):
        faults = self.cluster.machine(self.broker()).disk.faults
        faults.slowdown = self.random.choice([10, 100])
        await self.rest()
        faults.slowdown = 1

    async def controller(self):
        node = self.cluster.state.quorum_leader
        if node < 0 or not self.cluster.alive(node):
            return
        await self.cluster.kill(node)
        await self.rest()
        await self.restart(node)

    async def drift(self):
        for node in self.cluster.spec.node_ids:
            machine = self.cluster.machine(node)
            machine.clock.set_drift(self.random.randrange(-20_000_000, 20_000_000), self.cluster.simulation.loop.now_ns)
            machine.wall_offset_ms = self.random.randrange(-10_000, 10_000)


def swarm(seed, sink=None):
    """Run a seed; return the trial and what was done."""
    from random import Random

    random = Random(f"{seed}/swarm")
    trial = Trial(seed, spec_of(random), sink)
    faults = Swarm(trial, random)
    try:
        trial.run(faults, rate=random.choice([30, 100]))
        lost = trial.lost()
        assert not lost, f"lost {len(lost)} acknowledged with acks=all, first {lost[0]}"
        assert not trial.unread, f"unread {trial.unread}"
    except BaseException as problem:
        problem.add_note(f"{trial.spec}\n" + "\n".join(faults.said))
        raise
    return trial


def main(seeds, jobs):
    """Run seeds, one forked process each; print what fails."""
    first, _, end = seeds.partition(":")
    running, failed, began = {}, [], time.monotonic()
    wanted = list(range(int(first), int(end or int(first) + 1)))
    while wanted or running:
        while wanted and len(running) < jobs:
            seed = wanted.pop(0)
            pid = os.fork()
            if pid == 0:
                try:
                    swarm(seed)
                except BaseException:  # noqa: BLE001
                    print(f"seed {seed}\n{traceback.format_exc(limit=-3)}", flush=True)
                    os._exit(1)
                os._exit(0)
            running[pid] = seed
        pid, status = os.wait()
        seed = running.pop(pid)
        if status:
            failed.append(seed)
    print(f"failed {failed} of {seeds} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
