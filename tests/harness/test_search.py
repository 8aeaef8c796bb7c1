"""Guided search: how plans are varied, that a search repeats itself, and what it answers to a folder that is no corpus."""

from random import Random

import msgspec
import pytest

from replog.broker.isr import LeaderState
from replog.config import DEFINITIONS
from replog.errors import Error
from tribunal.checkers.spark.session import NoSpark
from tribunal.clusters.simulated.guards import counted
from tribunal.clusters.simulated.reached import Reached
from tribunal.harness.campaign import mutation_score
from tribunal.harness.campaign.corpus import FEW, Corpus, Entry
from tribunal.harness.campaign.mutation_score import Innocents, own_seeds, power, searched
from tribunal.harness.campaign.runners import LocalRunner
from tribunal.harness.campaign.search import FOLLOWED, IDLE_RUNS, PLAN, Search, Searched, taken
from tribunal.harness.campaign.sweep import SeedResult, run_name, swept
from tribunal.harness.campaign.variations import AT_MESSAGES, FAULTS_MAX, SHARED, WAITS_MS, fresh, varied
from tribunal.harness.catalog import SIMULATED, faults, mutants, scenario_file
from tribunal.harness.cli.main import exit_code
from tribunal.harness.cli.search import exhausted, headline
from tribunal.harness.plan import Plan, made, must_be_possible
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import load, scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.nemesis.messages import MEET_TIMEOUT_MS
from tribunal.nemesis.targets import OF_MESSAGE, parse
from tribunal.nemesis.triggers import parse_trigger
from tribunal.results.power import By, Power, brought_up_to_date, not_measured
from tribunal.results.scratch import Scratch
from tribunal.results.signature import Signature, texts
from tribunal.results.verdict import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, Verdict

SENT = {"alter-partition": 7, "vote": 3, "end-txn": 2, "create-topics": 1}
SMALL = {
    "scenario": "small",
    "cluster": {"controllers": 1},
    "workload": {"name": "produce-consume", "partitions": 1, "rate": 20, "readers": 1},
    "time": "600ms",
    "warm_up": "100ms",
    "steps": [{"pause": "random broker", "for": "100ms"}],
}


@pytest.mark.parametrize(
    ("content", "states"),
    [
        pytest.param(b'{"states": {"a": 3}, "requests": {}}', {"a": 3}, id="whole"),
        pytest.param(b'{"states": {"a": 3}, "requ', {}, id="killed while it wrote"),
        pytest.param(b"", {}, id="killed before it wrote"),
    ],
)
def test_a_run_that_was_killed_has_reached_nothing_and_does_not_end_the_search(tmp_path, content, states):
    (tmp_path / "reached").write_bytes(content)

    assert taken(tmp_path / "reached") == Reached(states=states, requests={})
    assert taken(tmp_path / "reached") == Reached(states={}, requests={})


@pytest.mark.parametrize("name", ["rotating-swarm", "zookeeper-hurt", "exactly-once"])
def test_every_variation_is_a_plan_that_can_be_run(name):
    random = Random(name)
    plans = [fresh(load(scenario_file(name), {}), random, (), composed=composed).plan for composed in (False, True)]

    for _ in range(80):
        plans.append(varied(random.choice(plans), random, SENT).plan)

    for plan in plans:
        assert msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(plan), type=Plan)) == msgspec.json.encode(
            plan
        )
        assert len(plan.faults) <= max(FAULTS_MAX, len(plans[0].faults))
        assert [fault.index for fault in plan.faults] == list(range(len(plan.faults)))
        must_be_possible((fault.kind for fault in plan.faults), plan.spec, "simulated")
        for fault in plan.faults:
            assert not faults()[fault.kind].refused_by(plan.spec, fault.options)
            parse(fault.target.text, plan.spec, 99)
            for trigger in (fault.when, fault.until):
                assert trigger is None or parse_trigger(trigger.text, plan.spec, 99) == trigger


