"""Family reassignment: start, completion by an ISR change, cancel."""

from typing import Any

import pytest

from replog.errors import Error
from replog.wire.messages import alter_partition_reassignments as apr
from tests.cases.cases import load, only
from tests.cases.controllers import Box
from tests.cases.partitions import TOPIC, TOPIC_ID, matches, partition
from tests.cases.test_alter_partition import alter_partition_request

GIVEN = {"replicas", "isr", "leader", "adding", "removing", "min_isr", "unclean_config", "allow_rf_change"}
STATE = {"replicas", "isr", "leader", "adding", "removing"}
THEN = STATE | {"leader_epoch_bump", "complete", "error", "no_change"}


def act(box: Box, given: dict[str, Any], when: dict[str, Any]) -> Error:
    if when.get("event") == "isr":
        proposal = {
            "broker": given["leader"],
            "broker_epoch": 100 + given["leader"],
            "leader_epoch": 0,
            "partition_epoch": 0,
            "new_isr": [[node, 100 + node] for node in when["isr"]],
        }
        answer = box.send(alter_partition_request(proposal, TOPIC_ID))
        return Error(answer.topics[0].partitions[0].error_code)
    answer = box.send(
        apr.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=given.get("allow_rf_change", True),
            topics=[
                apr.ReassignableTopic(
                    name=TOPIC, partitions=[apr.ReassignablePartition(partition_index=0, replicas=when["target"])]
                )
            ],
        )
    )
    return Error(answer.responses[0].partitions[0].error_code)


@pytest.mark.parametrize("case", load("reassignment"))
def test_reassignment(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], {"target", "event", "isr"}, "when")
    then = only(case["then"], THEN, "then")
    before = partition({key: given[key] for key in STATE if key in given})
    box = Box(
        min_insync_replicas=given.get("min_isr", 1), unclean_leader_election=given.get("unclean_config", False)
    ).features()
    for broker_id in sorted({*given["replicas"], *(when.get("target") or [])}):
        box.broker(broker_id)
    box.topic(before).activate()

    error = act(box, given, when)

    after = box.partition()
    assert error is Error[then.get("error", "NONE")]
    if then.get("no_change") or "error" in then:
        assert after == before
    if "complete" in then:
        assert after.is_reassigning is not then["complete"]
    if "leader_epoch_bump" in then:
        assert (after.leader_epoch > before.leader_epoch) is then["leader_epoch_bump"]
    matches(after, {key: value for key, value in then.items() if key in STATE})
