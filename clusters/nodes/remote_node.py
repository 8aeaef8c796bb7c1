"""One node on a host of its own: a daemon started with setsid, sent signals by the host's shell, watched by a shell that waits for it."""

import asyncio
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, ParamSpec, Protocol, TypeVar

from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.nodes.hosts_of_run import NOTE, HostsOfRun
from tribunal.clusters.nodes.leftovers import MARK
from tribunal.clusters.nodes.node_process import POLL_MS, SIGNAL_WAIT_MS, STOPPED
from tribunal.clusters.nodes.node_program import NodeProgram
from tribunal.clusters.nodes.own_end import OwnEnd
from tribunal.clusters.nodes.serving import Connect, came_to_serve, refuses

P = ParamSpec("P")
T = TypeVar("T")


class InThread(Protocol):
    """Runs what blocks; has a thread for each node all the time."""

    async def __call__(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run it in a thread, and return its result."""


START: Final = (
    "rm -f pid && setsid -f sh -c {inner} </dev/null >>log 2>&1 && {{ n=0;"
    " while [ ! -s pid ] && [ $n -lt {tries} ]; do sleep 0.01; n=$((n + 1)); done; cat pid 2>/dev/null || true; }}"
)
TRIES: Final = 2_000  # a busy host takes its time
WATCH: Final = "while kill -0 {pid} 2>/dev/null; do sleep 0.05; done"
# Of the daemon and all in its session: it may be a shell around the program that serves.
OF_SESSION: Final = (
    "for p in /proc/[0-9]*; do {{ read -r line <$p/stat; }} 2>/dev/null || continue; set -- ${{line##*) }}; "
    'case "$4$1" in {pid}[ZX]) ;; {pid}[A-Za-z]) '
)
SIGNAL: Final = f"{OF_SESSION}kill -{{signal}} ${{{{p#/proc/}}}} 2>/dev/null;; esac; done; true"
STATES: Final = f'{OF_SESSION}printf %s "$1";; esac; done; true'
LOG_LINES: Final = 12
CONFIG: Final = Path("node.toml")  # in the node's folder


class RemoteNode(OwnEnd):
    """One node, through all its starts and ends."""

    is_here = False

    def __init__(
        self,
        node: int,
        program: NodeProgram,
        hosts: HostsOfRun,
        endpoint: tuple[str, int],
        on_exit: Callable[[str], None],
        environment: Mapping[str, str],
        connect: Connect | None = None,
    ) -> None:
        """`connect` connects to it past every cut, where that is not plain."""
        self.node = node
        self.pid: int | None = None
        self._is_alive = False
        self._program = program
        self._shell = hosts.shells[node]
        self._folder = hosts.folder(node)
        self._endpoint = endpoint
        self._connect = connect
        self._on_exit = on_exit
        self._in_thread = hosts.in_thread
        self._environment = environment
        self._ending = False
        self._watch: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether the daemon runs, as far as its watch knows."""
        return self._is_alive

    async def _run(self, command: str) -> str:
        said = await self._in_thread(self._shell.run, f"cd {shlex.quote(self._folder)} && {command}")
        return said.decode(errors="replace").strip()

    async def spawn(self) -> None:
        """Start the daemon."""
        assert not self.alive, f"node {self.node} runs already"
        self._ending = False
        command = shlex.join(self._program.command(CONFIG, python=self._shell.entry.python, java="java"))
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._environment.items())
        # What cannot be noted is not begun: nobody would find it again.
        inner = f'{NOTE} && echo $$ >pid && {MARK}="$(pwd -P)" {given} exec {command}'
        said = await self._run(START.format(inner=shlex.quote(inner), tries=TRIES))
        if not said.isdecimal():
            where = f"{self.node} ({self._program.title}) on {self._shell.entry.address}"
            raise ClusterError(f"node {where} cannot be started: nothing can be written in {self._folder}")
        self.pid = int(said)
        self._is_alive = True
        self._watch = asyncio.create_task(self._wait_for_end(), name=f"watch node {self.node}")

    async def _wait_for_end(self) -> None:
        hung_up = await self._in_thread(self._shell.watched, WATCH.format(pid=self.pid))
        self._is_alive = False
        if not self._ending:
            how = "the host has hung up" if hung_up else f"ended; its log ends:\n{await self._last_lines()}"
            self._on_exit(f"node {self.node} ({self._program.title}) on {self._shell.entry.address} {how}")

    async def _last_lines(self) -> str:
        return "\n".join(f"    {line}" for line in (await self._run(f"tail -n {LOG_LINES} log")).splitlines())

    async def serving(self) -> None:
        """Wait until the node answers; `ClusterError` with its last log lines if it does not."""
        program = self._program
        came = await came_to_serve(
            lambda: program.answers(self._endpoint, wait_ms=program.answer_wait_ms),
            lambda: self.alive,
            within_ms=program.serving_timeout_ms,
            poll_ms=POLL_MS,
        )
        if came != "serves":
            state = "ended" if came == "ended" else "does not serve"
            where = f"node {self.node} ({program.title}) on {self._shell.entry.address}"
            raise ClusterError(f"{where} {state}; its log ends:\n{await self._last_lines()}")

    async def exit_code(self) -> int | None:
        """Return None: the shell that watches it is not its parent."""
        return None

    async def kill(self) -> Proof:
        """Kill -9."""
        self._ending = True
        if self.alive:
            await self._run(f"kill -9 {self.pid} 2>/dev/null || true")
        await self._dies()
        refused = await refuses(self._endpoint, connect=self._connect)
        return Proof(
            holds=not self.alive and refused,
            facts={"pid": self.pid, "process_gone": not self.alive, "port_refused": refused},
        )

    async def _ask_to_end(self) -> None:
        await self._run(f"kill -TERM {self.pid} 2>/dev/null || true")

    async def _ended(self) -> None:
        if self._watch is not None:
            await asyncio.shield(self._watch)

    async def pause(self) -> Proof:
        """SIGSTOP."""
        stopped = await self._signalled("STOP")
        silent = not await self._program.answers(self._endpoint, wait_ms=100)
        return Proof(holds=stopped and silent, facts={"pid": self.pid, "stopped": stopped, "silent": silent})

    async def resume(self) -> Proof:
        """SIGCONT."""
        running = await self._signalled("CONT")
        answered = await self._program.answers(self._endpoint, wait_ms=SIGNAL_WAIT_MS)
        return Proof(
            holds=running and answered,
            facts={"pid": self.pid, "running": running, "answers": answered},
            undone=running,
        )

    async def _signalled(self, signal: str) -> bool:
        if not self.alive:
            raise ClusterError(f"node {self.node} is down: nothing to send SIG{signal} to")
        for _ in range(SIGNAL_WAIT_MS // 50):
            # Again each time: they may have begun others meanwhile.
            await self._run(SIGNAL.format(pid=self.pid, signal=signal))
            states = await self._run(STATES.format(pid=self.pid))
            # (Of a process that has just ended nothing is said.)
            if states and all((state in STOPPED) is (signal == "STOP") for state in states):
                return True
            await asyncio.sleep(0.05)
        return False
