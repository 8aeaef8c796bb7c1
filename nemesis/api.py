"""What a fault is: an async context manager. Enter injects, leave heals; both are proven. Read this first.

A fault is one module here; the module's name is its name on the command line. It has

- `Options`: a msgspec Struct of what a scenario may say about it (unknown words are refused at plan time),
- `NEEDS`: the capabilities a cluster must have for it,
- `fault(cluster, node, options)`: an async context manager that hurts one node and yields an `Effect`.

Verb and target are apart: which node is hurt is decided by a `Target` (`tribunal.nemesis.targets`), resolved at the
moment of injection and recorded. When the fault is entered, `effect.proof` says how it bit; when it is left,
`effect.heal` says how it healed. What can only be seen while the fault lasts (a session expired, an ISR changed)
is waited for before healing. A fault whose proof does not hold makes a run INCONCLUSIVE, so a proof is never polite.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import msgspec

from tribunal.clusters.api import Cluster, ClusterError, Proof, Unsettled, until

__all__ = ["AsyncGenerator", "Cluster", "ClusterError", "Proof"]

BACK_TIMEOUT_MS: Final = 20_000


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Records from this offset on are gone from this node's disk (docs/verdicts.md, proven loss)."""

    node: int
    topic: str
    partition: int
    log_offset: int


def proven_losses(node: int, proof: Proof) -> list[Loss]:
    """Return what a disk lost, from the log ends that a proof names before and after."""
    before, after = proof.facts.get("log_end_offsets_before", {}), proof.facts.get("log_end_offsets_after", {})
    found = []
    for name, end in sorted(before.items()):
        topic, _, partition = name.rpartition("-")
        left = after.get(name, 0)
        if left < end and not topic.startswith("__"):
            found.append(Loss(node=node, topic=topic, partition=int(partition), log_offset=left))
    return found


class Effect:
    """What a fault did: filled in as it goes."""

    def __init__(self, node: int, proof: Proof, *, lost_everything: bool = False) -> None:
        self.node = node
        self.proof = proof
        self.heal: Proof | None = None
        self.lost_everything = lost_everything  # the node's disk provably lost all records
        self.losses: list[Loss] = []  # what else disks provably lost

    def add_proof(self, name: str, proof: Proof) -> None:
        """Add a further thing that must hold for the fault to have bitten."""
        self.proof = joined(self.proof, name, proof)

    def add_heal(self, name: str, proof: Proof) -> None:
        """Add a further thing that must hold for the fault to have healed."""
        self.heal = joined(self.heal or Proof(holds=True, facts={}), name, proof)


class FaultModule(Protocol):
    """A module in `nemesis`."""

    Options: type[msgspec.Struct]
    NEEDS: frozenset[str]
    fault: Callable[[Cluster, int, Any], AbstractAsyncContextManager[Effect]]


def joined(first: Proof, name: str, second: Proof) -> Proof:
    """Return one proof that holds if both do, the second's facts under a name."""
    return Proof(
        holds=first.holds and second.holds, facts={**first.facts, name: {"holds": second.holds, **second.facts}}
    )


async def came_true(holds: Callable[[], bool], *, timeout_ms: int, what: str, cluster: Cluster | None = None) -> Proof:
    """Wait for something; the proof says whether and after how long it came about."""
    try:
        took_ms = await until(holds, timeout_ms=timeout_ms, what=what, cluster=cluster)
    except Unsettled:
        return Proof(holds=False, facts={"missing": what, "waited_ms": timeout_ms})
    return Proof(holds=True, facts={"seen": what, "took_ms": took_ms})


def memberships(cluster: Cluster, node: int) -> dict[str, bool]:
    """Return for each partition with a replica there whether the node is in its committed ISR."""
    return {
        str(partition): node in state.isr
        for partition, state in cluster.state.partitions.items()
        if node in state.replicas
    }


def fenced(cluster: Cluster, node: int) -> bool:
    """Tell whether the controllers have given the broker up."""
    broker = cluster.state.brokers.get(node)
    return broker is None or broker.fenced


async def back_in_service(cluster: Cluster, node: int, former_incarnation: str | None) -> Proof:
    """Wait until a broker is unfenced and in all its ISRs; as a new incarnation, where a former one is given."""
    if node in cluster.spec.controller_ids:
        return Proof(holds=cluster.alive(node), facts={"serves": cluster.alive(node)})

    def anew() -> bool:
        broker = cluster.state.brokers.get(node)
        return broker is not None and not broker.fenced and broker.incarnation != former_incarnation

    what = "a new incarnation registered and unfenced" if former_incarnation else "unfenced"
    registered = await came_true(anew, timeout_ms=BACK_TIMEOUT_MS, what=what, cluster=cluster)
    whole = await came_true(
        lambda: all(memberships(cluster, node).values()),
        timeout_ms=BACK_TIMEOUT_MS,
        what="in the ISR of all its partitions",
        cluster=cluster,
    )
    broker = cluster.state.brokers.get(node)
    epochs = {"broker_epoch": broker.broker_epoch, "incarnation": broker.incarnation} if broker else {}
    return joined(Proof(holds=registered.holds, facts={**registered.facts, **epochs}), "isr", whole)


async def all_back(cluster: Cluster) -> Proof:
    """Wait until every broker serves and every ISR is full."""
    return await came_true(
        lambda: cluster.state.whole(cluster.spec),
        timeout_ms=BACK_TIMEOUT_MS,
        what="every broker unfenced, every ISR full",
        cluster=cluster,
    )


def incarnation(cluster: Cluster, node: int) -> str | None:
    """Return the broker's incarnation now, None for a controller."""
    broker = cluster.state.brokers.get(node)
    return broker.incarnation if broker else None
