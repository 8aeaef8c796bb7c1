"""What a replay refuses, what it offers, and how a run is looked at from within."""

import asyncio
import gc
import sys
import tempfile

import msgspec
import pytest
import yaml

from tribunal.harness.campaign import replay as replays
from tribunal.harness.campaign.replay import Trace, other_code, recorded_run, shown
from tribunal.harness.cli.main import exit_code
from tribunal.harness.plan import encoded, made, read_plan
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import BadScenario, scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.verdict import EXIT_USAGE

QUIET = {
    "scenario": "quiet",
    "cluster": {"brokers": 3, "controllers": 1, "profile": "ci"},
    "workload": {"name": "produce-consume", "partitions": 2, "rate": 40, "readers": 0},
    "time": "500ms",
    "warm_up": "300ms",
    "steps": [],
}


def plan(seed=1):
    return made(scenario(QUIET), seed=seed, cluster="simulated", time_ms=None, mutants=())


@pytest.fixture
def recorded(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    conduct_simulated(plan(), folder, Silent())
    return folder


def with_manifest(folder, **changed):
    path = folder / "manifest.json"
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | changed))


def test_a_run_of_this_code_has_no_remarks_and_one_of_another_commit_or_lock_file_says_so(recorded):
    assert other_code(recorded) == []

    with_manifest(recorded, commit="f" * 40, lock_sha256="e" * 64)

    assert [line.split(":")[0] for line in other_code(recorded)] == [
        "recorded with another commit",
        "recorded with another lock file",
    ]


@pytest.mark.parametrize("content", ["[]", "{"], ids=["a list", "torn"])
def test_of_a_run_with_a_manifest_that_is_none_nobody_knows_the_code(recorded, content):
    (recorded / "manifest.json").write_text(content)

    assert other_code(recorded) == ["the run has no manifest: nobody knows with which code it was recorded"]


def test_other_code_is_run_only_when_asked_for(recorded, capsys):
    with_manifest(recorded, commit="f" * 40)

    refused = exit_code(["replay", str(recorded)])
    said = capsys.readouterr().err
    anyway = exit_code(["replay", str(recorded), "--anyway"])

    assert refused == EXIT_USAGE
    assert "another commit" in said
    assert "--anyway" in said
    assert anyway == 0
    then = capsys.readouterr()
    assert "bit-exact" in then.out
    assert f"running it again, into {recorded}.replay-" in then.err


def test_the_first_event_that_differs_is_shown_without_what_comes_after_it(recorded, monkeypatch):
    """Two runs that part at their eighth event were both run to their ends: four minutes on a busy machine."""
    counts = []
    conduct = replays.conduct_simulated

    def watched(plan, folder, progress, listen):
        loops = []  # kept by nobody: who is stopped in the middle goes with them
        try:
            return conduct(
                plan, folder, progress, lambda simulation: (loops.append(simulation.loop), listen(simulation))
            )
        finally:
            counts.append(loops.pop().event_count)

    monkeypatch.setattr(replays, "conduct_simulated", watched)

    lines = replays.lines_at(read_plan(recorded / "plan.json"), 14)

    assert counts == [int(lines[-1].split()[0])]
    assert 0 < counts[0] < 20


def test_a_plan_of_another_version_is_refused_for_that_whatever_else_is_in_it(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"plan_version": 7, "of": "another world"}')

    with pytest.raises(BadScenario, match=r"unknown plan version 7 \(this is 1\)"):
        read_plan(path)


def test_a_plan_is_found_among_the_recorded_runs(recorded):
    (recorded / "plan.json").write_bytes(encoded(plan()))

    assert recorded_run(plan(), recorded.parent) == recorded
    assert recorded_run(plan(seed=2), recorded.parent) is None


