"""A client as a process that speaks JSON lines: one line in for each call, one line out for how it ended.

    -> {"type": "init", "client": "writer-1", "timeout_ms": 1000, "nodes": [{"node": 1, "host": "127.0.1.1", "port": 20007}]}
    <- {"type": "init_ok"}
    -> {"type": "invoke", "id": 1, "f": "write", "key": "r0", "value": 5}
    <- {"type": "ok", "id": 1}            or "fail" (surely without effect), "info" (nobody knows), with an "error"; and with the "node" that answered

It is ended when it does not answer in time, and begun anew for the next call: what it was doing counts as `info`. So a hung
client never holds up the end of a run. So is one whose line is longer than the harness reads. What it writes to stderr goes to the run's logs.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.node_process import last_lines, put_to_end, start_to_speak
from tribunal.clusters.objects import TRANSACTIONS, ObjectAnswer, ObjectOperation, ObjectValue
from tribunal.clusters.systems.description import CALL_GRACE_MS, Addresses, Client
from tribunal.results.object_transactions import Steps, must_answer
from tribunal.results.object_values import answer_of
from tribunal.results.unreadable import UNREADABLE

INIT_MS: Final = 10_000
CLOSE_MS: Final = 500
LINE_BYTES: Final = 1 << 24  # a set that is read whole
HUNG: Final = "the client did not answer in time and was ended"
GONE: Final = "the client ended"
TOO_LONG: Final = f"answered with a line above {LINE_BYTES >> 20} MiB and was ended"


class NodeAddress(msgspec.Struct, frozen=True):
    """Where a client finds a node."""

    node: int
    host: str
    port: int


class Init(msgspec.Struct, frozen=True, kw_only=True, tag="init"):
    """What a client is told first."""

    client: str
    timeout_ms: int
    nodes: tuple[NodeAddress, ...]


class Invoke(msgspec.Struct, frozen=True, kw_only=True, tag="invoke"):
    """A call."""

    id: int
    f: ObjectOperation
    key: str
    value: ObjectValue


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says; the value's shape depends on what was asked. `node`: which one answered, if the client knows."""

    type: Literal["init_ok", "ok", "fail", "info"]
    id: int | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    node: int | None = None


class LineTooLong(Exception):
    """A client's line is longer than the harness reads."""


class Adapter:
    """One client; implements `tribunal.clusters.objects.ObjectClient`."""

    def __init__(
        self, client: Client, client_id: str, addresses: Addresses, run_dir: Path, prefix: Sequence[str] = ()
    ) -> None:
        self._client = client
        self._init = Init(
            client=client_id,
            timeout_ms=client.timeout_ms,
            nodes=tuple(NodeAddress(node, *addresses.endpoint(node)) for node in sorted(addresses.hosts)),
        )
        self._command = addresses.command(client.command, None)
        if not Path(self._command[0]).is_file():
            raise ClusterError(f"the client's command: there is no program {self._command[0]}")
        self._log = run_dir / "logs" / f"client-{client_id}.log"
        self._run_dir = run_dir
        self._prefix = prefix
        self._process: asyncio.subprocess.Process | None = None
        self._count = 0

    async def call(self, operation: ObjectOperation, key: str, value: ObjectValue) -> ObjectAnswer:
        """Call an operation; a client that hangs or ends leaves nobody knowing what it did."""
        if self._process is None:
            await self._begin()
        self._count += 1
        invoke = Invoke(id=self._count, f=operation, key=key, value=value)
        try:
            reply = await self._asked(msgspec.json.encode(invoke), self._client.timeout_ms + CALL_GRACE_MS)
        except TimeoutError:
            await self._end()
            return ObjectAnswer(outcome="info", error=HUNG)
        except (OSError, EOFError):
            await self._end()
            return ObjectAnswer(outcome="info", error=GONE)
        except LineTooLong:
            await self._end()
            return ObjectAnswer(outcome="info", error=f"client {self._init.client} {TOO_LONG}")
        if reply.type == "init_ok" or reply.id != self._count:
            raise self._wrong(f"answered {reply.type} of id {reply.id} to id {self._count}")
        if reply.node is not None and all(reply.node != one.node for one in self._init.nodes):
            raise self._wrong(f"said that node {reply.node} answered, which there is not")
        try:
            said = _value(operation, value, reply)
        except ValueError as problem:
            raise self._wrong(f"answered {operation} with {bytes(reply.value)[:200]!r}: {problem}") from None
        return ObjectAnswer(outcome=reply.type, value=said, error=reply.error, node=reply.node)

    async def _begin(self) -> None:
        self._process = await start_to_speak(
            self._prefix, self._command, self._log, self._run_dir, line_bytes=LINE_BYTES
        )
        try:
            reply = await self._asked(msgspec.json.encode(self._init), INIT_MS)
        except (TimeoutError, OSError, EOFError) as problem:
            await self._end()
            raise self._wrong(f"did not say init_ok ({type(problem).__name__})") from None
        except LineTooLong:
            await self._end()
            raise self._wrong(TOO_LONG) from None
        if reply.type != "init_ok":
            raise self._wrong(f"answered {reply.type} to init")

    async def _asked(self, line: bytes, timeout_ms: int) -> Reply:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(timeout_ms / 1000):
            if self._process.stdin.is_closing():  # (uvloop calls a write to what has gone a RuntimeError)
                raise BrokenPipeError
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()
            try:
                answer = await self._process.stdout.readline()
            except ValueError:
                raise LineTooLong from None
        if not answer.endswith(b"\n"):
            raise EOFError
        try:
            return msgspec.json.decode(answer, type=Reply)
        except UNREADABLE as problem:
            raise self._wrong(f"said {answer[:200]!r}: {problem}") from None

    def _wrong(self, what: str) -> ClusterError:
        return ClusterError(f"client {self._init.client} {what}; its log {self._log} ends:\n{last_lines(self._log)}")

    async def close(self) -> None:
        """End it: its input ends, and it is killed unless it follows at once."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), CLOSE_MS / 1000)
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await put_to_end(process)


def _value(operation: ObjectOperation, asked: ObjectValue, reply: Reply) -> ObjectValue:
    """Return the value that a call ended with. Raises ValueError when it is none of the operation's."""
    if reply.type != "ok":
        return None
    if operation not in TRANSACTIONS:
        return answer_of(operation, reply.value)
    said = msgspec.json.decode(reply.value, type=Steps)
    must_answer(operation, msgspec.convert(asked, Steps), said)
    return said
