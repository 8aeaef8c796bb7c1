"""What one run has on hosts reached over ssh: a shell on each, and a folder for each node, removed at the end with all that runs there.

A harness that is killed leaves daemons and folders; the run's `ssh.json` says where, before it goes there.
"""

import asyncio
import concurrent.futures
import functools
import hashlib
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.leftovers import MARK
from tribunal.clusters.nodes.ssh_hosts import HostEntry, Hosts, Shell
from tribunal.clusters.obstacles import Obstacle
from tribunal.results.unreadable import UNREADABLE

P = ParamSpec("P")
T = TypeVar("T")

RECORD: Final = "ssh.json"
CLIENT: Final = "pip install 'paramiko>=3' (the extra replog[ssh])"
THREADS: Final = 64
# Threads that are kept as long as a node lives: its watch, what follows its files, its port for probes.
OF_A_NODE: Final = 4
# What a folder's `sessions` says was started for it. A number proves nothing: a host that was started anew may have given it to anybody. So a
# process has to be of the folder too: it works there, names it, or was given it in its environment, which some programs overwrite.
OWN: Final = (
    'here=$(pwd -P); all=" $(cat sessions 2>/dev/null | tr "\\n" " ") "; for p in /proc/[0-9]*; do '
    "{ read -r line <$p/stat; } 2>/dev/null || continue; set -- ${line##*) }; [ $1 = Z ] && continue; "
    'case "$all" in *" $4 "*) ;; *) continue;; esac; '
    'case "$(readlink $p/cwd 2>/dev/null)/$(tr "\\0" " " <$p/cmdline 2>/dev/null)" in "$here"/*|*" $here/"*) ;; '
    f'*) tr "\\0" "\\n" <$p/environ 2>/dev/null | grep -qxF "{MARK}=$here" || continue;; esac; '
)
END_ALL: Final = f"{OWN}kill -9 ${{p#/proc/}} 2>/dev/null; done; true"
STILL: Final = f"{OWN}echo process ${{p#/proc/}}; done; true"
# A node's `cuts` names the table of rules that was made for it. Whoever cannot say whether it is there yet leaves the folder, which says where to look.
CUTS: Final = "cuts"
HAS_TABLE: Final = (
    f"if [ -s {CUTS} ]; then PATH=$PATH:/usr/sbin:/sbin; read -r table <{CUTS}; tables=$(nft list tables ip) || exit 1; "
    'case "$tables" in *"table ip $table"*) '
)
END_CUTS: Final = f'{HAS_TABLE} nft delete table ip "$table" || exit 1; echo "table $table";; esac; fi'
STILL_CUTS: Final = f'{HAS_TABLE} echo "table $table";; esac; fi'
NOTE: Final = "echo $$ >>sessions"  # what a shell says in a node's folder before it becomes what is to be found again


