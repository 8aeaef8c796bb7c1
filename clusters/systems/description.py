"""What a `system.toml` says: how the nodes of a system are run, what may be done to them, and who calls their operations.

Every command is a list of words. In them stand placeholders:

    {folder}  the folder of system.toml          {python}  the interpreter that runs the harness
    {node}    the node's number, 1..             {data}    the node's own folder for data
    {host}    the node's address                 {port}    the node's port, the first of `ports`
    {port:NAME}, {host@N}, {port@N}, {port:NAME@N}         another port, and those of node N
    {set:NAME}  what a scenario says of a setting, else what `[nodes.settings]` does
    of a system with a log also:
    {advertised}  host:port where clients find the node     {settings}  what it is to be started with, NAME=VALUE lines by Kafka's names
    {cluster_id}  the cluster's id, as Kafka writes it

A capability that the description does not give is missing: a fault that needs it is refused by name when the run is planned.
"""

import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from replog.config import DEFINITIONS
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.objects import ObjectOperation
from tribunal.clusters.spec import SettingValue
from tribunal.clusters.systems.own_settings import SET, SET_NAME, SetValue, as_text, unfit
from tribunal.results.near_words import hint
from tribunal.results.unreadable import UNREADABLE, in_words

PLACEHOLDER: Final = re.compile(r"\{(\w+)(?::(\w[\w.-]*))?(?:@(\d+))?\}")
PORT_NAME: Final = re.compile(r"\w+")
ROLE: Final = r"^(?!(random|node|broker|controller|not)$)[a-z][a-z0-9_-]{0,31}$"
MAIN_PORT: Final = "main"
OF_CLIENTS: Final = ("folder", "python")
PLAIN: Final = (*OF_CLIENTS, "node", "data")
SETTINGS: Final = "settings"
OF_LOGS: Final = ("advertised", SETTINGS, "cluster_id")
CALL_GRACE_MS: Final = 1_000  # what a client gets beyond its own time-out before it counts as hung

Command = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=1)]


class BadSystem(ValueError):
    """A system.toml that cannot be used; one line that says where and why."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one sees that a node serves: its port accepts, an HTTP path answers 2xx, or a command ends with 0.

    http:     a path on the main port.
    command:  run for each look.
    within_ms:  how long a node may take from its start.
    """

    http: str | None = None
    command: Command | None = None
    within_ms: Milliseconds = 20_000

    @property
    def is_port(self) -> bool:
        """Whether an open port is all that is looked at."""
        return self.http is None and self.command is None


class Nodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The nodes' processes.

    start:    stays in the foreground; its end is the node's end. Only of nodes that run already there is none.
    stop:     asks a node to end in good order; without it the process gets SIGTERM.
    prepare:  run once for each node with an empty data folder, and again when it was wiped.
    install:  installs what the commands need; never part of a run: `tribunal install` runs it, on this machine or on each host.
    version:  says the system's version in its first line; run once, as a command of the first node, before any is started.
    more:     words behind `start` for one node, by its number.
    image:    the nodes run in containers of this image, which the engine has or can pull; commands of nodes are the image's own, `python3` is {python}.
    dockerfile:  the nodes run in containers of an image that is built of this file, in the folder of system.toml, with what lies there.
    hosts:    the nodes run on the hosts of this file (`clusters/nodes/ssh_hosts.py`), beside system.toml; commands of nodes are the hosts' own.
    existing: the nodes run already; this file, beside system.toml, says where and by which commands they are hurt (`clusters/existing/description.py`).
    disk:     `forgetful`: the data folders are on a file system that knows what was not synced, so that a loss of power can take it.
    roles:    commands that end with 0 where a node has that role, as `leader`; each running node is asked twice a second. Faults are aimed by them.
    clock:    `shim`: a library is preloaded into the nodes' programs, so that their wall clock can be wrong.
    settings: what scenarios may set ({set:NAME}), by names of the system's own, and what stands there where they do not.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=99)]
    start: Command = ()
    stop: Command | None = None
    prepare: Command | None = None
    install: Command | None = None
    version: Command | None = None
    more: Mapping[int, tuple[str, ...]] = {}
    ports: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = (MAIN_PORT,)
    ready: Ready = Ready()
    stop_within_ms: Milliseconds = 10_000
    image: str | None = None
    dockerfile: str | None = None
    hosts: str | None = None
    existing: str | None = None
    disk: Literal["plain", "forgetful"] = "plain"
    clock: Literal["plain", "shim"] = "plain"
    roles: Mapping[Annotated[str, msgspec.Meta(pattern=ROLE)], Command] = {}
    settings: Mapping[Annotated[str, msgspec.Meta(pattern=SET_NAME)], SetValue] = {}

    @property
    def in_containers(self) -> bool:
        """Whether they run in containers."""
        return self.image is not None or self.dockerfile is not None

    @property
    def has_own_clock(self) -> bool:
        """Whether a clock of its own is preloaded into each: they are processes of this machine."""
        return self.clock == "shim" and not self.in_containers and self.hosts is None

    @property
    def may_forget(self) -> bool:
        """Whether their disks know what was not synced."""
        return self.disk == "forgetful"


