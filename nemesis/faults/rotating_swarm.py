"""Periods of random kinds of fault at once, a quarter of the periods idle, all healed in between (Jepsen's default).

In ZooKeeper mode there are no heartbeats to drop, but control requests, links to ZooKeeper that are slow, and servers of ZooKeeper to kill and pause.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Annotated, Final, TypeVar

import msgspec

from tribunal.clusters.capabilities import Capability, FaultTarget
from tribunal.nemesis.api import Aimed, Asked, Effect, Fault
from tribunal.nemesis.combine import aimed, idle, together
from tribunal.nemesis.episodes import EpisodeTarget, episodes
from tribunal.nemesis.faults import (
    clock_jump,
    delay_messages,
    drop_messages,
    flaky,
    isolate,
    kill,
    pause,
    power_loss,
    slow,
    slow_fsync,
    slow_zookeeper,
    stop,
)
from tribunal.nemesis.messages import Meant

Chosen = TypeVar("Chosen", bound=msgspec.Struct)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A fault with its options that may be drawn.

    name:  of the fault.
    api:  of which messages it waits for, if it is about messages.
    """

    name: str
    needs: frozenset[Capability]
    at: Callable[[int], Aimed]
    api: str | None


def choice(fault: Fault[Asked, Chosen], options: Chosen) -> Choice:
    """Return what may be drawn."""
    api = options.api if isinstance(options, Meant) else None
    return Choice(name=fault.name, needs=fault.needs, at=lambda node: aimed(fault, node, options), api=api)


HEARTBEATS: Final = "broker-heartbeat"
KINDS: Final = (
    choice(kill.FAULT, kill.Options()),
    choice(stop.FAULT, stop.Options()),
    choice(pause.FAULT, pause.Options()),
    choice(isolate.FAULT, isolate.Options(others="nodes")),
    choice(isolate.FAULT, isolate.Options(others="all", direction="in")),
    choice(slow.FAULT, slow.Options(delay_ms=60, jitter_ms=30)),
    choice(flaky.FAULT, flaky.Options()),
    choice(delay_messages.FAULT, delay_messages.Options(api="fetch", delay_ms=200)),
    choice(drop_messages.FAULT, drop_messages.Options(api=HEARTBEATS, limit=3)),
    choice(power_loss.FAULT, power_loss.Options()),
    choice(clock_jump.FAULT, clock_jump.Options()),
    choice(slow_fsync.FAULT, slow_fsync.Options(delay_ms=100)),
)
KINDS_OF_ZOOKEEPER_MODE: Final = (
    *(one for one in KINDS if one.api != HEARTBEATS),
    choice(drop_messages.FAULT, drop_messages.Options(api="fetch", limit=3)),
    choice(slow_zookeeper.FAULT, slow_zookeeper.Options(delay_ms=450)),
)
INSTEAD: Final = choice(pause.FAULT, pause.Options())  # of what would find no message
SERVER_KINDS: Final = (
    choice(kill.FAULT, kill.Options()),
    choice(pause.FAULT, pause.Options()),
    choice(isolate.FAULT, isolate.Options(others="brokers")),
)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a period is, how many faults at once at most, how many periods are idle, and the seed of all chance.

    server_odds:  in ZooKeeper mode, how often one of its servers is disturbed besides.
    """

    period_ms: int = 4_000
    rest_ms: int = 500
    at_once: Annotated[int, msgspec.Meta(ge=1)] = 2
    idle_odds: float = 0.25
    server_odds: float = 0.3
    seed: int = 0


def _has_messages(cluster: FaultTarget, node: int, api: str | None) -> bool:
    """Return whether a broker sends what a fault of messages waits for: with no metadata log to fetch, only followers fetch."""
    return (
        api != "fetch"
        or not cluster.spec.is_zookeeper_mode
        or any(node in one.replicas and one.leader not in (node, -1) for one in cluster.state.partitions.values())
    )


def left_out(cluster: FaultTarget, possible: Sequence[Choice]) -> dict[str, str]:
    """Say of the faults that a cluster cannot do what it lacks for each."""
    lacking = {one.name: sorted(one.needs - cluster.capabilities) for one in possible}
    return {name: f"the cluster cannot {', '.join(missing)}" for name, missing in sorted(lacking.items()) if missing}


@asynccontextmanager
async def inject(cluster: EpisodeTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject and heal: every single fault took effect, and healed. One victim of the first period is the target.

    A fault that the cluster cannot do, as where nobody can take its power, is left out, and the proof says so.
    """
    random = Random(f"{options.seed}/rotating swarm")
    possible = KINDS_OF_ZOOKEEPER_MODE if cluster.spec.is_zookeeper_mode else KINDS
    able = [one for one in possible if cluster.capabilities >= one.needs]

    def episode(number: int) -> tuple[Aimed, int]:
        if number and random.random() < options.idle_odds:
            return idle, options.period_ms
        count = random.randint(1, options.at_once)
        victims = random.sample(cluster.spec.broker_ids, min(count, len(cluster.spec.broker_ids), len(able)))
        if number == 0 and node not in victims and node in cluster.spec.broker_ids:
            victims[0] = node
        chosen = [
            kind if _has_messages(cluster, victim, kind.api) else INSTEAD
            for kind, victim in zip(random.sample(able, len(victims)), victims, strict=True)
        ]
        if cluster.spec.is_zookeeper_mode and random.random() < options.server_odds:
            chosen.append(random.choice(SERVER_KINDS))
            victims.append(random.choice(cluster.spec.controller_ids))
        # Whoever another fault has ended is started again by that.
        parts = [kind.at(one) for kind, one in zip(chosen, victims, strict=True) if cluster.alive(one)]
        return together(*parts) if parts else idle, options.period_ms

    async with episodes(cluster, node, episode, lambda _: options.rest_ms) as effect:
        if missing := left_out(cluster, possible):
            effect.proof.facts["left_out"] = missing
        yield effect


FAULT: Final = Fault(
    options=Options,
    inject=inject,
    struck=lambda spec, _: spec.broker_ids,
    may_use=frozenset[Capability]().union(*(one.needs for one in KINDS)),
)
