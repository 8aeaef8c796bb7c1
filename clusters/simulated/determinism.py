"""Runs a seed twice in fresh interpreters that differ in what must not matter, and says where the runs part.

The two interpreters get different hash seeds and environments of different size: the first changes the order of every
set of strings, the second moves the stack and with it many addresses. If their fingerprints differ, both run again
with trace lines, and the first differing line names the event at which order or chance leaked in.

A *program* is `module:function`, called as `function(seed, sink)`; it runs a simulation, hands trace lines to
`sink` unless that is None, and returns its `Fingerprint`.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final, TextIO

import msgspec

from tribunal.clusters.simulated.trace import Sink

LINES_OF_CONTEXT: Final = 4


class Fingerprint(msgspec.Struct, frozen=True):
    """What must be equal in two runs of a seed."""

    trace_hash: str
    event_count: int
    recording_hash: str = ""


class Difference(msgspec.Struct, frozen=True):
    """Where two runs of a seed part: the lines before, and the first differing line of each."""

    seed: int
    first: Fingerprint
    second: Fingerprint
    before: list[str]
    line_of_first: str | None
    line_of_second: str | None

    def __str__(self) -> str:
        if self.line_of_first is None and self.line_of_second is None:
            return f"seed {self.seed}: same trace, different recordings or hashes: {self.first} and {self.second}"
        context = "".join(f"    {line}\n" for line in self.before)
        return f"seed {self.seed} differs at\n{context}  1 {self.line_of_first}\n  2 {self.line_of_second}"


class ProgramFailed(Exception):
    """The program did not end with a fingerprint; the message is the end of what it said."""


def difference(program: str, seed: int, *, hash_seed: int | None = None) -> Difference | None:
    """Run a seed twice; return None when the runs are the same.

    hash_seed:  the same PYTHONHASHSEED for both, for code that is not ours and iterates over sets of strings.
    """
    first, second = (fingerprint(program, seed, variation, None, hash_seed) for variation in (0, 1))
    if first == second:
        return None
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"trace-{variation}") for variation in (0, 1)]
        for variation, path in enumerate(paths):
            fingerprint(program, seed, variation, path, hash_seed)
        with paths[0].open() as one, paths[1].open() as other:
            before, lines = first_difference(one, other)
    return Difference(seed, first, second, before, *lines)


def fingerprint(
    program: str, seed: int, variation: int, trace: Path | None, hash_seed: int | None = None
) -> Fingerprint:
    """Run a program in a fresh interpreter, the environment varied by number."""
    pinned = 1 + 41 * variation if hash_seed is None else hash_seed
    environment = dict(os.environ, PYTHONHASHSEED=str(pinned), PADDING="x" * (3333 * variation))
    environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    command = [sys.executable, "-m", "tribunal.clusters.simulated.determinism", program, str(seed), str(trace or "")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise ProgramFailed(done.stderr[-2000:])
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Fingerprint)


def first_difference(one: TextIO, other: TextIO) -> tuple[list[str], tuple[str | None, str | None]]:
    """Return the lines before the first difference, and the differing lines (None: the trace ended)."""
    before: list[str] = []
    for left, right in zip_longest(one, other):
        if left != right:
            return before, (_stripped(left), _stripped(right))
        before = [*before[1 - LINES_OF_CONTEXT :], left.rstrip("\n")]
    return before, (None, None)


def _stripped(line: str | None) -> str | None:
    return None if line is None else line.rstrip("\n")


def _lines_to(path: str) -> Iterator[Sink | None]:
    if not path:
        yield None
        return
    with Path(path).open("w") as file:
        yield lambda line: print(line, file=file)  # to the trace file


def main(program: str, seed: str, trace: str) -> None:
    """Run a program once and print its fingerprint as JSON."""
    module, _, function = program.partition(":")
    run = getattr(importlib.import_module(module), function)
    for sink in _lines_to(trace):
        print(msgspec.json.encode(run(int(seed), sink)).decode())  # noqa: T201  # the answer of this command


if __name__ == "__main__":
    main(*sys.argv[1:])
