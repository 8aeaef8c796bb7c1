"""Anomalies put into real recordings: each class is made for certain, and the judge sees it or is known to be blind to it.

`KNOWN_MISSES` is the whole list of what the judge cannot see today, with the reason. Who teaches it to see takes a line away;
a class that is listed and seen fails here.
"""

from pathlib import Path
from random import Random

import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.calibration.api import classes
from tribunal.checkers.calibration.case import Case, Place
from tribunal.checkers.calibration.families.lost_records import kept_of_all
from tribunal.checkers.judge.verdict import check
from tribunal.harness.campaign.calibrate import Options, copy_with, injections, measure
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import load
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.copies import copied
from tribunal.results.recording import NO_PARTITION
from tribunal.results.rows import (
    TABLE_OF,
    table_of,
    typed,
)
from tribunal.results.sensitivity import Figure, fallen, measured, total
from tribunal.results.store import Recording

pytestmark = pytest.mark.timeout(900)  # runs are made and judged once for all tests here
ROOT = Path(__file__).resolve().parents[2]
QUIET = """
scenario: {name}
about: nothing is hurt
cluster: {{brokers: 3, controllers: 3, replication_factor: 3, min_insync_replicas: 2, profile: ci,
           settings: {{{settings}}}}}
workload: {{{workload}}}
time: {time}
steps:
  - {{{step}}}
"""
SLOW = "slow: broker 1, from: brokers, delay_ms: 1, jitter_ms: 0, for: 12s"
KNOWN_MISSES: dict[str, str] = {}
RUNS = {
    "plain": {"workload": "name: produce-consume, partitions: 2, rate: 60, readers: 1", "time": "14s"},
    "failed-over": {
        "workload": "name: produce-consume, partitions: 2, rate: 8, readers: 1", "time": "16s",
        "step": "kill: leader(p0), for: 2s}\n  - {" + SLOW,
    },
    "unclean": {
        "workload": "name: produce-consume, partitions: 3, rate: 60, readers: 0", "time": "8s",
        "settings": "unclean.leader.election.enable: true",
    },
    "groups": {"workload": "name: consumer-group, session_timeout_ms: 2500", "time": "8s",
               "settings": "group.min.session.timeout.ms: 1000"},
    "exactly": {"workload": "name: exactly-once, session_timeout_ms: 2500", "time": "6s",
                "settings": "group.min.session.timeout.ms: 1000"},
    "restarted": {"workload": "name: transactions", "time": "9s", "step": "kill: leader(p0), for: 2s"},
    "bank": {"workload": "name: bank", "time": "5s"},
    "lists": {"workload": "name: list-append", "time": "5s"},
}  # fmt: skip


def simulated(folder: Path, scenario: str, seed: int = 1) -> Path:
    folder.mkdir(parents=True)
    conduct_simulated(
        made(load(scenario_file(scenario), {}), seed=seed, cluster="simulated", time_ms=None, mutants=()),
        folder,
        Silent(),
    )
    return folder


def answered_on(folder: Path) -> Path:
    """A consumer that reads for long in the leader epoch of an unclean election."""
    run = Run(folder, **{"unclean.leader.election.enable": True})
    values = [run.send(0, at=100)]
    run.read({0: values[0]}, 1_000, epoch=0, leader_epoch=0)
    run.change(5_000, leader=3, isr=[3], leader_recovery_state=1)
    run.change(6_000, isr=[3, 1, 2], leader_recovery_state=0)
    for number, at in ((1, 9_000), (2, 21_900)):
        values.append(run.send(number, at))
        run.read({number: values[number]}, at + 500, epoch=1, leader_epoch=1)
    run.final_read(dict(enumerate(values)), 23_000)
    return run.finish()


