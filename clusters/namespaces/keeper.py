"""A process that keeps network namespaces and does in them what its harness asks; run as a script, standard library only.

    unshare -U -r -n -m python -I -S keeper.py FD RUN_DIR

It sits in a user, a network (the *hub*) and a mount namespace of its own, so that it needs no privileges. Requests come
over the socket FD, one JSON object a packet, and are answered one by one:

    {"do": "namespace", "name": N}                          make a network namespace; answers {"fd": number}
    {"do": "socket", "name": N, "listen": [host, port]?}    a TCP socket of that namespace, handed over
    {"do": "run", "argv": [...], "name": N?}        run a command there (default: in the hub)

What a command reads, and what it says, are files in memory that are handed over: rules between many nodes are longer than a packet may be.

Nothing outlives it: namespaces, their links, rules and mounts end with the last process in them. It ends when its harness
closes the socket or dies. RUN_DIR stands on the command line so that `tribunal heal` finds it.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

PR_SET_PDEATHSIG = 1
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
REQUEST_BYTES_MAX = 1 << 17
COMPLAINT_MAX = 1 << 12  # characters
BACKLOG = 128
HUB = "hub"


class NamespaceRequest(TypedDict):
    """Make a network namespace."""

    do: Literal["namespace"]
    name: str


class SocketRequest(TypedDict):
    """Make a socket; `listen` is a host and a port."""

    do: Literal["socket"]
    name: str
    listen: NotRequired[Sequence[str | int] | None]


class RunRequest(TypedDict):
    """Run a command."""

    do: Literal["run"]
    argv: list[str]
    name: NotRequired[str]


Request = NamespaceRequest | SocketRequest | RunRequest
Answer = dict[str, str | int | None]


class Keeper:
    """The namespaces by name."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._spaces = {HUB: _own_network()}
        self.anchor = _anchor()  # a process that stays in the hub: by its id other namespaces name the hub

    def answer(self, request: Request, given: list[int]) -> tuple[Answer, list[int]]:
        """Do what is asked; return the answer, and descriptors that are handed over with it."""
        try:
            if request["do"] == "namespace":
                return self._namespace(request["name"]), []
            if request["do"] == "socket":
                return {}, [self._socket(request["name"], request.get("listen")).detach()]
            return self._run(request.get("name", HUB), request["argv"], given[0])
        except OSError as problem:
            return {"error": problem.strerror or str(problem), "errno": problem.errno}, []

    def _enter(self, space: int) -> None:
        if self._libc.setns(space, NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter the network namespace")

    def _namespace(self, name: str) -> Answer:
        try:
            if self._libc.unshare(NEW_NETWORK) != 0:
                raise OSError(ctypes.get_errno(), "cannot make a network namespace")
            self._spaces[name] = _own_network()
        finally:
            self._enter(self._spaces[HUB])
        return {"fd": self._spaces[name], "anchor": self.anchor}

    def _socket(self, name: str, listen: Sequence[str | int] | None) -> socket.socket:
        self._enter(self._spaces[name])
        try:
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        finally:
            self._enter(self._spaces[HUB])
        if listen is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((listen[0], listen[1]))
            made.listen(BACKLOG)
        return made

    def _run(self, name: str, argv: list[str], stdin: int) -> tuple[Answer, list[int]]:
        said = os.memfd_create("said", os.MFD_CLOEXEC)
        try:
            self._enter(self._spaces[name])  # the command inherits it
            try:
                done = subprocess.run(  # noqa: S603
                    argv, stdin=stdin, stdout=said, stderr=subprocess.PIPE, text=True, errors="replace", check=False
                )
            finally:
                self._enter(self._spaces[HUB])
        except BaseException:
            os.close(said)
            raise
        return {"code": done.returncode, "err": done.stderr[:COMPLAINT_MAX]}, [said]


def _own_network() -> int:
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _end_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _anchor() -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    _end_with_parent(parent)
    while True:
        signal.pause()


def main() -> None:
    """Serve until the harness hangs up."""
    with contextlib.suppress(OSError), socket.socket(fileno=int(sys.argv[1])) as harness:
        keeper = Keeper()
        harness.send(json.dumps({"ready": True, "anchor": keeper.anchor}).encode())
        while (received := socket.recv_fds(harness, REQUEST_BYTES_MAX, 1))[0]:
            packet, given, *_ = received
            answer, handed = keeper.answer(json.loads(packet), given)
            socket.send_fds(harness, [json.dumps(answer).encode()], handed)
            for one in (*given, *handed):
                os.close(one)
        os.kill(keeper.anchor, signal.SIGKILL)
        os.waitpid(keeper.anchor, 0)


if __name__ == "__main__":
    _end_with_parent(os.getppid())
    main()
