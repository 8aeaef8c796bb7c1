"""Whose a topic's settings are in the recording, where several topics had one name."""

import json
from collections.abc import Sequence

import pytest

from replog.zookeeper.operations import Stat
from tribunal.clusters.api import ClusterState, MetadataEntry
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.zookeeper.znode_view import ZnodeView
from tribunal.harness.collect import SettingsOfTopics
from tribunal.results.topic_names import TopicNames

TOPIC, SETTINGS = "/brokers/topics/t", "/config/topics/t"


def observed(steps: Sequence[str]) -> list[MetadataEntry]:
    """Return what an observer of ZooKeeper mode writes down of these steps."""
    committed = CommittedRecords(ClusterState())
    view = ZnodeView(committed, lambda: 0)
    topic = json.dumps({"version": 1, "partitions": {"0": [1]}}).encode()
    for czxid, step in enumerate(steps, 1):
        match step.split():
            case ["topic"]:
                view.take(TOPIC, topic, Stat(czxid=czxid, mzxid=czxid, version=0))
            case ["removed"]:
                view.take(TOPIC, b"", None)
                view.take(SETTINGS, b"", None)
            case [value]:
                settings = json.dumps({"version": 1, "config": {"retention.ms": value}}).encode()
                view.take(SETTINGS, settings, Stat(czxid=czxid, mzxid=czxid, version=0))
    return committed.drain()


@pytest.mark.parametrize(("steps", "expected"), [
    pytest.param(["1", "topic"], {"1": "t"}, id="written before its topic"),
    pytest.param(["topic", "1"], {"1": "t"}, id="and behind it"),
    pytest.param(["topic", "removed", "1", "topic"], {"1": "t@2"}, id="of the topic that is made anew"),
    pytest.param(["topic", "removed", "topic", "1"], {"1": "t@2"}, id="behind that"),
    pytest.param(["topic", "1", "removed", "2", "topic"], {"1": "t", "2": "t@2"}, id="of each its own"),
    pytest.param(["topic", "removed", "topic", "removed", "1", "topic"], {"1": "t@3"}, id="of the third"),
])  # fmt: skip
def test_a_setting_is_of_the_topic_that_it_is_written_for(steps: list[str], expected: dict[str, str]) -> None:
    owners = SettingsOfTopics(TopicNames())

    said = [owners.named(entry) for entry in observed(steps)]

    assert {one["value"]: one["resource_name"] for one in said if "resource_name" in one} == expected


def test_a_topic_that_others_knew_of_before_the_metadata_has_one_name() -> None:
    names = TopicNames()
    entries = observed(["topic", "removed", "1", "topic"])
    for entry in entries:
        if entry.topic_id is not None:
            names.of("t", entry.topic_id)
    owners = SettingsOfTopics(names)

    said = [owners.named(entry) for entry in entries]

    assert [one["resource_name"] for one in said if "resource_name" in one] == ["t@2"]
