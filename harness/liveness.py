"""After the last fault: a random quorum alone must make progress, then the rest must join it (the simulator only).

Safety lets a cluster do nothing for ever, so progress is asked for by itself, as TigerBeetle's VOPR does. A *core* is
drawn from the plan's seed: a majority of who votes in the metadata quorum, of those whose disk has the vote (an
operator may not have come to give a new disk one), and brokers enough for min ISR of which some may lead every
partition, also those in which coordinators keep groups and transactions: a transaction ends only where its decision, its
group's position and its markers can be committed. All others are cut off; within a bound every partition's committed end has to move. A fault may still take
effect behind its end (sessions that ran out while ZooKeeper was cut off end then) and leave nobody in the core who may
lead: then another core is drawn. At last the links are mended, and within another bound every ISR has to be full. Where readers are sent to the
replica of their rack, each member of an ISR has to serve them.

Where nobody leads and who may be elected has lost to its own disk what was committed (without ELR), nothing is asked of that partition: an operator says whose log counts.
Nor is anything asked of a partition that is written in transactions alone, each of them kept, or its group's positions, in a partition that waits for an operator so.
Where an unclean election took the end of a transaction from a group's positions, and its leader aborts nothing (before KIP-704), nothing is asked of what is written
in that group's transactions: they wait for an operator.
Where bytes were altered behind the nodes' backs nothing is asked for: a replica may never get over what no CRC covers.
"""

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from replog.node.net.broker_links import REQUEST_TIMEOUT_MS
from replog.quorum.voters import majority
from replog.types import NodeId
from tribunal.clusters.api import CLIENTS, ClusterState, CutMode, Link, PartitionState, TopicPartition, Unsettled, until
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.clusters.simulated.violation import Violated, state_of
from tribunal.results.violation import Expected, Invariant, NoProgress

RECOVERY_MS: Final = 16_000  # elections, registrations; clients that wait for a broker they lost (delivery.timeout.ms)
ASKED_IN_VAIN_MS: Final = 6_000  # a client's request time-out, and its group that waits for it and rebalances
SESSIONS: Final = 3
JOIN_TIMEOUT_MS: Final = 20_000
SERVED_TIMEOUT_MS: Final = 5_000  # everybody is in sync, and nothing is being done to them
SERVED_POLL_MS: Final = 200
DRAWS_MAX: Final = 3
CutOff = Callable[[Sequence[int]], AbstractContextManager[None]]
COORDINATORS: Final = frozenset({"__consumer_offsets", "__transaction_state"})


