"""Periods of random kinds of fault at once, a quarter of the periods idle, all healed in between (Jepsen's default).

In ZooKeeper mode there are no heartbeats to drop, but control requests, late news, and servers of ZooKeeper to hurt.
"""

from contextlib import AbstractAsyncContextManager
from random import Random
from types import ModuleType
from typing import Any, Final

import msgspec

from tribunal.nemesis.api import Cluster, Effect
from tribunal.nemesis.combine import Fault, aimed, idle, together
from tribunal.nemesis.episodes import spree
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
    stop,
)
from tribunal.nemesis.faults import slow_zookeeper as late_news

NEEDS: Final = frozenset({"kill", "stop", "start", "pause", "cut"})
KINDS: Final[tuple[tuple[ModuleType, dict[str, Any]], ...]] = (
    (kill, {}),
    (stop, {}),
    (pause, {}),
    (isolate, {"others": "nodes"}),
    (isolate, {"others": "all", "direction": "in"}),
    (slow, {"delay_ms": 60, "jitter_ms": 30}),
    (flaky, {}),
    (delay_messages, {"api": "fetch", "delay_ms": 200}),
    (drop_messages, {"api": "broker-heartbeat", "limit": 3}),
    (power_loss, {}),
    (clock_jump, {}),
    (slow_fsync, {"delay_ms": 100}),
)
SERVER_KINDS: Final[tuple[tuple[ModuleType, dict[str, Any]], ...]] = (
    (kill, {}),
    (pause, {}),
    (isolate, {"others": "brokers"}),
)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a period is, how many faults at once at most, how many periods are idle, and the seed of all chance.

    server_odds:  in ZooKeeper mode, how often one of its servers is hurt besides.
    """

    period_ms: int = 4_000
    rest_ms: int = 500
    at_once: int = 2
    idle_odds: float = 0.25
    server_odds: float = 0.3
    seed: int = 0


def kinds(cluster: Cluster) -> list[tuple[ModuleType, dict[str, Any]]]:
    """Return what may happen to brokers."""
    if not cluster.spec.is_zookeeper_mode:
        return list(KINDS)
    others = [(module, given) for module, given in KINDS if given.get("api") != "broker-heartbeat"]
    return [*others, (drop_messages, {"api": "fetch", "limit": 3}), (late_news, {"delay_ms": 450})]


def _has_messages(cluster: Cluster, node: int, given: dict[str, Any]) -> bool:
    """Tell whether a broker sends what a fault of messages waits for: with no metadata log to fetch, only followers fetch."""
    return (
        given.get("api") != "fetch"
        or not cluster.spec.is_zookeeper_mode
        or any(node in one.replicas and one.leader not in (node, -1) for one in cluster.state.partitions.values())
    )


def fault(cluster: Cluster, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Bite and heal: every single fault did. One victim of the first period is the target."""
    random = Random(f"{options.seed}/rotating swarm")
    able = [(module, given) for module, given in kinds(cluster) if cluster.capabilities >= module.NEEDS]

    def episode(number: int) -> tuple[Fault, int]:
        if number and random.random() < options.idle_odds:
            return idle, options.period_ms
        count = random.randint(1, options.at_once)
        victims = random.sample(cluster.spec.broker_ids, min(count, len(cluster.spec.broker_ids)))
        if number == 0 and node not in victims and node in cluster.spec.broker_ids:
            victims[0] = node
        chosen = [
            kind if _has_messages(cluster, victim, kind[1]) else (pause, {})
            for kind, victim in zip(random.sample(able, len(victims)), victims, strict=True)
        ]
        if cluster.spec.is_zookeeper_mode and random.random() < options.server_odds:
            chosen.append(random.choice(SERVER_KINDS))
            victims.append(random.choice(cluster.spec.controller_ids))
        return together(*(aimed(kind, at, **given) for (kind, given), at in zip(chosen, victims, strict=True))), (
            options.period_ms
        )

    return spree(cluster, node, episode, lambda _: options.rest_ms)
