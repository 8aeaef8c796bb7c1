"""A seed is the same run again, a changed one is named at its first event, and a finding shrinks and stays the same."""

import time
import zlib
from array import array

import msgspec
import pytest
import yaml

from tribunal.harness.campaign.mutation_score import plan_of, sought
from tribunal.harness.campaign.replay import first_difference, replayed
from tribunal.harness.campaign.runners import LocalRunner
from tribunal.harness.campaign.shrink import (
    NotFound,
    Shrinker,
    fewer_nodes,
    fewer_records,
    halved,
    others_removed,
    records_of,
    size_of,
    sooner,
    without_parts,
    workers_removed,
)
from tribunal.harness.campaign.sweep import run_seed, swept
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.signature import read

KILLS = {
    "scenario": "kills",
    "cluster": {"brokers": 3, "controllers": 1, "profile": "ci"},
    "workload": {"name": "produce-consume", "partitions": 2, "rate": 60, "readers": 1},
    "time": "4s",
    "warm_up": "500ms",
    "steps": [
        {"pause": "follower(p0)", "for": "300ms"},
        {"isolate": "leader(p0)", "from": "nodes", "for": "2.8s", "after": "100ms", "meanwhile": True},
    ],
}


def plan(seed=1, mutants=()):
    return made(scenario(KILLS), seed=seed, cluster="simulated", time_ms=None, mutants=mutants)


def block(*numbers):
    return zlib.compress(array("q", numbers).tobytes(), 1)


@pytest.mark.parametrize(
    ("before", "after", "number"),
    [
        ([block(1, 2), block(3)], [block(1, 2), block(3)], None),
        ([block(1, 2), block(3, 4)], [block(1, 2), block(3, 5)], 3),
        ([block(1, 2), block(3, 4)], [block(1, 2), block(3)], 3),
        ([block(1, 2)], [block(1, 2), block(3)], 2),
        ([], [block(1)], 0),
    ],
)
def test_the_first_number_that_differs(before, after, number):
    assert first_difference(before, after) == number


def test_every_fault_is_left_out_once_and_the_first_begins_by_itself():
    whole = plan()
    smaller = list(without_parts(whole, len(whole.faults)))
    again = next(without_parts(smaller[-1], len(whole.faults) - 1))
    assert [fault.origin for fault in smaller[-1].faults] == [*range(1, len(whole.faults))]
    assert [fault.origin for fault in again.faults] == [*range(1, len(whole.faults) - 1)]

    assert len(smaller) == len(whole.faults)
    assert all(len(one.faults) == len(whole.faults) - 1 for one in smaller)
    assert not any(one.faults[0].meanwhile for one in smaller if one.faults)


def test_loads_beside_the_own_one_are_left_out():
    """A search adds them; what they order is most of what such a run does."""
    given = scenario(KILLS | {"beside": [{"name": "operator"}, {"name": "transactions", "processes": 2}]})
    whole = made(given, seed=1, cluster="simulated", time_ms=None, mutants=())
    smaller = list(others_removed(whole))

    assert [[one.workload for one in plan.beside] for plan in smaller] == [[], ["transactions"], ["operator"]]
    assert all(size_of(one) < size_of(whole) for one in smaller)
    assert not list(others_removed(smaller[0]))


def test_candidates_are_smaller():
    whole = plan()

    assert len(list(workers_removed(whole))) == len(whole.workload_plan["workers"]) + 1
    for candidates in (halved, sooner, fewer_nodes, fewer_records):
        smaller = list(candidates(whole))
        assert smaller, candidates
        assert all(size_of(one) != size_of(whole) for one in smaller), candidates
    assert [records_of(one) for one in fewer_records(whole)] == [4 * 16, 4 * 64]
    assert {one.faults[1].lasts_ms for one in sooner(whole)} == {2_800, 1_400, 350}


