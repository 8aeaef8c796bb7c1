"""What a swarm of overlapping faults does to single nodes: faults without their waits for service.

The faults of `tribunal.nemesis.faults` prove that they healed by waiting until everybody serves again. Where faults overlap that is
no proof of one of them: others go on. Here a hurt ends as soon as its own cause is mended, and who lets them overlap looks at the end.
Each is a function of (cluster, node, random): it draws its own details and says them in its proof.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Final, Literal, Protocol

from tribunal.clusters.api import CutMode, Proof
from tribunal.clusters.capabilities import (
    CanCutLinks,
    CanHinderMessages,
    CanPause,
    CanPowerFail,
    CanSetClock,
    CanShapeLinks,
    CanTearAppends,
    CanTroubleDisk,
    CanWipe,
    ClockSkew,
    DiskTrouble,
    Fate,
    FrameRule,
    Shape,
)
from tribunal.nemesis.api import Effect, proven_losses
from tribunal.nemesis.bounce import BounceTarget, killed_with_other_disk
from tribunal.nemesis.link_groups import Direction, Others, links_of
from tribunal.nemesis.messages import APIS

ENDING_MS: Final = 500  # within which a node has ended whose write was refused
OTHERS: Final[tuple[Others, ...]] = ("nodes", "nodes", "controllers", "brokers", "all")
DIRECTIONS: Final[tuple[Direction, ...]] = ("both", "both", "in", "out")
# Between nodes, where every one of them may be sent again, late or never: requests are idempotent or fenced by epochs.
AMONG_NODES: Final = (
    *(
        "alter-partition",
        "broker-heartbeat",
        "vote",
        "begin-quorum-epoch",
        "end-quorum-epoch",
        "fetch",
        "broker-registration",
    ),
    *(
        "offset-for-leader-epoch",
        "allocate-producer-ids",
        "write-txn-markers",
        "add-partitions-to-txn",
        "fetch-snapshot",
    ),
)
# In ZooKeeper mode, where the controller writes to brokers by requests of its own.
AMONG_NODES_IN_ZOOKEEPER_MODE: Final = (
    *("leader-and-isr", "leader-and-isr", "stop-replica", "update-metadata", "controlled-shutdown", "alter-partition"),
    *("fetch", "offset-for-leader-epoch", "write-txn-markers", "add-partitions-to-txn"),
)
# From clients.
OF_CLIENTS: Final = (
    *("produce", "metadata", "list-offsets", "init-producer-id", "find-coordinator", "end-txn", "txn-offset-commit"),
    *(
        "offset-commit",
        "offset-fetch",
        "join-group",
        "sync-group",
        "heartbeat",
        "consumer-group-heartbeat",
        "add-offsets-to-txn",
    ),
)


class HurtTarget(
    BounceTarget,
    CanCutLinks,
    CanHinderMessages,
    CanPause,
    CanPowerFail,
    CanSetClock,
    CanShapeLinks,
    CanTearAppends,
    CanTroubleDisk,
    CanWipe,
    Protocol,
):
    """A cluster that can be hurt in all these ways."""


Hurt = Callable[[HurtTarget, int, Random], AbstractAsyncContextManager[Effect]]


@asynccontextmanager
async def killed(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Kill -9, and start again."""
    effect = Effect(node, await cluster.kill(node))
    yield effect
    await cluster.start(node)


