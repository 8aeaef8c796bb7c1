"""Damage to files of a described system's node, done and proven where its data folder is seen (`damaged_files.py`)."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.capabilities import FileDamage
from tribunal.clusters.nodes.node_process import last_lines, put_to_end, start_to_speak

PROGRAM: Final = Path(__file__).with_name("damaged_files.py")


class Changed(msgspec.Struct, frozen=True):
    """A file, from which byte on it is another one, and what stood and stands there."""

    path: str
    at: int
    was: str
    now: str = msgspec.field(name="is")


class Done(msgspec.Struct, frozen=True):
    """What was damaged of how many files that match; `others`: what there is where none does."""

    matching: int
    damaged: tuple[Changed, ...]
    others: tuple[str, ...]


async def damaged(prefix: Sequence[str], data: Path, damage: FileDamage, log: Path, run_dir: Path) -> Proof:
    """Damage files; proven by what is read there afterwards.

    prefix:  words in front of a command that sees the data folder.
    Raises ClusterError where the files cannot be read or written.
    """
    words = (str(data), damage.files, damage.how, str(damage.most), str(damage.seed))
    process = await start_to_speak(prefix, [sys.executable, "-I", "-S", str(PROGRAM), *words], log, run_dir)
    try:
        assert process.stdout is not None
        said = await process.stdout.read()  # not a line: that may be no longer than asyncio lets it, and files are many
    finally:
        await put_to_end(process)
    if not said.endswith(b"\n"):
        raise ClusterError(f"files of {data} cannot be damaged; the log {log} ends:\n{last_lines(log)}")
    done = msgspec.json.decode(said, type=Done)
    facts: dict[str, object] = {"matching": done.matching, "damaged": msgspec.to_builtins(done.damaged)}
    if not done.damaged:
        facts["missing"] = (
            f"a file that matches {damage.files!r} and holds something; there is {', '.join(done.others) or 'none'}"
        )
    return Proof(holds=bool(done.damaged) and all(one.was != one.now for one in done.damaged), facts=facts)
