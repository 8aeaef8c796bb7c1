"""Cut a node off from others, both ways or one way; heal by mending the links."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.api import CutMode
from tribunal.clusters.capabilities import CanCutLinks
from tribunal.nemesis.api import (
    AsyncGenerator,
    Effect,
    Fault,
    Proof,
    back_in_service,
    came_true,
    fenced,
    joined,
    memberships,
)
from tribunal.nemesis.link_groups import Direction, Others, links_of

GRACE_MS: Final = 3_000


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"others": "from"}):
    """From whom, in which directions, and what becomes of the bytes.

    must_be_noticed:  the fault had no effect where the cluster takes no notice of it in time; else that its links are cut is all that is proven,
                      and the proof says that nobody noticed.
    """

    others: Others = "all"
    direction: Direction = "both"
    mode: CutMode = CutMode.HOLD
    must_be_noticed: bool = True


@asynccontextmanager
async def inject(cluster: CanCutLinks, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: probes stop passing, and the session expires or an ISR changes. Heal: probes pass, the node is back."""
    links = links_of(cluster.spec, node, options.others, options.direction)
    before, missed = memberships(cluster, node), cluster.state.missed.get(node, 0)
    was_controller = cluster.spec.is_zookeeper_mode and cluster.state.quorum_leader == node
    effect = Effect(node, await cluster.cut(links, options.mode))
    yield effect
    # What a system without metadata makes of it nobody sees: there the probes alone say that it is cut off.
    if options.others != "clients" and node in cluster.spec.broker_ids and not cluster.spec.has_objects:
        consequence = await _consequence(cluster, node, before, missed)
        if was_controller and options.others == "brokers" and not consequence.holds:
            # Who would change an ISR is cut off itself, and keeps its session with ZooKeeper.
            consequence = Proof(holds=True, facts={**consequence.facts, "active_controller": True})
        if not options.must_be_noticed:  # other faults may have taken away who would notice
            consequence = Proof(holds=True, facts={**consequence.facts, "noticed": consequence.holds})
        effect.add_proof("consequence", consequence)
    mended = await cluster.heal(links)
    effect.heal = joined(mended, "service", await back_in_service(cluster, node, None))


async def _consequence(cluster: CanCutLinks, node: int, before: dict[str, bool], missed: int) -> Proof:
    """Wait until the cluster has noticed: who is cut off cannot keep its session or its place in the ISRs.

    missed:  how often it had been missed before the cut; who was elected uncleanly since then is in the ISR again.
    """
    spec = cluster.spec
    longest = max(spec.timeout_ms("broker.session.timeout.ms"), spec.timeout_ms("replica.lag.time.max.ms") * 3 // 2)

    def is_noticed() -> bool:
        now = memberships(cluster, node)
        # Topics come and go beside it: that says nothing.
        return fenced(cluster, node) or any(now[name] is not was for name, was in before.items() if name in now)

    proof = await came_true(
        is_noticed,
        timeout_ms=longest + GRACE_MS,
        what="session expired or ISR changed",
        cluster=cluster,
    )
    times = cluster.state.missed.get(node, 0) - missed
    if proof.holds or not times:
        return proof
    # Looked at last: recorded runs keep their events.
    return Proof(holds=True, facts={**proof.facts, "missed_before": times})


FAULT: Final = Fault(options=Options, inject=inject)
