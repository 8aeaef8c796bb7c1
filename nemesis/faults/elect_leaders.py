"""Give the lead of partitions to their preferred replicas by an administrator's word; there is nothing to mend."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.api import ClusterError, Declined, TopicPartition
from tribunal.clusters.capabilities import CanElectPreferred, CanReassign
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, all_back, came_true

ELECTION_TIMEOUT_MS: Final = 10_000


class LeadTarget(CanElectPreferred, CanReassign, Protocol):
    """A cluster in which an administrator says who leads."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is waited for.

    under_way:        what comes next comes as soon as the order is answered, whoever leads then.
    must_be_granted:  a refusal is no effect; else an order under way has had its effect once it is answered, and the proof says what was refused.
    as_first:         the node is made the first replica of the partitions of the run that it has, before the election: then it leads these. It stays the first.
    """

    under_way: bool = False
    must_be_granted: bool = True
    as_first: bool = False


@asynccontextmanager
async def inject(cluster: LeadTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: every partition with replicas on the node is led by its first replica. Heal: every ISR is full.

    That the cluster refuses it (a first replica is out of sync, a topic is gone) is an answer: then nothing is proven, unless an answer is all that is asked for.
    """
    partitions = sorted(name for name, state in cluster.state.partitions.items() if node in state.replicas)
    refused = await _put_first(cluster, node, partitions) if options.as_first else ""
    moved = [name for name in partitions if not _led_as_preferred(cluster, [name])]
    try:
        await cluster.elect_preferred(partitions)
    except Declined as problem:
        refused = str(problem)
    if options.under_way:
        proof = Proof(
            holds=not refused or not options.must_be_granted, facts={"ordered": [str(name) for name in partitions]}
        )
    else:
        proof = await came_true(
            lambda: _led_as_preferred(cluster, partitions),
            timeout_ms=ELECTION_TIMEOUT_MS,
            what="led by preferred replicas",
            cluster=cluster,
        )
    proof.facts["moved"] = [str(name) for name in moved]
    if refused:
        proof.facts["refused"] = refused
    effect = Effect(node, proof)
    yield effect
    effect.heal = await all_back(cluster)


async def _put_first(cluster: CanReassign, node: int, partitions: Sequence[TopicPartition]) -> str:
    """Order the replicas of those of the run's topics anew, the node before the others; return what was refused, as where a replica is not alive."""
    refused = ""
    for name in partitions:
        state = cluster.state.partitions.get(name)  # a topic may be deleted meanwhile
        if name.topic.startswith("__") or state is None or state.replicas[0] == node:
            continue
        try:
            await cluster.reassign(name, [node, *(one for one in state.replicas if one != node)])
        except ClusterError as problem:
            refused = str(problem)
    return refused


def _led_as_preferred(cluster: CanElectPreferred, partitions: Sequence[TopicPartition]) -> bool:
    states = [cluster.state.partitions[name] for name in partitions if name in cluster.state.partitions]
    return all(state.leader == state.replicas[0] for state in states)


FAULT: Final = Fault(options=Options, inject=inject)
