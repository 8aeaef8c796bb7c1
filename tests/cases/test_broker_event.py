"""Family broker_event: what a broker's start, fencing and end do to all its partitions."""

from typing import Any

import pytest

from replog.controller import fencing
from replog.types import NodeId
from replog.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.cases.cases import load, only
from tests.cases.controllers import Box, incarnation, registration
from tests.cases.partitions import matches, partition

GIVEN = {
    "partitions",
    "brokers",
    "min_insync_replicas",
    "elr_enabled",
    "unclean_leader_election",
    "last_known_mode",
}


def cluster(given: dict[str, Any]) -> Box:
    box = Box(
        min_insync_replicas=given.get("min_insync_replicas", 1),
        unclean_leader_election=given.get("unclean_leader_election", False),
        unclean_recovery_manager=given.get("last_known_mode", "leader") == "elr_members",
    )
    return box.features(elr=given.get("elr_enabled", True))


def happen(box: Box, kind: str, broker_id: int, *, new_epoch: int | None = None) -> None:
    """Let one thing happen to a broker, the way the controller learns of it."""
    broker = box.image.brokers[NodeId(broker_id)]
    policy = box.controller.policy
    match kind:
        case "fence":
            box.write(fencing.fence(policy, broker))
        case "session_timeout":
            box.controller.sessions.touch(broker.broker_id, broker.epoch, box.now_ms - 9000).last_contact_ms -= 9000
            box.tick()
        case "unfence":
            box.write(fencing.unfence(policy, broker))
        case "controlled_shutdown":
            box.write(fencing.enter_controlled_shutdown(policy, broker))
        case "unregister":
            box.send(UnregisterBrokerRequest(broker_id=broker_id))
        case "register_clean" | "register_unclean":
            box.controller.sessions.drop(broker.broker_id)
            clean = kind == "register_clean"
            if new_epoch is not None:  # the epoch is where the registration record comes to lie, behind the clean-up
                clean_up = fencing.leaving(policy, broker.broker_id, eligible_no_more=not clean)
                box.stand_at(new_epoch - len(clean_up))
            answer = box.send(
                registration(
                    broker_id,
                    incarnation_id=incarnation(box.offset),
                    previous_epoch=broker.epoch if clean else -1,
                )
            )
            assert answer.error_code == 0, answer
        case _:
            raise AssertionError(kind)


@pytest.mark.parametrize("case", load("broker_event"))
def test_broker_event(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], {"type", "broker"}, "when")
    box = cluster(given)
    for broker_id, state in given["brokers"].items():
        assert state in ("active", "fenced", "shutting_down")
        box.broker(broker_id, fenced=state == "fenced", in_controlled_shutdown=state == "shutting_down")
    before = [partition(each) for each in given["partitions"]]
    box.topic(*before).activate()

    happen(box, when["type"], when["broker"])

    for index, expected in case["then"].items():
        after = box.partition(int(index))
        if expected == "no_change":
            assert after == before[int(index)]
        else:
            matches(after, expected)
