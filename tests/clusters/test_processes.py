"""Local processes for real: they start, bite, heal, and leave nothing behind."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.simulated.cluster_program import Rows
from tribunal.clusters.api import (
    CLIENTS,
    ClusterError,
    ClusterSpec,
    CutMode,
    Link,
    ProducerSettings,
    TopicPartition,
    until,
)
from tribunal.clusters.assembly import launched, replog_cluster
from tribunal.clusters.clock import RunClock
from tribunal.clusters.composed_cluster import CAPABILITIES
from tribunal.clusters.kinds.processes import launch
from tribunal.clusters.links.relays import node_host
from tribunal.clusters.loopback import Loopback
from tribunal.clusters.nodes.node_process import process_exists
from tribunal.clusters.nodes.serving import refuses
from tribunal.clusters.run_context import RunContext
from tribunal.harness.catalog import faults
from tribunal.workloads.api import Reader, Stage, Worker, WorkerPlan
from tribunal.workloads.transactor import Transactor

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ROOT = Path(__file__).resolve().parents[2]
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@asynccontextmanager
async def running(folder, spec=None, cluster_id=CLUSTER_ID):
    cluster = await launch(spec or ClusterSpec(), folder, RunClock(), cluster_id)
    try:
        yield cluster
    finally:
        await cluster.close()


async def with_topic(cluster, partitions=2):
    admin = cluster.clients.admin("test")
    await admin.create_topic("t", partitions, cluster.spec.replication_factor, 10_000)
    await until(
        lambda: len(cluster.state.partitions) == partitions and cluster.state.is_fully_in_sync(cluster.spec),
        timeout_ms=15_000,
        what="the topic",
        cluster=cluster,
    )
    await admin.close()


async def filled(cluster):
    """Write one record to each partition, on every replica's disk."""
    settings = ProducerSettings(acks=-1, idempotent=False, delivery_timeout_ms=10_000, request_timeout_ms=5_000)
    producer = cluster.clients.producer(settings, "filler")
    ends = []
    for partition in cluster.state.partitions:
        producer.send(partition, None, bytes(8), ends.append)
    assert await producer.flush(10_000) == 0
    await producer.close()
    assert [end.outcome for end in ends] == ["ok"] * len(cluster.state.partitions)


def leader(cluster):
    return cluster.state.partitions[TopicPartition("t", 0)].leader


async def hurt(cluster, name, node, hold_ms=0, **options):
    """Inject and heal one fault; return what it did."""
    fault = faults()[name]
    async with fault.aimed(node, fault.options(**options))(cluster) as effect:
        await asyncio.sleep(hold_ms / 1000)
    return effect


async def every_fault(folder):
    async with running(folder) as cluster:
        await with_topic(cluster)
        await filled(cluster)
        former = {node: broker.incarnation for node, broker in cluster.state.brokers.items()}

        node = leader(cluster)
        killed = await hurt(cluster, "kill", node)

        assert killed.proof.holds
        assert killed.proof.facts["process_gone"]
        assert killed.proof.facts["port_refused"]
        assert killed.heal.holds
        assert cluster.state.brokers[node].incarnation != former[node]

        wiped = await hurt(cluster, "wipe", 2)

        assert wiped.proof.holds
        assert set(wiped.proof.facts["wiped"]["log_end_offsets_after"].values()) == {0}
        topic_id = cluster.state.topic_ids["t"]
        assert [
            (loss.node, loss.topic, loss.topic_id, loss.partition, loss.from_offset, loss.end_offset)
            for loss in wiped.losses
        ] == [(2, "t", topic_id, 0, 0, 1), (2, "t", topic_id, 1, 0, 1)]
        assert all(loss.begin_ns < loss.end_ns < cluster.now_ns() for loss in wiped.losses)
        assert wiped.heal.holds

        emptied = await hurt(cluster, "wipe", 101)  # of a controller, which holds the metadata log alone

        assert emptied.proof.holds, emptied.proof.facts
        assert emptied.losses == []
        assert emptied.heal.holds, emptied.heal.facts
        assert await cluster.voters() == list(cluster.spec.controller_ids)

        isolated = await hurt(cluster, "isolate", leader(cluster), others="nodes")

        assert isolated.proof.holds
        assert isolated.proof.facts["consequence"]["holds"]
        assert all(probe["answered"] == 0 for probe in isolated.proof.facts["probes_after"])
        assert isolated.heal.holds

        paused = await hurt(cluster, "pause", 3)

        assert paused.proof.holds
        assert paused.heal.holds

        controller = await hurt(cluster, "kill", cluster.state.quorum_leader)

        assert controller.proof.holds
        assert controller.heal.holds
        assert cluster.failures() == []
        pids = [process.pid for process in cluster.nodes.values()]
        endpoints = [cluster.links.endpoint(node) for node in cluster.spec.node_ids]
    assert not any(map(process_exists, pids))
    assert all([await refuses(endpoint) for endpoint in endpoints])


