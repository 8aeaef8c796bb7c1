"""Transactions on objects are drawn from the seed: the same seed, the same ones, and each changes with a value of its own."""

from collections import Counter
from random import Random

import pytest

from tribunal.results.object_transactions import StepKind, Steps
from tribunal.workloads.api import Workload
from tribunal.workloads.kinds import append, rw_register
from tribunal.workloads.object_transactions import Objects, Options, drawn, touched
from tribunal.workloads.objects import drawn_plan


def some(objects: Objects, options: Options, seed: int) -> list[Steps]:
    """Return what one process draws."""
    values = iter(range(1, 1_000_000))
    random = Random(drawn_plan(options, Random(seed)).seeds[0])
    return [drawn(values.__next__, objects, options, random) for _ in range(300)]


@pytest.mark.parametrize("kind", [append, rw_register])
def test_the_seed_draws_all_of_it(kind: object) -> None:
    objects = append.OBJECTS if kind is append else rw_register.OBJECTS
    options = Options(keys=3, steps=4, reads=50)

    first = some(objects, options, 1)

    assert first == some(objects, options, 1) != some(objects, options, 2)
    assert {len(steps) for steps in first} == ({1, 2, 3, 4} if kind is append else {1, 2, 3, 4, 5})
    every = [step for steps in first for step in steps]
    assert {step.key for step in every} == set(objects.keys(options))
    assert {step.kind for step in every} == {StepKind.READ, objects.change}
    assert all(step.value is None for step in every if step.kind is StepKind.READ)
    changes = Counter(step.value for step in every if step.kind is not StepKind.READ)
    assert set(changes.values()) == {1}
    assert all(set(touched(steps).split()) == {step.key for step in steps} for steps in first)


@pytest.mark.parametrize(("reads", "kinds"), [(0, {StepKind.APPEND}), (100, {StepKind.READ})])
def test_the_mix_is_the_scenario_s(reads: int, kinds: set[StepKind]) -> None:
    every = [step for steps in some(append.OBJECTS, Options(reads=reads), 1) for step in steps]

    assert {step.kind for step in every} == kinds


@pytest.mark.parametrize("workload", [append.WORKLOAD, rw_register.WORKLOAD])
def test_it_calls_one_operation(workload: Workload[Options, object]) -> None:
    assert len(workload.called({}) or ()) == 1
