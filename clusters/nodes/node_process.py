"""One node as a process of this machine: started so that it ends with the harness, watched, sent signals, proven dead or alive.

The node's process has a session of its own, so that Ctrl-C reaches the harness alone, and dies with the harness
(`parent_death.py`). Whoever ends a node says so before: a process that ends unasked is a failure of the node, and
what its log said last is the first thing one wants to read.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tribunal import ROOT
from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.nodes.leftovers import mark, note_started
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.own_end import OwnEnd, died
from tribunal.clusters.nodes.serving import came_to_serve, refuses
from tribunal.clusters.spec import Settings, SettingValue

PARENT_DEATH: Final = Path(__file__).with_name("parent_death.py")
EXIT_TIMEOUT_MS: Final = 10_000
PIPE_TIMEOUT_MS: Final = 2_000
POLL_MS: Final = 15
LOG_LINES: Final = 12
END_BYTES: Final = 8192  # of a log, where its last lines are
SIGNAL_WAIT_MS: Final = 2_000
LINE_BYTES: Final = 1 << 16  # asyncio's own limit
STOPPED: Final = ("T", "t")  # states of processes, as the kernel has them
ENDED: Final = ("Z", "X")


class NodeProcess(OwnEnd):
    """One node, through all its starts and ends; `on_exit` gets the reason of an end that nobody asked for."""

    def __init__(
        self,
        node: int,
        program: NodeProgram,
        config: Path,
        log: Path,
        endpoint: tuple[str, int],
        on_exit: Callable[[str], None],
        run_dir: Path,
        prefix: Callable[[], Sequence[str]] = tuple,  # words in front of its command: where it runs, with what priority
    ) -> None:
        self.node = node
        self.pid: int | None = None
        self._program = program
        self._config = config
        self._log = log
        self._endpoint = endpoint
        self._on_exit = on_exit
        self._run_dir = run_dir
        self._prefix = prefix
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
        java = shutil.which("java") or "java"
        command = await asyncio.to_thread(self._program.command, self._config, python=sys.executable, java=java)
        self._process = await start_with_parent(
            [*self._prefix(), *with_parent(command)], self._log, mark(self._run_dir)
        )
        self.pid = self._process.pid
        note_started(self._run_dir, self.pid)
        self._watch = asyncio.create_task(self._wait_for_end(self._process), name=f"watch node {self.node}")

    async def _wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not self._ending:
            self._on_exit(self._exit_reason(code))

    def _exit_reason(self, code: int | None) -> str:
        """Say how the process ended and what its log said last."""
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return f"node {self.node} ({self._program.title}) ended with {how}; its log {self._log} ends:\n{last_lines(self._log)}"

    async def serving(self) -> None:
        """Wait until the node answers requests; `ClusterError` with its last log lines if it does not."""
        program = self._program
        came = await came_to_serve(
            lambda: program.answers(self._endpoint, wait_ms=program.answer_wait_ms),
            lambda: self.alive,
            within_ms=program.serving_timeout_ms,
            poll_ms=POLL_MS,
        )
        if came == "ended":
            raise ClusterError(self._exit_reason(self._process.returncode if self._process else None))
        if came == "silent":
            raise ClusterError(
                f"node {self.node} ({program.title}) does not serve after {program.serving_timeout_ms} ms; "
                f"its log {self._log} ends:\n{last_lines(self._log)}"
            )

    async def exit_code(self) -> int | None:
        """Return how its last process ended, negative: by this signal; None: it runs."""
        return None if self._process is None else self._process.returncode

    async def kill(self) -> Proof:
        """Kill -9; prove that the process is gone and nobody listens on its port."""
        pid = self.pid
        self._ending = True
        if self.alive:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._dies()
        gone, refused = not process_exists(pid), await self._refuses()
        return Proof(holds=gone and refused, facts={"pid": pid, "process_gone": gone, "port_refused": refused})

    async def _refuses(self) -> bool:
        """Return whether nobody listens on its port; for whoever has another way there."""
        return await refuses(self._endpoint)

    async def _ask_to_end(self) -> None:
        assert self._process is not None
        self._process.terminate()

    async def _ended(self) -> None:
        if self._process is not None:
            await self._process.wait()
        if self._watch is not None:
            await asyncio.wait([self._watch], timeout=EXIT_TIMEOUT_MS / 1000)

    async def pause(self) -> Proof:
        """Stop the process, and what it has begun: it may be a shell around the program that serves. Prove that all are stopped, and nobody answers."""
        self._signal(signal.SIGSTOP)
        stopped = await self._reaches(signal.SIGSTOP)
        silent = not await self._program.answers(self._endpoint, wait_ms=100)
        return Proof(holds=stopped and silent, facts={"pid": self.pid, "stopped": stopped, "silent": silent})

    async def resume(self) -> Proof:
        """Let the process go on; prove that it answers again."""
        self._signal(signal.SIGCONT)
        running = await self._reaches(signal.SIGCONT)
        answered = await self._program.answers(self._endpoint, wait_ms=SIGNAL_WAIT_MS)
        return Proof(
            holds=running and answered,
            facts={"pid": self.pid, "running": running, "answers": answered},
            undone=running,
        )

    def _signal(self, number: signal.Signals) -> None:
        if not self.alive:
            raise ClusterError(f"node {self.node} is down: nothing to send {number.name} to")
        assert self._process is not None
        self._process.send_signal(number)

    async def _reaches(self, number: signal.Signals) -> bool:
        """Send a signal to all of the node's processes until none is left that it has not reached: they may begin others meanwhile."""
        for _ in range(SIGNAL_WAIT_MS // POLL_MS):
            states = await asyncio.to_thread(states_of, self.pid)
            left = [pid for pid, state in states.items() if (state in STOPPED) is not (number is signal.SIGSTOP)]
            if states and not left:
                return True
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            await asyncio.sleep(POLL_MS / 1000)
        return False


def with_parent(command: Sequence[str]) -> list[str]:
    """Return the command that is the same but ends with this process; its program is given by its full path."""
    return [sys.executable, "-I", "-S", str(PARENT_DEATH), str(os.getpid()), *command]


async def start_with_parent(command: Sequence[str], log: Path, more: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start a command of `with_parent` in a session of its own, with more in its environment, its output appended to the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**node_environment(), **more},
            start_new_session=True,
        )


