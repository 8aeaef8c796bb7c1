"""Two questions of a controller to one broker at once go by one connection; the first one was nobody's, and stayed open."""

import asyncio
from pathlib import Path

from replog.node.controller import ControllerNode
from replog.types import NodeId
from tests.broker.loopback import running


def test_two_questions_at_once_go_by_one_connection(tmp_path: Path) -> None:
    async def run() -> bool:
        async with running(tmp_path, controllers=1, brokers=1) as cluster:
            controller = cluster.nodes[101]
            assert isinstance(controller, ControllerNode)
            first, second = await asyncio.gather(*(controller._connection_to(NodeId(1)) for _ in range(2)))
            return first is second

    assert asyncio.run(run())
