"""Network and mount namespaces of one run, without root: a keeper process makes them, and hands out sockets of theirs.

Making a user namespace is what the system may forbid; `obstacle()` really tries. Everything lives as long as the keeper
(`keeper.py`) and ends with it, also when the harness is killed with -9.
"""

import asyncio
import functools
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.leftovers import mark, note_started
from tribunal.clusters.nodes.node_process import with_parent
from tribunal.clusters.obstacles import Obstacle

KEEPER: Final = Path(__file__).with_name("keeper.py")
ANSWER_BYTES_MAX: Final = 1 << 20
READY_TIMEOUT_S: Final = 10
ENDING_TIMEOUT_S: Final = 5
TOOLS: Final = ("unshare", "nsenter", "ip", "nft", "tc")
WITHOUT_ROOT: Final = ("unshare", "--user", "--map-root-user", "--net", "--mount")
WITH_ROOT: Final = ("unshare", "--net", "--mount")
PROBE: Final = (
    "ip link add one type veth peer name two && "
    "nft 'add table ip t; add chain ip t c { type filter hook forward priority 0; }; "
    "add rule ip t c ip protocol tcp reject with tcp reset'"
)
REMEDY: Final = (
    "apt-get install nftables iproute2 util-linux; allow user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0); "
    "until then links are proxies on loopback"
)


class AskNamespace(msgspec.Struct, tag_field="do", tag="namespace"):
    """Ask the keeper for a network namespace."""

    name: str


class AskSocket(msgspec.Struct, tag_field="do", tag="socket"):
    """Ask the keeper for a TCP socket of a namespace, perhaps one that listens."""

    name: str
    listen: tuple[str, int] | None = None


class AskRun(msgspec.Struct, tag_field="do", tag="run"):
    """Ask the keeper to run a command in a namespace; what it reads is handed over."""

    argv: list[str]
    name: str


Asked = AskNamespace | AskSocket | AskRun


class Refused(msgspec.Struct):
    """What every answer may say: what went wrong; empty: nothing."""

    error: str | None = None
    errno: int | None = None


class Ready(msgspec.Struct):
    """The keeper serves; `anchor` is a process that stays in the hub."""

    anchor: int


class Made(msgspec.Struct):
    """A namespace was made; `fd` is the keeper's descriptor of it."""

    fd: int


class Ended(msgspec.Struct):
    """How a command ended; what it said is handed over."""

    code: int
    err: str


A = TypeVar("A", bound=msgspec.Struct)


@functools.cache
def way_in() -> tuple[str, ...] | str:
    """Return the command that makes namespaces here, or why there is none; really tried, once."""
    if sys.platform != "linux":
        return f"no network namespaces on {sys.platform}"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=search_path()) is None]
    if missing:
        return f"no network namespaces: {', '.join(missing)} not installed"
    said = ""
    for command in (WITHOUT_ROOT, WITH_ROOT) if os.geteuid() == 0 else (WITHOUT_ROOT,):
        tried = subprocess.run(  # noqa: S603 - fixed words
            [*command, "sh", "-c", PROBE], capture_output=True, text=True, check=False, env=environment()
        )
        if tried.returncode == 0:
            return command
        said = " ".join((tried.stderr or "it failed").split())[:160]
    return f"no network namespaces: {said}"


