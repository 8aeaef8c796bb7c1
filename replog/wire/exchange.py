"""Which answer belongs to which request, as a typed value: each module of `replog.wire.messages` ends with its `EXCHANGE`.

`Api` is a number on the wire; an `Exchange` is what the type checker knows of it. Who registers a handler for one, or asks by
one, is held to its types: a handler of Produce takes a `ProduceRequest` and replies a `ProduceResponse`.
"""

from functools import cache
from importlib import import_module
from typing import Generic, TypeVar

import msgspec

from replog.wire.apis import Api

Q = TypeVar("Q", bound=msgspec.Struct)
R = TypeVar("R", bound=msgspec.Struct)


class Exchange(Generic[Q, R]):
    """A request's type and its answer's."""

    __slots__ = ("api", "request", "response")

    def __init__(self, api: Api, request: type[Q], response: type[R]) -> None:
        self.api = api
        self.request = request
        self.response = response

    def __repr__(self) -> str:
        return self.api.name


AnyExchange = Exchange[msgspec.Struct, msgspec.Struct]


@cache
def exchange_of(api: Api) -> AnyExchange:
    """Return the exchange of an API that is known by its key alone."""
    found: AnyExchange = import_module(f"replog.wire.messages.{api.name.lower()}").EXCHANGE
    return found
