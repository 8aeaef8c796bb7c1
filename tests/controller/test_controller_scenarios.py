"""Named scenarios of the controller; the first ones were found by random histories or by the model."""

import tracemalloc
from typing import Any
from uuid import UUID

import pytest

from replog.controller.controller import Controller
from replog.controller.election import Election, Rules, Wish, partition_change
from replog.controller.elr import LastKnownMode
from replog.controller.events import Append, AskLogInfo, Emit, LogInfoAnswered, Reply, Request, Tick
from replog.controller.policy import Strategy
from replog.controller.topics import new_partition
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.features import SUPPORTED
from replog.metadata.image import merged
from replog.metadata.state import BROKER_RESOURCE, TOPIC_RESOURCE
from replog.types import NO_NODE, LeaderRecoveryState, NodeId, TopicIdPartition
from replog.wire.messages import alter_partition_reassignments as apr
from replog.wire.messages import broker_heartbeat as hb
from replog.wire.messages import controller_registration as cr
from replog.wire.messages import create_topics as ct
from replog.wire.messages import get_replica_log_info as m
from replog.wire.messages import incremental_alter_configs as iac
from replog.wire.messages import update_features as uf
from replog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.cases.controllers import Box, incarnation, registration
from tests.cases.partitions import KEY, TOPIC, TOPIC_ID, partition

LEADER_MODE = Rules(min_insync_replicas=2, elr_enabled=True, last_known_mode=LastKnownMode.LEADER)


def cluster(*brokers: int, **settings: Any) -> Box:
    box = Box(**({"min_insync_replicas": 2} | settings)).features()
    for broker_id in brokers or (1, 2, 3):
        box.broker(broker_id)
    return box


def beat(box: Box, broker_id: int, *, offset: int | None = None, **wishes: bool) -> hb.BrokerHeartbeatResponse:
    answer: hb.BrokerHeartbeatResponse = box.send(
        hb.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=box.image.broker_epoch(broker_id),
            current_metadata_offset=10_000 if offset is None else offset,
            **wishes,
        )
    )
    return answer


def let_expire(box: Box, broker_id: int) -> None:
    broker = box.image.brokers[NodeId(broker_id)]
    box.controller.sessions.touch(broker.broker_id, broker.epoch, 0).last_contact_ms = -(10**10)
    box.tick()


# --- found by random histories and by the model ------------------------------------------------------


def test_an_elr_does_not_outlive_a_lowered_min_isr() -> None:
    """KIP-966: "If ELR is not empty, the ISR is under min ISR"; else the one left behind is elected later."""
    leaderless = partition({"replicas": [1, 2, 3], "isr": [], "elr": [1, 3], "leader": -1})
    rules = Rules(min_insync_replicas=1, elr_enabled=True, last_known_mode=LastKnownMode.LEADER)

    change = partition_change(KEY, leaderless, Wish(), rules, lambda node: node == 1)

    assert change is not None
    after = merged(leaderless, change)
    assert (after.leader, after.isr, after.elr) == (1, (1,), ())


def test_a_broker_on_its_way_out_is_not_elected_when_it_is_unfenced() -> None:
    box = cluster(2, 3).broker(1, fenced=True, in_controlled_shutdown=True)
    box.topic(partition({"replicas": [1, 2], "isr": [], "elr": [1], "leader": -1})).activate()

    beat(box, 1)

    assert box.image.is_alive(NodeId(1))
    assert box.partition().leader == NO_NODE


def test_a_cancel_that_leaves_nobody_to_lead_is_refused() -> None:
    box = cluster(1, 4, unclean_leader_election=True, min_insync_replicas=1).broker(2, fenced=True)
    state = partition({"replicas": [4, 2, 1], "isr": [1], "leader": 1, "adding": [1, 4]})
    box.topic(state).activate()

    wanted = apr.ReassignablePartition(partition_index=0, replicas=None)
    answer = box.send(
        apr.AlterPartitionReassignmentsRequest(topics=[apr.ReassignableTopic(name=TOPIC, partitions=[wanted])])
    )

    assert answer.responses[0].partitions[0].error_code is Error.INVALID_REPLICA_ASSIGNMENT
    assert box.partition() == state


