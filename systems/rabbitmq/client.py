"""Puts elements into queues and streams of RabbitMQ for the harness: a line of JSON in for each call, a line out for how it ended.

It speaks AMQP 0-9-1; no driver is needed. A process stays at its own node, and goes to the next one where that does not answer. An
element is acknowledged when RabbitMQ confirms its publication; with `--unconfirmed` when it is sent. RabbitMQ confirms no
acknowledgement of an element that was given out: that is `info`.

Of a stream (`--queue stream`) nobody says where it ends. So who reads it publishes a mark first, and has read to the end when the mark comes.
"""

import json
import os
import socket
import struct
import sys
import time
from itertools import count

CALL_S = 2.0
HEARTBEAT_S = 1  # whoever says nothing for two of them is hung up on, and what it has not acknowledged is given back
GIVEN_BACK_S = 5.0  # within which that has come to pass
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8

START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK, CLOSE, CLOSE_OK = ((10, one) for one in (10, 11, 30, 31, 40, 41, 50, 51))
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE = (20, 10), (20, 11), (20, 40)
DECLARE, DECLARE_OK = (50, 10), (50, 11)
PUBLISH, RETURN, GET, GET_OK, GET_EMPTY = (60, 40), (60, 50), (60, 70), (60, 71), (60, 72)
QOS, QOS_OK, CONSUME, CONSUME_OK, CANCEL, CANCEL_OK, DELIVER = ((60, one) for one in (10, 11, 20, 21, 30, 31, 60))
DELIVERED, NACK, RECOVER, RECOVER_OK = (60, 80), (60, 120), (60, 110), (60, 111)
SELECT, SELECT_OK = (85, 10), (85, 11)

PREFETCH = 1_000  # a stream gives nothing to who does not say how much he takes
ENTRIES = 2_000  # in one answer
OF_PROPERTIES = 15  # bits that say which properties a message has, the first one's
HEADERS = 13
OFFSET = "x-stream-offset"
MARK = b"mark "
NUMBERS = count(1)  # of marks: of all connections, for those of one that broke are in the stream yet

Method = tuple[int, int]


class Refused(Exception):
    """RabbitMQ closed the channel or the connection, or said something else than was asked."""


def short(text: str) -> bytes:
    """Return a short string."""
    return bytes([len(text)]) + text.encode()


def long(content: bytes) -> bytes:
    """Return a long string, or a table."""
    return struct.pack(">I", len(content)) + content


