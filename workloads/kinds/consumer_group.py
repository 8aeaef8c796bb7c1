"""A group consumes what idempotent workers produce, committing as it goes; members nap, leave and come back.

A member that naps for longer than its session is expelled; then it commits what it had read, from a generation that has
passed. Every acknowledged record before a committed offset has to have been received by some member.
"""

import asyncio
from random import Random
from typing import Final

import msgspec

from tribunal.clusters.api import GroupSettings, TopicPartition
from tribunal.clusters.endings import side_by_side
from tribunal.clusters.requested import OF_GROUPS, OF_PRODUCERS
from tribunal.clusters.spec import Settings
from tribunal.workloads.api import (
    Count,
    Percent,
    Several,
    Stage,
    Users,
    WorkerPlan,
    Workload,
    drawn_seed,
    idempotent_workers,
)
from tribunal.workloads.committed_read import create, read_committed
from tribunal.workloads.feeding import DELIVERY_TIMEOUT_MS, FEEDERS, feed
from tribunal.workloads.session_bounds import longest_nap_ms, nap_s, refused_session
from tribunal.workloads.transactor import Member

TOPIC: Final = "consumer-group"
GROUP: Final = "consumers"
FIRST_MEMBER: Final = 101
POLL_RECORDS: Final = 100
POLL_MS: Final = 200
DRAIN_POLLS: Final = 10


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: partitions, records per second, members, how often one naps or leaves."""

    partitions: Several = 4
    rate: Count = 60
    members: Users = 3
    nap_percent: Percent = 3
    leave_percent: Percent = 1
    session_timeout_ms: Count = 6_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The workload with every choice made."""

    options: Options
    feeders: tuple[WorkerPlan, ...]
    seeds: tuple[str, ...]
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS


def plan(options: Options, random: Random) -> Plan:
    """Draw everybody's seeds."""
    seeds = tuple(drawn_seed(random) for _ in range(options.members))
    drained_ms = longest_nap_ms(options.session_timeout_ms) + DRAIN_POLLS * POLL_MS
    return Plan(
        options=options,
        feeders=idempotent_workers(FEEDERS, options.partitions, options.rate, random),
        seeds=seeds,
        delivery_timeout_ms=max(DELIVERY_TIMEOUT_MS, drained_ms),
    )


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return all partitions."""
    return [TopicPartition(TOPIC, number) for number in range(chosen.options.partitions)]


async def run(stage: Stage, chosen: Plan) -> None:
    """Produce and consume until asked to stop, then consume what is left."""
    consuming = (_consume(stage, chosen, number) for number in range(len(chosen.seeds)))
    await side_by_side([*(feed(stage, TOPIC, feeder) for feeder in chosen.feeders), *consuming])


async def _consume(stage: Stage, chosen: Plan, number: int) -> None:
    options, random = chosen.options, Random(chosen.seeds[number])
    group = GroupSettings(
        group=GROUP, topic=TOPIC, isolation="read_committed", session_timeout_ms=options.session_timeout_ms
    )
    member = Member(stage, FIRST_MEMBER + number, group)
    drained = 0  # polls since it was asked to stop
    try:
        while not stage.stopping.is_set() or drained < DRAIN_POLLS:
            drained += stage.stopping.is_set()
            polls = await member.poll(POLL_RECORDS, POLL_MS)
            if not stage.stopping.is_set() and random.randrange(100) < options.nap_percent:
                await asyncio.sleep(nap_s(options.session_timeout_ms, random))
            await member.commit(polls)
            if not stage.stopping.is_set() and random.randrange(100) < options.leave_percent:
                await member.leave()
    finally:
        await member.close()


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read everything."""
    return await read_committed(stage, partitions(chosen), timeout_ms)


def refused(options: Options, settings: Settings) -> str | None:
    """Say why the nodes would let no member join."""
    return refused_session(options.session_timeout_ms, settings)


async def prepare(stage: Stage, chosen: Plan, replication_factor: int) -> None:
    """Create the topic."""
    await create(stage, [TOPIC], chosen.options.partitions, replication_factor)


WORKLOAD: Final = Workload(
    options=Options,
    chosen=Plan,
    plan=plan,
    partitions=partitions,
    prepare=prepare,
    run=run,
    read_to_end=read_to_end,
    refused=refused,
    promised=("commits",),
    sends=OF_PRODUCERS | OF_GROUPS,
)
