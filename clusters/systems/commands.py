"""Commands of a described system that run on this machine: one that changes something, and one that only looks."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.leftovers import mark, note_started
from tribunal.clusters.nodes.node_process import put_to_end, start_with_parent, with_parent

QUICK_MS: Final = 50  # what ends within it needs no note: there are several looks a second


class NoProgram(ClusterError):
    """A command whose program is not on this machine."""


async def carried_out(prefix: Sequence[str], command: list[str], log: Path, run_dir: Path) -> bool:
    """Run a command that changes something, its output appended to the log; return whether it ended with 0. It ends with the harness.

    prefix:  words in front of it: where it runs.
    Raises NoProgram where there is no such program.
    """
    must_exist(command)
    process = await start_with_parent([*prefix, *with_parent(command)], log, mark(run_dir))
    note_started(run_dir, process.pid)
    try:
        return await process.wait() == 0
    finally:
        await put_to_end(process)


async def ended_well(command: list[str], run_dir: Path) -> bool:
    """Run a command that only looks; return whether it ended with 0. Who gives up waiting has ended it, with its children.

    One that does not end at once is noted as the run's: whoever undoes a killed harness ends it.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **mark(run_dir)},
        start_new_session=True,
    )
    noting = asyncio.get_running_loop().call_later(QUICK_MS / 1000, note_started, run_dir, process.pid)
    try:
        return await process.wait() == 0
    finally:
        noting.cancel()
        await put_to_end(process)


def must_exist(command: list[str]) -> None:
    """Raise NoProgram where a command's program is missing, and ClusterError where it is a file that we may not execute."""
    if not Path(command[0]).is_file():
        beside = (
            "" if Path(command[0]).is_absolute() or "/" not in command[0] else " (beside system.toml: {folder}/...)"
        )
        raise NoProgram(f"there is no program {command[0]}{beside}")
    if not os.access(command[0], os.X_OK):
        raise ClusterError(f"{command[0]} may not be executed: chmod +x")
