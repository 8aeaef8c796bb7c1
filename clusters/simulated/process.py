"""One incarnation of a simulated process: who owns a callback, and whether it may run.

The identity follows callbacks and tasks through `contextvars`: whatever a callback schedules belongs to the same
process. A process is killed between two of its callbacks. Nothing of it runs again, `finally` included,
because everything it had is kept referenced: a collected coroutine would be closed, and that runs code.
"""

from asyncio import BaseProtocol, BaseTransport, Task
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tribunal.clusters.simulated.loop import SimulatedHandle

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NEVER_NS: Final = 1 << 62
PPB: Final = 1_000_000_000
TASKS_BEFORE_FIRST_SWEEP: Final = 64


class MonotonicClock:
    """A machine's monotonic clock: starts anywhere, runs a little fast or slow.

    Conversions to virtual time round up, so that a timer never fires before its owner's clock says so.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self.drift_ppb = 0
        self._virtual_origin_ns = 0
        self._local_origin_ns = start_ns

    def local_ns(self, virtual_ns: int) -> int:
        """Return what this clock shows at an instant of virtual time."""
        elapsed_ns = virtual_ns - self._virtual_origin_ns
        if not self.drift_ppb:
            return self._local_origin_ns + elapsed_ns
        return self._local_origin_ns + elapsed_ns + elapsed_ns * self.drift_ppb // PPB

    def virtual_ns(self, local_ns: int) -> int:
        """Return the first instant of virtual time at which this clock shows at least `local_ns`."""
        elapsed_ns = local_ns - self._local_origin_ns
        return self._virtual_origin_ns - (-elapsed_ns * PPB // (PPB + self.drift_ppb))

    def virtual_duration_ns(self, local_duration_ns: int) -> int:
        """Return how long this many local nanoseconds take, rounded up."""
        if not self.drift_ppb:
            return local_duration_ns
        return -(-local_duration_ns * PPB // (PPB + self.drift_ppb))

    def set_drift(self, drift_ppb: int, virtual_ns: int) -> None:
        """Run faster (positive) or slower from this instant on; what it shows does not jump."""
        self._local_origin_ns = self.local_ns(virtual_ns)
        self._virtual_origin_ns = virtual_ns
        self.drift_ppb = drift_ppb


class ClientNetwork(Protocol):
    """Connections from the machine that a process runs on."""

    async def connect(
        self, host: str, port: int, factory: Callable[[], BaseProtocol]
    ) -> tuple[BaseTransport, BaseProtocol]:
        """Open a connection."""

    def address_of(self, name: str) -> str:
        """Return the address of a machine; `OSError` when there is none of this name."""


class Process:
    """One incarnation of a process on a machine, from start to death."""

    def __init__(self, *, index: int, rank: int, name: str, clock: MonotonicClock) -> None:
        self.index = index
        self.rank = rank
        self.name = name
        self.clock = clock
        self.alive = True
        self.paused = False
        self.runnable = True
        self.busy_until_ns = 0
        self.died_ns = NEVER_NS
        self.deferred: deque[SimulatedHandle] = deque()
        self.kept_for_good: list[object] = []
        self.network: ClientNetwork | None = None  # through which what runs here may connect by itself
        self._tasks: dict[int, Task[object]] = {}
        self._sweep_at = TASKS_BEFORE_FIRST_SWEEP
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def local_ns(self, now_ns: int) -> int:
        """Return what its clock shows at the loop's time, past the end of a blocking call it just made."""
        return self.clock.local_ns(max(now_ns, self.busy_until_ns))

    def adopt(self, number: int, task: "Task[object]") -> None:
        """Keep a strong reference to a task until it is done."""
        tasks = self._tasks
        tasks[number] = task
        if len(tasks) > self._sweep_at:
            self._tasks = {n: t for n, t in tasks.items() if not t.done()}
            self._sweep_at = 2 * len(self._tasks) + TASKS_BEFORE_FIRST_SWEEP

    def defer(self, handle: "SimulatedHandle") -> None:
        """Keep a callback that may not run now: until resumed, or for ever."""
        if self.alive:
            self.deferred.append(handle)
        else:
            self.kept_for_good.append(handle)

    def die(self, now_ns: int) -> None:
        """Stop for ever; everything it held stays referenced."""
        self.alive = False
        self.died_ns = now_ns
        self.runnable = False
        self.kept_for_good.extend(self.deferred)
        self.deferred.clear()
        for task in self._tasks.values():
            silence(task)

    def release(self) -> None:
        """Let go of everything at the end of the simulation."""
        self._tasks.clear()
        self.kept_for_good.clear()
        self.deferred.clear()

    def __repr__(self) -> str:
        return f"Process({self.name})"


PROCESS: ContextVar[Process] = ContextVar("simulated_process")


def silence(task: "Task[object]") -> None:
    """Forbid the complaints that are made when a pending task is collected, or a coroutine that never took its first step."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # the C task has no public name for it
    work = task.get_coro()
    if isinstance(work, CoroutineType) and getcoroutinestate(work) == CORO_CREATED:
        work.close()  # none of its lines is run by that
