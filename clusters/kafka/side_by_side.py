"""Ours and Apache Kafka as equals: the same nodes on loopback, the same settings, nothing in between.

No relays, no faults but the death of a process: this is for comparisons (`bench/compare_kafka.py`, `tests/e2e`) and for Kafka's
own tools. Methods block, because what is compared runs in threads of librdkafka or in processes of its own. Node N listens on
127.0.3.N, its controller role, where one process has both, on 127.0.3.(N+100) and another port; every process dies with whoever started it.
Nodes that are numbered otherwise listen where those would that are numbered from 1 and 101 on.
"""

import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tribunal.clusters.api import ClusterError, Unsettled
from tribunal.clusters.kafka.node import property_text
from tribunal.clusters.links.addresses import candidate_ports
from tribunal.clusters.nodes.node_process import last_lines, node_environment, toml, with_parent
from tribunal.clusters.secured.authority import Authority
from tribunal.clusters.spec import Settings, SettingValue

NET: Final = "127.0.3."
CONTROLLER_OFFSET: Final = 100
TLS_PORT_OFFSET: Final = 5_000
CONTROLLER_PORT_OFFSET: Final = 10_000  # Kafka wants two listeners of one node on two ports
CLAIM_HOST: Final = f"{NET}250"  # whoever listens here has the port
CLUSTER_ID: Final = "tribunalSideBySideQQQQ"  # 16 bytes as Kafka writes them
FORMAT_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 40
SERVING_TIMEOUT_S: Final = 60
POLL_S: Final = 0.02
JAVA: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")


class Place:
    """Where one node runs and what it is. `number`: of its address."""

    def __init__(
        self, node: int, roles: str, folder: Path, voters: Mapping[int, str], port: int, number: int | None = None
    ) -> None:
        self.node = node
        self.roles = roles
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "node.log"
        self.voters = voters
        number = node if number is None else number
        self.endpoint = (f"{NET}{number}", port)
        controller = number if roles == "controller" else number + CONTROLLER_OFFSET
        self.controller_endpoint = (f"{NET}{controller}", port - CONTROLLER_PORT_OFFSET)
        self.tls_endpoint = (f"{NET}{number}", port - TLS_PORT_OFFSET)
        self.tls: Tls | None = None


class Tls(msgspec.Struct, frozen=True):
    """What a node shows of itself, with its key, and whom it trusts; PEM files."""

    keystore: Path
    truststore: Path

    def settings(self) -> Settings:
        """Return what makes brokers talk to each other, and to clients who want it, by TLS; Kafka's names."""
        return {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL",
            "inter.broker.listener.name": "TLS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.truststore),
        }


class Software(Protocol):
    """What is run: how its configuration is written and its processes are started."""

    name: str

    def write_config(self, place: Place, settings: Settings) -> Path:
        """Write a node's configuration with these settings, by Kafka's names."""

    def format(self, place: Place, config: Path) -> list[str]:
        """Return the command that prepares the node's directory."""

    def run(self, place: Place, config: Path) -> list[str]:
        """Return the command that is the node."""


class Ours:
    """replog."""

    name = "ours"

    def write_config(self, place: Place, settings: Settings) -> Path:
        """Write node.toml."""
        listener = place.controller_endpoint if place.roles == "controller" else place.endpoint
        values: dict[str, SettingValue] = {
            "process.roles": place.roles,
            "node.id": place.node,
            "cluster.id": CLUSTER_ID,
            "listeners": _address(listener),
            "controller.quorum.voters": _voters(place),
            "log.dirs": str(place.data),
            "tribunal.events.file": str(place.folder / "events.jsonl"),
        }
        if place.roles == "broker,controller":
            values["controller.listeners"] = _address(place.controller_endpoint)
        if place.tls is not None and place.roles != "controller":
            values["listeners"] = _with_tls(f"PLAINTEXT://{_address(listener)}", place)
            values |= place.tls.settings()
        path = place.folder / "node.toml"
        path.write_text(toml(values | dict(settings)))
        return path

    def format(self, place: Place, config: Path) -> list[str]:
        """Format."""
        return [sys.executable, "-m", "replog", "format", "--config", str(config)]

    def run(self, place: Place, config: Path) -> list[str]:
        """Run by role."""
        role = "combined" if "," in place.roles else place.roles
        return [sys.executable, "-m", "replog", role, "--config", str(config)]


