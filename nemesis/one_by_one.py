"""What faults share that give nodes other software: one node after another, each back in full service before the next one goes."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from tribunal.clusters.capabilities import CanRaiseMetadataVersion
from tribunal.clusters.kafka.releases import Release
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.api import ClusterError, Effect, Proof, all_back, back_in_service, incarnation, joined
from tribunal.nemesis.bounce import BounceTarget, How, end
from tribunal.nemesis.link_groups import from_target


class Other(msgspec.Struct, frozen=True):
    """What nodes get: the word by which their proofs name it, what installs it on a node that is down, and what says that a running node's process is of it."""

    word: str
    install: Callable[[int], Awaitable[Proof]]
    runs: Callable[[int], Awaitable[Proof]]


def in_turn(spec: ClusterSpec, target: int, *, alone: bool) -> list[int]:
    """Return whose turn it is: the target alone, or all of its role, the target first."""
    alike = spec.controller_ids if target in spec.controller_ids else spec.broker_ids
    return [target] if alone else from_target(alike, target)


async def must_know_what_is_finalized(cluster: CanRaiseMetadataVersion, wanted: Release) -> None:
    """Raise `ClusterError` for a release that could not come up: it does not know the finalized metadata.version."""
    finalized = await cluster.metadata_version()
    if wanted.metadata_version < finalized:
        raise ClusterError(
            f"Apache Kafka {wanted.name} does not know metadata.version {finalized}, which was finalized"
        )


@asynccontextmanager
async def replaced(
    cluster: BounceTarget, target: int, nodes: Sequence[int], how: How, other: Other
) -> AsyncGenerator[Effect]:
    """Inject: each of these nodes, at least one, ended and came back with it. Heal: every ISR is full."""
    effect = Effect(target, await _replaced(cluster, nodes[0], how, other))
    for one in nodes[1:]:
        effect.add_proof(f"node_{one}", await _replaced(cluster, one, how, other))
    yield effect
    effect.heal = await all_back(cluster)


async def _replaced(cluster: BounceTarget, node: int, how: How, other: Other) -> Proof:
    """Restart one node, and wait for full service, as whoever does it by hand."""
    former = incarnation(cluster, node)
    proof = joined(await end(cluster, node, how), other.word, await other.install(node))
    await cluster.start(node)
    proof = joined(proof, "runs", await other.runs(node))
    proof = joined(proof, "back", await back_in_service(cluster, node, former))
    await all_back(cluster)
    return proof
