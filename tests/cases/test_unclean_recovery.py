"""Family unclean_recovery: KIP-966 part 2, the decision and the search for the longest log."""

from typing import Any

import pytest

from replog.controller.election import Election, Rules, Wish, partition_change
from replog.controller.elr import LastKnownMode
from replog.controller.events import AskLogInfo, LogInfoAnswered
from replog.controller.policy import Strategy, strategy_of_old_option
from replog.controller.unclean_recovery import PARTITIONS_PER_REQUEST_MAX, Action, LogInfo, Recovery, decide
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.image import merged
from replog.types import NO_NODE, BrokerEpoch, LeaderEpoch, NodeId
from replog.wire.messages import elect_designated_leaders as edl
from replog.wire.messages import get_replica_log_info as m
from replog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.cases.cases import load, only
from tests.cases.controllers import Box
from tests.cases.partitions import KEY, TOPIC, TOPIC_ID, matches, partition, shown

GIVEN = {
    "strategy",
    "isr",
    "elr",
    "last_known",
    "alive",
    "replicas",
    "leader_epoch",
    "registered",
    "timeout_ms",
    "manager_enabled",
    "unclean_leader_election_enable",
}
WHEN = {"event", "answers", "elapsed_ms", "get_replica_log_info_partitions"}
THEN = {
    "elect",
    "clean",
    "recovery",
    "wait_for",
    "ask_again",
    "ask",
    "isr",
    "restarted",
    "recovery_cancelled",
    "served",
    "rest_error",
    "strategy",
}
ANSWER = {"broker", "last_epoch", "leo", "broker_epoch", "current_leader_epoch"}


@pytest.mark.parametrize("case", load("unclean_recovery"))
def test_unclean_recovery(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], THEN, "then")

    if when.get("event") == "map_config":
        mapped = strategy_of_old_option(enabled=given["unclean_leader_election_enable"])
        assert mapped is Strategy(then["strategy"])
    elif "get_replica_log_info_partitions" in when:
        _limit(when["get_replica_log_info_partitions"], then)
    elif when.get("event") == "leader_needed" and given.get("manager_enabled", True):
        _decision(given, then)
    elif "event" in when:
        _in_a_controller(given, when, then)
    else:
        _search(given, when, then)


def _limit(count: int, then: dict[str, Any]) -> None:
    box = Box(unclean_recovery_manager=True).features().broker(1)
    box.topic(*[partition({"replicas": [1], "isr": [], "leader": -1})] * count).activate()
    answer = box.send(
        edl.ElectDesignatedLeadersRequest(
            election_type=edl.ElectionType.LONGEST_LOG_AGGRESSIVE,
            topics=[
                edl.DesignatedTopic(
                    topic=TOPIC, partitions=[edl.DesignatedPartition(partition=index) for index in range(count)]
                )
            ],
        )
    )
    errors = [log_info.error_code for log_info in answer.replica_election_results[0].partition_results]
    assert errors.count(Error.NONE) == then["served"] == PARTITIONS_PER_REQUEST_MAX
    assert errors[then["served"] :] == [Error[then["rest_error"]]] * (count - then["served"])
    asked = [effect.request for effect in box.effects if isinstance(effect, AskLogInfo)]
    assert all(sum(len(t.partitions) for t in request.topic_partitions) <= then["served"] for request in asked)


def _decision(given: dict[str, Any], then: dict[str, Any]) -> None:
    members = {*given["isr"], *given["elr"], *given["last_known"], *given["alive"]}
    state = partition(
        {
            "replicas": sorted(members),
            "isr": given["isr"],
            "elr": given["elr"],
            "last_known": given["last_known"],
            "leader": -1,
        }
    )
    decision = decide(state, Strategy(given["strategy"]), lambda node: node in given["alive"])
    match then:
        case {"elect": node, "clean": True}:
            assert decision == (Action.ELECT, (node,))
        case {"recovery": "start"}:
            assert decision.action is Action.RECOVER
        case {"wait_for": "operator"}:
            assert decision.action is Action.OPERATOR
        case {"wait_for": nodes}:
            assert decision == (Action.WAIT, tuple(nodes))
        case _:
            raise AssertionError(then)


