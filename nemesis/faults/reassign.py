"""Take a replica away from the target and give it back: a partition is reassigned there and to and fro, with another broker in its place if asked to."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterError, TopicPartition
from tribunal.clusters.capabilities import CanReassign
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, all_back, came_true, is_there, joined

MOVE_TIMEOUT_MS: Final = 20_000


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What takes its place.

    elsewhere:  a broker without a replica of the partition, where there is one that runs: it has to copy everything first.
    under_way:  what comes next comes while the cluster still moves it: that it is ordered is all that is waited for.
    must_be_granted:  a refusal is no effect; else an order under way has had its effect once it is answered, and the proof says what was refused.
    """

    elsewhere: bool = False
    under_way: bool = False
    must_be_granted: bool = True


@asynccontextmanager
async def inject(cluster: CanReassign, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the committed replicas are without the node, with another in its place if asked to; or that is ordered. Heal: they are as before, and in the ISR."""
    chosen = _partition_on(cluster, node)
    if chosen is None:
        nothing = Effect(node, Proof(holds=False, facts={"missing": "a partition with other replicas too"}))
        yield nothing
        nothing.heal = Proof(holds=True, facts={})
        return
    before = cluster.state.partitions[chosen].replicas
    others = [replica for replica in before if replica != node]
    if options.elsewhere:
        spare = [broker for broker in cluster.spec.broker_ids if broker not in before and cluster.alive(broker)]
        others += spare[:1]
    topic_id = cluster.state.topic_ids.get(chosen.topic)
    order = _ordered if options.under_way else _reassigned
    proof = await order(cluster, chosen, topic_id, others)
    if options.under_way and not options.must_be_granted:
        proof = Proof(holds=True, facts=proof.facts)
    effect = Effect(node, proof)
    yield effect
    restored = await _given_back(cluster, chosen, topic_id, before)
    effect.heal = joined(restored, "service", await all_back(cluster))


def _partition_on(cluster: CanReassign, node: int) -> TopicPartition | None:
    partitions = sorted(cluster.state.partitions.items())
    fitting = (
        name
        for name, state in partitions
        if node in state.replicas and len(state.replicas) > 1 and not name.topic.startswith("__")
    )
    return next(fitting, None)


async def _given_back(
    cluster: CanReassign, partition: TopicPartition, topic_id: str | None, wanted: Sequence[int]
) -> Proof:
    """Reassign to what was before; of a topic that was deleted meanwhile there is nothing to give back.

    A cluster may refuse it while other faults last, as one in ZooKeeper mode does while a replica is not alive: once everybody is back it is asked again.
    """
    restored = None
    if is_there(cluster, partition, topic_id):
        restored = await _reassigned(cluster, partition, topic_id, wanted)
    if is_there(cluster, partition, topic_id) and restored is not None and "refused" in restored.facts:
        await all_back(cluster)
        restored = await _reassigned(cluster, partition, topic_id, wanted)
    if is_there(cluster, partition, topic_id) and restored is not None:
        return restored
    return Proof(holds=True, facts={"deleted": str(partition)})


async def _reassigned(
    cluster: CanReassign, partition: TopicPartition, topic_id: str | None, wanted: Sequence[int]
) -> Proof:
    """Reassign, and wait until it is done."""
    ordered = await _ordered(cluster, partition, topic_id, wanted)
    if not ordered.holds:
        return ordered
    proof = await came_true(
        lambda: (
            not is_there(cluster, partition, topic_id)
            or sorted(cluster.state.partitions[partition].replicas) == sorted(wanted)
        ),
        timeout_ms=MOVE_TIMEOUT_MS,
        what=f"{partition} on {sorted(wanted)}",
        cluster=cluster,
    )
    if not is_there(cluster, partition, topic_id):
        return Proof(holds=False, facts={"deleted": str(partition)})
    # It is ordered: that the cluster does it is the cluster's part.
    return Proof(holds=proof.holds, facts={**proof.facts, "partition": str(partition)}, undone=True)


async def _ordered(
    cluster: CanReassign, partition: TopicPartition, topic_id: str | None, wanted: Sequence[int]
) -> Proof:
    """Order it; the proof does not hold where the cluster refuses it, as one in ZooKeeper mode does while a replica is not alive."""
    facts: dict[str, object] = {"partition": str(partition), "topic_id": topic_id, "ordered": sorted(wanted)}
    try:
        await cluster.reassign(partition, wanted)
    except ClusterError as problem:
        return Proof(holds=False, facts={"partition": str(partition), "refused": str(problem)})
    return Proof(holds=True, facts=facts)


FAULT: Final = Fault(options=Options, inject=inject)
