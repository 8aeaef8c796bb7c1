"""Calls a PostgreSQL server for the harness: a line of JSON in for each call, a line out for how it ended.

Lists are text, elements with a comma behind each; registers are numbers. A transaction is BEGIN with the isolation level of `--isolation`, a
statement for each step with a rest of at most `--think-ms` before it (an application's own work, without which transactions hardly meet),
COMMIT. Until COMMIT is sent nothing can have taken effect; behind it a broken connection leaves nobody knowing.
With `--keeper N` node N says which node is the primary (keeper.py); without it node 1 is the server.
"""

import contextlib
import json
import random
import socket
import struct
import sys

TABLES = (
    "CREATE TABLE IF NOT EXISTS lists (k text PRIMARY KEY, v text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS registers (k text PRIMARY KEY, v bigint NOT NULL)",
)
LISTS, REGISTERS = "txn-lists", "txn-registers"
READ = {LISTS: "SELECT v FROM lists WHERE k = '%s'", REGISTERS: "SELECT v FROM registers WHERE k = '%s'"}
CHANGE = {
    LISTS: "INSERT INTO lists VALUES ('%s', '%d,') ON CONFLICT (k) DO UPDATE SET v = lists.v || excluded.v",
    REGISTERS: "INSERT INTO registers VALUES ('%s', %d) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
}
ALREADY = ("23505", "42P07", "42710")  # who else makes the same tables at this moment makes them
ROLLED_BACK = ("40001", "40002", "40P01")


class Refused(Exception):
    """An error that PostgreSQL answered: by then the transaction is rolled back."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(f"{code} {words}")
        self.code = code


class Postgres:
    """A connection in PostgreSQL's protocol (version 3): simple queries, text results."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._stream = socket.create_connection((host, port), timeout_s).makefile("rwb")
        words = b"user\0tribunal\0database\0postgres\0\0"
        self._stream.write(struct.pack("!ii", 8 + len(words), 196608) + words)
        self._stream.flush()
        self._rows()

    def ask(self, statement: str) -> list[list[str | None]]:
        """Make a statement; return its rows."""
        text = statement.encode() + b"\0"
        self._stream.write(b"Q" + struct.pack("!i", 4 + len(text)) + text)
        self._stream.flush()
        return self._rows()

    def close(self) -> None:
        """Leave."""
        with contextlib.suppress(OSError):  # what could not be sent is tried once more
            self._stream.close()

    def _rows(self) -> list[list[str | None]]:
        rows: list[list[str | None]] = []
        refused: Refused | None = None
        while True:
            head = self._bytes(5)
            body = self._bytes(struct.unpack("!i", head[1:])[0] - 4)
            if head[:1] == b"D":
                rows.append(columns(body))
            elif head[:1] == b"E":
                said = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
                refused = Refused(said[b"C"], said[b"M"])
                if said[b"S"] in ("FATAL", "PANIC"):
                    raise refused
            elif head[:1] == b"Z":
                if refused is not None:
                    raise refused
                return rows

    def _bytes(self, count: int) -> bytes:
        found = self._stream.read(count)
        if len(found) < count:
            raise EOFError("the connection ended")
        return found


def columns(body: bytes) -> list[str | None]:
    """Take a row apart."""
    found: list[str | None] = []
    place = 2
    for _ in range(struct.unpack_from("!h", body)[0]):
        (length,) = struct.unpack_from("!i", body, place)
        place += 4
        found.append(None if length < 0 else body[place : place + length].decode())
        place += max(0, length)
    return found


def step(postgres: Postgres, function: str, kind: str, key: str, value: int | None) -> int | list[int] | None:
    """Make one step; return what it gives back."""
    if kind != "r":
        postgres.ask(CHANGE[function] % (key, value))
        return value
    rows = postgres.ask(READ[function] % key)
    seen = rows[0][0] if rows else None
    if function == REGISTERS:
        return None if seen is None else int(seen)
    return [int(one) for one in (seen or "").split(",") if one]


def ask_keeper(number: int, host: str, port: int, timeout_s: float) -> str:
    """Ask a keeper in the name of a node, of a client with 0; return the primary's number, nothing when the keeper ended."""
    with socket.create_connection((host, port), timeout_s) as there, there.makefile("rw") as stream:
        stream.write(f"{number}\n")
        stream.flush()
        return stream.readline().strip()


def primary(nodes: list[dict[str, object]], keeper: int, timeout_s: float) -> dict[str, object]:
    """Return the node that is the primary, as the keeper says; 0: there is no keeper."""
    if not keeper:
        return nodes[0]
    there = nodes[keeper - 1]
    number = ask_keeper(0, str(there["host"]), int(str(there["port"])), timeout_s)
    if not number:
        raise EOFError("the keeper ended")
    return nodes[int(number) - 1]


def connected(node: dict[str, object], timeout_s: float) -> Postgres:
    """Return a connection to a server that has the tables."""
    postgres = Postgres(str(node["host"]), int(str(node["port"])), timeout_s)
    for statement in TABLES:
        try:
            postgres.ask(statement)
        except Refused as problem:
            if problem.code not in ALREADY:
                raise
    return postgres


def transact(postgres: Postgres, asked: dict[str, object], isolation: str, think_s: float) -> dict[str, object]:
    """Make one transaction; what is raised comes before COMMIT was sent."""
    function, steps = str(asked["f"]), asked["value"]
    assert isinstance(steps, list)
    try:
        postgres.ask(f"BEGIN ISOLATION LEVEL {isolation}")
        seen = []
        for kind, key, value in steps:
            postgres.ask(f"SELECT pg_sleep({random.uniform(0, think_s):.4f})")
            seen.append([kind, key, step(postgres, function, kind, key, value)])
    except Refused as problem:
        postgres.ask("ROLLBACK")
        return {"type": "fail", "error": str(problem)}
    try:
        postgres.ask("COMMIT")
    except Refused as problem:
        # A serialization failure and a deadlock roll back. What a server says that is being ended, or 40003, says nothing of the commit.
        return {"type": "fail" if problem.code in ROLLED_BACK else "info", "error": str(problem)}
    except (OSError, EOFError) as problem:
        return {"type": "info", "error": f"at COMMIT: {type(problem).__name__}"}
    return {"type": "ok", "value": seen}


def main(isolation: str, think_s: float, keeper: int) -> None:
    """Answer calls until the input ends."""
    init = json.loads(sys.stdin.readline())
    postgres: Postgres | None = None
    say({"type": "init_ok"})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            timeout_s = init["timeout_ms"] / 1000
            postgres = postgres or connected(primary(init["nodes"], keeper, timeout_s), timeout_s)
            ended = transact(postgres, asked, isolation, think_s)
        except (OSError, EOFError, Refused) as problem:  # COMMIT was not sent
            ended = {"type": "fail", "error": type(problem).__name__}
        if ended["type"] != "ok" and postgres is not None and not str(ended.get("error")).startswith("40"):
            postgres.close()
            postgres = None
        say({"id": asked["id"], **ended})


def say(line: dict[str, object]) -> None:
    """Say one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def option(name: str, default: str = "") -> str:
    """Return a word of the command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


if __name__ == "__main__":
    main(option("--isolation"), int(option("--think-ms")) / 1000, int(option("--keeper", "0")))