def test_nobody_is_no_last_known_leader() -> None:
    whole = partition({"replicas": [1, 2], "isr": [1], "elr": [2]})

    change = partition_change(KEY, whole, Wish(target_isr=()), LEADER_MODE, lambda node: node not in (1, 2))

    assert change is not None
    assert (change.leader, change.leader_recovery_state) == (NO_NODE, -1)


# --- lives of brokers ------------------------------------------------------------------------------------


def test_a_registration_is_no_contact_and_unfencing_needs_its_own_record() -> None:
    """SPEC 2.2.7, 2.3.2 (M58)."""
    box = cluster(2, 3).activate()
    answer = box.send(registration(1, incarnation_id=incarnation("a")))

    early = beat(box, 1, offset=answer.broker_epoch - 1)
    fenced_still = box.image.brokers[NodeId(1)].fenced
    late = beat(box, 1, offset=answer.broker_epoch)

    assert (early.is_fenced, early.is_caught_up, fenced_still) == (True, False, True)
    assert (late.is_fenced, late.is_caught_up) == (False, True)


def test_controlled_shutdown_waits_until_all_know_and_lets_the_next_incarnation_in_at_once() -> None:
    """SPEC 2.3.4-6; RG-014 is the same with a session."""
    box = cluster().topic(partition({"replicas": [1, 2, 3]})).activate()
    for broker_id in (1, 2, 3):
        beat(box, broker_id, offset=0)

    entering = beat(box, 1, want_shut_down=True)
    entered_offset = box.offset - 1
    moved = box.partition()
    waiting = beat(box, 1, want_shut_down=True)
    for broker_id in (2, 3):
        beat(box, broker_id, offset=entered_offset)
    events = beat(box, 1, want_shut_down=True)
    again = box.send(registration(1, incarnation_id=incarnation("b"), previous_epoch=box.image.broker_epoch(NodeId(1))))

    assert not entering.should_shut_down
    assert (moved.leader, moved.isr) == (2, (2, 3))
    assert not waiting.should_shut_down
    assert events.should_shut_down
    assert events.is_fenced
    assert again.error_code is Error.NONE


def test_a_second_incarnation_waits_for_the_first_ones_session() -> None:
    """SPEC 2.2.1."""
    box = cluster().activate()
    beat(box, 1)

    at_once = box.send(registration(1, incarnation_id=incarnation("x")))
    box.now_ms += 9000
    later = box.send(registration(1, incarnation_id=incarnation("x")))

    assert at_once.error_code is Error.DUPLICATE_BROKER_REGISTRATION
    assert later.error_code is Error.NONE


def test_silent_brokers_are_fenced_one_by_one_the_longest_silent_first() -> None:
    """SPEC 2.3.8: the last one fenced is the last known leader (docs/known-bugs.md, point 12)."""
    box = cluster().topic(partition({"replicas": [1, 2, 3]})).activate()
    for broker_id in (2, 1, 3):
        box.now_ms += 10
        beat(box, broker_id)
    box.now_ms += 9000

    order = []
    for _ in range(3):
        box.tick()
        order += [effect.fields["node"] for effect in box.effects if isinstance(effect, Emit)]

    assert order == [2, 1, 3]
    state = box.partition()
    assert (state.leader, state.isr, set(state.elr), state.last_known_elr) == (NO_NODE, (), {1, 3}, (3,))


def test_what_is_reported_of_a_registration_names_both_epochs() -> None:
    """docs/verdicts.md: an unclean shutdown is a registration whose previous epoch is not the registered one."""
    box = cluster(2, 3).activate()

    box.send(registration(1, incarnation_id=incarnation("z"), previous_epoch=77))

    events = [effect for effect in box.effects if isinstance(effect, Emit)]
    assert [(effect.event, effect.fields["node"], effect.fields["previous_broker_epoch"]) for effect in events] == [
        ("registered", 1, 77)
    ]


# --- the log and the image ------------------------------------------------------------------------------


def many_topics(box: Box, count: int) -> None:
    replicas = tuple(NodeId(node) for node in (1, 2, 3))
    for number in range(count):
        box.topic(new_partition(box.image, replicas), name=f"t{number}", topic_id=UUID(int=number + 1))


