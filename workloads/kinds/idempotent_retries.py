"""Idempotent producers with a short request time-out and a long delivery time-out: nothing may stand twice, nor in another order.

It is `produce-consume` with other workers: request time-outs of half a second make retries of batches that are already in the log.
"""

from random import Random
from typing import Final

import msgspec

from tribunal.clusters.requested import OF_PRODUCERS
from tribunal.workloads.api import Count, Readers, Several, Users, Workload, idempotent_workers
from tribunal.workloads.kinds import produce_consume
from tribunal.workloads.kinds.produce_consume import Plan

TOPIC: Final = "idempotent-retries"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: partitions, records per second in all, producers, time-outs."""

    partitions: Several = 3
    rate: Count = 120
    workers: Users = 3
    readers: Readers = 1
    delivery_timeout_ms: Count = 12_000
    request_timeout_ms: Count = 500


def plan(options: Options, random: Random) -> Plan:
    """Draw the workers' seeds."""
    return Plan(
        topic=TOPIC,
        partitions=options.partitions,
        workers=idempotent_workers(options.workers, options.partitions, options.rate, random),
        readers=options.readers,
        delivery_timeout_ms=options.delivery_timeout_ms,
        request_timeout_ms=options.request_timeout_ms,
    )


WORKLOAD: Final = Workload(
    options=Options,
    chosen=Plan,
    plan=plan,
    partitions=produce_consume.partitions,
    prepare=produce_consume.prepare,
    run=produce_consume.run,
    read_to_end=produce_consume.read_to_end,
    sends=OF_PRODUCERS,
)
