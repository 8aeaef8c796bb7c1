"""Transactions that send and poll: each process sends to some partitions and reads what others have committed.

Reading is read_committed with positions of its own; one in five transactions is aborted. The first two processes share a
transactional id: whoever begins fences the other one. With `id_transactions` a process leaves its id behind after so many transactions, as
applications do that come and go: whatever stays open of that id then is ended by no later transaction of it.
"""

import asyncio
from random import Random
from typing import Final

import msgspec

from tribunal.clusters.api import PartitionPoll, TopicPartition
from tribunal.clusters.endings import side_by_side
from tribunal.clusters.requested import OF_TRANSACTIONS
from tribunal.workloads.api import Count, Number, Percent, Reader, Several, Stage, Users, Workload, drawn_seed
from tribunal.workloads.committed_read import create, held_back, read_committed
from tribunal.workloads.kinds.produce_consume import read_whole
from tribunal.workloads.transactor import Transactor

TOPIC: Final = "transactions"
WORKER_CLASS: Final = "transactional"
RIVALS: Final = 2
POLL_RECORDS: Final = 50
POLL_MS: Final = 50
SENDS_MAX: Final = 3
BEHIND_READER: Final = 998  # reads what is out of sight of who reads what is committed


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: partitions, processes, how many are aborted, what a process rests between two.

    id_transactions:  how many a process begins under one transactional id; 0: all of them.
    open_ms:          how long a transaction stays open behind its last send, so that at any moment some are open; 0: it ends at once.
    """

    partitions: Several = 3
    processes: Users = 4
    aborted_percent: Percent = 20
    rest_ms: Number = 100
    rival_rest_ms: Number = 2_000
    transaction_timeout_ms: Count = 5_000
    id_transactions: Number = 0
    open_ms: Number = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The workload with every choice made."""

    options: Options
    seeds: tuple[str, ...]
    delivery_timeout_ms: int = 12_000


def plan(options: Options, random: Random) -> Plan:
    """Draw the processes' seeds."""
    return Plan(options=options, seeds=tuple(drawn_seed(random) for _ in range(options.processes)))


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return all partitions."""
    return [TopicPartition(TOPIC, number) for number in range(chosen.options.partitions)]


async def run(stage: Stage, chosen: Plan) -> None:
    """Send and poll until asked to stop."""
    await side_by_side(_work(stage, chosen, process) for process in range(1, len(chosen.seeds) + 1))


async def _work(stage: Stage, chosen: Plan, process: int) -> None:
    options, random = chosen.options, Random(chosen.seeds[process - 1])
    name = f"processor-{max(process, RIVALS)}"
    transactor = Transactor(stage, process, name, WORKER_CLASS, options.transaction_timeout_ms)
    reader = Reader(stage, process, "tail", "read_committed")
    reader.assign(dict.fromkeys(partitions(chosen), 0))
    ids, begun = 1, 0
    try:
        while not stage.stopping.is_set():
            if options.id_transactions and begun == options.id_transactions:
                await transactor.become(f"{name}-{ids}")
                ids, begun = ids + 1, 0
            if await transactor.begin():
                begun += 1
                fenced = not await _one(transactor, reader, chosen, random)
                if fenced and process <= RIVALS:
                    await asyncio.sleep(random.uniform(0.5, 1.5) * options.rival_rest_ms / 1000)
            await asyncio.sleep(random.uniform(0.5, 1.5) * options.rest_ms / 1000)
    finally:
        await reader.close()
        await transactor.close()


async def _one(transactor: Transactor, reader: Reader, chosen: Plan, random: Random) -> bool:
    """Return whether the transaction ended as it was meant to."""
    polls: list[PartitionPoll] = await reader.poll(POLL_RECORDS, POLL_MS)
    transactor.polled(polls)
    for _ in range(random.randint(1, SENDS_MAX)):
        transactor.send(random.choice(partitions(chosen)), f"key-{random.randrange(8)}")
    commit = random.randrange(100) >= chosen.options.aborted_percent
    if chosen.options.open_ms:
        await asyncio.sleep(random.uniform(0.5, 1.5) * chosen.options.open_ms / 1000)
    return (await transactor.end(commit=commit)).error is None


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read all that is committed; behind a last stable offset that stays where it is, all that is there."""
    unread = await read_committed(stage, partitions(chosen), timeout_ms)
    stuck = await held_back(stage, unread)
    read = {*stuck} - {*await read_whole(stage, stuck, timeout_ms, BEHIND_READER, finds_end=True)} if stuck else set()
    return [partition for partition in unread if partition not in read]


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
    sends=OF_TRANSACTIONS,
)