def following(box: Box) -> Controller:
    """Another controller that has what this one has."""
    follower: Controller = Box(min_insync_replicas=2).controller
    for record in box.image.snapshot():
        follower.image.replay(record, box.offset - 1)
    return follower


def test_a_long_group_is_bracketed_and_taken_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 2.1.6: all or nothing, also when leadership ends while half of it is committed."""
    monkeypatch.setattr(r, "BATCH_RECORDS_MAX", 4)
    box = cluster()
    many_topics(box, 9)
    box.activate()
    start = box.offset
    broker = box.image.brokers[NodeId(1)]
    box.controller.sessions.touch(broker.broker_id, broker.epoch, 0).last_contact_ms = 0
    before = dict(box.image.partitions())
    controller: Controller = box.controller
    follower = following(box)

    effects = controller.handle(Tick(), box.now_ms, start)
    log = [record for effect in effects if isinstance(effect, Append) for record in effect.records]
    controller.committed(start + 5)
    controller.deactivate()
    halfway = dict(controller.image.partitions())
    for offset, record in enumerate(log, start):
        follower.replay(offset, record)
        if offset > start + 5:
            controller.replay(offset, record)

    assert [len(effect.records) for effect in effects if isinstance(effect, Append)] == [4, 4, 4]
    assert halfway == before
    assert dict(follower.image.partitions()) == dict(controller.image.partitions()) != before
    assert controller.image.brokers == follower.image.brokers
    assert not controller.image.in_transaction


def test_two_long_groups_are_taken_back_when_half_of_the_first_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next leader may have had both: what was committed of the first must be there when its end comes."""
    monkeypatch.setattr(r, "BATCH_RECORDS_MAX", 4)
    box = cluster()
    many_topics(box, 9)
    box.activate()
    start = box.offset
    controller: Controller = box.controller
    follower = following(box)

    log: list[r.MetadataRecord] = []
    for node in (1, 2):
        broker = box.image.brokers[NodeId(node)]
        controller.sessions.touch(broker.broker_id, broker.epoch, 0).last_contact_ms = 0
        effects = controller.handle(Tick(), box.now_ms, start + len(log))
        batches = [effect.records for effect in effects if isinstance(effect, Append)]
        assert len(batches) > 1
        log += [record for batch in batches for record in batch]
    controller.committed(start + 5)
    controller.deactivate()
    for offset, record in enumerate(log, start):
        follower.replay(offset, record)
        if offset > start + 5:
            controller.replay(offset, record)

    assert dict(follower.image.partitions()) == dict(controller.image.partitions())
    assert controller.image.brokers == follower.image.brokers
    assert not controller.image.in_transaction


@pytest.mark.parametrize(("metadata_version", "batches"), [(12, [10]), (13, [4, 4, 4]), (25, [4, 4, 4])])
def test_before_there_were_transactions_a_long_group_is_one_batch(
    monkeypatch: pytest.MonkeyPatch, metadata_version: int, batches: list[int]
) -> None:
    """KIP-868: Begin and EndTransaction records came with metadata version 3.6-IV1."""
    monkeypatch.setattr(r, "BATCH_RECORDS_MAX", 4)
    box = Box().features(elr=False, metadata_version=metadata_version).broker(1).broker(2)
    for number in range(9):
        box.topic(partition({"replicas": [1, 2]}), name=f"t{number}", topic_id=UUID(int=number + 1))
    box.activate()
    first = box.offset

    answer = box.send(registration(1, incarnation_id=incarnation("n")), received_ms=box.now_ms)
    assert answer.error_code is Error.DUPLICATE_BROKER_REGISTRATION
    box.now_ms += 9000
    answer = box.send(registration(1, incarnation_id=incarnation("n")))

    assert [len(effect.records) for effect in box.effects if isinstance(effect, Append)] == batches
    assert answer.broker_epoch == first + 9 + (len(batches) > 1)
    assert box.image.broker_epoch(NodeId(1)) == answer.broker_epoch


