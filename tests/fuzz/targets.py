"""Clusters under attack, and what has to be so of them all the time: nobody dies, nobody hangs, nothing is kept.

Not a test module.
"""

import argparse
import asyncio
import gc
import os
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec

from replog.__main__ import ClientWorld
from replog.client.client import Client, Unreachable
from replog.client.connection import Connection
from replog.config import Endpoint, NodeConfig
from replog.errors import Error
from replog.log.batch import NewRecord, build
from replog.node.controller import ControllerNode
from replog.node.zookeeper.broker import ZooKeeperBroker
from replog.types import NodeId
from replog.wire.apis import Api
from replog.wire.codec import encode_request
from replog.wire.messages.metadata import EXCHANGE as METADATA
from replog.wire.messages.metadata import MetadataRequest
from tests.broker.fuzzing import Known
from tests.broker.loopback import QUICK, Loopback, Node, free_ports
from tests.security.certificates import Authority
from tribunal.clusters.simulated.zookeeper import SimulatedZooKeeper, ZooKeeperServer
from tribunal.clusters.simulated.zookeeper_model import Model

BROKER: Final = 1
NIGHT_MINUTES: Final = 30  # of each fuzzer
Run = Callable[[Path, float, str], int]  # folder, minutes, seed; how often it went through
# Attackers reach the listener USERS alone; `alice` may use what she has, and nobody but nodes and the orderly client anything else.
SECURED: Final = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "tribunal.sasl.plain.without.tls": True,
    "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "connection.failed.authentication.delay.ms": 1,
    "connections.max.reauth.ms": 500,
}
OF_KRAFT: Final = ("process.roles", "controller.quorum.voters", "controller.listener.names")
ORDERLY: Final = "orderly"
HANG_CPU_S: Final = 1.0  # of the event loop in one go: nobody else is answered meanwhile
BEAT_S: Final = 0.01
NEW_LEADER: Final = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_LEADER_EPOCH)
ANSWER_S_MAX: Final = 20  # by the clock, on a machine that does other things as well
SESSION_S: Final = QUICK["broker.session.timeout.ms"] / 1000
SOCKETS_MORE: Final = 4
RSS_MIB_MORE: Final = 64


class Held(NamedTuple):
    """What this process, in which all nodes are, holds."""

    rss_mib: int
    descriptors: int
    sockets: int  # of the descriptors

    @staticmethod
    def now() -> "Held":
        """Return it as it is, once garbage is gone."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        links = [_link(path) for path in Path("/proc/self/fd").iterdir()]
        sockets = sum(link.startswith("socket:") for link in links)
        return Held(pages * os.sysconf("SC_PAGE_SIZE") >> 20, len(links), sockets)


class Turn(NamedTuple):
    """What the event loop's thread did for a while."""

    lasted_s: float
    computed_s: float
    queued_s: float  # it could have gone on, and had no processor


class Fencing(NamedTuple):
    """The broker is alive no more: its session ended, or somebody ended it."""

    is_ordered: bool
    turns: Sequence[Turn]  # of one session's time before

    @property
    def is_starvation(self) -> bool:
        """Return whether the machine did not let the broker speak: with a processor it would have had half of its time at most."""
        return not self.is_ordered and sum(turn.queued_s for turn in self.turns) >= SESSION_S / 2

    def __str__(self) -> str:
        computed_s, queued_s = (sum(times) for times in list(zip(*self.turns, strict=True))[1:])
        longest_s = max(turn.computed_s for turn in self.turns)
        return (
            f"the broker {'was taken its session' if self.is_ordered else 'did not speak in time'}: in {SESSION_S:.1f} s before, its event loop computed {computed_s:.2f} s, {longest_s:.2f} s of them in one go, "
            f"and waited {queued_s:.2f} s for a processor"
        )


class Turns:
    """The turns of this thread's event loop, for as long as a session lasts."""

    def __init__(self) -> None:
        self._schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._last = self._now()
        self._turns: deque[Turn] = deque()
        self._lasted_s = 0.0

    def note(self) -> Turn:
        """Return what there was since the last time."""
        now = self._now()
        turn = Turn(*(after - before for after, before in zip(now, self._last, strict=True)))
        self._last = now
        self._turns.append(turn)
        self._lasted_s += turn.lasted_s
        while self._lasted_s - self._turns[0].lasted_s >= SESSION_S:
            self._lasted_s -= self._turns.popleft().lasted_s
        return turn

    @property
    def of_late(self) -> list[Turn]:
        """A session's time of them."""
        return [*self._turns]

    def _now(self) -> Turn:
        queued_ns = int(self._schedule.read_text().split()[1]) if self._schedule.exists() else 0
        return Turn(time.monotonic(), time.thread_time(), queued_ns / 1e9)


class Attacked(NamedTuple):
    """One attack that nobody died of."""

    sent: int  # requests
    answered: int
    seconds: int
    longest_cpu_ms: int  # of the event loop in one go
    starved: int  # how often the machine kept the broker from its session in time
    held: Sequence[Held]  # after a quarter of it and at its end, where it was long enough


