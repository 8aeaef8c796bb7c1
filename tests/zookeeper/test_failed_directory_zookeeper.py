"""A log directory fails in ZooKeeper mode: the controller cannot be informed which replicas went with it, so the broker stops."""

import errno

import pytest

from tests.simulated.cluster_program import Trial, leader, wait_until_in_sync
from tribunal.clusters.api import Unsettled, until
from tribunal.clusters.spec import ClusterSpec


@pytest.mark.parametrize(("paths", "broken"), [("/data", "/data"), ("/data/a,/data/b", "/data/b")])
def test_a_broker_ends_with_a_log_directory_and_nothing_acknowledged_is_lost(paths, broken):
    async def scenario(cluster):
        victim = leader(cluster)
        logs = cluster.nodes[victim].shell.plane.directories.logs
        assert any(stored.directory == broken for stored in logs.values())
        disk = cluster.machine(victim).disk
        cluster.nodes[victim].excuse = "its disk failed"
        disk.break_below(broken, errno.EIO)
        await until(lambda: not cluster.alive(victim), timeout_ms=20_000, what="its end", cluster=cluster)
        await until(lambda: leader(cluster) not in (victim, -1), timeout_ms=20_000, what="a leader", cluster=cluster)
        if broken != paths:
            # An empty log in the other directory would count as what the broken one holds.
            with pytest.raises(Unsettled):
                await cluster.start(victim)
            assert not cluster.alive(victim)
        disk.mend(broken)
        cluster.nodes[victim].excuse = None
        await cluster.start(victim)
        await wait_until_in_sync(cluster)

    spec = ClusterSpec(mode="zookeeper", controllers=1, min_insync_replicas=2, settings={"log.dirs": paths})
    trial = Trial(5, spec).run(scenario)

    assert len(trial.acknowledged()) > 100
    assert trial.lost() == []
