"""One node of replog on one simulated machine: the shell as it is, started, stopped and watched from outside."""

import asyncio
from asyncio import Future, Task
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from replog.config import NodeConfig
from replog.node.broker import Broker
from replog.node.controller import ControllerNode
from replog.node.directories.meta_properties import format_directories
from replog.node.quorum.metadata_log import directory_id_of
from replog.node.zookeeper.broker import ZooKeeperBroker
from replog.ports import World
from tribunal.clusters.simulated.committed import QuorumMember
from tribunal.clusters.simulated.loop import Failure
from tribunal.clusters.simulated.world import Machine
from tribunal.clusters.simulated.zookeeper import ZooKeeperServer, open_zookeeper
from tribunal.clusters.simulated.zookeeper_model import Model
from tribunal.clusters.spec import Settings

LAST_LINES: Final = 12


class Shell(Protocol):
    """A broker or a controller."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End in good order."""


@dataclass(slots=True)
class Ending:
    """Why one process of a node may end; the next one may have begun before its end is noticed."""

    asked_to_stop: bool = False
    problem: BaseException | None = None  # what nobody caught


class SimulatedNode:
    """A machine that runs a broker or a controller."""

    def __init__(self, node: int, machine: Machine, settings: Settings) -> None:
        self.node = node
        self.machine = machine
        self.config = NodeConfig(settings)
        self.ending = Ending()
        self.excuse: str | None = None  # why it may end by itself
        self.shell: Shell | None = None
        self._stop: asyncio.Event | None = None
        self._main: Task[None] | None = None

    @property
    def quorum(self) -> QuorumMember | None:
        """Its member of the quorum, None while it has none."""
        return self.shell.quorum if isinstance(self.shell, Broker | ControllerNode) else None

    @property
    def acted_offset(self) -> int | None:
        """First metadata offset that its broker has not carried out yet, None where it has none."""
        return self.shell.acted_offset if isinstance(self.shell, Broker) else None

    @property
    def directory_id(self) -> UUID:
        """The id that formatting gave its log directory."""
        return directory_id_of(self.machine.disk, self.config.metadata_log_dir)

    def format(self) -> None:
        """Prepare an empty disk as `python -m replog format` does."""
        world = self.machine.open_world()
        format_directories(world.disk, self.config, world.entropy.uuid, ignore_formatted=False)
        self.machine.disk.make_everything_durable()  # machines are formatted long before anything happens to them

    def start(self) -> "Future[BaseException | None]":
        """Start a process; the future says how it ended if it ends by itself."""
        self.ending = Ending()
        self.shell = None
        return self.machine.start(self._run)

    def stop(self) -> None:
        """Ask for an end in good order (SIGTERM)."""
        self.ending.asked_to_stop = True
        assert self._stop is not None
        self._stop.set()

    def fail(self, failure: Failure) -> None:
        """End the process for an error that nobody caught, as the real one does."""
        if self._main is not None and failure.process is self.machine.process:
            self.machine.say("error", f"{failure.message}: {failure.exception!r}")
            self.ending.problem = self.ending.problem or failure.exception  # the first is the cause of others
            self._main.cancel()

    def last_log_lines(self) -> str:
        """Return what it logged last."""
        return "\n".join(list(self.machine.lines)[-LAST_LINES:])

    def _new_shell(self, world: World) -> Shell:
        """Return what runs here."""
        if self.config.is_zookeeper_mode:
            return ZooKeeperBroker(world, self.config, open_zookeeper)
        return (Broker if "broker" in self.config.roles else ControllerNode)(world, self.config)

    async def _run(self, world: World) -> None:
        self._main = asyncio.current_task()
        self._stop = asyncio.Event()
        shell = self.shell = self._new_shell(world)
        await shell.start()
        await self._stop.wait()
        await shell.stop()


class ZooKeeperNode(SimulatedNode):
    """The machine of the ensemble; what it knows survives its process, as a quorum's logs do."""

    def __init__(self, node: int, machine: Machine, settings: Settings, model: Model) -> None:
        super().__init__(node, machine, settings)
        self.model = model

    def format(self) -> None:
        """Nothing is prepared: an empty ensemble becomes a cluster's by its first broker."""

    def _new_shell(self, world: World) -> Shell:
        return ZooKeeperServer(world, self.model, self.config.listener)
