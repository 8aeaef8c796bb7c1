"""Successions: all pairs of each table come, each row as a plan that can be run, and things stand before anything happens."""

from random import Random

import msgspec
import pytest

from tribunal.harness.campaign.crossings import TRANSACTIONS
from tribunal.harness.campaign.pairs import Pairs
from tribunal.harness.campaign.successions import (
    ACTS,
    ALONE,
    ASKED_SHARE,
    BY_TURNS,
    CHANGE_OUTLIVED,
    COORDINATOR_LOST,
    DIRECTORY_LOST,
    END_REPEATED,
    ENDS_LATE,
    FIRST,
    FOLLOWER_BACK,
    FOLLOWER_GONE,
    LATE_ANSWERS_TO_CHANGES,
    LATE_CHANGES,
    LEADER_LOST,
    LEADER_MOVED,
    LEADER_UNINFORMED,
    MARKED,
    NO_METADATA,
    NONE,
    ONE_PRODUCER,
    ORDERS,
    OUTSIDER_LOST,
    REQUESTS_LATE,
    ROWS,
    TWO_DIRECTORIES,
    UNCLEAN_TWO_REPLICAS,
    UNCLEANLY,
    planned,
    tables,
)
from tribunal.harness.catalog import faults, scenario_file
from tribunal.harness.plan import Plan, must_be_possible
from tribunal.harness.scenario import load
from tribunal.nemesis.targets import parse
from tribunal.nemesis.triggers import parse_trigger

SHRUNK_ONCE = "|isr(p0)| < 3"
CASES = [("kraft", "brokers"), ("kraft", "voters"), ("zookeeper", "brokers")]


def wanted(mode):
    return load(scenario_file("rotating-swarm"), {"cluster.mode": mode})


def table_of(mode, name):
    return next(one for one in tables(mode, {}, {}) if one.name == name)


@pytest.mark.parametrize(("mode", "name"), CASES)
def test_every_pair_comes_and_every_row_is_a_plan_that_can_be_run(mode, name):
    table, random, runs = table_of(mode, name), Random(name), 0
    while table.is_left():
        rows = table.rows(random)
        runs += 1
        assert runs < 2_000, [one for one in table.pairs if one not in table.crossed][:3]  # a pair of no possible row
        if runs > 20:
            continue
        plan = planned(wanted(mode), rows, table, random, ()).plan
        encoded = msgspec.json.encode(plan)
        assert msgspec.json.encode(msgspec.json.decode(encoded, type=Plan)) == encoded
        must_be_possible((fault.kind for fault in plan.faults), plan.spec, "simulated")
        assert [fault.index for fault in plan.faults] == list(range(len(plan.faults)))
        assert [fault.meanwhile for fault in plan.faults].count(False) == ROWS
        assert sum(fault.kind == "wipe" and "controller" in fault.target.text for fault in plan.faults) <= 1
        for fault in plan.faults:
            assert not faults()[fault.kind].refused_by(plan.spec, fault.options)
            parse(fault.target.text, plan.spec, 99)
            for trigger in (fault.when, fault.until):
                assert trigger is None or parse_trigger(trigger.text, plan.spec, 99) == trigger

    assert set(table.crossed) >= set(table.pairs)
    assert ROWS * runs * (1 - ASKED_SHARE) < len(table.pairs) / 2  # of rows that are chosen for their pairs


def test_what_happens_first_waits_until_things_stand_as_the_row_says():
    table, random = table_of("kraft", "brokers"), Random(5)
    given = {
        "brokers behind": "followers gone",
        "brokers metadata": "as ever",
        "brokers setting": "as it is",
        "brokers first": "leader lost",
        "brokers transactions": "as ever",
    }
    plan = planned(wanted("kraft"), [table.row(random, given)], table, random, ()).plan

    first = next(fault for fault in plan.faults if fault.when is not None)
    assert first.when.text == ALONE.replace("p*", "p0")
    away = [fault for fault in plan.faults[: first.index] if fault.kind == "isolate" and fault.target.pick in (0, 0.99)]
    assert len(away) == 2  # another one each: not the same follower twice


def test_only_unclean_settings_have_unclean_elections_and_these_always():
    table, random = table_of("kraft", "brokers"), Random(6)
    rows = [row for _ in range(40) for row in table.rows(random)]

    assert {UNCLEANLY} == {table.value(row, "behind") for row in rows if "unclean" in table.value(row, "setting")}
    assert not {row["brokers setting"] for row in rows if table.value(row, "behind") == UNCLEANLY} & {
        "as it is",
        "no elr",
    }