def controller_registration(**changes: Any) -> cr.ControllerRegistrationRequest:
    fields: dict[str, Any] = {
        "controller_id": 101,
        "incarnation_id": incarnation("k"),
        "listeners": [cr.Listener(name="CONTROLLER", host="h", port=9)],
        "features": [
            cr.Feature(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
            for name, levels in SUPPORTED.items()
        ],
    }
    return cr.ControllerRegistrationRequest(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "metadata_version", "error"),
    [
        pytest.param({}, 25, Error.NONE, id="registered"),
        pytest.param({}, 14, Error.UNSUPPORTED_VERSION, id="before its metadata version"),
        pytest.param({"listeners": []}, 25, Error.INVALID_REGISTRATION, id="nowhere to be reached"),
        pytest.param({"controller_id": -1}, 25, Error.INVALID_REGISTRATION, id="no id"),
        pytest.param({"zk_migration_ready": True}, 25, Error.INVALID_REGISTRATION, id="migrating"),
        pytest.param({"features": []}, 25, Error.UNSUPPORTED_VERSION, id="too old for what is finalized"),
    ],
)
def test_a_controller_registers(changes: dict[str, Any], metadata_version: int, error: Error) -> None:
    box = Box().features(elr=False, metadata_version=metadata_version).activate()

    answer = box.send(controller_registration(**changes))

    assert answer.error_code is error
    assert list(box.image.controllers) == ([101] if error is Error.NONE else [])


def test_a_feature_waits_for_controllers_that_do_not_know_it() -> None:
    box = Box().features(elr=False).activate()
    old = [one for one in controller_registration().features if one.name != "group.version"]
    box.send(controller_registration(features=old))

    update = uf.FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1)
    answer = box.send(uf.UpdateFeaturesRequest(feature_updates=[update]))

    assert "Controller 101 does not support level 1 of group.version" in (answer.error_message or "")


def test_a_new_controller_aborts_a_group_that_was_never_ended() -> None:
    box = cluster().topic(partition({"replicas": [1, 2, 3]}))
    box.replay(r.BeginTransactionRecord(name="event"))
    box.replay(r.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=3))

    box.activate()

    assert isinstance(box.records[0], r.AbortTransactionRecord)
    assert box.partition().leader == 1


def test_a_fresh_cluster_begins_with_its_features() -> None:
    box = Box(min_insync_replicas=2).activate()

    assert box.image.features == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 25,
        "transaction.version": 2,
    }
    assert box.image.cluster_config("min.insync.replicas") == "2"


def test_a_reply_comes_after_what_it_reports() -> None:
    box = cluster().activate()
    body = ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="x", num_partitions=3, replication_factor=3)])

    effects = box.controller.handle(Request(token=9, body=body, received_ms=0), box.now_ms, box.offset)

    kinds = [type(effect) for effect in effects]
    assert kinds == [Append, Reply]
    assert [type(record) for record in effects[0].records] == [r.TopicRecord, *[r.PartitionRecord] * 3]  # type: ignore[union-attr]


def test_an_idle_log_gets_a_record_that_says_nothing() -> None:
    """KIP-835: `metadata.max.idle.interval.ms`; what is written for another reason is as good."""
    box = cluster(max_idle_interval_ms=500).topic(partition({"replicas": [1, 2, 3]})).activate()
    for broker_id in (1, 2, 3):
        beat(box, broker_id)

    box.tick(499)
    early = list(box.records)
    box.tick(1)
    idle = list(box.records)
    alter(box, TOPIC_RESOURCE, TOPIC, "retention.ms", "1")
    box.tick(499)

    assert (early, idle, box.records) == ([], [r.NoOpRecord()], [])
    assert box.controller.next_deadline_ms(box.now_ms) == box.now_ms + 1


def test_memory_a_partition_is_below_two_kibibytes() -> None:
    tracemalloc.start()
    box = cluster()
    many_topics(box, 500)
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert held_bytes / 500 < 2048


# --- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "shared", "file", "wanted"),
    [
        pytest.param({}, {}, {}, Strategy.BALANCED, id="default"),
        pytest.param({"unclean": "true"}, {}, {}, Strategy.AGGRESSIVE, id="old option of the topic"),
        pytest.param({"unclean": "true", "strategy": "None"}, {}, {}, Strategy.NONE, id="strategy beats old option"),
        pytest.param({"unclean": "false"}, {"strategy": "Aggressive"}, {}, Strategy.BALANCED, id="topic beats cluster"),
        pytest.param({}, {"strategy": "None", "unclean": "true"}, {}, Strategy.NONE, id="cluster strategy"),
        pytest.param({}, {}, {"unclean_leader_election": True}, Strategy.AGGRESSIVE, id="old option of the file"),
    ],
)
def test_the_most_specific_strategy_wins(
    topic: dict[str, str], shared: dict[str, str], file: dict[str, Any], wanted: Strategy
) -> None:
    """D19."""
    names = {"unclean": "unclean.leader.election.enable", "strategy": "unclean.recovery.strategy"}
    box = cluster(**file).topic(partition({"replicas": [1, 2, 3]}))
    for name, value in topic.items():
        box.config(names[name], value)
    for name, value in shared.items():
        box.cluster_config(names[name], value)

    assert box.controller.policy.strategy(TOPIC) is wanted


