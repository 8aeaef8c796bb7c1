"""Hold the StopReplica of a topic's deletion until its receiver is registered anew and has the topic again, then let it arrive (KIP-380, first assumption).

A process that begins again has other connections, on which nothing from before can come. One that only lost its session has the old ones yet: what its
controller had sent there arrives late, behind what a new connection brought. So the broker is cut off from ZooKeeper, not ended, and the topic, deleted
meanwhile, is created again by the same name. Whoever obeys then stops replicas that the controller takes for running, and hears of it never again.
"""

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import Annotated, Final, Protocol

import msgspec

from tribunal.clusters.api import Admin, ClientFactory, CutMode, ProducerSettings, TopicPartition
from tribunal.clusters.capabilities import CanCutLinks, CanHinderMessages
from tribunal.clusters.spec import ZOOKEEPER
from tribunal.nemesis.api import (
    AsyncGenerator,
    ClusterError,
    Effect,
    Fault,
    FaultTarget,
    Proof,
    all_back,
    back_in_service,
    came_true,
    fenced,
    joined,
)
from tribunal.nemesis.link_groups import links_of
from tribunal.nemesis.stale_incarnation import STOP_REPLICA, epoch_of, held, met, reregistered, victim

TOPIC: Final = "__late_deletion"  # as internal topics are: no workload knows of it
PARTITIONS: Final = 1
TRIES: Final = 8  # at a topic that the broker follows: who leads fetches nothing that could be stopped
ASK_MS: Final = 20_000
AGAIN_MS: Final = 300


class DeletingTarget(CanCutLinks, CanHinderMessages, Protocol):
    """What this fault asks of a cluster."""

    @property
    def clients(self) -> ClientFactory:
        """Clients, for an administrator."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many requests of the deletion pass before one is held: Kafka 2.x begins with one that names no partition."""

    skipped: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0


@asynccontextmanager
async def inject(cluster: DeletingTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the request came when its receiver had been registered anew and had the topic again. Heal: it is in all its ISRs."""
    broker, controller = victim(cluster, node)
    admin = cluster.clients.admin(TOPIC)
    rule = None
    links = links_of(cluster.spec, broker, "controllers")
    try:
        await admin.create_topic(TOPIC, PARTITIONS, cluster.spec.replication_factor, ASK_MS)
        effect = Effect(broker, await _is_there(cluster))
        epoch = epoch_of(cluster, broker)
        rule = cluster.add_rule(held(STOP_REPLICA, controller, broker))
        await admin.delete_topic(TOPIC, ASK_MS)
        effect.add_proof("held", await met(cluster, rule))
        for number in range(options.skipped):
            # One request is under way at a time: the next one comes when this one was answered.
            former, rule = rule, cluster.add_rule(held(STOP_REPLICA, controller, broker))
            cluster.remove_rule(former)
            effect.add_proof(f"held_{number + 2}", await met(cluster, rule))
        effect.add_proof("cut", await cluster.cut(links, CutMode.HOLD))
        effect.add_proof("away", await _is_away(cluster, broker))
        effect.add_proof("mended", await cluster.heal(links))
        effect.add_proof("life", await reregistered(cluster, broker, epoch))
        effect.add_proof("deleted", await _is_gone(cluster))
        await _created_again(cluster, admin)
        again = await _is_there(cluster)
        for _ in range(TRIES):
            if _leader(cluster) != broker:
                break
            await admin.delete_topic(TOPIC, ASK_MS)
            await _is_gone(cluster)
            await _created_again(cluster, admin)
            again = await _is_there(cluster)
        effect.add_proof("again", again)
        effect.add_proof("follows", Proof(holds=_leader(cluster) != broker, facts={"leader": _leader(cluster)}))
        effect.add_proof("released", Proof(holds=cluster.remove_rule(rule) > 0, facts={}))
        await _write(cluster)
        yield effect
    finally:
        if rule is not None:
            cluster.remove_rule(rule)
        await admin.close()
    effect.heal = await back_in_service(cluster, broker, None)


def _partitions(cluster: FaultTarget) -> int:
    return sum(one.topic == TOPIC for one in cluster.state.partitions)


def _leader(cluster: FaultTarget) -> int:
    found = cluster.state.partitions.get(TopicPartition(TOPIC, 0))
    return -1 if found is None else found.leader


async def _is_there(cluster: FaultTarget) -> Proof:
    """Wait until the topic is there and everybody is in all ISRs."""
    timeout_ms = cluster.spec.recovery_timeout_ms
    whole = await came_true(
        lambda: _partitions(cluster) == PARTITIONS, timeout_ms=timeout_ms, what="the topic is there", cluster=cluster
    )
    return joined(whole, "service", await all_back(cluster))


async def _write(cluster: DeletingTarget) -> None:
    """Write to every partition: who has all of nothing is not missed."""
    settings = ProducerSettings(acks=1, idempotent=False, delivery_timeout_ms=ASK_MS, request_timeout_ms=ASK_MS)
    producer = cluster.clients.producer(settings, TOPIC)
    try:
        await asyncio.sleep(AGAIN_MS / 1000)  # what was let go on has to be there before
        for number in range(PARTITIONS):
            producer.send(TopicPartition(TOPIC, number), None, b"late", lambda _: None)
        await producer.flush(ASK_MS)
    finally:
        await producer.close()


async def _is_gone(cluster: FaultTarget) -> Proof:
    timeout_ms = cluster.spec.recovery_timeout_ms
    return await came_true(
        lambda: _partitions(cluster) == 0, timeout_ms=timeout_ms, what="the topic is deleted", cluster=cluster
    )


async def _is_away(cluster: FaultTarget, broker: int) -> Proof:
    """Wait until its session is over."""
    timeout_ms = cluster.spec.recovery_timeout_ms
    return await came_true(
        lambda: fenced(cluster, broker), timeout_ms=timeout_ms, what="its session is over", cluster=cluster
    )


async def _created_again(cluster: FaultTarget, admin: Admin) -> None:
    """Create it once the controller has forgotten the one that was deleted."""
    deadline_ns = cluster.now_ns() + ASK_MS * 1_000_000
    while not _partitions(cluster) and cluster.now_ns() < deadline_ns:
        with contextlib.suppress(ClusterError):
            await admin.create_topic(TOPIC, PARTITIONS, cluster.spec.replication_factor, ASK_MS)
        await asyncio.sleep(AGAIN_MS / 1000)


FAULT: Final = Fault(options=Options, inject=inject, modes=(ZOOKEEPER,))
