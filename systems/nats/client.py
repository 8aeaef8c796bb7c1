"""Keeps sets in NATS JetStream for the harness: a line of JSON in for each call, a line out for how it ended.

A set is a stream with a replica on each server, an element is a message that JetStream acknowledged. A set is read from the
stream's leader, message by message, for a consumer may live on a replica that lags behind.
"""

import base64
import itertools
import json
import os
import socket
import sys
import time

API = "$JS.API.STREAM"
NO_STREAM, NO_MESSAGE = 10059, 10037
NO_RESPONDERS = b"503"
CONNECTIONS = itertools.count()
GONE_S = 5.0  # a leader that has only just been elected may not know its streams yet


class Refused(Exception):
    """An error that JetStream answered, by its number."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(f"{words} ({number})")
        self.number = number


class Unheard(Exception):
    """Nobody listens to this subject, so nobody got the message."""


class Nats:
    """A connection in NATS' protocol, with an inbox of its own."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._stream = socket.create_connection((host, port), timeout_s).makefile("rwb")
        self._inbox = f"_INBOX.{os.getpid()}-{next(CONNECTIONS)}"  # no answer to a former connection comes here
        self._count = 0
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
        if not self._stream.readline().startswith(b"INFO"):
            raise EOFError
        hello = b"CONNECT %s\r\nSUB %s.* 1\r\nPING\r\n"
        self._stream.write(hello % (json.dumps(options).encode(), self._inbox.encode()))
        self._stream.flush()
        while self._line() != b"PONG":
            pass

    def ask(self, *asked: tuple[str, bytes]) -> list[bytes | None]:
        """Ask all at once; return the answers in the order of the questions, None where nobody listens. Raises OSError, EOFError."""
        places = {}
        for place, (subject, payload) in enumerate(asked):
            self._count += 1
            reply = f"{self._inbox}.{self._count}".encode()
            places[reply] = place
            self._stream.write(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply, len(payload), payload))
        self._stream.flush()
        answers: list[bytes | None] = [None] * len(asked)
        while places:
            subject, answer = self._message()
            answers[places.pop(subject)] = answer
        return answers

    def _message(self) -> tuple[bytes, bytes | None]:
        """Return the next message's subject and content, None where the server says that nobody listens."""
        while True:
            verb, *words = self._line().split(b" ")
            if verb == b"PING":
                self._stream.write(b"PONG\r\n")
                self._stream.flush()
            elif verb == b"MSG":
                return words[0], self._bytes(int(words[-1]))
            elif verb == b"HMSG":
                head, whole = int(words[-2]), self._bytes(int(words[-1]))
                status = whole[:head].split(b"\r\n")[0].split(b" ")[1:2]
                return words[0], None if status == [NO_RESPONDERS] else whole[head:]
            elif verb == b"-ERR":
                raise EOFError

    def _line(self) -> bytes:
        line = self._stream.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        return line[:-2]

    def _bytes(self, count: int) -> bytes:
        found = self._stream.read(count + 2)
        if len(found) < count + 2:
            raise EOFError
        return found[:-2]


def said(answer: bytes | None) -> dict:
    """Return what an answer says. Raises Refused, Unheard."""
    if answer is None:
        raise Unheard
    found = json.loads(answer)
    if "error" in found:
        raise Refused(found["error"].get("err_code", 0), found["error"].get("description", ""))
    return found


class Sets:
    """The sets, over a connection to one server at a time."""

    def __init__(self, nodes: list[dict], first: int, timeout_s: float) -> None:
        self._nodes = nodes
        self._next = first
        self._timeout_s = timeout_s
        self._nats: Nats | None = None
        self._made: set[str] = set()
        self._missing_since: dict[str, float] = {}

    def call(self, function: str, key: str, element: int | None) -> dict[str, object]:
        """Call once: `fail` until an element was sent, and where nobody got it."""
        is_sent = False
        try:
            if self._nats is None:
                node = self._nodes[self._next % len(self._nodes)]
                self._nats = Nats(node["host"], node["port"], self._timeout_s)
            if function == "read-all":
                return {"type": "ok", "value": self._elements(self._nats, key)}
            self._make(self._nats, key)
            is_sent = True
            said(*self._nats.ask((f"sets.{key}", str(element).encode())))
        except Unheard:
            return {"type": "fail", "error": "nobody listens"}
        except Refused as problem:
            return {"type": "info" if is_sent else "fail", "error": str(problem)}
        except (OSError, EOFError) as problem:
            self._nats, self._next = None, self._next + 1
            return {"type": "info" if is_sent else "fail", "error": type(problem).__name__}
        return {"type": "ok"}

    def _make(self, nats: Nats, key: str) -> None:
        """Have a stream for a set; that it is there already is fine."""
        if key not in self._made:
            config = {"name": key, "subjects": [f"sets.{key}"], "storage": "file", "num_replicas": len(self._nodes)}
            said(*nats.ask((f"{API}.CREATE.{key}", json.dumps(config).encode())))
            self._made.add(key)

    def _elements(self, nats: Nats, key: str) -> list[int]:
        """Return a set's elements; one that has had no stream for some time is empty."""
        try:
            state = said(*nats.ask((f"{API}.INFO.{key}", b'{"deleted_details": true}')))["state"]
        except Refused as problem:
            now_s = time.monotonic()
            if problem.number == NO_STREAM and now_s - self._missing_since.setdefault(key, now_s) >= GONE_S:
                return []
            raise
        self._missing_since.pop(key, None)
        gone = set(state.get("deleted") or [])
        places = [place for place in range(max(1, state["first_seq"]), state["last_seq"] + 1) if place not in gone]
        found = []
        for answer in nats.ask(*((f"{API}.MSG.GET.{key}", b'{"seq": %d}' % place) for place in places)):
            try:
                found.append(int(base64.b64decode(said(answer)["message"]["data"])))
            except Refused as problem:
                if problem.number != NO_MESSAGE:
                    raise
        return sorted(found)


def main() -> None:
    """Answer calls until the input ends."""
    init = json.loads(sys.stdin.readline())
    # Each wait of a call gets a part of its time: connect, make a stream, add.
    sets = Sets(init["nodes"], int(init["client"]), init["timeout_ms"] / 1000 / 2)
    say({"type": "init_ok"})
    for line in sys.stdin:
        asked = json.loads(line)
        say({"id": asked["id"], **sets.call(asked["f"], asked["key"], asked.get("value"))})


def say(line: dict[str, object]) -> None:
    """Say one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
