"""`python -m replog format|broker|controller|combined --config node.toml`, and `admin`.

Exit codes: 0 done or stopped in good order, 1 an error that nobody foresaw (the node ends and says where), 2 usage or
configuration, 3 a log directory that is not this node's, 4 an address that cannot be had, 5 the cluster said no, 6 no log
directory can be used, 7 the metadata is damaged, on the disk or in ZooKeeper.
"""

import argparse
import asyncio
import errno
import importlib
import pkgutil
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import IntEnum
from pathlib import Path
from uuid import UUID

import replog.mutants
from replog.client import admin
from replog.config import ConfigError, Endpoint, NodeConfig, endpoint
from replog.host.config_file import read_config
from replog.host.directory_locks import DirectoryInUse, DirectoryLocks
from replog.host.world import RealClock, RealDisk, RealEntropy, RealJournal, RealNetwork, RealWorld, run
from replog.node import first_voters
from replog.node.broker import Broker
from replog.node.controller import ControllerNode
from replog.node.data_plane import BrokerFailed
from replog.node.directories import meta_properties
from replog.node.directories.log_directories import NoDirectory
from replog.node.directories.meta_properties import ForeignDirectory
from replog.node.first_voters import WhoVotes, format_with_voters
from replog.node.quorum.metadata_damage import DamagedMetadata
from replog.ports import Clock, Disk, Entropy, Journal, Network, World
from replog.types import NodeId
from replog.zookeeper.operations import NoAuth
from replog.zookeeper.znodes import DamagedZnode


class Exit(IntEnum):
    """What the process's exit code says."""

    DONE = 0
    CRASH = 1
    USAGE = 2
    FOREIGN_DIRECTORY = 3
    ADDRESS = 4
    REFUSED = 5
    DISK = 6
    DAMAGE = 7


