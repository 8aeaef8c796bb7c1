"""Crossings: all pairs of a table come, each row as a plan that can be run, and only what really waited over an event counts."""

from random import Random

import msgspec
import pytest

from tribunal.harness.campaign.crossings import HOLD_OVER, NOTHING, ROWS, Table, crossed_rows, planned
from tribunal.harness.campaign.pairs import TRIES
from tribunal.harness.catalog import faults, scenario_file
from tribunal.harness.plan import Plan, must_be_possible
from tribunal.harness.scenario import load
from tribunal.nemesis.targets import parse
from tribunal.nemesis.triggers import parse_trigger


def wanted(mode):
    return load(scenario_file("rotating-swarm"), {"cluster.mode": mode})


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_every_pair_comes_and_every_row_is_a_plan_that_can_be_run(mode):
    table, random, runs = Table(mode, {}, {}), Random(mode), 0
    while table.is_left():
        rows = table.rows(random)
        runs += 1
        if runs <= 40:
            plan = planned(wanted(mode), rows, table, random, ()).plan
            encoded = msgspec.json.encode(plan)
            assert msgspec.json.encode(msgspec.json.decode(encoded, type=Plan)) == encoded
            must_be_possible((fault.kind for fault in plan.faults), plan.spec, "simulated")
            for fault in plan.faults:
                assert not faults()[fault.kind].refused_by(plan.spec, fault.options)
                parse(fault.target.text, plan.spec, 99)
                for trigger in (fault.when, fault.until):
                    assert trigger is None or parse_trigger(trigger.text, plan.spec, 99) == trigger
            holds = [fault.index for fault in plan.faults if fault.kind == HOLD_OVER]
            assert crossed_rows(plan, rows, holds[1:]) == rows[1:]
        for row in rows:
            table.took(row)

    assert set(table.crossed) == set(table.pairs)
    assert ROWS * runs < len(table.pairs)  # far fewer than all combinations


def test_a_pair_that_does_not_come_about_is_tried_again_and_not_for_ever():
    table, random = Table("kraft", {}, {}), Random(3)
    runs = 0
    while table.is_left():
        table.rows(random)
        runs += 1

    assert not table.crossed
    assert min(table.tries[one] for one in table.pairs) == TRIES


def test_the_rows_of_a_run_have_one_cluster_and_one_load():
    table, random = Table("kraft", {}, {}), Random(4)
    for _ in range(30):
        rows = table.rows(random)
        assert len(rows) == ROWS
        assert len({row["setting"] for row in rows}) == 1
        assert rows[-1]["after"] == NOTHING  # what it broke is there at the end
        assert len({table.said[row["said"]][0].load for row in rows}) == 1