async def start_to_speak(
    prefix: Sequence[str], command: Sequence[str], log: Path, run_dir: Path, *, line_bytes: int = LINE_BYTES
) -> asyncio.subprocess.Process:
    """Start a command that is spoken with by lines, and ends with this process; what it says on stderr is appended to the log.

    prefix:      words in front of it: where it runs.
    line_bytes:  of the longest line that it may answer.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *prefix,
            *with_parent(command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**node_environment(), **mark(run_dir)},
            start_new_session=True,
            limit=line_bytes,
        )
    note_started(run_dir, process.pid)
    return process


async def put_to_end(process: asyncio.subprocess.Process, *, alone: bool = False) -> None:
    """Kill a process with the children of its session, unless it has ended, and wait for its end; `alone`: its children go on.

    asyncio calls a process ended when its pipes are closed too. What it wrote last may be more than the stream takes, and then nobody
    looks at the pipe again; a child may hold it open. So it is read to its end, and what a child of another session holds is left.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            if not alone and os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PIPE_TIMEOUT_MS / 1000):
            await _read_to_end(process)
            await process.wait()
    if process.returncode is None:
        await died(process.wait(), f"process {process.pid}")


async def _read_to_end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(RuntimeError):  # somebody else reads it
        while process.stdout is not None and await process.stdout.read(LINE_BYTES):
            pass


def node_environment() -> dict[str, str]:
    """Return a node's environment: compiled modules are kept also where the harness's own are not; they halve its start."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    if environment.pop("PYTHONDONTWRITEBYTECODE", ""):
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "tribunal", "bytecode")
        environment.setdefault("PYTHONPYCACHEPREFIX", str(cache))
    return environment


def process_exists(pid: int | None) -> bool:
    """Return whether a process of this id exists (zombies count: they are ours to reap)."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def states_of(leader: int | None) -> dict[int, str]:
    """Return the states of a process that leads a session, of all in that session, and of what they began in others; none where that cannot be known."""
    states: dict[int, str] = {}
    parents: dict[int, int] = {}
    own: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
            pid = int(path.parent.name)
            if state not in ENDED:
                states[pid], parents[pid] = state, int(parent)
                own |= {pid} if leader in (pid, int(session)) else set()
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return {pid: states[pid] for pid in sorted(own)}


def last_lines(log: Path, count: int = LOG_LINES) -> str:
    """Return the end of a log, indented."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - END_BYTES))
            content = file.read(END_BYTES).decode(errors="replace")
    except OSError:
        content = ""
    lines = content.splitlines()[-count:] or ["(empty)"]
    return "\n".join(f"    {line}" for line in lines)


def toml(settings: Settings) -> str:
    """Write settings as a node.toml."""
    return "".join(f'"{name}" = {_toml_value(value)}\n' for name, value in settings.items())


def _toml_value(value: SettingValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
