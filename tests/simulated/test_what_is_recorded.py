"""What a simulated cluster says for the recording: times of its own, who answered, and in which epoch."""

import asyncio
import contextlib
import json

import pytest

from replog.wire.apis import Api
from tests.simulated.cluster_program import Trial, wait_until_in_sync
from tribunal.clusters.api import ClusterError, GroupSettings, Order, Proof, Refused, TopicPartition
from tribunal.clusters.capabilities import ClockSkew
from tribunal.clusters.orders import Orders, admin_row, elections
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.api import Effect
from tribunal.nemesis.combine import aimed, take, together
from tribunal.nemesis.faults import change_min_isr, elect_leaders, kill, wipe
from tribunal.results.admin_apis import AdminApi

P0 = TopicPartition("produce-consume", 0)


def test_metadata_are_of_the_run_s_clock_also_while_a_controller_s_clock_is_set_back():
    entries = []

    async def scenario(cluster):
        controller = cluster.state.quorum_leader
        await cluster.set_clock(controller, ClockSkew(offset_ms=-3_600_000))
        entries.extend(cluster.drain_metadata())
        before_ns = cluster.now_ns()
        await cluster.kill(cluster.spec.broker_ids[0])
        await asyncio.sleep(4)
        late = cluster.drain_metadata()
        entries.extend(late)
        assert late
        assert all(before_ns <= entry.at_ns <= cluster.now_ns() for entry in late)
        assert all(entry.stamped_ns < 0 for entry in late)
        await cluster.set_clock(controller, ClockSkew())
        await cluster.start(cluster.spec.broker_ids[0])

    Trial(3).run(scenario)

    times = [entry.at_ns for entry in entries]
    assert times == sorted(times)


def test_heartbeats_say_how_far_a_broker_has_carried_out_the_metadata():
    seen = []

    async def scenario(cluster):
        seen.extend(cluster.drain_requests())

    Trial(3).run(scenario)

    heartbeats = [one for one in seen if one.api_key == Api.BROKER_HEARTBEAT and one.direction == "request"]
    for node in {one.source for one in heartbeats}:
        said = [json.loads(one.summary)["metadata_offset"] for one in heartbeats if one.source == node]
        assert said == sorted(said)
        assert said[-1] > said[0]
    answers = {one.summary for one in seen if one.api_key == Api.BROKER_HEARTBEAT and one.direction == "response"}
    assert answers == {"broker_heartbeat"}


def test_sends_and_polls_name_who_answered_and_watermarks_the_epoch_they_are_of():
    """A leader dies: what is answered before and behind its election names two nodes and two epochs."""
    leaders = {}

    async def scenario(cluster):
        for _ in range(2):
            partition = min(cluster.state.partitions)
            state = cluster.state.partitions[partition]
            leaders[state.leader_epoch] = state.leader
            await asyncio.sleep(1)
            await cluster.kill(state.leader)
            await asyncio.sleep(5)
            await cluster.start(state.leader)
            await asyncio.sleep(2)
        leaders["partition"] = partition

    trial = Trial(5)
    trial.run(scenario)
    topic, number = leaders.pop("partition")

    def rows(table):
        return [row for row in trial.rows.of(table) if (row["topic"], row["partition"]) == (topic, number)]

    sends = [row for row in rows("sends") if row["outcome"] == "ok"]
    assert {row["answered_by"] for row in sends} >= set(leaders.values())
    assert all(
        (row["producer_id"] is not None) == (row["worker_class"] == "idempotent") == (row["producer_epoch"] is not None)
        for row in sends
    )
    seen = {(row["leader_epoch"], row["answered_by"]) for row in [*rows("polls"), *rows("watermarks")]}
    assert len({epoch for epoch, _ in seen}) == len(seen)  # one node an epoch
    assert set(leaders.items()) <= seen
    assert (None, None) not in seen
    assert {row["source"] for row in rows("watermarks")} == {"fetch", "list_offsets"}
    assert all(0 < row["asked_ns"] < row["at_ns"] for row in rows("watermarks"))