@pytest.mark.parametrize("name", ["rotating-swarm", "zookeeper-hurt"])
def test_variations_change_the_cluster_and_who_is_there_as_well(name):
    random = Random(name)
    plan = fresh(load(scenario_file(name), {}), random, (), composed=True).plan
    plans = [plan := varied(plan, random, SENT).plan for _ in range(400)]

    for one in plans:
        assert 1 <= one.spec.min_insync_replicas <= one.spec.replication_factor
        assert all(name in DEFINITIONS or name.startswith("tribunal.") for name in one.spec.settings)
        assert not (one.beside and "log.retention.ms" in one.spec.settings)  # nobody's input goes before it was read
        assert {"transaction.max.timeout.ms"} <= one.spec.settings.keys() or not one.beside
    assert {one.spec.min_insync_replicas for one in plans} > {1}
    drawn = {fault.kind for one in plans for fault in one.faults}
    assert "reassign" in drawn
    assert {"torn-tail", "full-disk", "read-only-disk", "restored-disk"} & drawn


@pytest.mark.parametrize("name", ["rotating-swarm", "zookeeper-hurt"])
def test_plans_of_a_search_let_records_grow_old_and_other_clients_come(name):
    given = load(scenario_file(name), {})
    plans = [fresh(given, Random(number), (), composed=True).plan for number in range(120)]

    assert any("log.retention.ms" in plan.spec.settings for plan in plans)
    assert {one.workload for plan in plans for one in plan.beside} == {"transactions", "consumer-group", "operator"}


def test_a_load_of_transactions_keeps_the_records_that_it_reads():
    given = load(scenario_file("exactly-once"), {})
    plans = [fresh(given, Random(number), (), composed=True).plan for number in range(60)]

    assert not any("log.retention.ms" in plan.spec.settings for plan in plans)


def test_a_variation_is_its_chance_s_and_another_plan():
    parent = fresh(load(scenario_file("rotating-swarm"), {}), Random(3), (), composed=True).plan

    alike = [varied(parent, Random(5), SENT) for _ in range(2)]

    assert alike[0] == alike[1]
    assert all(varied(parent, Random(number), SENT).plan != parent for number in range(50))


def test_a_fault_at_a_message_is_often_aimed_at_who_sent_or_received_it():
    random, plan = Random(3), fresh(load(scenario_file("rotating-swarm"), {}), Random(3), (), composed=True).plan
    before = [one.when for one in plan.faults]
    moved = [
        fault for _ in range(400) for fault in varied(plan, random, SENT).plan.faults
        if fault.when is not None and fault.when not in before and fault.kind in AT_MESSAGES and fault.when.text.partition(" ")[0] in SENT
    ]  # fmt: skip

    aimed = [fault for fault in moved if OF_MESSAGE.fullmatch(fault.target.text)]
    assert 0.1 < len(aimed) / len(moved) < 0.5
    for fault in aimed:
        assert fault.when is not None
        assert fault.target.text.partition("(")[2].rstrip(")") in fault.when.text
        assert parse(fault.target.text, plan.spec, 99) == fault.target.text
        assert fault.kind != "wipe"  # a majority of disks is what a quorum is


def test_a_search_repeats_itself_and_goes_on_where_it_ended(tmp_path):
    def search(folder, *, runs, jobs):
        with Scratch("search", in_memory=True) as scratch:
            found = Search([scenario(SMALL)], Corpus(folder), seed=3, runner=LocalRunner(jobs), scratch=scratch)
            found.run(runs=runs)
        return found

    whole = search(tmp_path / "whole", runs=8, jobs=2)
    search(tmp_path / "parts", runs=4, jobs=1)
    last = search(tmp_path / "parts", runs=4, jobs=2)

    one, other = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())} for name in ("whole", "parts")
    )
    assert one == other
    assert whole.searched.runs == 8
    assert whole.searched.new == whole.searched.states == last.searched.states
    assert sum(last.corpus.chosen.values()) > 0  # some runs were varied from others
    assert len({state for entry in last.corpus.entries for state in entry.new}) == last.searched.states


