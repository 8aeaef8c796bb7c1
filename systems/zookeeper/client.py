"""Calls ZooKeeper for the harness, by kazoo: a line of JSON in for each call, a line out for how it ended.

A process stays at its own server, and goes to the next one where that does not answer. With `--sync` a read comes behind a `sync`, as
ZooKeeper's documentation says for who wants to see what others wrote; without, a server answers from what it has itself. A register is
a node, a set one whose children are the elements, a lock a node that one alone can create: its token is that creation's number (czxid).
A stream is a node whose children are made in sequence: the number that ZooKeeper gives is the offset, the element stands before it in the name.
"""

import contextlib
import json
import logging
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

SESSION_S = 4.0
DIGITS = 10  # of the number behind a name that is made in sequence
BEHIND = "--sync" in sys.argv


class Zoo:
    """A session at one server."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._wait_s = timeout_s
        logger = logging.getLogger("kazoo")
        self._kazoo = KazooClient(f"{host}:{port}", timeout=SESSION_S, logger=logger, connection_retry={"max_tries": 0})
        try:
            self._kazoo.start(timeout=timeout_s)
        except BaseException:
            self.close()
            raise

    def read(self, path: str) -> tuple[int | None, int]:
        """Return a node's value and its version; none and -1 where there is no such node."""
        try:
            content, stat = self._kazoo.get_async(path).get(timeout=self._wait_s)
        except NoNodeError:
            return None, -1
        return int(content), stat.version

    def sync(self, path: str) -> None:
        """Let this server have what its leader has."""
        self._kazoo.sync_async(path).get(timeout=self._wait_s)

    def write(self, path: str, value: int, version: int = -1) -> None:
        """Set a node, or make it. Raises BadVersionError."""
        content = str(value).encode()
        try:
            self._kazoo.set_async(path, content, version).get(timeout=self._wait_s)
        except NoNodeError:
            try:
                self.create(path, value)
            except NodeExistsError:
                self._kazoo.set_async(path, content, version).get(timeout=self._wait_s)

    def create(self, path: str, value: int) -> int:
        """Make a node; return the number of that change. Raises NodeExistsError."""
        asked = self._kazoo.create_async(path, str(value).encode(), include_data=True)
        _, stat = asked.get(timeout=self._wait_s)
        return int(stat.czxid)

    def append(self, path: str, value: int) -> int:
        """Make a node in sequence below another one; return its number. Raises NoNodeError where that other one is not there."""
        asked = self._kazoo.create_async(f"{path}/{value}-", b"", sequence=True)
        return int(asked.get(timeout=self._wait_s)[-DIGITS:])

    def entries(self, path: str) -> list[list[int]]:
        """Return the numbers and elements of what was made in sequence, in its order."""
        try:
            names = self._kazoo.get_children_async(path).get(timeout=self._wait_s)
        except NoNodeError:
            return []
        return sorted([int(name[-DIGITS:]), int(name[: -DIGITS - 1])] for name in names)

    def delete(self, path: str, version: int) -> None:
        """Delete a node. Raises BadVersionError or NoNodeError."""
        self._kazoo.delete_async(path, version).get(timeout=self._wait_s)

    def children(self, path: str) -> list[int]:
        """Return the children's names."""
        try:
            return sorted(int(one) for one in self._kazoo.get_children_async(path).get(timeout=self._wait_s))
        except NoNodeError:
            return []

    def close(self) -> None:
        """Hang up."""
        self._kazoo.stop()
        self._kazoo.close()


def swapped(zoo: Zoo, path: str, old: int, new: int) -> dict[str, object]:
    """Set a register where the old value stands; a version that another one made is refused."""
    zoo.sync(path)  # what this server has may be old
    found, version = zoo.read(path)
    if found != old:
        return {"type": "fail", "error": "another value"}
    zoo.write(path, new, version)
    return {"type": "ok"}


def released(zoo: Zoo, path: str, holder: int) -> dict[str, object]:
    """Delete a lock's node where this holder made it."""
    zoo.sync(path)
    held, version = zoo.read(path)
    if held != holder:
        return {"type": "fail", "error": "another one holds it"}
    zoo.delete(path, version)
    return {"type": "ok"}


def answer(zoo: Zoo, function: str, key: str, value: int | list[int] | None) -> dict[str, object]:
    """Call once."""
    path = f"/{key}"
    if function in ("read", "read-all", "read-stream") and BEHIND:
        zoo.sync(path)
    match function, value:
        case "read", _:
            return {"type": "ok", "value": zoo.read(path)[0]}
        case "write", int():
            zoo.write(path, value)
        case "cas", [old, new]:
            return swapped(zoo, path, old, new)
        case "add", int():
            with contextlib.suppress(NodeExistsError):
                zoo.create(path, 0)
            zoo.create(f"{path}/{value}", 0)
        case "read-all", _:
            return {"type": "ok", "value": zoo.children(path)}
        case "publish", int():
            with contextlib.suppress(NodeExistsError):
                zoo.create(path, 0)
            return {"type": "ok", "value": zoo.append(path, value)}
        case "read-stream", int():
            return {"type": "ok", "value": [entry for entry in zoo.entries(path) if entry[0] >= value]}
        case "acquire", int():
            return {"type": "ok", "value": zoo.create(path, value)}
        case "release", int():
            return released(zoo, path, value)
        case _:
            raise ValueError(function)
    return {"type": "ok"}


def main() -> None:
    """Answer calls until the input ends."""
    init = json.loads(sys.stdin.readline())
    nodes, at, timeout_s = init["nodes"], int(init["client"]), init["timeout_ms"] / 4000
    zoo: Zoo | None = None
    say({"type": "init_ok"})
    for line in sys.stdin:
        asked = json.loads(line)
        if zoo is None:
            node = nodes[at % len(nodes)]
            try:
                zoo = Zoo(node["host"], node["port"], timeout_s)
            except (KazooException, KazooTimeoutError, OSError) as problem:  # nothing was sent
                at += 1
                say({"id": asked["id"], "type": "fail", "error": type(problem).__name__})
                continue
        try:
            ended = answer(zoo, asked["f"], asked["key"], asked.get("value"))
        except (BadVersionError, NodeExistsError) as problem:  # ZooKeeper refused it
            ended = {"type": "fail", "error": type(problem).__name__}
        except (KazooException, KazooTimeoutError, OSError) as problem:
            zoo.close()
            zoo, at = None, at + 1
            ended = {"type": "info", "error": type(problem).__name__}
        say({"id": asked["id"], **ended})


def say(line: dict[str, object]) -> None:
    """Say one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
