"""Where requests come in: the authorizer's hook is asked here, before any handler sees the request (SPEC D17)."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from replog.controller.authorization import ANONYMOUS, CLUSTER, May, Operation, decide, topic
from replog.errors import Error
from replog.node.forwarding import FAILED
from replog.node.server import ServerRequest
from replog.wire.apis import Api, response_type
from replog.wire.messages import describe_configs


class Gate:
    """One listener's authorization."""

    def __init__(self, may: May, topic_name: Callable[[UUID], str | None]) -> None:
        self.may = may
        self._topic_name = topic_name

    def admits(self, request: ServerRequest) -> bool:
        """Tell whether anything of a request is to be carried out; what is not allowed is answered with its errors."""
        if request.api is Api.FETCH:
            return self._admits_fetch(request)
        decision = decide(self.may, ANONYMOUS, request.api, request.body, self._topic_name)
        if not decision.refused:
            return True
        refusals = [refusal(request.api, body, error) for body, error in decision.refused]
        if decision.body is None:
            first, *others = refusals
            answer = decision.with_refusals(request.api, first, others) if others else first
            request.reply(answer)
            return False
        request.body = decision.body
        request.amend = lambda answer: decision.with_refusals(request.api, answer, refusals)
        return True

    def _admits_fetch(self, request: ServerRequest) -> bool:
        """Let replicas fetch that may act for the cluster; consumers are another matter."""
        is_replica = request.body.replica_id >= 0 or request.body.replica_state.replica_id >= 0
        if not is_replica or self.may(ANONYMOUS, Operation.CLUSTER_ACTION, CLUSTER):
            return True
        request.reply(refusal(Api.FETCH, request.body, Error.CLUSTER_AUTHORIZATION_FAILED))
        return False

    def may_describe(self, name: str) -> bool:
        """Tell whether a topic may be seen (KIP-966: "ACL: Describe Topic")."""
        return self.may(ANONYMOUS, Operation.DESCRIBE, topic(name))

    def may_create(self, name: str) -> bool:
        """Tell whether a topic may be created by asking for it."""
        return any(self.may(ANONYMOUS, Operation.CREATE, resource) for resource in (CLUSTER, topic(name)))


def refusal(api: Api, body: Any, error: Error) -> msgspec.Struct:
    """Return an answer that refuses a request, whole."""
    if api in FAILED:
        return FAILED[api](body, error)
    if api is Api.DESCRIBE_CONFIGS:
        results = [
            describe_configs.DescribeConfigsResult(
                error_code=error, resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            for resource in body.resources
        ]
        return describe_configs.DescribeConfigsResponse(results=results)
    return response_type(api)(error_code=error)
