"""Registers under transactions that read and write: what no order of them explains is found (Elle's rw-register)."""

from typing import Final

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.objects import ObjectOperation
from tribunal.results.object_transactions import StepKind
from tribunal.workloads import object_transactions
from tribunal.workloads.api import Stage, Workload
from tribunal.workloads.object_transactions import Objects, Options, Plan

OBJECTS: Final = Objects(operation=ObjectOperation.TXN_REGISTERS, letter="x", change=StepKind.WRITE, read_first=75)


def operations(options: Options) -> frozenset[ObjectOperation]:
    """Return what it calls."""
    return frozenset({OBJECTS.operation})


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return none."""
    return []


async def prepare(stage: Stage, chosen: Plan, replication_factor: int) -> None:
    """Prepare nothing: a register that nobody wrote reads as none."""


async def run(stage: Stage, chosen: Plan) -> None:
    """Make transactions until asked to stop."""
    await object_transactions.run(stage, chosen, OBJECTS)


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read every register."""
    await object_transactions.read_finally(stage, chosen, timeout_ms, OBJECTS)
    return []


WORKLOAD: Final = Workload(
    options=Options,
    chosen=Plan,
    plan=object_transactions.plan,
    partitions=partitions,
    prepare=prepare,
    run=run,
    read_to_end=read_to_end,
    operations=operations,
    promised=("operations",),
)
