"""ZooKeeper mode in the simulator: deterministic, watched, and blind to none of KIP-380's four broken assumptions."""

import asyncio
import importlib
import subprocess
import sys
from uuid import UUID

import msgspec
import pytest

from replog.client.connection import Connection
from replog.wire.apis import Api
from replog.wire.codec import decode_request
from replog.wire.exchange import exchange_of
from replog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from replog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from replog.zookeeper import paths
from replog.zookeeper.operations import Create, Delete
from replog.zookeeper.znodes import TopicZnode, encoded, id_text
from tests.simulated.cluster_program import NOWHERE, Trial, leader
from tribunal.clusters.api import CutMode, Link, Proof, TopicPartition
from tribunal.clusters.capabilities import Shape
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults

SPEC = ClusterSpec(mode="zookeeper", controllers=1)
BROKERS = SPEC.broker_ids
ZOOKEEPER = 101
PARTITION = TopicPartition("produce-consume", 0)
HURT = dict.fromkeys(["kill", "pause", "isolate"], ZOOKEEPER)


def test_the_same_seed_gives_the_same_trace():
    async def bounce(cluster):
        fault = faults()["fast-bounce"]
        async with fault.aimed(leader(cluster), fault.options(how="stop"))(cluster):
            await asyncio.sleep(1)

    first, again = (Trial("zookeeper", SPEC).run(bounce).trace_hash for _ in range(2))

    assert first == again


def test_a_cluster_whose_size_nobody_named_comes_up_with_one_server():
    """Its three had one tree and three clocks: each ended the sessions of the others' clients."""

    async def main():
        cluster = await launch(ClusterSpec(mode="zookeeper"), NOWHERE, RunClock(), "bare")
        await cluster.close()
        return cluster

    cluster, *_ = run_simulated(1, main)

    assert cluster.spec.node_ids == (ZOOKEEPER, *BROKERS)
    assert cluster.failures() == []


def test_a_server_that_comes_back_notifies_nobody_who_has_not_asked_it():
    """Watches outlived its process, by numbers that other connections got: who forgot to ask again was notified all the same."""
    watched = []

    async def main():
        cluster = await launch(SPEC, NOWHERE, RunClock(), "watches")
        watched.append(cluster.model.watched_paths)
        await cluster.kill(ZOOKEEPER)
        await cluster.start(ZOOKEEPER)
        watched.append(cluster.model.watched_paths)
        await cluster.close()

    run_simulated(1, main)

    assert paths.CONTROLLER in watched[0]
    assert watched[1] == []


@pytest.mark.parametrize("name", sorted(HURT))
def test_nothing_is_lost_when_zookeeper_itself_is_hurt(name):
    async def scenario(cluster):
        fault = faults()[name]
        async with fault.aimed(HURT[name], fault.options())(cluster):
            await asyncio.sleep(2.5)

    trial = Trial(f"zookeeper/{name}", SPEC).run(scenario)

    assert trial.lost() == []
    assert trial.unread == []


def test_a_broker_that_lost_its_session_is_registered_with_a_later_epoch():
    epochs = []

    async def cut_off(cluster):
        fault = faults()["isolate"]
        epochs.append(cluster.state.brokers[1].broker_epoch)
        async with fault.aimed(1, fault.options(others="controllers"))(cluster):
            await asyncio.sleep(4)
        epochs.append(cluster.state.brokers[1].broker_epoch)

    trial = Trial("zookeeper/session", SPEC).run(cut_off)

    assert epochs[1] > epochs[0]
    assert trial.lost() == []


def test_a_leave_is_asked_for_again_with_the_epoch_of_the_new_session():
    """KIP-380, "New Error Code": "it will retry to send the ControlledShutdownRequest with newer broker epoch"."""
    asked: dict[int, None] = {}
    epochs = []

    def observe(frame, _):
        if frame.is_request and frame.api == Api.CONTROLLED_SHUTDOWN:
            asked[decode_request(memoryview(frame.data)[4:]).body.broker_epoch] = None

    async def leave_while_cut_off(cluster):
        cluster.simulation.network.frames.observers.append(observe)
        fault = faults()["isolate"]
        before = cluster.state.brokers[1].broker_epoch
        async with fault.aimed(1, fault.options(others="nodes"))(cluster):
            stopping = asyncio.ensure_future(cluster.stop(1))
            await until(lambda: (gone := cluster.state.brokers.get(1)) is None or gone.fenced)
        await stopping
        epochs.extend([before, cluster.state.brokers[1].broker_epoch])
        await cluster.start(1)

    spec = msgspec.structs.replace(SPEC, settings={"controlled.shutdown.timeout.ms": 20_000})
    trial = Trial("zookeeper/leave", spec).run(leave_while_cut_off)

    assert epochs[1] > epochs[0]
    assert list(asked) == epochs
    assert trial.lost() == []


