"""Lists under transactions that read and append: what no order of them explains is found (Elle's list-append)."""

from typing import Final

from tribunal.clusters.objects import ObjectOperation
from tribunal.results.object_transactions import StepKind
from tribunal.workloads.object_transactions import Objects, workload

OBJECTS: Final = Objects(operation=ObjectOperation.TXN_LISTS, letter="l", change=StepKind.APPEND, read_first=0)
WORKLOAD: Final = workload(OBJECTS)
