"""Calls a Redis primary (node 1) for the harness: a line of JSON in for each call, a line out for how it ended.

With `--wait N` a change is acknowledged when N replicas have it; with fewer of them nobody knows. With `--sentinels N` the nodes from N on
are sentinels, which know the primary: they are asked for each connection. With `--lease MS` a lock is held so long at most.
Of streams `publish` waits for a replica (`WAIT 1`) and `publish-one` for nobody; an offset is an id of Redis in one number.
"""

import json
import socket
import sys
from itertools import pairwise

CAS = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) return 1 else return 0 end"
BACK = "while redis.call('LMOVE', KEYS[2], KEYS[1], 'RIGHT', 'LEFT') do end return 1"
ACQUIRE = "if redis.call('SET', KEYS[1], unpack(ARGV)) then return redis.call('INCR', KEYS[2]) else return 0 end"
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"
READS = {"read": "GET", "read-counter": "GET", "read-all": "SMEMBERS"}
CHANGES = {"write": "SET", "add": "SADD", "enqueue": "RPUSH", "increment": "INCRBY"}
PUBLISHES = {"publish": 1, "publish-one": 0}  # how many replicas have to confirm it
SEQUENCE_BITS = 20  # of an id's second number
ENTRIES = 2_000  # in one answer
REFUSED = ("LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS")  # said before anything is done

RedisValue = str | int | None | list["RedisValue"]


class Refused(Exception):
    """An error that Redis answered."""


class Redis:
    """A connection in Redis' protocol (RESP 2)."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._stream = socket.create_connection((host, port), timeout_s).makefile("rwb")

    def ask(self, *words: str) -> RedisValue:
        """Send a command; return its answer."""
        encoded = (word.encode() for word in words)
        self._stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in encoded))
        self._stream.flush()
        return self._answer()

    def _answer(self) -> RedisValue:
        line = self._stream.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        kind, rest = line[:1], line[1:-2].decode()
        match kind:
            case b"-":
                raise Refused(rest)
            case b":":
                return int(rest)
            case b"$":
                return None if rest == "-1" else self._bytes(int(rest) + 2)[:-2].decode()
            case b"*":
                return [self._answer() for _ in range(int(rest))]
            case _:
                return rest

    def _bytes(self, count: int) -> bytes:
        found = self._stream.read(count)
        if len(found) < count:
            raise EOFError
        return found


def command_of(function: str, key: str, value: int | list[int] | None, lease: str) -> list[str]:
    """Return the command of an operation; `lease`: milliseconds, 0: without an end."""
    if function in READS:
        return [READS[function], key]
    match function, value:
        case "publish" | "publish-one", int():
            return ["XADD", key, "*", "element", str(value)]
        case "read-stream", int():
            return [
                "XRANGE",
                key,
                f"{value >> SEQUENCE_BITS}-{value % (1 << SEQUENCE_BITS)}",
                "+",
                "COUNT",
                str(ENTRIES),
            ]
        case "cas", [old, new]:
            return ["EVAL", CAS, "1", key, str(old), str(new)]
        case "dequeue", _:
            return ["LMOVE", key, f"{key}:given", "LEFT", "RIGHT"]
        case "redeliver", _:
            return ["EVAL", BACK, "2", key, f"{key}:given"]
        case "acknowledge", int():
            return ["LREM", f"{key}:given", "1", str(value)]
        case "acquire", int():
            end = [] if lease == "0" else ["PX", lease]
            return ["EVAL", ACQUIRE, "2", key, f"{key}:token", str(value), "NX", *end]
        case "release", int():
            return ["EVAL", RELEASE, "1", key, str(value)]
        case _, int() if function in CHANGES:
            return [CHANGES[function], key, str(value)]
        case _:
            raise ValueError(function)


def answer(redis: Redis, function: str, command: list[str], replicas: int) -> dict[str, object]:
    """Call once; `info` where the change may have been made and too few replicas confirm it in time."""
    found = redis.ask(*command)
    if function in ("read", "dequeue", "read-counter"):
        return {"type": "ok", "value": int(found) if isinstance(found, str) else None}
    if function == "read-all":
        assert isinstance(found, list)
        return {"type": "ok", "value": sorted(int(one) for one in found if isinstance(one, str))}
    if function == "read-stream":
        assert isinstance(found, list)
        return {"type": "ok", "value": [entry(one) for one in found if isinstance(one, list)]}
    if function == "cas" and found == 0:
        return {"type": "fail", "error": "another value"}
    if function in ("acquire", "release") and found == 0:
        return {"type": "fail", "error": "another one holds it"}
    if function == "acknowledge" and found == 0:
        return {"type": "fail", "error": "it was given back meanwhile, or acknowledged by another"}
    replicas = PUBLISHES.get(function, replicas)
    if replicas:
        try:
            confirmed = redis.ask("WAIT", str(replicas), "500")
        except Refused as problem:  # what it was to confirm had been done
            return {"type": "info", "error": str(problem)}
        if not isinstance(confirmed, int) or confirmed < replicas:
            return {"type": "info", "error": f"{confirmed} replicas have it"}
    if function in PUBLISHES:
        return {"type": "ok", "value": offset_of(str(found))}
    return {"type": "ok", "value": found} if function == "acquire" else {"type": "ok"}


def entry(found: list[RedisValue]) -> tuple[int, int]:
    """Return an entry's offset and element."""
    place, fields = found
    assert isinstance(fields, list)
    return offset_of(str(place)), int(str(fields[1]))