def test_a_term_ends_although_a_waiting_client_has_disconnected():
    """Found by a sweep (rotating-swarm, seed 230449): the last request of a lost connection ended the node."""
    undecided = []

    async def ask_and_hang_up(cluster):
        (role,) = [
            cluster.nodes[node].shell.controller_role
            for node in BROKERS
            if cluster.nodes[node].shell.controller_role.is_active
        ]
        connection = Connection(cluster.clients._world, role.endpoint, "controller's client")
        await connection.open()
        await asyncio.sleep(0.1)
        await cluster.pause(ZOOKEEPER)
        for name in ("written", "undecided"):
            body = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=3)])
            connection.send(exchange_of(Api.CREATE_TOPICS), body, timeout_ms=30_000)
        await asyncio.sleep(0.5)
        connection.close()
        await asyncio.sleep(0.1)
        undecided.extend(request.is_answered for _, request in role._events if request is not None)
        await cluster.kill(ZOOKEEPER)
        await until(lambda: not role.is_active)
        await cluster.start(ZOOKEEPER)

    trial = Trial("zookeeper/hung-up", SPEC).run(ask_and_hang_up)

    assert undecided == [True]
    assert trial.cluster.failures() == []
    assert trial.lost() == []


def test_a_topic_created_again_is_not_known_by_its_earlier_id():
    """Requests before 2.8 name no ids; brokers read them, and forget them with the topic."""
    former, between, latter = [], [], []

    def learn(cluster, ids):
        ids.extend(cluster.nodes[node].shell.control.topic_ids.get("again") for node in BROKERS)

    async def create_again(cluster):
        client = cluster.clients._client("creator", 10_000)
        topic = CreatableTopic(name="again", num_partitions=1, replication_factor=3)
        await client.ask(exchange_of(Api.CREATE_TOPICS), CreateTopicsRequest(topics=[topic]))
        await until(lambda: hosts(cluster, "again") == 3)
        learn(cluster, former)
        await client.ask(exchange_of(Api.DELETE_TOPICS), DeleteTopicsRequest(topics=[DeleteTopicState(name="again")]))
        await until(lambda: hosts(cluster, "again") == 0)
        await asyncio.sleep(1)
        learn(cluster, between)
        await client.ask(exchange_of(Api.CREATE_TOPICS), CreateTopicsRequest(topics=[topic]))
        await until(lambda: hosts(cluster, "again") == 3)
        learn(cluster, latter)
        await client.close()

    spec = msgspec.structs.replace(SPEC, settings={"inter.broker.protocol.version": "2.7"})
    Trial("zookeeper/again", spec).run(create_again)

    assert between == [None] * 3
    assert len({*former}) == len({*latter}) == 1
    assert former != latter
    assert None not in former + latter


def test_a_setting_changed_after_a_short_loss_of_zookeeper_arrives():
    """Watches are lost with their connection, also where the session goes on."""
    known = []

    async def change(cluster):
        (role,) = active_controllers(cluster)
        apart = next(
            cluster.nodes[node].shell for node in BROKERS if cluster.nodes[node].shell.controller_role is not role
        )
        session = apart.zookeeper.session_id
        apart.zookeeper._client.transport.abort()
        await asyncio.sleep(1)
        assert apart.zookeeper.session_id == session
        client = cluster.clients._client("operator", 10_000)
        changed = AlterableConfig(name="min.insync.replicas", value="2")
        resource = AlterConfigsResource(resource_type=2, resource_name="produce-consume", configs=[changed])
        await client.ask(
            exchange_of(Api.INCREMENTAL_ALTER_CONFIGS), IncrementalAlterConfigsRequest(resources=[resource])
        )
        await asyncio.sleep(2)
        known.append(apart.plane.metadata.image.topic_config("produce-consume", "min.insync.replicas"))
        await client.close()

    Trial("zookeeper/setting", SPEC).run(change)

    assert known == ["2"]