@pytest.mark.nightly
def test_a_search_that_died_within_a_round_goes_on_from_the_corpus_that_the_round_was_chosen_from(tmp_path):
    def search(runs):
        with Scratch("search", in_memory=True) as scratch:
            Search([scenario(SMALL)], Corpus(tmp_path), seed=3, runner=LocalRunner(1), scratch=scratch).run(runs=runs)
        return {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir())}

    search(4)
    index = (tmp_path / "corpus.json").read_bytes()
    whole = search(4)
    (tmp_path / "corpus.json").write_bytes(index)  # its entries are written one by one, before how far it is

    assert search(4) == whole


def entry_of(number, new, guards):
    plan = made(scenario(SMALL), seed=number, cluster=SIMULATED, time_ms=None, mutants=())
    return Entry(number=number, parent=None, how="composed", plan=plan, new=new, requests={}, guards=guards)


def test_whoever_came_to_a_guard_that_no_other_run_did_is_varied_soon_however_little_else_it_reached(tmp_path):
    """Runs of 30 others came since, each to more states."""
    corpus = Corpus(tmp_path)
    for number in range(31):
        reached = ["usual", "refusal"] if number == 0 else ["usual"]
        corpus.take(entry_of(number, [f"state {number}.{n}" for n in range(50 * number)], corpus.came_to(reached)))
    corpus.runs = 40
    search = Search([scenario(SMALL)], corpus, seed=3, runner=LocalRunner(1), scratch=tmp_path)

    parents = [search._choice(number)[0] for number in range(40, 100)]

    assert parents.count(0) == FOLLOWED
    assert set(parents) > {0}


def test_what_a_search_kept_that_died_within_a_round_is_no_part_of_the_rounds_behind(tmp_path):
    """Another seed chooses other runs in its place: its entry came back then, of a run that the index never counted."""
    died = Corpus(tmp_path)
    for number in (0, 1):
        died.take(entry_of(number, [f"state {number}"], died.came_to(["refusal", f"only {number}"])))
    corpus = Corpus(tmp_path)
    corpus.take(entry_of(1, ["another state"], corpus.came_to(["usual"])))
    corpus.runs = 4
    corpus.save()

    again = Corpus(tmp_path)

    assert [(entry.number, entry.new) for entry in again.entries] == [(1, ["another state"])]
    assert [again.rarity(entry) for entry in again.entries] == [1.0]


def test_a_guard_that_many_runs_come_to_makes_nobody_worth_more(tmp_path):
    corpus = Corpus(tmp_path)
    for number in range(9):
        corpus.take(entry_of(number, ["one"], corpus.came_to(["usual"])))

    assert [corpus.rarity(entry) for entry in corpus.entries] == [1 / 9] * FEW + [0.0] * (9 - FEW)


def test_guards_that_are_counted_are_in_the_corpus_and_said(tmp_path):
    with Scratch("search", in_memory=True) as scratch, counted() as guards:
        corpus = Corpus(tmp_path)
        search = Search([scenario(SMALL)], corpus, seed=3, runner=LocalRunner(1, guards), scratch=scratch)
        search.run(runs=4)

    again = Corpus(tmp_path)
    assert again.guards == corpus.guards
    assert search.searched.guards == len(corpus.guards) > 0
    assert f"{len(corpus.guards)} guards" in headline(search.searched)
    assert any(entry.guards for entry in again.entries)


def test_a_run_counts_no_guards_of_the_process_that_started_it(tmp_path):
    """Else what it reached would depend on what its machine's process did before, and the same search would choose other runs there."""
    plan = made(scenario(SMALL), seed=1, cluster=SIMULATED, time_ms=None, mutants=())
    with counted() as guards:
        guards.reached(0, None)
        (result,) = swept([plan], jobs=1, budget_s=None, scratch=tmp_path, guards=guards).results

    assert str(guards.known[0]) not in result.guards


