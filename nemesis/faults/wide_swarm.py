"""Random hurts of brokers and controllers at once, each beginning and ending by itself: nothing is whole before the next comes.

Beside `rotating-swarm`, whose periods hurt one or two brokers and heal them all, several lanes go on here, each with one hurt at a time
of any node: processes, power, disks that refuse an append in its midst, links, clocks, and messages by the name of their API. A
node's process or disk is hurt by one lane at a time; links and messages by any number. Only the end is healed and proven as a whole.

A controller's disk may be lost once, where there are three or more: a quorum does not outlive more, as its majority is one of disks. It gets
another one, and a vote with it as an operator would give it (KIP-853), as soon as the others let that be, at the end at the latest.
The power of all controllers may go in one moment, as that of a building does; what each had not synced is gone then.

In ZooKeeper mode the controllers are servers of ZooKeeper, which are killed, paused and cut off, and the messages are those of that mode.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random
from typing import Annotated, Final

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.endings import all_done
from tribunal.nemesis.api import Effect, Fault, Proof, all_back
from tribunal.nemesis.combine import take_losses
from tribunal.nemesis.hurts import (
    Hurt,
    HurtTarget,
    cut_off,
    emptied,
    hampered,
    hindered,
    killed,
    paused,
    powerless,
    refused,
    skewed,
    slow_disk,
)
from tribunal.nemesis.votes import vote_again, with_votes

POLL_MS: Final = 50
# What is done to a process or its disk excludes another of these on the same node, in shares of all draws.
TO_NODES: Final[dict[Hurt, int]] = {killed: 14, paused: 12, powerless: 12, refused: 7, slow_disk: 7, emptied: 2}
BESIDES: Final[dict[Hurt, int]] = {cut_off: 14, hindered: 24, hampered: 5, skewed: 3}
LASTS_MS: Final = (150, 400, 900, 1_800, 3_500)
RESTS_MS: Final = (0, 100, 500, 1_500, 3_000)
TO_SERVERS: Final[tuple[Hurt, ...]] = (killed, paused, cut_off)  # of ZooKeeper: what other software is there for
QUORUM_LEAST: Final = 3  # members of a quorum that outlives the loss of one disk


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many hurts at once at most, how often a controller is meant, and the seed of all chance (drawn by the plan).

    disk_odds:  how often it is a controller that loses its disk, where a disk is lost; but once at most.
    all_odds:   how often all controllers lose power together, where one of them would.
    """

    at_once: Annotated[int, msgspec.Meta(ge=1)] = 3
    controller_odds: float = 0.35
    disk_odds: float = 0.0
    all_odds: float = 0.0
    seed: int = 0


