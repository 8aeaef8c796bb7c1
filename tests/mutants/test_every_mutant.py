"""Every known bug can be switched on: what it replaces exists, really changes, and its scenario is there."""

import importlib
import sys

import pytest

import replog.node.broker
import replog.node.controller
import replog.node.zookeeper.broker
from replog import mutants as switches
from tribunal.harness.campaign.mutation_score import figure_of, scenario_of
from tribunal.harness.catalog import mutants, scenario_file
from tribunal.harness.scenario import load
from tribunal.harness.simulated import SimulatedRun
from tribunal.harness.switches import switched_on

NODES = (replog.node.broker, replog.node.controller, replog.node.zookeeper.broker)  # with all that they import


def product():
    """Return every attribute of the product's modules and of the classes in them."""
    found = {}
    for name, one in sorted(sys.modules.items()):
        if not name.startswith("replog.") or name.startswith(switches.__name__):
            continue
        for key, value in vars(one).items():
            found[name, key] = value
            if isinstance(value, type) and value.__module__ == name:
                found.update({(name, key, attribute): member for attribute, member in vars(value).items()})
    return found


@pytest.mark.parametrize("name", sorted(mutants()))
def test_it_replaces_what_is_there(name):
    importlib.import_module(f"{switches.__name__}.{name}")
    before = product()
    with switched_on((name,)):
        after = product()

    assert before.keys() == after.keys(), "replaces what does not exist"
    assert [key for key in before if before[key] is not after[key]], "changes nothing"


@pytest.mark.parametrize("name", sorted(mutants()))
def test_its_scenario_can_be_run(name):
    assert load(scenario_file(scenario_of(name)), {}).steps


def test_a_figure_is_one_of_the_simulation():
    figures = [figure for figure in map(figure_of, mutants()) if figure]

    assert figures
    assert set(figures) <= set(SimulatedRun.__struct_fields__)


def test_numbers_are_unique():
    numbers = [name.partition("_")[0] for name in mutants()]

    assert len(numbers) == len(set(numbers)) >= 60
