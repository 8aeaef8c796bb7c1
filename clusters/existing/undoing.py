"""Undoes by the user's commands what a run has left whose harness is gone."""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tribunal.clusters.existing.acts import Act, Acts, Done, left
from tribunal.clusters.existing.description import Commanded, put_in

STDERR: Final = 2  # what a command says is no part of what ours answers


class Said(NamedTuple):
    """What became of one thing that was to be undone."""

    text: str
    is_done: bool


def acts_undone(given: Commanded, path: Path, acts: Acts) -> list[Said]:
    """Run what undoes each act, and cross out what is undone: a second time a command may refuse it. `path` is the file that says how."""
    said = []
    for act in list(acts.done.acts):
        one = _undone(given, path, act)
        if one.is_done:
            acts.undone(act.node, act.undone_by)
        said.append(one)
    return said


def commands_of(run_dir: Path) -> Path | None:
    """Return the file by whose commands is undone what a run of this folder has done; None: nothing was left."""
    done = left(run_dir)
    return None if done is None else Path(done.cluster)


def acts_left(done: Done) -> list[str]:
    """Say what is to be undone."""
    return [f"node {act.node} of {done.cluster}: {act.undone_by} it" for act in done.acts]


def _undone(given: Commanded, path: Path, act: Act) -> Said:
    words = given.commands.named().get(act.undone_by)
    if words is None or act.node not in given.endpoints:
        text = f"nothing of node {act.node}: {path} has no such node or no command {act.undone_by!r} any more"
        return Said(text, is_done=False)
    command = put_in(words, act.node, given.endpoints[act.node], path.parent)
    try:
        # In a group of its own, as in a run: Ctrl-C must not reach a node that it leaves behind.
        ended = subprocess.run(  # noqa: S603 - the user's own
            command,
            stdin=subprocess.DEVNULL,
            stdout=STDERR,
            timeout=given.command_within_ms / 1000,
            check=False,
            process_group=0,
        ).returncode
    except subprocess.TimeoutExpired:
        why = f"did not end within {given.command_within_ms} ms"
        return Said(f"node {act.node}: {' '.join(command)} {why}", is_done=False)
    except OSError as problem:
        return Said(f"node {act.node}: {' '.join(command)}: {problem.strerror}", is_done=False)
    return Said(f"node {act.node}: {' '.join(command)} ended with {ended}", is_done=ended == 0)
