"""The world of a simulation: machines, and the ports through which what runs on them reaches it.

A machine has an address, a clock, a disk and at most one living process; processes come and go, the rest stays.
`Simulation` holds the loop, the network and all machines. Every stream of chance is named after who draws from it
(`Random(f"{seed}/{machine}/{purpose}")`), so that a draw more in one place shifts nothing elsewhere.
"""

from asyncio import CancelledError, Future, Task
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from replog.ports import Clock, Disk, Entropy, Journal, Network, World
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk
from tribunal.clusters.simulated.loop import SimulatedLoop
from tribunal.clusters.simulated.network import Host, ProcessNetwork, SimulatedNetwork
from tribunal.clusters.simulated.process import NS_PER_MS, NS_PER_S, PPB, MonotonicClock, Process

if TYPE_CHECKING:
    from tribunal.clusters.simulated.cluster import SimulatedCluster

T = TypeVar("T")

LINES_KEPT: Final = 40
ONE_CUT_NS: Final = NS_PER_MS  # within which machines lose their power by one cause
EPOCH_MS: Final = 1_790_000_000_000  # wall time at virtual time 0: a Tuesday in September 2026


class ReportedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that a node reported, or that happened to it."""

    at_ns: int
    event_count: int
    machine: str
    node_ns: int
    name: str
    fields: Mapping[str, object]


class Probes:
    """How often each rare state was reached, by name and machine."""

    def __init__(self) -> None:
        self.first: dict[tuple[str, str], int] = {}
        self.counts: Counter[tuple[str, str]] = Counter()

    def reached(self, name: str, machine: str, at_ns: int) -> None:
        """Count it."""
        self.first.setdefault((name, machine), at_ns)
        self.counts[name, machine] += 1


class Strike(NamedTuple):
    """A point of the nodes' code that was late or failed."""

    point: str
    machine: str
    at_ns: int


class Points:
    """Where in the nodes' code something is late or fails, and how often: drawn by the seed, point by point.

    Most points are quiet in a run, so that what one of them causes is not always covered up by another.
    """

    ODDS: Final = (0.0, 0.0, 0.0, 0.01, 0.05, 0.2)

    def __init__(self, loop: SimulatedLoop) -> None:
        self.struck: list[Strike] = []
        self._loop = loop
        self._odds: dict[str, float] = {}

    def odds(self, point: str) -> float:
        """Return how often it is struck in this run."""
        odds = self._odds.get(point)
        if odds is None:
            odds = self._odds[point] = self._loop.random(f"points/{point}").choice(self.ODDS)
        return odds

    def strikes(self, point: str, machine: str, random: Random) -> bool:
        """Draw whether it is struck now, on this machine."""
        odds = self.odds(point)
        is_struck = odds > 0 and random.random() < odds
        if is_struck:
            self.struck.append(Strike(point, machine, self._loop.now_ns))
        return is_struck


class PowerCut(NamedTuple):
    """When a machine lost its power last, and with what share its disk kept what was not synced: others that lose it then keep as much."""

    at_ns: int
    bias: float


class Simulation:
    """Everything of one seed: loop, network, machines, and the events they reported."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.loop = SimulatedLoop.create(seed)
        self.loop.owner = self
        self.network = SimulatedNetwork(self.loop)
        self.machines: dict[str, Machine] = {}
        self.process_changes = 0  # how often a process was started or ended
        self.events: list[ReportedEvent] = []
        self.probes = Probes()
        self.points: Points | None = None  # where a run asks for them
        self.last_cut: PowerCut | None = None
        self.listeners: list[Callable[[ReportedEvent], None]] = []
        self.cluster: object = None  # what runs in it, for who wants to look at it afterwards
        self.on_cluster: Callable[[SimulatedCluster], None] = lambda cluster: None  # before any of its nodes starts
        self.log_lines: list[str] | None = None  # set to a list to keep what nodes say to people

    def add_machine(self, name: str, address: str, rank: int) -> "Machine":
        """Set up a machine; its rank orders events of the same instant and must be its own."""
        assert all(machine.rank != rank for machine in self.machines.values())
        machine = self.machines[name] = Machine(self, name, address, rank)
        return machine

    def run(self, main: Coroutine[object, object, T]) -> T:
        """Run the harness' coroutine to its end."""
        return self.loop.run_until_complete(main)

    def report(self, machine: "Machine", name: str, fields: Mapping[str, object]) -> None:
        """Keep an event, and let the listeners (the invariants) see it."""
        loop = self.loop
        node_ns = machine.clock.local_ns(loop.now_ns)
        event = ReportedEvent(loop.now_ns, loop.event_count, machine.name, node_ns, name, fields)
        self.events.append(event)
        for listener in self.listeners:
            listener(event)


