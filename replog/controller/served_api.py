"""What a listener knows of an API that it answers: its types, who may ask for what, and how all of it is refused.

One value an API, beside the handler that answers it: `replog/node/net/handlers.py` joins the two for listeners, `replog/controller/controller_api.py`
for what the controller's core decides. An API that two listeners answer in different ways (Fetch) has a value for each.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, NamedTuple

import msgspec

from replog.controller.authorization import CLUSTER, Asker, Operation, Resource, Topics, part_resource
from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.exchange import Exchange, Q, R
from replog.wire.layout import fields_of

_replace = msgspec.structs.replace


class Unasked(Enum):
    """Why nobody is asked before a request is handled."""

    EVERYBODYS = "everybody may know what it answers"
    WHERE_ANSWERED = "sessions and cursors go on from what was seen: the handler asks"


class Parts(NamedTuple):
    """Where a request and its answer hold what is decided one by one."""

    asked: tuple[str, ...]
    answered: str
    operation: Operation
    resource: Callable[[msgspec.Struct, object, Topics], Resource | None] = part_resource
    of_cluster: Operation | None = None  # who may do this in the cluster is not asked about each part
    together: bool = False  # if one part is refused nothing is attempted


class Decision(NamedTuple, Generic[Q]):
    """What may be carried out of a request, and what is refused of it and why."""

    body: Q | None  # None: nothing
    refused: list[tuple[Q, Error]]


class ServedApi(Generic[Q, R]):
    """One API as one listener serves it."""

    def __init__(
        self,
        exchange: Exchange[Q, R],
        *,
        questions: Sequence[Callable[[Asker, Q], Error]] = (),
        parts: Parts | None = None,
        shown: Callable[[Asker, Q, R], R] | None = None,
        unasked: Unasked | None = None,
        refuse: Callable[[Q, Error], R] | None = None,
        changes_nothing: bool = False,
    ) -> None:
        """Say who may ask, by `questions`, `parts` or `shown`, or why nobody is asked: one of them is a must.

        questions:       decide about a request as a whole, in order.
        parts:           topics or groups that are decided one by one; what is left is carried out.
        shown:           what of an answer the caller may see.
        refuse:          the answer to a request that is refused whole; without it the error stands at the top.
        changes_nothing: it may be sent twice, and nothing is decided beside its answer.
        """
        assert (unasked is None) == bool(questions or parts or shown), f"who may ask for {exchange}?"
        self.exchange = exchange
        self.questions = questions
        self.parts = parts
        self.shown = shown
        self.unasked = unasked
        self.changes_nothing = changes_nothing
        self._refuse = refuse

    @property
    def api(self) -> Api:
        """Its key."""
        return self.exchange.api

    def can_be_refused(self, version: int) -> bool:
        """Return whether this version of the answer can say that a request as a whole is refused."""
        fields = fields_of(self.exchange.response, version)
        return self._refuse is not None or any(field.name == "error_code" for field in fields)

    def refused(self, body: Q, error: Error) -> R:
        """Return an answer that refuses a request, whole."""
        return self.exchange.response(error_code=error) if self._refuse is None else self._refuse(body, error)

    def decide(self, ask: Asker, body: Q) -> Decision[Q]:
        """Ask the hook about a request."""
        for question in self.questions:
            error = question(ask, body)
            if error is not Error.NONE:
                return Decision(None, [(body, error)])
        return Decision(body, []) if self.parts is None else _decided_by_parts(ask, self.parts, body)

    def with_refusals(self, answer: R, refusals: list[R]) -> R:
        """Return the answer with the parts that say what was refused."""
        assert self.parts is not None
        name = self.parts.answered
        added = [part for refusal in refusals for part in getattr(refusal, name)]
        return _replace(answer, **{name: [*getattr(answer, name), *added]})


AnyServedApi = ServedApi[msgspec.Struct, msgspec.Struct]


def without_message(exchange: Exchange[Q, R]) -> Callable[[Q, Error], R]:
    """Return a refusal with null for words: the schema's default is an empty string."""
    return lambda _, error: exchange.response(error_code=error, error_message=None)


def _decided_by_parts(ask: Asker, parts: Parts, body: Q) -> Decision[Q]:
    allowed: dict[str, list[object]] = {field: [] for field in parts.asked}
    refused: dict[Error, dict[str, list[object]]] = {}
    for field in parts.asked:
        for part in getattr(body, field):
            error = _refusal(ask, parts, parts.resource(body, part, ask.topics))
            if error is Error.NONE:
                allowed[field].append(part)
            else:
                refused.setdefault(error, {name: [] for name in parts.asked})[field].append(part)
    if not refused:
        return Decision(body, [])
    if parts.together and any(allowed.values()):
        refused[Error.OPERATION_NOT_ATTEMPTED] = allowed
    pieces = [(_replace(body, **fields), error) for error, fields in refused.items()]
    remains = any(allowed.values()) and not parts.together
    return Decision(_replace(body, **allowed) if remains else None, pieces)


def _refusal(ask: Asker, parts: Parts, resource: Resource | None) -> Error:
    if resource is None or (parts.of_cluster is not None and ask.may(parts.of_cluster, CLUSTER)):
        return Error.NONE
    return ask.error(parts.operation, resource)
