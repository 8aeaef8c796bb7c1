"""Idempotent producers that lose patience early and try again for long: nothing may stand twice, nor in another order.

It is `produce-consume` with other workers: request time-outs of half a second make retries of batches that are already in the log.
"""

from random import Random
from typing import Final

import msgspec

from clusters.api import TopicPartition
from workloads import produce_consume
from workloads.api import Stage, WorkerPlan
from workloads.produce_consume import Plan

TOPIC: Final = "idempotent-retries"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: partitions, records per second in all, producers, patience."""

    partitions: int = 3
    rate: int = 120
    workers: int = 3
    readers: int = 1
    delivery_timeout_ms: int = 12_000
    request_timeout_ms: int = 500


def plan(options: Options, random: Random) -> Plan:
    """Draw the workers' seeds."""
    workers = tuple(
        WorkerPlan(
            process=process,
            worker_class="idempotent",
            acks=-1,
            idempotent=True,
            partitions=tuple(range(options.partitions)),
            rate_per_s=max(1, options.rate // options.workers),
            seed=f"{random.getrandbits(64):016x}",
        )
        for process in range(1, options.workers + 1)
    )
    return Plan(
        topic=TOPIC,
        partitions=options.partitions,
        workers=workers,
        readers=options.readers,
        delivery_timeout_ms=options.delivery_timeout_ms,
        request_timeout_ms=options.request_timeout_ms,
    )


async def run(stage: Stage, chosen: Plan) -> None:
    """Produce and follow until told to stop."""
    await produce_consume.run(stage, chosen)


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return all partitions."""
    return produce_consume.partitions(chosen)


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read everything."""
    return await produce_consume.read_to_end(stage, chosen, timeout_ms)


async def prepare(stage: Stage, chosen: Plan, replication_factor: int) -> None:
    """Create the topic."""
    await produce_consume.prepare(stage, chosen, replication_factor)