def test_every_fault_bites_and_heals(tmp_path):
    asyncio.run(every_fault(tmp_path))


async def whole_records(folder, spec):
    async with running(folder, spec) as cluster:
        await with_topic(cluster)
        rows = Rows()
        stage = Stage(clients=cluster.clients, sink=rows, now_ns=cluster.now_ns)
        idempotent = WorkerPlan(
            process=1, worker_class="idempotent", acks=-1, idempotent=True, partitions=(0,), rate_per_s=1, seed="0"
        )
        worker = Worker(stage, idempotent, delivery_timeout_ms=10_000, request_timeout_ms=5_000)
        for number in range(50):
            worker.produce(TopicPartition("t", number % 2), f"key-{number}")
        await worker.finish(10_000)
        reader = Reader(stage, 2, "tail")
        reader.assign({TopicPartition("t", number): 0 for number in range(2)})
        leaders = {
            name.partition: (state.leader, state.leader_epoch) for name, state in cluster.state.partitions.items()
        }
        async with asyncio.timeout(20):
            while len(rows.of("reads")) < 50:
                await reader.poll(100, 200)
        await reader.close()
        transactor = Transactor(stage, 3, "t-3", "transactional", 10_000)
        assert await transactor.begin()
        transactor.send(TopicPartition("t", 0), "in a transaction")
        assert (await transactor.end(commit=True)).outcome == "committed"
        await transactor.close()
        await cluster.shut_down()
        return rows, stage.sent, [entry for log in cluster.final_logs() for entry in log.entries], leaders


@pytest.mark.parametrize("security", ["", "sasl_ssl"])
def test_librdkafkas_records_come_back_whole_and_who_answered_is_read_off_its_connections(tmp_path, security):
    rows, sent, logs, leaders = asyncio.run(whole_records(tmp_path, ClusterSpec(controllers=1, security=security)))

    assert {row["content"] for row in rows.of("reads")} == {None}
    records = [entry for entry in logs if not entry.is_control]
    assert {sent.difference(entry.value, entry) for entry in records} == {None}
    assert len(records) == 3 * 51
    changed = rows.of("reads")[0]["value"]
    assert "key" in sent.difference(changed + 1, next(entry for entry in logs if entry.value == changed))
    (identity,) = {(row["producer_id"], row["producer_epoch"]) for row in rows.of("sends") if row["process"] == 1}
    assert identity[0] >= 0
    assert identity[1] == 0
    assert {(row["partition"], row["answered_by"]) for row in rows.of("sends")} == {
        (number, node) for number, (node, _) in leaders.items()
    }
    (transaction,) = rows.of("txns")
    assert transaction["producer_id"] not in (None, identity[0])
    assert transaction["producer_epoch"] is not None
    for table in ("polls", "watermarks"):
        seen = {(row["partition"], (row["answered_by"], row["leader_epoch"])) for row in rows.of(table)}
        assert seen == set(leaders.items())
    assert all(row["high_watermark"] >= row["position"] for row in rows.of("polls"))
    assert all(row["last_stable_offset"] == row["high_watermark"] for row in rows.of("polls"))


