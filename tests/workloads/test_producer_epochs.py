"""An idempotent librdkafka producer that begins a new epoch by itself says so, and the recording with it."""

import asyncio

import pytest

from tribunal.clusters.api import TopicPartition, until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.processes import launch
from tribunal.clusters.spec import ClusterSpec
from tribunal.workloads.api import Stage, Worker, WorkerPlan

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


class Sink:
    def __init__(self):
        self.rows = []

    def row(self, table, **columns):
        assert table == "sends"
        self.rows.append(columns)


async def sent(cluster, *, pause_ms):
    """Send, hold the broker still for a while, send again; return the rows."""
    partition = TopicPartition("t", 0)
    admin = cluster.clients.admin("setup")
    await admin.create_topic("t", 1, 1, 10_000)
    await admin.close()
    await until(lambda: partition in cluster.state.partitions, timeout_ms=15_000, what="the topic", cluster=cluster)
    sink = Sink()
    plan = WorkerPlan(
        process=1, worker_class="idempotent", acks=-1, idempotent=True, partitions=(0,), rate_per_s=1, seed="0"
    )
    stage = Stage(clients=cluster.clients, sink=sink, now_ns=cluster.now_ns)
    worker = Worker(stage, plan, delivery_timeout_ms=2_000, request_timeout_ms=1_000)
    for _ in range(3):
        worker.produce(partition, "before")
        await asyncio.sleep(0.1)
    # A producer that is still on its way to its first epoch when the broker stands still has none to begin anew.
    await until(lambda: len(sink.rows) == 3, timeout_ms=15_000, what="three answers", cluster=cluster)
    if pause_ms:
        await cluster.pause(1)
    worker.produce(partition, "meanwhile")
    await asyncio.sleep(pause_ms / 1000)
    if pause_ms:
        await cluster.resume(1)
    for _ in range(3):
        worker.produce(partition, "after")
        await asyncio.sleep(0.1)
    await worker.finish(10_000)
    return sink.rows, worker._epochs


@pytest.mark.parametrize(
    ("pause_ms", "last"),
    [pytest.param(0, "idempotent", id="undisturbed"), pytest.param(4_000, "reset-idempotent", id="a record timed out")],
)
def test_what_is_sent_again_in_a_new_epoch_is_of_another_class(tmp_path, pause_ms, last):
    spec = ClusterSpec(
        brokers=1,
        controllers=1,
        replication_factor=1,
        min_insync_replicas=1,
        settings={"broker.session.timeout.ms": 9_000},
    )

    async def story():
        cluster = await launch(spec, tmp_path, RunClock(), "AAAAAAAAAAAAAAAAAAAAAA")
        try:
            return await sent(cluster, pause_ms=pause_ms)
        finally:
            await cluster.close()

    rows, epochs = asyncio.run(story())

    classes = {
        key: {row["worker_class"] for row in rows if row["key"] == key} for key in ("before", "meanwhile", "after")
    }
    assert len(rows) == 7
    identities = {(row["producer_id"], row["producer_epoch"]) for row in rows if row["key"] == "before"}
    assert len(identities) == 1
    assert identities != {(None, None)}
    assert (classes["before"], classes["after"]) == ({"idempotent"}, {"idempotent"})
    assert (epochs > 1) == (last != "idempotent")
    # The record that timed out is given up, perhaps before the producer says that it has begun a new epoch.
    assert classes["meanwhile"] <= {"idempotent", last}