def led_again(folder: Path) -> Path:
    """A partition that nobody leads for a moment, and a quorum that is left in peace for long."""
    run = Run(folder)
    for node in (101, 102, 103):
        run.recorder.row("nodes", node=node, role="controller", event="start", at_ns=1)
    run.change(50, leader=-1)
    run.change(80, leader=2)
    values = [run.send(0, 85)]
    run.read({0: values[0]}, 95, epoch=2, leader_epoch=2)
    for at in range(100, 40_000, 500):
        run.metadata("NoOpRecord", at)
    run.final_read(dict(enumerate(values)), 41_000, epoch=2)
    run.phase("final-read", 40_900, 41_100)
    return run.finish()


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """A few short runs, quiet and hurt; every class has a place in one of them."""
    base = tmp_path_factory.mktemp("calibration")
    folders = []
    for name, options in RUNS.items():
        path = base / f"{name}.yaml"
        path.write_text(QUIET.format(name=name, **({"settings": "", "step": SLOW} | options)))
        folders.append(simulated(base / name, str(path)))
    folders.append(simulated(base / "power", "power-loss-all"))
    folders.append(answered_on(base / "answered-on"))
    folders.append(led_again(base / "led-again"))
    return [Case(Recording.open(folder)) for folder in folders]


INJECTED = [name for name, one in classes().items() if one.inject is not None]
# To make and to judge a copy takes a second: the gate does so for some of the classes, spread over all families, the nightly lane for all.
IN_THE_GATE = INJECTED[::3]
SEEN = [pytest.param(name, marks=() if name in IN_THE_GATE else pytest.mark.nightly) for name in INJECTED]


@pytest.fixture(scope="module")
def placed(cases):
    """The first injection of each class, in the first run in which it has a place."""
    found = {}
    for case in cases:
        for one, injected in injections(case, [classes()[name] for name in INJECTED if name not in found], 1, seed=0):
            found[one.name] = (case, injected)
    return found


@pytest.mark.parametrize("name", SEEN)
def test_the_judge_sees_each_class_or_is_known_to_miss_it(placed, tmp_path, name):
    assert name in placed, f"{name} has no place in any of these runs"
    case, injected = placed[name]

    options = Options(per_class=1, seed=0, engine="inline", chosen=(name,))
    figure = measure([case.recording.run_dir], options, tmp_path).figures[name]

    assert (figure.injected, figure.seen) == (1, 0 if name in KNOWN_MISSES else 1), injected.injection


@pytest.mark.parametrize("name", SEEN)
def test_a_copy_is_a_sound_recording_in_which_only_the_named_parts_differ(placed, tmp_path, name):
    case, injected = placed[name]

    copy = Recording.open(copy_with(case, injected, tmp_path / "copy"))

    copy.validate()
    before, after = case.recording.manifest, copy.manifest
    differing = {table for table, known in before.tables.items() if known.sha256 != after.tables[table].sha256}
    assert differing <= {table for table, _ in injected.changed}
    assert differing or after.settings != before.settings
    assert before.recording_hash != after.recording_hash or after.settings != before.settings


def test_there_are_at_least_44_classes_and_no_known_miss_is_unknown():
    known = classes()

    assert len(known) >= 44
    assert set(KNOWN_MISSES) <= set(INJECTED)
    assert not any(one.lacking for one in known.values())


def test_the_page_of_figures_names_every_class_and_its_rows_add_up():
    page = (ROOT / "docs" / "sensitivity.md").read_text()
    by_scenario, by_class = (
        [line.split(" | ") for line in part.splitlines()[1:]] for part in page.split("|---|---|---|---|")[1:]
    )

    rows = {line[0].strip("| `"): (int(line[-2]), int(line[-1].strip(" |"))) for line in by_class}
    assert list(rows) == list(classes())
    assert len([name for name, (injected, _) in rows.items() if injected]) >= 44
    assert all(seen == injected for injected, seen in rows.values())
    scenarios = [
        (int(line[-2]), int(line[-1].strip(" |"))) for line in by_scenario if len(line) == 4 and line[-2].isdigit()
    ]
    assert [sum(column) for column in zip(*scenarios, strict=True)] == [
        sum(column) for column in zip(*rows.values(), strict=True)
    ]


