"""What a described system needs is installed where its nodes run: on this machine, or on each of its hosts. Only when somebody asks for it."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.hosts_of_run import lacking
from tribunal.clusters.nodes.ssh_hosts import HostEntry, Shell, read_hosts
from tribunal.clusters.systems.commands import must_exist
from tribunal.clusters.systems.description import Addresses, BadSystem, Elsewhere, System, read_system
from tribunal.clusters.systems.packing import as_it_is, packed


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A command that ended with 0: on the host of a node, at its address, or, without both, on this machine."""

    command: list[str]
    node: int | None = None
    address: str | None = None


def installed(file: Path, note: Callable[[str], None], said: BinaryIO) -> list[Installed]:
    """Run what a system.toml says under `install`; return what was run where.

    note:  gets a line about what is run, and where, before it is.
    said:  gets what the command says, as it comes: a file of the operating system.
    Raises BadSystem where the file says nothing of it, and ClusterError where it ends with another code than 0, or a host cannot be reached.
    """
    system, folder = read_system(file), file.resolve().parent
    if system.nodes.install is None:
        raise BadSystem(f"{file}: [nodes] has no install: it does not say how {system.name} is installed")
    if system.nodes.hosts is None:
        return [_here(system, system.nodes.install, folder, note, said)]
    if missing := lacking():
        raise ClusterError(f"{missing[0].reason}: {missing[0].remedy}")
    hosts = read_hosts(folder / system.nodes.hosts)
    entries = [hosts.entry(node) for node in range(1, system.nodes.count + 1)]
    return [_there(system, system.nodes.install, folder, entry, note, said) for entry in entries]


def _here(
    system: System, words: tuple[str, ...], folder: Path, note: Callable[[str], None], said: BinaryIO
) -> Installed:
    command = Addresses(folder=folder, hosts={}, ports={}, data={}).command(words, None)
    must_exist(command)
    note(f"{system.name}: {shlex.join(command)}")
    said.flush()
    code = subprocess.run(command, cwd=folder, stdout=said, check=False).returncode  # noqa: S603 - the file's own command, no shell
    if code != 0:
        raise ClusterError(f"install: {shlex.join(command)}: exit code {code}")
    return Installed(command=command)


def _there(
    system: System, words: tuple[str, ...], folder: Path, entry: HostEntry, note: Callable[[str], None], said: BinaryIO
) -> Installed:
    def aloud(data: bytes) -> None:
        said.write(data)
        said.flush()

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
            code = shell.followed(f"cd {shlex.quote(str(place))} && {shlex.join(command)} 2>&1 </dev/null", aloud)
        finally:
            shell.run(f"rm -rf {shlex.quote(str(place))}")
    finally:
        shell.close()
    if code != 0:
        why = "the host hung up" if code is None else f"exit code {code}"
        raise ClusterError(f"install: node {entry.id} ({entry.address}): {shlex.join(command)}: {why}")
    return Installed(command=command, node=entry.id, address=entry.address)
