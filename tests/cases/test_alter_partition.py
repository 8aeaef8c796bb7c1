"""Family alter_partition: the controller's handling of one partition of one request."""

from typing import Any
from uuid import UUID

import pytest

from replog.errors import Error
from replog.wire.messages import alter_partition as ap
from tests.cases.cases import load, only
from tests.cases.controllers import Box
from tests.cases.partitions import TOPIC_ID, matches, partition

GIVEN = {"partition", "topic_known", "brokers", "min_isr", "elr", "unclean"}
WHEN = {"version", "broker", "broker_epoch", "leader_epoch", "partition_epoch", "new_isr", "recovery"}
BROKER = {"epoch", "fenced", "shutting_down"}


def alter_partition_request(when: dict[str, Any], topic_id: UUID) -> ap.AlterPartitionRequest:
    return ap.AlterPartitionRequest(
        broker_id=when["broker"],
        broker_epoch=when["broker_epoch"],
        topics=[
            ap.AlterPartitionRequestTopicData(
                topic_id=topic_id,
                partitions=[
                    ap.AlterPartitionRequestPartitionData(
                        partition_index=0,
                        leader_epoch=when["leader_epoch"],
                        partition_epoch=when["partition_epoch"],
                        leader_recovery_state=when.get("recovery", 0),
                        new_isr_with_epochs=[
                            ap.BrokerState(broker_id=broker_id, broker_epoch=epoch)
                            for broker_id, epoch in when["new_isr"]
                        ],
                    )
                ],
            )
        ],
    )


@pytest.mark.parametrize("case", load("alter_partition"))
def test_alter_partition(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], {"error", "top_error", "partition"}, "then")
    box = Box(min_insync_replicas=given.get("min_isr", 1), unclean_leader_election=given.get("unclean", False))
    box.features(elr=given.get("elr", True))
    for broker_id, broker in given["brokers"].items():
        only(broker, BROKER, "brokers")
        box.broker(
            broker_id,
            epoch=broker["epoch"],
            fenced=broker.get("fenced", False),
            in_controlled_shutdown=broker.get("shutting_down", False),
        )
    if given.get("topic_known", True):
        box.topic(*([partition(given["partition"])] if given["partition"] else []))
    box.activate()

    answer = box.send(alter_partition_request(when, TOPIC_ID))

    assert answer.error_code is Error[then.get("top_error", "NONE")]
    if "error" in then:
        assert answer.topics[0].partitions[0].error_code is Error[then["error"]]
    if "partition" in then:
        matches(box.partition(), then["partition"])
