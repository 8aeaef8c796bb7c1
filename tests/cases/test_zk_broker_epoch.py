"""Family zk_broker_epoch: control requests at a broker, ControlledShutdown and broker changes at the controller (KIP-380)."""

from random import Random
from typing import Any
from uuid import UUID

import pytest

from replog.broker.isr import PartitionState
from replog.broker.metadata import BrokerMetadata
from replog.controller.events import Probe, Reply, Request
from replog.controller.policy import Settings
from replog.errors import Error
from replog.types import BrokerEpoch, LeaderRecoveryState, NodeId, TopicPartition
from replog.wire.messages import controlled_shutdown as cs
from replog.wire.messages import leader_and_isr as li
from replog.wire.messages import stop_replica as sr
from replog.wire.messages import update_metadata as um
from replog.zookeeper.broker import Answer, Assign, ControlledBroker, GiveUp, KeepOnly
from replog.zookeeper.broker_changes import diff_brokers, steps
from replog.zookeeper.control_queue import ControlQueue, ControlRequest
from replog.zookeeper.controller import CONTROLLED_SHUTDOWN, Loaded, ZooKeeperController
from replog.zookeeper.operations import Stat
from replog.zookeeper.versions import ProtocolVersion
from replog.zookeeper.znodes import BrokerZnode, PartitionStateZnode, Registered, TopicZnode
from tests.cases.cases import load, only
from tests.identities import an_identity

NODE = NodeId(1)
GIVEN = {
    "broker_epoch",
    "controller_epoch",
    "partition_leader_epoch",
    "recovery",
    "role",
    "live",
    "active",
    "context",
    "hosted",
    "hwm_checkpoint",
}
WHEN = {"api", "broker_epoch", "controller_epoch", "leader_epoch", "recovery", "partitions", "broker", "registered"}
THEN = {
    "error",
    "applied",
    "controller_retries",
    "recovery",
    "partition_error",
    "moved_leaders",
    "new",
    "dead",
    "bounced",
    "calls",
    "hosted",
    "replica_online",
    "hwm_checkpoint",
}
T0 = TopicPartition("t", 0)
CONTRADICTING = {"ZK-030": "D15: the order of the KIP's text is new, dead, bounced"}


@pytest.mark.parametrize("case", load("zk_broker_epoch", contradicting=CONTRADICTING))
def test_zk_broker_epoch(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], THEN, "then")

    if "registered" in when:
        found = broker_change(given, when)
    elif when["api"] == "controlled_shutdown":
        found = shutdown(given, when)
    else:
        found = control_request(given, when)

    assert {name: found[name] for name in then} == then