@pytest.mark.parametrize(
    ("announced", "kept"), [pytest.param(1_200, 101, id="too many to list"), pytest.param(300, 302, id="few")]
)
def test_what_announced_changes_of_settings_goes_when_it_is_much(announced: int, kept: int):
    """Every broker lists all of them at each change, and from some forty thousand on the list fits into no answer any more."""
    left, known = [], []

    async def change(cluster):
        server = cluster.nodes[ZOOKEEPER].shell
        create = Create(path=paths.CONFIG_CHANGE, data=b"{}", sequential=True)
        server._push(server.model.transact([create] * announced, 0)[1])
        await asyncio.sleep(3)
        client = cluster.clients._client("operator", 10_000)
        changed = AlterableConfig(name="min.insync.replicas", value="2")
        resource = AlterConfigsResource(resource_type=2, resource_name="produce-consume", configs=[changed])
        await client.ask(
            exchange_of(Api.INCREMENTAL_ALTER_CONFIGS), IncrementalAlterConfigsRequest(resources=[resource])
        )
        await asyncio.sleep(2)
        left.append(sum(path.startswith(paths.CONFIG_CHANGE) for path in server.model.nodes))
        known.extend(
            cluster.nodes[node].shell.plane.metadata.image.topic_config("produce-consume", "min.insync.replicas")
            for node in BROKERS
        )
        await client.close()

    Trial("zookeeper/announced", SPEC).run(change)

    assert left == [kept]
    assert known == ["2"] * 3


def test_a_controller_whose_znode_is_deleted_steps_down_and_topics_left_halfway_are_seen_to():
    """What an operator does to have another controller; and what a controller leaves that dies between transactions."""
    epochs_gained = []

    async def depose(cluster):
        (before,) = active_controllers(cluster)
        epoch = before.core.epoch
        assignments = {
            name: encoded(TopicZnode(partitions={"0": [1, 2, 3], "1": [2, 3, 1]}, topic_id=id_text(UUID(int=number))))
            for number, name in enumerate(("assigned", "begun", "doomed"), start=77)
        }
        server = cluster.nodes[ZOOKEEPER].shell
        halfway = [
            *(Create(path=paths.topic(name), data=data) for name, data in assignments.items()),
            *(Create(path=paths.partitions(name)) for name in ("begun", "doomed")),
            Create(path=paths.partition(TopicPartition("begun", 0))),
            Create(path=paths.partition(TopicPartition("doomed", 1))),
            *(Create(path=paths.deletion(name)) for name in ("doomed", "gone")),
            Delete(path=paths.CONTROLLER),
        ]
        server._push(server.model.transact(halfway, 0)[1])
        await until(lambda: any(role.core.epoch > epoch for role in active_controllers(cluster)))
        await asyncio.sleep(1)
        epochs_gained.extend(role.core.epoch - epoch for role in active_controllers(cluster))
        await until(lambda: all(hosts(cluster, name) == 3 for name in ("assigned", "begun")))
        assert server.model.node(paths.DELETE_TOPICS).children == {}
        assert list(server.model.node(paths.TOPICS).children) == ["produce-consume", "assigned", "begun"]

    trial = Trial("zookeeper/deposed", SPEC).run(depose)

    assert epochs_gained == [1]
    assert trial.lost() == []


