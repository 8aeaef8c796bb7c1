"""Conversations with brokers and controllers: sequences of requests on one connection, each going on from the answers before.

The gate holds some hundred; the night goes on with other seeds. `python -m tests.fuzz.test_conversations plain --minutes 30 --seed x` does so by hand.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from replog.__main__ import ClientWorld
from replog.client.client import Client
from replog.config import Endpoint
from replog.node.controller import ControllerNode
from replog.wire.apis import BROKER_APIS, CONTROLLER_APIS, SASL_APIS, SECURITY_APIS, ZOOKEEPER_BROKER_APIS, Api
from replog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from replog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.loopback import Loopback, started
from tests.fuzz.conversations import VOTERS, Exchanged, Speaker, Wrong
from tests.fuzz.targets import (
    ANSWER_S_MAX,
    BEAT_S,
    BROKER,
    NIGHT_MINUTES,
    ORDERLY,
    Attacked,
    EncryptedLoopback,
    Held,
    ManyLoopback,
    SecuredLoopback,
    Target,
    ZooKeeperLoopback,
    attacked,
    by_hand,
    known_of,
    repeated_for,
)

CONTROLLER: Final = 101
IDLE_S: Final = ANSWER_S_MAX // 2  # so that nothing is left of anybody when it is asked what is held
TALKS_BETWEEN_LOOKS: Final = 50
TALKS: Final = 5000  # to one cluster
CONTROL_REQUESTS: Final = (Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA, Api.ALTER_PARTITION)
ONE_OF_EACH: Final[dict[str, Any]] = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Whoever goes while a quota keeps him from being read is kept this long, as in Apache Kafka: what he sent may still be taken.
    "connections.max.idle.ms": IDLE_S * 1000,
}


SNAPSHOTS_OFTEN: Final[dict[str, Any]] = {"metadata.log.max.record.bytes.between.snapshots": 50_000}


def attack(cluster: Loopback, seed: str, *, talks: int, until_s: float) -> Attacked:
    """Talk to every kind of listener; return what came of it."""
    began_s = time.monotonic()

    async def run() -> Attacked:
        async with started(cluster):
            client = Client(ClientWorld(), [Endpoint("127.0.0.1", cluster.ports[BROKER])])
            async with attacked(cluster, client) as target:
                speakers = await prepared(cluster, client, target, seed)
                last: list[Exchanged] = []
                try:
                    for number in range(talks):
                        if time.monotonic() > until_s:
                            break
                        for port, speaker in speakers.items():
                            last = await speaker.converse(port)
                            target.check()
                        if number % TALKS_BETWEEN_LOOKS == 0:
                            await target.look()
                        if number == talks // 4:
                            target.note_what_is_held()
                    await target.look()
                    await target.holds_no_more()
                except (AssertionError, TimeoutError, Wrong) as problem:
                    problem.add_note(f"seed {seed}, after {[(one.api.name, one.version) for one in last]}")
                    for one in last:
                        problem.add_note(f"{one.api.name} v{one.version}: {one.frame[:2000].hex()}")
                    raise
                sent = sum(speaker.sent for speaker in speakers.values())
                answered = sum(speaker.answered for speaker in speakers.values())
            await client.close()
        longest_cpu_ms = round(target.longest_cpu_s * 1000)
        seconds = round(time.monotonic() - began_s)
        return Attacked(sent, answered, seconds, longest_cpu_ms, len(target.fencings), target.held)

    return asyncio.run(run())


async def prepared(cluster: Loopback, client: Client, target: Target, seed: str) -> dict[int, Speaker]:
    """Make topics and coordinators; return who talks to which port."""
    for topic in ("t", "u", ORDERLY):
        await client.create_topic(topic, partitions=2, replication_factor=1)
    for kind, name in ((0, "g"), (1, "x")):
        await target.ask(Api.FIND_COORDINATOR, FindCoordinatorRequest(key_type=kind, key=name), 3)
    many: tuple[str, ...] = ()
    if isinstance(cluster, ManyLoopback):
        many = (cluster.topic,)
        await client.create_topic(cluster.topic, partitions=cluster.partition_count, replication_factor=1)
    broker = cluster.nodes[BROKER]
    assert not isinstance(broker, ControllerNode)
    metadata = broker.plane.metadata
    async with asyncio.timeout(ANSWER_S_MAX):
        while not {"t", "u", ORDERLY} <= {*metadata.image.topics_by_name}:  # noqa: ASYNC110
            await asyncio.sleep(BEAT_S)
    topics = metadata.image.topics_by_name
    known = known_of(cluster, [one.topic_id for name, one in topics.items() if name != ORDERLY], many)
    if isinstance(cluster, ZooKeeperLoopback):
        # Every other cluster gets what controllers send as well.
        target.has_orders = Random(seed).random() < 0.5
        apis = {a: v for a, v in ZOOKEEPER_BROKER_APIS.items() if target.has_orders or a not in CONTROL_REQUESTS}
        speakers = {cluster.ports[BROKER]: Speaker(f"{seed}/zookeeper", apis, known)}
    elif isinstance(cluster, SecuredLoopback):
        for kind, name in ((2, "t"), (2, "u"), (2, "new"), (3, "g"), (5, "x")):
            await target.ask(Api.CREATE_ACLS, CreateAclsRequest(creations=[for_alice(kind, name)]), 1)
        apis = BROKER_APIS | SASL_APIS | SECURITY_APIS
        speakers = {cluster.sasl_port: Speaker(f"{seed}/users", apis, known, may_order=True)}
        if isinstance(cluster, EncryptedLoopback):
            apis = CONTROLLER_APIS | SASL_APIS | SECURITY_APIS
            speakers[cluster.ports[CONTROLLER]] = Speaker(f"{seed}/controller", apis, known, may_order=True)
            for speaker in speakers.values():
                speaker.tls = cluster.client_context()
    else:
        speakers = {
            cluster.ports[node]: Speaker(f"{seed}/{node}", {a: v for a, v in apis.items() if a not in VOTERS}, known)
            for node, apis in ((BROKER, BROKER_APIS), (CONTROLLER, CONTROLLER_APIS))
        }
        for speaker in speakers.values():
            speaker.remembered["broker_epoch"] = [broker.plane.identity.broker_epoch]
    for speaker in speakers.values():
        speaker.kept_from = (topics[ORDERLY].topic_id,)
    return speakers


def for_alice(kind: int, name: str) -> AclCreation:
    """Return that she may do anything with this."""
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=2,
        permission_type=3,
    )


KINDS: Final[dict[str, Callable[[Path], Loopback]]] = {
    "plain": lambda folder: Loopback(folder, 1, 1, dict(ONE_OF_EACH)),
    "secured": lambda folder: SecuredLoopback(folder, dict(ONE_OF_EACH)),
    "encrypted": lambda folder: EncryptedLoopback(folder, dict(ONE_OF_EACH)),
    "many": lambda folder: ManyLoopback(folder, 1, 1, dict(ONE_OF_EACH) | SNAPSHOTS_OFTEN),
    "zookeeper": lambda folder: ZooKeeperLoopback(folder, 1, dict(ONE_OF_EACH)),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.nightly] if kind == "many" else []) for kind in KINDS]
)
def test_nobody_dies_of_what_somebody_says_in_a_row(kind: str, tmp_path: Path) -> None:
    assert attack(KINDS[kind](tmp_path), "gate", talks=100, until_s=time.monotonic() + 60).answered > 50


@pytest.mark.nightly
@pytest.mark.timeout(NIGHT_MINUTES * 60 + 300)
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_dies_of_it_in_half_an_hour(kind: str, tmp_path: Path) -> None:
    assert repeated(kind, tmp_path, NIGHT_MINUTES, "night")


def repeated(kind: str, folder: Path, minutes: float, seed: str) -> int:
    """Attack with one seed after the other, a new cluster each; return how many."""
    until_s = time.monotonic() + minutes * 60

    sent, answered, began = 0, 0, Held.now()

    def once(number: str) -> None:
        nonlocal sent, answered
        attacked = attack(KINDS[kind](folder / number), number, talks=TALKS, until_s=until_s)
        sent += attacked.sent
        answered += attacked.answered
        print(number, attacked, flush=True)

    count = repeated_for(minutes, once, f"{seed}-{kind}")
    print(
        f"{kind}: {sent} requests, {answered} answered in {minutes} minutes, {count} clusters; {began} to {Held.now()}",
        flush=True,
    )
    return count


if __name__ == "__main__":
    by_hand(__doc__, {kind: partial(repeated, kind) for kind in KINDS})
