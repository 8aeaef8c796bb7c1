"""A cluster over ssh, driven from within the network that reaches the hosts: `ssh_story.py HOSTS FOLDER CONTROLLERS FAULTS`, answers JSON."""

import asyncio
import json
import sys
import time
from pathlib import Path

from tests.nemesis.living_cluster import LivingCluster, broken, hurt
from tribunal.clusters.api import ClusterError
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds import ssh
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults


def small(hosts, controllers):
    return ClusterSpec(brokers=3, controllers=controllers, hosts=hosts, settings={"broker.session.timeout.ms": 5000})


def carry_out(spec, folder, wanted):
    living = LivingCluster.launched(ssh, folder, spec)
    found, took_s = {}, {}
    try:
        for name, node, options, lasts_s in wanted:
            began = time.monotonic()
            effect = living.run(lambda cluster, name=name, node=node, options=options, lasts_s=lasts_s: hurt(
                cluster, faults()[name], node, lasts_s, **options))  # fmt: skip
            took_s[name] = time.monotonic() - began
            holds = effect.proof.holds and effect.heal is not None and effect.heal.holds
            found[name] = True if holds else [broken(effect.proof.facts), effect.heal and broken(effect.heal.facts)]
        living.runner.run(living.cluster.shut_down())
        logs = living.cluster.final_logs()
        found["records"] = sum(entry.value is not None for log in logs for entry in log.entries)
        found["events"] = sorted({event.name for event in living.cluster.drain_events()})
        found["acknowledged"] = living.acknowledged
        found["offset_ms"] = max(abs(living.cluster.clock_offset_ns(node)) for node in (1, 2, 3)) / 1e6
    finally:
        living.close()
    return {**found, "took_s": took_s, "leftovers": ssh.leftovers(folder)}


async def up(spec, folder):
    cluster = await ssh.launch(spec, folder, RunClock(), "A" * 22)
    print("up", flush=True)
    await asyncio.sleep(60)
    await cluster.close()


def main():
    hosts, controllers = sys.argv[1], int(sys.argv[3])
    spec, folder, wanted = small(hosts, controllers), Path(sys.argv[2]), json.loads(sys.argv[4])
    try:
        if wanted == "up":
            asyncio.run(up(spec, folder))
        elif wanted == "leftovers":
            print(json.dumps(ssh.leftovers(folder)))
        elif wanted == "sweep":
            print(json.dumps(ssh.sweep(folder)))
        else:
            print(json.dumps(carry_out(spec, folder, wanted)))
    except ClusterError as problem:
        print(json.dumps({"refused": str(problem)}))


if __name__ == "__main__":
    main()
