"""Family heartbeat: the state machine of a broker as the controller sees it."""

from typing import Any

import pytest

from replog.controller.heartbeat import Beat, BrokerState, broker_state, next_state
from replog.errors import Error
from replog.types import NodeId
from replog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.cases.cases import load, only
from tests.cases.controllers import Box

GIVEN = {"state", "register_offset", "epoch", "session_timeout_ms", "last_contact_ms_ago"}
BEAT = {"want_fence", "want_shutdown", "metadata_offset", "has_leaderships", "shutdown_offset", "lowest_active_offset"}
FIELDS = {
    "fenced": {"fenced": True},
    "unfenced": {"fenced": False},
    "controlled_shutdown": {"fenced": False, "in_controlled_shutdown": True},
}
ME = NodeId(1)


@pytest.mark.parametrize("case", load("heartbeat"))
def test_heartbeat(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], BEAT | {"event", "epoch"}, "when")
    then = only(case["then"], {"next", "error", "contact_refreshed"}, "then")

    if "event" in when or "epoch" in when:
        _in_a_controller(given, when, then)
    else:
        beat = Beat(
            want_fence=when.get("want_fence", False),
            want_shut_down=when.get("want_shutdown", False),
            caught_up=when.get("metadata_offset", 0) >= given["register_offset"],
            has_leaderships=when.get("has_leaderships", False),
            shutdown_offset=when.get("shutdown_offset"),
            lowest_active_offset=when.get("lowest_active_offset"),
        )
        assert next_state(BrokerState(given["state"]), beat) is BrokerState(then["next"])


def _in_a_controller(given: dict[str, Any], when: dict[str, Any], then: dict[str, Any]) -> None:
    box = Box(session_timeout_ms=given.get("session_timeout_ms", 9000)).features()
    box.broker(1, epoch=given.get("epoch", 111), **FIELDS[given["state"]])
    epoch = box.image.broker_epoch(ME)
    silent_ms = given.get("last_contact_ms_ago")
    before_ms = box.now_ms
    box.activate()
    if silent_ms is not None:
        box.now_ms += silent_ms

    match when.get("event"):
        case None:
            answer = box.send(BrokerHeartbeatRequest(broker_id=1, broker_epoch=when["epoch"]))
            assert answer.error_code is Error[then.get("error", "NONE")]
        case "tick":
            box.tick()
        case "heartbeat_expired_in_queue":
            received_ms = box.now_ms + 100
            box.now_ms += 100 + 60_000
            beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, want_fence=True)
            assert box.send(beat, received_ms=received_ms).error_code is not Error.NONE
            box.now_ms = received_ms
        case "controller_activated":
            before_ms -= 1
        case event:
            raise AssertionError(event)

    if "next" in then:
        assert broker_state(box.image.brokers[ME]) is BrokerState(then["next"])
    if then.get("contact_refreshed"):
        assert box.controller.sessions.next_expiry_ms(box.image) == box.now_ms + 9000 > before_ms + 9000