class Liveness:
    """Asks one simulated cluster for progress; what does not come about is reported to the watch as a violation."""

    def __init__(self, cluster: SimulatedCluster, random: Random, cut_off: CutOff) -> None:
        """`cut_off`: around the time in which nodes are cut off, says who they are."""
        self._cluster = cluster
        self._random = random
        self._cut_off = cut_off

    async def core_progresses(self, partitions: Sequence[TopicPartition]) -> None:
        """Leave a core alone, and wait for progress on all of these partitions; return with all links mended."""
        for draws_left in reversed(range(DRAWS_MAX)):
            partitions = [one for one in partitions if not self._waits_for_an_operator(one)]
            core = self._drawn(partitions)
            if core is None or self._is_excused():
                return
            missed = await self._left_alone(core, partitions)
            if missed is None or self._is_excused():
                return
            if draws_left == 0 or missed.core_may_lead:
                self._cluster.watch.report(missed.violation)
                return

    async def _left_alone(self, core: Sequence[int], partitions: Sequence[TopicPartition]) -> "_Missed | None":
        """Cut off all others until every partition has progressed; return how it stood when one had not in time."""
        committed_end = self._cluster.watch.committed_end
        others = [node for node in self._cluster.spec.node_ids if node not in core]
        links = _around(core, others)
        before = {partition: committed_end(partition) for partition in partitions}
        left_open = self._cluster.watch.left_open()

        def left() -> list[TopicPartition]:
            return [one for one in partitions if committed_end(one) <= before[one]]

        with self._cut_off(others):
            await self._cluster.cut(links, CutMode.HOLD)
            try:
                violated = await self._violated(
                    left,
                    recovery_ms(len(set(others).intersection(self._cluster.spec.broker_ids)))
                    + SESSIONS * self._cluster.spec.timeout_ms("broker.session.timeout.ms")
                    + self._awaited_ms(),
                    Expected.CORE_PROGRESS,
                )
                if violated is None or self._are_held_up(left(), left_open):
                    return None
                return _Missed(violated, self._may_progress(partitions, core))
            finally:
                await self._cluster.heal(links)

    def _are_held_up(self, left: Sequence[TopicPartition], left_open: Mapping[TopicPartition, int]) -> bool:
        """Return whether all these partitions are written by transactions of groups whose positions waited all the time for one that nobody ends."""
        watch = self._cluster.watch
        still = watch.left_open()
        open_ = [partition for partition, offset in left_open.items() if still.get(partition) == offset]
        return bool(open_) and all(watch.may_wait_for(open_, one) for one in left)

    def _awaited_ms(self) -> int:
        """Return how much longer a broker may wait for what was dropped on its way from or to another one."""
        simulation, brokers = self._cluster.simulation, self._cluster.spec.broker_ids
        dropped_ns = simulation.network.frames.dropped_ns
        between = [at_ns for nodes, at_ns in dropped_ns.items() if all(node in brokers for node in nodes)]
        return awaited_ms(max(between, default=None), simulation.loop.now_ns)

    async def all_join(self) -> None:
        """Wait until every ISR is full."""
        spec = self._cluster.spec
        if self._is_excused() or not all(map(self._cluster.alive, spec.node_ids)):
            return
        violated = await self._violated(
            lambda: [] if self._awaited().is_fully_in_sync(spec) else list(self._cluster.state.partitions),
            JOIN_TIMEOUT_MS,
            Expected.FULL_ISR,
        )
        if violated is not None:
            self._cluster.watch.report(violated)

    async def readers_are_served(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait until every member of these partitions' ISRs serves a reader of its rack, where brokers have racks (KIP-392): leaders send them there."""
        spec, loop = self._cluster.spec, asyncio.get_running_loop()
        if not spec.racks or self._is_excused() or not all(map(self._cluster.alive, spec.node_ids)):
            return
        deadline = loop.time() + SERVED_TIMEOUT_MS / 1000
        left = dict.fromkeys((one, node) for one in partitions for node in self._isr(one))
        while left and loop.time() < deadline:
            for one, node in list(left):
                if node not in self._isr(one) or await self._cluster.clients.is_served(one, node, spec.racks[node]):
                    del left[one, node]
            await asyncio.sleep(SERVED_POLL_MS / 1000)
        if left:
            one, node = next(iter(left))
            states = {str(one): state_of(self._cluster.state.partitions[one])}
            facts = NoProgress(expected=Expected.SERVED_READERS, timeout_ms=SERVED_TIMEOUT_MS, states=states)
            self._cluster.watch.report(Violated(Invariant.LIVENESS, facts, node=node))

    def _awaited(self) -> ClusterState:
        """Return what is known, without partitions whose next leader is for an operator to say."""
        state, waits = self._cluster.state, self._cluster.watch.waits_for_an_operator
        return replace(state, partitions={one: known for one, known in state.partitions.items() if not waits(one)})

    def _waits_for_an_operator(self, partition: TopicPartition) -> bool:
        """Return whether nobody can write there before an operator comes: for itself, or for what keeps the transactions of all who write."""
        known, waits = self._cluster.state.partitions, self._cluster.watch.waits_for_an_operator
        unled = [one for one in _coordinators(self._cluster.state) if waits(one)]
        return waits(partition) or self._cluster.clients.writers.all_wait_for(partition, known, unled)

    def _isr(self, partition: TopicPartition) -> tuple[int, ...]:
        known = self._cluster.state.partitions.get(partition)
        return () if known is None else known.isr

    def _is_excused(self) -> bool:
        return self._cluster.watch.has_damage or self._cluster.watch.violation is not None

    async def _violated(
        self, left: Callable[[], Sequence[TopicPartition]], timeout_ms: int, what: Expected
    ) -> Violated | None:
        """Wait until no partition is left of which it does not hold; say how these stand when the time is over."""
        try:
            await until(lambda: not left(), timeout_ms=timeout_ms, what=what.value, cluster=self._cluster)
        except Unsettled:
            known = self._cluster.state.partitions
            states = {str(name): state_of(known[name]) for name in sorted(left()) if name in known}
            return Violated(Invariant.LIVENESS, NoProgress(expected=what, timeout_ms=timeout_ms, states=states))
        return None

    def _drawn(self, partitions: Sequence[TopicPartition]) -> tuple[int, ...] | None:
        """Draw who is left alone; None where nobody else could be spared."""
        spec = self._cluster.spec
        brokers = cores(
            self._cluster.state,
            partitions,
            spec.broker_ids,
            at_least=max(spec.min_insync_replicas, spec.brokers // 2 + 1),
            min_isr=self._min_isr,
        )
        controllers = electing(self._cluster.voter_directories(), self._cluster.lost_directories)
        if not brokers or not controllers or not all(map(self._cluster.alive, spec.node_ids)):
            return None
        if len(brokers[0]) == spec.brokers and len(controllers[0]) == spec.controllers:
            return None
        return (*self._random.choice(controllers), *self._random.choice(brokers))

    def _may_progress(self, partitions: Sequence[TopicPartition], brokers: Sequence[int]) -> bool:
        state = self._cluster.state
        needed = (*partitions, *_coordinators(state))
        return all(may_progress(state, one, brokers, self._min_isr(one.topic)) for one in needed)

    def _min_isr(self, topic: str) -> int:
        """Return a topic's min ISR: an operator may have set it meanwhile."""
        known = self._cluster.watch.committed.min_isr(topic)
        return self._cluster.spec.min_insync_replicas if known is None else known


class _Missed(msgspec.Struct, frozen=True):
    """No progress came about; whether somebody in the core could still lead every partition."""

    violation: Violated
    core_may_lead: bool


def recovery_ms(cut_off: int) -> int:
    """Return how long who writes may need until it goes on, with so many brokers cut off.

    A client learns of each of them by a request that nobody answers, one after the other; from then on it asks others first.
    """
    return RECOVERY_MS + max(0, cut_off - 1) * ASKED_IN_VAIN_MS


def awaited_ms(dropped_ns: int | None, now_ns: int) -> int:
    """Return how much longer a broker may wait for the answer to what was dropped, 0 where nothing was (None) or no more.

    What a rule drops leaves its connection open, so that who asked learns of it by its time-out alone.
    """
    return 0 if dropped_ns is None else max(0, REQUEST_TIMEOUT_MS - (now_ns - dropped_ns) // 1_000_000)


def cores(
    state: ClusterState,
    partitions: Sequence[TopicPartition],
    brokers: Sequence[int],
    *,
    at_least: int,
    min_isr: Callable[[str], int],
) -> list[tuple[int, ...]]:
    """Return the groups of brokers that could do without the others, all of one size, in the order of `brokers`.

    They are of `at_least` brokers: those of which some may lead every one of `partitions`. Where none of these may lead what coordinators keep as
    well, they are the next larger ones that may. None: already for `partitions` so few are too few.
    """

    def of(size: int, needed: Sequence[TopicPartition]) -> list[tuple[int, ...]]:
        return [
            group
            for group in itertools.combinations(brokers, size)
            if all(may_progress(state, one, group, min_isr(one.topic)) for one in needed)
        ]

    if not of(at_least, partitions):
        return []
    needed = (*partitions, *_coordinators(state))
    return next(filter(None, (of(size, needed) for size in range(at_least, len(brokers) + 1))), [])


def _coordinators(state: ClusterState) -> list[TopicPartition]:
    """Return the partitions in which groups and transactions are kept."""
    return [one for one in sorted(state.partitions) if one.topic in COORDINATORS]


def electing(voters: Mapping[NodeId, UUID], lost: Collection[tuple[int, UUID]]) -> list[tuple[int, ...]]:
    """Return the groups of controllers that could elect one of them without the others, all of one size, in the order of `voters`.

    voters:  who votes, with the directory that has the vote (KIP-853).
    lost:    directories that a fault took from their nodes for ever: nobody can vote with one, until an operator has given its node another vote.
    """
    present: list[int] = [node for node, directory in voters.items() if (node, directory) not in lost]
    return list(itertools.combinations(present, majority(len(voters))))


def may_progress(state: ClusterState, partition: TopicPartition, brokers: Sequence[int], min_isr: int) -> bool:
    """Return whether these brokers alone can lead a partition and commit something."""
    known: PartitionState | None = state.partitions.get(partition)
    if known is None or not any(node in brokers for node in known.isr or known.elr):
        return False
    return sum(node in brokers for node in known.replicas) >= min(min_isr, len(known.replicas))


def _around(core: Sequence[int], others: Sequence[int]) -> list[Link]:
    """Return every link between the core, to which clients belong, and the others, both ways."""
    return [link for inner in (CLIENTS, *core) for outer in others for link in (Link(inner, outer), Link(outer, inner))]
