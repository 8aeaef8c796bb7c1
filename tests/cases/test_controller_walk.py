"""Family controller_walk: one partition through many events; the state after every step."""

from typing import Any

import pytest

from replog.errors import Error
from replog.wire.messages import elect_leaders as el
from replog.wire.messages import incremental_alter_configs as iac
from tests.cases.cases import load, only
from tests.cases.controllers import Box
from tests.cases.partitions import TOPIC, TOPIC_ID, matches, partition
from tests.cases.test_alter_partition import alter_partition_request
from tests.cases.test_broker_event import cluster, happen

GIVEN = {
    "replicas",
    "brokers",
    "broker_epochs",
    "min_insync_replicas",
    "elr_enabled",
    "unclean_leader_election",
    "last_known_mode",
    "start",
}
ALTER = {"do", "broker", "broker_epoch", "leader_epoch", "partition_epoch", "new_isr", "recovery"}


def do(box: Box, step: dict[str, Any]) -> str | None:
    """Take one step; return the error it was answered with, if it is one that is answered."""
    match step["do"]:
        case "alter_partition":
            only(step, ALTER, "step")
            answer = box.send(alter_partition_request(step, TOPIC_ID))
            error = answer.error_code or answer.topics[0].partitions[0].error_code
            return Error(error).name
        case "set_min_isr":
            only(step, {"do", "value"}, "step")
            return set_topic_config(box, "min.insync.replicas", str(step["value"]))
        case "elect":
            only(step, {"do", "type"}, "step")
            answer = box.send(
                el.ElectLeadersRequest(
                    election_type={"preferred": 0, "unclean": 1}[step["type"]],
                    topic_partitions=[el.TopicPartitions(topic=TOPIC, partitions=[0])],
                )
            )
            return Error(answer.replica_election_results[0].partition_result[0].error_code).name
        case kind:
            only(step, {"do", "broker", "new_epoch"}, "step")
            happen(box, kind, step["broker"], new_epoch=step.get("new_epoch"))
            return None


def set_topic_config(box: Box, name: str, value: str, topic: str = TOPIC) -> str:
    answer = box.send(
        iac.IncrementalAlterConfigsRequest(
            resources=[
                iac.AlterConfigsResource(
                    resource_type=2, resource_name=topic, configs=[iac.AlterableConfig(name=name, value=value)]
                )
            ]
        )
    )
    return Error(answer.responses[0].error_code).name


@pytest.mark.parametrize("case", load("controller_walk"))
def test_controller_walk(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    steps = only(case["when"], {"steps"}, "when")["steps"]
    after = only(case["then"], {"after"}, "then")["after"]
    box = cluster(given)
    for broker_id in given["brokers"]:
        box.broker(broker_id, epoch=given["broker_epochs"][broker_id])
    box.topic(partition({"replicas": given["replicas"], **given["start"]})).activate()

    for number, (step, expected) in enumerate(zip(steps, after, strict=True)):
        error = do(box, step)
        state = {key: value for key, value in expected.items() if key != "error"}
        try:
            if "error" in expected:
                assert error == expected["error"]
            matches(box.partition(), state)
        except AssertionError as problem:
            raise AssertionError(f"step {number} {step}: {problem}") from problem