class Swarm:
    """The lanes of one swarm, and what they have done."""

    def __init__(self, cluster: HurtTarget, effect: Effect, options: Options) -> None:
        self._cluster = cluster
        self._effect = effect
        self._options = options
        self._taken: dict[int, None] = {}  # nodes whose process or disk is hurt
        self._leave = asyncio.Event()
        self._disk_lost: int | None = None  # of which controller
        self.done: list[dict[str, object]] = []
        self.is_proven = True  # that disks which were to be emptied are empty
        self._lanes = [asyncio.create_task(self._go(number)) for number in range(options.at_once)]

    async def end(self) -> None:
        """Let every lane mend what it has hurt, whatever another one fails of."""
        self._leave.set()
        await all_done(self._lanes)
        if self._disk_lost is not None:
            await self._give_vote(self._disk_lost)

    def give_up(self) -> None:
        """End every lane where the run was broken off: nobody writes down what it would do yet."""
        for lane in self._lanes:
            lane.cancel()

    async def _go(self, number: int) -> None:
        """Be a lane; one that fails ends the others, for what they would hurt from then on nobody judges."""
        try:
            await self._lane(number)
        except BaseException:
            self._leave.set()
            raise

    async def _lane(self, number: int) -> None:
        random = Random(f"{self._options.seed}/wide swarm/{number}")
        await self._rest(random.choice(RESTS_MS) if number else 0)
        while not self._leave.is_set():
            kinds = {**TO_NODES, **BESIDES}
            hurt = random.choices(list(kinds), list(kinds.values()))[0]
            node = self._victim(random, hurt)
            lasts_ms, rests_ms = random.choice(LASTS_MS), random.choice(RESTS_MS)
            if node is not None:
                await self._hurt(hurt, self._with_others(hurt, node, random), random, lasts_ms)
            await self._rest(rests_ms)

    def _victim(self, random: Random, hurt: Hurt) -> int | None:
        """Draw a node that nobody else has: the leaders of quorum and partitions more often than others."""
        cluster = self._cluster
        if self._means_controller(random, hurt):
            nodes, leading = cluster.spec.controller_ids, [cluster.state.quorum_leader]
        else:
            nodes = cluster.spec.broker_ids
            leading = [partition.leader for _, partition in sorted(cluster.state.partitions.items())]
            if cluster.spec.is_zookeeper_mode:
                leading.append(cluster.state.quorum_leader)  # a broker is the controller
        wanted = random.choice([node for node in leading if node in nodes] or nodes)
        other = random.choice(nodes)
        node = wanted if random.random() < 0.5 else other
        is_free = node not in self._taken and cluster.alive(node)
        return node if hurt in BESIDES or is_free else None

    def _means_controller(self, random: Random, hurt: Hurt) -> bool:
        """Draw whether a controller is meant."""
        if self._cluster.spec.is_zookeeper_mode:
            return hurt in TO_SERVERS and random.random() < self._options.controller_odds
        if hurt is not emptied:
            return random.random() < self._options.controller_odds
        if not self._options.disk_odds or len(self._cluster.spec.controller_ids) < QUORUM_LEAST:
            return False
        return random.random() < self._options.disk_odds and self._disk_lost is None

    def _with_others(self, hurt: Hurt, node: int, random: Random) -> list[int]:
        """Return whom a hurt strikes: a node alone, or all controllers whose power goes with its own."""
        controllers = self._cluster.spec.controller_ids
        if hurt is not powerless or node not in controllers or not self._options.all_odds:
            return [node]
        others = [one for one in controllers if one != node and one not in self._taken and self._cluster.alive(one)]
        return [node, *others] if random.random() < self._options.all_odds else [node]

    async def _give_vote(self, node: int) -> None:
        """Let the new disk of a controller vote; others may be in no state to let it, and then it is tried again at the end."""
        voters = with_votes(self._cluster)
        if voters is not None:
            with suppress(ClusterError):
                await vote_again(voters, node)

    async def _hurt(self, hurt: Hurt, nodes: list[int], random: Random, lasts_ms: int) -> None:
        node, *others = nodes
        is_exclusive = hurt in TO_NODES
        if is_exclusive:
            self._taken |= dict.fromkeys(nodes)
        facts: dict[str, object] = {"hurt": hurt.__name__, "node": node, "at_ms": self._cluster.now_ns() // 1_000_000}
        if others:
            facts["others"] = others
        self.done.append(facts)
        loses_vote = hurt is emptied and node in self._cluster.spec.controller_ids
        if loses_vote:
            self._disk_lost = node
        async with AsyncExitStack() as hurts:
            # Nothing else happens between the first and the last of them.
            effects = [await hurts.enter_async_context(hurt(self._cluster, struck, random)) for struck in nodes]
            for effect in effects:
                take_losses(self._effect, effect)
                self.is_proven &= hurt is not emptied or effect.proof.holds
            await self._rest(lasts_ms)
        if loses_vote and not self._leave.is_set():
            await self._give_vote(node)
        facts |= {"lasted_ms": self._cluster.now_ns() // 1_000_000 - int(str(facts["at_ms"])), **effects[0].proof.facts}
        if is_exclusive:
            for struck in nodes:
                del self._taken[struck]

    async def _rest(self, duration_ms: int) -> None:
        for _ in range(duration_ms // POLL_MS):
            if self._leave.is_set():
                return
            await asyncio.sleep(POLL_MS / 1000)


@asynccontextmanager
async def inject(cluster: HurtTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: hurts as they are drawn, until the fault ends. Heal: every one mended, everybody back in service."""
    effect = Effect(node, Proof(holds=True, facts={}))
    swarm = Swarm(cluster, effect, options)
    try:
        yield effect
        await swarm.end()
    finally:
        swarm.give_up()
    effect.proof = Proof(holds=bool(swarm.done) and swarm.is_proven, facts={"hurts": swarm.done})
    effect.heal = await all_back(cluster)


FAULT: Final = Fault(options=Options, inject=inject, struck=lambda spec, _: spec.node_ids)
