"""Family elect_leaders: elections that an operator asks for."""

from typing import Any

import pytest

from replog.errors import Error
from replog.wire.messages import elect_designated_leaders as edl
from replog.wire.messages import elect_leaders as el
from tests.cases.cases import load, only
from tests.cases.controllers import Box
from tests.cases.partitions import TOPIC, matches, partition

GIVEN = {"partition", "partitions", "alive", "elr", "unclean_config"}
THEN = {"error", "leader", "isr", "elr", "recovery", "served", "rest_error"}
MODES = {
    "aggressive": edl.ElectionType.LONGEST_LOG_AGGRESSIVE,
    "balanced": edl.ElectionType.LONGEST_LOG_BALANCED,
}


def elect(box: Box, when: dict[str, Any], count: int) -> list[Error]:
    """Return the error of each of the first `count` partitions."""
    if when["type"] in ("preferred", "unclean"):
        topics = [el.TopicPartitions(topic=TOPIC, partitions=list(range(count)))]
        election_type = ["preferred", "unclean"].index(when["type"])
        answer = box.send(el.ElectLeadersRequest(election_type=election_type, topic_partitions=topics))
        return [result.error_code for result in answer.replica_election_results[0].partition_result]
    election_type = edl.ElectionType.DESIGNATED if when["type"] == "designated" else MODES[when["mode"]]
    partitions = [
        edl.DesignatedPartition(partition=index, designated_leader=when.get("desired", -1)) for index in range(count)
    ]
    answer = box.send(
        edl.ElectDesignatedLeadersRequest(
            election_type=election_type, topics=[edl.DesignatedTopic(topic=TOPIC, partitions=partitions)]
        )
    )
    return [result.error_code for result in answer.replica_election_results[0].partition_results]


@pytest.mark.parametrize("case", load("elect_leaders"))
def test_elect_leaders(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], {"type", "desired", "mode"}, "when")
    then = only(case["then"], THEN, "then")
    count = given.get("partitions", 1)
    box = Box(unclean_leader_election=given.get("unclean_config", False)).features(elr=given.get("elr", True))
    leaderless = {"replicas": given["alive"], "isr": [], "leader": -1}
    state = partition(given.get("partition", leaderless))
    for broker_id in sorted({*state.replicas, *given["alive"]}):
        box.broker(broker_id, fenced=broker_id not in given["alive"])
    box.topic(*[state] * count).activate()

    errors = elect(box, when, count)

    if "served" in then:
        assert errors == [Error.NONE] * then["served"] + [Error[then["rest_error"]]] * (count - then["served"])
    else:
        assert errors == [Error[then["error"]]]
    expected = {key: value for key, value in then.items() if key in ("leader", "isr", "elr", "recovery")}
    matches(box.partition(), expected)