class Machine:
    """A computer: address, clock, disk, power; runs one process at a time."""

    def __init__(self, simulation: Simulation, name: str, address: str, rank: int) -> None:
        loop = simulation.loop
        self.simulation = simulation
        self.name = name
        self.rank = rank
        self.process: Process | None = None
        self.incarnations = 0
        self.wall_offset_ms = 0
        self._former_walls: list[tuple[int, int]] = []  # when the clock was set, and what it showed until then
        boot_random = loop.random(f"{name}/boot")
        self.clock = MonotonicClock(boot_random.randrange(100 * NS_PER_S, 10_000 * NS_PER_S))
        self.host: Host = simulation.network.add_host(name, address, rank)
        self.disk = SimulatedDisk(loop.random(f"{name}/disk"), MachineTime(self))
        self.disk.on_crash_point = self.power_fail
        self.streams: dict[str, Random] = {}
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)

    @property
    def running(self) -> bool:
        """Return whether its process runs."""
        return self.process is not None and self.process.alive

    def start(self, main: Callable[[World], Coroutine[object, object, None]]) -> "Future[BaseException | None]":
        """Start a process; the future says how it ended: None, or the exception that ended it.

        A process that is killed never ends by itself: its future stays open.
        """
        assert not self.running
        assert self.host.up
        self.incarnations += 1
        self.simulation.process_changes += 1
        loop = self.simulation.loop
        process = loop.new_process(f"{self.name}#{self.incarnations}", rank=self.rank, clock=self.clock)
        if self.process is not None and self.process.busy_until_ns > loop.now_ns:
            # The killed one is still in the kernel, in a blocking call that nothing interrupts.
            loop.charge(process, self.process.busy_until_ns - loop.now_ns)
        self.process = process
        ended: Future[BaseException | None] = loop.root.context.copy().run(loop.create_future)
        task = loop.spawn(process, main(SimulatedWorld(self, process)), f"{process.name} main")
        # The harness' context: the callback must run although the process may be killed by then.
        task.add_done_callback(lambda done: self._ended(process, done, ended), context=loop.root.context.copy())
        return ended

    def open_world(self) -> "SimulatedWorld":
        """Return the machine's ports for the harness itself: to format its disk, or to act as its clients."""
        process = self.simulation.loop.new_process(f"{self.name}#0", rank=self.rank, clock=self.clock)
        return SimulatedWorld(self, process)

    def set_clock(self, *, offset_ms: int, drift_ppb: int) -> None:
        """Set the wall clock off by so much, and let both clocks run faster or slower."""
        virtual_ns = self.simulation.loop.now_ns
        self._former_walls.append((virtual_ns, self.wall_ms(virtual_ns)))
        self.wall_offset_ms = offset_ms
        self.clock.set_drift(drift_ppb, virtual_ns)

    def wall_ms(self, virtual_ns: int) -> int:
        """Return milliseconds since 1970, as its clock shows them at an instant: drifts with the machine, and jumps with `wall_offset_ms`."""
        drifted_ns = virtual_ns + virtual_ns * self.clock.drift_ppb // PPB
        return EPOCH_MS + self.wall_offset_ms + drifted_ns // NS_PER_MS

    def latest_wall_ms(self, since_ns: int) -> int:
        """Return the latest time that its wall clock has shown since an instant; it may have been set back."""
        former = [shown_ms for at_ns, shown_ms in self._former_walls if at_ns >= since_ns]
        return max([self.wall_ms(self.simulation.loop.now_ns), *former])

    def say(self, level: str, message: str) -> None:
        """Keep a line for people: the last ones always, all of them if somebody wants them."""
        line = f"{self.simulation.loop.now_ns / NS_PER_S:.6f} {self.name} {level} {message}"
        self.lines.append(line)
        if self.simulation.log_lines is not None:
            self.simulation.log_lines.append(line)

    def kill(self) -> None:
        """Kill -9: the disk's cache and the kernel live on; the kernel closes the connections."""
        process = self.process
        assert process is not None
        assert process.alive
        self.simulation.process_changes += 1
        self.simulation.loop.kill(process)
        self.host.close_sockets_of(process)

    def pause(self) -> None:
        """Stop its process from running (SIGSTOP)."""
        assert self.process is not None
        self.simulation.loop.pause(self.process)

    def resume(self) -> None:
        """Let its process run again (SIGCONT)."""
        assert self.process is not None
        self.simulation.loop.resume(self.process)

    def power_fail(self) -> None:
        """Lose power: nothing leaves the machine, unsynced data are at the mercy of coins."""
        if self.running:
            assert self.process is not None
            self.simulation.process_changes += 1
            self.simulation.loop.kill(self.process)
        self.host.power_fail()
        now_ns, last = self.simulation.loop.now_ns, self.simulation.last_cut
        bias = last.bias if last is not None and now_ns - last.at_ns <= ONE_CUT_NS else None
        self.simulation.last_cut = PowerCut(now_ns, self.disk.power_fail(bias))

    def power_on(self) -> None:
        """Get power again; no process runs yet."""
        self.disk.power_on()
        self.host.power_on()

    def random(self, purpose: str) -> Random:
        """Return the machine's stream for this purpose; it goes on across restarts."""
        stream = self.streams.get(purpose)
        if stream is None:
            stream = self.streams[purpose] = self.simulation.loop.random(f"{self.name}/{purpose}")
        return stream

    def _ended(self, process: Process, task: "Task[None]", ended: "Future[BaseException | None]") -> None:
        loop = self.simulation.loop
        if not process.alive:
            return
        if process.busy_until_ns > loop.now_ns:  # it is still in its last blocking call
            loop.call_at_ns(process.busy_until_ns, self._ended, process, task, ended)
            return
        problem = _how_it_ended(task)
        self.simulation.process_changes += 1
        loop.kill(process)
        self.host.close_sockets_of(process)
        ended.set_result(problem)