class Rabbit:
    """A connection with one channel, whose publications are confirmed."""

    def __init__(self, host: str, port: int, kind: str) -> None:
        self._kind = kind
        self._declared: set[str] = set()
        self._tags: dict[tuple[str, int], int] = {}
        self._published = 0
        self._returned = False
        self._socket = socket.create_connection((host, port), CALL_S)
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._answer(START)
        self._send(0, START_OK, long(b"") + short("PLAIN") + long(b"\0guest\0guest") + short("en_US"))
        self._answer(TUNE)
        self._send(0, TUNE_OK, struct.pack(">HIH", 1, 1 << 17, HEARTBEAT_S))
        self._send(0, OPEN, short("/") + short("") + b"\0")
        self._answer(OPEN_OK)
        self._send(1, CHANNEL_OPEN, short(""))
        self._answer(CHANNEL_OPEN_OK)
        self._send(1, SELECT, b"\0")
        self._answer(SELECT_OK)

    def _frame(self, kind: int, channel: int, content: bytes) -> bytes:
        return struct.pack(">BHI", kind, channel, len(content)) + content + b"\xce"

    def _send(self, channel: int, method: Method, arguments: bytes, *more: bytes) -> None:
        self._socket.sendall(self._frame(METHOD, channel, struct.pack(">HH", *method) + arguments) + b"".join(more))

    def _read(self) -> tuple[int, bytes]:
        head = self._stream.read(7)
        if len(head) < 7:
            raise EOFError
        kind, _, size = struct.unpack(">BHI", head)
        content = self._stream.read(size + 1)
        if len(content) <= size:
            raise EOFError
        return kind, content[:-1]

    def _answer(self, *wanted: Method) -> tuple[Method, bytes]:
        """Return the next method that is wanted; what was returned as belonging to no queue is noted."""
        deadline_s = time.monotonic() + CALL_S
        while time.monotonic() < deadline_s:  # heartbeats come for ever
            kind, content = self._read()
            if kind != METHOD:
                continue
            method: Method = struct.unpack(">HH", content[:4])
            if method in wanted:
                return method, content[4:]
            if method == RETURN:
                self._returned = True
            elif method not in (DELIVERED, NACK):  # of a publication that was given up before
                raise Refused(f"{method} {content[4:]!r}"[:200])
        raise TimeoutError

    def beat(self) -> None:
        """Say that this client is there."""
        self._socket.sendall(self._frame(HEARTBEAT, 0, b""))

    def declare(self, queue: str) -> None:
        """Make a queue, unless it is there."""
        if queue not in self._declared:
            arguments = short("x-queue-type") + b"S" + long(self._kind.encode())
            self._send(1, DECLARE, b"\0\0" + short(queue) + b"\x02" + long(arguments))
            self._answer(DECLARE_OK)
            self._declared.add(queue)

    def publish(self, queue: str, body: bytes, *, persistent: bool, confirmed: bool) -> dict[str, object]:
        """Put an element into a queue, or to the end of a stream."""
        mode = 2 if persistent else 1
        self._published += 1
        self._returned = False
        header = struct.pack(">HHQHB", 60, 0, len(body), 1 << 12, mode)
        more = self._frame(HEADER, 1, header), self._frame(BODY, 1, body)
        self._send(1, PUBLISH, b"\0\0" + short("") + short(queue) + b"\x01", *more)
        while confirmed:
            method, content = self._answer(DELIVERED, NACK)
            tag, flags = struct.unpack(">QB", content[:9])
            if tag == self._published or (tag > self._published and flags & 1):
                if method == NACK:
                    return {"type": "info", "error": "not confirmed"}
                return {"type": "fail", "error": "no queue"} if self._returned else {"type": "ok"}
        return {"type": "ok"}

    def get(self, queue: str) -> int | None:
        """Take an element out, None where there is none; it is kept for this channel."""
        self._send(1, GET, b"\0\0" + short(queue) + b"\0")
        method, content = self._answer(GET_OK, GET_EMPTY)
        if method == GET_EMPTY:
            return None
        (tag,) = struct.unpack(">Q", content[:8])
        body = b""
        kind, header = self._read()
        while kind == HEARTBEAT:
            kind, header = self._read()
        (size,) = struct.unpack(">Q", header[4:12])
        while len(body) < size:
            kind, part = self._read()
            body += part if kind == BODY else b""
        self._tags[queue, int(body)] = tag
        return int(body)

    def entries(self, stream: str, begin: int) -> dict[str, object]:
        """Read a stream from an offset on, to its end."""
        number = next(NUMBERS)
        mark = MARK + f"{os.getpid()} {number}".encode()
        marked = self.publish(stream, mark, persistent=True, confirmed=True)
        if marked["type"] != "ok":
            return {"type": "info", "error": "its end is not marked"}
        self._send(1, QOS, struct.pack(">IHB", 0, PREFETCH, 0))
        self._answer(QOS_OK)
        offset = short(OFFSET) + b"l" + struct.pack(">q", begin)
        tag = f"reader-{number}"
        self._send(1, CONSUME, b"\0\0" + short(stream) + short(tag) + b"\0" + long(offset))
        self._answer(CONSUME_OK)
        found: list[tuple[int, int]] = []
        while len(found) < ENTRIES:
            place, body = self._delivered()
            if body == mark:
                break
            if place >= begin and not body.startswith(MARK):
                found.append((place, int(body)))
        self._send(1, CANCEL, short(tag) + b"\0")
        self._skipped_to(CANCEL_OK)
        return {"type": "ok", "value": found}

    def _delivered(self) -> tuple[int, bytes]:
        """Return the next message of a stream and its offset; it is acknowledged, for more to come."""
        deadline_s = time.monotonic() + CALL_S
        while time.monotonic() < deadline_s:
            kind, content = self._read()
            if kind != METHOD or struct.unpack(">HH", content[:4]) != DELIVER:
                continue  # a confirmation, or a heartbeat
            own = content[5:][content[4] :]
            (tag,) = struct.unpack(">Q", own[:8])
            place, body = self._content()
            self._send(1, DELIVERED, struct.pack(">QB", tag, 0))
            return place, body
        raise TimeoutError

    def _skipped_to(self, wanted: Method) -> None:
        """Read on until a method comes, past what was delivered meanwhile."""
        while True:
            kind, content = self._read()
            if kind == METHOD and struct.unpack(">HH", content[:4]) == wanted:
                return

    def _content(self) -> tuple[int, bytes]:
        """Return a message's offset in its stream, and its body."""
        kind, header = self._read()
        while kind != HEADER:
            kind, header = self._read()
        size, flags = struct.unpack(">QH", header[4:14])
        rest, place = header[14:], -1
        for bit in range(OF_PROPERTIES, HEADERS - 1, -1):
            if flags & (1 << bit) and bit > HEADERS:
                rest = rest[1 + rest[0] :]
            elif flags & (1 << bit):
                table = rest[4 : 4 + struct.unpack(">I", rest[:4])[0]]
                at = table.find(short(OFFSET))
                (place,) = struct.unpack(">q", table[at + len(short(OFFSET)) + 1 :][:8]) if at >= 0 else (-1,)
        body = b""
        while len(body) < size:
            kind, part = self._read()
            body += part if kind == BODY else b""
        return place, body

    def acknowledge(self, queue: str, element: int) -> bool:
        """Say that an element is done with; False where it was given back before."""
        tag = self._tags.pop((queue, element), None)
        if tag is None:
            return False
        self._send(1, DELIVERED, struct.pack(">QB", tag, 0))
        return True

    def recover(self) -> None:
        """Give back what this channel has not acknowledged, and wait until those that are gone have done so."""
        self._tags.clear()
        self._send(1, RECOVER, b"\x01")
        self._answer(RECOVER_OK)
        until_s = time.monotonic() + GIVEN_BACK_S
        while time.monotonic() < until_s:
            self.beat()
            time.sleep(HEARTBEAT_S / 2)  # noqa: TID251 - a program of its own

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()


