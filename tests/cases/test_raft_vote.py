"""Family raft_vote: one Vote request against one member (SPEC 1.5)."""

from typing import Any

import pytest

from replog.quorum import events
from replog.quorum.messages import VoteRequest
from replog.quorum.quorum import Quorum
from replog.quorum.voters import ReplicaKey
from replog.types import NodeId
from tests.cases.cases import load, only
from tests.cases.voters import a_member, answers, directory, outline, placed, promises_come_late, seen

GIVEN = {"state", "epoch", "log", "id", "directory", "cluster", "leader", "voted", "fetched"}
WHEN = {"cluster", "epoch", "candidate", "last_epoch", "last_offset", "pre_vote", "to"}
THEN = {"top_error", "error", "granted", "state", "epoch", "leader", "voted"}


def vote_request(when: dict[str, Any]) -> VoteRequest:
    to = when["to"]
    return VoteRequest(
        cluster_id=when["cluster"],
        epoch=when["epoch"],
        candidate=ReplicaKey(NodeId(when["candidate"])),
        voter=None if to is None else ReplicaKey(NodeId(to[0]), directory(to[1])),
        last_epoch=when["last_epoch"],
        last_offset=when["last_offset"],
        pre_vote=when["pre_vote"],
    )


def after(member: Quorum, when: dict[str, Any]) -> dict[str, Any]:
    """Deliver one request; return the answer and the member's state as a case writes them."""
    effects = member.handle(events.Received(now_ms=0, token=1, request=vote_request(when)))
    (answer,) = answers(effects)
    assert not promises_come_late(effects)
    found = {"error": answer.error.name, "granted": answer.granted, "epoch": answer.epoch}
    return found | {"top_error": answer.top_error.name} | seen(member)


@pytest.mark.parametrize("case", load("raft_vote"))
def test_vote(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    member = placed(a_member(given, outline(given)), given)

    found = after(member, only(case["when"], WHEN, "when"))

    expected = only(case["then"], THEN, "then")
    assert {key: found[key] for key in expected} == expected
