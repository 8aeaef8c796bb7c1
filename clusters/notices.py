"""Notices of what takes long: a run says where they are shown, and everything below it sends them, however deep.

Without a run nobody listens. Tasks and threads that are begun within it send them to the same one.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_LISTENER: Final[ContextVar[Callable[[str], None]]] = ContextVar("listener", default=lambda _: None)


@contextmanager
def listening(listener: Callable[[str], None]) -> Generator[None]:
    """Let a listener receive the notices of what goes on within."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def notify(line: str) -> None:
    """Say in one line how something stands that takes long."""
    _LISTENER.get()(line)
