"""A broker whose process has died is fenced before its session is over, where that is switched on."""

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replog.config import Endpoint
from replog.controller.events import BrokerRefuses
from replog.host.world import RealNetwork
from replog.node.quorum.lost_brokers import ATTEMPTS, LostBrokers
from replog.node.tasks import Tasks
from replog.types import BrokerEpoch, NodeId
from tests.broker.loopback import free_ports
from tests.cases.controllers import Box
from tests.cases.partitions import partition
from tribunal.clusters.kafka.side_by_side import Ours, SideBySide

BROKER, EPOCH = NodeId(1), BrokerEpoch(7)
CONNECTION = 5


def cluster() -> Box:
    box = Box().features().broker(1).broker(2)
    return box.topic(partition({"replicas": [1, 2]})).activate()


def refuses(box: Box, epoch: int) -> None:
    event = BrokerRefuses(broker_id=BROKER, broker_epoch=BrokerEpoch(epoch))
    box._carry_out(box.controller.handle(event, box.now_ms, box.offset))


def test_a_dead_broker_is_fenced_and_another_leads() -> None:
    box = cluster()

    refuses(box, box.image.brokers[BROKER].epoch)

    assert box.image.brokers[BROKER].fenced
    assert box.partition().leader == 2
    assert not box.controller.sessions.is_valid(BROKER, box.image.brokers[BROKER].epoch, box.now_ms)


def test_a_later_incarnation_is_not_fenced_for_the_one_that_died() -> None:
    box = cluster()

    refuses(box, box.image.brokers[BROKER].epoch - 1)

    assert (box.records, box.partition().leader) == ([], 1)


@pytest.mark.parametrize("listens", [pytest.param(True, id="it accepts"), pytest.param(False, id="it refuses")])
def test_only_who_refuses_is_taken_for_dead(listens: bool) -> None:
    accepted, refused = [], []

    async def scenario() -> None:
        (port,) = free_ports(1)
        network = RealNetwork()
        tasks = Tasks()
        world: Any = SimpleNamespace(network=network)

        class Accepting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.append(transport)

        listener = await network.listen("127.0.0.1", port, Accepting) if listens else None
        lost = LostBrokers(world, tasks, lambda node: Endpoint("127.0.0.1", port), lambda *dead: refused.append(dead))
        lost.heartbeat(CONNECTION, BROKER, EPOCH)
        lost.connection_lost(CONNECTION + 1)  # of somebody else
        assert not tasks._running
        lost.connection_lost(CONNECTION)
        async with asyncio.timeout(20):
            while tasks._running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if listener is not None:
            listener.close()

    asyncio.run(scenario())

    assert (len(accepted), refused) == ((ATTEMPTS, []) if listens else (0, [(BROKER, EPOCH)]))


def test_a_killed_broker_is_fenced_long_before_its_session_ends(tmp_path: Path) -> None:
    settings = {"broker.early.fencing.enable": True, "broker.session.timeout.ms": 120_000}

    def fenced(cluster: SideBySide) -> bool:
        lines = (cluster.places[101].folder / "events.jsonl").read_text().splitlines()
        return any(one.get("event") == "fenced" and one.get("node") == 1 for one in map(json.loads, lines))

    with SideBySide(Ours(), tmp_path, brokers=2, controllers=1, settings=settings) as cluster:
        cluster.up()
        began = time.monotonic()
        cluster.kill(1)
        cluster.wait_until(lambda: fenced(cluster), "fenced", 30)

        assert time.monotonic() - began < 30
