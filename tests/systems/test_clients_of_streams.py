"""The clients of RabbitMQ and of Redis, beside servers that say what theirs say at the worst moment."""

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SYSTEMS: Final = Path(__file__).resolve().parents[2] / "systems"
WITHIN_S: Final = 20
Served = Callable[[socket.socket, int], None]  # a connection, and the how manieth it is


@contextmanager
def serving(serve: Served) -> Iterator[int]:
    """Serve connections one after the other, at this port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            for number in range(2):
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # the test is over
                with connection:
                    serve(connection, number)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(WITHIN_S)


def answered(client: str, options: list[str], port: int, calls: list[tuple[str, int]]) -> list[dict[str, object]]:
    """Let a client call these operations on the stream t0; return how each ended."""
    lines: list[dict[str, object]] = [
        {"type": "init", "client": "1", "timeout_ms": 1000, "nodes": [{"node": 1, "host": "127.0.0.1", "port": port}]},
        *(
            {"type": "invoke", "id": number, "f": f, "key": "t0", "value": value}
            for number, (f, value) in enumerate(calls)
        ),
    ]
    said = subprocess.run(
        [sys.executable, str(SYSTEMS / client / "client.py"), *options],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    ).stdout
    return [json.loads(line) for line in said.splitlines()[1:]]


# --- RabbitMQ ------------------------------------------------------------------------------

METHOD, HEADER, BODY = 1, 2, 3
ANSWERS: Final = {
    (10, 11): (10, 30), (10, 31): None, (10, 40): (10, 41), (20, 10): (20, 11), (85, 10): (85, 11), (50, 10): (50, 11),
    (60, 10): (60, 11), (60, 20): (60, 21), (60, 30): (60, 31),
}  # fmt: skip


class Streams:
    """A broker with one stream, that hangs up behind the first read of its first connection."""

    def __init__(self, elements: list[bytes]) -> None:
        self.entries = elements

    def serve(self, connection: socket.socket, number: int) -> None:
        """Speak AMQP 0-9-1, as little of it as that client needs."""
        stream = connection.makefile("rb")
        stream.read(8)
        self._say(connection, 0, (10, 10))
        confirmed = 0
        while head := stream.read(7):
            kind, channel, size = struct.unpack(">BHI", head)
            content = stream.read(size + 1)[:-1]
            if kind == BODY:
                self.entries.append(content)
                confirmed += 1
                self._say(connection, 1, (60, 80), struct.pack(">QB", confirmed, 0))
            if kind != METHOD:
                continue
            method = struct.unpack(">HH", content[:4])
            if answer := ANSWERS.get(method):
                self._say(connection, channel, answer)
            if method == (60, 20):
                self._deliver(connection, struct.unpack(">q", content[-8:])[0])
            if method == (60, 30) and number == 0:
                return

    def _deliver(self, connection: socket.socket, begin: int) -> None:
        for tag, (offset, body) in enumerate(list(enumerate(self.entries))[begin:], start=1):
            table = b"\x0fx-stream-offsetl" + struct.pack(">q", offset)
            header = struct.pack(">HHQH", 60, 0, len(body), 1 << 13) + struct.pack(">I", len(table)) + table
            self._say(connection, 1, (60, 60), b"\x01c" + struct.pack(">QB", tag, 0) + b"\x00\x02t0")
            self._frame(connection, HEADER, 1, header)
            self._frame(connection, BODY, 1, body)

    def _say(self, connection: socket.socket, channel: int, method: tuple[int, int], more: bytes = b"") -> None:
        self._frame(connection, METHOD, channel, struct.pack(">HH", *method) + more)

    def _frame(self, connection: socket.socket, kind: int, channel: int, content: bytes) -> None:
        connection.sendall(struct.pack(">BHI", kind, channel, len(content)) + content + b"\xce")


def test_a_read_over_a_new_connection_does_not_end_at_a_mark_of_the_one_before() -> None:
    """An answer without entries says that the stream ends: what stands behind an old mark would be missed."""
    broker = Streams([b"10001", b"20001"])
    calls = [("read-stream", 0), ("publish", 30001), ("publish", 40001), ("read-stream", 0)]

    with serving(broker.serve) as port:
        first, refused, _, last = answered("rabbitmq", ["--queue", "stream"], port, calls)

    assert first["value"] == [[0, 10001], [1, 20001]]
    assert refused["type"] != "ok"  # the connection was gone
    assert [body for body in broker.entries if not body.startswith(b"mark")] == [b"10001", b"20001", b"40001"]
    assert last["value"] == [[0, 10001], [1, 20001], [3, 40001]]


# --- Redis ---------------------------------------------------------------------------------


def demoted(connection: socket.socket, number: int) -> None:
    """Take an entry, and load another primary's data from then on."""
    stream = connection.makefile("rb")
    while line := stream.readline():
        words = [stream.read(int(stream.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
        connection.sendall(
            b"$3\r\n5-0\r\n" if words[0] == b"XADD" else b"-LOADING Redis is loading the dataset in memory\r\n"
        )


def test_what_was_written_before_its_confirmation_was_refused_is_in_doubt() -> None:
    """A refused publication that is read later would be an accusation."""
    with serving(demoted) as port:
        (published,) = answered("redis", ["--wait", "1"], port, [("publish", 10001)])

    assert published["type"] == "info"