def search_path() -> str:
    """Return where commands are looked for: administrators' folders too, which users may lack."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def environment() -> dict[str, str]:
    """Return the environment of commands."""
    return os.environ | {"PATH": search_path()}


def obstacle() -> Obstacle | None:
    """Say why there are no namespaces here; a comfort lost, not a kind of cluster."""
    found = way_in()
    return Obstacle(reason=found, remedy=REMEDY, blocks=False) if isinstance(found, str) else None


class Namespaces:
    """The namespaces of one run."""

    def __init__(self, run_dir: Path, unshared: tuple[str, ...] | None = None) -> None:
        found = way_in() if unshared is None else unshared
        if isinstance(found, str):
            raise ClusterError(found)
        self._unshared = found
        self.run_dir = run_dir.resolve()
        self._asking = threading.Lock()
        self._spaces: dict[str, int] = {}  # name -> the keeper's descriptor of it
        self._keeper: subprocess.Popen[bytes] | None = None
        self._talk: socket.socket | None = None
        self.anchor = 0

    @property
    def pid(self) -> int:
        """Id of the keeper."""
        assert self._keeper is not None
        return self._keeper.pid

    def open(self) -> None:
        """Start the keeper; blocks for some 40 ms."""
        self._talk, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._keeper = subprocess.Popen(  # noqa: S603 - our own program
                with_parent([_where(self._unshared[0]), *self._unshared[1:], sys.executable, "-I", "-S", str(KEEPER),
                             str(theirs.fileno()), f"{self.run_dir}{os.sep}"]),
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, start_new_session=True, env={**environment(), **mark(self.run_dir)},
            )  # fmt: skip
        note_started(self.run_dir, self._keeper.pid)
        self._talk.settimeout(READY_TIMEOUT_S)
        try:
            ready = self._talk.recv(ANSWER_BYTES_MAX)
        except TimeoutError:
            ready = b""
        self._talk.settimeout(None)
        if not ready:
            assert self._keeper.stderr is not None
            self._keeper.kill()
            said = self._keeper.stderr.read().decode(errors="replace").strip()
            self.close()
            raise ClusterError(f"no network namespaces: {said or 'their keeper does not start'}")
        self.anchor = msgspec.json.decode(ready, type=Ready).anchor

    def _ask(self, request: Asked, answered: type[A], given: Sequence[int] = ()) -> tuple[A, list[int]]:
        with self._asking:
            if self._talk is None:
                raise OSError("the network namespaces are gone")
            socket.send_fds(self._talk, [msgspec.json.encode(request)], given)
            packet, descriptors, _, _ = socket.recv_fds(self._talk, ANSWER_BYTES_MAX, 1)
        if not packet:
            raise OSError("the keeper of the network namespaces has ended")
        refused = msgspec.json.decode(packet, type=Refused)
        if refused.error is not None:
            raise OSError(refused.errno, refused.error)
        return msgspec.json.decode(packet, type=answered), descriptors

    def make(self, name: str) -> None:
        """Make a network namespace."""
        self._spaces[name] = self._ask(AskNamespace(name=name), Made)[0].fd

    def outgoing(self, name: str) -> socket.socket:
        """Return a fresh TCP socket of that namespace."""
        made = socket.socket(fileno=self._ask(AskSocket(name=name), Refused)[1][0])
        made.settimeout(0)
        return made

    def listener(self, name: str, host: str, port: int) -> socket.socket:
        """Return a socket that listens there; `OSError` when the address is taken."""
        made = socket.socket(fileno=self._ask(AskSocket(name=name, listen=(host, port)), Refused)[1][0])
        made.settimeout(0)
        return made

    def run(self, argv: Sequence[str], *, stdin: str = "", name: str = "hub") -> str:
        """Run a command in a namespace; return its output, `ClusterError` with what it complained of."""
        with os.fdopen(os.memfd_create("given", os.MFD_CLOEXEC), "w+b") as given:
            given.write(stdin.encode())
            given.seek(0)
            ended, handed = self._ask(AskRun(argv=list(argv), name=name), Ended, [given.fileno()])
        with os.fdopen(handed[0], "rb") as said:
            said.seek(0)
            out = said.read().decode(errors="replace")
        if ended.code != 0:
            complaint = " ".join((ended.err or out).split())[:300]
            raise ClusterError(f"{' '.join(argv[:4])}: {complaint}")
        return out

    async def run_aside(self, argv: Sequence[str], *, stdin: str = "", name: str = "hub") -> str:
        """Run a command without holding up the event loop."""
        return await asyncio.to_thread(functools.partial(self.run, argv, stdin=stdin, name=name))

    def command(self, name: str) -> list[str]:
        """Return the words that, in front of a command, make it run in that namespace (and with our mounts)."""
        proc = f"/proc/{self.pid}"
        words = [_where("nsenter"), f"--net={proc}/fd/{self._spaces[name]}", f"--mount={proc}/ns/mnt"]
        if self._unshared == WITHOUT_ROOT:
            words += [f"--user={proc}/ns/user", "--preserve-credentials"]
        return [*words, f"--wd={Path.cwd()}", "--"]

    def close(self) -> None:
        """End the keeper, and with it everything."""
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.close()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            try:
                keeper.wait(ENDING_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait()
            assert keeper.stderr is not None
            keeper.stderr.close()


def _where(tool: str) -> str:
    return shutil.which(tool, path=search_path()) or tool
