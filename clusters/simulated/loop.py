"""A deterministic asyncio event loop in virtual time.

One thread runs the callbacks of all simulated processes, one after the other, in the order of (time, machine,
sequence). Time is an integer of nanoseconds that only this loop moves: it jumps to the next
timer when nothing is ready, and every callback costs `CALLBACK_COST_NS`, so that no two events share an instant
and a program that spins makes time pass. Ordinary asyncio code runs on it unchanged.

What a process does while it is *busy* (a blocking fsync) or *paused* (SIGSTOP) is deferred, and what it does once
it is dead is kept and never run (`clusters/simulated/process.py`).

Futures and tasks hash by their number, not by their address: a set of tasks then iterates alike in every run.
"""

import asyncio
import math
import socket
import sys
from asyncio import Future, Task, TimerHandle, events
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final, NoReturn, Self, TypeVar, TypeVarTuple
from weakref import ref

from tribunal.clusters.simulated.process import NS_PER_S, PROCESS, MonotonicClock, Process, silence
from tribunal.clusters.simulated.trace import BLOCK_NUMBERS, Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CALLBACK_COST_NS: Final = 1_000
# A block of the trace whose events cost nearly all of the virtual time that passed is a block without a pause.
# A boot may fill some of them; a quarter of a million events without rest is a program that spins.
BLOCKS_WITHOUT_REST: Final = 64
STANDARD_LIBRARY: Final = str(Path(asyncio.__file__).parents[1])
OF_THE_RUN: Final = "points/"
OWN_FOLDER: Final = str(Path(__file__).parent)


class Deadlock(AssertionError):
    """Somebody waits, and nothing is scheduled that could ever wake them."""


class Livelock(AssertionError):
    """Callbacks run without end while virtual time hardly moves; names the busiest process."""


class Refused(RuntimeError):
    """Simulated code asked for something real: a thread, a socket, a file, a process."""


class SimulatedFuture(Future[T]):
    """A future whose hash is its number in order of first use."""

    def __hash__(self) -> int:
        return _number(self)


class SimulatedTask(Task[T]):
    """A task whose hash is its number in order of creation."""

    def __hash__(self) -> int:
        return _number(self)


def _number(future: "Future[T]") -> int:
    """Return the future's own number, given out on first use."""
    try:
        return future._number  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        loop = future.get_loop()
        assert isinstance(loop, SimulatedLoop)
        future._number = number = loop.next_number()  # type: ignore[attr-defined]
        return number