def test_a_replay_is_bit_exact_and_another_plan_is_named_at_its_first_event(tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    conduct_simulated(plan(), first, Silent())

    same = replayed(first, tmp_path / "same")
    (first / "plan.json").write_bytes(msgspec.json.encode(plan(seed=2)))
    other = replayed(first, tmp_path / "other")

    assert same.is_same
    assert same.first_difference is None
    assert same.recording_hashes[0] == same.recording_hashes[1] != ""
    assert not other.is_same
    assert other.first_event
    assert "first event that differs" in "\n".join(other.lines)


def test_a_finding_shrinks_and_stays_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("tribunal.harness.campaign.shrink.SAID_EVERY_S", 0)
    found, lines = plan(mutants=("m44_acks_local",)), []
    shrinker = Shrinker(tmp_path, runner=LocalRunner(2), budget_s=6, notify=lines.append)

    small = shrinker.shrink(found)

    assert shrinker.signature in small.result.signatures
    assert len(small.plan.faults) <= len(found.faults)
    assert small.plan.faults
    # A candidate that does not show it is heard of, too: it was silent as long as none did.
    going_on = [line for line in lines if "plans tried" in line]
    assert going_on
    assert all("s are left; smallest: " in line for line in going_on)


def test_a_shrink_whose_time_is_over_gives_up_what_runs(tmp_path):
    """A budget of a minute took eight, when candidates were waited for."""
    swept_whole = swept([plan()], jobs=1, budget_s=None, scratch=tmp_path / "whole")
    cut = swept([plan()], jobs=1, budget_s=None, scratch=tmp_path / "cut", cut_at=time.monotonic() + 0.2)

    assert (len(swept_whole.results), len(cut.results)) == (1, 0)

    shrinker = Shrinker(tmp_path, runner=LocalRunner(2), budget_s=0)
    small = shrinker.shrink(plan(mutants=("m44_acks_local",)))

    assert small.tried == 1


def test_an_interrupted_shrink_gives_the_smallest_so_far(tmp_path):
    found = plan(mutants=("m44_acks_local",))
    notified = []

    def interrupt(line):
        if "plans tried" in line:  # on a busy machine
            return
        notified.append(line)
        raise KeyboardInterrupt

    shrinker = Shrinker(tmp_path, runner=LocalRunner(2), budget_s=600, notify=interrupt)

    small = shrinker.shrink(found)

    assert small.interrupted
    assert len(notified) == 1
    assert size_of(small.plan) < size_of(found)
    assert shrinker.signature in small.result.signatures


@pytest.mark.nightly
def test_the_last_replica_standing_shrinks_to_a_handful_that_still_fails_when_replayed(tmp_path):
    """Issue 6: with its mutant at most 5 steps and 10 records, in under a minute, which is what it may take."""
    found = sought("m01_no_elr", "last-replica-standing", range(20), 600, LocalRunner(2), tmp_path / "found")
    assert found.found
    shrinker = Shrinker(tmp_path / "shrink", signature=read(found.seen_by[0]), runner=LocalRunner(2), budget_s=58)

    small = shrinker.shrink(plan_of("last-replica-standing", found.seed, ("m01_no_elr",)))
    first, again = (run_seed(small.plan, tmp_path / name) for name in ("first", "again"))

    assert len(small.plan.faults) <= 5
    assert records_of(small.plan) <= 10
    assert shrinker.signature in first.signatures
    assert (first.trace_hash, first.recording_hash) == (again.trace_hash, again.recording_hash)


def test_a_plan_that_shows_nothing_is_not_shrunk(tmp_path):
    with pytest.raises(NotFound, match="nothing"):
        Shrinker(tmp_path).shrink(plan())


def test_power_finds_a_mutant_and_says_by_what(tmp_path):
    path = tmp_path / "kills.yaml"
    path.write_text(yaml.safe_dump(KILLS, sort_keys=False))

    result = sought("m44_acks_local", str(path), range(1, 4), 250, LocalRunner(1), tmp_path)

    assert result.found
    assert any("lost" in name or name.endswith("/I4") for name in result.seen_by), result.seen_by
