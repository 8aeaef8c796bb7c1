"""Whether somebody serves at an address: asked as any client asks, past all links."""

import asyncio
import ssl
import struct

from tribunal.clusters.links.probing import PROBE_REQUEST


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


async def refuses(endpoint: tuple[str, int]) -> bool:
    """Return whether a connection there is refused, or reset at once by a relay that leads to nobody."""
    writer = None
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(*endpoint)
            await reader.read(1)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()
    return False
