"""What a remote node's host does to its own files: `python -m tribunal.clusters.nodes.on_host VERB FOLDER [JSON]`, the answer is JSON.

The code of local processes, run where the files lie: proofs are the same.
"""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from replog.host.sabotage.roll_back import roll_back
from tribunal.clusters.api import Proof
from tribunal.clusters.capabilities import ClockSkew, Damage, DiskTrouble
from tribunal.clusters.nodes.final_logs import log_bytes
from tribunal.clusters.nodes.log_damage import do_damage, log_ends
from tribunal.clusters.nodes.node_control import NodeControl


def wipe(folder: Path, _: Any) -> Proof:
    """Remove the disk; the node is formatted again afterwards."""
    data = folder / "data"
    before, ends = log_bytes(data), log_ends(data)
    shutil.rmtree(data, ignore_errors=True)
    shutil.rmtree(folder / "undo", ignore_errors=True)
    return Proof(
        holds=bool(before) and not data.exists(),
        facts={
            "log_bytes_before": before,
            "log_end_offsets_before": ends,
            "log_end_offsets_after": dict.fromkeys(ends, 0),
        },
    )


def power_fail(folder: Path, _: Any) -> Proof:
    """Take back what was not synced."""
    data, undo = folder / "data", folder / "undo"
    had_journal, before = undo.is_dir(), log_ends(data)
    rolled = roll_back(undo, [data])
    return Proof(
        holds=had_journal and not undo.exists(),
        facts={
            "files_rolled_back": rolled.file_count,
            "bytes_lost": rolled.byte_count,
            "names_rolled_back": rolled.name_count,
            "log_end_offsets_before": before,
            "log_end_offsets_after": {**dict.fromkeys(before, 0), **log_ends(data)},
        },
    )


def damage(folder: Path, wanted: Any) -> Proof:
    """Damage the log files."""
    return do_damage(folder / "data", Damage(wanted))


def set_clock(folder: Path, wanted: Any) -> Proof:
    """Move the node's clock."""
    return asyncio.run(NodeControl(folder / "control.page", fresh=False).set_clock(msgspec.convert(wanted, ClockSkew)))


def trouble_disk(folder: Path, wanted: Any) -> Proof:
    """Make the node's disk misbehave."""
    control = NodeControl(folder / "control.page", fresh=False)
    return asyncio.run(control.trouble_disk(msgspec.convert(wanted, DiskTrouble)))


VERBS = {"wipe": wipe, "power_fail": power_fail, "damage": damage, "set_clock": set_clock, "trouble_disk": trouble_disk}


def main() -> None:
    """Do it and tell."""
    verb, folder, *rest = sys.argv[1:]
    proof = VERBS[verb](Path(folder), msgspec.json.decode(rest[0]) if rest else None)
    sys.stdout.write(msgspec.json.encode(proof).decode() + "\n")


if __name__ == "__main__":
    main()
