"""What fast and slow bounces share: end a node, start it, see what the controllers noticed."""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from tribunal.clusters.capabilities import CanKill, CanStart, CanStop
from tribunal.nemesis.api import Effect, Proof, proven_losses

How = Literal["kill", "stop"]


class KillTarget(CanKill, CanStart, Protocol):
    """A cluster whose nodes are killed and started again."""


class StopTarget(CanStop, CanStart, Protocol):
    """A cluster whose nodes are stopped in good order and started again."""


class BounceTarget(KillTarget, StopTarget, Protocol):
    """A cluster whose nodes end in either way and are started again."""


async def end(cluster: BounceTarget, node: int, how: How) -> Proof:
    """End a node, rudely or in good order."""
    if how == "kill":
        return await cluster.kill(node)
    await cluster.stop(node)
    return Proof(holds=not cluster.alive(node), facts={"signal": "SIGTERM"})


async def killed_with_other_disk(
    cluster: KillTarget, node: int, name: str, changed: Callable[[int], Awaitable[Proof]]
) -> Effect:
    """Kill a node and change its disk; return both proofs, the second under a name, and what the disk provably lost."""
    begin_ns = cluster.now_ns()
    effect = Effect(node, await cluster.kill(node))
    proof = await changed(node)
    effect.add_proof(name, proof)
    effect.losses += proven_losses(cluster, node, proof, begin_ns)
    return effect


async def bounced(cluster: BounceTarget, node: int, how: How) -> Proof:
    """End a node and start it again at once.

    A broker that was killed cannot register again before its session has expired (SPEC 2.2): it waits at the door. One
    that took leave can.
    """
    began_ns = cluster.now_ns()
    ended = await end(cluster, node, how)
    ended_ns = cluster.now_ns()
    await cluster.start(node)
    facts = {
        **ended.facts,
        "ending_ms": (ended_ns - began_ns) // 1_000_000,
        "starting_ms": (cluster.now_ns() - ended_ns) // 1_000_000,
        "session_ms": cluster.spec.timeout_ms("broker.session.timeout.ms"),
    }
    return Proof(holds=ended.holds and cluster.alive(node), facts=facts)
