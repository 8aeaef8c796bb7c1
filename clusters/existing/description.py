"""What a `cluster.toml` says: where the nodes of a cluster that is there already are reached, and what may be done to them.

So says the file of a described system's nodes that run already (`NodesThere`), with less: it has no settings, and its clients are its own.

Every command is a list of words. In them stand placeholders:

    {node}    the node's id        {host}, {port}  where it is reached, as its entry says
    {folder}  the folder of cluster.toml
    {target}  of `copy_logs` alone: an empty folder of this machine that gets the node's log directory

A command that is not given is missing: a fault that needs it is refused by name when the run is planned.
"""

import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol, TypeVar

import msgspec

from replog.config import DEFINITIONS
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.spec import SettingValue
from tribunal.results.unreadable import UNREADABLE, in_words

PLACEHOLDER: Final = re.compile(r"\{(\w+|(?:node|host|port)[:@][\w@]+)\}")
OF_NODES: Final = ("node", "host", "port", "folder")
TARGET: Final = "target"
PORT_MAX: Final = 65_535
Undoing = Literal["start", "resume", "rejoin"]
# What undoes each act: without it nobody could mend what was done.
UNDONE_BY: Final[Mapping[str, Undoing]] = {"stop": "start", "kill": "start", "pause": "resume", "isolate": "rejoin"}

Command = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=1)]
Said = TypeVar("Said", bound=msgspec.Struct)


class BadCluster(ValueError):
    """A cluster.toml that cannot be used; one line that says where and why."""


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node; `address` is `host:port` as this machine reaches it, of brokers their clients' listener."""

    id: Annotated[int, msgspec.Meta(ge=1)]
    address: str

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.address.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


class Commands(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be done to nodes; each ends by itself, with 0 where it did what it says.

    kill, stop:  end a node, at once or in good order; `start` begins it again, and does not wait for its end.
    pause, resume:  stop a node's execution, and let it go on.
    isolate, rejoin:  cut a node off from all others and from this machine, and mend that.
    alive:      ends with 0 while the node's process exists.
    copy_logs:  copies a node's log directory into {target}; asked when the run is over, the node still runs.
    """

    start: Command | None = None
    stop: Command | None = None
    kill: Command | None = None
    pause: Command | None = None
    resume: Command | None = None
    isolate: Command | None = None
    rejoin: Command | None = None
    alive: Command | None = None
    copy_logs: Command | None = None

    def named(self) -> dict[str, Command]:
        """Return those that are given, by name."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: command for name, command in given.items() if command is not None}


class Commanded(Protocol):
    """Nodes that commands of a file change, and nothing else."""

    @property
    def commands(self) -> Commands:
        """What may be done to them."""

    @property
    def endpoints(self) -> Mapping[int, tuple[str, int]]:
        """Where each node is reached."""

    @property
    def command_within_ms(self) -> int:
        """How long a command may take."""


class NodesThere(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The nodes of a described system that run already; which address a node has, and no more: its `system.toml` says the rest.

    command_within_ms:  how long a command may take.
    """

    nodes: Annotated[tuple[Node, ...], msgspec.Meta(min_length=1, max_length=99)]
    commands: Commands = Commands()
    command_within_ms: Milliseconds = 60_000

    @property
    def endpoints(self) -> dict[int, tuple[str, int]]:
        """Where each node is reached."""
        return {node.id: node.endpoint for node in self.nodes}


class ExistingCluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cluster in KRaft mode.

    version:   of Apache Kafka, that its nodes speak like; none: the newest.
    controllers:  where their listeners are reached; a node with both roles stands among the brokers, too, by the same id.
    clients:   librdkafka's settings of every client, for TLS and SASL.
    controller_clients:  those of who reads the metadata log at the controllers' listeners; none: as every client.
    settings:  the cluster's own, by Kafka's names, where they differ from Kafka's defaults.
    command_within_ms:  how long a command may take.
    serving_within_ms:  how long a node may take from its start.
    """

    name: str
    brokers: Annotated[tuple[Node, ...], msgspec.Meta(min_length=1, max_length=99)]
    controllers: Annotated[tuple[Node, ...], msgspec.Meta(min_length=1, max_length=99)]
    version: str = ""
    clients: Mapping[str, str | int | bool] = {}
    controller_clients: Mapping[str, str | int | bool] | None = None
    settings: Mapping[str, SettingValue] = {}
    commands: Commands = Commands()
    command_within_ms: Milliseconds = 60_000
    serving_within_ms: Milliseconds = 120_000

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers, ascending."""
        return tuple(sorted(node.id for node in self.brokers))

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Ids of the nodes that are nothing but controllers, ascending."""
        return tuple(sorted({node.id for node in self.controllers} - set(self.broker_ids)))

    @property
    def endpoints(self) -> dict[int, tuple[str, int]]:
        """Where each node is reached: one with both roles as a broker."""
        return {node.id: node.endpoint for node in (*self.controllers, *self.brokers)}


def read_cluster(path: Path) -> ExistingCluster:
    """Read a cluster.toml. Raises BadCluster."""
    cluster = _read(path, ExistingCluster)
    try:
        release(cluster.version)
    except ValueError as problem:
        raise BadCluster(f"{path}: {problem}") from None
    by_role = {"broker": cluster.brokers, "controller": cluster.controllers}
    if wrong := _nodes_problem(by_role) or _commands_problem(cluster.commands) or _settings_problem(cluster):
        raise BadCluster(f"{path}: {wrong}")
    return cluster


def read_nodes(path: Path) -> NodesThere:
    """Read the file of a described system's nodes. Raises BadCluster."""
    found = _read(path, NodesThere)
    if wrong := _nodes_problem({"node": found.nodes}) or _commands_problem(found.commands):
        raise BadCluster(f"{path}: {wrong}")
    if found.commands.copy_logs is not None:
        raise BadCluster(f"{path}: commands: copy_logs is for logs that speak Kafka's protocol (--cluster existing)")
    return found


def _read(path: Path, shape: type[Said]) -> Said:
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), shape, strict=False)
    except OSError as problem:
        raise BadCluster(f"{path}: {problem.strerror}") from None
    except (ValueError, *UNREADABLE) as problem:
        raise BadCluster(f"{path}: {in_words(problem, shape)}") from None


