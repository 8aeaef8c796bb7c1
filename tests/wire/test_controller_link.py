"""A broker's one connection to the active controller: a heartbeat that is not answered in time costs no client its answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from replog.config import Endpoint
from replog.config.access import OPEN_DOOR
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.net.server import Server, ServerLimits, ServerRequest
from replog.types import NodeId
from replog.wire.apis import CONTROLLER_APIS, Api
from replog.wire.messages import broker_heartbeat as hb
from replog.wire.messages import create_topics as ct
from tests.wire.test_server import HOST, SmallWorld

LEADER, NEXT = NodeId(101), NodeId(102)
SOON_MS, LATER_MS = 200, 5000
CREATE = ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
HEARTBEAT = hb.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, current_metadata_offset=1)


class Scene:
    """Two controllers that keep requests for topics to themselves, and a broker's link to the one that leads."""

    def __init__(self) -> None:
        self.world = SmallWorld()
        self.held: list[ServerRequest[Any, Any]] = []
        self.silent: asyncio.Server | None = None
        self.accepted: list[asyncio.StreamWriter] = []
        self.leader = LEADER
        self.places: dict[NodeId, Endpoint] = {}
        self.servers = {
            node: Server(self.world, CONTROLLER_APIS, self._take, ServerLimits()) for node in (LEADER, NEXT)
        }
        where = lambda: (self.leader, self.places[self.leader])  # noqa: E731
        self.link = ControllerLink(self.world, "broker-1", where, OPEN_DOOR, open_timeout_ms=LATER_MS)

    def _take(self, request: ServerRequest[Any, Any]) -> None:
        if request.api is Api.CREATE_TOPICS:
            self.held.append(request)
        else:
            request.reply(hb.BrokerHeartbeatResponse())

    async def start(self) -> None:
        for node, server in self.servers.items():
            self.places[node] = Endpoint(HOST, await server.start(Endpoint(HOST, 0)))

    async def stop(self) -> None:
        self.link.close()
        for server in self.servers.values():
            server.stop()
        if self.silent is not None:
            self.silent.close()
        for writer in self.accepted:
            writer.close()
        await asyncio.sleep(0)
        self.world.disk.close()

    async def silence_leader(self) -> None:
        """Let it accept connections, and answer nothing."""
        self.silent = await asyncio.start_server(lambda _, writer: self.accepted.append(writer), HOST, 0)
        self.places[LEADER] = Endpoint(HOST, self.silent.sockets[0].getsockname()[1])
        self.link.open_timeout_ms = SOON_MS

    async def create(self, *, must_not_repeat: bool) -> "asyncio.Task[ct.CreateTopicsResponse]":
        """Ask for a topic; return when the controller has the request."""
        asked = self.link.send(ct.EXCHANGE, CREATE, timeout_ms=LATER_MS, must_not_repeat=must_not_repeat)
        task = asyncio.create_task(asked)
        async with asyncio.timeout(LATER_MS / 1000):
            while not self.held:  # noqa: ASYNC110
                await asyncio.sleep(0)
        return task

    async def beat(self) -> hb.BrokerHeartbeatResponse:
        return await self.link.send(hb.EXCHANGE, HEARTBEAT, timeout_ms=SOON_MS)

    def answer(self) -> None:
        self.held.pop(0).reply(ct.CreateTopicsResponse(throttle_time_ms=7))


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        await scene.start()
        try:
            async with asyncio.timeout(2 * LATER_MS / 1000):
                await scenario(scene)
        finally:
            await scene.stop()

    asyncio.run(main())


def test_a_topic_is_answered_after_a_heartbeat_behind_it_has_waited_too_long() -> None:
    """The client got REQUEST_TIMED_OUT after a second, while its topic was made."""

    async def scenario(scene: Scene) -> None:
        asked = await scene.create(must_not_repeat=True)
        with pytest.raises(NoController):
            await scene.beat()
        assert (await scene.beat()).error_code == 0  # by a connection of its own

        scene.answer()

        assert (await asked).throttle_time_ms == 7

    play(scenario)


def test_what_can_be_asked_again_fails_with_the_heartbeat() -> None:
    """Its asker goes on by the next connection."""

    async def scenario(scene: Scene) -> None:
        asked = await scene.create(must_not_repeat=False)

        with pytest.raises(NoController):
            await scene.beat()

        with pytest.raises(NoController) as problem:
            await asked
        assert problem.value.was_sent

    play(scenario)


def test_a_former_connection_is_closed_with_its_last_answer() -> None:
    async def scenario(scene: Scene) -> None:
        asked = await scene.create(must_not_repeat=True)
        with pytest.raises(NoController):
            await scene.beat()
        (request,) = scene.held
        assert not request.is_answered

        scene.answer()
        await asked

        assert [one.has_ended for one in scene.link._former] == [True]

    play(scenario)


def test_nobody_waits_for_who_does_not_lead_any_more() -> None:
    async def scenario(scene: Scene) -> None:
        asked = await scene.create(must_not_repeat=True)
        with pytest.raises(NoController):
            await scene.beat()

        scene.leader = NEXT
        await scene.beat()

        with pytest.raises(NoController):
            await asked

    play(scenario)


def test_ten_who_wait_for_a_controller_that_is_silent_wait_for_one_time_out() -> None:
    """They tried one after the other: a heartbeat came behind the time-outs of all clients that wanted something."""

    async def scenario(scene: Scene) -> None:
        await scene.silence_leader()

        async with asyncio.timeout(5 * SOON_MS / 1000):
            answers = await asyncio.gather(*(scene.beat() for _ in range(10)), return_exceptions=True)

        assert [type(answer) for answer in answers] == [NoController] * 10

    play(scenario)


def test_who_waited_in_vain_for_the_former_leader_asks_the_next() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.silence_leader()
        first, second = (asyncio.create_task(scene.beat()) for _ in range(2))
        await asyncio.sleep(0)

        scene.leader = NEXT

        with pytest.raises(NoController):
            await first
        assert (await second).error_code == 0

    play(scenario)
