"""Family topic_admin: creating and deleting topics, configs that touch min ISR."""

from typing import Any
from uuid import UUID

import pytest

from replog.errors import Error
from replog.metadata.state import BROKER_RESOURCE, TOPIC_RESOURCE
from replog.types import NodeId
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_topics as dt
from replog.wire.messages import incremental_alter_configs as iac
from tests.cases.cases import load, only
from tests.cases.controllers import Box
from tests.cases.partitions import TOPIC, partition

GIVEN = {"active", "fenced", "shutting_down", "topics", "partition", "min_isr", "elr", "elr_index"}
WHEN = {"create", "delete", "set_min_isr", "validate_only", "alter_broker_config", "alter_topic_config"}
CREATE = {"name", "partitions", "rf", "assignment", "configs"}
THEN = {"error", "replicas", "isr", "leader", "created", "elr_index", "elr", "partition_epoch"}


def create(box: Box, wanted: dict[str, Any], *, validate_only: bool) -> Error:
    only(wanted, CREATE, "create")
    topic = ct.CreatableTopic(
        name=wanted["name"],
        num_partitions=wanted.get("partitions", -1),
        replication_factor=wanted.get("rf", -1),
        assignments=[
            ct.CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in wanted.get("assignment", {}).items()
        ],
        configs=[
            ct.CreatableTopicConfig(name=name, value=str(value)) for name, value in wanted.get("configs", {}).items()
        ],
    )
    answer = box.send(ct.CreateTopicsRequest(topics=[topic], validate_only=validate_only))
    return Error(answer.topics[0].error_code)


def alter_configs(box: Box, resource_type: int, name: str, values: dict[str, Any]) -> Error:
    configs = [iac.AlterableConfig(name=key, value=str(value)) for key, value in values.items()]
    resource = iac.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    return Error(box.send(iac.IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code)


def act(box: Box, when: dict[str, Any]) -> Error:
    if "create" in when:
        return create(box, when["create"], validate_only=when.get("validate_only", False))
    if "delete" in when:
        answer = box.send(dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=when["delete"])]))
        return Error(answer.responses[0].error_code)
    if "set_min_isr" in when:
        return alter_configs(box, TOPIC_RESOURCE, TOPIC, {"min.insync.replicas": when["set_min_isr"]})
    if "alter_topic_config" in when:
        return alter_configs(box, TOPIC_RESOURCE, TOPIC, when["alter_topic_config"])
    return alter_configs(box, BROKER_RESOURCE, "1", when["alter_broker_config"])


def cluster(given: dict[str, Any]) -> Box:
    box = Box(min_insync_replicas=given.get("min_isr", 1)).features(elr=given.get("elr", True))
    for state, fields in (
        ("active", {}),
        ("fenced", {"fenced": True}),
        ("shutting_down", {"in_controlled_shutdown": True}),
    ):
        for broker_id in given.get(state, []):
            box.broker(broker_id, **fields)
    if "partition" in given:
        for broker_id in given["partition"]["replicas"]:
            box.broker(broker_id)
        box.topic(partition(given["partition"]))
    index = {name: node for node, names in given.get("elr_index", {}).items() for name in names}
    for number, name in enumerate(given.get("topics", [])):
        member = index.get(f"{name}-0")
        nodes = given["active"] + ([member] if member is not None else [])
        state = {"replicas": nodes, "isr": given["active"], "elr": [member] if member is not None else []}
        box.topic(partition(state), name=name, topic_id=UUID(int=100 + number))
    return box.activate()


def elr_index(box: Box) -> dict[int, list[str]]:
    members = box.image.elr_members
    return {
        int(node): [f"{box.image.topics[key.topic_id].name}-{key.partition}" for key in members.of(NodeId(node))]
        for node in members.nodes()
    }


@pytest.mark.parametrize("case", load("topic_admin"))
def test_topic_admin(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], THEN, "then")
    box = cluster(given)
    epoch_before = box.partition().partition_epoch if "partition" in given else 0

    error = act(box, when)

    assert error is Error[then.get("error", "NONE")]
    if "create" in when:
        name = when["create"]["name"]
        existed = name in given.get("topics", [])
        created = name in box.image.topics_by_name and not existed
        assert created is then.get("created", error is Error.NONE)
    if "replicas" in then:
        found = box.image.topics_by_name[when["create"]["name"]].partitions[0]
        actual = {"replicas": list(found.replicas), "isr": list(found.isr), "leader": found.leader}
        assert actual == {key: then[key] for key in actual}
    if "elr_index" in then:
        assert elr_index(box) == then["elr_index"]
    if "elr" in then:
        assert list(box.partition().elr) == then["elr"]
    if "partition_epoch" in then:
        assert box.partition().partition_epoch - epoch_before == int(then["partition_epoch"])
