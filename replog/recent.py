"""What is remembered of many, the latest of them: who names a new one for each request must not fill memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, so many at most; whose key was asked for longest ago is forgotten first."""

    def __init__(self, most: int, make: Callable[[], V]) -> None:
        self._most = most
        self._make = make
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._values)

    def of(self, key: K) -> V:
        """Return the value of a key, a new one where none is remembered."""
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = self._make()
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        else:
            self._values.move_to_end(key)
        return value
