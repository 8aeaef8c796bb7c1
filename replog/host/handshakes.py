"""TLS of who connects to us: a connection counts from its first moment, not from the end of its handshake.

asyncio's own TLS servers hand a connection over when the handshake is done. Until then nobody could count it, and who begins
handshakes and goes silent would take the node's descriptors past all limits. Therefore sockets are accepted here.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Final

from replog.ports import Incoming

HANDSHAKE_S_MAX: Final = 10
ACCEPT_AGAIN_S: Final = 1.0  # as asyncio's servers
NOTHING_LEFT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class TlsListener:
    """Listening sockets, and the handshakes of who has come."""

    def __init__(
        self, sockets: list[socket.socket], context: ssl.SSLContext, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._sockets = sockets
        self._context = context
        self._factory = factory
        self._tasks: set[asyncio.Task[None]] = set()
        self._shaking: set[socket.socket] = set()
        self._accepting = [self._start(self._accept_all(one)) for one in sockets]

    @property
    def port(self) -> int:
        """The bound port."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Stop accepting, and end the handshakes that are under way; established connections live on."""
        for task in self._accepting:
            task.cancel()
        for one in self._sockets:
            one.close()
        for one in list(self._shaking):  # not cancelled: a transport that was not begun yet would stay open
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            context = {"message": "a listener's task ended with an error", "exception": problem, "task": task}
            task.get_loop().call_exception_handler(context)

    async def _accept_all(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as problem:  # else the peer is gone already
                if problem.errno in NOTHING_LEFT:
                    context = {"message": "socket.accept() out of system resource", "exception": problem}
                    loop.call_exception_handler(context)
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            protocol = self._factory()
            assert isinstance(protocol, Incoming), "it has to count connections before their handshake"
            if protocol.connection_accepted(str(address[0])):
                self._shaking.add(accepted)
                _ = self._start(self._shake_hands(accepted, protocol))
            else:
                accepted.close()

    async def _shake_hands(self, accepted: socket.socket, protocol: Incoming) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S_MAX
            )
        except OSError as problem:  # also what is wrong with certificates, and the end of the time
            protocol.connection_lost(problem)
        except asyncio.CancelledError:
            protocol.connection_lost(None)
            raise
        finally:
            self._shaking.discard(accepted)


async def listening_sockets(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Bind a port of all addresses of a host. `OSError` when one is taken."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as opened:
        sockets = []
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = opened.enter_context(socket.socket(family, kind, protocol))
            one.settimeout(0)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(backlog)
            sockets.append(one)
        opened.pop_all()
    return sockets
