"""What a described system needs is installed where its nodes run: on this machine, or on each of its hosts. Only when somebody asks for it."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.hosts_of_run import lacking
from tribunal.clusters.nodes.ssh_hosts import HostEntry, Shell, read_hosts
from tribunal.clusters.systems.commands import must_exist
from tribunal.clusters.systems.description import Addresses, BadSystem, Elsewhere, System, read_system
from tribunal.clusters.systems.packing import as_it_is, packed


def installed(file: Path, note: Callable[[str], None]) -> None:
    """Run what a system.toml says under `install`; what it says itself goes to stdout as it comes.

    note:  is told what is run, and where, before it is.
    Raises BadSystem where the file says nothing of it, and ClusterError where it ends with another code than 0, or a host cannot be reached.
    """
    system, folder = read_system(file), file.resolve().parent
    if system.nodes.install is None:
        raise BadSystem(f"{file}: [nodes] has no install: it does not say how {system.name} is installed")
    if system.nodes.hosts is None:
        _here(system, system.nodes.install, folder, note)
        return
    if missing := lacking():
        raise ClusterError(f"{missing[0].reason}: {missing[0].remedy}")
    hosts = read_hosts(folder / system.nodes.hosts)
    for node in range(1, system.nodes.count + 1):
        _there(system, system.nodes.install, folder, hosts.entry(node), note)


def _here(system: System, words: tuple[str, ...], folder: Path, note: Callable[[str], None]) -> None:
    command = Addresses(folder=folder, hosts={}, ports={}, data={}).command(words, None)
    must_exist(command)
    note(f"{system.name}: {shlex.join(command)}")
    code = subprocess.run(command, cwd=folder, check=False).returncode  # noqa: S603 - the file's own command, no shell
    if code != 0:
        raise ClusterError(f"install: {shlex.join(command)}: exit code {code}")


def _there(system: System, words: tuple[str, ...], folder: Path, entry: HostEntry, note: Callable[[str], None]) -> None:
    shell, own = Shell(entry), shlex.quote(entry.directory)
    shell.open()
    try:
        place = Path(shell.run(f"mkdir -p {own} && mktemp -d {own}/install.XXXXXX").decode().strip())
        elsewhere = {entry.id: Elsewhere(python=entry.python, folder=place)}
        command = Addresses(folder=folder, hosts={}, ports={}, data={}, elsewhere=elsewhere).command(words, entry.id)
        note(f"{system.name}, node {entry.id} ({entry.address}): {shlex.join(command)}")
        try:
            if system.names_folder:
                shell.run(f"tar -xf - -C {shlex.quote(str(place))}", packed(folder, folder / "runs", as_it_is))
            code = shell.followed(f"cd {shlex.quote(str(place))} && {shlex.join(command)} 2>&1 </dev/null", _aloud)
        finally:
            shell.run(f"rm -rf {shlex.quote(str(place))}")
    finally:
        shell.close()
    if code != 0:
        why = "the host hung up" if code is None else f"exit code {code}"
        raise ClusterError(f"install: node {entry.id} ({entry.address}): {shlex.join(command)}: {why}")


def _aloud(said: bytes) -> None:
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()
