"""Who answers what on one listener.

A module of handlers ends with its `APIS`: each joins what is known of an API (`ServedApi`) and the method that answers it. `on` is where the
type checker holds a handler to its exchange: it gets a `ServerRequest` of the exchange's request and may reply with its answer
only. Behind it all requests look alike: a request is decoded by its API, so that each finds the handler of its type.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar, cast

import msgspec

from replog.controller.served_api import AnyServedApi, ServedApi
from replog.errors import Error
from replog.node.boundary import contain
from replog.node.net.server import ServerRequest
from replog.node.tasks import Failed
from replog.ports import Journal
from replog.wire.apis import Api
from replog.wire.exchange import Q, R


def contained(journal: Journal, request: ServerRequest[Q, R], served: ServedApi[Q, R], body: Q) -> Failed:
    """Return what answers UNKNOWN_SERVER_ERROR, or ends the connection, when handling a request fails unforeseen.

    It raises the error again when that ends the node.

    body:  the request's; should the connection end meanwhile, the request lets go of it.
    """

    def refuse(problem: Exception) -> None:
        contain(journal, f"{request.api.name} version {request.version}", problem, request.api)
        if request.is_answered:
            return
        if served.can_be_refused(request.version):
            request.reply(served.refused(body, Error.UNKNOWN_SERVER_ERROR))
        else:
            request.close(f"{request.api.name} failed: {type(problem).__name__}")

    return refuse


S = TypeVar("S")
Self = TypeVar("Self", contravariant=True)


class Handled(Generic[Q, R]):
    """An API and who answers it here."""

    __slots__ = ("handle", "served")

    def __init__(self, served: ServedApi[Q, R], handle: Callable[[ServerRequest[Q, R]], None]) -> None:
        self.served: Final = served
        self.handle: Final = handle


class Handlers:
    """Handlers by API."""

    def __init__(self) -> None:
        self.by_api: dict[Api, Handled[msgspec.Struct, msgspec.Struct]] = {}

    def on(self, served: ServedApi[Q, R], handle: Callable[[ServerRequest[Q, R]], None]) -> None:
        """Let this answer that."""
        self.by_api[served.api] = cast("Handled[msgspec.Struct, msgspec.Struct]", Handled(served, handle))

    def serve(self, apis: "Iterable[AnswersApi[S]]", instance: S) -> None:
        """Let an object answer all of these."""
        for one in apis:
            one.bind(instance, self)


class AnswersApi(Protocol[Self]):
    """A `HandledApi` of any request and answer."""

    @property
    def any_served(self) -> AnyServedApi:
        """What is known of it, whatever its types."""

    def bind(self, instance: Self, handlers: Handlers) -> None:
        """Let an object answer it."""


class HandledApi(Generic[S, Q, R]):
    """What is known of an API, and the method of S that answers it."""

    def __init__(self, served: ServedApi[Q, R], handle: Callable[[S, ServerRequest[Q, R]], None]) -> None:
        self.served = served
        self.handle = handle

    @property
    def any_served(self) -> AnyServedApi:
        """What is known of it, whatever its types."""
        return cast(AnyServedApi, self.served)

    def bind(self, instance: S, handlers: Handlers) -> None:
        """Let an object answer it."""
        handlers.on(self.served, partial(self.handle, instance))