def test_a_warning_names_where_the_deprecated_option_decides() -> None:
    """KIP-966: "unclean.leader.election.enable will be marked as deprecated" (D19)."""
    box = cluster(unclean_leader_election=True).topic(partition({"replicas": [1, 2, 3]}))
    box.config("unclean.leader.election.enable", "true")
    box.cluster_config("unclean.leader.election.enable", "true")
    box.cluster_config("unclean.recovery.strategy", "Balanced")

    assert box.controller.policy.deprecated() == ["the controller's file", f"topic {TOPIC}"]


def alter(box: Box, resource_type: int, resource: str, name: str, value: str | None, operation: int = 0) -> Error:
    config = iac.AlterableConfig(name=name, config_operation=operation, value=value)
    wanted = iac.AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=[config])
    return Error(box.send(iac.IncrementalAlterConfigsRequest(resources=[wanted])).responses[0].error_code)


def test_allowing_unclean_election_ends_the_wait_at_once() -> None:
    """SPEC 2.6.6: unclean when the config is turned on."""
    box = cluster(2).broker(1, fenced=True)
    box.topic(partition({"replicas": [1, 2], "isr": [], "elr": [1], "leader": -1})).activate()

    error = alter(box, TOPIC_RESOURCE, TOPIC, "unclean.leader.election.enable", "true")

    assert error is Error.NONE
    state = box.partition()
    assert (state.leader, state.isr, state.elr) == (2, (2,), ())
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERING


@pytest.mark.parametrize(
    ("resource_type", "resource", "name", "value", "operation", "error"),
    [
        pytest.param(TOPIC_RESOURCE, TOPIC, "retention.ms", "1000", 0, Error.NONE, id="set"),
        pytest.param(TOPIC_RESOURCE, TOPIC, "cleanup.policy", "compact", 2, Error.NONE, id="append to a list"),
        pytest.param(TOPIC_RESOURCE, TOPIC, "retention.ms", "1", 2, Error.INVALID_CONFIG, id="append to a number"),
        pytest.param(TOPIC_RESOURCE, TOPIC, "retention.ms", "soon", 0, Error.INVALID_CONFIG, id="no number"),
        pytest.param(TOPIC_RESOURCE, TOPIC, "retention.msec", "1", 0, Error.INVALID_CONFIG, id="unknown name"),
        pytest.param(TOPIC_RESOURCE, TOPIC, "min.insync.replicas", "0", 0, Error.INVALID_CONFIG, id="too small"),
        pytest.param(TOPIC_RESOURCE, "no", "retention.ms", "1", 0, Error.UNKNOWN_TOPIC_OR_PARTITION, id="no topic"),
        pytest.param(BROKER_RESOURCE, "", "min.insync.replicas", "3", 0, Error.NONE, id="cluster min ISR"),
        pytest.param(BROKER_RESOURCE, "", "min.insync.replicas", None, 1, Error.INVALID_CONFIG, id="ELR needs it"),
        pytest.param(BROKER_RESOURCE, "x", "log.retention.ms", "1", 0, Error.INVALID_REQUEST, id="no broker id"),
        pytest.param(8, "1", "logger", "DEBUG", 0, Error.INVALID_REQUEST, id="not kept here"),
    ],
)
def test_configs_are_checked_before_they_are_kept(
    resource_type: int, resource: str, name: str, value: str | None, operation: int, error: Error
) -> None:
    box = cluster().topic(partition({"replicas": [1, 2, 3]})).cluster_config("min.insync.replicas", "2").activate()

    assert alter(box, resource_type, resource, name, value, operation) is error
    assert bool(box.records) is (error is Error.NONE)