def test_a_fetch_of_a_group_s_positions_names_who_answered():
    answers = []

    async def scenario(cluster):
        settings = GroupSettings(group="g", topic=P0.topic, isolation="read_committed", session_timeout_ms=10_000)
        member = cluster.clients.group_consumer(settings, "member")
        async with asyncio.timeout(30):
            while P0 not in (gained := member.gained()):
                await member.poll(10, 200)
            answers.append(await member.committed(gained, 5000))
        await member.close()

    Trial(7).run(scenario)

    assert answers[0].error is None
    assert answers[0].answered_by in (1, 2, 3)


def test_each_episode_s_losses_are_intervals_of_its_own_time_on_internal_topics_too():
    """A disk is wiped twice: the second time it loses what it had fetched again, and what came meanwhile."""
    times, whole = [], Effect(1, Proof(holds=True, facts={}))

    async def scenario(cluster):
        producer = cluster.clients.transactional_producer("t-1", 10_000, "in-transactions")
        assert await producer.begin(10_000)
        producer.send(TopicPartition("produce-consume", 0), None, bytes(8), lambda _: None)
        assert (await producer.end(commit=True, timeout_ms=10_000)).outcome == "committed"
        for index in range(2):
            times.append(cluster.now_ns())
            async with wipe.inject(cluster, 1, wipe.Options()) as effect:
                times.append(cluster.now_ns())
            take(whole, f"episode_{index}", effect)
            await wait_until_in_sync(cluster)
            await asyncio.sleep(1)
        await producer.close()

    trial = Trial(11)
    trial.run(scenario)

    first, second = (
        {(loss.topic, loss.partition): loss for loss in whole.losses if times[begin] <= loss.end_ns <= times[begin + 1]}
        for begin in (0, 2)
    )
    assert len(first) + len(second) == len(whole.losses)
    assert any(topic == "__transaction_state" for topic, _ in first)
    assert set(first) <= set(second)
    assert all(second[place].end_offset >= loss.end_offset > loss.from_offset == 0 for place, loss in first.items())
    assert all(times[0] <= loss.begin_ns <= loss.end_ns <= times[1] for loss in first.values())
    assert all(loss.topic_id == trial.cluster.state.topic_ids[loss.topic] for loss in whole.losses)


def test_orders_of_operators_are_rows_of_what_they_named_and_of_what_came_of_them():
    orders = []

    async def scenario(cluster):
        async with change_min_isr.inject(cluster, 1, change_min_isr.Options(to=1)):
            pass
        await cluster.elect_preferred([P0, TopicPartition(P0.topic, 1)])
        with pytest.raises(Refused):
            await cluster.set_topic_config(P0.topic, "min.insync.replicas", "-4")
        orders.extend(cluster.drain_orders())

    trial = Trial(13)
    trial.run(scenario)

    topic_id = trial.cluster.state.topic_ids[P0.topic]
    rows = [admin_row(one) for one in orders]
    named = ("api", "topic", "topic_id", "partition", "setting", "value", "outcome")
    assert [tuple(row[name] for name in named) for row in rows] == [
        ("set_config", P0.topic, topic_id, None, "min.insync.replicas", "1", "ok"),
        ("set_config", P0.topic, topic_id, None, "min.insync.replicas", None, "ok"),
        ("elect_leaders", P0.topic, topic_id, 0, None, "preferred", "ok"),
        ("elect_leaders", P0.topic, topic_id, 1, None, "preferred", "ok"),
        ("set_config", P0.topic, topic_id, None, "min.insync.replicas", "-4", "fail"),
    ]
    assert all(row["invoke_ns"] <= row["complete_ns"] for row in rows)
    assert [row["topic"] for row in trial.rows.of("admin")] == [P0.topic]  # the workload created it


@pytest.mark.parametrize(("problem", "outcome"), [
    pytest.param(Refused("no"), "fail", id="refused"),
    pytest.param(ClusterError("nobody answers"), "info", id="in doubt"),
    pytest.param(None, "ok", id="done"),
])  # fmt: skip
def test_only_what_was_surely_refused_is_without_effect(problem, outcome):
    orders = Orders(lambda: 7, lambda: {"t": "id of t"})

    async def give(*given):
        with contextlib.suppress(ClusterError):
            async with orders.given(*given):
                if problem is not None:
                    raise problem

    asyncio.run(give(Order(api=AdminApi.DELETE_RECORDS, topic="t", partition=1, log_offset=5)))
    asyncio.run(give(*elections([P0, TopicPartition("t", 1)], "unclean")))
    one, *several = orders.drain()

    assert (one.outcome, one.topic_id, one.order.log_offset) == (outcome, "id of t", 5)
    # Of several things one may have been done before another one was refused.
    assert {each.outcome for each in several} == {"ok" if outcome == "ok" else "info"}
    assert orders.drain() == []