class HostsOfRun:
    """Shells on the hosts of one run's nodes."""

    def __init__(self) -> None:
        self.hosts = Hosts(node=())
        self.shells: dict[int, Shell] = {}
        self._run_name = ""
        self._threads = concurrent.futures.ThreadPoolExecutor(THREADS, "hosts")

    @property
    def mark(self) -> str:
        """Return what is this run's alone, on hosts that others use as well: letters and digits."""
        return self._run_name.rpartition("-")[2]

    async def in_thread(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run what blocks in a thread: more of them than the loop's own executor has."""
        return await asyncio.wrap_future(self.begun(functools.partial(call, *arguments, **named)))

    def begun(self, call: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Begin what blocks in a thread."""
        return self._threads.submit(call)

    def folder(self, node: int) -> str:
        """Return the node's folder on its host."""
        return remote_folder(self.hosts.entry(node), self._run_name)

    async def open(self, directory: Path, hosts: Hosts, nodes: Sequence[int]) -> None:
        """Say where the run will be, and connect to every node's host. Raises ClusterError."""
        self.hosts = hosts
        self._threads.shutdown()
        self._threads = concurrent.futures.ThreadPoolExecutor(THREADS + OF_A_NODE * len(nodes), "hosts")
        entries = [hosts.entry(node) for node in nodes]
        self._run_name = run_name(directory)
        write_record(directory, hosts)
        self.shells = {entry.id: Shell(entry) for entry in entries}
        await asyncio.gather(*(self.in_thread(shell.open) for shell in self.shells.values()))

    async def close(self) -> None:
        """Leave nothing on the hosts, also not on one that has hung up meanwhile, or behind one that cannot be asked. Raises ClusterError."""
        shells, self.shells = self.shells, {}
        reached = [shell for shell in shells.values() if shell.was_open]
        emptying = (self.in_thread(_emptied_again, shell, self._run_name) for shell in reached)
        ended = await asyncio.gather(*emptying, return_exceptions=True)
        self._threads.shutdown(wait=True)
        if problem := next((one for one in ended if isinstance(one, BaseException)), None):
            raise problem


def lacking() -> list[Obstacle]:
    """Return what is missing here to reach any host."""
    try:
        import paramiko  # noqa: F401
    except ImportError:
        return [Obstacle(reason="the package 'paramiko' is not installed", remedy=CLIENT)]
    return []


def run_name(directory: Path) -> str:
    """Return the name of a run's folders on hosts: readable, and of this very run."""
    path = str(directory.resolve())
    return f"{directory.name}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def write_record(directory: Path, hosts: Hosts) -> None:
    """Say in the run's folder where it has been, before it goes there."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RECORD).write_bytes(msgspec.json.encode(hosts))


def remote_folder(entry: HostEntry, name: str) -> str:
    """Return a node's folder on its host."""
    return f"{entry.directory}/{name}/{entry.id}"


def _emptied(shell: Shell, name: str) -> list[str]:
    """End what a run has on a host and remove its folder; return what was done."""
    folder = shlex.quote(remote_folder(shell.entry, name))
    try:
        said = shell.run(
            f"[ -d {folder} ] || exit 0; cd {folder} && {END_ALL}; {END_CUTS}; cd / && rm -rf {folder} && echo {folder}"
        )
        shell.tried(
            f"rmdir {shlex.quote(f'{shell.entry.directory}/{name}')}"
        )  # when the last node of this machine has gone
    finally:
        shell.close()
    return [f"{shell.entry.address}: {line} removed" for line in said.decode().splitlines()]


def _emptied_again(shell: Shell, name: str) -> list[str]:
    """Do so over a new connection where the one that there was has gone."""
    if not shell.is_open:
        shell.close()
        shell.open()
    return _emptied(shell, name)


def _recorded(run_dir: Path) -> list[Shell]:
    """Return shells, not open yet, on the hosts that a run used."""
    path = run_dir / RECORD
    try:
        hosts = msgspec.json.decode(path.read_bytes(), type=Hosts)
    except OSError:
        return []
    except UNREADABLE as problem:
        raise ClusterError(
            f"{path}: {problem}; nobody knows its hosts: look at those of hosts.toml, then remove the file"
        ) from None
    return [Shell(entry) for entry in hosts.node]


def _on_all(run_dir: Path, ask: Callable[[Shell], list[str]]) -> list[str]:
    """Ask every host that a run used, also where one of them fails; `ClusterError` with all that failed."""
    said, problems = [], []
    for shell in _recorded(run_dir):
        try:
            shell.open()
            said += ask(shell)
        except ClusterError as problem:
            problems.append(str(problem))
        finally:
            shell.close()
    if problems:
        raise ClusterError("; ".join([*problems, *said]))
    return said


def leftovers(run_dir: Path) -> list[str]:
    """Return what a run of this folder has left on its hosts."""

    def left(shell: Shell) -> list[str]:
        folder = shlex.quote(remote_folder(shell.entry, run_name(run_dir)))
        said = shell.run(f"[ -d {folder} ] || exit 0; echo {folder}; cd {folder} && {STILL}; {STILL_CUTS}").decode()
        return [f"{shell.entry.address}: {line}" for line in said.splitlines()]

    return _on_all(run_dir, left)


def sweep(run_dir: Path) -> list[str]:
    """End what a run of this folder has left on its hosts; return what was done."""
    return _on_all(run_dir, lambda shell: _emptied(shell, run_name(run_dir)))