def test_turning_elr_on_makes_min_isr_one_for_all() -> None:
    """SPEC 2.8: a broker-level value would let brokers and controller disagree."""
    box = Box(min_insync_replicas=2).features(elr=False).broker(1)
    box.replay(r.ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="1")).activate()

    answer = box.send(
        uf.UpdateFeaturesRequest(
            feature_updates=[uf.FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1)]
        )
    )

    assert answer.error_code is Error.NONE
    assert box.image.cluster_config("min.insync.replicas") == "2"
    assert box.image.broker_config(NodeId(1), "min.insync.replicas") is None


def test_a_partition_without_isr_stays_electable_when_elr_is_turned_off() -> None:
    """SPEC 2.13.2: the old ELR counts as lost; the last leader or an unclean election remains."""
    state = partition({"replicas": [1, 2, 3], "isr": [], "elr": [2], "last_known": [1], "leader": -1})
    off = Rules(min_insync_replicas=2, elr_enabled=False, last_known_mode=LastKnownMode.LEADER)

    for_elr_member = partition_change(KEY, state, Wish(), off, lambda node: node == 2)
    for_last_leader = partition_change(KEY, state, Wish(), off, lambda node: node == 1)
    unclean = partition_change(KEY, state, Wish(election=Election.UNCLEAN), off, lambda node: node == 3)

    assert for_elr_member is None
    assert for_last_leader is not None
    assert unclean is not None
    after = merged(state, for_last_leader)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (1, (1,), (), ())
    assert merged(state, unclean).leader == 3


# --- unclean recovery ----------------------------------------------------------------------------------------


def answer_log_info(box: Box, node: int, *, last_epoch: int, end: int, epoch: int | None = None) -> None:
    state = box.partition()
    events = m.PartitionLogInfo(
        partition=0,
        last_written_leader_epoch=last_epoch,
        current_leader_epoch=state.leader_epoch,
        log_end_offset=end,
    )
    response = m.GetReplicaLogInfoResponse(
        broker_epoch=box.image.broker_epoch(node) if epoch is None else epoch,
        topic_partition_log_info_list=[m.TopicPartitionLogInfo(topic_id=TOPIC_ID, partition_log_info=[events])],
    )
    request = m.GetReplicaLogInfoRequest(
        broker_id=node,
        topic_partitions=[m.GetReplicaLogInfoRequestTopicPartitions(topic_id=TOPIC_ID, partitions=[0])],
    )
    box.log_info(LogInfoAnswered(broker_id=NodeId(node), request=request, response=response))


def asked(box: Box) -> list[int]:
    return [int(effect.broker_id) for effect in box.effects if isinstance(effect, AskLogInfo)]


def recovering_cluster(strategy: str = "Balanced") -> Box:
    box = cluster(1, 2, 3, unclean_recovery_manager=True, session_timeout_ms=10**9)
    box.topic().config("unclean.recovery.strategy", strategy)
    lost = partition({"replicas": [1, 2, 3], "isr": [], "last_known": [1, 2], "leader": -1, "leader_epoch": 4})
    return box.replay(r.partition_record(TOPIC_ID, 0, lost))


def test_a_strategy_changed_while_a_recovery_runs_holds_for_it() -> None:
    """KIP-966 part 2: who sets Aggressive because a recovery waits for a broker that is gone does not wait for ever."""
    box = recovering_cluster().activate()
    answer_log_info(box, 3, last_epoch=2, end=500)
    resource = iac.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=TOPIC,
        configs=[iac.AlterableConfig(name="unclean.recovery.strategy", config_operation=0, value="Aggressive")],
    )
    box.send(iac.IncrementalAlterConfigsRequest(resources=[resource]))
    beat(box, 2, want_fence=True)
    answer_log_info(box, 1, last_epoch=3, end=90)
    before = box.partition().leader
    box.tick(after_ms=300_000)

    assert (before, box.partition().leader) == (NO_NODE, 1)