class Unusable(Exception):
    """Nothing can go on from here; one line for people and an exit code."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    chosen = parser().parse_args(arguments)
    try:
        code: int = chosen.run(chosen)
    except Unusable as problem:
        print(f"replog {chosen.command}: {problem}", file=sys.stderr)  # noqa: T201 - the command's own words
        return problem.code
    return code


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="python -m replog", description="A replicated log that speaks Kafka's protocol.")
    top.add_argument("--version", action="version", version=f"replog {replog.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    formatting = commands.add_parser("format", help="prepare the log directories of a node")
    formatting.add_argument("--config", required=True, type=Path, metavar="FILE")
    formatting.add_argument("--cluster-id", metavar="ID", help="of the cluster, where FILE is a server.properties")
    formatting.add_argument("--ignore-formatted", action="store_true", help="leave formatted directories as they are")
    who_votes = formatting.add_mutually_exclusive_group()
    who_votes.add_argument("--standalone", action="store_true", help="this controller is the only voter (KIP-853)")
    who_votes.add_argument(
        first_voters.OPTION,
        metavar="ID@HOST:PORT:DIRECTORY-ID,...",
        help="the first voters; this controller's directory gets its id of them",
    )
    who_votes.add_argument(
        "--no-initial-controllers", action="store_true", help="learn from the others who votes; add-voter lets it vote"
    )
    formatting.set_defaults(run=_format)
    for role in ("broker", "controller", "combined"):
        node = commands.add_parser(role, help=f"run a {role} node until SIGTERM")
        node.add_argument("--config", required=True, type=Path, metavar="FILE")
        node.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
        node.set_defaults(run=_run_node)
    _add_admin(commands.add_parser("admin", help="ask what no other tool can ask"))
    return top


def _add_admin(top: argparse.ArgumentParser) -> None:
    top.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="any broker")
    commands = top.add_subparsers(dest="admin_command", required=True, metavar="COMMAND")
    elect = commands.add_parser("elect", help="elect a leader by name, or the replica with the longest log (KIP-966)")
    elect.add_argument("--topic", required=True)
    elect.add_argument("--partition", required=True, type=int)
    how = elect.add_mutually_exclusive_group(required=True)
    how.add_argument("--leader", type=int, metavar="NODE")
    how.add_argument("--longest-log", choices=sorted(admin.LONGEST_LOG))
    elect.set_defaults(run=_admin, work=_elect)
    describe = commands.add_parser("describe-topics", help="show partitions with ISR and ELR, page by page")
    describe.add_argument("--topic", action="append", default=[], help="repeatable; default: all")
    describe.add_argument("--page-size", type=int, default=2000)
    describe.set_defaults(run=_admin, work=_describe_topics)
    quorum = commands.add_parser("describe-quorum", help="show who votes and who observes, with directory ids")
    quorum.set_defaults(run=_admin, work=_describe_quorum)
    adding = commands.add_parser("add-voter", help="let an observing controller vote (KIP-853)")
    removing = commands.add_parser("remove-voter", help="take a voter out of the quorum (KIP-853)")
    for command in (adding, removing):
        command.add_argument("--node", required=True, type=int)
        command.add_argument("--directory-id", type=_uuid, metavar="UUID", help="default: as the quorum knows it")
    adding.add_argument("--listener", required=True, type=_endpoint, metavar="HOST:PORT", help="the new voter's own")
    adding.set_defaults(run=_admin, work=_add_voter)
    removing.set_defaults(run=_admin, work=_remove_voter)


def _uuid(text: str) -> UUID:
    try:
        return meta_properties.directory_id(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a UUID") from None


def _endpoint(text: str) -> Endpoint:
    try:
        return endpoint("--listener", text)
    except ConfigError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


# --- nodes ---------------------------------------------------------------------------------------


def _config(path: Path, cluster_id: str | None = None) -> NodeConfig:
    try:
        return read_config(path, cluster_id=cluster_id)
    except (OSError, ConfigError) as problem:
        raise Unusable(Exit.USAGE, str(problem)) from None


def _format(chosen: argparse.Namespace) -> int:
    config = _config(chosen.config, chosen.cluster_id)
    if chosen.cluster_id not in (None, config.cluster_id):
        raise Unusable(Exit.USAGE, f"--cluster-id {chosen.cluster_id}: {chosen.config} says {config.cluster_id}")
    disk = RealDisk()
    try:
        formatted = format_with_voters(
            disk,
            config,
            RealEntropy().uuid,
            _who_votes(chosen, config),
            now_ms=RealClock().wall_ms(),
            ignore_formatted=chosen.ignore_formatted,
        )
    except ForeignDirectory as problem:
        raise Unusable(Exit.FOREIGN_DIRECTORY, str(problem)) from None
    except OSError as problem:
        raise Unusable(Exit.USAGE, str(problem)) from None
    finally:
        disk.close()
    for directory in formatted:
        print(f"formatted {directory} for node {config.node_id} of cluster {config.cluster_id}")  # noqa: T201
    return Exit.DONE


def _who_votes(chosen: argparse.Namespace, config: NodeConfig) -> WhoVotes:
    """Return who votes by the options; `Unusable` where they do not fit the configuration, or one is needed."""
    try:
        named = () if chosen.initial_controllers is None else first_voters.parsed(chosen.initial_controllers)
        return first_voters.who_votes(
            config, named, standalone=chosen.standalone, by_others=chosen.no_initial_controllers
        )
    except ConfigError as problem:
        raise Unusable(Exit.USAGE, str(problem)) from None


def _run_node(chosen: argparse.Namespace) -> int:
    config = _config(chosen.config)
    _check_roles(chosen.command, config)
    install_mutants(config)
    world = RealWorld(config, level=chosen.log_level)
    if config.ignored:
        world.journal.log("warning", f"settings without meaning here are ignored: {', '.join(config.ignored)}")
    try:
        meta_properties.check(world.disk, config)
    except ForeignDirectory as problem:
        world.close()
        raise Unusable(Exit.FOREIGN_DIRECTORY, str(problem)) from None
    except OSError as problem:
        world.close()
        raise Unusable(Exit.DISK, f"the directory of the metadata log cannot be used: {problem}") from None
    try:
        locks = DirectoryLocks(meta_properties.directories_of(config))
    except DirectoryInUse as problem:
        world.close()
        raise Unusable(Exit.FOREIGN_DIRECTORY, str(problem)) from None
    refused: list[Unusable] = []
    try:
        code = run(_live(_NODES[chosen.command], world, config, refused), world)
    finally:
        locks.close()
    if refused:
        raise refused[0]
    return code


def _check_roles(command: str, config: NodeConfig) -> None:
    wanted = {"broker", "controller"} if command == "combined" else {command}
    if config.is_zookeeper_mode and command != "broker":
        raise Unusable(Exit.USAGE, f"in ZooKeeper mode (no 'process.roles') there are brokers only, no {command!r}")
    if config.is_zookeeper_mode:
        _check_protocol(config)
        return
    if config.roles != wanted:
        roles = ",".join(sorted(config.roles))
        raise Unusable(Exit.USAGE, f"'process.roles' is {roles!r}, which is not what {command!r} runs")
    if command == "combined" and not config.listeners.controllers:
        raise Unusable(
            Exit.USAGE, "a combined node needs 'controller.listeners', or 'controller.listener.names' of 'listeners'"
        )
    voters = {voter.node_id for voter in config.voters}
    if command != "broker" and voters and config.node_id not in voters and not config.hooks.controller_joins:
        message = (
            f"node {config.node_id} is not one of 'controller.quorum.voters' {sorted(voters)}; "
            "one that is to be added as a voter later has 'tribunal.controller.joins'"
        )
        raise Unusable(Exit.USAGE, message)


def _check_protocol(config: NodeConfig) -> None:
    from replog.zookeeper.versions import ProtocolVersion, UnknownVersion

    try:
        ProtocolVersion.parse(config.zookeeper.inter_broker_protocol_version)
    except UnknownVersion as problem:
        raise Unusable(Exit.USAGE, f"'inter.broker.protocol.version': {problem}") from None


def install_mutants(config: NodeConfig) -> None:
    """Switch the configured known bugs back on."""
    known = {info.name: info.name for info in pkgutil.iter_modules(replog.mutants.__path__)}
    known |= {name.partition("_")[0].upper(): name for name in known}
    for name in config.hooks.mutants:
        module = known.get(name)
        if module is None:
            raise Unusable(Exit.USAGE, f"'tribunal.mutants': no mutant {name!r}; there are {', '.join(sorted(known))}")
        importlib.import_module(f"replog.mutants.{module}").install()


async def _live(
    start: Callable[[RealWorld, NodeConfig], Awaitable[Callable[[], Coroutine[object, object, None]]]],
    world: RealWorld,
    config: NodeConfig,
    refused: list[Unusable],
) -> None:
    """Start, wait for SIGTERM or SIGINT, stop in good order."""
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    try:
        await _check_addresses(world, config)
        stop = await start(world, config)
    except Unusable as problem:
        refused.append(problem)
        return
    except DamagedMetadata as problem:
        refused.append(Unusable(Exit.DAMAGE, str(problem)))
        return
    except (NoDirectory, OSError) as problem:
        # Addresses were tried before: what is left to fail at a start are the directories.
        refused.append(Unusable(Exit.DISK, str(problem)))
        return
    _foresee(loop, refused)
    await asked_to_stop.wait()
    world.journal.log("info", "asked to stop")
    await stop()


def _foresee(loop: asyncio.AbstractEventLoop, refused: list[Unusable]) -> None:
    """Say in one line, besides the log's story, what ends a node of ZooKeeper mode while it runs and is no bug of ours."""
    end = loop.get_exception_handler()
    assert end is not None, "`run` has set what ends the node"

    def on_exception(of: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        problem = context.get("exception")
        if isinstance(problem, DamagedZnode):
            refused.append(Unusable(Exit.DAMAGE, str(problem)))
        elif isinstance(problem, NoAuth):
            refused.append(Unusable(Exit.REFUSED, f"ZooKeeper does not let us in any more: the ACL of {problem}"))
        elif isinstance(problem, BrokerFailed):
            refused.append(Unusable(Exit.REFUSED, str(problem)))
        end(of, context)

    loop.set_exception_handler(on_exception)


async def _check_addresses(world: RealWorld, config: NodeConfig) -> None:
    """Say it in one line, and before anything is opened, when an address cannot be had."""
    for listening in (*config.listeners.brokers, *config.listeners.controllers):
        address = listening.endpoint
        try:
            listener = await world.network.listen(address.host, address.port, asyncio.Protocol)
        except OSError as problem:
            reason = "is taken" if problem.errno == errno.EADDRINUSE else f"cannot be bound: {problem.strerror}"
            raise Unusable(Exit.ADDRESS, f"address {address} {reason}") from None
        listener.close()


async def _start_broker(world: World, config: NodeConfig) -> Callable[[], Coroutine[object, object, None]]:
    if config.is_zookeeper_mode:
        return await _start_zookeeper_broker(world, config)
    broker = Broker(world, config)
    await broker.start()
    return broker.stop


async def _start_zookeeper_broker(world: World, config: NodeConfig) -> Callable[[], Coroutine[object, object, None]]:
    from replog.host.kazoo_zookeeper import open_zookeeper
    from replog.node.zookeeper.broker import ZooKeeperBroker, ZooKeeperUnreachable, ZooKeeperUnusable

    in_zookeeper_mode = ZooKeeperBroker(world, config, open_zookeeper)
    try:
        await in_zookeeper_mode.start()
    except ZooKeeperUnreachable as problem:
        raise Unusable(Exit.ADDRESS, str(problem)) from None
    except DamagedZnode as problem:
        raise Unusable(Exit.DAMAGE, str(problem)) from None
    except ZooKeeperUnusable as problem:
        raise Unusable(Exit.REFUSED, str(problem)) from None
    return in_zookeeper_mode.stop


async def _start_controller(world: World, config: NodeConfig) -> Callable[[], Coroutine[object, object, None]]:
    controller = ControllerNode(world, config)
    await controller.start()
    return controller.stop


async def _start_combined(world: World, config: NodeConfig) -> Callable[[], Coroutine[object, object, None]]:
    controller = ControllerNode(world, config, also_notify=lambda: broker)
    broker = Broker(world, config, quorum=controller.prepare())
    controller.brokers_metrics = broker.own_metrics
    await broker.start()
    await controller.start()

    async def stop() -> None:
        await broker.stop()
        await controller.stop()

    return stop


_NODES = {"broker": _start_broker, "controller": _start_controller, "combined": _start_combined}


# --- admin ---------------------------------------------------------------------------------------


class ClientWorld:
    """The doors that a client needs; it has no node's configuration."""

    def __init__(self) -> None:
        self.clock: Clock = RealClock()
        self.entropy: Entropy = RealEntropy()
        self.disk: Disk = RealDisk()
        self.network: Network = RealNetwork()
        self.journal: Journal = RealJournal(-1)


def _admin(chosen: argparse.Namespace) -> int:
    try:
        bootstrap = endpoint("--bootstrap", chosen.bootstrap)
    except ConfigError as problem:
        raise Unusable(Exit.USAGE, str(problem)) from None
    return asyncio.run(_administer(chosen, bootstrap))


async def _administer(chosen: argparse.Namespace, bootstrap: Endpoint) -> int:
    world = ClientWorld()
    client = admin.Admin(world, bootstrap)
    try:
        await client.open()
        await chosen.work(client, chosen)
    except admin.AdminFailed as problem:
        raise Unusable(Exit.REFUSED, str(problem)) from None
    except (*admin.Lost, OSError) as problem:
        raise Unusable(Exit.ADDRESS, f"{bootstrap}: {problem}") from None
    finally:
        client.close()
    return Exit.DONE


async def _elect(client: admin.Admin, chosen: argparse.Namespace) -> None:
    leader = None if chosen.leader is None else NodeId(chosen.leader)
    await client.elect(chosen.topic, chosen.partition, leader=leader, longest_log=chosen.longest_log)
    done = f"node {leader} leads" if leader is not None else "the search for the longest log has begun"
    print(f"{chosen.topic}-{chosen.partition}: {done}")  # noqa: T201


async def _describe_topics(client: admin.Admin, chosen: argparse.Namespace) -> None:
    async for topic in client.describe_topics(chosen.topic, chosen.page_size):
        print("\n".join(admin.shown(topic)))  # noqa: T201


async def _describe_quorum(client: admin.Admin, chosen: argparse.Namespace) -> None:
    print("\n".join(admin.shown_quorum(await client.quorum())))  # noqa: T201


async def _add_voter(client: admin.Admin, chosen: argparse.Namespace) -> None:
    directory = await client.add_voter(NodeId(chosen.node), chosen.directory_id, chosen.listener)
    print(f"controller {chosen.node} with directory {directory} votes")  # noqa: T201


async def _remove_voter(client: admin.Admin, chosen: argparse.Namespace) -> None:
    directory = await client.remove_voter(NodeId(chosen.node), chosen.directory_id)
    print(f"controller {chosen.node} with directory {directory} votes no longer")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
