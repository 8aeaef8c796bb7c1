"""What goes wrong in the middle: a run that a bug ends, work that is cancelled, a segment that cannot be written."""

import asyncio
import errno

import msgspec
import pytest

from tribunal.clusters.api import ClusterError
from tribunal.clusters.endings import completed, to_its_end
from tribunal.harness.catalog import scenario_file
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run
from tribunal.harness.scenario import load
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.manifest import Made
from tribunal.results.store import Recorder, Recording
from tribunal.workloads.api import Stage
from tribunal.workloads.kinds import produce_consume


def test_a_run_that_a_bug_ends_keeps_what_was_recorded(tmp_path, monkeypatch):
    async def broken(stage, plan):
        await asyncio.sleep(0.1)
        raise ZeroDivisionError("a bug of a workload")

    workloads = {"produce-consume": msgspec.structs.replace(produce_consume.WORKLOAD, run=broken)}
    monkeypatch.setattr("tribunal.harness.run.all_workloads", lambda: workloads)
    plan = made(load(scenario_file("produce-consume"), {}), seed=1, cluster="simulated", time_ms=1000, mutants=())

    with pytest.raises(ZeroDivisionError):
        conduct_simulated(plan, tmp_path, Silent())

    recording = Recording.open(tmp_path)
    assert recording.manifest.failure == "ZeroDivisionError: a bug of a workload"
    assert recording.table("metadata").num_rows > 0


class Failing:
    """A cluster, a collector and who looks at waits, of which one fails when it is put down."""

    def __init__(self, fails):
        self.fails = fails
        self.done = []

    def _do(self, name):
        self.done.append(name)
        if name == self.fails:
            raise ClusterError(f"{name} failed")

    async def shut_down(self):
        self._do("shut down")

    async def close(self):
        self._do("closed")

    async def stop(self):
        self._do("collected")


class Waits:
    """Who looks at waits."""

    def __init__(self, whole):
        self.whole = whole

    async def stop(self):
        self.whole._do("waits")


@pytest.mark.parametrize("fails", ["waits", "shut down"])
def test_what_was_seen_is_collected_and_nodes_end_whatever_fails_of_putting_down(tmp_path, fails):
    plan = made(load(scenario_file("produce-consume"), {}), seed=1, cluster="simulated", time_ms=1000, mutants=())

    async def story():
        run = Run(plan, tmp_path, Silent())
        run.failure = "the run has failed before"
        stage = Stage(clients=None, sink=run.recorder, now_ns=run.clock.now_ns)
        with pytest.raises(ClusterError, match=f"{fails} failed"):
            await run._put_down(whole, stage, whole, Waits(whole))

    whole = Failing(fails)
    asyncio.run(story())

    assert whole.done == ["waits", "shut down", "collected", "closed"]


def test_work_that_must_end_ends_before_the_cancellation_goes_on():
    done = []

    async def work():
        await asyncio.sleep(0.01)
        done.append("work")
        raise ZeroDivisionError("not what is raised")

    async def cancelled():
        try:
            await to_its_end(work())
        finally:
            done.append("after it")

    async def scene():
        task = asyncio.create_task(cancelled())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())

    assert done == ["work", "after it"]


@pytest.mark.parametrize("times", [1, 3])
def test_the_result_of_work_that_is_cancelled_meanwhile_is_not_lost(times):
    """A disk that has lost something by then has lost it, whoever broke the run off."""
    done = []

    async def work():
        await asyncio.sleep(0.01)
        return "lost"

    async def cancelled():
        done.append(await completed(work()))
        await asyncio.sleep(0)
        done.append("went on")

    async def scene():
        task = asyncio.create_task(cancelled())
        await asyncio.sleep(0)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())

    assert done == ["lost"]


def test_a_time_out_is_one_also_where_the_result_is_waited_for():
    async def scene():
        async with asyncio.timeout(0.01):
            await completed(asyncio.sleep(0.05))
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError):
        asyncio.run(scene())


def test_rows_of_a_segment_that_could_not_be_written_are_in_the_next_one(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, "run")
    write = Recorder._write

    def full(self, table, topic_partition, rows):
        if topic_partition == "t-1":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, table, topic_partition, rows)

    for partition in (0, 1):
        recorder.row(
            "watermarks", observer="node-1", source="node", topic="t", partition=partition, at_ns=1, log_end_offset=5
        )
    recorder.row("phases", name="warm-up", start_ns=0, end_ns=1, load=[])
    monkeypatch.setattr(Recorder, "_write", full)
    with pytest.raises(OSError, match="No space"):
        recorder.close_segment()
    monkeypatch.setattr(Recorder, "_write", write)

    recorder.finish(Made())

    recording = Recording.open(tmp_path)
    assert recording.table("watermarks")["partition"].to_pylist() == [0, 1]
    assert recording.table("phases")["name"].to_pylist() == ["warm-up"]