def test_the_longest_log_is_found_and_elected() -> None:
    """KIP-966 part 2: "the one with the highest leader epoch plus the longest log end offset"."""
    box = recovering_cluster().activate()
    first = asked(box)
    answer_log_info(box, 1, last_epoch=3, end=90)
    answer_log_info(box, 2, last_epoch=4, end=10)
    waiting_for_3 = box.partition().leader
    answer_log_info(box, 3, last_epoch=2, end=500)

    assert first == [1, 2, 3]
    assert waiting_for_3 == NO_NODE
    state = box.partition()
    assert (state.leader, state.isr, state.last_known_elr) == (2, (2,), ())
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert box.controller.recovery_counts == (0, 0, 1)


def test_an_answer_of_a_fenced_replica_counts_no_more() -> None:
    """SPEC 2.12.7."""
    box = recovering_cluster("Aggressive").activate()
    answer_log_info(box, 1, last_epoch=9, end=900)
    let_expire(box, 1)
    answer_log_info(box, 2, last_epoch=4, end=10)
    box.tick(300_000)

    assert box.partition().leader == 2


def test_balanced_waits_for_all_who_could_have_led() -> None:
    """KIP-966: "the controller will only start the recovery if the LastKnownELR members are all unfenced"."""
    box = recovering_cluster()
    box.replay(r.fencing_record(NodeId(2), box.image.broker_epoch(NodeId(2)), r.FENCE)).activate()
    before = asked(box)
    counted = box.controller.recovery_counts

    beat(box, 2)

    assert before == []
    assert counted == (1, 0, 0)
    assert asked(box) == [1, 2, 3]


def test_none_waits_for_the_operator() -> None:
    box = recovering_cluster("None").activate()

    assert asked(box) == []
    assert box.controller.recovery_counts == (0, 1, 0)


def test_keys_of_one_request_never_exceed_the_limit() -> None:
    box = cluster(1, unclean_recovery_manager=True, session_timeout_ms=10**9)
    lost = partition({"replicas": [1], "isr": [], "leader": -1})
    box.topic(*[lost] * 1001).activate()

    sizes = [
        sum(len(topic.partitions) for topic in effect.request.topic_partitions)
        for effect in box.effects
        if isinstance(effect, AskLogInfo)
    ]

    assert sizes == [1000]


def test_indexes_are_in_topic_id_order() -> None:
    """SPEC 2.4.5."""
    box = cluster()
    for number in (5, 3, 9):
        box.topic(*[partition({"replicas": [1, 2, 3]})] * 2, name=f"t{number}", topic_id=UUID(int=number))

    assert box.image.isr_members.of(NodeId(2)) == [
        TopicIdPartition(UUID(int=number), index) for number in (3, 5, 9) for index in (0, 1)
    ]


def test_partitions_under_min_isr_are_counted() -> None:
    """KIP-966, "Metrics"."""
    box = cluster()
    box.topic(
        partition({"replicas": [1, 2, 3]}),
        partition({"replicas": [1, 2, 3], "isr": [1], "elr": [2]}),
        partition({"replicas": [1]}),
    )

    assert box.controller.policy.global_under_min_isr_partition_count() == 1
    assert box.partition(1).electable_leaders == 2


def test_a_question_about_something_else_ends_no_recovery() -> None:
    """What fails while a question is answered costs its sender only: nothing may be written beside the answer."""
    box = cluster(unclean_recovery_manager=True, unclean_recovery_timeout_ms=30_000)
    box.cluster_config("unclean.recovery.strategy", "Aggressive")
    box.topic(partition({"replicas": [1, 2, 3], "isr": [], "last_known": [1, 2], "leader": -1})).activate()
    asked = next(effect for effect in box.effects if isinstance(effect, AskLogInfo) and effect.broker_id == 2)
    info = m.PartitionLogInfo(
        partition=0,
        current_leader_epoch=box.partition().leader_epoch,
        last_written_leader_epoch=0,
        log_end_offset=10,
    )
    response = m.GetReplicaLogInfoResponse(
        broker_epoch=102,
        topic_partition_log_info_list=[m.TopicPartitionLogInfo(topic_id=TOPIC_ID, partition_log_info=[info])],
    )
    box.log_info(LogInfoAnswered(broker_id=NodeId(2), request=asked.request, response=response))
    box.now_ms += 60_000

    box.send(ListPartitionReassignmentsRequest())
    beside_the_answer = list(box.records)
    box.tick()

    assert beside_the_answer == []
    assert box.partition().leader == 2
