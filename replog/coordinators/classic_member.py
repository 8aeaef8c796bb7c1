"""A member of a classic consumer group, as its coordinator knows it."""

from collections.abc import Iterable, Mapping

from replog.coordinators.events import Request, Token
from replog.wire.messages.join_group import JoinGroupRequest

Protocols = dict[str, bytes]  # name -> the member's metadata for it, in the member's order of preference


def protocols_of(body: JoinGroupRequest) -> Protocols:
    """Return what a member offers, most wanted first."""
    return {protocol.name: protocol.metadata for protocol in body.protocols}


class Member:
    """One member; tokens name the requests of it that wait for an answer."""

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False  # has never been part of a generation
        self.joining: Token | None = None
        self.syncing: Token | None = None

    @classmethod
    def joining_with(cls, member_id: str, request: Request[JoinGroupRequest]) -> "Member":
        """Return the member that a JoinGroup makes."""
        body = request.body
        return cls(
            member_id,
            instance_id=body.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=body.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms(body),
            protocols=protocols_of(body),
        )

    def update(self, request: Request[JoinGroupRequest]) -> None:
        """Take what the member says of itself now."""
        body = request.body
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = body.session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms(body)
        self.protocols = protocols_of(body)

    def vote(self, candidates: Mapping[str, None]) -> str:
        """Return the candidate that this member likes best."""
        return next(name for name in self.protocols if name in candidates)


def rebalance_timeout_ms(body: JoinGroupRequest) -> int:
    """Return how long a rebalance may wait for this member; version 0 has one time-out for both."""
    return body.rebalance_timeout_ms if body.rebalance_timeout_ms >= 0 else body.session_timeout_ms


def common_protocols(members: Iterable[Member]) -> dict[str, None]:
    """Return the protocols that all members offer, in the order of the first."""
    offers = [member.protocols for member in members]
    return {name: None for name in offers[0] if all(name in offer for offer in offers)} if offers else {}


def selected_protocol(members: Iterable[Member]) -> str:
    """Return the common protocol that most members like best; a tie goes to the one named first."""
    voters = list(members)
    candidates = common_protocols(voters)
    assert candidates, "no protocol in common"
    votes = dict.fromkeys(candidates, 0)
    for member in voters:
        votes[member.vote(candidates)] += 1
    return max(votes, key=lambda name: votes[name])  # max keeps the first of equals
