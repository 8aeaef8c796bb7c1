"""The unmodified aiokafka producer and consumer group in a simulated cluster whose leader is killed meanwhile."""

import asyncio
import hashlib
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.simulated.cluster_program import Rows
from tribunal.clusters.api import TopicPartition as Partition
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.determinism import Fingerprint
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.workloads.api import Stage
from tribunal.workloads.kinds.produce_consume import Options, plan, prepare

TOPIC = "produce-consume"
PARTITIONS = 3
RECORDS = 150
# aiokafka draws from sets of (node, host, port, rack), and under CPython 3.11 hash(None) is an address: brokers have a
# rack here, and one address is enough to begin with.
RACK = {"broker.rack": "here"}
BOOTSTRAP = "broker-1:9092"
RANK = 2_000


class Application:
    """A process on a machine of its own that knows nothing of the simulation."""

    def __init__(self):
        self.acknowledged = []
        self.received = []

    async def main(self, world):
        consuming = asyncio.create_task(self._consume())
        producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=True, linger_ms=5)
        await producer.start()
        try:
            sent = []
            for number in range(RECORDS):
                # aiokafka's compiled record builder reads the real clock from C when it is given no time.
                at_ms = world.clock.wall_ms()
                value = b"%d" % number
                sent.append(await producer.send(TOPIC, value, partition=number % PARTITIONS, timestamp_ms=at_ms))
                await asyncio.sleep(0.03)
            self.acknowledged = [(await one).offset for one in sent]
        finally:
            await producer.stop()
        await consuming

    async def _consume(self):
        consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=BOOTSTRAP,
            group_id="readers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            while len(self.received) < RECORDS:
                async for message in consumer:
                    self.received.append((message.partition, message.offset, message.value))
                    if len(self.received) % 50 == 0:
                        await consumer.commit()
                    if len(self.received) >= RECORDS:
                        break
        finally:
            await consumer.stop()


class Lane:
    """A cluster, an application, and a leader that dies under it."""

    def __init__(self, seed, sink=None):
        self.application = Application()
        with sealed(Simulation(seed)) as simulation:
            simulation.loop.trace.sink = sink
            simulation.run(self._main(simulation))
            self.trace_hash = simulation.loop.trace_hash()
            self.event_count = simulation.loop.event_count

    async def _main(self, simulation):
        cluster = await launch(ClusterSpec(settings=RACK), Path("/nonexistent"), RunClock(), "aiokafka")
        stage = Stage(clients=cluster.clients, sink=Rows(), now_ns=cluster.now_ns)
        await prepare(stage, plan(Options(partitions=PARTITIONS), simulation.loop.random("plan")), 3)
        machine = simulation.add_machine("application", "10.0.254.1", RANK)
        ended = machine.start(self.application.main)
        await asyncio.sleep(2)
        victim = cluster.state.partitions[Partition(TOPIC, 0)].leader
        await cluster.kill(victim)
        await asyncio.sleep(2.5)
        await cluster.start(victim)
        problem = await asyncio.wait_for(ended, 60)
        if problem is not None:
            raise problem
        await cluster.close()
        if cluster.watch.violation is not None:
            raise cluster.watch.violation


def run(seed, sink):
    lane = Lane(seed, sink)
    assert len(lane.application.acknowledged) == RECORDS
    assert sorted(int(value) for _, _, value in lane.application.received) == list(range(RECORDS))
    rows = repr((lane.application.acknowledged, lane.application.received))
    return Fingerprint(lane.trace_hash, lane.event_count, hashlib.sha256(rows.encode()).hexdigest())
