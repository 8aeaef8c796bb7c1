"""Hosts reached over ssh: who they are (`hosts.toml`), and a shell on each of them.

    relay = "192.0.2.9"                          # this machine, as the hosts reach it; not for described systems

    [[node]]
    id = 1                                       # broker 1..99, controller 101..199
    address = "192.0.2.1"                        # of its own: links are known by it
    user = "tribunal"
    key = "~/.ssh/id_ed25519"
    host_key = "ssh-ed25519 AAAA..."             # pinned: another one is refused
    # ssh = "192.0.2.1:22", directory = "/tmp/tribunal", python = "python3"

    cuts = true                                  # above the nodes, for described systems alone: links may be cut by nftables on the hosts, as root

A command costs a few milliseconds: one connection a node, TCP_NODELAY, one channel a command, `/bin/sh` and no login shell.
paramiko blocks, so everything here is called in threads.
"""

import base64
import contextlib
import logging
import select
import socket
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.results.unreadable import UNREADABLE, in_words

if TYPE_CHECKING:
    from paramiko import Channel, PKey, SSHClient

CONNECT_TIMEOUT_S: Final = 5
COMMAND_TIMEOUT_S: Final = 60
# A host that has lost its power or its network says nothing more: so long after its last word it is asked, and given up after three answers that did not come.
IDLE_S: Final = 10
ASKED_EVERY_S: Final = 5
ASKED: Final = 3
SHOWN: Final = 100  # of a command, in an error
SSH_PORT: Final = 22
CHUNK_BYTES: Final = 1 << 16
logging.getLogger("paramiko").addHandler(logging.NullHandler())  # what fails is said by whoever asked for it


class HostEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one node runs."""

    id: int
    address: str
    host_key: str
    user: str = "root"
    key: str | None = None  # None: the agent's, or the usual ones
    ssh: str | None = None
    directory: str = "/tmp/tribunal"  # noqa: S108 - of the host; its owner may say otherwise
    python: str = "python3"

    @property
    def endpoint(self) -> tuple[str, int]:
        """Return where its sshd listens."""
        host, port = _host_and_port(self.ssh or self.address)
        return host, int(port or SSH_PORT)


class Hosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of the file."""

    relay: str = ""
    cuts: bool = False
    node: tuple[HostEntry, ...]

    def entry(self, node: int) -> HostEntry:
        """Return a node's host; `ClusterError` when there is none."""
        found = next((entry for entry in self.node if entry.id == node), None)
        if found is None:
            raise ClusterError(f"no host for node {node}: add a [[node]] with id = {node}")
        return found