class MachineTime:
    """The time that a machine's disk takes: its process's; implements `disk.DiskTime`.

    A callback is whole to the disk: when the power fails while its process is in a blocking call, all the callback's
    calls count as done (and nothing of what it sent has left). Failing in the middle is what crash points are for.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._loop = machine.simulation.loop

    def now_ns(self) -> int:
        """Return virtual time, past the end of a blocking call."""
        process = self._machine.process
        return self._loop.now_ns if process is None else self._loop.present_ns(process)

    def charge(self, duration_ns: int) -> None:
        """Make the process busy; what the harness does to a disk takes no time."""
        process = self._machine.process
        if process is not None and process.alive:
            self._loop.charge(process, duration_ns)

    async def sleep_ns(self, duration_ns: int) -> None:
        """Sleep in virtual time."""
        await self._loop.sleep_ns(duration_ns)


def _how_it_ended(task: "Task[None]") -> BaseException | None:
    """Return how a task ended, cancellation included, without raising."""
    try:
        return task.exception()
    except CancelledError as cancelled:
        return cancelled


class SimulatedClock:
    """A process's clock; implements `replog.ports.Clock`."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self._machine = machine
        self._process = process
        self._loop = machine.simulation.loop

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        return self._process.local_ns(self._loop.now_ns)

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return self._process.local_ns(self._loop.now_ns) // NS_PER_MS

    def wall_ms(self) -> int:
        """Milliseconds since 1970, past the end of a blocking call."""
        return self._machine.wall_ms(self._loop.present_ns(self._process))


class SimulatedEntropy:
    """A process's chance; implements `replog.ports.Entropy`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def random(self, purpose: str) -> Random:
        """Return the stream for this purpose."""
        return self._machine.random(purpose)

    def uuid(self) -> UUID:
        """Return a version 4 id."""
        return UUID(int=self._machine.random("uuid").getrandbits(128), version=4)

    def strikes(self, point: str) -> bool:
        """Return whether the seed wants this point of the code to be late or to fail now."""
        points = self._machine.simulation.points
        return points is not None and points.strikes(point, self._machine.name, self._machine.random("points"))


class SimulatedJournal:
    """Where a process says what happened; implements `replog.ports.Journal`."""

    level = "debug"  # all of it is kept

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._simulation = machine.simulation

    def log(self, level: str, message: str) -> None:
        """Keep a line for people."""
        self._machine.say(level, message)

    def event(self, name: str, **fields: object) -> None:
        """Record a fact."""
        self._simulation.report(self._machine, name, fields)

    def probe(self, name: str) -> None:
        """Count that a rare state was reached."""
        self._simulation.probes.reached(name, self._machine.name, self._simulation.loop.now_ns)

    @property
    def unforeseen_count(self) -> int:
        """None: the first one ends the node."""
        return 0

    def unforeseen(self, where: str, problem: Exception) -> None:
        """End the node, so that the run finds it: what the real world survives is a bug all the same."""
        self._simulation.loop.call_exception_handler({"message": where, "exception": problem})


class SimulatedWorld:
    """All ports of one process; implements `replog.ports.World`."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self.machine = machine
        self.clock: Clock = SimulatedClock(machine, process)
        self.entropy: Entropy = SimulatedEntropy(machine)
        self.disk: Disk = machine.disk
        process.network = ProcessNetwork(machine.simulation.network, machine.host, process)
        self.network: Network = process.network
        self.journal: Journal = SimulatedJournal(machine)


__all__ = ["Machine", "PowerLost", "ReportedEvent", "SimulatedWorld", "Simulation"]