class Client(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The program that calls operations (docs/your-system.md), and which ones it has."""

    command: Command
    operations: Annotated[tuple[ObjectOperation, ...], msgspec.Meta(min_length=1)]
    timeout_ms: Milliseconds = 1_000


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A log that Kafka's clients write and read, in KRaft mode; the workloads are those of records, and the harness brings the clients.

    protocol:     what clients speak.
    controllers:  the port, by its name, at which each node's controller listens: the committed metadata are read there.
    version:      of Apache Kafka, that its nodes speak like; none: the newest.
    settings:     what nodes are started with ({settings}), by Kafka's names; those of a scenario go before.
    """

    protocol: Literal["kafka"]
    controllers: str
    version: str = ""
    settings: Mapping[str, SettingValue] = {}


class Promises(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the system promises, by which its runs are judged.

    consistency:  of transactions: a model of `tribunal.checkers.graphs.models`, as `serializable`.
    lost_ms:      what may be lost, by the fault that takes it: what was acknowledged at most so long before. Of a system of one node, for of
                  several nobody knows which ones held what is missing.
    one_lost:     faults that may take what one node alone had acknowledged (`publish-one`), where they strike the node that did.
    starts_after: whether a node starts again, by the fault that had put it down: true: it has to, false: it may not. A fault that is not
                  named: nobody is accused, and the run says that it is not known.
    lease_ms:     of locks: so long after an acquisition was asked for its holder has the lock for sure, unless it releases it; None: until then.
    """

    consistency: str | None = None
    lost_ms: Mapping[Literal["kill"], Milliseconds] = {}
    one_lost: frozenset[str] = frozenset()
    starts_after: Mapping[str, bool] = {}
    lease_ms: Milliseconds | None = None

    @property
    def flat(self) -> dict[str, bool | int | str]:
        """Return what is promised by dotted names: `consistency`, `lost_ms.kill`, `one_lost.kill`, `starts_after.torn-loss`, `lease_ms`."""
        said: dict[str, bool | int | str] = {f"lost_ms.{fault}": within_ms for fault, within_ms in self.lost_ms.items()}
        said |= {f"one_lost.{fault}": True for fault in sorted(self.one_lost)}
        said |= {f"starts_after.{fault}": promised for fault, promised in self.starts_after.items()}
        said |= {} if self.lease_ms is None else {"lease_ms": self.lease_ms}
        return said if self.consistency is None else {"consistency": self.consistency, **said}


class System(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A system.

    client, log:  what calls its operations on objects, or how it is a log: one of them.
    timeouts_ms:  its own, by the words that durations of scenarios may use: `1.5x session`; of a log its settings say them.
    withheld:     what must not be done to its nodes.
    """

    name: str
    nodes: Nodes
    client: Client | None = None
    log: Log | None = None
    promises: Promises = Promises()
    timeouts_ms: Mapping[str, Milliseconds] = {}
    withheld: frozenset[Capability] = frozenset()

    @property
    def has_data(self) -> bool:
        """Whether its nodes keep what they store in the folders that they are given."""
        nodes = self.nodes
        words = [*nodes.start, *(nodes.prepare or ()), *(word for own in nodes.more.values() for word in own)]
        return any("{data}" in word for word in words)

    @property
    def names_folder(self) -> bool:
        """Whether its nodes need what lies beside system.toml."""
        return any("{folder}" in word for words in _of_nodes(self) for word in words)


def read_system(path: Path) -> System:
    """Read a system.toml. Raises BadSystem."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        system = msgspec.convert(content, System, strict=False)
    except OSError as problem:
        raise BadSystem(f"{path}: {problem.strerror}") from None
    except (ValueError, *UNREADABLE) as problem:
        raise BadSystem(f"{path}: {in_words(problem, System)}") from None
    if system.promises.lost_ms and system.nodes.count > 1:
        raise BadSystem(
            f"{path}: promises: lost_ms is for systems of one node: of several nobody knows who held what is lost"
        )
    _must_be_whole(path, system.nodes)
    if wrong := _neither_nor(system) or _start_problem(system) or _log_problem(system):
        raise BadSystem(f"{path}: {wrong}")
    for words in of_commands(system):
        for word in words:
            _must_be_known(path, word, system)
    for word in () if system.client is None else system.client.command:
        _must_be_of_no_node(path, word)
    if wrong := _settings_problem(system) or _install_problem(system.nodes):
        raise BadSystem(f"{path}: {wrong}")
    return system


def _neither_nor(system: System) -> str:
    if (system.client is None) == (system.log is None):
        return "[client] says what calls operations on objects, [log] that it is a log: write one of the two"
    return ""


def _start_problem(system: System) -> str:
    """Return what is wrong about how its nodes begin; empty: nothing."""
    nodes = system.nodes
    if nodes.existing is None:
        return "" if nodes.start else "nodes: start is missing: the command of a node (or existing: they run already)"
    ours = {
        "start": nodes.start, "install": nodes.install, "stop": nodes.stop, "prepare": nodes.prepare, "more": nodes.more, "image": nodes.image,
        "dockerfile": nodes.dockerfile, "hosts": nodes.hosts, 'disk = "forgetful"': nodes.may_forget,
        'clock = "shim"': nodes.clock == "shim", "a second one of ports": nodes.ports[1:],
    }  # fmt: skip
    if not_for_them := next((name for name, given in ours.items() if given), ""):
        return f"nodes: existing: nodes that run already have no {not_for_them}: what may be done to them says {nodes.existing}"
    if system.log is not None:
        return "nodes: existing: a log that runs already is for --cluster existing (docs/your-cluster.md)"
    return ""


def _log_problem(system: System) -> str:
    """Return what a log's description lacks, or says too much; empty: nothing."""
    if system.log is None:
        return ""
    try:
        release(system.log.version)
    except ValueError as problem:
        return f"log: {problem}"
    if system.log.controllers not in system.nodes.ports:
        return f"log: controllers: there is no port {system.log.controllers!r} among {', '.join(system.nodes.ports)}"
    if unknown := next((name for name in system.log.settings if name not in DEFINITIONS), None):
        return f"log: settings: no rule of the judge knows {unknown!r}: put it where the nodes are started"
    if not any(f"{{{SETTINGS}}}" in word for word in system.nodes.start):
        return "log: start does not name {settings}: its nodes would not have what its runs are judged by"
    if system.nodes.roles:
        return (
            "log: [nodes.roles] are for operations on objects: a log's leaders are those of its partitions, leader(p0)"
        )
    if system.promises != Promises(starts_after=system.promises.starts_after) or system.timeouts_ms:
        return "log: [promises] (but for starts_after) and [timeouts_ms] are for operations on objects: a log promises what its settings say"
    return ""


def _install_problem(nodes: Nodes) -> str:
    """Return what is wrong about how it is installed; empty: nothing."""
    if nodes.install is not None and nodes.in_containers:
        return "nodes: install: in containers it is the image that has what nodes need"
    found = (match for word in nodes.install or () for match in PLACEHOLDER.finditer(word))
    odd = next((match[0] for match in found if match[1] not in OF_CLIENTS), None)
    return f"nodes: install: {odd}: it is of no node; known: {{folder}}, {{python}}" if odd else ""


def _settings_problem(system: System) -> str:
    """Return what is wrong about what scenarios may set; empty: nothing."""
    given = system.nodes.settings
    if given and system.log is not None:
        return "nodes: settings are those of a system with a client; a log has [log.settings]"
    if given and system.nodes.existing is not None:
        return "nodes: existing: nodes that run already have the settings that they have"
    found = (match for words in of_commands(system) for word in words for match in PLACEHOLDER.finditer(word))
    named = {match[2] for match in found if match[1] == SET}
    if idle := next((name for name in given if name not in named), None):
        return f"nodes: settings: no command names {{{SET}:{idle}}}: it would change nothing"
    return next((f"nodes: settings: {wrong}" for name, value in given.items() if (wrong := unfit(name, value))), "")


def _must_be_whole(path: Path, nodes: Nodes) -> None:
    if strange := sorted(node for node in nodes.more if not 1 <= node <= nodes.count):
        raise BadSystem(f"{path}: more: there is no node {strange[0]}, nodes are 1 to {nodes.count}")
    if len(set(nodes.ports)) < len(nodes.ports):
        raise BadSystem(f"{path}: ports: two have the same name")
    if nodes.ready.http is not None and nodes.ready.command is not None:
        raise BadSystem(f"{path}: ready: http or command, not both: one of them would not be asked")
    if nodes.ready.http is not None and not nodes.ready.http.startswith("/"):
        raise BadSystem(f"{path}: ready: http = {nodes.ready.http!r}: a path begins with /")
    if odd := next((name for name in nodes.ports if not PORT_NAME.fullmatch(name)), None):
        raise BadSystem(f"{path}: ports: {odd!r} cannot stand in a placeholder: letters, digits and _")


def of_commands(system: System) -> list[tuple[str, ...]]:
    """Return all commands, as the file has them."""
    return [*_of_nodes(system), *([] if system.client is None else [system.client.command])]


def _of_nodes(system: System) -> list[tuple[str, ...]]:
    nodes = system.nodes
    given = (
        nodes.start or None, nodes.install, nodes.stop, nodes.prepare, nodes.version, nodes.ready.command,
        *nodes.more.values(), *nodes.roles.values(),
    )  # fmt: skip
    return [words for words in given if words is not None]


def _must_be_known(path: Path, word: str, system: System) -> None:
    nodes, known = system.nodes, PLAIN if system.log is None else (*PLAIN, *OF_LOGS)
    for match in PLACEHOLDER.finditer(word):
        name, port, node = match.groups()
        plain = name in known and port is None and node is None
        place = name in ("host", "port") and (port is None or (name == "port" and port in nodes.ports))
        plain = plain or (name == SET and port in nodes.settings and node is None)
        if not (plain or (place and (node is None or 1 <= int(node) <= nodes.count))):
            raise BadSystem(f"{path}: there is no {match[0]}; {_known_placeholders(match[0], known, nodes.ports)}")


def _known_placeholders(given: str, known: Sequence[str], ports: Sequence[str]) -> str:
    """Say which placeholder is near one that there is not, else which there are."""
    names = [f"{{{name}}}" for name in (*known, "host", "port", *(f"port:{port}" for port in ports))]
    all_of_them = f"known: {', '.join(names)}; of another node: {{host@2}}, {{port@2}}"
    return all_of_them if ":" in given else hint(given, names, all_of_them)


def _must_be_of_no_node(path: Path, word: str) -> None:
    """Refuse what means another thing at each node, in the command of a client."""
    for match in PLACEHOLDER.finditer(word):
        if match[1] not in (*OF_CLIENTS, SET) and match[3] is None:
            raise BadSystem(f"{path}: client: {match[0]}: a client is of no node; it is told where the nodes are")


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's commands find where this machine's programs are not: its {python}, and where {folder} lies."""

    python: str
    folder: Path


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where the nodes of one run are, and their files.

    ports:  by node and name.
    data:   each node's own folder.
    elsewhere:  of nodes whose commands are programs of an image or a host, not of this machine.
    advertised:  of a log: where clients find each node.
    of_log:  what the placeholders of logs alone are that all nodes have in common.
    settings:  of a system of objects: what {set:NAME} is.
    """

    folder: Path
    hosts: Mapping[int, str]
    ports: Mapping[int, Mapping[str, int]]
    data: Mapping[int, Path]
    elsewhere: Mapping[int, Elsewhere] = {}
    advertised: Mapping[int, tuple[str, int]] = {}
    of_log: Mapping[str, str] = {}
    settings: Mapping[str, SetValue] = {}

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where a node's clients find it: its first port."""
        return self.hosts[node], next(iter(self.ports[node].values()))

    def command(self, words: tuple[str, ...], node: int | None) -> list[str]:
        """Return a command with everything put in, its program by its full path; without a node, a client's."""
        program, *rest = (PLACEHOLDER.sub(lambda match: self._put_in(match, node), word) for word in words)
        if node in self.elsewhere:
            return [program, *rest]
        return [shutil.which(program) or program, *rest]

    def _put_in(self, match: re.Match[str], own: int | None) -> str:
        name, port, other = match.groups()
        there = self.elsewhere.get(own) if own is not None else None
        if name == "folder":
            return str(there.folder if there else self.folder)
        if name == "python":
            return there.python if there else sys.executable
        if name == SET:
            return as_text(self.settings[port])
        node = int(other) if other is not None else own
        if node is None:
            raise BadSystem(f"{match[0]}: a client is of no node; it is told where the nodes are")
        if name == "node":
            return str(node)
        if name == "data":
            return str(self.data[node])
        if name in self.of_log:
            return self.of_log[name]
        if name == "advertised":
            host, number = self.advertised[node]
            return f"{host}:{number}"
        if name == "host":
            return self.hosts[node]
        return str(self.ports[node][port] if port is not None else self.endpoint(node)[1])