def test_what_was_moved_away_while_a_session_was_lost_is_hosted_no_more():
    """A leader that nobody stops would take records with acks=1 for ever."""
    hosting = []

    async def move_away(cluster):
        lost = cluster.state.partitions[PARTITION].leader
        shell = cluster.nodes[lost].shell
        fault = faults()["isolate"]
        async with fault.aimed(lost, fault.options())(cluster):
            await until(lambda: (gone := cluster.state.brokers.get(lost)) is None or gone.fenced)
            client = cluster.clients._client("operator", 10_000)
            others = [node for node in BROKERS if node != lost]
            moved = ReassignablePartition(partition_index=PARTITION.partition, replicas=others)
            topic = ReassignableTopic(name=PARTITION.topic, partitions=[moved])
            await client.ask(
                exchange_of(Api.ALTER_PARTITION_REASSIGNMENTS), AlterPartitionReassignmentsRequest(topics=[topic])
            )
            await until(lambda: lost not in cluster.state.partitions[PARTITION].replicas)
            hosting.append(shell.plane.replicas.find(PARTITION) is not None)
            await client.close()
        await until(lambda: lost in cluster.state.brokers and not cluster.state.brokers[lost].fenced)
        await asyncio.sleep(2)
        hosting.append(shell.plane.replicas.find(PARTITION) is not None)

    trial = Trial("zookeeper/moved", SPEC).run(move_away)

    assert hosting == [True, False]
    assert trial.lost() == []


def test_settings_read_before_the_deletion_of_the_earlier_topic_arrived_are_not_lost():
    """What comes from ZooKeeper is no slower for a broker that the controller cannot reach."""
    known = []

    async def create_again(cluster):
        (role,) = active_controllers(cluster)
        slow, *others = [node for node in BROKERS if node != role.config.node_id]
        client = cluster.clients._client("creator", 10_000)

        async def create(*replicas):
            assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
            settings = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
            topic = CreatableTopic(
                name="again", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=settings
            )
            await client.ask(exchange_of(Api.CREATE_TOPICS), CreateTopicsRequest(topics=[topic]))

        await create(role.config.node_id, *others)
        await until(lambda: hosts(cluster, "again") == 3)
        links = [Link(role.config.node_id, slow)]
        await cluster.cut(links, CutMode.HOLD)
        deleting = DeleteTopicsRequest(topics=[DeleteTopicState(name="again")], timeout_ms=500)
        await client.ask(exchange_of(Api.DELETE_TOPICS), deleting)
        await until(lambda: "again" not in role.core.image.topics_by_name)
        await create(role.config.node_id, slow)
        await asyncio.sleep(1)
        await cluster.heal(links)
        shell = cluster.nodes[slow].shell
        await until(lambda: shell.plane.replicas.find(TopicPartition("again", 0)) is not None)
        await asyncio.sleep(5)
        known.append(shell.plane.metadata.image.topic_config("again", "min.insync.replicas"))
        await client.close()

    Trial("zookeeper/read-early", SPEC).run(create_again)

    assert known == ["2"]


def test_who_leaves_learns_of_a_controller_elected_later():
    """A get of a znode that is not there arms no watch."""
    answered = []

    async def leave_without_controller(cluster):
        every = [cluster.nodes[node].shell.controller_role for node in BROKERS]
        (leaving,) = active_controllers(cluster)
        for role in every:
            role.may_stand = False  # as of one that registers anew while it leaves
        server = cluster.nodes[ZOOKEEPER].shell
        server._push(server.model.transact([Delete(path=paths.CONTROLLER)], 0)[1])
        await until(lambda: not active_controllers(cluster))
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(cluster.stop(leaving.config.node_id))
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        for role in every:
            if role is not leaving:
                role.may_stand = True
                role.look_again()
        await stopping
        answered.append(asyncio.get_running_loop().time() - began)
        await cluster.start(leaving.config.node_id)

    spec = msgspec.structs.replace(SPEC, settings={"controlled.shutdown.timeout.ms": 20_000})
    Trial("zookeeper/alone", spec).run(leave_without_controller)

    assert answered[0] < 5


@pytest.mark.parametrize("protocol", ["2.2", "3.4"])
def test_an_unclean_election_begins_anew_whether_or_not_it_is_written(protocol):
    """Found by a sweep (rotating-swarm, seed 240019): I4 knew it by RECOVERING only, which old protocols do not write."""
    isrs = []

    async def come_back_behind(cluster):
        behind = next(node for node in BROKERS if node != leader(cluster))
        others = [node for node in BROKERS if node != behind]
        await cluster.kill(behind)
        await until(lambda: behind not in isr(cluster))
        await asyncio.sleep(1)
        for node in others:
            await cluster.kill(node)
        await cluster.start(behind)
        await until(lambda: leader(cluster) == behind)
        isrs.append((behind, isr(cluster)))
        for node in others:
            await cluster.start(node)

    settings = {"inter.broker.protocol.version": protocol, "unclean.leader.election.enable": True}
    trial = Trial("zookeeper/unclean", msgspec.structs.replace(SPEC, settings=settings)).run(come_back_behind)

    assert isrs == [(isrs[0][0], (isrs[0][0],))]
    assert trial.lost() != []


