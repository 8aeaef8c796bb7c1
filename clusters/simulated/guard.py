"""Seals the simulation: nothing real comes in.

While sealed, a simulated process that opens a real file or socket, starts a thread or another process is refused
with the place of the offending call, and the run ends there: a simulation with a leak is not repeatable, and
nobody would notice. The harness, which runs on the same loop, may write its own files. Time and chance of the
standard library are answered from the simulation for all of them. The garbage collector is off, so that
no finaliser runs at a moment that memory decides.
"""

import asyncio
import contextlib
import gc
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from random import Random
from types import FrameType
from typing import Final

from tribunal.clusters.simulated.loop import SimulatedLoop, is_library
from tribunal.clusters.simulated.process import PPB, Process
from tribunal.clusters.simulated.world import EPOCH_MS, Simulation

REFUSED_EVENTS: Final = frozenset(
    (
        *("open", "socket.__new__", "socket.connect", "socket.bind", "subprocess.Popen", "os.fork", "os.system"),
        *("os.posix_spawn", "os.exec", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.rmdir"),
    )
)
# Imports and tracebacks read source files: that changes nothing.
READERS_OF_SOURCE: Final = (
    *("importlib", "_frozen_importlib", "zipimport", "linecache", "traceback", "tokenize", "_pytest.assertion"),
)
FUNCTIONS_OF_RANDOM: Final = (
    *("random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform"),
    *("getrandbits", "expovariate", "gauss", "randbytes"),
)


class _Seal:
    """Which loop is sealed now. One per interpreter, because an audit hook is."""

    def __init__(self) -> None:
        self.loop: SimulatedLoop | None = None
        self.hooked = False

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """Refuse what is real while the sealed loop runs a callback."""
        if event in REFUSED_EVENTS and self.in_simulated_process() and not _reads_source(sys._getframe(1)):
            assert self.loop is not None
            self.loop.refuse(f"{event}{arguments[:1]!r}")

    def in_simulated_process(self) -> bool:
        """Tell whether a process of the simulation runs now, and not the harness."""
        loop = self.loop
        return loop is not None and loop.is_running() and loop.current_process() is not loop.root


_SEAL: Final = _Seal()


@contextlib.contextmanager
def sealed(simulation: Simulation) -> Iterator[Simulation]:
    """Keep the real world out of a simulation; at the end, let go of it without a sound."""
    assert _SEAL.loop is None, "one simulation at a time"
    if not _SEAL.hooked:
        sys.addaudithook(_SEAL.audit)
        _SEAL.hooked = True
    _SEAL.loop = simulation.loop
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with _replaced(_replacements(simulation.loop)), _module_seeded(simulation.seed):
            yield simulation
    finally:
        _SEAL.loop = None
        _tear_down_quietly(simulation.loop)
        gc.enable()
        gc.unfreeze()


Replacement = tuple[object, str, object]


def _replacements(loop: SimulatedLoop) -> list[Replacement]:
    """Return (owner, name, function) of what the standard library must not answer from the real world."""
    chance = _ModuleChance(loop)
    real_sleep = time.sleep  # noqa: TID251  # the harness may wait for its own threads
    found: list[Replacement] = [
        (time, "monotonic", loop.time),
        (time, "perf_counter", loop.time),
        (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
        (time, "perf_counter_ns", lambda: int(loop.time() * 1e9)),
        (time, "time", lambda: _wall_ns(loop) / 1e9),
        (time, "time_ns", lambda: _wall_ns(loop)),
        (time, "sleep", _refusal("time.sleep", real_sleep)),
        (threading.Thread, "start", _refusal("threading.Thread.start", threading.Thread.start)),
        (os, "urandom", chance.bytes),
        (random, "_urandom", chance.bytes),
        # asyncio.gather makes its own futures, which hash by address.
        (asyncio.tasks._GatheringFuture, "__hash__", _stable_hash(loop)),  # type: ignore[attr-defined]
    ]
    found += [(random, name, chance.function(name)) for name in FUNCTIONS_OF_RANDOM]
    return found


@contextlib.contextmanager
def _module_seeded(seed: int | str) -> Iterator[None]:
    """Seed the stream behind module `random`: who took a function of it by `from random import` before has the real one."""
    state = random.getstate()
    random.seed(f"{seed}/module random, taken before")
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def _replaced(replacements: list[Replacement]) -> Iterator[None]:
    saved = [(owner, name, vars(owner).get(name)) for owner, name, _ in replacements]
    for owner, name, function in replacements:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in saved:
            if function is None:
                delattr(owner, name)
            else:
                setattr(owner, name, function)


class _ModuleChance:
    """The functions of module `random`, one stream a process."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._streams: dict[int, Random] = {}

    def stream(self) -> Random:
        """Return the running process's stream."""
        process: Process = self._loop.current_process()
        if process.index not in self._streams:
            self._streams[process.index] = self._loop.random(f"{process.name}/module random")
        return self._streams[process.index]

    def bytes(self, size: int) -> bytes:
        """Answer `os.urandom`."""
        return self.stream().randbytes(size)

    def function(self, name: str) -> Callable[..., object]:
        """Return one function of the module."""

        def draw(*arguments: object, **named: object) -> object:
            return getattr(self.stream(), name)(*arguments, **named)

        return draw


def _wall_ns(loop: SimulatedLoop) -> int:
    drift_ppb = loop.current_process().clock.drift_ppb
    return EPOCH_MS * 1_000_000 + loop.now_ns + loop.now_ns * drift_ppb // PPB


def _stable_hash(loop: SimulatedLoop) -> Callable[[object], int]:
    def number(future: object) -> int:
        given: int = vars(future).get("_number") or loop.next_number()
        vars(future)["_number"] = given
        return given

    return number


def _refusal(what: str, real: Callable[..., object]) -> Callable[..., object]:
    """Return a function that refuses simulated processes, and serves the harness."""

    def refuse(*arguments: object, **named: object) -> object:
        if _SEAL.in_simulated_process():
            assert _SEAL.loop is not None
            _SEAL.loop.refuse(what)
        return real(*arguments, **named)

    return refuse


def _reads_source(frame: FrameType | None) -> bool:
    """Tell whether the interpreter itself opened the file, to import or to print a traceback."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(READERS_OF_SOURCE):
            return True
        if not is_library(frame):
            return False
        frame = frame.f_back
    return False


def _tear_down_quietly(loop: SimulatedLoop) -> None:
    """Collect what killed processes left."""
    loop.trace.sink = None
    loop.close()
    collect_quietly()


def collect_quietly() -> None:
    """Collect garbage of which coroutines are part."""
    with without_complaints():
        gc.collect()


@contextlib.contextmanager
def without_complaints() -> Iterator[None]:
    """Let coroutines die without a complaint: their `finally` blocks find nothing open any more, and some were never begun."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = hook