class ApacheKafka:
    """The real one, from plain jars (`clusters/kafka/jars.py`)."""

    name = "kafka"

    def __init__(self, jars: Path, heap: str = "1G") -> None:
        self.jars = jars
        self.heap = heap

    def write_config(self, place: Place, settings: Settings) -> Path:
        """Write server.properties."""
        brokers = _with_tls(f"PLAINTEXT://{_address(place.endpoint)}", place)
        controllers = _address(place.controller_endpoint)
        listeners = {
            "broker": brokers,
            "controller": f"CONTROLLER://{controllers}",
            "broker,controller": f"{brokers},CONTROLLER://{controllers}",
        }
        values: dict[str, SettingValue] = {
            "process.roles": place.roles,
            "node.id": place.node,
            "listeners": listeners[place.roles],
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": _voters(place),
            "log.dirs": str(place.data),
        }
        if place.roles != "controller":
            values |= {"advertised.listeners": brokers, "inter.broker.listener.name": "PLAINTEXT"}
            values |= {} if place.tls is None else place.tls.settings()
        ours_alone = ("tribunal.", "leader.recovery", "eligible.leader.replicas.enable")
        values |= {name: value for name, value in settings.items() if not name.startswith(ours_alone)}
        path = place.folder / "server.properties"
        path.write_text("".join(f"{name}={property_text(value)}\n" for name, value in values.items()))
        return path

    def format(self, place: Place, config: Path) -> list[str]:
        """Format by Kafka's own tool."""
        return java(self.jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config), heap="128m")

    def run(self, place: Place, config: Path) -> list[str]:
        """Run a server."""
        return java(self.jars, "kafka.Kafka", str(config), heap=self.heap, options=JAVA)


def java(jars: Path, *arguments: str, heap: str, options: Iterable[str] = ("-XX:TieredStopAtLevel=1",)) -> list[str]:
    """Return the command that runs one of Kafka's classes."""
    logging = f"-Dlog4j2.configurationFile={jars / 'log4j2.properties'}"
    return ["java", f"-Xms{heap}", f"-Xmx{heap}", *options, logging, "-cp", f"{jars}/*", *arguments]


