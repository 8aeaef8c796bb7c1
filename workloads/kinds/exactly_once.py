"""Consume, transform, produce: what a group reads from the input goes to the output in the transaction that commits its offsets.

Workers feed the input. Processors are members of one group with a transactional id each (KIP-447); now and then one naps for
longer than its session in the middle of a transaction, and what it then commits comes from a generation that has passed.
"""

import asyncio
from random import Random
from typing import Final

import msgspec

from tribunal.clusters.api import GroupSettings, PartitionPoll, TopicPartition
from tribunal.clusters.endings import side_by_side
from tribunal.clusters.requested import OF_GROUPS_IN_TRANSACTIONS
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
from tribunal.workloads.feeding import FEEDERS, feed
from tribunal.workloads.session_bounds import longest_nap_ms, nap_s, refused_session
from tribunal.workloads.transactor import END_MS, OFFSETS_MS, Member, Transactor, ends

TOPIC: Final = "exactly-once"
OUTPUT: Final = "exactly-once-output"
GROUP: Final = "processors"
WORKER_CLASS: Final = "transactional"
FIRST_PROCESSOR: Final = 101
POLL_RECORDS: Final = 20
POLL_MS: Final = 200
ENDING_MS: Final = 12_000


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: partitions of input and output, records per second, processors, how often one naps."""

    partitions: Several = 3
    rate: Count = 30
    processors: Users = 3
    nap_percent: Percent = 2
    session_timeout_ms: Count = 6_000
    transaction_timeout_ms: Count = 5_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The workload with every choice made."""

    options: Options
    feeders: tuple[WorkerPlan, ...]
    seeds: tuple[str, ...]
    delivery_timeout_ms: int = ENDING_MS


def plan(options: Options, random: Random) -> Plan:
    """Draw everybody's seeds."""
    seeds = tuple(drawn_seed(random) for _ in range(options.processors))
    ended_ms = longest_nap_ms(options.session_timeout_ms) + OFFSETS_MS + END_MS
    return Plan(
        options=options,
        feeders=idempotent_workers(FEEDERS, options.partitions, options.rate, random),
        seeds=seeds,
        delivery_timeout_ms=max(ENDING_MS, ended_ms),
    )


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return the partitions of input and output."""
    numbers = range(chosen.options.partitions)
    return [TopicPartition(topic, number) for topic in (TOPIC, OUTPUT) for number in numbers]


async def run(stage: Stage, chosen: Plan) -> None:
    """Feed and process until asked to stop."""
    feeding = (feed(stage, TOPIC, feeder) for feeder in chosen.feeders)
    processing = (_process(stage, chosen, number) for number in range(len(chosen.seeds)))
    await side_by_side([*feeding, *processing])


async def _process(stage: Stage, chosen: Plan, number: int) -> None:
    options, random = chosen.options, Random(chosen.seeds[number])
    process = FIRST_PROCESSOR + number
    group = GroupSettings(
        group=GROUP, topic=TOPIC, isolation="read_committed", session_timeout_ms=options.session_timeout_ms
    )
    member = Member(stage, process, group)
    transactor = Transactor(stage, process, f"processor-{number}", WORKER_CLASS, options.transaction_timeout_ms)
    try:
        while not stage.stopping.is_set():
            polls = [poll for poll in await member.poll(POLL_RECORDS, POLL_MS) if poll.records]
            if polls and not await _transform(transactor, member, polls, chosen, random):
                await member.go_back(list(ends(polls)))  # what was not committed is read again
    finally:
        await transactor.close()
        await member.close()


async def _transform(
    transactor: Transactor, member: Member, polls: list[PartitionPoll], chosen: Plan, random: Random
) -> bool:
    """Return whether the input was processed."""
    options = chosen.options
    if not await transactor.begin():
        return False
    transactor.polled(polls)
    for poll in polls:
        output = TopicPartition(OUTPUT, poll.partition.partition)
        for record in poll.records:
            transactor.send(output, f"{poll.partition.partition}:{record.log_offset}")
    if random.randrange(100) < options.nap_percent:
        await asyncio.sleep(nap_s(options.session_timeout_ms, random))
    answered = await transactor.send_offsets(member, ends(polls))
    return (await transactor.end(commit=answered.outcome == "ok")).outcome == "committed"


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read input and output."""
    return await read_committed(stage, partitions(chosen), timeout_ms)


def refused(options: Options, settings: Settings) -> str | None:
    """Say why the nodes would let no member join."""
    return refused_session(options.session_timeout_ms, settings)


async def prepare(stage: Stage, chosen: Plan, replication_factor: int) -> None:
    """Create the topics."""
    await create(stage, [TOPIC, OUTPUT], chosen.options.partitions, replication_factor)


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
    sends=OF_GROUPS_IN_TRANSACTIONS,
)