def _host_and_port(where: str) -> tuple[str, str]:
    """Take a host and its port apart, which may be missing: `192.0.2.1:22`, `2001:db8::1`, `[2001:db8::1]:22`."""
    if where.startswith("["):
        host, _, port = where[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = where.partition(":")
    return (host, port) if ":" not in port else (where, "")


def read_hosts(path: Path) -> Hosts:
    """Read hosts.toml; `ClusterError` in one line when it is none."""
    try:
        hosts = msgspec.convert(tomllib.loads(path.read_text()), Hosts)
    except OSError as problem:
        raise ClusterError(f"{path}: {problem.strerror}; --set cluster.hosts=FILE names another") from None
    except (tomllib.TOMLDecodeError, *UNREADABLE) as problem:
        raise ClusterError(f"{path}: {in_words(problem, Hosts)}") from None
    if wrong := next(filter(None, map(_problem, hosts.node)), ""):
        raise ClusterError(f"{path}: {wrong}")
    ids = [entry.id for entry in hosts.node]
    if same := next((one for one in ids if ids.count(one) > 1), None):
        raise ClusterError(f"{path}: node {same} stands there twice: a node runs on one host")
    addresses = [entry.address for entry in hosts.node]
    twice = next((address for address in addresses if addresses.count(address) > 1), None)
    if twice is not None:
        raise ClusterError(f"{path}: two nodes on {twice}: each needs an address of its own, links are known by it")
    return hosts


def _problem(entry: HostEntry) -> str:
    """Return what is wrong with a host's entry; empty: nothing."""
    _, port = _host_and_port(entry.ssh or "")
    if port and not (port.isascii() and port.isdecimal()):
        return f"ssh = {entry.ssh!r} of node {entry.id}: its port is no number"
    if _host_and_port(entry.address)[1]:
        return f"address = {entry.address!r} of node {entry.id}: it is a host's alone; where its sshd listens is said by ssh"
    if not PurePosixPath(entry.directory).is_absolute():
        return f"directory = {entry.directory!r} of node {entry.id}: it has to be a full path, it is worked in and removed from elsewhere"
    return ""


class Shell:
    """One node's host."""

    def __init__(self, entry: HostEntry) -> None:
        self.entry = entry
        self._client: SSHClient | None = None
        self._opening = threading.Lock()  # of channels: a host may refuse many at once

    @property
    def is_open(self) -> bool:
        """Whether the connection stands."""
        transport = self._client.get_transport() if self._client is not None else None
        return transport is not None and transport.is_active()

    @property
    def was_open(self) -> bool:
        """Whether it was connected to, and not hung up since by us: the host may have done so."""
        return self._client is not None

    def open(self) -> None:
        """Connect; `ClusterError` when the host does not answer, shows another key, or does not let us in."""
        import paramiko

        host, port = self.entry.endpoint
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        name = host if port == SSH_PORT else f"[{host}]:{port}"
        client.get_host_keys().add(name, *_pinned(self.entry))
        key = str(Path(self.entry.key).expanduser()) if self.entry.key else None
        try:
            sock = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # 52 ms a command without, 3 ms with
            _watch_for_silence(sock)
            client.connect(
                host, port, self.entry.user, key_filename=key, look_for_keys=key is None, allow_agent=key is None,
                sock=sock, timeout=CONNECT_TIMEOUT_S, banner_timeout=CONNECT_TIMEOUT_S, auth_timeout=CONNECT_TIMEOUT_S,
            )  # fmt: skip
        except paramiko.BadHostKeyException:
            self._refuse(
                client, "shows another key than the pinned one: it is not the host you meant, or it was set up anew"
            )
        except paramiko.AuthenticationException as problem:
            self._refuse(client, f"does not let {self.entry.user} in: {problem}")
        except (OSError, EOFError, paramiko.SSHException) as problem:
            self._refuse(client, f"does not answer: {str(problem) or type(problem).__name__}")
        self._client = client

    def _refuse(self, client: "SSHClient", why: str) -> None:
        client.close()
        host, port = self.entry.endpoint
        raise ClusterError(f"host {host}:{port} of node {self.entry.id} {why}") from None

    def channel(self) -> "Channel":
        """Return a fresh channel; `ClusterError` when the connection has gone."""
        import paramiko

        transport = self._client.get_transport() if self._client is not None else None
        try:
            if transport is None:
                raise EOFError
            with self._opening:
                return transport.open_session(timeout=COMMAND_TIMEOUT_S)
        except (OSError, EOFError, paramiko.SSHException):
            raise ClusterError(f"host {self.entry.endpoint[0]} of node {self.entry.id} has hung up") from None

    def tried(self, command: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        """Run a command; return its exit code, what it said and what it complained of; `ClusterError` when the host hangs up."""
        import paramiko

        channel = self.channel()
        channel.settimeout(COMMAND_TIMEOUT_S)
        said, complaint = bytearray(), bytearray()
        try:
            channel.exec_command(command)
            is_taken = _given(channel, stdin)
            while _received(channel, said, complaint):
                pass
            code = channel.recv_exit_status()
        except (OSError, EOFError, paramiko.SSHException) as problem:
            why = " ".join(filter(None, (str(problem) or type(problem).__name__, _text(complaint))))
            raise ClusterError(f"host {self.entry.endpoint[0]}: {command[:SHOWN]}: {why}") from None
        finally:
            channel.close()
        if code == 0 and not is_taken:
            raise ClusterError(f"host {self.entry.endpoint[0]}: {command[:SHOWN]}: it has not read what it was given")
        return code, bytes(said), _text(complaint)

    def watched(self, command: str, said: Callable[[bytes], object] = lambda _: None) -> bool:
        """Run a command however long it takes, reading what it says; return whether the host hung up before its end."""
        return self.followed(command, said) is None

    def followed(self, command: str, said: Callable[[bytes], object]) -> int | None:
        """Do the same; return the exit code, None where the host hung up before it was known."""
        import paramiko

        try:
            channel = self.channel()
            channel.exec_command(command)
            while data := channel.recv(CHUNK_BYTES):
                said(data)
            code = channel.recv_exit_status()
        except (ClusterError, OSError, EOFError, paramiko.SSHException):
            return None
        return None if code < 0 else code

    def run(self, command: str, stdin: bytes = b"") -> bytes:
        """Run a command; `ClusterError` with its complaint when it fails."""
        code, said, complaint = self.tried(command, stdin)
        if code != 0:
            raise ClusterError(
                f"host {self.entry.endpoint[0]} of node {self.entry.id}: {complaint or f'exit code {code}'}"
            )
        return said

    def forwarded(self, endpoint: tuple[str, int]) -> socket.socket:
        """Connect to an endpoint from the host's own address; `OSError` when that cannot be."""
        import paramiko

        transport = self._client.get_transport() if self._client is not None else None
        if transport is None:
            raise OSError("the ssh connection has gone")
        try:
            with self._opening:
                channel = transport.open_channel(
                    "direct-tcpip", endpoint, (self.entry.address, 0), timeout=CONNECT_TIMEOUT_S
                )
        except paramiko.ChannelException as problem:
            raise ConnectionRefusedError(f"{self.entry.address}: {endpoint[0]}:{endpoint[1]}: {problem}") from None
        except (EOFError, paramiko.SSHException) as problem:
            raise OSError(f"{self.entry.address} cannot connect to {endpoint[0]}:{endpoint[1]}: {problem}") from None
        ours, theirs = socket.socketpair()
        for source, target in ((theirs, channel), (channel, theirs)):
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()
        return ours

    def close(self) -> None:
        """Hang up."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _watch_for_silence(sock: socket.socket) -> None:
    """Let the kernel break a connection whose other end does not answer any more; so it is nowhere but on Linux."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASKED_EVERY_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ASKED)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (IDLE_S + ASKED * ASKED_EVERY_S))


def _given(channel: "Channel", stdin: bytes) -> bool:
    """Give a command its input; return whether it took all of it: one that fails says why, and its end is no other error."""
    try:
        for start in range(0, len(stdin), CHUNK_BYTES):
            channel.sendall(stdin[start : start + CHUNK_BYTES])
        channel.shutdown_write()
    except TimeoutError:
        raise
    except OSError:
        return False
    return True


def _received(channel: "Channel", said: bytearray, complaint: bytearray) -> bool:
    """Take what a command says next, on whichever way: it waits where nobody takes one of them. Return False at its end."""
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    if not waiting.poll(COMMAND_TIMEOUT_S * 1000):
        raise TimeoutError(f"silent for {COMMAND_TIMEOUT_S} s")
    has_ended = channel.eof_received or channel.closed  # before the looks: what was said came before
    if channel.recv_stderr_ready():
        complaint += channel.recv_stderr(CHUNK_BYTES)
    elif channel.recv_ready():
        said += channel.recv(CHUNK_BYTES)
    else:
        return not has_ended
    return True


def _text(said: bytearray) -> str:
    return said.decode(errors="replace").strip()


def _pinned(entry: HostEntry) -> "tuple[str, PKey]":
    """Return the pinned key's type and itself."""
    import paramiko

    words = entry.host_key.split()
    try:
        return words[0], paramiko.PKey.from_type_string(words[0], base64.b64decode(words[1]))
    except (IndexError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as problem:
        raise ClusterError(
            f"host_key of node {entry.id} is no public key like 'ssh-ed25519 AAAA...': {problem}"
        ) from None


class _End(Protocol):
    """One end of a connection: a socket, or a channel of ssh."""

    def recv(self, size: int, /) -> bytes:
        """Wait for bytes; none: the other side has closed."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""

    def close(self) -> None:
        """Close it."""


def _pump(source: _End, target: _End) -> None:
    """Move bytes until one end has gone."""
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError, EOFError):
            end.close()