async def stopping_is_clean(folder):
    async with running(folder) as cluster:
        await with_topic(cluster)
        cluster.drain_events()

        await cluster.stop(1)
        await cluster.start(1)
        await until(
            lambda: cluster.state.is_fully_in_sync(cluster.spec), timeout_ms=20_000, what="whole", cluster=cluster
        )

        registered = [event for event in cluster.drain_events() if event.name == "registered" and event.node == 1]
        assert registered[-1].fields["previous_broker_epoch"] >= 0


def test_a_node_that_stops_in_good_order_registers_as_clean(tmp_path):
    asyncio.run(stopping_is_clean(tmp_path))


async def unasked_death(folder):
    async with running(folder, ClusterSpec(controllers=1)) as cluster:
        os.kill(cluster.nodes[2].pid, signal.SIGKILL)

        with pytest.raises(ClusterError, match=r"node 2 \(broker\) ended with signal SIGKILL"):
            await until(lambda: False, timeout_ms=5_000, what="never", cluster=cluster)
        assert [event.node for event in cluster.drain_events() if event.name == "exit"] == [2]


def test_a_node_that_dies_unasked_is_a_failure(tmp_path):
    asyncio.run(unasked_death(tmp_path))


def test_a_node_that_dies_at_start_shows_its_last_lines(tmp_path):
    """(Its address is taken by somebody who came between the check and the start.)"""

    spec = ClusterSpec(controllers=1)
    run, environment = RunContext(spec, tmp_path, RunClock(), CLUSTER_ID), Loopback()
    squatter = socket.socket()

    def squatted(links):
        squatter.bind((node_host(1), links.ports[1]))
        squatter.listen()
        return replog_cluster(run, environment, links, kind="processes", capabilities=CAPABILITIES)

    async def story():
        with squatter, pytest.raises(ClusterError, match=r"node 1 \(broker\).*\n(.*\n)*.*is taken"):
            await launched(run, environment, squatted)

    asyncio.run(story())


async def port_taken(folder):
    server = await asyncio.start_server(lambda _, writer: writer.close(), node_host(2), 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(ClusterError, match=f"port already taken: 127.0.1.2:{port}"):
            await launch(ClusterSpec(base_port=port), folder, RunClock(), CLUSTER_ID)
    finally:
        server.close()
        await asyncio.sleep(0.01)


def test_a_taken_port_is_one_clear_line(tmp_path):
    asyncio.run(port_taken(tmp_path))


async def foreign_disk(folder):
    async with running(folder, ClusterSpec(controllers=1)):
        pass
    with pytest.raises(ClusterError, match=f"belongs to cluster.id {CLUSTER_ID}"):
        async with running(folder, ClusterSpec(controllers=1), cluster_id="BBBBBBBBBBBBBBBBBBBBBB"):
            pass


def test_a_disk_of_another_cluster_is_refused(tmp_path):
    asyncio.run(foreign_disk(tmp_path))


async def cut_clients(folder):
    async with running(folder, ClusterSpec(controllers=1)) as cluster:
        links = [Link(CLIENTS, 1), Link(1, CLIENTS)]

        cut = await cluster.cut(links, CutMode.HOLD)
        healed = await cluster.heal(links)

        assert cut.holds
        assert healed.holds
        assert not cluster.state.brokers[1].fenced


def test_clients_can_be_cut_from_a_broker_that_stays_in_service(tmp_path):
    asyncio.run(cut_clients(tmp_path))


HARNESS = """
import asyncio, sys
from pathlib import Path
from tribunal.clusters.assembly import launched, replog_cluster
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.processes import launch
from tribunal.clusters.spec import ClusterSpec

async def main():
    cluster = await launch(ClusterSpec(controllers=1), Path(sys.argv[1]), RunClock(), "AAAAAAAAAAAAAAAAAAAAAA")
    print(*(process.pid for process in cluster.nodes.values()), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_killed_harness_leaves_no_node(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HARNESS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as harness:
        pids = [int(word) for word in harness.stdout.readline().split()]
        watched = [os.pidfd_open(pid) for pid in pids]
        harness.kill()

    assert len(pids) == 4
    for descriptor in watched:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        assert poller.poll(10_000), "a node outlived its harness"
        os.close(descriptor)
