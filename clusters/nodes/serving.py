"""Whether somebody serves at an address: asked as any client asks, past all links."""

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal

from tribunal.clusters.links.probing import PROBE_REQUEST

REFUSED_WITHIN_S: Final = 10.0
REFUSED_AGAIN_S: Final = 0.1
REST: Final = 2  # times as long as a look took: looks that start programs must not take the processors from the one who is looked at
REST_MOST_S: Final = 1.0  # a look that hangs takes no processor

Came = Literal["serves", "ended", "silent"]
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def answers(endpoint: tuple[str, int], *, wait_ms: int, tls: ssl.SSLContext | None = None) -> bool:
    """Return whether somebody answers ApiVersions there."""
    writer = None
    try:
        async with asyncio.timeout(wait_ms / 1000):
            reader, writer = await asyncio.open_connection(*endpoint, ssl=tls)
            if writer.transport.is_closing():  # reset already; uvloop would call a write a RuntimeError
                return False
            writer.write(PROBE_REQUEST)
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(length)
            return True
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()


async def came_to_serve(
    look: Callable[[], Awaitable[bool]], is_alive: Callable[[], bool], *, within_ms: int, poll_ms: int
) -> Came:
    """Look at a node that was started until it serves, has ended, or is silent for too long; return which it was."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_ms / 1000
    while True:
        began = loop.time()
        if await look():
            return "serves"
        if not is_alive():
            return "ended"
        if loop.time() > deadline:
            return "silent"
        await rest(loop.time() - began, poll_ms=poll_ms)


async def rest(look_s: float, *, poll_ms: int) -> None:
    """Rest between two looks: longer where a look takes long."""
    await asyncio.sleep(max(poll_ms / 1000, min(REST * look_s, REST_MOST_S)))


async def refuses(
    endpoint: tuple[str, int], *, within_s: float = REFUSED_WITHIN_S, connect: Connect | None = None
) -> bool:
    """Return whether connections there are refused, or reset at once by a relay that leads to nobody; asked until they are.

    One second once is not enough: a busy machine lets the one who asks wait longer than that.
    connect:  how the one who asks gets there, where that is not plain.
    """
    way = connect or partial(asyncio.open_connection, *endpoint)
    deadline = asyncio.get_running_loop().time() + within_s
    while not await _refused_once(way):
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(REFUSED_AGAIN_S)
    return True


async def _refused_once(connect: Connect) -> bool:
    writer = None
    try:
        async with asyncio.timeout(1):
            reader, writer = await connect()
            await reader.read(1)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()
    return False
