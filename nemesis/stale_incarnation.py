"""What the faults of KIP-380's motivation share: messages of and to a broker's previous incarnation that arrive late.

They disturb one broker that is not the controller (the target, or the next by id), because what is late must have a controller
that keeps running. Everything reaches the controller late where the KIP says "by the time a broker finishes bouncing".
"""

from contextlib import asynccontextmanager
from typing import Final

from tribunal.clusters.capabilities import CanShapeLinks, Fate, FaultTarget, FrameRule, RuleInForce, Shape
from tribunal.nemesis.api import (
    AsyncGenerator,
    ClusterError,
    Effect,
    Proof,
    all_back,
    back_in_service,
    came_true,
    joined,
)
from tribunal.nemesis.link_groups import from_ensemble, from_target

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
CONTROLLED_SHUTDOWN: Final = 7
MEET_LEAST_MS: Final = 8_000
SESSION: Final = "zookeeper.session.timeout.ms"
LATE_PART: Final = 4  # of a session: what is later than a whole one ends the sessions of those who wait


def victim(cluster: FaultTarget, node: int) -> tuple[int, int]:
    """Return the broker to disturb and the controller that goes on."""
    controller = cluster.state.quorum_leader
    if controller not in cluster.spec.broker_ids:
        raise ClusterError("no broker is the controller: this is a fault of ZooKeeper mode")
    others = [broker for broker in from_target(cluster.spec.broker_ids, node) if broker != controller]
    return others[0], controller


@asynccontextmanager
async def slow_watches(cluster: CanShapeLinks, controller: int) -> AsyncGenerator[Effect]:
    """Let everything from ZooKeeper reach the controller late: by a quarter of a session, so that a JVM is given longer."""
    links = from_ensemble(cluster.spec, controller)
    late = Effect(controller, await cluster.shape(links, Shape(delay_ms=cluster.spec.timeout_ms(SESSION) // LATE_PART)))
    yield late
    late.heal = await cluster.shape(links, Shape())


async def back_without_delay(cluster: FaultTarget, broker: int, former: str | None, late: Effect) -> Proof:
    """Wait until a broker is in all its ISRs as a new incarnation; nothing is late for the controller any more."""
    mended = late.heal or Proof(holds=False, facts={"missing": "a heal"})
    return joined(await back_in_service(cluster, broker, former), "watches", mended)


def held(api: int, source: int | None, target: int | None) -> FrameRule:
    """Return the rule that holds the first request of a kind."""
    return FrameRule(
        fate=Fate.HELD, api=api, direction="request", source=source, target=target, delay_ms=0, limit=1, overtaking=True
    )


def _meet_timeout_ms(cluster: FaultTarget) -> int:
    return max(MEET_LEAST_MS, cluster.spec.timeout_ms(SESSION))


async def met(cluster: FaultTarget, rule: RuleInForce) -> Proof:
    """Wait until a message has met the rule."""
    return await came_true(
        lambda: rule.hit_count > 0, timeout_ms=_meet_timeout_ms(cluster), what="a message met the rule", cluster=cluster
    )


async def reregistered(cluster: FaultTarget, broker: int, former_epoch: int) -> Proof:
    """Wait until a broker is registered with a larger epoch."""

    def registered() -> bool:
        known = cluster.state.brokers.get(broker)
        return known is not None and not known.fenced and known.broker_epoch > former_epoch

    return await came_true(
        registered, timeout_ms=_meet_timeout_ms(cluster), what="a later broker epoch", cluster=cluster
    )


def epoch_of(cluster: FaultTarget, broker: int) -> int:
    """Return a broker's epoch now."""
    known = cluster.state.brokers.get(broker)
    return -1 if known is None else known.broker_epoch


async def heal(cluster: FaultTarget, effect: Effect) -> None:
    """Heal: everybody is back."""
    effect.heal = joined(Proof(holds=True, facts={}), "service", await all_back(cluster))