def test_an_order_that_was_answered_after_an_attempt_that_was_not_may_be_carried_out_once_more():
    orders = Orders(lambda: 7, dict)

    async def give(*, left_in_doubt):
        async with orders.given(Order(api=AdminApi.SET_CONFIG, topic="t", setting="min.insync.replicas")) as asked:
            asked.left_in_doubt = left_in_doubt
        return [(one.outcome, one.complete_ns) for one in orders.drain()]

    assert asyncio.run(give(left_in_doubt=False)) == [("ok", 7)]
    assert asyncio.run(give(left_in_doubt=True)) == [("ok", 7), ("info", None)]


async def nothing(cluster):
    """Let it be."""


@pytest.mark.parametrize("log_append_time", [False, True])
def test_records_come_back_whole_also_where_brokers_stamp_them(log_append_time):
    settings = {"log.message.timestamp.type": "LogAppendTime"} if log_append_time else {}
    trial = Trial(17, ClusterSpec(settings=settings), log_append_time=log_append_time).run(nothing)
    contents = [row["content"] for row in trial.rows.of("reads")]
    logged = [trial.stage.sent.difference(entry.value, entry) for entry in trial.logs if not entry.is_control]

    assert len(contents) > 100
    assert set(contents) == set(logged) == {None}


def test_a_record_that_a_log_has_with_another_type_of_timestamp_is_described():
    """The neighbour: brokers stamp the records of a topic whose records should have their clients' timestamps."""
    settings = {"log.message.timestamp.type": "LogAppendTime"}

    trial = Trial(17, ClusterSpec(settings=settings)).run(nothing)

    contents = {row["content"].partition(" ")[2] for row in trial.rows.of("reads")}
    assert contents
    assert all(content.endswith("timestamp type LogAppendTime") for content in contents)


def test_a_part_s_losses_count_once_and_before_it_is_healed():
    """A disk is wiped while another node is killed: what it lost is known while it still lies there empty."""
    seen = {}

    async def scenario(cluster):
        both = together(aimed(wipe.FAULT, 1, wipe.Options()), aimed(kill.FAULT, 2, kill.Options()))
        async with both(cluster) as whole:
            seen["before"] = list(whole.losses)
        seen["after"] = whole.losses

    Trial(19).run(scenario)

    assert seen["before"]
    assert {loss.node for loss in seen["before"]} == {1}  # and nothing of the node that was only killed
    assert seen["after"] == seen["before"]


def test_an_election_that_is_refused_is_no_proof_and_no_failure_of_the_cluster():
    """The first replica of a partition is down: the cluster says so, and the run goes on."""
    proofs, orders = [], []

    async def scenario(cluster):
        first = cluster.state.partitions[P0].replicas[0]
        await cluster.kill(first)
        await asyncio.sleep(4)
        other = next(node for node in cluster.spec.broker_ids if node != first)
        async with elect_leaders.inject(cluster, other, elect_leaders.Options()) as effect:
            proofs.append(effect.proof)
            orders.extend(cluster.drain_orders())
            await cluster.start(first)

    Trial(13).run(scenario)

    (proof,) = proofs
    assert not proof.holds
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in str(proof.facts["refused"])
    assert {one.outcome for one in orders} <= {"fail", "info"}


def test_a_topic_that_an_operator_deletes_meanwhile_ends_no_change_of_min_isr():
    effects = []

    async def scenario(cluster):
        operator = cluster.clients.operator("operator")
        await operator.create_topic("of-an-operator", 1, 3, {})
        await asyncio.sleep(1)
        async with change_min_isr.inject(cluster, 1, change_min_isr.Options(to=1)) as effect:
            await operator.delete_topic("of-an-operator")
            await asyncio.sleep(1)
        await operator.close()
        effects.append(effect)

    Trial(13).run(scenario)

    (effect,) = effects
    assert effect.proof.facts["topics"] == ["of-an-operator", P0.topic]
    assert effect.heal.holds
