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
