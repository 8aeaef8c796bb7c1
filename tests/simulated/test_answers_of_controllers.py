"""A controller answers what is committed, also where the quorum has written batches of its own between its records (SPEC 1.1, 2.2)."""

import asyncio
import json
from contextlib import suppress

import pytest

from replog.metadata import features
from replog.metadata.features import KRAFT_VERSION, SAFE_DOWNGRADE, bootstrap, finalized
from replog.wire.apis import Api
from replog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from replog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.scenarios.three_brokers import ask
from tests.simulated.cluster_program import Trial
from tribunal.clusters.api import ClusterError, CutMode, Link
from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.votes import give_vote
from tribunal.workloads.kinds.produce_consume import TOPIC


def others(cluster):
    """The controllers that do not lead."""
    return [node for node in cluster.spec.controller_ids if node != cluster.state.quorum_leader]


async def voted_anew(cluster):
    """A controller loses its vote and has it again: the quorum writes who votes, twice, in this leader's term."""
    node = others(cluster)[0]
    await cluster.remove_voter(node)
    await asyncio.sleep(1)
    assert (await give_vote(cluster, node)).holds


@pytest.mark.parametrize("change", [None, voted_anew], ids=["as it began", "after two changes of voters"])
def test_nothing_is_answered_that_a_majority_does_not_have(change):
    answered = []

    async def scenario(cluster):
        if change is not None:
            await change(cluster)
        leader = cluster.state.quorum_leader
        links = [Link(node, leader) for node in others(cluster)] + [Link(leader, node) for node in others(cluster)]
        await cluster.cut(links, CutMode.HOLD)
        try:
            await asyncio.wait_for(cluster.set_topic_config(TOPIC, "min.insync.replicas", "1"), 0.4)
            answered.append(leader)
        except (TimeoutError, ClusterError):
            pass
        finally:
            await cluster.heal(links)

    Trial("answers of controllers").run(scenario)

    assert answered == []


def test_a_broker_epoch_is_the_offset_of_its_registration():
    entries = []

    async def scenario(cluster):
        await voted_anew(cluster)
        await cluster.stop(2)
        await cluster.start(2)
        await asyncio.sleep(1)
        entries.extend(cluster.drain_metadata())

    Trial("offsets of registrations").run(scenario)

    epochs = [
        (one.metadata_offset, one.body["broker_epoch"]) for one in entries if one.record_type == "RegisterBrokerRecord"
    ]
    assert len(epochs) == 4, json.dumps(epochs)
    assert [epoch for _, epoch in epochs] == [offset for offset, _ in epochs]


def test_what_needs_no_record_is_answered_at_once_also_after_a_change_of_voters():
    """The quorum's own batch is the last one in the log, and with no-op records off nothing follows it."""
    answers = []

    async def scenario(cluster):
        await voted_anew(cluster)
        await asyncio.sleep(1)
        body = ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None)
        answers.append(await asyncio.wait_for(ask(cluster, Api.LIST_PARTITION_REASSIGNMENTS, body), 1))

    Trial("nothing to write", ClusterSpec(settings={"metadata.max.idle.interval.ms": 0})).run(scenario)

    assert [answer.error_code for answer in answers] == [0]


def test_what_is_not_committed_is_shown_to_nobody():
    """A controller that is cut off from the others goes on deciding by a level that no majority has, but does not show it."""
    shown, decided = [], []

    async def scenario(cluster):
        leader = cluster.state.quorum_leader
        node = cluster.nodes[leader].shell

        def note():
            decided.append(node.controller.image.features.get("group.version", 0))
            shown.append(finalized_of(node).get("group.version", 0))

        note()
        links = [Link(node, leader) for node in others(cluster)] + [Link(leader, node) for node in others(cluster)]
        await cluster.cut(links, CutMode.HOLD)
        lower = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
        with suppress(TimeoutError):
            await asyncio.wait_for(
                ask(cluster, Api.UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[lower])), 0.4
            )
        note()
        await cluster.heal(links)
        await asyncio.sleep(3)
        note()

    Trial("what is shown").run(scenario)

    assert decided[:2] == [1, 0]
    assert shown[:2] == [1, 1]
    assert decided[2] == shown[2]  # committed after all, or lost with the leader


def as_apache_kafka_begins(settings):
    """The first records of a quorum of Apache Kafka's: none of them finalizes kraft.version."""
    return [record for record in bootstrap(settings) if getattr(record, "name", "") != KRAFT_VERSION]


@pytest.mark.parametrize("begin", [bootstrap, as_apache_kafka_begins], ids=["in the metadata", "in the log alone"])
def test_every_node_says_that_voters_are_in_the_log_wherever_that_is_written(monkeypatch, begin):
    monkeypatch.setattr(features, "bootstrap", begin)
    shown = []

    async def scenario(cluster):
        await voted_anew(cluster)
        await asyncio.sleep(1)
        assert (KRAFT_VERSION in cluster.nodes[cluster.state.quorum_leader].shell.controller.image.features) == (
            begin is bootstrap
        )
        shown.extend(finalized_of(cluster.nodes[node].shell)[KRAFT_VERSION] for node in cluster.spec.controller_ids)
        shown.extend(
            levels(cluster.nodes[node].shell.plane.cluster.features())[KRAFT_VERSION]
            for node in cluster.spec.broker_ids
        )

    Trial("who says that voters are in the log").run(scenario)

    assert shown == [1] * 6


def test_a_feature_at_level_0_is_not_in_force_and_one_of_the_log_needs_voters_there():
    assert finalized({"b": 0, "a": 2}, voters_in_log=False) == {"a": 2}
    assert finalized({KRAFT_VERSION: 0}, voters_in_log=True) == {KRAFT_VERSION: 1}


def finalized_of(node):
    return levels(node._features())


def levels(answer):
    return {one.name: one.max_version_level for one in answer.finalized_features}
