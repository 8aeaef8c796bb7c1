"""Lists, read and appended to in transactions that are strictly serializable, because a transactional id is their lock.

A list is a partition, its elements the committed records in order. All processes share one transactional id. Who begins gets an
epoch of its own, which ends all that came before; then it reads lists up to their high watermarks, appends to some, and commits: that
is refused if anybody has begun since. So what is committed happened one after the other (Elle's list-append).
"""

import asyncio
from random import Random
from typing import Final

import msgspec

from tribunal.clusters.api import Admin, TopicPartition
from tribunal.clusters.endings import side_by_side
from tribunal.clusters.requested import OF_TRANSACTIONS
from tribunal.results.values import value_in
from tribunal.workloads.api import Count, Number, Reader, Several, Stage, Users, Workload, drawn_seed
from tribunal.workloads.committed_read import create, read_committed
from tribunal.workloads.transactor import Transactor

TOPIC: Final = "list-append"
LOCK: Final = "lists"
WORKER_CLASS: Final = "transactional"
POLL_RECORDS: Final = 200
POLL_MS: Final = 50
READ_MS: Final = 2_000
OFFSETS_MS: Final = 1_000


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: lists, processes, what a process rests between two transactions."""

    partitions: Several = 3
    processes: Users = 3
    rest_ms: Number = 700
    transaction_timeout_ms: Count = 5_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The workload with every choice made."""

    options: Options
    seeds: tuple[str, ...]
    delivery_timeout_ms: int = 12_000


def plan(options: Options, random: Random) -> Plan:
    """Draw the processes' seeds."""
    return Plan(options=options, seeds=tuple(drawn_seed(random) for _ in range(options.processes)))


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return all lists."""
    return [TopicPartition(TOPIC, number) for number in range(chosen.options.partitions)]


class Lists:
    """What a process knows of all lists, and how it learns more."""

    def __init__(self, stage: Stage, process: int, wanted: list[TopicPartition]) -> None:
        self._reader = Reader(stage, process, "tail", "read_committed")
        self._admin: Admin = stage.clients.admin(f"reader-{process}-offsets")
        self._positions = dict.fromkeys(wanted, 0)
        self._reader.assign(self._positions)
        self.elements: dict[TopicPartition, list[int]] = {partition: [] for partition in wanted}

    async def read(self, wanted: list[TopicPartition]) -> bool:
        """Read these lists up to their high watermarks of now; False when that takes too long."""
        deadline = asyncio.get_running_loop().time() + READ_MS / 1000
        ends = {one.partition: one.latest_offset for one in await self._admin.offsets(wanted, OFFSETS_MS)}
        if any(end is None for end in ends.values()):
            return False
        while any(self._positions[partition] < (end or 0) for partition, end in ends.items()):
            if asyncio.get_running_loop().time() >= deadline:
                return False
            for poll in await self._reader.poll(POLL_RECORDS, POLL_MS):
                self.elements[poll.partition] += [value_in(record.value) or 0 for record in poll.records]
                position = poll.records[-1].log_offset + 1 if poll.records else 0
                self._positions[poll.partition] = max(
                    position, poll.next_position or 0, self._positions[poll.partition]
                )
        return True

    async def close(self) -> None:
        """Release everything."""
        await self._reader.close()
        await self._admin.close()


async def run(stage: Stage, chosen: Plan) -> None:
    """Read and append until asked to stop."""
    await side_by_side(_work(stage, chosen, process) for process in range(1, len(chosen.seeds) + 1))


async def _work(stage: Stage, chosen: Plan, process: int) -> None:
    options, random = chosen.options, Random(chosen.seeds[process - 1])
    transactor = Transactor(stage, process, LOCK, WORKER_CLASS, options.transaction_timeout_ms)
    lists = Lists(stage, process, partitions(chosen))
    try:
        while not stage.stopping.is_set():
            if await transactor.begin():
                await _one(transactor, lists, chosen, random)
            await asyncio.sleep(random.uniform(0.5, 1.5) * options.rest_ms / 1000)
    finally:
        await lists.close()
        await transactor.close()


async def _one(transactor: Transactor, lists: Lists, chosen: Plan, random: Random) -> None:
    everything = partitions(chosen)
    wanted = random.sample(everything, random.randint(1, len(everything)))
    known = await lists.read(wanted)
    for partition in wanted if known else ():
        elements: list[int | None] = [*lists.elements[partition]]
        for element in elements or [None]:
            transactor.step("read", partition, None, element)
    for partition in random.sample(everything, random.randint(1, min(2, len(everything)))):
        transactor.send(partition, f"list-{partition.partition}", "append")
    await transactor.end(commit=known)


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read all lists."""
    return await read_committed(stage, partitions(chosen), timeout_ms)


async def prepare(stage: Stage, chosen: Plan, replication_factor: int) -> None:
    """Create the lists."""
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