def _cluster(given: dict[str, Any]) -> Box:
    box = Box(
        min_insync_replicas=2,
        session_timeout_ms=10**9,  # no heartbeats here
        unclean_recovery_manager=given.get("manager_enabled", True),
        unclean_recovery_timeout_ms=given["timeout_ms"],
        unclean_leader_election=given.get("unclean_leader_election_enable", False),
    ).features()
    # An ELR member that is to return, or one that is not alive, is fenced at first.
    alive = given.get("alive", [node for node in given["registered"] if node not in given.get("elr", [])])
    for broker_id, epoch in given["registered"].items():
        box.broker(broker_id, epoch=epoch, fenced=broker_id not in alive)
    state = {
        "replicas": given["replicas"],
        "isr": given.get("isr", []),
        "elr": given.get("elr", []),
        "last_known": given.get("last_known", []),
        "leader": -1,
        "leader_epoch": given["leader_epoch"],
    }
    if "strategy" in given:
        box.topic().config("unclean.recovery.strategy", given["strategy"])
        return box.replay(r.partition_record(TOPIC_ID, 0, partition(state)))
    return box.topic(partition(state))


def _search(given: dict[str, Any], when: dict[str, Any], then: dict[str, Any]) -> None:
    """Answers come in, time passes: who wins, who is asked again."""
    state = partition(
        {
            "replicas": given["replicas"],
            "isr": [],
            "last_known": given.get("last_known", []),
            "leader": -1,
            "leader_epoch": given["leader_epoch"],
        }
    )
    recovery = Recovery(KEY, state, Strategy(given["strategy"]), now_ms=0, timeout_ms=given["timeout_ms"])
    registered = {NodeId(node): BrokerEpoch(epoch) for node, epoch in given["registered"].items()}
    refused = []
    for answer in when["answers"]:
        only(answer, ANSWER, "answer")
        info = LogInfo(
            broker_epoch=BrokerEpoch(answer["broker_epoch"]),
            current_leader_epoch=LeaderEpoch(answer["current_leader_epoch"]),
            last_written_leader_epoch=LeaderEpoch(answer["last_epoch"]),
            log_end_offset=answer["leo"],
        )
        if not recovery.on_answer(NodeId(answer["broker"]), info, registered, 0):
            refused.append(answer["broker"])
    winner = recovery.winner(lambda node: node in registered, when.get("elapsed_ms", 0))

    assert winner == (NO_NODE if then["elect"] is None else then["elect"])
    if "ask_again" in then:
        assert refused == then["ask_again"]
    if "recovery" in then or "isr" in then:
        rules = Rules(min_insync_replicas=2, elr_enabled=True, last_known_mode=LastKnownMode.ELR_MEMBERS)
        wish = Wish(election=Election.DESIGNATED, designated_leader=winner)
        change = partition_change(KEY, state, wish, rules, lambda node: node in registered)
        assert change is not None
        matches(merged(state, change), {key: then[key] for key in ("recovery", "isr") if key in then})


def _in_a_controller(given: dict[str, Any], when: dict[str, Any], then: dict[str, Any]) -> None:
    box = _cluster(given).activate()
    for answer in when.get("answers", []):
        _answer(box, only(answer, ANSWER, "answer"))
    match when["event"]:
        case "controller_failover":
            box.controller.deactivate()
            box.activate()
            assert then["restarted"] is True
            assert [int(effect.broker_id) for effect in box.effects if isinstance(effect, AskLogInfo)] == then["ask"]
        case "leader_needed":
            box.tick(300_000)
        case event:
            broker = box.image.brokers[NodeId(int(event.removeprefix("unfence ")))]
            box.send(
                BrokerHeartbeatRequest(
                    broker_id=broker.broker_id, broker_epoch=broker.epoch, current_metadata_offset=broker.epoch
                )
            )
    after = shown(box.partition())
    if "elect" in then:
        assert after["leader"] == then["elect"]
    if "clean" in then:
        assert (after["recovery"] == 0) is then["clean"]
    if "recovery" in then:
        assert after["recovery"] == then["recovery"]
    if then.get("recovery_cancelled"):
        assert box.controller.recoveries.counts == (0, 0, 0)


def _answer(box: Box, answer: dict[str, Any]) -> None:
    request = m.GetReplicaLogInfoRequest(
        broker_id=answer["broker"],
        topic_partitions=[m.GetReplicaLogInfoRequestTopicPartitions(topic_id=KEY.topic_id, partitions=[0])],
    )
    log_info = m.PartitionLogInfo(
        partition=0,
        last_written_leader_epoch=answer["last_epoch"],
        current_leader_epoch=answer["current_leader_epoch"],
        log_end_offset=answer["leo"],
    )
    response = m.GetReplicaLogInfoResponse(
        broker_epoch=answer["broker_epoch"],
        topic_partition_log_info_list=[m.TopicPartitionLogInfo(topic_id=KEY.topic_id, partition_log_info=[log_info])],
    )
    box.log_info(LogInfoAnswered(broker_id=NodeId(answer["broker"]), request=request, response=response))