def test_who_goes_on_after_a_finding_is_asked_of_the_others_of_its_round(tmp_path):
    search = Search([scenario(SMALL)], Corpus(tmp_path / "corpus"), seed=3, runner=LocalRunner(1), scratch=tmp_path)

    asked = [search.run(runs=2, is_found=lambda ran: True) for _ in range(3)]

    assert [None if ran is None else ran.number for ran in asked] == [0, 1, None]


def test_a_fault_that_waits_in_vain_comes_all_the_same_and_keeps_none_behind_it_from_coming(tmp_path):
    """Of 55 faults of twelve searched plans 12 came: the others waited for a state, or a target, until the time was over."""
    never, nobody = {"when": "isr(p0) = {}"}, "elr_member(p0)"
    steps = [
        {"pause": "random broker", "for": "50ms", **never},
        {"pause": nobody, "for": "50ms"},
        {"pause": "random broker", "for": "50ms"},
    ]
    plan = made(scenario({**SMALL, "steps": steps}), seed=1, cluster=SIMULATED, time_ms=None, mutants=())
    came, took_ms = [], []
    for number, wait_ms in enumerate((None, 100)):
        waiting = [
            msgspec.structs.replace(one, wait_ms=wait_ms, must=False, meanwhile=one.index > 0) for one in plan.faults
        ]
        folder = tmp_path / str(number)
        folder.mkdir()
        _, known = conduct_simulated(msgspec.structs.replace(plan, faults=tuple(waiting)), folder, Silent())
        lines = [msgspec.json.decode(line) for line in (folder / "schedule.jsonl").read_bytes().splitlines()]
        came.append([(line["index"], line.get("when", "")) for line in lines])
        took_ms.append(known.simulated_ns // 1_000_000)

    assert came == [[], [(0, ""), (2, "")]]
    assert took_ms[1] < took_ms[0] - 6_000


def test_drawn_faults_wait_for_a_while_only():
    plans = [
        fresh(load(scenario_file("wide-swarm"), {}), Random(number), (), composed=True).plan for number in range(30)
    ]

    assert {fault.wait_ms for plan in plans for fault in plan.faults} == set(WAITS_MS)


def test_a_quorum_loses_as_many_disks_as_it_outlives():
    """One of three or more: a majority of disks is what a quorum is."""
    wiped = {False: [], True: []}
    for number in range(400):
        chosen = load(scenario_file("wide-swarm"), {})
        random = Random(number)
        plan = fresh(chosen, random, (), composed=True).plan
        for _ in range(6):
            plan = varied(plan, random, {}).plan
            lost = [one for one in plan.faults if one.kind == "wipe" and "controller" in one.target.text]
            wiped[plan.spec.controllers >= 3].append(len(lost))

    assert {outlives: max(lost) for outlives, lost in wiped.items()} == {False: 0, True: 1}


@pytest.mark.parametrize(
    ("must_meet", "verdict"),
    [
        pytest.param(True, Verdict.INCONCLUSIVE, id="waits, and had no effect"),
        pytest.param(False, Verdict.PASS, id="ends in time"),
    ],
)
def test_a_rule_that_no_message_need_meet_costs_no_wait(tmp_path, must_meet, verdict):
    step = {
        "drop-messages": "random broker",
        "api": "write-txn-markers",
        "limit": 1,
        "must_meet": must_meet,
        "for": "100ms",
    }
    plan = made(scenario({**SMALL, "steps": [step]}), seed=1, cluster=SIMULATED, time_ms=None, mutants=())

    (result,) = swept([plan], jobs=1, budget_s=None, scratch=tmp_path).results

    assert result.verdict is verdict
    assert (result.simulated_ms > MEET_TIMEOUT_MS) is must_meet


def test_an_entry_whose_plan_cannot_be_run_is_refused_in_one_line(tmp_path, capsys):
    plan = fresh(scenario(SMALL), Random(1), (), composed=True).plan
    wrong = msgspec.structs.replace(plan.faults[0], kind="pauze")
    plan = msgspec.structs.replace(plan, faults=(wrong, *plan.faults[1:]))
    Corpus(tmp_path).take(Entry(number=0, parent=None, how="", plan=plan, new=["one"], requests={}))

    code = exit_code(["search", "rotating-swarm", "--corpus", str(tmp_path), "--runs", "1"])

    assert code == EXIT_USAGE
    said = capsys.readouterr().err
    assert "00000.json" in said
    assert "pauze" in said
    assert said.count("\n") == 1


def test_the_rest_of_the_bugs_are_those_without_a_measurement_of_this_kind():
    former = Power(mutant="m01_no_elr", scenario="s", found=True, by=By.SWARM, seen_by=[], seed=0, seeds=3, seconds=1.0)

    assert not_measured(["m01_no_elr", "m44_acks_local"], [former], By.SWARM) == ["m44_acks_local"]
    assert not_measured(["m01_no_elr"], [former], By.SEARCH) == ["m01_no_elr"]


def test_the_rest_of_the_bugs_is_known_from_a_file_only(capsys):
    assert exit_code(["power", "--rest"]) == EXIT_USAGE
    assert "--rest: goes with --keep" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_known_bug_is_found_by_a_search_that_knows_nothing_of_it():
    with Scratch("search", in_memory=True) as scratch:
        found = searched(
            "m44_acks_local", ("rotating-swarm",), seed=1, budget_s=600, runner=LocalRunner(2), scratch=scratch
        )

    assert found.found
    assert found.seen_by
    assert found.seed is not None
    assert found.seeds >= found.seed + 1


@pytest.mark.nightly
def test_a_bug_that_harms_a_figure_is_found_by_a_search_where_the_figure_grows_on_average(tmp_path):
    (found,) = power(
        ["m60_prevote_raises_epoch"], scenario=None, by=By.SEARCH, seeds=range(1, 9), budget_s=600, each_cpu_s=90,
        runner=LocalRunner(2), scratch=tmp_path,
    )  # fmt: skip

    assert found.found
    assert found.seen_by[0].startswith("figure isolated_epoch_growth")


@pytest.mark.parametrize("mutant", ["m44_acks_local", "m60_prevote_raises_epoch"])
def test_a_search_for_a_known_bug_without_time_has_missed_it(mutant):
    with Scratch("search", in_memory=True) as scratch:
        (missed,) = power(
            [mutant],
            scenario=None,
            by=By.SEARCH,
            seeds=range(1, 9),
            budget_s=0,
            runner=LocalRunner(1),
            scratch=scratch,
        )

    assert (missed.found, missed.by, missed.seeds, missed.seen_by) == (False, By.SEARCH, 0, [])


@pytest.mark.parametrize(
    ("by", "mutant", "is_reached"),
    [
        (By.SWARM, "m86_early_reassignment", False),
        (By.SWARM, "m44_acks_local", True),
        pytest.param(By.SEARCH, "m86_early_reassignment", False, marks=pytest.mark.nightly),
        pytest.param(By.SEARCH, "m30_epoch_noted_late", True, marks=pytest.mark.nightly),  # four runs would find M44
    ],
)
def test_of_a_missed_bug_it_is_recorded_whether_it_came_to_do_anything(tmp_path, by, mutant, is_reached):
    """Nobody reassigns in this scenario; answers come sooner where no follower is waited for, and every leader notes an epoch."""
    file = tmp_path / "small.yaml"
    file.write_bytes(
        msgspec.yaml.encode(SMALL | {"steps": [{"slow-fsync": "random broker", "delay_ms": 5, "for": "100ms"}]})
    )

    (missed,) = power(
        [mutant], scenario=str(file), by=by, seeds=range(2), budget_s=100, each_cpu_s=0.2, runner=LocalRunner(2), scratch=tmp_path
    )  # fmt: skip

    assert not missed.found
    assert missed.seeds > 0
    assert (missed.compared, missed.changed) == ((1, 1) if is_reached else (missed.seeds, 0))


def test_a_plan_is_run_once_without_bugs_however_many_are_compared_with_it(tmp_path):
    runner = LocalRunner(1)
    plan = made(scenario(SMALL), seed=1, cluster=SIMULATED, time_ms=None, mutants=("m44_acks_local",))
    innocents = Innocents(runner, tmp_path)

    first, used_s = innocents.of(plan), runner.cpu_s
    other = msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, mutants=("m86_early_reassignment",)))

    assert first.verdict is Verdict.PASS
    assert innocents.of(other) is first
    assert runner.cpu_s == used_s
    assert innocents.of(msgspec.structs.replace(plan, seed=2)).trace_hash != first.trace_hash


