"""Hold messages of one Kafka API over an event in somebody's life, and let them go at a moment of what follows; heal by mending and releasing all.

A message of a former life, or one about somebody who is another one by now: the event begins when a message waits (where none comes in time, all the
same: an orderly end sends some), and only when the moment has come does it travel on. Whether one waited from before the event's end
to that moment is the fact `crossed` of the proof.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Final, Literal, Protocol

import msgspec

from tribunal.clusters.api import CutMode, Link, PartitionState
from tribunal.clusters.capabilities import (
    CanCutLinks,
    CanHinderMessages,
    CanPause,
    CanPowerFail,
    CanWipe,
    Fate,
    FrameRule,
    RuleInForce,
)
from tribunal.nemesis.api import (
    AsyncGenerator,
    Effect,
    Fault,
    FaultTarget,
    Proof,
    all_back,
    incarnation,
    memberships,
    proven_losses,
)
from tribunal.nemesis.bounce import BounceTarget
from tribunal.nemesis.link_groups import links_of
from tribunal.nemesis.messages import APIS, Meant, refused, rule

SESSION: Final = "broker.session.timeout.ms"
AWAY_SESSIONS: Final = 1.3  # for how long it is paused or cut off: until it is missed
BEGINS_S: Final = 1.0  # within which a node that nothing hinders has begun
GONE_MS: Final = 50  # between an end and the next start
LOOK_MS: Final = 20
REGISTERED_SESSIONS: Final = 3  # who was killed may not register before its session is over
FETCH: Final = APIS["fetch"]


class HoldTarget(BounceTarget, CanCutLinks, CanHinderMessages, CanPause, CanPowerFail, CanWipe, Protocol):
    """A cluster whose nodes live and die, and whose messages wait."""


class Options(Meant, frozen=True, forbid_unknown_fields=True):
    """Which messages, over what, until when.

    limit:      one, so that what the next life sends is not held.
    over:       what happens meanwhile.
    of:         to whom: the node itself, whoever leads a partition that it has, a follower of one that it leads (one out of sync
                before others), the active controller; the node itself where there is none.
    until:      when they travel on: its process has ended, is there again, serves as a new registration, is in all ISRs (where what waits lets it).
    unfetched:  who came back replicates nothing from other brokers until the fault ends.
    wait_ms:    how long to wait for a message that could be held before the event begins all the same.
    """

    limit: Annotated[int, msgspec.Meta(ge=0)] = 1
    over: Literal["kill", "stop", "power-loss", "wipe", "pause", "isolate"] = "stop"
    of: Literal["node", "leader", "follower", "controller"] = "node"
    until: Literal["ended", "started", "registered", "in-sync"] = "registered"
    unfetched: bool = False
    wait_ms: int = 1_500


@asynccontextmanager
async def inject(cluster: HoldTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: a message waited from before the event was over until the moment had come. Heal: nothing waits, everybody is back."""
    held = cluster.add_rule(rule(node, options, Fate.HELD, overtaking=True))
    aside: list[RuleInForce] = []
    try:
        await _seen(cluster, lambda: held.held_count > 0, options.wait_ms)
        victim = _victim(cluster, node, options.of)
        effect = Effect(node, Proof(holds=True, facts={"victim": victim, "waiting_before": held.held_count}))
        waiting, released = 0, 0
        if cluster.alive(victim):  # another fault may have it
            former, links = incarnation(cluster, victim), links_of(cluster.spec, victim, "nodes")
            await _end(cluster, victim, options, links, effect)
            waiting = held.held_count
            if options.until == "ended":
                released = cluster.remove_rule(held)
            aside += _without_records(cluster, victim) if options.unfetched else []
            # What is held may be what it needs to begin: it is let go on when the moment has come, or would have.
            beginning = asyncio.ensure_future(_begin_again(cluster, victim, options, links))
            try:
                await asyncio.wait([beginning], timeout=BEGINS_S)
                await _moment(cluster, victim, former, options)
                released += cluster.remove_rule(held)
                await beginning
            finally:
                beginning.cancel()  # where the run was broken off
        effect.crossed = is_crossed = waiting > 0 and released > 0
        facts: dict[str, object] = {"crossed": is_crossed, "waiting": waiting, "released": released}
        effect.add_proof("crossing", Proof(holds=is_crossed or not options.must_meet, facts=facts))
        yield effect
    finally:
        for one in (held, *aside):
            cluster.remove_rule(one)
    effect.heal = await all_back(cluster)


