"""What fast and slow bounces share: end a node, start it, see what the controllers noticed."""

from typing import Literal

from nemesis.api import Cluster, Proof, fenced

How = Literal["kill", "stop"]


async def end(cluster: Cluster, node: int, how: How) -> Proof:
    """End a node, rudely or in good order."""
    if how == "kill":
        return await cluster.kill(node)
    await cluster.stop(node)
    return Proof(holds=not cluster.alive(node), facts={"signal": "SIGTERM"})


async def bounced(cluster: Cluster, node: int, how: How) -> Proof:
    """End and start a node at once; the proof says how long it was away."""
    began_ns = cluster.now_ns()
    ended = await end(cluster, node, how)
    await cluster.start(node)
    away_ms = (cluster.now_ns() - began_ns) // 1_000_000
    session_ms = cluster.spec.timeout_ms("broker.session.timeout.ms")
    facts = {**ended.facts, "away_ms": away_ms, "session_ms": session_ms, "fenced_meanwhile": fenced(cluster, node)}
    return Proof(holds=ended.holds and cluster.alive(node) and away_ms < session_ms, facts=facts)
