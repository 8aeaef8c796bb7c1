"""Who feeds a group: idempotent workers that produce at a rate to the topic that it consumes."""

import asyncio
from random import Random
from typing import Final

from tribunal.clusters.api import TopicPartition
from tribunal.workloads.api import IN_FLIGHT_MAX, Stage, Worker, WorkerPlan

FEEDERS: Final = 2
DELIVERY_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 2_000


async def feed(stage: Stage, topic: str, chosen: WorkerPlan) -> None:
    """Produce to a topic at a rate until asked to stop."""
    worker = Worker(stage, chosen, delivery_timeout_ms=DELIVERY_TIMEOUT_MS, request_timeout_ms=REQUEST_TIMEOUT_MS)
    random = Random(chosen.seed)
    try:
        while not stage.stopping.is_set():
            if worker.in_flight < IN_FLIGHT_MAX:
                worker.produce(TopicPartition(topic, random.choice(chosen.partitions)), f"key-{random.randrange(8)}")
            await asyncio.sleep(random.uniform(0.5, 1.5) / chosen.rate_per_s)
        await worker.finish(DELIVERY_TIMEOUT_MS)
    finally:
        await worker.close()
