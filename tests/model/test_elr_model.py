"""The ELR core, exhaustively: every state that 3 brokers with min ISR 2 can reach, to the last one.

The state is the partition without its epochs, who is fenced or stopping, and two things that the controller cannot
see: who holds every acknowledged record, and how many shutdowns lost their tail. KIP-966 promises that no acknowledged
record is lost "when we only have min ISR - 1 unclean shutdowns"; and that who leads without recovery holds them all.

The default visits all states of three brokers; `nightly` adds other min ISRs and a fourth broker.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from replog.controller import election
from replog.controller.election import Rules, Wish, partition_change
from replog.controller.elr import Eligible, LastKnownMode, effective_min_isr, eligible
from replog.metadata.image import merged
from replog.metadata.state import Partition
from replog.types import NO_NODE, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch
from tests.cases.partitions import KEY

Nodes = frozenset[int]
Ids = tuple[NodeId, ...]


class State(NamedTuple):
    """Hashable; `tails_lost` counts registrations after an unclean shutdown, up to min ISR."""

    partition: Partition
    fenced: Nodes
    stopping: Nodes
    holders: Nodes
    tails_lost: int


class Model:
    """Events and what must hold after each."""

    def __init__(self, brokers: int, min_isr: int, mode: LastKnownMode) -> None:
        self.nodes = tuple(NodeId(node) for node in range(1, brokers + 1))
        self.min_isr = min_isr
        self.rules = Rules(min_insync_replicas=min_isr, elr_enabled=True, last_known_mode=mode)

    def start(self) -> State:
        whole = Partition(
            replicas=self.nodes,
            isr=self.nodes,
            leader=self.nodes[0],
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
        )
        return State(whole, frozenset(), frozenset(), frozenset(self.nodes), 0)

    def next_states(self, state: State) -> Iterator[tuple[str, State]]:
        for node in self.nodes:
            if node not in state.fenced:
                yield f"fence {node}", self._fence(state, node)
                if node not in state.stopping:
                    yield f"controlled shutdown {node}", self._stop(state, node)
            else:
                yield f"register clean {node}", self._register(state, node, clean=True)
                yield f"register unclean {node}", self._register(state, node, clean=False)
                if node not in state.stopping:
                    yield f"unfence {node}", self._unfence(state, node)
        yield from self._proposals(state)

    def _change(self, state: State, wish: Wish, unfit: Nodes) -> State:
        record = partition_change(KEY, state.partition, wish, self.rules, lambda node: node not in unfit)
        if record is None:
            return state
        after = merged(state.partition, record)
        if after.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            # Only when nobody is left who surely holds everything (KIP-966).
            assert state.tails_lost >= self.min_isr, f"unclean election after {state.tails_lost} lost tails"
        elif after.leader not in (state.partition.leader, NO_NODE):
            assert after.leader in state.holders, f"{after.leader} leads without what was acknowledged"
        return state._replace(partition=after)

    def _leave(self, state: State, node: NodeId, unfit: Nodes, unclean: tuple[NodeId, ...] = ()) -> State:
        isr = tuple(other for other in state.partition.isr if other != node)
        if isr == state.partition.isr and not unclean:
            return state
        return self._change(state, Wish(target_isr=isr, unclean_shutdown=unclean), unfit | {node})

    def _fence(self, state: State, node: NodeId) -> State:
        left = self._leave(state, node, state.fenced | state.stopping)
        return left._replace(fenced=left.fenced | {node})

    def _stop(self, state: State, node: NodeId) -> State:
        left = self._leave(state, node, state.fenced | state.stopping)
        return left._replace(stopping=left.stopping | {node})

    def _register(self, state: State, node: NodeId, *, clean: bool) -> State:
        if not clean:
            lost = min(state.tails_lost + 1, self.min_isr)
            state = state._replace(holders=state.holders - {node}, tails_lost=lost)
        left = self._leave(state, node, state.fenced | state.stopping, () if clean else (node,))
        return left._replace(stopping=left.stopping - {node})

    def _unfence(self, state: State, node: NodeId) -> State:
        back = state._replace(fenced=state.fenced - {node})
        if back.partition.leader != NO_NODE:
            return back
        return self._change(back, Wish(), back.fenced | back.stopping)

    def _proposals(self, state: State) -> Iterator[tuple[str, State]]:
        partition, unfit = state.partition, state.fenced | state.stopping
        leader = partition.leader
        if leader == NO_NODE or leader in unfit:
            return
        if partition.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            # What the leader has is the truth from now on; the loss was permitted.
            recovered = self._change(state, Wish(leader_recovery_state=LeaderRecoveryState.RECOVERED), unfit)
            yield "recovered", recovered._replace(holders=frozenset({leader}))
            return
        for node in self.nodes:
            if node in partition.isr and node != leader:
                yield f"drop {node}", self._leave(state, node, unfit)
            elif node not in partition.isr and node not in unfit:
                # It has fetched everything the leader has, up to the high watermark at least.
                joined = self._change(state, Wish(target_isr=(*partition.isr, node)), unfit)
                yield f"add {node}", joined._replace(holders=joined.holders | {node})
        if len(partition.isr) >= self.min_isr:
            # From here on min ISR brokers hold everything: the count of lost tails starts anew.
            yield "acknowledge", state._replace(holders=frozenset(partition.isr), tails_lost=0)

    def check(self, state: State) -> None:
        partition = state.partition
        isr, elr = set(partition.isr), set(partition.elr)
        assert not isr & elr
        self.check_lists(state)
        assert partition.leader == NO_NODE or partition.leader in isr
        assert not isr & (state.fenced | state.stopping), "a fenced broker is never left in the ISR (D13)"
        if partition.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            assert len(isr) <= 1
        else:
            # I8, I9: all who may lead hold what was acknowledged, unless too many tails were lost.
            assert isr | elr <= state.holders, f"{sorted((isr | elr) - state.holders)} may lead and lack records"
        # KIP-966: "ELR + ISR size will not be dropped below the min ISR unless ... an unclean shutdown".
        if state.tails_lost == 0 and state.partition.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            assert len(isr | elr) >= min(self.min_isr, len(state.holders))

    def check_lists(self, state: State) -> None:
        """KIP-966: "If ELR is not empty, the ISR is under min ISR." """
        partition = state.partition
        assert not partition.elr or len(partition.isr) < effective_min_isr(self.min_isr, len(self.nodes))


def explore(model: Model, depth_max: int) -> int:
    """Visit every state within so many events, say how deep that went, and return how many there are."""
    start = model.start()
    seen: dict[State, tuple[State, str] | None] = {start: None}
    frontier = deque([(start, 0)])
    deepest = 0
    while frontier:
        state, depth = frontier.popleft()
        if depth == depth_max:
            continue
        try:
            for event, after in model.next_states(state):
                after = _without_epochs(after)
                if after not in seen:
                    seen[after] = (state, event)
                    model.check(after)
                    deepest = depth + 1
                    frontier.append((after, depth + 1))
        except AssertionError as problem:
            raise AssertionError(f"{problem}\nafter {_way_to(seen, state)}\nin {state}") from problem
    whole = "all there are" if deepest < depth_max else "those within the bound"
    print(f"ELR model: {len(seen)} states ({whole}), the farthest {deepest} events away")
    return len(seen)


def _without_epochs(state: State) -> State:
    """Order and epochs do not matter to what may happen next."""
    partition = state.partition
    plain = msgspec.structs.replace(
        partition,
        isr=tuple(node for node in partition.replicas if node in partition.isr),
        elr=tuple(sorted(partition.elr)),
        last_known_elr=tuple(sorted(partition.last_known_elr)),
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
    )
    return state._replace(partition=plain)


def _way_to(seen: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    way: list[str] = []
    while (came := seen[state]) is not None:
        state, event = came
        way.append(event)
    return way[::-1]


@pytest.mark.parametrize("mode", list(LastKnownMode))
def test_no_reachable_state_of_three_brokers_may_lose_records(mode: LastKnownMode) -> None:
    assert explore(Model(3, 2, mode), depth_max=99) > 500


@pytest.mark.parametrize("forgotten", ["emptying", "unclean shutdowns"])
def test_the_model_finds_what_it_looks_for(monkeypatch: pytest.MonkeyPatch, forgotten: str) -> None:
    """M15 (the ELR outlives min ISR) and M02 (an unclean registration is ignored)."""

    def mutant(
        partition: Partition, *, target_isr: Ids, target_replicas: Ids, min_isr: int, unclean_shutdown: Ids
    ) -> Eligible:
        sticky = forgotten == "emptying"
        return eligible(
            partition,
            target_isr=target_isr,
            target_replicas=target_replicas,
            min_isr=99 if sticky and partition.elr else min_isr,
            unclean_shutdown=unclean_shutdown if sticky else (),
        )

    monkeypatch.setattr(election, "eligible", mutant)
    model = Model(3, 2, LastKnownMode.LEADER)
    monkeypatch.setattr(Model, "check_lists", lambda self, state: None)

    with pytest.raises(AssertionError, match=r"lack|without what was acknowledged"):
        explore(model, depth_max=99)


@pytest.mark.nightly
@pytest.mark.parametrize(("brokers", "min_isr"), [(3, 1), (3, 3), (4, 2), (4, 3)])
@pytest.mark.parametrize("mode", list(LastKnownMode))
def test_no_reachable_state_may_lose_records(brokers: int, min_isr: int, mode: LastKnownMode) -> None:
    assert explore(Model(brokers, min_isr, mode), depth_max=99) > 100
