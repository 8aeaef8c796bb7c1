"""Requests drawn from a seed, thousands of them, at a broker and a controller: nobody dies, and who behaves is served soon.

The gate sends the same few thousand every time; the night goes on with other seeds for half an hour. A failure names the seed and
the number of the frame: `Attacker` draws them again.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import pytest

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.node.broker import Broker
from replog.wire.apis import BROKER_APIS, CONTROLLER_APIS
from replog.wire.messages.metadata import EXCHANGE as METADATA
from replog.wire.messages.metadata import MetadataRequest
from tests.broker.fuzzing import Attacker, Known
from tests.broker.loopback import Loopback, running

CONTROLLER, BROKER = 101, 1
FRAMES_BETWEEN_LOOKS: Final = 200
ANSWER_MS_MAX: Final = 5000  # an orderly client's; the night's machine may do other things as well
NIGHT_S: Final = 30 * 60
ONE_PARTITION: Final = {
    "offsets__topic__num__partitions": 1,
    "offsets__topic__replication__factor": 1,
    "transaction__state__log__num__partitions": 1,
    "transaction__state__log__replication__factor": 1,
    "transaction__state__log__min__isr": 1,
}


class Target:
    """A cluster under attack, and what happened in it that nobody foresaw."""

    def __init__(self, cluster: Loopback, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.unforeseen: list[dict[str, Any]] = []
        self.lines: list[str] = []
        for world in cluster.worlds.values():
            world.journal.log = self._log  # type: ignore[method-assign]

    def _log(self, level: str, message: str) -> None:
        if level == "error":
            self.lines.append(message)

    async def shout(self, node: int, frames: bytes, *, waits: bool) -> None:
        """Send this, and take or leave the answers."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.cluster.ports[node])
            writer.write(frames)
            if waits:
                async with asyncio.timeout(0.02):
                    await reader.read(1 << 16)
        except (TimeoutError, ConnectionError):
            pass
        writer.transport.abort()

    async def look(self, name: str) -> None:
        """Be an orderly client: make a topic, write to it, read its end."""
        assert self.unforeseen == [], self.unforeseen
        assert [world.journal.unforeseen_count for world in self.cluster.worlds.values()] == [0, 0], self.lines
        began = time.monotonic()
        metadata = await (await self._connection()).send(METADATA, MetadataRequest(topics=[]), timeout_ms=ANSWER_MS_MAX)
        assert [one.node_id for one in metadata.brokers] == [BROKER]
        assert (time.monotonic() - began) * 1000 < ANSWER_MS_MAX
        await self.client.create_topic(name, partitions=1, replication_factor=1, configs={"min.insync.replicas": "1"})
        batch = build([NewRecord(b"k", b"v")], timestamp_ms=ClientWorld().clock.wall_ms())
        async with asyncio.timeout(20):
            answer = None
            while answer is None or answer.error_code is not Error.NONE:
                answer = await self.client.produce(name, 0, batch, acks=1)
        assert (await self.client.list_offsets(name, 0, -1)).offset >= 1

    async def _connection(self) -> Connection:
        connection = Connection(ClientWorld(), Endpoint("127.0.0.1", self.cluster.ports[BROKER]), "orderly")
        await connection.open(timeout_ms=ANSWER_MS_MAX)
        return connection


def attack(folder: Path, seed: str, *, frames: int, until_s: float) -> int:
    """Send so many frames, or for so long; return how many it were."""
    sent = 0

    async def run() -> None:
        nonlocal sent
        async with running(folder, controllers=1, brokers=1, **ONE_PARTITION) as cluster:
            client = Client(ClientWorld(), [Endpoint("127.0.0.1", cluster.ports[BROKER])])
            target = Target(cluster, client)
            asyncio.get_running_loop().set_exception_handler(lambda _, context: target.unforeseen.append(context))
            for topic in ("t", "u"):
                await client.create_topic(topic, partitions=2, replication_factor=1)
            broker = cluster.nodes[BROKER]
            assert isinstance(broker, Broker)
            ids = [topic.topic_id for topic in broker.plane.metadata.image.topics_by_name.values()]
            known = Known(cluster_id=cluster.cluster_id, topic_ids=ids, now_ms=ClientWorld().clock.wall_ms())
            attackers = {
                BROKER: Attacker(f"{seed}/broker", BROKER_APIS, known),
                CONTROLLER: Attacker(f"{seed}/controller", CONTROLLER_APIS, known),
            }
            while sent < frames and time.monotonic() < until_s:
                for node, attacker in attackers.items():
                    await target.shout(node, attacker.frames(), waits=attacker.random.random() < 0.7)
                sent += 2
                if sent % FRAMES_BETWEEN_LOOKS == 0:
                    await target.look(f"orderly-{sent}")
            await target.look("orderly")
            await client.close()

    asyncio.run(run())
    return sent


@pytest.mark.timeout(120)
def test_nobody_dies_of_drawn_requests(tmp_path: Path) -> None:
    assert attack(tmp_path, "gate", frames=800, until_s=time.monotonic() + 60) >= 200


@pytest.mark.nightly
@pytest.mark.timeout(NIGHT_S + 300)
def test_nobody_dies_of_drawn_requests_in_half_an_hour(tmp_path: Path) -> None:
    until_s = time.monotonic() + NIGHT_S
    number = 0
    while time.monotonic() < until_s:
        attack(tmp_path / str(number), f"night-{number}", frames=20_000, until_s=until_s)
        number += 1

    assert number