def _nodes_problem(by_role: Mapping[str, tuple[Node, ...]]) -> str:
    for role, nodes in by_role.items():
        ids = [node.id for node in nodes]
        if twice := [one for one in ids if ids.count(one) > 1]:
            return f"{role} {twice[0]} stands there twice"
        for node in nodes:
            host, _, port = node.address.rpartition(":")
            if not host or not port.isdecimal() or not 1 <= int(port) <= PORT_MAX:
                return f"{role} {node.id}: {node.address!r} is no address: write host:port"
    return ""


def _commands_problem(commands: Commands) -> str:
    given = commands.named()
    for name, undoing in UNDONE_BY.items():
        if name in given and undoing not in given:
            return f"commands: {name} without {undoing}: nobody could mend what it does"
    for name, words in given.items():
        known = (*OF_NODES, TARGET) if name == "copy_logs" else OF_NODES
        for word in words:
            for match in PLACEHOLDER.finditer(word):
                if match[1] not in known:
                    return f"commands: {name}: there is no {match[0]}; there are {', '.join(f'{{{one}}}' for one in known)}"
    if "copy_logs" in given and not any(f"{{{TARGET}}}" in word for word in given["copy_logs"]):
        return "commands: copy_logs does not name {target}, the folder that it is to fill"
    return ""


def _settings_problem(cluster: ExistingCluster) -> str:
    unknown = next((name for name in cluster.settings if name not in DEFINITIONS), None)
    return "" if unknown is None else f"settings: no rule of the judge knows {unknown!r}: leave it out"


def put_in(words: Command, node: int, endpoint: tuple[str, int], folder: Path, target: Path | None = None) -> list[str]:
    """Return a node's command with everything put in, its program by its full path where it is found."""
    values = {"node": str(node), "host": endpoint[0], "port": str(endpoint[1]), "folder": str(folder)}
    if target is not None:
        values[TARGET] = str(target)
    program, *rest = (PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in words)
    return [shutil.which(program) or program, *rest]