class SimulatedHandle(TimerHandle):
    """A scheduled callback and the process that owns it."""

    __slots__ = ("args", "callback", "context", "due_ns", "process")
    due_ns: int

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...], context: Context, process: Process):
        # asyncio.Handle.__init__ is left out: it asks the loop for its debug flag on every call.
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self._cancelled = False
        self._scheduled = False

    def cancel(self) -> None:
        """Never run; what the callback referred to is let go."""
        self._cancelled = True
        self.args = ()

    def cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self._cancelled

    def when(self) -> float:
        """Return the due time on the owner's clock, in seconds."""
        return self.process.clock.local_ns(self.due_ns) / NS_PER_S

    def __repr__(self) -> str:
        return f"SimulatedHandle({callback_name(self)} of {self.process.name})"


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The one event loop of a simulation. Made by `SimulatedLoop.create(seed)`."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.now_ns = 0
        self.event_count = 0
        self.stop_at_event: int | None = None
        self.owner: object = None  # whatever was built around this loop
        self.trace = Trace()
        self.failures: list[Failure] = []
        self.on_failure: Callable[[Failure], None] | None = None
        # Whether an assertion that failed in a process's callback is that of its node, which ends for it, and not the simulator's.
        self.ends_its_node: Callable[[AssertionError], bool] = lambda problem: False
        self.processes: list[Process] = []
        self._heap: list[tuple[int, int, int, SimulatedHandle]] = []
        self._ready: deque[SimulatedHandle] = deque()
        self._afterwards: list[Callable[[], None]] = []
        self._sequence = 0
        self._numbers = 0
        self._streams: list[tuple[str, ref[Random]]] = []
        self._anew: int | None = None
        self._stopping = False
        self._running = False
        self._closed = False
        self._blocks_without_rest = 0
        self._block_start_ns = 0
        self.root = self.new_process("harness", rank=0, clock=MonotonicClock())

    @classmethod
    def create(cls, seed: int | str) -> Self:
        """Make a loop; everything that happens on it follows from the seed."""
        return cls(seed)

    def random(self, purpose: str) -> Random:
        """Return a fresh stream of chance for one purpose."""
        stream = Random(self._named(purpose))
        self._streams.append((purpose, ref(stream)))
        return stream

    def draw_anew(self, seed: int) -> None:
        """From now on draw everything by another seed, also from streams that are in use; what was drawn stays."""
        self._anew = seed
        for number, (purpose, known) in enumerate(self._streams):
            stream = known()
            if stream is not None:
                stream.seed(f"{self._named(purpose)}/{number}")

    def _named(self, purpose: str) -> str:
        # How often something is struck is drawn when it is first asked for: it belongs to the run, not to its chance.
        if self._anew is None or purpose.startswith(OF_THE_RUN):
            return f"{self.seed}/{purpose}"
        return f"{self.seed}/anew {self._anew}/{purpose}"

    def next_number(self) -> int:
        """Return 1, 2, 3 ...: an identity that is alike in every run."""
        self._numbers += 1
        return self._numbers

    # processes

    def new_process(self, name: str, *, rank: int, clock: MonotonicClock) -> Process:
        """Register a process; machines give their rank, which orders events of the same instant."""
        process = Process(index=len(self.processes), rank=rank, name=name, clock=clock)
        self.processes.append(process)
        return process

    def current_process(self) -> Process:
        """Return the owner of the running callback; outside of callbacks, the harness."""
        return PROCESS.get(self.root)

    def spawn(
        self, process: Process, coroutine: Coroutine[object, object, T], name: str | None = None
    ) -> "SimulatedTask[T]":
        """Run a coroutine as a task of this process."""
        return self.create_task(coroutine, name=name, context=process.context.copy())

    def present_ns(self, process: Process) -> int:
        """Return the process's virtual now: past the end of a blocking call it just made."""
        now_ns, busy_until_ns = self.now_ns, process.busy_until_ns
        return max(now_ns, busy_until_ns)

    def charge(self, process: Process, duration_ns: int) -> None:
        """Make the process busy: its clock moves on at once, its next callbacks wait until then."""
        process.busy_until_ns = self.present_ns(process) + duration_ns
        if process.runnable:
            process.runnable = False
            self.after_event(lambda: self._sleep_through(process))

    def pause(self, process: Process) -> None:
        """Stop running its callbacks (SIGSTOP); its machine stays up."""
        process.paused = True
        process.runnable = False

    def resume(self, process: Process) -> None:
        """Run what came due meanwhile, in order (SIGCONT)."""
        process.paused = False
        self._awake(process)

    def kill(self, process: Process) -> None:
        """Stop it for ever, between two callbacks (SIGKILL)."""
        self.note("kill", process.index)
        process.die(self.now_ns)

    def _sleep_through(self, process: Process) -> None:
        self.call_at_ns(process.busy_until_ns, self._awake, process)

    def _awake(self, process: Process) -> None:
        if not process.alive or process.paused or process.runnable:
            return
        if process.busy_until_ns > self.now_ns:
            self._sleep_through(process)
            return
        process.runnable = True
        self._ready.extend(process.deferred)
        process.deferred.clear()

    # scheduling

    def time(self) -> float:
        """Return seconds on the running process's own monotonic clock."""
        return PROCESS.get(self.root).local_ns(self.now_ns) / NS_PER_S

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        """Run a callback as soon as its turn comes."""
        if context is None:
            context = copy_context()
        handle = SimulatedHandle(callback, args, context, context.get(PROCESS) or self.root)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        """Run a callback soon; there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        """Run a callback after `delay` seconds of its owner's clock; never early."""
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.root
        delay_ns = process.clock.virtual_duration_ns(math.ceil(delay * NS_PER_S)) if delay > 0 else 0
        handle = SimulatedHandle(callback, args, context, process)
        return self._schedule(self.present_ns(process) + delay_ns, handle)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        """Run a callback when its owner's clock shows `when` seconds; never early."""
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.root
        # One more: `when` went through a float, and a timer that fires 1 ns early would be set again and again.
        due_ns = process.clock.virtual_ns(math.ceil(when * NS_PER_S)) + 1
        return self._schedule(max(due_ns, self.now_ns), SimulatedHandle(callback, args, context, process))

    def call_at_ns(
        self, due_ns: int, callback: Callable[[*Ts], object], *args: *Ts, process: Process | None = None
    ) -> SimulatedHandle:
        """Run a callback at an instant of virtual time, for the world itself or for a process."""
        owner = process or self.root
        handle = SimulatedHandle(callback, args, owner.context, owner)
        due_ns = max(due_ns, self.now_ns)
        handle.due_ns = due_ns
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (due_ns, owner.rank, sequence, handle))
        return handle

    def run_soon(self, process: Process, context: Context, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Run a callback of a process as soon as its turn comes, deferred if the process cannot run."""
        self._ready.append(SimulatedHandle(callback, args, context, process))

    def after_event(self, callback: Callable[[], None]) -> None:
        """Run a callback at the end of the running event, before any other event."""
        self._afterwards.append(callback)

    def sleep_ns(self, duration_ns: int) -> "Future[None]":
        """Return a future that is done after so much virtual time, whatever the clocks say."""
        future: Future[None] = self.create_future()
        process = PROCESS.get(self.root)
        self.call_at_ns(self.present_ns(process) + duration_ns, _set_done, future, process=process)
        return future

    def create_future(self) -> "Future[T]":
        """Return a future with a stable hash."""
        return SimulatedFuture(loop=self)

    def create_task(  # type: ignore[override]  # typeshed: Coroutine or Generator; only coroutines exist here
        self, coro: Coroutine[object, object, T], *, name: str | None = None, context: Context | None = None
    ) -> "SimulatedTask[T]":
        """Start a task that belongs to its context's process."""
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.root
        number = self._numbers + 1
        task = SimulatedTask(coro, loop=self, name=name or f"task-{number}", context=context)
        process.adopt(_number(task), task)
        if not process.alive:
            silence(task)
        return task

    def _schedule(self, due_ns: int, handle: SimulatedHandle) -> SimulatedHandle:
        self._sequence = sequence = self._sequence + 1
        handle.due_ns = due_ns
        heappush(self._heap, (due_ns, handle.process.rank, sequence, handle))
        return handle

    # running

    def run_until_complete(  # type: ignore[override]  # typeshed: Awaitable or Generator; only coroutines exist here
        self, future: Awaitable[T]
    ) -> T:
        """Run until the coroutine of the harness is done; `Deadlock` when it never can be."""
        task = future if isinstance(future, Future) else self.spawn(self.root, _as_coroutine(future))
        self.root.context.copy().run(task.add_done_callback, lambda _: self.stop())
        self._run(None)
        if not task.done():
            raise InterruptedError(f"stopped at event {self.event_count}")
        return task.result()

    def run_for(self, duration_ns: int) -> None:
        """Run all events of the next so many nanoseconds."""
        self._run(self.now_ns + duration_ns)

    def run_forever(self) -> None:
        """Run until `stop`."""
        self._run(None)

    def stop(self) -> None:
        """End the run after this event."""
        self._stopping = True

    def _run(self, deadline_ns: int | None) -> None:
        assert not self._running
        assert not self._closed
        self._stopping = False
        self._running = True
        previous = events._get_running_loop()
        events._set_running_loop(self)
        try:
            self._run_events(deadline_ns)
        finally:
            self._running = False
            events._set_running_loop(previous)

    def _run_events(self, deadline_ns: int | None) -> None:
        """Run events in order. The hot loop: every name is local, every test is one attribute."""
        heap, ready, pop = self._heap, self._ready, heappop
        trace, afterwards = self.trace, self._afterwards
        numbers = trace.numbers
        while not self._stopping:
            if not ready and not self._advance(deadline_ns):
                return
            now_ns = self.now_ns
            while heap and heap[0][0] <= now_ns:
                ready.append(pop(heap)[3])
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle.process
            if not process.runnable:
                process.defer(handle)
                continue
            if self.event_count == self.stop_at_event:
                ready.appendleft(handle)
                return
            self.event_count += 1
            self.now_ns = now_ns = now_ns + CALLBACK_COST_NS
            numbers.append(now_ns)
            numbers.append(process.index)
            if len(numbers) >= BLOCK_NUMBERS:
                self._end_block()
            if trace.sink is not None:
                self._trace_event(handle)
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt, Refused):
                raise
            except BaseException as problem:  # noqa: BLE001  # as asyncio: a failed callback does not end the loop
                self._callback_failed(process, problem)
            while afterwards:
                afterwards.pop(0)()

    def _advance(self, deadline_ns: int | None) -> bool:
        """Move the clock to the next timer; False at the deadline."""
        heap = self._heap
        while heap and (heap[0][3]._cancelled or not heap[0][3].process.alive):
            handle = heappop(heap)[3]
            if not handle._cancelled:
                handle.process.defer(handle)
        if deadline_ns is not None and (not heap or heap[0][0] > deadline_ns):
            self.now_ns = max(self.now_ns, deadline_ns)
            return False
        if not heap:
            raise Deadlock("nothing is scheduled: everybody waits for somebody")
        self.now_ns = max(self.now_ns, heap[0][0])
        return True

    def _end_block(self) -> None:
        """Hash a block of the trace, and look whether time still moves."""
        numbers = self.trace.numbers
        cost_ns = len(numbers) // 2 * CALLBACK_COST_NS
        rested = self.now_ns - self._block_start_ns > 2 * cost_ns
        self._blocks_without_rest = 0 if rested else self._blocks_without_rest + 1
        self._block_start_ns = self.now_ns
        if self._blocks_without_rest >= BLOCKS_WITHOUT_REST:
            busiest, count = Counter(numbers[1::2]).most_common(1)[0]
            name = self.processes[busiest].name if 0 <= busiest < len(self.processes) else "messages"
            raise Livelock(f"no rest for {BLOCKS_WITHOUT_REST} blocks of events; busiest: {name}, {count} events")
        self.trace.flush()
        self._drop_cancelled()

    def _drop_cancelled(self) -> None:
        """Forget timers that were cancelled: most time-outs are, long before they are due, and the heap gets no smaller."""
        heap = self._heap
        heap[:] = [entry for entry in heap if not entry[3]._cancelled]
        heapify(heap)

    # trace

    def note(self, kind: str, *values: int) -> None:
        """Add something that happened to the trace hash, and to its lines."""
        self.trace.numbers.extend(values)
        if self.trace.sink is not None:
            self.trace.sink(f"{self.event_count} {self.now_ns} {kind} {' '.join(map(str, values))}")

    def trace_hash(self) -> str:
        """Return the hash over all events up to now."""
        return self.trace.digest()

    def _trace_event(self, handle: SimulatedHandle) -> None:
        self.trace.line(f"{self.event_count} {self.now_ns} {handle.process.name} {callback_name(handle)}")

    # failures

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Note a failure nobody caught (a callback's, or a task's that nobody awaited)."""
        if self._closed:
            return
        process = self.current_process()
        problem = context.get("exception")
        exception = problem if isinstance(problem, BaseException) else None
        failure = Failure(self.now_ns, process, str(context.get("message")), exception)
        if not process.alive:
            return
        self.failures.append(failure)
        self.note("failure", process.index)
        if self.on_failure is not None:
            self.on_failure(failure)

    def _callback_failed(self, process: Process, problem: BaseException) -> None:
        """End the process as its own handler would; an assertion of the harness or of the simulator itself ends the run."""
        if isinstance(problem, AssertionError) and (process is self.root or not self.ends_its_node(problem)):
            raise problem
        if process.alive:
            process.context.run(self.call_exception_handler, {"message": "a callback failed", "exception": problem})

    # what asyncio's own parts ask for

    def is_running(self) -> bool:
        """Return whether a run is under way."""
        return self._running

    def is_closed(self) -> bool:
        """Return whether the simulation has ended."""
        return self._closed

    def get_debug(self) -> bool:
        """No debug mode: it would read real time."""
        return False

    async def shutdown_asyncgens(self) -> None:
        """Nothing to shut down: generators of killed processes stay where they are."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> "Future[T]":
        """Serve the harness at once, in this thread; refuse simulated processes."""
        if PROCESS.get(self.root) is not self.root:
            self.refuse(f"run_in_executor({getattr(func, '__qualname__', func)})")
        future: Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as problem:  # noqa: BLE001  # as an executor: the caller gets it
            future.set_exception(problem)
        return future

    # what foreign clients ask for: connections of their own, from the machine they run on

    async def create_connection(  # type: ignore[override]  # typeshed knows four forms of it
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: object,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Open a simulated connection; TLS, bound and given sockets are refused: they would be real."""
        asked = sorted(name for name, value in options.items() if value is not None)
        network = self.current_process().network
        if asked or network is None or host is None or port is None:
            self.refuse(f"create_connection({host!r}, {port!r}, {', '.join(asked)})")
        return await network.connect(host, port, protocol_factory)

    async def getaddrinfo(  # type: ignore[override]  # every machine has one address, whatever is asked for
        self, host: str | bytes | None, port: str | int | None, **options: int
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """Return where a machine's name leads to."""
        network = self.current_process().network
        if network is None or not isinstance(host, str):
            self.refuse(f"getaddrinfo({host!r})")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (network.address_of(host), int(port or 0)))
        ]

    def refuse(self, what: str) -> NoReturn:
        """Refuse something real: raise with the caller's place, and end the run even if somebody catches it."""
        problem = Refused(f"{what} inside the simulation, {_place(sys._getframe(1))}")
        self.after_event(lambda: _raise(problem))
        raise problem

    def close(self) -> None:
        """End the simulation: let go of everything, silently (see `guard.quiet_teardown`)."""
        self._closed = True
        for process in self.processes:
            if process.alive:
                process.die(self.now_ns)
        for process in self.processes:
            process.release()
        self._heap.clear()
        self._ready.clear()