class SecuredLoopback(Loopback):
    """Brokers with a second listener, where users log in and an authorizer asks who they are; orderly clients use the first."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        super().__init__(folder, 1, 1, settings)
        (self.sasl_port,) = free_ports(1)

    def values(self, node: int) -> dict[str, Any]:
        values = super().values(node) | SECURED
        if node == BROKER:
            values["listeners"] += f",USERS://127.0.0.1:{self.sasl_port}"
        return values


class EncryptedLoopback(SecuredLoopback):
    """The same with TLS for users, and at the controllers' listener, where brokers log in and attackers may, too."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        super().__init__(folder, settings)
        self._authority = Authority(folder / "authority")
        self._certificate = self._authority.issue("node")

    def values(self, node: int) -> dict[str, Any]:
        own = {
            "listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT,USERS:SASL_SSL",
            "ssl.keystore.location": str(self._certificate),
            "ssl.truststore.location": str(self._authority.trust),
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="own" '
                'user_node="own" user_alice="secret";'
            ),
            "super.users": "User:ANONYMOUS;User:node",
        }
        return super().values(node) | own

    def client_context(self) -> ssl.SSLContext:
        """Return what a client needs that knows the authority."""
        return ssl.create_default_context(cafile=str(self._authority.trust))

    @property
    def is_secured(self) -> bool:
        return True


class ManyLoopback(Loopback):
    """A topic of thousands of partitions, and a metadata log that is cut to snapshots often."""

    topic = "many"
    partition_count = 2000


class ZooKeeperLoopback(Loopback):
    """Brokers of ZooKeeper mode beside the simulator's model of ZooKeeper, over real sockets."""

    def __init__(self, folder: Path, brokers: int, settings: dict[str, Any]) -> None:
        super().__init__(folder, 0, brokers, settings)
        (self.zookeeper_port,) = free_ports(1)
        self._server: ZooKeeperServer | None = None

    def values(self, node: int) -> dict[str, Any]:
        values = {name: value for name, value in super().values(node).items() if name not in OF_KRAFT}
        return values | {"zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}", "zookeeper.session.timeout.ms": 3000}

    async def start(self, node: int) -> None:
        if self._server is None:
            self._server = ZooKeeperServer(ClientWorld(), Model(), Endpoint("127.0.0.1", self.zookeeper_port))
            await self._server.start()
        await super().start(node)

    def made(self, node: int, config: NodeConfig) -> Node:
        return ZooKeeperBroker(self.worlds[node], config, SimulatedZooKeeper)

    async def stop_all(self) -> None:
        await super().stop_all()
        if self._server is not None:
            await self._server.stop()

    @property
    def has_broker(self) -> bool:
        """Return whether ZooKeeper knows of the broker."""
        assert self._server is not None
        return f"/brokers/ids/{BROKER}" in self._server.model.nodes


