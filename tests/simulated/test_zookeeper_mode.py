"""ZooKeeper mode in the simulator: deterministic, watched, and blind to none of KIP-380's four broken assumptions."""

import asyncio
import importlib
import subprocess
import sys

import msgspec
import pytest

from clusters.spec import ClusterSpec
from harness.catalog import faults
from replog.wire.apis import Api
from replog.wire.codec import decode_request
from tests.simulated.cluster_program import Trial, leader

SPEC = ClusterSpec(mode="zookeeper", controllers=1)
HURT = {"kill": 101, "pause": 101, "isolate": 101}


def test_the_same_seed_gives_the_same_trace():
    async def bounce(cluster):
        module = faults()["fast-bounce"]
        async with module.fault(cluster, leader(cluster), module.Options(how="stop")):
            await asyncio.sleep(1)

    first, again = (Trial("zookeeper", SPEC).run(bounce).trace_hash for _ in range(2))

    assert first == again


@pytest.mark.parametrize("name", sorted(HURT))
def test_nothing_is_lost_when_zookeeper_itself_is_hurt(name):
    async def scenario(cluster):
        module = faults()[name]
        async with module.fault(cluster, HURT[name], module.Options()):
            await asyncio.sleep(2.5)

    trial = Trial(f"zookeeper/{name}", SPEC).run(scenario)

    assert trial.lost() == []
    assert trial.unread == []


def test_a_broker_that_lost_its_session_is_registered_with_a_later_epoch():
    epochs = []

    async def cut_off(cluster):
        module = faults()["isolate"]
        epochs.append(cluster.state.brokers[1].broker_epoch)
        async with module.fault(cluster, 1, module.Options(others="controllers")):
            await asyncio.sleep(4)
        epochs.append(cluster.state.brokers[1].broker_epoch)

    trial = Trial("zookeeper/session", SPEC).run(cut_off)

    assert epochs[1] > epochs[0]
    assert trial.lost() == []


def test_a_leave_is_asked_for_again_with_the_epoch_of_the_new_session():
    """KIP-380, "New Error Code": "it will retry to send the ControlledShutdownRequest with newer broker epoch"."""
    asked: dict[int, None] = {}
    epochs = []

    def observe(frame, _):
        if frame.is_request and frame.api == Api.CONTROLLED_SHUTDOWN:
            asked[decode_request(memoryview(frame.data)[4:]).body.broker_epoch] = None

    async def leave_while_cut_off(cluster):
        cluster.simulation.network.frames.observers.append(observe)
        module = faults()["isolate"]
        before = cluster.state.brokers[1].broker_epoch
        async with module.fault(cluster, 1, module.Options(others="nodes")):
            stopping = asyncio.ensure_future(cluster.stop(1))
            await until(lambda: (gone := cluster.state.brokers.get(1)) is None or gone.fenced)
        await stopping
        epochs.extend([before, cluster.state.brokers[1].broker_epoch])
        await cluster.start(1)

    spec = msgspec.structs.replace(SPEC, settings={"controlled.shutdown.timeout.ms": 20_000})
    trial = Trial("zookeeper/leave", spec).run(leave_while_cut_off)

    assert epochs[1] > epochs[0]
    assert list(asked) == epochs
    assert trial.lost() == []


async def until(condition):
    while not condition():  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.1)


# In an interpreter of its own: what a mutant replaces stays replaced.
PROGRAM = """
import asyncio, importlib, sys
importlib.import_module(f"replog.mutants.{sys.argv[1]}").install()
from clusters.simulated.violation import Violated
from clusters.spec import ClusterSpec
from harness.catalog import faults
from replog.wire.apis import Api
from replog.wire.codec import decode_request
from tests.simulated.cluster_program import Trial

async def scenario(cluster):
    module = faults()[sys.argv[2]]
    async with module.fault(cluster, 1, module.Options()):
        await asyncio.sleep(1)

try:
    Trial("mutant", ClusterSpec(mode="zookeeper", controllers=1)).run(scenario)
except Violated as problem:
    print(problem.invariant)
"""


@pytest.mark.parametrize(
    ("mutant", "fault", "invariant"),
    [
        ("m39_partial_checkpoints", "early-leader-and-isr", "Z3"),
        ("m51_stale_control", "late-stop-replica", "Z1"),
        ("m53_stale_leave", "late-leave", "Z2"),
    ],
)
@pytest.mark.nightly
def test_a_broken_assumption_is_seen(mutant, fault, invariant):
    assert f"zookeeper-{fault}" == importlib.import_module(f"replog.mutants.{mutant}").SCENARIO

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mutant, fault], capture_output=True, text=True, check=False, timeout=120
    )

    assert invariant in done.stdout + done.stderr
