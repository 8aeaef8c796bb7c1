"""The abstract states of a run: which node is which does not matter, and looking changes nothing."""

from itertools import permutations

import msgspec
import pytest

from tribunal.clusters.api import PartitionState
from tribunal.clusters.simulated.abstract_state import Leading, PartitionSeen, Service
from tribunal.clusters.simulated.reached import ReachedStates
from tribunal.harness.campaign.mutation_score import plan_of
from tribunal.harness.progress import Silent
from tribunal.harness.simulated import conduct_simulated


def seen(*, leader=1, isr=(1, 2), elr=(3,), ends=(10, 12, 4), down=(), min_isr=2, recovering=False, leading=()):
    state = PartitionState(
        leader=leader,
        leader_epoch=3,
        partition_epoch=5,
        replicas=(1, 2, 3),
        isr=isr,
        elr=elr,
        recovering=recovering,
    )
    return PartitionSeen(
        state=state,
        committed_end=10,
        min_isr=min_isr,
        ends=dict(zip((1, 2, 3), ends, strict=True)),
        services={node: Service.DOWN if node in down else Service.SERVES for node in (1, 2, 3)},
        leading=leading,
    )


def renamed(one, names):
    state = one.state
    return msgspec.structs.replace(
        one,
        state=msgspec.structs.replace(
            state,
            leader=names.get(state.leader, -1),
            replicas=tuple(names[node] for node in state.replicas),
            isr=tuple(names[node] for node in state.isr),
            elr=tuple(names[node] for node in state.elr),
        ),
        ends={names[node]: end for node, end in one.ends.items()},
        services={names[node]: service for node, service in one.services.items()},
    )


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(seen(), id="leader, member, eligible"),
        pytest.param(seen(leader=-1, isr=(), elr=(2, 3), down=(1,)), id="nobody leads"),
        pytest.param(seen(isr=(1,), elr=(), recovering=True, leading=(Leading.GROWS,)), id="recovering"),
    ],
)
def test_equal_nodes_may_change_their_names(one):
    shapes = {renamed(one, dict(zip((1, 2, 3), names, strict=True))).shape() for names in permutations((1, 2, 3))}

    assert shapes == {one.shape()}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(seen(leader=2), id="who is ahead leads"),
        pytest.param(seen(isr=(1,), elr=(2, 3)), id="ISR"),
        pytest.param(seen(elr=()), id="ELR"),
        pytest.param(seen(ends=(10, 12, 10)), id="log ends"),
        pytest.param(seen(down=(2,)), id="a node is down"),
        pytest.param(seen(min_isr=1), id="min ISR"),
        pytest.param(seen(recovering=True), id="recovery"),
        pytest.param(seen(leading=(Leading.SHRINKS,)), id="a proposal"),
    ],
)
def test_what_may_go_wrong_next_makes_another_state(other):
    assert other.shape() != seen().shape()


def test_numbers_alone_make_no_other_state():
    assert seen(ends=(110, 111, 9)).shape() == seen(ends=(10, 999, 0)).shape()


def test_a_shape_is_said_in_words():
    shape = seen(leading=(Leading.SHRINKS,), down=(3,)).shape()

    assert str(shape) == "partition E<down I> L= isr=min shrinks"


def test_looking_changes_nothing(tmp_path):
    observers = []
    plan = plan_of("raised-min-isr", 1, ())
    (tmp_path / "plain").mkdir()
    (tmp_path / "observed").mkdir()

    _, plain = conduct_simulated(plan, tmp_path / "plain", Silent())
    _, observed = conduct_simulated(
        plan, tmp_path / "observed", Silent(), lambda simulation: observers.append(ReachedStates(simulation))
    )

    assert (observed.trace_hash, observed.event_count) == (plain.trace_hash, plain.event_count)
    reached = observers[0].reached()
    assert "partition I= L= isr=min deposed" in reached.states  # min ISR was raised, and the leader does not know
    assert "incremental_alter_configs ordered @ partition I= L= isr>min leads" in reached.states
    assert any(words.startswith("alter_partition request @ ") and words.endswith("shrinks") for words in reached.states)
    assert reached.requests["alter_partition"] > 0