def test_a_recording_without_a_change_stays_what_it_was(cases, tmp_path):
    for case in cases:
        copy = copied(case.recording, tmp_path / case.recording.run_dir.name, {})

        assert Recording.open(copy).manifest == case.recording.manifest
        before, after = check([case.recording.run_dir], "inline"), check([copy], "inline")
        assert [one.findings for one in before] == [one.findings for one in after]


def test_the_same_seed_makes_the_same_injections_whatever_else_is_measured(cases):
    case = cases[0]
    chosen = list(classes().values())

    first = [injected for _, injected in injections(case, chosen, 2, seed=3)]
    again = [injected for _, injected in injections(Case(Recording.open(case.recording.run_dir)), chosen, 2, seed=3)]
    alone = [injected for _, injected in injections(case, chosen[::-1], 2, seed=3)]
    other = [injected for _, injected in injections(case, chosen, 2, seed=4)]

    assert first == again
    assert {one.injection for one in alone} == {one.injection for one in first}
    assert {one.injection for one in other} != {one.injection for one in first}


def test_rows_come_back_from_values_as_they_were(cases):
    recording = cases[0].recording
    for kind, name in TABLE_OF.items():
        parts = recording.partitions(name) or [NO_PARTITION]
        rows = recording.table(name, parts[0]).drop_columns(["run_id"])

        again = table_of(kind, typed(recording.table(name, parts[0]), kind))

        assert again.to_pylist() == rows.to_pylist()


# What may not be injected


def acknowledged(tmp_path, **changes):
    """Two records acknowledged and read to the end; then whatever a test adds."""
    run = Run(tmp_path / "run", **changes)
    first, second = run.send(0, at=100), run.send(1, at=200)
    run.final_read({0: first, 1: second}, epoch=0)
    run.phase("faults", 0, 500)
    return run


def kept(run):
    case = Case(Recording.open(run.finish()))
    return [send.log_offset for send in kept_of_all(case, Place("t", 0))]


def test_records_of_an_undisturbed_partition_had_to_survive(tmp_path):
    assert kept(acknowledged(tmp_path)) == [0, 1]


def test_records_before_an_unclean_election_are_left_alone(tmp_path):
    run = acknowledged(tmp_path)
    run.change(3_000, leader=3, isr=[3], leader_recovery_state=1)

    assert kept(run) == []


def test_records_before_a_clean_election_had_to_survive_with_elr_and_are_left_alone_without(tmp_path):
    run = acknowledged(tmp_path / "with", **{"eligible.leader.replicas.enable": True})
    run.change(3_000, leader=2, isr=[2, 3])
    other = acknowledged(tmp_path / "without", **{"eligible.leader.replicas.enable": False})
    other.change(3_000, leader=2, isr=[2, 3])

    assert kept(run) == [0, 1]
    assert kept(other) == []


def test_records_that_a_cut_of_a_running_nodes_file_may_have_taken_are_left_alone(tmp_path):
    run = acknowledged(tmp_path)
    run.fault("truncate-segment", 300, node=1, lost_from=0)

    assert kept(run) == []


def test_records_below_an_operators_order_are_left_alone(tmp_path):
    run = acknowledged(tmp_path)
    run.recorder.row(
        "admin",
        process=1,
        api="delete_records",
        topic="t",
        partition=0,
        log_offset=1,
        invoke_ns=1,
        complete_ns=2,
        outcome="ok",
    )

    assert kept(run) == []