@pytest.mark.parametrize("is_broken", [True, False])
def test_what_a_run_without_the_bug_finds_is_a_finding_of_this_build(tmp_path, monkeypatch, is_broken):
    """It counts for no bug, and it went with the comparison's other files."""
    if is_broken:
        monkeypatch.setattr(LeaderState, "produce_outcome", lambda self, last_offset: Error.NONE)
    accused, losing = [], tmp_path / "losing.yaml"
    lost = {
        "scenario": "losing",
        "time": "3s",
        "steps": [{"isolate": "leader(p0)", "from": "nodes", "for": "1.2x session"}],
    }
    losing.write_bytes(msgspec.yaml.encode(SMALL | lost))

    (found,) = power(
        ["m44_acks_local"], scenario=str(losing), seeds=range(1), budget_s=100, runner=LocalRunner(1), scratch=tmp_path,
        accuse=accused.append,
    )  # fmt: skip

    assert found.found is not is_broken
    assert ["lost_writes" in texts(one.signatures)[0] for one in accused] == [True] * is_broken
    assert all(one.folder for one in accused)


def test_each_bug_is_sought_with_seeds_of_its_own():
    """What the first runs of all bugs have in common is all that a small budget buys."""
    drawn = {name: own_seeds(name, range(3, 13)) for name in mutants()}

    assert {len(seeds) for seeds in drawn.values()} == {10}
    assert len({seed for seeds in drawn.values() for seed in seeds}) == 10 * len(drawn)
    assert drawn == {name: own_seeds(name, range(3, 13)) for name in mutants()}
    assert own_seeds("m44_acks_local", range(4, 14)) != drawn["m44_acks_local"]


