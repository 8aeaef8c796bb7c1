"""Registers under transactions that read and write: what no order of them explains is found (Elle's rw-register)."""

from typing import Final

from tribunal.clusters.objects import ObjectOperation
from tribunal.results.object_transactions import StepKind
from tribunal.workloads.object_transactions import Objects, workload

OBJECTS: Final = Objects(operation=ObjectOperation.TXN_REGISTERS, letter="x", change=StepKind.WRITE, read_first=75)
WORKLOAD: Final = workload(OBJECTS)