@asynccontextmanager
async def paused(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Stop the execution, and let it go on."""
    effect = Effect(node, await cluster.pause(node))
    yield effect
    effect.heal = await cluster.resume(node)


@asynccontextmanager
async def powerless(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Take the power and what was not synced, and start again."""
    begin_ns = cluster.now_ns()
    effect = Effect(node, await cluster.power_fail(node))
    effect.losses += proven_losses(cluster, node, effect.proof, begin_ns)
    yield effect
    await cluster.start(node)


@asynccontextmanager
async def emptied(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Kill -9, give it another disk, and start again."""
    effect = await killed_with_other_disk(cluster, node, "wiped", cluster.wipe)
    yield effect
    await cluster.start(node)


@asynccontextmanager
async def refused(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Refuse what it writes, whole or in the midst of an append; it ends, or had nothing to write."""
    how: Literal["full", "read-only", "torn"] = random.choice(("full", "read-only", "torn", "torn"))
    cluster.excuse(node, f"its disk refuses writes: {how}")
    if how == "torn":
        proof = await cluster.tear_append(node, random.randrange(1, 2_000))
    else:
        proof = await cluster.trouble_disk(node, DiskTrouble(writes=how))
    effect = Effect(node, proof)
    yield effect
    effect.heal = await cluster.trouble_disk(node, DiskTrouble())
    await asyncio.sleep(ENDING_MS / 1000)
    effect.proof.facts["ended"] = not cluster.alive(node)
    has_ended = not cluster.alive(node)
    cluster.excuse(node, None)  # before the start: what ends it there is not its disk any more
    if has_ended:
        await cluster.start(node)


@asynccontextmanager
async def slow_disk(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Let every fsync take longer."""
    effect = Effect(node, await cluster.trouble_disk(node, DiskTrouble(fsync_delay_ms=random.choice((30, 100, 400)))))
    yield effect
    effect.heal = await cluster.trouble_disk(node, DiskTrouble())


@asynccontextmanager
async def cut_off(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Cut it off from some of the others, both ways or one way."""
    others, direction = random.choice(OTHERS), random.choice(DIRECTIONS)
    links = links_of(cluster.spec, node, others, direction)
    effect = Effect(node, await cluster.cut(links, random.choice((CutMode.HOLD, CutMode.HOLD, CutMode.RESET))))
    effect.proof.facts.update({"from": others, "direction": direction})
    yield effect
    await cluster.heal(links)


@asynccontextmanager
async def hampered(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Let its links be slow or lossy."""
    links = links_of(cluster.spec, node, random.choice(OTHERS))
    shape = random.choice((Shape(delay_ms=60, jitter_ms=30), Shape(delay_ms=250, jitter_ms=200), Shape(loss=0.2)))
    effect = Effect(node, await cluster.shape(links, shape))
    yield effect
    effect.heal = await cluster.shape(links, Shape())


@asynccontextmanager
async def skewed(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Let its clock jump or drift."""
    skew = random.choice((ClockSkew(offset_ms=60_000), ClockSkew(offset_ms=-60_000), ClockSkew(drift_ppm=20_000)))
    effect = Effect(node, await cluster.set_clock(node, skew))
    yield effect
    effect.heal = await cluster.set_clock(node, ClockSkew())


@asynccontextmanager
async def hindered(cluster: HurtTarget, node: int, random: Random) -> AsyncGenerator[Effect]:
    """Let messages of one API be late, lost, doubled, held to the end, or answered late; later ones may overtake what waits.

    What waits arrives even where its connection, or the process that sent it, is gone by then: a message of a former life.
    """
    among = random.random() < 0.7
    of_nodes = AMONG_NODES_IN_ZOOKEEPER_MODE if cluster.spec.is_zookeeper_mode else AMONG_NODES
    api = random.choice(of_nodes if among else OF_CLIENTS)
    if among:
        fate = random.choice((Fate.DELAYED, Fate.DROPPED, Fate.HELD, Fate.DUPLICATED))
        is_request = fate is Fate.DUPLICATED or random.random() < 0.6
        is_sender = random.random() < 0.5
    else:
        # A client's request that outlives it may do again what was given up (that is why KIP-890 has epochs): only answers are late.
        fate = random.choice((Fate.DELAYED, Fate.DROPPED, Fate.HELD))
        is_request = fate is Fate.DROPPED and random.random() < 0.5
        is_sender = not is_request
    rule = FrameRule(
        fate=fate,
        api=APIS[api],
        direction="request" if is_request else "response",
        source=node if is_sender else None,
        target=None if is_sender else node,
        delay_ms=random.choice((50, 200, 700, 2_500)) if fate is Fate.DELAYED else 0,
        limit=random.choice((1, 1, 2, 5, 20)),
        overtaking=random.random() < 0.7,
    )
    in_force = cluster.add_rule(rule)
    effect = Effect(node, Proof(holds=True, facts={"api": api, "fate": fate.value, "direction": rule.direction}))
    yield effect
    effect.proof.facts.update({"messages": in_force.hit_count, "released": cluster.remove_rule(in_force)})