def test_who_is_hurt_together_comes_back_in_an_order_that_is_drawn():
    table, random = table_of("kraft", "brokers"), Random(7)
    given = {"brokers first": "all lost", "brokers setting": "as it is", "brokers behind": "nobody"}
    plans = [planned(wanted("kraft"), [table.row(random, given)], table, random, ()).plan for _ in range(6)]

    lasts = [[one.lasts_ms for one in plan.faults if one.target.text.startswith("broker ")] for plan in plans]
    assert any(len(set(one)) > 1 for one in lasts)


def test_only_transactions_have_a_coordinator_to_lose_and_markers_to_wait_for():
    table, random = table_of("kraft", "brokers"), Random(10)
    rows = [row for _ in range(200) for row in table.rows(random)]

    met = [row for row in rows if {COORDINATOR_LOST, MARKED} & set(row.values())]
    assert met
    assert {table.value(row, "load") for row in met} == {TRANSACTIONS}


def test_only_brokers_with_two_directories_lose_one():
    table, random = table_of("kraft", "brokers"), Random(11)
    rows = [row for _ in range(400) for row in table.rows(random)]

    met = {table.value(row, "setting") for row in rows if DIRECTORY_LOST in row.values()}
    assert met == {TWO_DIRECTORIES}
    plan = of_brokers(12, setting=TWO_DIRECTORIES, first=DIRECTORY_LOST)
    assert plan.spec.log_directories == 2
    assert "failing-directory" in [fault.kind for fault in plan.faults]


def test_a_value_that_is_named_twice_comes_more_often_where_nothing_else_decides():
    table, random = Pairs({"one": ("a", "a", "a", "b"), "two": ("c",)}, {}, {}), Random(1)
    table.crossed.update(dict.fromkeys(table.pairs))

    drawn = [table._drawn(random, {})["one"] for _ in range(200)]
    assert drawn.count("a") > 120
    assert len(table.pairs) == 2


@pytest.mark.parametrize("name", ["brokers", "voters"])
def test_most_rows_that_are_not_left_alone_end_with_the_loss_of_who_leads(name):
    table, random = table_of("kraft", name), Random(8)
    rows = [table.rows(random)[0] for _ in range(40)]
    last = [[act for act in (table.value(row, one) for one in ACTS) if act != NONE][-1] for row in rows]

    assert 0.4 < last.count(LEADER_LOST) / len(rows) < 0.9  # the others come as well


def test_who_is_granted_nothing_that_it_learns_of_is_hurt_when_the_follower_is_back():
    table, random = table_of("kraft", "brokers"), Random(9)
    given = {
        "brokers behind": "follower gone",
        "brokers metadata": "leader is answered nothing",
        "brokers setting": "as it is",
    }
    plan = planned(wanted("kraft"), [table.row(random, given)], table, random, ()).plan

    held = [fault for fault in plan.faults if fault.options.get("direction") == "response" and fault.when is not None]
    assert [(one.options["api"], one.when.text) for one in held] == [("alter-partition", SHRUNK_ONCE)]
    first = next(fault for fault in plan.faults[held[0].index + 1 :] if fault.when is not None)
    assert first.when.text == f"|isr(p0)| = {plan.spec.replication_factor}"


def of_brokers(seed, **given):
    """Return the plan of one row with these values."""
    table, random = table_of("kraft", "brokers"), Random(seed)
    row = table.row(random, {f"brokers {name}": value for name, value in given.items()})
    return planned(wanted("kraft"), [row], table, random, ()).plan


def test_equal_seeds_give_equal_plans():
    encoded = []
    for _ in range(2):
        table, random = table_of("kraft", "brokers"), Random(10)
        plans = [planned(wanted("kraft"), table.rows(random), table, random, ()).plan for _ in range(4)]
        encoded.append([msgspec.json.encode(plan) for plan in plans])

    assert encoded[0] == encoded[1]
    assert len(set(encoded[0])) == 4


def test_changes_of_the_isr_become_late_once_a_follower_is_gone_and_its_return_is_what_the_first_act_waits_for():
    plan = of_brokers(11, behind=FOLLOWER_GONE, metadata=LATE_CHANGES, setting="as it is")

    late = next(one for one in plan.faults if one.options.get("api") == "alter-partition")
    assert late.when.text == SHRUNK_ONCE  # the shrinking itself is as fast as ever
    first = plan.faults[late.index + 1]
    assert first.when.text == f"{SHRUNK_ONCE} and alter-partition request"


