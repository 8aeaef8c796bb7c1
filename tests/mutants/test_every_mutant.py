"""Every known bug can be switched on: what it replaces exists, really changes, and its scenario is there."""

import subprocess
import sys

import pytest

from tribunal.harness.campaign.mutation_score import figure_of, scenario_of
from tribunal.harness.catalog import mutants, scenarios
from tribunal.harness.simulated import SimulatedRun

# In an interpreter of its own: what a mutant replaces stays replaced.
PROGRAM = """
import gc, importlib, sys
module = importlib.import_module(f"replog.mutants.{sys.argv[1]}")
import replog.node.broker, replog.node.controller

def product():
    found = {}
    for name, one in sorted(sys.modules.items()):
        if one is None or not name.startswith("replog.") or name.startswith("replog.mutants"):
            continue
        for key, value in vars(one).items():
            found[name, key] = value
            if isinstance(value, type) and value.__module__ == name:
                found.update({(name, key, attribute): member for attribute, member in vars(value).items()})
    return found

before = product()
module.install()
after = product()
assert before.keys() == after.keys(), f"replaces what does not exist: {sorted(after.keys() ^ before.keys())}"
changed = [key for key in before if before[key] is not after[key]]
assert changed, "changes nothing"
"""


@pytest.mark.parametrize("name", sorted(mutants()))
def test_it_replaces_what_is_there(name):
    done = subprocess.run([sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-600:]


@pytest.mark.parametrize("name", sorted(mutants()))
def test_its_scenario_exists(name):
    assert scenario_of(name) in scenarios()


def test_a_figure_is_one_of_the_simulation():
    figures = [figure for figure in map(figure_of, mutants()) if figure]

    assert figures
    assert set(figures) <= set(SimulatedRun.__struct_fields__)


def test_numbers_are_unique():
    numbers = [name.partition("_")[0] for name in mutants()]

    assert len(numbers) == len(set(numbers)) >= 20
