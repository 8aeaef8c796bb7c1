"""The final read waits for what a leader acknowledged by itself."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tribunal.clusters.api import Offsets, PartitionPoll, TopicPartition, until
from tribunal.clusters.capabilities import Fate
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.messages import Meant, rule
from tribunal.workloads.api import Stage, Worker, WorkerPlan
from tribunal.workloads.kinds import operator
from tribunal.workloads.kinds.produce_consume import Options, _poll, plan, read_to_end

LAG_MS = 1_500


class Sink:
    def __init__(self):
        self.values = {"sends": [], "reads": []}

    def row(self, table, **columns):
        if table in self.values:
            self.values[table].append(columns["value"])


def final_read(gone_offsets, partitions=1):
    """Read to the end while followers lag; return who was not reached, the rows and for how long it was read.

    gone_offsets:  how far behind the last acknowledged offset something is said to have been, that is gone.
    partitions:    that are to be read; there is one.
    """

    async def main(simulation):
        cluster = await launch(ClusterSpec(brokers=2, controllers=1), Path("/nonexistent"), RunClock(), "final-read")
        sink = Sink()
        stage = Stage(clients=cluster.clients, sink=sink, now_ns=cluster.now_ns)
        chosen = plan(Options(partitions=partitions, readers=0), simulation.loop.random("load"))
        partition = TopicPartition(chosen.topic, 0)
        admin = cluster.clients.admin("setup")
        await admin.create_topic(chosen.topic, 1, 2, 10_000)
        await until(lambda: partition in cluster.state.partitions, timeout_ms=5_000, what="the topic", cluster=cluster)
        for broker in cluster.spec.broker_ids:
            cluster.add_rule(rule(broker, Meant(), Fate.DELAYED, delay_ms=LAG_MS))
        leader_only = WorkerPlan(
            process=1, worker_class="leader-only", acks=1, idempotent=False, partitions=(0,), rate_per_s=1, seed="0"
        )
        worker = Worker(stage, leader_only, delivery_timeout_ms=5_000, request_timeout_ms=5_000)
        for _ in range(3):
            worker.produce(partition, "key")
        await worker.finish(5_000)
        stage.acknowledged[partition] += gone_offsets
        began_ns = cluster.now_ns()
        unread = await read_to_end(stage, chosen, 20_000)
        return unread, sink.values, (cluster.now_ns() - began_ns) / 1e6

    with sealed(Simulation(7)) as simulation:
        return simulation.run(main(simulation))


def test_what_followers_do_not_have_yet_is_read_when_they_have_it():
    unread, values, read_ms = final_read(gone_offsets=0)

    assert unread == []
    assert values["reads"] == values["sends"]
    assert len(values["sends"]) == 3
    assert read_ms < 4 * LAG_MS


def test_what_never_comes_is_not_waited_for_longer_than_half_of_the_time():
    unread, values, read_ms = final_read(gone_offsets=5)

    assert unread == []
    assert values["reads"] == values["sends"]
    assert read_ms == pytest.approx(10_000, abs=1_000)


def test_a_partition_that_nobody_leads_keeps_no_other_from_being_read():
    """Its topic has one partition less than its users think, as one has none at all that an operator deleted late."""
    unread, values, read_ms = final_read(gone_offsets=0, partitions=2)

    assert [one.partition for one in unread] == [1]
    assert values["reads"] == values["sends"]
    assert read_ms == pytest.approx(20_000, abs=1_000)


class Acknowledged:
    """Takes down what was acknowledged of a topic, and what the final read of it received."""

    def __init__(self):
        self.values = {"sends": set(), "reads": set()}

    def row(self, table, **columns):
        if table in self.values and (columns.get("outcome") == "ok" or columns.get("phase") == "final"):
            self.values[table].add(columns["value"])


def test_what_operators_users_were_acknowledged_is_waited_for_when_these_are_gone():
    async def main(simulation):
        cluster = await launch(ClusterSpec(brokers=2, controllers=1), Path("/nonexistent"), RunClock(), "final-read")
        sink = Acknowledged()
        stage = Stage(clients=cluster.clients, sink=sink, now_ns=cluster.now_ns)
        options = operator.Options(topics=1, partitions=1, operators=1)
        chosen = operator.plan(options, simulation.loop.random("load"))
        # Whoever waits for followers comes to an end when these have all that was sent before.
        alone = tuple(worker for worker in chosen.workers if worker.acks == 1)
        chosen = msgspec.structs.replace(chosen, workers=alone)
        (partition,) = operator.partitions(chosen)
        await operator.prepare(stage, chosen, 2)
        stage.operators.ending.set()  # nothing is ordered, but there are users
        running = asyncio.create_task(operator.run(stage, chosen))

        async def acknowledged(least):
            wanted = f"an acknowledgement of offset {least}"
            await until(
                lambda: stage.acknowledged.get(partition, -1) >= least, timeout_ms=20_000, what=wanted, cluster=cluster
            )

        await acknowledged(0)
        for broker in cluster.spec.broker_ids:
            cluster.add_rule(rule(broker, Meant(), Fate.DELAYED, delay_ms=LAG_MS))
        await acknowledged(stage.acknowledged[partition] + 10)
        stage.stopping.set()
        await running
        return await operator.read_to_end(stage, chosen, 20_000), sink.values

    with sealed(Simulation(7)) as simulation:
        unread, values = simulation.run(main(simulation))

    assert unread == []
    assert len(values["sends"]) > 10
    assert values["sends"] <= values["reads"]


class Gone:
    """A consumer of a partition whose log begins behind its position, and an administrator whom nobody answers."""

    def __init__(self):
        self.sought = []

    async def poll(self, max_records, timeout_ms):
        return [PartitionPoll(partition=GONE, position=3, records=[], error="OFFSET_OUT_OF_RANGE")]

    async def offsets(self, wanted, timeout_ms):
        return [Offsets(one, None, None, None, "NOT_LEADER_OR_FOLLOWER") for one in wanted]

    def seek(self, partition, offset):
        self.sought.append((partition, offset))


GONE = TopicPartition("t", 0)


def test_a_partition_whose_read_is_closed_may_begin_later_while_others_are_read():
    """Retention took what was read already, and its leader did not say where its log begins now: the run ended in an error."""
    stage, both, positions, ends = Stage(clients=None, sink=Sink(), now_ns=lambda: 0), Gone(), {GONE: 3}, {}

    answered = asyncio.run(_poll(stage, both, both, positions, ends))

    assert answered == {GONE}
    assert (positions, both.sought) == ({GONE: 3}, [(GONE, 3)])