SWARMED = SMALL | {"steps": [{"slow-fsync": "random broker", "delay_ms": 5, "for": "100ms"}]}


@pytest.mark.parametrize(
    ("mutant", "wanted"),
    [
        ("m84_no_generation", {"groups"}),
        pytest.param("m06_watermark_below_min_isr", {"plain", "groups"}, marks=pytest.mark.nightly),
    ],
)
def test_time_goes_to_the_scenarios_that_call_the_bug_s_code(tmp_path, monkeypatch, mutant, wanted):
    groups = SWARMED | {
        "scenario": "groups",
        "workload": {"name": "consumer-group", "partitions": 1, "rate": 20, "members": 1},
    }
    files = [tmp_path / "plain.yaml", tmp_path / "groups.yaml"]
    for file, content in zip(files, (SWARMED | {"scenario": "plain"}, groups), strict=True):
        file.write_bytes(msgspec.yaml.encode(content))
    monkeypatch.setattr(mutation_score, "SWARMS", tuple(map(str, files)))
    ran = []

    class Noted(LocalRunner):
        def swept(self, plans, **options):
            notify = options.pop("notify", lambda result, sweep: None)

            def noted(result, sweep):
                ran.append(result)
                notify(result, sweep)

            return super().swept(plans, notify=noted, **options)

    power(
        [mutant], scenario=None, by=By.SWARM, seeds=range(4), budget_s=100, runner=Noted(1), scratch=tmp_path / "runs"
    )

    assert {one.scenario for one in ran[4:8]} == wanted
    assert all(one.entered is (one.scenario in wanted) for one in ran)


