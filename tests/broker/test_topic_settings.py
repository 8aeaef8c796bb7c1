"""How logs are to behave: what was worked out for one is taken for others of the same settings, and for nothing else."""

from uuid import UUID

import pytest

from replog.broker.topic_settings import REMEMBERED_MAX, TopicSettings
from replog.config import NodeConfig
from replog.metadata.records import ConfigRecord
from replog.metadata.state import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE
from tests.cases.controllers import Box

OWN_FILE = NodeConfig(
    {
        "process.roles": "broker",
        "node.id": 2,
        "cluster.id": "c",
        "listeners": "127.0.0.1:9092",
        "controller.quorum.voters": "101@127.0.0.1:9",
        "log.dirs": "/a",
        "log.retention.ms": 4,
    }
)


@pytest.mark.parametrize(("resource", "name"), [
    ((TOPIC_RESOURCE, "t"), "retention.ms"),
    ((BROKER_RESOURCE, "2"), "log.retention.ms"),
    ((BROKER_RESOURCE, CLUSTER_DEFAULT), "log.retention.ms"),
], ids=["the topic's", "the broker's", "the cluster's"])  # fmt: skip
def test_a_change_holds_at_once_and_ends_at_once(resource: tuple[int, str], name: str) -> None:
    settings = TopicSettings(OWN_FILE)
    box = Box().features().topic(name="t").topic(name="u", topic_id=UUID(int=8))
    found = []

    for value in (None, "77", "78", None):
        if value is not None or found:
            box.replay(ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value))
        found.append(tuple(settings.of_log(box.image, topic).retention_ms for topic in ("t", "u")))

    others = (4, 4) if resource[0] == TOPIC_RESOURCE else (77, 78)
    assert found == [(4, 4), (77, others[0]), (78, others[1]), (4, 4)]


def test_another_brokers_settings_hold_for_nothing_here() -> None:
    settings = TopicSettings(OWN_FILE)
    box = Box().features().topic(name="t")

    box.replay(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="3", name="log.retention.ms", value="9"))

    assert settings.of_log(box.image, "t").retention_ms == 4


def test_settings_without_end_are_not_all_remembered() -> None:
    settings = TopicSettings(OWN_FILE)
    box = Box().features().topic(name="t")

    for value in range(REMEMBERED_MAX + 5):
        box.config("retention.ms", str(value), topic="t")
        assert settings.of_log(box.image, "t").retention_ms == value

    assert len(settings._of_logs) <= REMEMBERED_MAX
