"""Move money between accounts: a transfer is a transaction that takes here and gives there; some are aborted, some have rivals.

An account is a partition, its balance the sum of the amounts in its records' keys (`<account>:<amount>`). The first two tellers share
a transactional id: whoever begins fences the other one.
"""

import asyncio
from random import Random
from typing import Annotated, Final

import msgspec

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.endings import side_by_side
from tribunal.clusters.requested import OF_TRANSACTIONS
from tribunal.workloads.api import PROCESSES, Count, Number, Percent, Stage, Users, Workload, drawn_seed
from tribunal.workloads.committed_read import create, read_committed
from tribunal.workloads.transactor import Transactor

TOPIC: Final = "bank"
WORKER_CLASS: Final = "transactional-bank"
AMOUNT_MAX: Final = 100
RIVALS: Final = 2


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: accounts (a transfer is between two), tellers, how many transfers are aborted, what a teller rests between two."""

    partitions: Annotated[int, msgspec.Meta(ge=2, le=PROCESSES)] = 3
    tellers: Users = 4
    aborted_percent: Percent = 20
    rest_ms: Number = 100
    rival_rest_ms: Number = 2_000
    transaction_timeout_ms: Count = 5_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The workload with every choice made."""

    options: Options
    seeds: tuple[str, ...]
    delivery_timeout_ms: int = 12_000


def plan(options: Options, random: Random) -> Plan:
    """Draw the tellers' seeds."""
    return Plan(options=options, seeds=tuple(drawn_seed(random) for _ in range(options.tellers)))


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return all accounts."""
    return [TopicPartition(TOPIC, number) for number in range(chosen.options.partitions)]


async def run(stage: Stage, chosen: Plan) -> None:
    """Transfer until asked to stop."""
    await side_by_side(_tell(stage, chosen, process) for process in range(1, len(chosen.seeds) + 1))


async def _tell(stage: Stage, chosen: Plan, process: int) -> None:
    options, random = chosen.options, Random(chosen.seeds[process - 1])
    teller = Transactor(stage, process, f"teller-{max(process, RIVALS)}", WORKER_CLASS, options.transaction_timeout_ms)
    try:
        while not stage.stopping.is_set():
            if await teller.begin():
                fenced = not await _transfer(teller, chosen, random)
                if fenced and process <= RIVALS:
                    await asyncio.sleep(random.uniform(0.5, 1.5) * options.rival_rest_ms / 1000)
            await asyncio.sleep(random.uniform(0.5, 1.5) * options.rest_ms / 1000)
    finally:
        await teller.close()


async def _transfer(teller: Transactor, chosen: Plan, random: Random) -> bool:
    """Return whether the transfer ended as it was meant to."""
    payer, payee = random.sample(partitions(chosen), 2)
    amount = random.randint(1, AMOUNT_MAX)
    commit = random.randrange(100) >= chosen.options.aborted_percent
    teller.send(payer, f"{payer.partition}:{-amount}")
    if random.random() < 0.5:
        await asyncio.sleep(random.uniform(0, 0.2))
    teller.send(payee, f"{payee.partition}:{amount}")
    ended = await teller.end(commit=commit)
    return ended.error is None


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read every account's transfers."""
    return await read_committed(stage, partitions(chosen), timeout_ms)


async def prepare(stage: Stage, chosen: Plan, replication_factor: int) -> None:
    """Create the accounts."""
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
