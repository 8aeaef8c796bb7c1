"""Where requests come in: the authorizer's hook is asked here, before any handler sees the request (SPEC D17).

Without an authorizer nothing is asked at all: that costs one look at a flag.
"""

from collections.abc import Callable
from uuid import UUID

from replog.controller.authorization import (
    CLUSTER,
    Asker,
    May,
    Operation,
    Peer,
    Topics,
    allow_all,
    topic,
)
from replog.controller.served_api import ServedApi
from replog.metadata.image import Image
from replog.node.net.server import ServerRequest
from replog.wire.exchange import Q, R
from replog.wire.messages.produce import ProduceRequest


class Authorizer:
    """One listener's authorization."""

    def __init__(self, may: May, image: Callable[[], Image]) -> None:
        names = Topics(lambda topic_id: _name(image(), topic_id))
        self.is_open = may is allow_all
        self._may = may
        self._topics = names

    def use(self, may: May) -> None:
        """Ask this hook from now on."""
        self.is_open = may is allow_all
        self._may = may

    def admits(self, request: ServerRequest[Q, R], served: ServedApi[Q, R]) -> bool:
        """Return whether anything of a request is to be carried out; what is not allowed is answered with its errors."""
        if self.is_open:
            return True
        ask, asked, show = self._asker(request.peer), request.body, served.shown
        decision = served.decide(ask, asked)
        refusals = [served.refused(body, error) for body, error in decision.refused]

        def amend(answer: R) -> R:
            shown = show(ask, asked, answer) if show is not None else answer
            return served.with_refusals(shown, refusals) if refusals else shown

        if decision.body is None:
            first, *others = refusals
            if isinstance(asked, ProduceRequest) and not asked.acks:
                request.close("acks=0 produce was not authorized")  # nobody listens for an error (SPEC 3.7.2)
            else:
                request.reply(served.with_refusals(first, others) if others else first)
            return False
        request.body = decision.body
        if refusals or show is not None:
            request.amend = amend
        return True

    def _asker(self, peer: Peer) -> Asker:
        return Asker(self._may, peer, self._topics)

    def may_fetch(self, peer: Peer, name: str, *, is_replica: bool) -> bool:
        """Return whether records of a topic may be fetched: by replicas, who act for the cluster, or by readers."""
        if is_replica:
            return self._may(peer, Operation.CLUSTER_ACTION, CLUSTER)
        return self._may(peer, Operation.READ, topic(name))

    def may_describe(self, peer: Peer, name: str) -> bool:
        """Return whether a topic may be seen (KIP-966: "ACL: Describe Topic")."""
        return self._may(peer, Operation.DESCRIBE, topic(name))

    def may_create(self, peer: Peer, name: str) -> bool:
        """Return whether a topic may be created by asking for it."""
        return any(self._may(peer, Operation.CREATE, resource) for resource in (CLUSTER, topic(name)))


def _name(image: Image, topic_id: UUID) -> str | None:
    found = image.topics.get(topic_id)
    return found.name if found is not None else None
