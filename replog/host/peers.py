"""What the system knows of the other end of a connection that is not read."""

import fcntl
import socket
import struct
import sys
import termios
from asyncio import BaseTransport
from typing import Final

from replog.ports import Peering

TCP_CLOSE_WAIT: Final = 8  # the peer has said its last
TCP_CLOSE: Final = 7  # reset: it is gone, and so is what it sent


def peering_of(transport: BaseTransport) -> Peering | None:
    """Return how the peer of a connection is, None where this system does not say."""
    connection = transport.get_extra_info("socket")
    if connection is None or not sys.platform.startswith("linux"):
        return None
    try:
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state == TCP_CLOSE_WAIT:
            (unread_bytes,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)))
            return Peering.FINISHED if unread_bytes else Peering.GONE
    except OSError:
        return Peering.GONE
    return Peering.GONE if state == TCP_CLOSE else Peering.THERE