@pytest.mark.parametrize(("paused", "at", "count"), [
    pytest.param(None, 2_000, 1, id="nothing hindered its leader"),
    pytest.param(1, 2_000, 0, id="its leader was paused a moment ago"),
    pytest.param(1, 3_800, 1, id="its leader had been paused long before"),
    pytest.param(2, 2_000, 1, id="a follower was"),
])  # fmt: skip
def test_a_leader_that_may_not_know_of_its_isr_acknowledges_what_it_may(
    tmp_path: Path, paused: int | None, at: int, count: int
) -> None:
    run = Run(tmp_path / "run")
    for number in range(8):
        run.metadata("NoOpRecord", 1_000 + 600 * number)
    run.send(0, at)
    if paused is not None:
        run.fault("pause", 1_100, node=paused, lasts=500)
    below = classes()["acknowledged-below-min-isr"]

    assert len(list(below.inject(Case(Recording.open(run.finish())), Random(1)))) == count


def test_an_acknowledgement_that_a_deposed_leader_may_have_given_proves_nothing(tmp_path):
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(1_000, leader=3, isr=[3], leader_recovery_state=1)
    value = run.send(0, at=4_000)
    run.final_read({0: value}, at=9_000, epoch=1)

    assert kept(run) == []


def test_an_acknowledgement_after_the_deposed_leader_was_notified_counts(tmp_path):
    run = Run(tmp_path / "run", **{"unclean.leader.election.enable": True})
    run.change(1_000, leader=3, isr=[3], leader_recovery_state=1)
    run.change(2_000, isr=[3, 1, 2], leader_recovery_state=0)
    value = run.send(0, at=7_000)
    run.final_read({0: value}, at=9_000, epoch=1)

    assert kept(run) == [0]


@pytest.mark.parametrize(("epochs", "count"), [
    pytest.param((0, 0), 1, id="of one leader epoch"),
    pytest.param((None, None), 0, id="of leader epochs that nobody knows"),
    pytest.param((0, 1), 0, id="of another leader epoch, with no election in between"),
])  # fmt: skip
def test_a_high_watermark_goes_back_only_within_a_known_leader_epoch(tmp_path, epochs, count):
    run = acknowledged(tmp_path)
    for at, epoch in zip((3_000, 4_000), epochs, strict=True):
        run.poll(90, "tail", 2, 0, at, high_watermark=2, leader_epoch=epoch)
    case = Case(Recording.open(run.finish()))

    assert len([*injections(case, [classes()["high-watermark-back-at-consumer"]], 4, seed=0)]) == count


@pytest.mark.parametrize(("healed_at", "count"), [
    pytest.param(1_000, 1, id="long after the last heal"),
    pytest.param(9_500, 0, id="just after the last heal"),
])  # fmt: skip
def test_a_partition_is_left_without_leader_only_long_after_the_last_heal(tmp_path, healed_at, count):
    run = acknowledged(tmp_path)
    run.fault("slow", 500, node=1, lasts=healed_at - 500)
    for at in (5_000, 10_000):
        run.metadata("NoOpRecord", at)
    run.read({}, 10_000)
    case = Case(Recording.open(run.finish()))

    assert len([*injections(case, [classes()["leaderless-at-the-end"]], 4, seed=0)]) == count


# What has fallen


def figures(injected, seen):
    return {"hole": Figure(injected=injected, seen=seen)}


@pytest.mark.parametrize(("last", "now", "count"), [
    pytest.param((4, 4), (4, 4), 0, id="as before"),
    pytest.param((4, 4), (8, 7), 1, id="fell"),
    pytest.param((4, 2), (8, 7), 0, id="rose"),
    pytest.param((4, 4), (0, 0), 0, id="not measured now"),
    pytest.param((0, 0), (4, 0), 0, id="not measured then"),
])  # fmt: skip
def test_a_class_has_fallen_when_less_of_it_is_seen(last, now, count):
    assert len(fallen(figures(*last), figures(*now))) == count


def test_what_reports_say_of_the_judge_is_what_the_page_of_figures_says():
    page = (ROOT / "docs" / "sensitivity.md").read_text()

    known = measured()

    figure = total(known.figures.values())
    assert f"{figure.seen:,} of {figure.injected:,} were seen" in page
    assert known.commit in page
    assert figure.injected > 1000