class Target:
    """A cluster under attack, an orderly client, and what happened that nobody foresaw."""

    def __init__(self, cluster: Loopback, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.unforeseen: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.longest_cpu_s = 0.0
        self.turns = Turns()
        self.fencings: list[Fencing] = []
        self._was_alive = True
        self.has_orders = False  # attackers may order what a controller may: partitions are where they say
        self.held: list[Held] = []
        for world in cluster.worlds.values():
            world.journal.log = self._log  # type: ignore[method-assign]
            world.journal.probe = self._probe  # type: ignore[method-assign]
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.unforeseen.append(context))

    def _log(self, level: str, message: str) -> None:
        if level == "error":
            self.lines.append(message)

    def _probe(self, name: str) -> None:
        if name == "session_expired":
            self._was_alive = False
            self._fenced(is_ordered=False)

    def _fenced(self, *, is_ordered: bool) -> None:
        self.turns.note()
        self.fencings.append(Fencing(is_ordered, self.turns.of_late))

    def _watch_session(self) -> None:
        is_alive = _is_alive(self.cluster)
        if is_alive is None:
            return
        if self._was_alive and not is_alive:
            self._fenced(
                is_ordered=not isinstance(self.cluster, ZooKeeperLoopback)
            )  # ZooKeeper ends nothing but sessions
        self._was_alive = is_alive

    def check(self) -> None:
        """Fail where a node met an error that nobody foresaw, thought longer than anybody may wait, or lost its session by a request."""
        assert self.unforeseen == [], self.unforeseen
        counts = {node: world.journal.unforeseen_count for node, world in self.cluster.worlds.items()}
        assert not any(counts.values()), "\n".join(self.lines)
        assert self.longest_cpu_s < HANG_CPU_S, f"the event loop did {self.longest_cpu_s:.2f} s in one go"
        for fencing in self.fencings:
            assert fencing.is_starvation, str(fencing)

    async def look(self) -> None:
        """Be an orderly client: write to a topic of one's own, and see that it is there."""
        self.check()
        until_s = time.monotonic() + ANSWER_S_MAX
        brokers = await self._brokers()
        if self.has_orders:
            return
        while (
            BROKER not in brokers and time.monotonic() < until_s
        ):  # a busy machine lets its session end: it comes again
            await asyncio.sleep(BEAT_S)
            brokers = await self._brokers()
        assert BROKER in brokers, f"broker {BROKER} is not among {brokers} of its own metadata"
        batch = build([NewRecord(b"k", b"v")], timestamp_ms=ClientWorld().clock.wall_ms())
        async with asyncio.timeout(ANSWER_S_MAX):
            answer = None
            while answer is None or answer.error_code is not Error.NONE:
                try:
                    answer = await self.client.produce(ORDERLY, 0, batch, acks=1)
                except Unreachable:  # the topic is new
                    await asyncio.sleep(BEAT_S)
        end = await self.client.list_offsets(ORDERLY, 0, -1)
        while end.error_code in NEW_LEADER and time.monotonic() < until_s:
            await asyncio.sleep(BEAT_S)
            end = await self.client.list_offsets(ORDERLY, 0, -1)
        words = f"{ORDERLY}-0 ends at {end.offset} ({end.error_code.name}), but {answer.base_offset} was acknowledged"
        assert end.offset > answer.base_offset, words

    async def _brokers(self) -> list[int]:
        connection = Connection(ClientWorld(), Endpoint("127.0.0.1", self.cluster.ports[BROKER]), ORDERLY)
        await connection.open(timeout_ms=ANSWER_S_MAX * 1000)
        found = await connection.send(METADATA, MetadataRequest(topics=[]), timeout_ms=ANSWER_S_MAX * 1000)
        connection.close()
        return [one.node_id for one in found.brokers]

    async def ask(self, api: Api, body: msgspec.Struct, version: int) -> None:
        """Ask the broker for something; what it answers does not matter."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.cluster.ports[BROKER])
        writer.write(encode_request(api, version, 1, ORDERLY, body))
        async with asyncio.timeout(ANSWER_S_MAX):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.transport.abort()

    def note_what_is_held(self) -> None:
        """Remember sockets, descriptors and memory as they are after the first attacks."""
        self.held.append(Held.now())

    async def holds_no_more(self) -> None:
        """Fail where any of it grew since; what was left open is closed within a while."""
        if not self.held:
            return  # it was too short
        before, until_s = self.held[0], time.monotonic() + ANSWER_S_MAX
        while Held.now().sockets > before.sockets + SOCKETS_MORE and time.monotonic() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(BEAT_S)
        now = Held.now()
        self.held.append(now)
        assert now.sockets <= before.sockets + SOCKETS_MORE, self.held
        assert now.rss_mib <= before.rss_mib + RSS_MIB_MORE, self.held

    async def beat(self) -> None:
        """Note how much the event loop computed between two turns of this coroutine, and whether the broker is alive."""
        while True:
            await asyncio.sleep(BEAT_S)
            self.longest_cpu_s = max(self.longest_cpu_s, self.turns.note().computed_s)
            self._watch_session()


def _is_alive(cluster: Loopback) -> bool | None:
    """Return whether the broker has a session; None while no controller is active, which anybody may bring about by a vote."""
    if isinstance(cluster, ZooKeeperLoopback):
        return cluster.has_broker
    for node in cluster.nodes.values():
        if isinstance(node, ControllerNode) and node.controller.is_active:
            return node.controller.image.is_alive(NodeId(BROKER))
    return None


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def known_of(cluster: Loopback, topic_ids: list[Any], topics: tuple[str, ...] = ()) -> Known:
    """Return what an attacker has found out."""
    now_ms = ClientWorld().clock.wall_ms()
    return Known(cluster_id=cluster.cluster_id, topic_ids=topic_ids, now_ms=now_ms, topics=topics)


@asynccontextmanager
async def attacked(cluster: Loopback, client: Client) -> AsyncGenerator[Target]:
    """Watch a cluster while it is attacked.

    What tests before this one left in the process is no garbage of the cluster: to look through millions of their
    objects takes a second, and would be counted as the event loop's.
    """
    gc.freeze()
    target = Target(cluster, client)
    beating = asyncio.create_task(target.beat())
    try:
        yield target
    finally:
        beating.cancel()
        gc.unfreeze()


def repeated_for(minutes: float, once: Callable[[str], None], seed: str) -> int:
    """Call with one seed after the other until the time is over; return how often."""
    until_s = time.monotonic() + minutes * 60
    number = 0
    while time.monotonic() < until_s:
        once(f"{seed}-{number}")
        number += 1
    return number


def by_hand(description: str | None, run: Run | Mapping[str, Run]) -> None:
    """Be a fuzzer's command line: `--minutes`, `--seed` and a kind where there are several; print how often it went through."""
    parser = argparse.ArgumentParser(description=description)
    if isinstance(run, Mapping):
        parser.add_argument("kind", choices=[*run])
    parser.add_argument("--minutes", type=float, default=NIGHT_MINUTES)
    parser.add_argument("--seed", default="hand")
    order = parser.parse_args()
    chosen = run[order.kind] if isinstance(run, Mapping) else run
    with TemporaryDirectory() as place:
        sys.stdout.write(f"{chosen(Path(place), order.minutes, order.seed)}\n")
