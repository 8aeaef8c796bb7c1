"""Relays that end TLS on both sides: what is carried on is known and hindered as without TLS."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.clusters.test_links import PORTS, answer_kafka_frames, ask
from tribunal.clusters.api import CLIENTS, CutMode, Link, until
from tribunal.clusters.capabilities import Fate
from tribunal.clusters.links.frames import Head
from tribunal.clusters.links.relays import CLIENT_HOST, Links, node_host
from tribunal.clusters.nodes.serving import answers
from tribunal.clusters.secured.run_security import RunSecurity

API_VERSIONS_REQUEST = struct.pack(">hhih", 18, 0, 77, -1)
REQUESTS = [Link(CLIENTS, 1)]
NODE = 1


class SecuredNode:
    """A node that answers frames by TLS, behind its relay."""

    def __init__(self, folder: Path) -> None:
        self.port = next(PORTS)
        self.security = RunSecurity(folder / "security")
        self.seen: list[tuple[int, bool]] = []
        self.keystore = folder / "node.pem"
        self.links = Links({NODE: self.port}, on_message=self._note, tls=self.security)

    def _note(self, head: Head, fate: Fate) -> None:
        self.seen.append((head.api, head.is_request))

    def context(self, *, is_expired: bool = False) -> ssl.SSLContext:
        self.security.issue(NODE, [node_host(NODE)], self.keystore, is_expired=is_expired)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.keystore)
        return context

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.links.advertised(NODE)
        return await asyncio.open_connection(host, port, ssl=self.security.context, local_addr=(CLIENT_HOST, 0))


@asynccontextmanager
async def secured_node(folder: Path, *, is_expired: bool = False) -> AsyncIterator[SecuredNode]:
    node = SecuredNode(folder)
    await node.links.open()
    context = node.context(is_expired=is_expired)
    server = await asyncio.start_server(answer_kafka_frames, node_host(NODE), node.port, ssl=context)
    try:
        yield node
    finally:
        await node.links.close()
        server.close()


def test_what_passes_by_tls_is_known_as_without(tmp_path: Path) -> None:
    async def main() -> None:
        async with secured_node(tmp_path) as node:
            connection = await node.connect()
            answer = await ask(connection, API_VERSIONS_REQUEST, 10)
            connection[1].close()

            assert answer == API_VERSIONS_REQUEST[4:]
            assert node.seen == [(18, True), (18, False)]
            assert node.links.traffic(REQUESTS[0]).delivered_bytes == 4 + len(API_VERSIONS_REQUEST)

    asyncio.run(main())


def test_a_cut_holds_what_is_sent_by_tls(tmp_path: Path) -> None:
    async def main() -> None:
        async with secured_node(tmp_path) as node:
            traffic = node.links.traffic(REQUESTS[0])
            await node.links.sever(REQUESTS, CutMode.HOLD)
            connection = await node.connect()
            connection[1].write(struct.pack(">i", len(API_VERSIONS_REQUEST)) + API_VERSIONS_REQUEST)
            await until(lambda: traffic.stopped_bytes > 0, timeout_ms=10_000, what="the request at the cut")
            delivered_bytes = traffic.delivered_bytes
            await node.links.mend(REQUESTS)
            (length,) = struct.unpack(">i", await asyncio.wait_for(connection[0].readexactly(4), 10))
            late = await connection[0].readexactly(length)
            connection[1].close()

            assert delivered_bytes == 0
            assert traffic.stopped_bytes == 4 + len(API_VERSIONS_REQUEST)
            assert late == API_VERSIONS_REQUEST[4:]

    asyncio.run(main())


def test_nobody_is_led_to_a_node_whose_certificate_has_expired(tmp_path: Path) -> None:
    async def main() -> None:
        async with secured_node(tmp_path, is_expired=True) as node:
            connection = await node.connect()

            assert not await answers((node_host(NODE), node.port), wait_ms=10_000, tls=node.security.context)
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await ask(connection, API_VERSIONS_REQUEST, 10)
            connection[1].close()

    asyncio.run(main())


def test_keys_are_for_their_owner_alone_and_the_relays_key_stays_in_memory(tmp_path: Path) -> None:
    security = RunSecurity(tmp_path / "security")

    security.issue(NODE, [node_host(NODE)], tmp_path / "node.pem")
    security.relays(["127.0.2.1"])

    assert (tmp_path / "node.pem").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in security.folder.iterdir()] == ["authority.pem"]