def test_answers_to_changes_are_late_where_the_controller_sends_them():
    plan = of_brokers(11, behind=FOLLOWER_GONE, metadata=LATE_ANSWERS_TO_CHANGES, setting="as it is")

    (late,) = (one.options for one in plan.faults if one.options.get("api") == "alter-partition")
    assert (late["direction"], late["sent_by"]) == ("response", "node")  # of requests it is those who ask that send


def test_a_follower_that_comes_back_is_cut_off_until_it_is_missed_and_no_longer():
    plan = of_brokers(11, behind=FOLLOWER_BACK, setting="as it is", metadata="as ever", travelling="as ever")

    assert (
        plan.faults[0].until.text == SHRUNK_ONCE
    )  # behind a longer cut connections rest for as long as that had lasted
    assert plan.faults[1].when.text == SHRUNK_ONCE


def test_a_proposal_outlives_whom_it_is_about_only_where_a_follower_comes_back():
    table, random = table_of("kraft", "brokers"), Random(12)
    rows = [row for _ in range(300) for row in table.rows(random)]
    plan = of_brokers(12, first=CHANGE_OUTLIVED, setting="as it is")

    assert {table.value(row, "behind") for row in rows if CHANGE_OUTLIVED in row.values()} == {FOLLOWER_BACK}
    held = next(one for one in plan.faults if one.kind == "hold-over")
    assert (held.options["api"], held.options["of"]) == ("alter-partition", "follower")


def test_a_leader_is_not_informed_of_what_becomes_of_an_order_that_it_knows():
    plan = of_brokers(13, first=LEADER_MOVED, second=LEADER_UNINFORMED, metadata="as ever", setting="as it is")

    moved = next(one for one in plan.faults if one.kind == "reassign")
    held = plan.faults[moved.index + 1]
    assert (held.kind, held.target.text, held.options["api"]) == ("hold-messages", "leader(p*)", "fetch")


def test_a_request_to_end_a_transaction_waits_until_its_producer_has_sent_it_again_and_ends_the_next_one():
    plan = of_brokers(13, transactions=END_REPEATED, setting="as it is", behind="nobody", metadata="as ever")

    held = [one for one in plan.faults if one.kind == "hold-messages" and one.options["api"] == "end-txn"]
    assert {(one.options["sent_by"], one.options["limit"], one.until.text) for one in held} == {
        ("others", 1, "end-txn request x3")
    }
    assert plan.workload == TRANSACTIONS
    assert plan.workload_plan["options"]["processes"] == 1  # of several, others would send the third
    table, random = table_of("kraft", "brokers"), Random(14)
    rows = [row for _ in range(300) for row in table.rows(random)]
    assert {table.value(row, "load") for row in rows if END_REPEATED in row.values()} == {ONE_PRODUCER}


def test_where_all_fetch_late_one_fetches_later_than_the_others():
    plan = of_brokers(14, travelling=REQUESTS_LATE, setting="as it is", behind="nobody", metadata="as ever")
    late = [one.options["delay_ms"] for one in plan.faults if one.options.get("api") == "fetch"]

    assert len(late) == 1 + len(plan.spec.broker_ids)
    assert late[0] > max(late[1:])  # the first rule that a message meets is the one that counts


def test_who_is_elected_uncleanly_is_hurt_while_it_recovers_also_where_its_word_is_late():
    plan = of_brokers(12, behind=UNCLEANLY, metadata=LATE_CHANGES, setting=UNCLEAN_TWO_REPLICAS, first=LEADER_LOST)

    late = next(one for one in plan.faults if one.options.get("api") == "alter-partition")
    assert late.when is None  # installed before the election, which would be over before it was
    assert plan.faults[late.index + 1].when.text == "recovering(p0) and alter-partition request"


def test_who_is_behind_is_hurt_where_somebody_is_and_may_come_back_without_replicating():
    plans = [of_brokers(seed, first=OUTSIDER_LOST, behind=FOLLOWER_GONE, setting="as it is") for seed in range(20)]
    table, random = table_of("kraft", "brokers"), Random(13)
    rows = [row for _ in range(40) for row in table.rows(random)]

    hurt = [[one.kind for one in plan.faults if one.target.text.startswith("outsider")] for plan in plans]
    assert {"stop", "fast-bounce", "kill", "power-loss"} <= {kinds[0] for kinds in hurt if kinds}
    assert ["power-loss", "isolate"] in hurt
    behind = {table.value(row, "behind") for row in rows if OUTSIDER_LOST in [table.value(row, act) for act in ACTS]}
    assert behind
    assert "nobody" not in behind


