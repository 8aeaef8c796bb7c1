"""Calls etcd's JSON gateway for the harness: a line of JSON in for each call, a line out for how it ended.

A process stays at its own node, and goes to the next one where that does not answer. With `--consistency s` a node
answers reads from what it has itself (serializable); with `l` it asks its leader first (linearizable, the default).

A set is a key for each element. With `--conditions N` an element is added if N other keys are there, which takes a node some time.
"""

import base64
import json
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException


class Refused(Exception):
    """An answer that is an error."""


def coded(text: str) -> str:
    """Return a key or a value as the gateway takes it."""
    return base64.b64encode(text.encode()).decode()


BATCH = 100  # keys that one transaction writes: etcd takes 128 operations
CONDITIONS = "conditions/"


def span(beginning: str) -> dict[str, object]:
    """Return all keys that begin so."""
    return {"key": coded(beginning), "range_end": coded(beginning[:-1] + chr(ord(beginning[-1]) + 1))}


def request_of(
    function: str, key: str, value: int | list[int] | None, consistency: str, conditions: int
) -> tuple[str, object]:
    """Return the path and the body of an operation."""
    name = coded(key)
    match function, value:
        case "read", _:
            return "/v3/kv/range", {"key": name, "serializable": consistency == "s"}
        case "write", int():
            return "/v3/kv/put", {"key": name, "value": coded(str(value))}
        case "read-all", _:
            return "/v3/kv/range", {**span(f"{key}/"), "keys_only": True, "serializable": consistency == "s"}
        case "add", int():
            there = {**span(CONDITIONS), "target": "VERSION", "result": "GREATER", "version": "0"}
            put = {"requestPut": {"key": coded(f"{key}/{value}"), "value": ""}}
            return "/v3/kv/txn", {"compare": [there] if conditions else [], "success": [put]}
        case "cas", [old, new]:
            compared = {"key": name, "target": "VALUE", "result": "EQUAL", "value": coded(str(old))}
            put = {"requestPut": {"key": name, "value": coded(str(new))}}
            return "/v3/kv/txn", {"compare": [compared], "success": [put]}
        case _:
            raise ValueError(function)


def answer(connection: HTTPConnection, function: str, path: str, body: object) -> dict[str, object]:
    """Call once."""
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode()
    if response.status != 200:
        raise Refused(text[:200])
    found = json.loads(text)
    if function == "read":
        pairs = found.get("kvs", [])
        return {"type": "ok", "value": int(base64.b64decode(pairs[0]["value"])) if pairs else None}
    if function == "read-all":
        names = [base64.b64decode(pair["key"]).decode() for pair in found.get("kvs", [])]
        return {"type": "ok", "value": sorted(int(name.rpartition("/")[2]) for name in names)}
    if function in ("cas", "add") and not found.get("succeeded", False):
        return {"type": "fail", "error": "another value"}
    return {"type": "ok"}


def fillings(count: int) -> Iterator[object]:
    """Yield transactions that write the keys which additions ask for."""
    for first in range(0, count, BATCH):
        names = [coded(f"{CONDITIONS}{number}") for number in range(first, min(first + BATCH, count))]
        yield {"success": [{"requestPut": {"key": name, "value": ""}} for name in names]}


def main(consistency: str, conditions: int) -> None:
    """Answer calls until the input ends."""
    init = json.loads(sys.stdin.readline())
    nodes, timeout_s = init["nodes"], init["timeout_ms"] / 1000
    at = int(init["client"])
    connection: HTTPConnection | None = None
    left = list(fillings(conditions)) if at == 1 else []  # written one with each call, before it
    say({"type": "init_ok"})
    for line in sys.stdin:
        asked = json.loads(line)
        path, body = request_of(asked["f"], asked["key"], asked.get("value"), consistency, conditions)
        if connection is None:
            node = nodes[at % len(nodes)]
            connection = HTTPConnection(node["host"], node["port"], timeout=timeout_s)
            try:
                connection.connect()
            except OSError as problem:  # nothing was sent
                connection, at = None, at + 1
                say({"id": asked["id"], "type": "fail", "error": type(problem).__name__})
                continue
        try:
            if left:
                answer(connection, "write", "/v3/kv/txn", left[-1])
                left.pop()
        except (Refused, OSError, HTTPException) as problem:  # nothing of the call was sent
            connection.close()
            connection, at = None, at + 1
            say({"id": asked["id"], "type": "fail", "error": str(problem) or type(problem).__name__})
            continue
        try:
            ended = answer(connection, asked["f"], path, body) | {"node": node["node"]}
        except (Refused, OSError, HTTPException) as problem:  # an error of etcd may come behind the proposal
            connection.close()
            connection, at = None, at + 1
            ended = {"type": "info", "error": str(problem) or type(problem).__name__}
        say({"id": asked["id"], **ended})


def say(line: dict[str, object]) -> None:
    """Say one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    main(options["--consistency"], int(options.get("--conditions", "0")))
