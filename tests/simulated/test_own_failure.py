"""A node that ends by an error of its own violates what its code holds of itself; errors of the world and of the harness are none."""

import asyncio

import pytest

from replog.log.batch import CorruptBatch, NewRecord, build
from replog.node.quorum.metadata_log import MetadataLog, snapshot_ids
from replog.quorum.events import AppendFetched
from replog.quorum.voters import majority_offset
from tests.log.batches import a_disk, opened
from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.disk import SimulatedDisk
from tribunal.clusters.simulated.own_failure import own_failure
from tribunal.clusters.simulated.process import MonotonicClock
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.results.signature import Signature, of_violation
from tribunal.results.violation import Invariant, NodeFailed

PLACE = "replog.quorum.voters.majority_offset"


def raised(function, *arguments):
    try:
        function(*arguments)
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is judged
        return problem
    raise LookupError("nothing was raised")


def test_a_file_that_a_node_believes_to_have_is_its_own_mistake():
    disk = SimulatedDisk(Simulation("missed file").loop.random("disk"))

    facts = own_failure(raised(snapshot_ids, disk, "/data/not-there"))

    assert facts is not None
    assert facts.exception == "FileNotFoundError"


def test_an_assertion_of_a_node_is_its_own_with_type_and_place():
    facts = own_failure(raised(majority_offset, []))

    assert facts is not None
    assert (facts.exception, facts.function, facts.words) == ("AssertionError", PLACE, "a quorum has members")
    assert facts.line > 0


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(None, id="no error"),
        pytest.param(raised(int, "no number"), id="raised in the harness"),
        pytest.param(raised(MonotonicClock(0).local_ns, "now"), id="raised in the simulator"),
        pytest.param(OSError("the disk is full"), id="of the disk"),
        pytest.param(CorruptBatch("file", 0, "checksum"), id="of damaged files"),
    ],
)
def test_what_others_did_is_not_its_own(problem):
    assert own_failure(problem) is None


def test_a_hole_in_what_a_member_of_the_quorum_fetches_is_the_quorums_own_and_a_partitions_is_none():
    """No fault reaches there; a follower's leader may have a damaged offset, and the follower takes it for that."""
    log = opened(a_disk())
    metadata = MetadataLog(Simulation("hole").add_machine("member", "10.0.0.1", 1).open_world(), log)
    behind = build([NewRecord(None, b"v")], timestamp_ms=0, base_offset=5)
    damaged = build([NewRecord(None, b"v")], timestamp_ms=0)[:-1] + b"?"

    hole = own_failure(raised(metadata.append_fetched, AppendFetched(base_offset=0, records=behind, batches=())))

    assert hole is not None
    assert (hole.exception, hole.words) == ("UnexpectedGap", "fetched at 0: offset 5 where 0 comes next")
    assert own_failure(raised(opened(a_disk()).append_as_follower, behind)) is None
    assert (
        own_failure(raised(metadata.append_fetched, AppendFetched(base_offset=0, records=damaged, batches=()))) is None
    )


def violated_by_a_callback(excuse):
    """Bring a cluster up, and let a callback of a broker fail; return what the watch says."""

    async def main():
        cluster = await launch(ClusterSpec(controllers=1), NOWHERE, RunClock(), "own failure")
        cluster.excuse(2, excuse)
        cluster.machine(2).process.context.run(asyncio.get_running_loop().call_soon, majority_offset, [])
        await asyncio.sleep(0.1)
        failures = cluster.failures()
        await cluster.close()
        return cluster.watch.violation, failures

    return run_simulated("own failure", main)[0]


@pytest.mark.parametrize("excuse", [None, "its disk is full"])
def test_a_run_stops_there_and_says_where_whatever_was_done_to_the_node(excuse):
    violated, failures = violated_by_a_callback(excuse)

    assert isinstance(violated.violation.facts, NodeFailed)
    assert (violated.invariant, violated.violation.node) == (Invariant.ASSERTION, 2)
    assert of_violation(violated.violation) == Signature("invariant", f"AssertionError_in_{PLACE}", "assertion")
    assert PLACE in failures[0]


def test_an_assertion_of_the_harness_ends_the_run_as_its_error():
    async def main():
        cluster = await launch(ClusterSpec(controllers=1), NOWHERE, RunClock(), "harness")
        asyncio.get_running_loop().call_soon(majority_offset, [])
        await asyncio.sleep(0.1)
        await cluster.close()

    with pytest.raises(AssertionError, match="a quorum has members"):
        run_simulated("harness", main)
