"""One node as a process of this machine: started so that it ends with the harness, watched, hurt by signals, proven dead or alive.

The node's process has a session of its own, so that Ctrl-C reaches the harness alone, and dies with the harness
(`parent_death.py`). Whoever ends a node says so before: a process that ends unasked is a failure of the node, and
what its log said last is the first thing one wants to read.
"""

import asyncio
import contextlib
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tribunal import ROOT
from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.links.relays import PROBE_REQUEST

PARENT_DEATH: Final = Path(__file__).with_name("parent_death.py")
SERVING_TIMEOUT_MS: Final = 40_000  # a busy machine takes its time
EXIT_TIMEOUT_MS: Final = 10_000
POLL_MS: Final = 15
LOG_LINES: Final = 12
SIGNAL_WAIT_MS: Final = 2_000


class NodeProcess:
    """One life after another of one node."""

    def __init__(
        self,
        node: int,
        role: str,
        config: Path,
        log: Path,
        endpoint: tuple[str, int],
        into: Callable[[], list[str]] = list,  # words in front of its command, that lead it where it lives
    ) -> None:
        self.node = node
        self.role = role
        self.config = config
        self.log = log
        self.endpoint = endpoint
        self.pid: int | None = None
        self.on_exit: Callable[[str], None] = lambda _: None
        self._into = into
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ending = False

    @property
    def alive(self) -> bool:
        """Whether the process exists and was not reaped."""
        return self._process is not None and self._process.returncode is None

    async def spawn(self) -> None:
        """Start the process; it may not serve yet."""
        assert not self.alive, f"node {self.node} runs already"
        self._ending = False
        self._process = await self._begin()
        self.pid = self._process.pid
        self._watch = asyncio.create_task(self._wait_for_end(self._process), name=f"watch node {self.node}")

    async def _begin(self) -> asyncio.subprocess.Process:
        return await start_with_parent([self.role], self.config, self.log, self._into())

    async def answers(self, *, wait_ms: int) -> bool:
        """Tell whether it answers."""
        return await answers(self.endpoint, wait_ms=wait_ms)

    async def _wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not self._ending:
            self.on_exit(self.exit_reason(code))

    def exit_reason(self, code: int | None) -> str:
        """Say how the process ended and what its log said last."""
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return f"node {self.node} ({self.role}) ended with {how}; its log {self.log} ends:\n{last_lines(self.log)}"

    async def serving(self) -> None:
        """Wait until the node answers requests; `ClusterError` with its last log lines if it does not."""
        deadline = asyncio.get_running_loop().time() + SERVING_TIMEOUT_MS / 1000
        while not await self.answers(wait_ms=500):
            if self._process is None or self._process.returncode is not None:
                raise ClusterError(self.exit_reason(self._process.returncode if self._process else None))
            if asyncio.get_running_loop().time() > deadline:
                raise ClusterError(
                    f"node {self.node} ({self.role}) does not serve after {SERVING_TIMEOUT_MS} ms; "
                    f"its log {self.log} ends:\n{last_lines(self.log)}"
                )
            await asyncio.sleep(POLL_MS / 1000)

    async def kill(self) -> Proof:
        """Kill -9; prove that the process is gone and nobody listens on its port."""
        pid = self.pid
        self._ending = True
        if self.alive:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self.ended()
        gone, refused = not process_exists(pid), await refuses(self.endpoint)
        return Proof(holds=gone and refused, facts={"pid": pid, "process_gone": gone, "port_refused": refused})

    async def terminate(self, timeout_ms: int) -> bool:
        """Ask for an orderly end; tell whether it came in time."""
        self._ending = True
        if self.alive:
            assert self._process is not None
            self._process.terminate()
        try:
            await asyncio.wait_for(self.ended(), timeout_ms / 1000)
        except TimeoutError:
            return False
        return True

    async def ended(self) -> None:
        """Wait until the process was reaped."""
        if self._process is not None:
            await self._process.wait()
        if self._watch is not None:
            await asyncio.wait([self._watch], timeout=EXIT_TIMEOUT_MS / 1000)

    async def pause(self) -> Proof:
        """Stop the process; prove that it is stopped and answers nobody."""
        self._signal(signal.SIGSTOP)
        stopped = await self._reaches(stopped=True)
        silent = not await self.answers(wait_ms=100)
        return Proof(holds=stopped and silent, facts={"pid": self.pid, "stopped": stopped, "silent": silent})

    async def resume(self) -> Proof:
        """Let the process go on; prove that it answers again."""
        self._signal(signal.SIGCONT)
        running = await self._reaches(stopped=False)
        answered = await self.answers(wait_ms=SIGNAL_WAIT_MS)
        return Proof(holds=running and answered, facts={"pid": self.pid, "running": running, "answers": answered})

    def _signal(self, number: signal.Signals) -> None:
        if not self.alive:
            raise ClusterError(f"node {self.node} is down: nothing to send {number.name} to")
        assert self._process is not None
        self._process.send_signal(number)

    async def _reaches(self, *, stopped: bool) -> bool:
        for _ in range(SIGNAL_WAIT_MS // POLL_MS):
            if is_stopped(self.pid) is stopped:
                return True
            await asyncio.sleep(POLL_MS / 1000)
        return False


async def start_with_parent(
    arguments: list[str], config: Path, log: Path, into: Sequence[str] = ()
) -> asyncio.subprocess.Process:
    """Start `python -m replog ARGUMENTS --config CONFIG`, its output appended to the log, tied to our life."""
    command = [*into, sys.executable, "-I", "-S", str(PARENT_DEATH), str(os.getpid())]
    command += [sys.executable, "-m", "replog", *arguments, "--config", str(config)]
    environment = node_environment()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


def node_environment() -> dict[str, str]:
    """Return a node's environment: compiled modules are kept also where the harness's own are not; they halve its start."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    if environment.pop("PYTHONDONTWRITEBYTECODE", ""):
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "tribunal", "bytecode")
        environment.setdefault("PYTHONPYCACHEPREFIX", str(cache))
    return environment


async def answers(endpoint: tuple[str, int], *, wait_ms: int) -> bool:
    """Tell whether somebody answers ApiVersions there."""
    writer = None
    try:
        async with asyncio.timeout(wait_ms / 1000):
            reader, writer = await asyncio.open_connection(*endpoint)
            if writer.transport.is_closing():  # reset already; uvloop would call a write a RuntimeError
                return False
            writer.write(PROBE_REQUEST)
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(length)
            return True
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()


async def refuses(endpoint: tuple[str, int]) -> bool:
    """Tell whether a connection there is refused, or reset at once by a door that leads to nobody."""
    writer = None
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(*endpoint)
            await reader.read(1)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()
    return False


def process_exists(pid: int | None) -> bool:
    """Tell whether a process of this id exists (zombies count: they are ours to reap)."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_stopped(pid: int | None) -> bool | None:
    """Tell whether a process is stopped by a signal; None when that cannot be known."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return status.rpartition(")")[2].split()[0] in ("T", "t")


def last_lines(log: Path, count: int = LOG_LINES) -> str:
    """Return the end of a log, indented."""
    try:
        content = log.read_bytes()[-8192:].decode(errors="replace")
    except OSError:
        content = ""
    lines = content.splitlines()[-count:] or ["(empty)"]
    return "\n".join(f"    {line}" for line in lines)


def toml(settings: dict[str, Any]) -> str:
    """Write settings as a node.toml."""
    return "".join(f'"{name}" = {_toml_value(value)}\n' for name, value in settings.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