class Failure:
    """An exception that nobody caught, and whose it was."""

    def __init__(self, at_ns: int, process: Process, message: str, exception: BaseException | None) -> None:
        self.at_ns = at_ns
        self.process = process
        self.message = message
        self.exception = exception

    def __repr__(self) -> str:
        return f"Failure({self.process.name} at {self.at_ns} ns: {self.message}: {self.exception!r})"


def callback_name(handle: SimulatedHandle) -> str:
    """Return a name without addresses: the coroutine of a task's step, else the function."""
    owner = getattr(handle.callback, "__self__", None)
    if isinstance(owner, Task):
        return getattr(owner.get_coro(), "__qualname__", "?")
    return getattr(handle.callback, "__qualname__", type(handle.callback).__name__)


def is_library(frame: FrameType) -> bool:
    """Return whether a frame is the standard library's, or this package's own."""
    file = frame.f_code.co_filename
    ours = file.startswith(OWN_FOLDER)
    return ours or (file.startswith((STANDARD_LIBRARY, "<")) and "site-packages" not in file)


def _place(frame: FrameType | None) -> str:
    """Name the innermost line of the code under simulation."""
    while frame is not None:
        if not is_library(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        frame = frame.f_back
    return "from the standard library"


def _raise(problem: BaseException) -> None:
    raise problem


def _set_done(future: "Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable
