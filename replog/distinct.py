"""Each thing that a request names is looked up once, however often it is named: else an answer grows without bound."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def distinct(named: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Return the first of each key, in order."""
    found: dict[Hashable, T] = {}
    for one in named:
        found.setdefault(key(one), one)
    return list(found.values())