def test_a_run_that_is_stopped_in_the_middle_leaves_no_folder(tmp_path, monkeypatch):
    """Who closes its recording only when it is collected writes it then."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    for event in (500, 3_000):
        shown(plan(seed=4), until=event, trace=None, say=str)

    assert list(tmp_path.iterdir()) == []


class NotingPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes loops as ever, and keeps them."""

    def __init__(self):
        super().__init__()
        self.made = []

    def new_event_loop(self):
        self.made.append(super().new_event_loop())
        return self.made[-1]


@pytest.fixture
def policy():
    """How loops are made in a process that had none yet: there asyncio makes one for whoever waits outside of one."""
    before = asyncio.get_event_loop_policy()
    noting = NotingPolicy()
    asyncio.set_event_loop_policy(noting)
    yield noting
    asyncio.set_event_loop_policy(before)
    for loop in noting.made:
        loop.close()


def test_a_run_that_is_stopped_in_the_middle_is_not_put_down_on_a_real_loop(policy):
    """It is closed where it stands: while it loads, waits for its first fault, or has one under way."""
    late = {**QUIET, "steps": [{"pause": "follower(p0)", "for": "100ms", "after": "400ms"}]}
    story = made(scenario(late), seed=4, cluster="simulated", time_ms=None, mutants=())
    lines = []
    shown(story, until=None, trace=Trace(["Run._inject"]), say=lines.append)
    fault_begins = int(lines[0].split()[0])

    for event in (fault_begins // 2, fault_begins - 5, fault_begins + 5):
        shown(story, until=event, trace=None, say=str)
    gc.collect()

    assert policy.made == []


def test_a_run_stops_before_an_event_and_shows_how_all_stands():
    lines = []

    moment = shown(plan(), until=1_100, trace=Trace(["1090:", "PRODUCE"]), say=lines.append)
    again = shown(plan(), until=1_100, trace=None, say=lines.append)

    assert (moment.event, moment.ended) == (1_100, False)
    assert any(line.startswith("produce-consume-0 leader") for line in moment.state)
    assert moment == again
    assert all(int(line.split()[0]) >= 1_090 for line in lines)


def test_a_run_whose_trace_has_an_end_stops_behind_it():
    lines = []

    moment = shown(plan(), until=None, trace=Trace(["30:40", "7:12"]), say=lines.append)

    assert (moment.event, moment.ended) == (41, False)
    assert {int(line.split()[0]) for line in lines} <= {*range(7, 13), *range(30, 41)}
    assert Trace(["30:", "7:12"]).ends_before is None
    assert Trace(["FETCH"]).ends_before is None


def test_who_is_stopped_while_it_puts_down_its_clients_dies_in_silence(monkeypatch):
    lines = []
    shown(plan(), until=None, trace=Trace(["Run._put_down"]), say=lines.append)
    nodes_follow = int(lines[0].split()[0])
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)

    moments = [shown(plan(), until=nodes_follow - before, trace=None, say=str) for before in (10, 7, 5)]

    assert [moment.ended for moment in moments] == [False, False, False]
    assert complaints == []


def test_a_trace_is_chosen_by_ranges_and_words():
    trace = Trace(["5:7", "12:", "FETCH", "broker-1"])

    assert [trace.takes(event, "FETCH v18") for event in (4, 5, 7, 8, 12, 99)] == [False, True, True, False, True, True]
    assert not trace.takes(6, "PRODUCE")
    assert Trace(["all"]).takes(1, "anything")


@pytest.mark.parametrize("what", ["nowhere", "produce-consume:no", "no-such-scenario:1"])
def test_what_is_neither_a_run_nor_a_seed_is_refused(what):
    assert exit_code(["replay", what]) == EXIT_USAGE


def test_a_scenario_file_and_a_seed_can_be_looked_at(tmp_path, capsys):
    path = tmp_path / "quiet.yaml"
    path.write_text(yaml.safe_dump(QUIET, sort_keys=False))

    assert exit_code(["replay", f"{path}:4", "--until", "500"]) == 0
    assert "stopped at event 500" in capsys.readouterr().out
