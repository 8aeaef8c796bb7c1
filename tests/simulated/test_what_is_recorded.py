"""What a simulated cluster says for the recording: times of its own, who answered, and in which epoch."""

import asyncio

from tests.simulated.cluster_program import Trial
from tribunal.clusters.capabilities import ClockSkew


def test_metadata_are_of_the_run_s_clock_also_while_a_controller_s_clock_is_set_back():
    entries = []

    async def scenario(cluster):
        controller = cluster.state.quorum_leader
        await cluster.set_clock(controller, ClockSkew(offset_ms=-3_600_000))
        entries.extend(cluster.drain_metadata())
        before_ns = cluster.now_ns()
        await cluster.kill(cluster.spec.broker_ids[0])
        await asyncio.sleep(4)
        late = cluster.drain_metadata()
        entries.extend(late)
        assert late
        assert all(before_ns <= entry.at_ns <= cluster.now_ns() for entry in late)
        assert all(entry.stamped_ns < 0 for entry in late)
        await cluster.set_clock(controller, ClockSkew())
        await cluster.start(cluster.spec.broker_ids[0])

    Trial(3).run(scenario)

    times = [entry.at_ns for entry in entries]
    assert times == sorted(times)


def test_sends_and_polls_name_who_answered_and_watermarks_the_epoch_they_are_of():
    """A leader dies: what is answered before and behind its election names two nodes and two epochs."""
    leaders = {}

    async def scenario(cluster):
        for _ in range(2):
            partition = min(cluster.state.partitions)
            state = cluster.state.partitions[partition]
            leaders[state.leader_epoch] = state.leader
            await asyncio.sleep(1)
            await cluster.kill(state.leader)
            await asyncio.sleep(5)
            await cluster.start(state.leader)
            await asyncio.sleep(2)
        leaders["partition"] = partition

    trial = Trial(5)
    trial.run(scenario)
    topic, number = leaders.pop("partition")

    def told(table):
        return [row for row in trial.rows.of(table) if (row["topic"], row["partition"]) == (topic, number)]

    sends = [row for row in told("sends") if row["outcome"] == "ok"]
    assert {row["answered_by"] for row in sends} >= set(leaders.values())
    assert all(
        (row["producer_id"] is not None) == (row["worker_class"] == "idempotent") == (row["producer_epoch"] is not None)
        for row in sends
    )
    seen = {(row["leader_epoch"], row["answered_by"]) for row in [*told("polls"), *told("watermarks")]}
    assert len({epoch for epoch, _ in seen}) == len(seen)  # one node an epoch
    assert set(leaders.items()) <= seen
    assert (None, None) not in seen
    assert {row["source"] for row in told("watermarks")} == {"fetch", "list_offsets"}
