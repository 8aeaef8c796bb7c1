"""One of a broker's two log directories fails: the broker goes on with the other one, and nothing acknowledged is lost."""

import errno
from random import Random

import pytest

from tests.simulated.cluster_program import Trial, leader, wait_until_in_sync
from tribunal.clusters.api import TopicPartition
from tribunal.clusters.simulated.disk import SimulatedDisk
from tribunal.clusters.simulated.replica_logs import ReplicaLogs
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.variations import fresh
from tribunal.harness.catalog import faults, scenario_file
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, load
from tribunal.workloads.kinds.produce_consume import TOPIC

BATCH = bytes.fromhex("00" * 60)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_broker_goes_on_and_has_what_it_had_when_it_is_back(how):
    proofs = []

    async def scenario(cluster):
        victim = next(
            node for node in (1, 2, 3) if any(leader(cluster, one.partition) == node for one in hosted(cluster, node))
        )
        failing = hosted(cluster, victim)
        fault = faults()["failing-directory"].planned(victim, {"how": how})
        async with fault(cluster) as effect:
            assert cluster.alive(victim)
            assert victim not in [cluster.state.partitions[one].leader for one in failing]
            kept = [one for one in map(partition, range(6)) if one not in failing]
            assert all(victim in cluster.state.partitions[one].isr for one in kept)
        await wait_until_in_sync(cluster)
        assert sorted(hosted(cluster, victim)) == sorted(failing)
        proofs.append(effect)

    def partition(number):
        return TopicPartition(TOPIC, number)

    def hosted(cluster, node):
        return [one for one in cluster.logs_of_failing_directory(node) if one.topic == TOPIC]

    trial = Trial(f"failing directory {how}", ClusterSpec(min_insync_replicas=2, log_directories=2)).run(scenario)

    (effect,) = proofs
    assert effect.proof.holds, effect.proof.facts
    assert effect.heal.holds, effect.heal.facts
    assert len(trial.acknowledged()) > 50
    assert trial.lost() == []


def test_brokers_with_one_directory_have_none_to_lose():
    with pytest.raises(
        BadScenario, match=r"fault failing-directory: brokers have one log directory: --set cluster\.log_directories=2"
    ):
        plan({"cluster.log_directories": "1"})


def test_only_simulated_brokers_have_several():
    with pytest.raises(BadScenario, match="brokers have one log directory; several are for --cluster simulated"):
        plan({}, cluster="processes")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({"cluster.log_directories": "0"}, "1 to 9 log_directories, not 0", id="none"),
        pytest.param({"cluster.mode": "zookeeper"}, "several log_directories are for KRaft mode", id="ZooKeeper mode"),
    ],
)
def test_what_no_broker_has_is_refused(given, words):
    with pytest.raises(BadScenario, match=words):
        plan(given)


def plan(given, cluster="simulated"):
    return made(load(scenario_file("failing-directory"), given), seed=1, cluster=cluster, time_ms=None, mutants=())


def test_the_append_in_whose_midst_a_directory_fails_leaves_its_first_half():
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/data/0/t-0")
    disk.make_directory("/data/1/t-1")
    one, other = (disk.open(f"/data/{number}/t-{number}/{0:020d}.log", create=True) for number in (0, 1))
    disk.break_below("/data/1", errno.EIO, tears=True)

    one.append(BATCH)
    for _ in range(2):
        with pytest.raises(OSError, match="EIO"):
            other.append(BATCH)
    disk.mend("/data/1")
    other.append(BATCH)

    assert (one.size(), other.size()) == (60, 30 + 60)


def test_of_two_logs_of_one_name_that_in_a_directory_which_works_is_followed():
    disk = SimulatedDisk(Random(1))
    for number in (0, 1):
        disk.make_directory(f"/data/{number}/t-0")
    replicas = ReplicaLogs(disk, "/data")
    disk.watcher = replicas
    disk.open(f"/data/1/t-0/{7:020d}.log", create=True)
    replicas.names_changed("/data")
    replicas.catch_up()
    assert replicas.logs[TopicPartition("t", 0)].start_offset == 7

    disk.break_below("/data/1", errno.EIO)
    disk.open(f"/data/0/t-0/{0:020d}.log", create=True)  # of a topic of the same name
    replicas.names_changed("/data")
    replicas.catch_up()
    assert replicas.logs[TopicPartition("t", 0)].start_offset == 0

    disk.mend("/data/1")  # until it is put aside it is nobody's
    replicas.names_changed("/data")
    replicas.catch_up()
    assert replicas.logs[TopicPartition("t", 0)].start_offset == 0


def test_the_search_has_brokers_with_two_directories_and_lets_one_fail():
    plans = [
        fresh(load(scenario_file("rotating-swarm"), {}), Random(seed), (), composed=True).plan for seed in range(80)
    ]

    several = [one for one in plans if one.spec.log_directories == 2]
    assert 5 < len(several) < 40
    failing = [one for one in plans if "failing-directory" in [fault.kind for fault in one.faults]]
    assert failing
    assert {one.spec.log_directories for one in failing} == {2}
