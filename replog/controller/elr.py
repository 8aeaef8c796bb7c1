"""Eligible leader replicas: who may lead besides the ISR (KIP-966, SPEC 2.5.2, 2.8).

While the ISR is at least min ISR, every acknowledged record is on all of it, so leaving it means
nothing. Below min ISR the high watermark stands still: who leaves then still holds everything
below it and stays eligible, until it is known to have restarted after an unclean shutdown.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from replog.metadata.state import Nodes, Partition
from replog.types import NodeId


class LastKnownMode(StrEnum):
    """What `last_known_elr` means (KIP-966 delivers it in two phases)."""

    LEADER = "leader"  # phase 1: at most one id, the last leader of a partition that lost all
    ELR_MEMBERS = "elr_members"  # with the unclean recovery manager: all who could have led


class Eligible(NamedTuple):
    """Both lists that stand beside the ISR."""

    elr: Nodes
    last_known_elr: Nodes


NOBODY = Eligible((), ())


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """Return min(min.insync.replicas, replicas): a larger setting could never be met (KIP-966)."""
    return min(min_insync_replicas, replica_count)


def eligible(
    partition: Partition,
    *,
    target_isr: Nodes,
    target_replicas: Nodes,
    min_isr: int,
    unclean_shutdown: Collection[NodeId],
) -> Eligible:
    """Return ELR and last known ELR when the ISR becomes `target_isr` (SPEC 2.5.2).

    min_isr: the effective one.
    """
    if len(target_isr) >= min_isr:
        return NOBODY
    pool = _union(partition.elr, partition.isr)
    elr = tuple(
        node for node in pool if node not in target_isr and node not in unclean_shutdown and node in target_replicas
    )
    last_known = tuple(
        node
        for node in _union(pool, partition.last_known_elr)
        if node not in target_isr and node not in elr and node in target_replicas
    )
    return Eligible(elr, last_known)


def _union(first: Nodes, second: Nodes) -> Nodes:
    return (*first, *(node for node in second if node not in first))
