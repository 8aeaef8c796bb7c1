"""A group consumes what is left when its workload stops, also where there had been nothing to consume for long."""

import asyncio
from random import Random

from tests.simulated.cluster_program import NOWHERE, Rows
from tribunal.clusters.api import TopicPartition
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.workloads.api import Stage, Worker
from tribunal.workloads.kinds import consumer_group

IDLE_S = 15


def test_what_is_acknowledged_at_the_end_is_consumed_by_who_had_nothing_to_do():
    async def story():
        rows, clock = Rows(), RunClock()
        cluster = await launch(ClusterSpec(controllers=1), NOWHERE, clock, "drained")
        stage = Stage(clients=cluster.clients, sink=rows, now_ns=clock.now_ns)
        options = consumer_group.Options(partitions=1, members=1, rate=1, nap_percent=0, leave_percent=0)
        chosen = consumer_group.plan(options, Random(1))
        try:
            await consumer_group.prepare(stage, chosen, 3)
            member = asyncio.create_task(consumer_group._consume(stage, chosen, 0))
            await asyncio.sleep(IDLE_S)
            stage.stopping.set()
            worker = Worker(stage, chosen.feeders[0], delivery_timeout_ms=5_000, request_timeout_ms=1_000)
            worker.produce(TopicPartition(consumer_group.TOPIC, 0), "late")
            await worker.finish(1_000)
            await member
        finally:
            await cluster.close()
        return [row["value"] for row in rows.of("sends")], [row["value"] for row in rows.of("reads")]

    with sealed(Simulation("drained")) as simulation:
        sent, read = simulation.run(story())

    assert len(sent) == 1
    assert read == sent
