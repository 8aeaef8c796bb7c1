"""Where requests come in: the authorizer's hook is asked here, before any handler sees the request (SPEC D17).

Without an authorizer nothing is asked at all: that costs one look at a flag.
"""

from collections.abc import Callable
from uuid import UUID

import msgspec

from replog.controller.authorization import (
    ANONYMOUS,
    CLUSTER,
    SHOWN,
    Asker,
    May,
    Operation,
    Topics,
    allow_all,
    decide,
    topic,
)
from replog.metadata.image import Image
from replog.node.api.refusals import refusal
from replog.node.net.server import AnyRequest
from replog.wire.apis import Api
from replog.wire.messages.produce import ProduceRequest


class Authorizer:
    """One listener's authorization."""

    def __init__(self, may: May, image: Callable[[], Image], *, serves_records: bool = False) -> None:
        """`serves_records`: Fetch is not of the metadata log; it asks for each partition, by `may_fetch`."""
        names = Topics(lambda topic_id: _name(image(), topic_id), lambda: list(image().topics_by_name))
        self.is_open = may is allow_all
        self._ask = Asker(may, ANONYMOUS, names)
        self._serves_records = serves_records

    def use(self, may: May) -> None:
        """Ask this hook from now on."""
        self.is_open = may is allow_all
        self._ask = self._ask._replace(hook=may)

    def admits(self, request: AnyRequest) -> bool:
        """Tell whether anything of a request is to be carried out; what is not allowed is answered with its errors."""
        if self.is_open or (self._serves_records and request.api is Api.FETCH):
            return True
        api, ask, asked = request.api, self._ask, request.body
        decision = decide(ask, api, asked)
        refusals = [refusal(api, body, error) for body, error in decision.refused]
        show = SHOWN.get(api)

        def amend(answer: msgspec.Struct) -> msgspec.Struct:
            shown = show(ask, asked, answer) if show is not None else answer
            return decision.with_refusals(api, shown, refusals) if refusals else shown

        if decision.body is None:
            first, *others = refusals
            if isinstance(asked, ProduceRequest) and not asked.acks:
                request.close("acks=0 produce was not authorized")  # nobody listens for an error (SPEC 3.7.2)
            else:
                request.reply(decision.with_refusals(api, first, others) if others else first)
            return False
        request.body = decision.body
        if refusals or show is not None:
            request.amend = amend
        return True

    def may_fetch(self, name: str, *, is_replica: bool) -> bool:
        """Tell whether records of a topic may be fetched: by replicas, who act for the cluster, or by readers."""
        if is_replica:
            return self._ask.may(Operation.CLUSTER_ACTION, CLUSTER)
        return self._ask.may(Operation.READ, topic(name))

    def may_describe(self, name: str) -> bool:
        """Tell whether a topic may be seen (KIP-966: "ACL: Describe Topic")."""
        return self._ask.may(Operation.DESCRIBE, topic(name))

    def may_create(self, name: str) -> bool:
        """Tell whether a topic may be created by asking for it."""
        return any(self._ask.may(Operation.CREATE, resource) for resource in (CLUSTER, topic(name)))


def _name(image: Image, topic_id: UUID) -> str | None:
    found = image.topics.get(topic_id)
    return found.name if found is not None else None