def test_by_turns_is_a_whole_row_of_two_replicas_that_may_be_elected_uncleanly():
    table, random = table_of("kraft", "brokers"), Random(14)
    rows = [row for _ in range(300) for row in table.rows(random)]
    by_turns = [row for row in rows if BY_TURNS in row.values()]

    assert by_turns
    assert {table.value(row, "setting") for row in by_turns} == {UNCLEAN_TWO_REPLICAS}
    assert {table.value(row, FIRST) for row in by_turns} == {BY_TURNS}
    plan = of_brokers(15, first=BY_TURNS, setting=UNCLEAN_TWO_REPLICAS, metadata="as ever")
    waiting = [one for one in plan.faults if one.when is not None and one.when.text.startswith("recovering(p0)")]
    turns = waiting[:2]  # the acts behind may wait for another election
    assert [fault.kind for fault in turns] in (["kill", "kill"], ["isolate", "isolate"])
    assert all(fault.target.text == "leader(p*)" for fault in turns)


def test_who_receives_no_metadata_is_decided_about_first_and_where_changes_travel_somebody_is_lost_first():
    table, random = table_of("kraft", "brokers"), Random(18)
    rows = [row for _ in range(200) for row in table.rows(random)]
    firsts = {
        name: {table.value(row, FIRST) for row in rows if table.value(row, "metadata") == name}
        for name in (NO_METADATA, LATE_CHANGES)
    }

    assert firsts[NO_METADATA] >= set(ORDERS)
    assert LEADER_LOST not in firsts[NO_METADATA]
    assert firsts[LATE_CHANGES] >= {LEADER_LOST, OUTSIDER_LOST}
    assert not firsts[LATE_CHANGES] & set(ORDERS)


def test_ends_of_transactions_are_late_only_where_there_are_any():
    table, random = table_of("kraft", "brokers"), Random(16)
    rows = [row for _ in range(40) for row in table.rows(random)]

    assert {table.value(row, "load") for row in rows if table.value(row, "transactions") == ENDS_LATE} == {
        "transactions"
    }


@pytest.mark.parametrize(("mode", "name"), CASES)
def test_behind_the_last_row_often_nothing_else_comes(mode, name):
    table, random = table_of(mode, name), Random(17)
    runs = [table.rows(random) for _ in range(60)]
    alone = [[all(table.value(row, act) == NONE for act in ACTS if act != FIRST) for row in rows] for rows in runs]

    assert 15 < sum(one[-1] for one in alone) < 40
    assert sum(one[0] for one in alone) < 20


def test_nobody_is_hurt_before_there_are_records():
    for seed in range(5):
        assert of_brokers(seed).faults[0].after_ms >= 400


@pytest.mark.parametrize(("mode", "name"), CASES)
def test_what_a_value_leads_to_are_values_that_there_are_and_that_go_with_it(mode, name):
    table, random = table_of(mode, name), Random(19)
    for factor, value in table._questions:
        for other, values in table._led_to(factor, value):
            assert set(values) <= set(table._factors[other]), (value, other)
        row = next(one for one in (table._asked(random, {factor: value}) for _ in range(50)) if one is not None)
        assert row[factor] == value
        assert table._fits(row)


def test_a_question_is_alone_with_what_it_leads_to():
    table, random = table_of("kraft", "brokers"), Random(20)
    rows = [row for _ in range(600) if (row := table._asked(random, {})) is not None]
    asked = [row for row in rows if table.value(row, "metadata") == "leader is answered nothing"]

    assert len(asked) > 10
    assert {table.value(row, "behind") for row in asked} == {FOLLOWER_GONE}
    assert {table.value(row, FIRST) for row in asked} == {"follower lost", LEADER_LOST}
    assert {table.value(row, "second") for row in asked if table.value(row, FIRST) == "follower lost"} == {LEADER_LOST}
    assert {table.value(row, "third") for row in asked} == {NONE}
    assert {table.value(row, "travelling") for row in asked} == {"as ever"}


def test_most_rows_ask_something_and_the_others_are_chosen_for_their_pairs():
    table, random = table_of("kraft", "brokers"), Random(21)
    rows = [row for _ in range(100) for row in table.rows(random)]
    quiet = [
        row
        for row in rows
        if sum(table.value(row, one) not in {"as ever", "nobody"} for one in table.realm.standing) <= 2
    ]

    assert 0.4 < len(quiet) / len(rows) < 0.95
    assert len(table.crossed) > 600
