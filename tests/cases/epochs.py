"""What the two families of the leader epoch cache share."""

from typing import Any

from replog.log.epochs import EpochCache
from tests.cases.cases import only

KEYS = {
    "assign": {"op", "epoch", "start"},
    "truncate_from_end": {"op", "offset"},
    "truncate_from_start": {"op", "offset"},
    "end_offset_for": {"op", "epoch", "log_end_offset"},
}


def perform(cache: EpochCache, operation: dict[str, Any]) -> dict[str, Any]:
    """Do one operation; return what a case may assert about it."""
    arguments = dict(only(operation, KEYS[operation["op"]], "operation"))
    method = getattr(cache, arguments.pop("op"))
    result = method(**arguments)
    return {"result": list(result) if isinstance(result, tuple) else result, "entries": as_lists(cache)}


def as_lists(cache: EpochCache) -> list[list[int]]:
    """Return the entries as the cases write them."""
    return [list(entry) for entry in cache]


def a_cache(given: dict[str, Any]) -> EpochCache:
    """Return a cache with the entries of a case."""
    return EpochCache((epoch, start) for epoch, start in only(given, {"entries"}, "given")["entries"])