def offset_of(place: str) -> int:
    """Return an id, MILLISECONDS-NUMBER, as one number."""
    milliseconds, number = place.split("-")
    return (int(milliseconds) << SEQUENCE_BITS) + int(number)


def node_at(nodes: list[dict[str, str | int]], where: tuple[str, int]) -> dict[str, object]:
    """Say which node is there; nothing where none of these is."""
    named = [one["node"] for one in nodes if (one["host"], one["port"]) == where]
    return {"node": named[0]} if named else {}


def primary_of(nodes: list[dict[str, str | int]], sentinels: int, timeout_s: float) -> tuple[str, int]:
    """Return where the primary is: node 1, unless sentinels say it. Raises OSError when none says it."""
    for node in nodes[sentinels - 1 :] if sentinels else nodes[:1]:
        host, port = str(node["host"]), int(node["port"])
        if not sentinels:
            return host, port
        try:
            found = Redis(host, port, timeout_s / 4).ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "tribunal")
        except (OSError, EOFError, Refused):
            continue
        if isinstance(found, list):
            return str(found[0]), int(str(found[1]))
    raise OSError("no sentinel knows the primary")


def main(replicas: int, sentinels: int, lease: str) -> None:
    """Answer calls until the input ends."""
    init = json.loads(sys.stdin.readline())
    nodes, timeout_s = init["nodes"], init["timeout_ms"] / 1000
    redis: Redis | None = None
    where = ("", 0)
    say({"type": "init_ok"})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if redis is None:
                where = primary_of(nodes, sentinels, timeout_s)
                redis = Redis(*where, timeout_s)
        except OSError as problem:  # nothing was sent
            say({"id": asked["id"], "type": "fail", "error": type(problem).__name__})
            continue
        try:
            command = command_of(asked["f"], asked["key"], asked.get("value"), lease)
            ended = answer(redis, asked["f"], command, replicas) | node_at(nodes, where)
        except Refused as problem:
            ended = {"type": "fail" if str(problem).startswith(REFUSED) else "info", "error": str(problem)}
            redis = None if sentinels else redis  # another one may be the primary by now
        except (OSError, EOFError) as problem:
            redis = None
            ended = {"type": "info", "error": type(problem).__name__}
        say({"id": asked["id"], **ended})


def say(line: dict[str, object]) -> None:
    """Say one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    options = dict(pairwise([*sys.argv, "0"]))
    main(int(options["--wait"]), int(options.get("--sentinels", "0")), options.get("--lease", "0"))
