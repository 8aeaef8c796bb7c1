"""Connections to the other members: a request out, its answer or its failure back, one connection a peer.

A connection is opened when the first request wants it, and again after it was lost. Of the requests that wait for it
only the latest counts: the core has one under way per peer, so that an older one is one it has given up.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config.access import Access
from replog.log.batch import CorruptBatch
from replog.node.boundary import contain
from replog.node.fault_injection_points import strikes
from replog.ports import World
from replog.quorum.events import Failure, Send
from replog.quorum.messages import Reply, VoteRequest
from replog.quorum.translate import PRE_VOTE_VERSION, answer_from_wire, to_wire
from replog.types import NodeId
from replog.wire.apis import Api
from replog.wire.codec import MalformedMessage
from replog.wire.exchange import exchange_of


class QuorumPeers:
    """All connections of one member to the others."""

    def __init__(
        self,
        world: World,
        client_id: str,
        access: Access,
        *,
        request_timeout_ms: int,
        on_answer: Callable[[int, Reply], None],
        on_failure: Callable[[int, Failure], None],
    ) -> None:
        """Take where answers go, by request id; neither is called from within `send`."""
        self._world = world
        self._client_id = client_id
        self._access = access
        self._request_timeout_ms = request_timeout_ms
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._connections: dict[NodeId, Connection] = {}
        self._opening: dict[NodeId, asyncio.Task[None]] = {}
        self._waiting: dict[NodeId, Send] = {}
        self._closed = False

    def send(self, effect: Send) -> None:
        """Send a request, as soon as there is a connection."""
        connection = self._connections.get(effect.to)
        if connection is not None and connection.is_open:
            self._send(connection, effect)
            return
        self._waiting[effect.to] = effect
        if effect.to not in self._opening:
            self._open(effect)

    def _open(self, effect: Send) -> None:
        assert effect.endpoint is not None, f"nobody knows where node {effect.to} is"
        connection = Connection(self._world, effect.endpoint, self._client_id, self._access)
        self._connections[effect.to] = connection
        task = asyncio.get_running_loop().create_task(connection.open(timeout_ms=self._request_timeout_ms))
        self._opening[effect.to] = task
        task.add_done_callback(partial(self._opened, effect.to, connection))

    def _opened(self, peer: NodeId, connection: Connection, task: "asyncio.Task[None]") -> None:
        self._opening.pop(peer, None)
        waiting = self._waiting.pop(peer, None)
        if task.cancelled() or self._closed:
            return
        problem = task.exception()
        self._contain(peer, problem)
        if waiting is None:
            return
        if problem is not None:
            self._on_failure(waiting.request_id, Failure.LOST)
        else:
            self._send(connection, waiting)

    def _send(self, connection: Connection, effect: Send) -> None:
        api, body = to_wire(effect.request)
        loop = asyncio.get_running_loop()
        try:
            if isinstance(effect.request, VoteRequest) and effect.request.pre_vote:
                self._require_pre_vote(connection)
            if strikes(self._world, "quorum request is lost"):
                loop.call_soon(self._fail, effect.request_id, Failure.LOST)
                return
            future = connection.send(exchange_of(api), body, timeout_ms=self._request_timeout_ms)
        except UnsupportedVersion:
            loop.call_soon(self._fail, effect.request_id, Failure.UNSUPPORTED_VERSION)
            return
        future.add_done_callback(partial(self._answered, api, effect))

    def _require_pre_vote(self, connection: Connection) -> None:
        if connection.version_of(Api.VOTE) < PRE_VOTE_VERSION:
            raise UnsupportedVersion("no pre-vote")

    def _answered(self, api: Api, effect: Send, future: "asyncio.Future[object]") -> None:
        if self._closed or future.cancelled():
            return
        problem = future.exception()
        if problem is not None:
            self._contain(effect.to, problem)
            self._on_failure(effect.request_id, Failure.LOST)
            return
        try:
            answer = answer_from_wire(future.result())
        except (CorruptBatch, MalformedMessage) as damage:
            self._world.journal.log("warning", f"node {effect.to} sent damaged records: {damage}")
            self._world.journal.probe("quorum_damaged_fetch")
            answer = None
        except Exception as problem:  # noqa: BLE001  # the boundary of a link; the core comes behind it
            self._contain(effect.to, problem)
            answer = None
        if answer is None:
            self._on_failure(effect.request_id, Failure.LOST)
        else:
            self._on_answer(effect.request_id, answer)

    def _contain(self, peer: NodeId, problem: BaseException | None) -> None:
        """Let an error cost no more than the link to this peer, if it may."""
        if isinstance(problem, ConnectionLost) or problem is None:
            return
        if not isinstance(problem, Exception):
            raise problem
        contain(self._world.journal, f"the link to node {peer}", problem)

    def _fail(self, request_id: int, failure: Failure) -> None:
        if not self._closed:
            self._on_failure(request_id, failure)

    def close(self) -> None:
        """Close all connections; nothing is reported any more."""
        self._closed = True
        for task in list(self._opening.values()):
            task.cancel()
        for connection in self._connections.values():
            connection.close()
