"""The fuzzers tell a broker that a request took its session from one that the machine let starve."""

import asyncio
from pathlib import Path

import pytest

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.node.broker import Broker
from replog.wire.messages import broker_heartbeat as bh
from tests.broker.loopback import Loopback, started
from tests.fuzz.targets import BROKER, SESSION_S, Fencing, Turn, Turns, attacked
from tests.fuzz.test_conversations import CONTROLLER, ONE_OF_EACH


@pytest.mark.parametrize(
    ("turns", "is_starvation"),
    [
        pytest.param([Turn(SESSION_S, 0.1, SESSION_S / 2)], True, id="half of a session's time without a processor"),
        pytest.param([Turn(1.0, 0.1, 0.8), Turn(2.0, 0.9, 0.8)], True, id="several times"),
        pytest.param([Turn(SESSION_S, 0.1, SESSION_S / 2 - 0.01)], False, id="less than half of it"),
        pytest.param([Turn(1.5, 0.7, 0.7), Turn(1.5, 0.9, 0.6)], False, id="it computed for as long"),
    ],
)
def test_half_of_a_sessions_time_without_a_processor_is_the_machines(turns: list[Turn], is_starvation: bool) -> None:
    assert Fencing(False, turns).is_starvation is is_starvation
    assert not Fencing(True, turns).is_starvation  # who was ordered to go did not starve


def test_turns_are_kept_for_as_long_as_a_session_lasts() -> None:
    turns, lasted_s = Turns(), 0.0
    while lasted_s < 0.2:
        lasted_s += turns.note().lasted_s
    assert sum(turn.lasted_s for turn in turns.of_late) == pytest.approx(lasted_s)
    assert sum(turn.computed_s for turn in turns.of_late) > 0

    _wait(SESSION_S)
    turns.note()
    _wait(0.01)
    turns.note()

    assert SESSION_S <= sum(turn.lasted_s for turn in turns.of_late) < 2 * SESSION_S
    assert len(turns.of_late) == 2


def test_a_broker_that_a_request_fenced_fails_the_fuzzer(tmp_path: Path) -> None:
    async def run() -> str:
        cluster = Loopback(tmp_path, 1, 1, dict(ONE_OF_EACH))
        async with started(cluster):
            broker = cluster.nodes[BROKER]
            assert isinstance(broker, Broker)
            epoch = broker.plane.identity.broker_epoch
            client = Client(ClientWorld(), [Endpoint("127.0.0.1", cluster.ports[BROKER])])
            async with attacked(cluster, client) as target:
                await asyncio.sleep(0.1)
                target.check()
                connection = Connection(ClientWorld(), Endpoint("127.0.0.1", cluster.ports[CONTROLLER]), "c")
                await connection.open()
                body = bh.BrokerHeartbeatRequest(broker_id=BROKER, broker_epoch=epoch, want_fence=True)
                await connection.send(bh.EXCHANGE, body, timeout_ms=10_000)
                connection.close()
                async with asyncio.timeout(10):
                    while not target.fencings:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                with pytest.raises(AssertionError) as failure:
                    target.check()
            await client.close()
        return str(failure.value)

    assert "the broker was taken its session" in asyncio.run(run())


def _wait(seconds: float) -> None:
    asyncio.run(asyncio.sleep(seconds))