@pytest.mark.parametrize(("by", "runs"), [(By.SWARM, 1), pytest.param(By.SEARCH, 4, marks=pytest.mark.nightly)])
def test_no_run_or_round_begins_for_a_bug_that_had_its_cpu_time(tmp_path, by, runs):
    file = tmp_path / "small.yaml"
    file.write_bytes(msgspec.yaml.encode(SMALL))

    (missed,) = power(
        ["m86_early_reassignment"], scenario=str(file), by=by, seeds=range(50), budget_s=600, each_cpu_s=0.2,
        runner=LocalRunner(1), scratch=tmp_path,
    )  # fmt: skip

    assert (missed.found, missed.seeds) == (False, runs)


def test_scenarios_are_read_once_however_many_seeds_there_are(monkeypatch, tmp_path):
    """A night seeks its canaries with a million seeds: reading a scenario for each took longer than the night."""
    read = []

    def noted(path, overrides):
        read.append(path)
        return load(path, overrides)

    monkeypatch.setattr(mutation_score, "load", noted)
    (missed,) = power(
        ["m44_acks_local"],
        scenario=None,
        seeds=range(100),
        budget_s=0,
        runner=LocalRunner(1),
        scratch=tmp_path / "power",
    )

    assert not missed.found
    assert len(read) <= 2  # for the mode, and for the name


@pytest.mark.parametrize("by", [By.SWARM, By.SEARCH])
def test_a_bug_of_zookeeper_mode_is_sought_in_the_swarms_that_can_be_in_it(by):
    """Planning what cannot be in a mode ended the command and all its other bugs."""
    mutant = "m52_missed_bounce"

    scenarios = mutation_score.scenarios_of(mutant, by, None)

    assert scenarios == mutation_score.SWARMS
    for name in scenarios:
        assert mutation_score.plan_of(name, 1, (mutant,), mutation_score.mode_of(mutant)).mode == "zookeeper"
    assert mutation_score.scenarios_of("m44_acks_local", by, None) == mutation_score.SWARMS


def test_scenarios_with_a_fault_of_the_other_mode_are_left_out(monkeypatch):
    monkeypatch.setattr(mutation_score, "SWARMS", ("rotating-swarm", "zookeeper-late-leave"))

    assert mutation_score.scenarios_of("m52_missed_bounce", By.SWARM, None) == mutation_score.SWARMS
    assert mutation_score.scenarios_of("m44_acks_local", By.SWARM, None) == ("rotating-swarm",)


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), EXIT_INTERRUPTED), (NoSpark("gone"), EXIT_ERROR)])
def test_a_search_that_ends_early_keeps_what_its_last_round_had_found(tmp_path, monkeypatch, end, code):
    monkeypatch.setattr(LocalRunner, "swept", one_found_then(end))
    order = ["search", "rotating-swarm", "--corpus", str(tmp_path / "corpus"), "--out", str(tmp_path / "out")]

    assert exit_code(order) == code
    (kept,) = (tmp_path / "out").iterdir()
    assert msgspec.json.decode((kept / PLAN).read_bytes(), type=Plan).scenario == "rotating-swarm"
    assert Corpus(tmp_path / "corpus").runs == 0  # the round is chosen again


def one_found_then(end):
    """Return how a round goes in which one run found a loss, and then `end` is raised."""

    def swept(self, plans, *, scratch, account, **_):
        plan = plans[0]
        folder = scratch / run_name(plan)
        folder.mkdir(parents=True)
        signatures = [Signature("lost_writes", "lost")]
        account.add(
            SeedResult(
                scenario=plan.scenario, seed=plan.seed, verdict=Verdict.VIOLATION, claim="1 x lost", signatures=signatures,
                run_dir=str(folder),
            )
        )  # fmt: skip
        raise end

    return swept