def test_a_late_deletion_leaves_the_links_cut_that_another_fault_cuts():
    still_cut = []

    async def with_another_cut(cluster):
        fault = faults()["late-deletion"]
        async with fault.aimed(1, fault.options())(cluster) as effect:
            links = [Link(ZOOKEEPER, effect.node), Link(effect.node, ZOOKEEPER)]
            await cluster.cut(links, CutMode.HOLD)
        still_cut.extend(cluster.simulation.network.link(*pair).cut for pair in cluster.pairs(links))
        await cluster.heal(links)

    Trial("zookeeper/cuts", SPEC).run(with_another_cut)

    assert still_cut == [CutMode.HOLD, CutMode.HOLD]


class StaysLate:
    """A cluster whose links stay slow, as far as their proofs say."""

    def __init__(self, cluster):
        self._cluster = cluster

    def __getattr__(self, name):
        return getattr(self._cluster, name)

    async def shape(self, links, shape):
        proof = await self._cluster.shape(links, shape)
        return Proof(holds=proof.holds and shape != Shape(), facts=proof.facts)


@pytest.mark.parametrize("name", ["missed-bounce", "late-stop-replica", "early-leader-and-isr"])
def test_a_fault_that_leaves_links_slow_is_not_healed(name):
    heals = []

    async def hurt(cluster):
        fault = faults()[name]
        for one in (cluster, StaysLate(cluster)):
            async with fault.aimed(1, fault.options())(one) as effect:
                pass
            heals.append((effect.heal.holds, effect.heal.is_undone))

    Trial(f"zookeeper/late/{name}", SPEC).run(hurt)

    assert heals == [(True, True), (False, False)]


def isr(cluster):
    return cluster.state.partitions[PARTITION].isr


def active_controllers(cluster):
    """Who takes itself for the controller."""
    shells = [cluster.nodes[node].shell for node in BROKERS]
    return [shell.controller_role for shell in shells if shell is not None and shell.controller_role.is_active]


def hosts(cluster, topic):
    """How many brokers know a topic."""
    return sum(topic in cluster.nodes[node].shell.plane.metadata.image.topics_by_name for node in BROKERS)


async def until(condition):
    for _ in range(3_000):  # five minutes of virtual time
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it did not come to that")


# In an interpreter of its own: what a mutant replaces stays replaced.
PROGRAM = """
import asyncio, importlib, sys
importlib.import_module(f"replog.mutants.{sys.argv[1]}").install()
from tribunal.clusters.simulated.violation import Violated
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults
from replog.wire.apis import Api
from replog.wire.codec import decode_request
from tests.simulated.cluster_program import Trial

async def scenario(cluster):
    fault = faults()[sys.argv[2]]
    async with fault.aimed(1, fault.options())(cluster):
        await asyncio.sleep(1)

try:
    Trial("mutant", ClusterSpec(mode="zookeeper", controllers=1)).run(scenario)
except Violated as problem:
    print(problem.invariant)
"""


@pytest.mark.parametrize(
    ("mutant", "fault", "invariant"),
    [
        ("m39_partial_checkpoints", "early-leader-and-isr", "Z3"),
        ("m51_stale_control", "late-stop-replica", "Z1"),
        ("m51_stale_control", "late-deletion", "Z1"),
        ("m53_stale_leave", "late-leave", "Z2"),
    ],
)
@pytest.mark.nightly
def test_a_broken_assumption_is_seen(mutant, fault, invariant):
    own = importlib.import_module(f"replog.mutants.{mutant}").SCENARIO
    assert f"zookeeper-{fault}" == own or fault == "late-deletion"

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mutant, fault], capture_output=True, text=True, check=False, timeout=120
    )

    assert invariant in done.stdout + done.stderr