def control_request(given: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    checkpoints = {_name(text): offset for text, offset in given.get("hwm_checkpoint", {}).items()}
    hosted = {T0: partition_state(given.get("partition_leader_epoch", 0), given.get("recovery", 0))}
    metadata = BrokerMetadata(NODE)
    broker = ControlledBroker(metadata, an_identity(), lambda name: hosted.get(name))
    broker.registered(BrokerEpoch(given["broker_epoch"]))
    broker.controller_epoch = given.get("controller_epoch", 0)
    before = broker.known_epochs
    body = BODIES[when["api"]](when)

    effects = broker.handle(body)

    (answer,) = (effect.body for effect in effects if isinstance(effect, Answer))
    for effect in effects:
        match effect:
            case GiveUp():
                hosted.pop(effect.name)
            case Assign():
                hosted[effect.name] = effect.state
            case KeepOnly():
                for name in [name for name in checkpoints if name not in effect.names]:
                    del checkpoints[name]
    if answer.error_code is not Error.NONE:
        assert broker.known_epochs == before, "a refused request leaves no trace, not even its controller's epoch"
    queue = ControlQueue(NODE, BrokerEpoch(when["broker_epoch"]))
    request = ControlRequest(body=body, version=0)
    queue.put(request)
    queue.on_answer(request, answer.error_code)
    partition_errors = getattr(answer, "partition_errors", [])
    changed = any(not isinstance(effect, Answer | Probe) for effect in effects)
    return {
        "error": answer.error_code.name,
        "applied": changed or broker.has_metadata,
        "controller_retries": queue.next is not None,
        "recovery": int(hosted[T0].recovery) if T0 in hosted else None,
        "partition_error": partition_errors[0].error_code.name if partition_errors else None,
        "hosted": [f"{name}" for name in hosted],
        "replica_online": T0 in hosted,
        "hwm_checkpoint": {f"{name}": offset for name, offset in checkpoints.items()},
    }


def shutdown(given: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    if not given.get("active", True):
        refused = CONTROLLED_SHUTDOWN.refused(cs.ControlledShutdownRequest(), Error.NOT_CONTROLLER)
        return {"error": refused.error_code.name}
    controller = ZooKeeperController(
        Settings(cluster_id="c"),
        node_id=NodeId(2),
        epoch=1,
        protocol=ProtocolVersion.parse("3.4"),
        new_topic_id=lambda: UUID(int=9),
        random=Random(0),
    )
    live = {**given["live"], 2: 5}
    controller.activate(loaded(live), now_ms=0)
    body = cs.ControlledShutdownRequest(broker_id=when["broker"], broker_epoch=when["broker_epoch"])

    effects = controller.handle(Request(token=1, body=body, received_ms=0), 0)

    (answer,) = (effect.body for effect in effects if isinstance(effect, Reply))
    leader = controller.image.topics_by_name["t"].partitions[0].leader
    assert isinstance(answer, cs.ControlledShutdownResponse)
    return {"error": answer.error_code.name, "moved_leaders": leader == 2}


def broker_change(given: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    changes = diff_brokers(given["context"], when["registered"])
    return {
        "new": list(changes.new),
        "dead": list(changes.dead),
        "bounced": list(changes.bounced),
        "calls": [f"{step.value} {node}" for step, node in steps(changes)],
    }


def loaded(live: dict[int, int]) -> Loaded:
    state = PartitionStateZnode(controller_epoch=0, leader=1, leader_epoch=0, isr=[1, 2])
    return Loaded(
        registered={
            NodeId(node): Registered(node=NodeId(node), epoch=BrokerEpoch(epoch), znode=BrokerZnode(host="h", port=1))
            for node, epoch in live.items()
        },
        topics={"t": TopicZnode(partitions={"0": [1, 2]})},
        states={T0: (state, Stat(czxid=1, mzxid=1000, version=0))},
        configs={},
        deletions=[],
        next_producer_id=None,
    )


def partition_state(leader_epoch: int, recovery: int, leader: int = 2) -> PartitionState:
    return PartitionState(
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=0,
        replicas=(1, 2),
        isr=(leader,),
        recovery=LeaderRecoveryState(recovery),
    )


def leader_and_isr(when: dict[str, Any]) -> li.LeaderAndIsrRequest:
    states = [
        li.LeaderAndIsrPartitionState(
            partition_index=_name(text).partition,
            leader=2,
            leader_epoch=when.get("leader_epoch", 8),
            isr=[2],
            replicas=[1, 2],
            partition_epoch=1,
            leader_recovery_state=when.get("recovery", 0),
        )
        for text in when.get("partitions", ["t-0"])
    ]
    return li.LeaderAndIsrRequest(
        controller_id=2,
        controller_epoch=when.get("controller_epoch", 9),
        broker_epoch=when["broker_epoch"],
        topic_states=[li.LeaderAndIsrTopicState(topic_name="t", topic_id=UUID(int=9), partition_states=states)],
    )


def stop_replica(when: dict[str, Any]) -> sr.StopReplicaRequest:
    state = sr.StopReplicaPartitionState(partition_index=0, leader_epoch=when.get("leader_epoch", 9))
    return sr.StopReplicaRequest(
        controller_epoch=when.get("controller_epoch", 9),
        broker_epoch=when["broker_epoch"],
        topic_states=[sr.StopReplicaTopicState(topic_name="t", partition_states=[state])],
    )


def update_metadata(when: dict[str, Any]) -> um.UpdateMetadataRequest:
    return um.UpdateMetadataRequest(
        controller_id=2,
        controller_epoch=when.get("controller_epoch", 9),
        broker_epoch=when["broker_epoch"],
        live_brokers=[um.UpdateMetadataBroker(id=2, endpoints=[um.UpdateMetadataEndpoint(port=1, host="h")])],
    )


BODIES = {"leader_and_isr": leader_and_isr, "stop_replica": stop_replica, "update_metadata": update_metadata}


def _name(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))