def test_a_corpus_is_read_in_the_order_of_its_runs_also_after_a_hundred_thousand(tmp_path):
    corpus, plan = Corpus(tmp_path), fresh(scenario(SMALL), Random(1), (), composed=False).plan
    for number in (9, 99_999, 100_000):
        corpus.take(Entry(number=number, parent=None, how="", plan=plan, new=[str(number)], requests={}))
    corpus.runs = 100_001
    corpus.save()

    assert [entry.number for entry in Corpus(tmp_path).entries] == [9, 99_999, 100_000]


def test_a_bug_that_harms_a_figure_and_got_no_time_was_not_measured(tmp_path):
    (missed,) = power(
        ["m24_bump_on_shrink"],
        scenario=None,
        seeds=range(3),
        budget_s=0,
        runner=LocalRunner(1),
        scratch=tmp_path / "power",
    )
    former = Power(
        mutant="m24_bump_on_shrink", scenario="s", found=True, by=By.OWN, seen_by=[], seed=0, seeds=3, seconds=1.0
    )

    assert (missed.found, missed.seeds) == (False, 0)
    assert brought_up_to_date([former], [missed]) == [former]


def test_a_search_that_finds_nothing_new_any_more_says_so():
    idle = Searched(runs=100, new=40, states=400, seconds=120.0, cpu_s=200.0, idle_runs=IDLE_RUNS, is_exhausted=True)

    assert "40 new states (20 a minute), 400 in the corpus" in headline(idle)
    assert f"nothing new in {IDLE_RUNS} runs" in exhausted(idle)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"{", "not of a corpus", id="torn"),
        pytest.param(b'{"corpus_version": 9}', "corpus version 9", id="of another version"),
    ],
)
def test_a_folder_that_is_no_corpus_is_refused_in_one_line(tmp_path, capsys, content, reason):
    (tmp_path / "corpus.json").write_bytes(content)

    code = exit_code(["search", "rotating-swarm", "--corpus", str(tmp_path), "--runs", "1"])

    assert code == EXIT_USAGE
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param(["rotating-swam"], "did you mean rotating-swarm", id="scenario"),
        pytest.param(["elr-chain", "elr-chain"], "elr-chain is named twice", id="twice"),
        pytest.param(["elr-chain", "--budget", "soon"], "duration 'soon'", id="budget"),
        pytest.param(["elr-chain", "--runs", "0"], "'--runs': Input should be greater than or equal to 1", id="runs"),
    ],
)
def test_wrong_arguments_are_answered_in_one_line(tmp_path, capsys, arguments, reason):
    code = exit_code(["search", *arguments, "--corpus", str(tmp_path / "corpus")])

    assert code == EXIT_USAGE
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "corpus").exists()


def test_a_fault_comes_to_all_brokers_or_all_controllers_in_one_moment():
    given = load(scenario_file("rotating-swarm"), {})
    struck: dict[str, set[str]] = {}
    for number in range(240):
        plan = fresh(given, Random(number), (), composed=True).plan
        for at, first in enumerate(plan.faults):
            group = plan.spec.broker_ids if first.target.text == "broker 1" else plan.spec.controller_ids
            alike = plan.faults[at : at + len(group)]
            if [one.target.text.split()[-1] for one in alike] != [str(node) for node in group] or len(group) < 2:
                continue
            assert {(one.kind, one.lasts_ms) for one in alike} == {(first.kind, first.lasts_ms)}
            assert all(one.meanwhile and one.when is None and one.after_ms == 0 for one in alike[1:])
            struck.setdefault(first.target.text.split()[0], set()).add(first.kind)

    assert all({"power-loss", "slow-fsync"} <= struck[kind] <= set(SHARED) for kind in ("broker", "controller"))


def test_nobody_s_link_to_another_of_its_kind_is_cut_where_it_has_none():
    alone = scenario({**SMALL, "cluster": {"controllers": 1}})
    many = scenario({**SMALL, "cluster": {"controllers": 3}})
    drawn = [
        {fault.kind for number in range(80) for fault in fresh(given, Random(number), (), composed=True).plan.faults}
        for given in (alone, many)
    ]

    assert ["single-link" in kinds for kinds in drawn] == [False, True]