def answer(rabbit: Rabbit, function: str, queue: str, element: int | None) -> dict[str, object]:
    """Call once."""
    match function, element:
        case "enqueue", int():
            confirmed, persistent = "--unconfirmed" not in sys.argv, "--transient" not in sys.argv
            return rabbit.publish(queue, str(element).encode(), persistent=persistent, confirmed=confirmed)
        case "publish" | "publish-none", int():
            return rabbit.publish(queue, str(element).encode(), persistent=True, confirmed=function == "publish")
        case "read-stream", int():
            return rabbit.entries(queue, element)
        case "dequeue", _:
            return {"type": "ok", "value": rabbit.get(queue)}
        case "acknowledge", int():
            if rabbit.acknowledge(queue, element):
                return {"type": "info", "error": "RabbitMQ confirms no acknowledgement"}
            return {"type": "fail", "error": "it was given back before"}
        case "redeliver", _:
            rabbit.recover()
            return {"type": "ok"}
        case _:
            raise ValueError(function)


def main(kind: str) -> None:
    """Answer calls until the input ends."""
    init = json.loads(sys.stdin.readline())
    nodes, at = init["nodes"], int(init["client"])
    rabbit: Rabbit | None = None
    say({"type": "init_ok"})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if rabbit is None:
                node = nodes[at % len(nodes)]
                rabbit = Rabbit(node["host"], node["port"], kind)
            rabbit.beat()
            rabbit.declare(asked["key"])
        except (Refused, OSError, EOFError) as problem:  # nothing of the call was sent
            rabbit, at = None, at + 1
            say({"id": asked["id"], "type": "fail", "error": str(problem) or type(problem).__name__})
            continue
        try:
            ended = answer(rabbit, asked["f"], asked["key"], asked.get("value"))
        except (Refused, OSError, EOFError) as problem:
            rabbit.close()
            rabbit, at = None, at + 1
            ended = {"type": "info", "error": str(problem) or type(problem).__name__}
        say({"id": asked["id"], **ended})


def say(line: dict[str, object]) -> None:
    """Say one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("--queue") + 1])