class SideBySide:
    """A cluster of one software. Combined: every node is broker and controller; else controllers are 101, 102, ..."""

    def __init__(
        self,
        software: Software,
        folder: Path,
        *,
        brokers: int,
        controllers: int,
        settings: Settings,
        first_broker: int = 1,
        first_controller: int = 101,
        authority: Authority | None = None,
    ) -> None:
        """`controllers=0`: combined nodes. `first_broker`, `first_controller`: their smallest ids.

        authority:  signs for brokers that have a listener with TLS beside their plain one, and speak by it among themselves.
        """
        self.software = software
        self.settings = settings
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        roles = dict.fromkeys(range(first_controller, first_controller + controllers), "controller")
        self.broker_ids = tuple(range(first_broker, first_broker + brokers))
        roles |= dict.fromkeys(self.broker_ids, "broker" if controllers else "broker,controller")
        numbers = {node: number for number, node in enumerate(self.broker_ids, start=1)}
        numbers |= {first_controller + one: 1 + CONTROLLER_OFFSET + one for one in range(controllers)}
        self._claim, port = _claimed_port()
        voters = {
            node: f"{NET}{numbers[node] + (0 if controllers else CONTROLLER_OFFSET)}:{port - CONTROLLER_PORT_OFFSET}"
            for node, role in roles.items()
            if "controller" in role
        }
        self.places = {
            node: Place(node, role, folder / str(node), voters, port, numbers[node]) for node, role in roles.items()
        }
        self._configs: dict[int, Path] = {}
        self._authority = authority

    @property
    def bootstrap(self) -> str:
        """Addresses of the brokers, as clients want them."""
        return ",".join(_address(self.places[node].endpoint) for node in self.broker_ids)

    @property
    def bootstrap_tls(self) -> str:
        """Addresses of the brokers' listeners with TLS."""
        return ",".join(_address(self.places[node].tls_endpoint) for node in self.broker_ids)

    @property
    def bootstrap_controllers(self) -> str:
        """Addresses of the controllers."""
        return ",".join(next(iter(self.places.values())).voters.values())

    def __enter__(self) -> "SideBySide":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def up(self) -> "SideBySide":
        """Format and start everything; return when every broker sees all brokers serve."""
        self.format()
        self.launch()
        return self

    def format(self) -> None:
        """Prepare every node's directory."""
        formatting = [self._spawn_format(place) for place in self.places.values()]
        for place, process in zip(self.places.values(), formatting, strict=True):
            if process.wait(FORMAT_TIMEOUT_S) != 0:
                raise ClusterError(f"node {place.node} cannot be formatted:\n{last_lines(place.log)}")

    def launch(self) -> None:
        """Start everything that is formatted; return when every broker sees all brokers serve."""
        for node in self.places:
            self.start(node)
        self.wait_serving(self.broker_ids)

    def _spawn_format(self, place: Place) -> "subprocess.Popen[bytes]":
        place.folder.mkdir(parents=True, exist_ok=True)
        if self._authority is not None and place.roles != "controller":
            keystore = place.folder.resolve() / "node.pem"
            self._authority.issue(f"node-{place.node}", [place.tls_endpoint[0]], keystore)
            place.tls = Tls(keystore, self._authority.trust.resolve())
        self._configs[place.node] = self.software.write_config(place, self.settings)
        return _spawn(self.software.format(place, self._configs[place.node]), place.log)

    def start(self, node: int) -> None:
        """Start a node's process; it may not serve yet."""
        place = self.places[node]
        self.processes[node] = _spawn(self.software.run(place, self._configs[node]), place.log)

    def kill(self, node: int) -> None:
        """Kill -9."""
        self.processes[node].kill()
        self.processes[node].wait()

    def stop(self, node: int) -> None:
        """SIGTERM, and wait; `ClusterError` when it does not end."""
        self.processes[node].terminate()
        try:
            self.processes[node].wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{self.software.name} node {node} does not end at SIGTERM") from None

    def end(self) -> None:
        """End what still runs."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self._claim.close()

    def memory_mib(self, node: int) -> float:
        """Return the resident memory of a node's process."""
        status = Path(f"/proc/{self.processes[node].pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def wait_serving(self, brokers: Iterable[int]) -> None:
        """Wait until each of these brokers says that exactly these brokers are alive."""
        wanted = sorted(brokers)
        self.wait_until(
            lambda: all(alive_brokers(self.places[node].endpoint) == wanted for node in wanted),
            f"brokers {wanted} serve",
            SERVING_TIMEOUT_S,
        )

    def wait_until(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait for something; a node that died unasked ends the wait."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            for node, process in self.processes.items():
                if process.poll() not in (None, 0, -signal.SIGKILL, 128 + signal.SIGTERM):
                    raise ClusterError(f"node {node} ended:\n{last_lines(self.places[node].log)}")
            if time.monotonic() > deadline:
                raise Unsettled(f"{self.software.name}: {what}: not within {timeout_s} s")
            time.sleep(POLL_S)  # noqa: TID251 - real processes, real time


def alive_brokers(endpoint: tuple[str, int]) -> list[int]:
    """Ask one broker, by Metadata version 1 without topics, whom it believes alive; none when it does not answer."""
    body = struct.pack(">hhih1si", 3, 1, 7, 1, b"t", 0)
    try:
        answer = asked(endpoint, struct.pack(">i", len(body)) + body)
    except (OSError, struct.error):
        return []
    return sorted(_broker_ids(answer))


def asked(endpoint: tuple[str, int], frame: bytes) -> bytes:
    """Send one request over a connection of its own; return the answer without its length."""
    with socket.create_connection(endpoint, timeout=1) as connection:
        connection.settimeout(2)
        connection.sendall(frame)
        with connection.makefile("rb") as stream:
            return stream.read(struct.unpack(">i", stream.read(4))[0])


def _broker_ids(answer: bytes) -> list[int]:
    (count,), position = struct.unpack_from(">i", answer, 4), 8
    found = []
    for _ in range(count):
        node, host_bytes = struct.unpack_from(">ih", answer, position)
        position += 6 + host_bytes + 4
        (rack_bytes,) = struct.unpack_from(">h", answer, position)
        position += 2 + max(0, rack_bytes)
        found.append(node)
    return found


def _spawn(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own command, no shell
            with_parent(_with_path(command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=node_environment(),
            start_new_session=True,
        )


def _with_path(command: list[str]) -> list[str]:
    """Return the command with its program's full path: `parent_death.py` searches no PATH."""
    return ["/usr/bin/env", *command]


def _claimed_port() -> tuple[socket.socket, int]:
    """Return a port that no other such cluster has, and the socket whose listening keeps it ours."""
    for port in candidate_ports(None):
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind((CLAIM_HOST, port))
            claim.listen()
        except OSError:
            claim.close()
        else:
            return claim, port
    raise ClusterError(f"no port is free on {CLAIM_HOST}")


def _voters(place: Place) -> str:
    return ",".join(f"{node}@{address}" for node, address in place.voters.items())


def _with_tls(listeners: str, place: Place) -> str:
    return listeners if place.tls is None else f"{listeners},TLS://{_address(place.tls_endpoint)}"


def _address(endpoint: tuple[str, int]) -> str:
    return f"{endpoint[0]}:{endpoint[1]}"
