"""A client's name may be as long as a string can be; the member id that is made of it has to be a string as well."""

import asyncio
from pathlib import Path

import pytest

from replog.__main__ import ClientWorld
from replog.client.connection import Connection
from replog.config import Endpoint
from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import join_group as jg
from tests.broker.loopback import running

SETTINGS = {
    "offsets__topic__num__partitions": 1,
    "offsets__topic__replication__factor": 1,
    "group__initial__rebalance__delay__ms": 0,
}


@pytest.mark.parametrize("version", [3, 9])
def test_a_client_with_the_longest_name_gets_a_member_id(tmp_path: Path, version: int) -> None:
    body = jg.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[jg.JoinGroupRequestProtocol(name="range")],
    )

    async def run() -> None:
        async with running(tmp_path, controllers=1, brokers=1, **SETTINGS) as cluster:
            host, port = cluster.bootstrap.split(":")
            connection = Connection(ClientWorld(), Endpoint(host, int(port)), "\u00e9" * 16_383)
            await connection.open()
            search = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            async with asyncio.timeout(30):
                while True:
                    await connection.send(exchange_of(Api.FIND_COORDINATOR), search, timeout_ms=5000)
                    answer = await connection.send(
                        exchange_of(Api.JOIN_GROUP), body, version=version, timeout_ms=10_000
                    )
                    if answer.error_code in (Error.NONE, Error.MEMBER_ID_REQUIRED):
                        break
                    await asyncio.sleep(0.05)
            assert answer.member_id.startswith("\u00e9")
            assert len(answer.member_id.encode()) <= 32_767
            connection.close()

    asyncio.run(run())