async def _seen(cluster: FaultTarget, holds: Callable[[], bool], timeout_ms: float) -> None:
    """Wait for something that messages or metadata bring about, or until the time is over."""
    deadline_ns = cluster.now_ns() + int(timeout_ms * 1_000_000)
    while not holds() and cluster.now_ns() < deadline_ns:
        await cluster.something_happens(min(LOOK_MS, max(1, (deadline_ns - cluster.now_ns()) // 1_000_000)))


def _victim(cluster: FaultTarget, node: int, of: str) -> int:
    """Return whose life it is; the node itself where there is nobody of that kind."""
    if of == "controller":
        active = cluster.state.quorum_leader
        return active if active in cluster.spec.node_ids else node
    hosted = [state for _, state in sorted(cluster.state.partitions.items()) if node in state.replicas]
    if of == "leader":
        return next((state.leader for state in hosted if state.leader not in {node, -1}), node)
    if of == "follower":
        led = [state for state in hosted if state.leader == node] or hosted
        others = [one for state in led for one in _out_of_sync_first(state) if one != node and cluster.alive(one)]
        return others[0] if others else node
    return node


def _out_of_sync_first(state: PartitionState) -> Sequence[int]:
    return sorted(state.replicas, key=lambda one: (one in state.isr, one))


async def _end(cluster: HoldTarget, victim: int, options: Options, links: Sequence[Link], effect: Effect) -> None:
    """End its life, or what others see of it; for a while, or until it begins again."""
    away_s = AWAY_SESSIONS * cluster.spec.timeout_ms(SESSION) / 1000
    match options.over:
        case "pause":
            await cluster.pause(victim)
            await asyncio.sleep(away_s)
        case "isolate":
            await cluster.cut(links, CutMode.HOLD)
            await asyncio.sleep(away_s)
        case "stop":
            await cluster.stop(victim)
        case "kill":
            await cluster.kill(victim)
        case "power-loss":
            begin_ns = cluster.now_ns()
            effect.losses += proven_losses(cluster, victim, await cluster.power_fail(victim), begin_ns)
        case "wipe":
            begin_ns = cluster.now_ns()
            await cluster.kill(victim)
            effect.losses += proven_losses(cluster, victim, await cluster.wipe(victim), begin_ns)


async def _begin_again(cluster: HoldTarget, victim: int, options: Options, links: Sequence[Link]) -> None:
    if options.over == "pause":
        await cluster.resume(victim)
    elif options.over == "isolate":
        await cluster.heal(links)
    else:
        await asyncio.sleep(GONE_MS / 1000)
        await cluster.start(victim)


def _without_records(cluster: HoldTarget, victim: int) -> list[RuleInForce]:
    """Hold what it would fetch from other brokers; metadata it may fetch."""
    others = [one for one in cluster.spec.broker_ids if one != victim]
    return [cluster.add_rule(FrameRule(fate=Fate.HELD, api=FETCH, source=victim, target=one)) for one in others]


async def _moment(cluster: FaultTarget, victim: int, former: str | None, options: Options) -> None:
    """Wait for the moment at which what was held travels on; some never come, then for as long as they usually take."""
    if victim in cluster.spec.controller_ids or options.until in {"ended", "started"}:
        return
    session_ms = cluster.spec.timeout_ms(SESSION)
    is_anew = options.over not in {"pause", "isolate"}

    def is_registered() -> bool:
        broker = cluster.state.brokers.get(victim)
        return broker is not None and not broker.fenced and (broker.incarnation != former or not is_anew)

    await _seen(cluster, is_registered, REGISTERED_SESSIONS * session_ms)
    if options.until == "in-sync":
        await _seen(cluster, lambda: all(memberships(cluster, victim).values()), session_ms)


FAULT: Final = Fault(options=Options, inject=inject, refused=refused, struck=lambda spec, _: spec.node_ids)
