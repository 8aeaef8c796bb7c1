"""Who answers what on one listener.

`on` is where the type checker holds a handler to its exchange: it gets a `ServerRequest` of the exchange's request and may reply
with its answer only. Behind it all requests look alike: a request is decoded by its API, so that each finds the handler of its type.
"""

from collections.abc import Callable
from typing import cast

from replog.node.net.server import Handler, Q, R, ServerRequest
from replog.wire.apis import Api
from replog.wire.exchanges import Exchange


class Handlers:
    """Handlers by API."""

    def __init__(self) -> None:
        self.by_api: dict[Api, Handler] = {}

    def on(self, exchange: Exchange[Q, R], handler: Callable[[ServerRequest[Q, R]], None]) -> None:
        """Let this answer that."""
        self.by_api[exchange.api] = cast(Handler, handler)
