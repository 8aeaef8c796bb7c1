"""A controller with many partitions that nobody leads looks at them when something has changed for one of them, not at each event."""

import pytest

from replog.controller import recoveries
from replog.controller.events import AskLogInfo
from replog.controller.unclean_recovery import REQUEST_TIMEOUT_MS, decide
from replog.metadata import records as r
from replog.metadata.state import TOPIC_RESOURCE
from replog.types import NodeId
from replog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.cases.controllers import Box
from tests.cases.partitions import TOPIC, partition

COUNT = 20
RECOVERING = {"replicas": [1, 2], "isr": [], "leader": -1}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Each decision on a partition that is taken."""
    found: list[object] = []

    def noted(*of):
        found.append(of)
        return decide(*of)

    monkeypatch.setattr(recoveries, "decide", noted)
    return found


def a_box() -> Box:
    box = Box(unclean_recovery_manager=True).features().broker(1).broker(2, fenced=True)
    return box.topic(*[partition(RECOVERING)] * COUNT).activate()


def heartbeat(box: Box) -> None:
    epoch = box.image.brokers[NodeId(1)].epoch
    box.send(BrokerHeartbeatRequest(broker_id=NodeId(1), broker_epoch=epoch, current_metadata_offset=epoch))


def asked(box: Box) -> list[int]:
    return [int(effect.broker_id) for effect in box.effects if isinstance(effect, AskLogInfo)]


def test_an_event_that_changes_nothing_costs_no_look_at_them(looks):
    box = a_box()
    assert asked(box) == [1]
    before = len(looks)

    for _ in range(10):
        heartbeat(box)

    assert len(looks) == before


def test_a_change_is_looked_at(looks):
    box = a_box()
    before = len(looks)

    box.write(
        [r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, name="min.insync.replicas", value="1")]
    )
    heartbeat(box)

    assert len(looks) == before + COUNT


def test_a_question_that_nobody_answered_is_asked_again_in_its_time():
    box = a_box()
    heartbeat(box)
    assert asked(box) == []

    box.now_ms += REQUEST_TIMEOUT_MS
    heartbeat(box)

    assert asked(box) == [1]
