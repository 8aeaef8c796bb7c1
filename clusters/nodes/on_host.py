"""What a remote node's host does to its own files: `python -m tribunal.clusters.nodes.on_host VERB FOLDER [JSON]`, the answer is JSON.

The code of local processes, run where the files lie: proofs are the same.
"""

import asyncio
import shutil
import sys
from pathlib import Path

import msgspec

from replog.host.sabotage.roll_back import roll_back
from tribunal.clusters.api import Proof
from tribunal.clusters.capabilities import ClockSkew, Damage, DiskTrouble
from tribunal.clusters.nodes.disk_copies import restore, save
from tribunal.clusters.nodes.final_logs import log_bytes
from tribunal.clusters.nodes.log_damage import do_damage, log_ends
from tribunal.clusters.nodes.node_control import NodeControl


def wipe(folder: Path) -> Proof:
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


def power_fail(folder: Path) -> Proof:
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


def damage(folder: Path, wanted: Damage) -> Proof:
    """Damage the log files."""
    return do_damage(folder / "data", wanted)


def set_clock(folder: Path, wanted: ClockSkew) -> Proof:
    """Move the node's clock."""
    return asyncio.run(NodeControl(folder / "control.page", fresh=False).set_clock(wanted))


def trouble_disk(folder: Path, wanted: DiskTrouble) -> Proof:
    """Make the node's disk misbehave."""
    control = NodeControl(folder / "control.page", fresh=False)
    return asyncio.run(control.trouble_disk(wanted))


def done(verb: str, folder: Path, wanted: bytes) -> Proof:
    """Do what the harness asks for; `wanted` is its JSON."""
    match verb:
        case "wipe":
            return wipe(folder)
        case "save_disk":
            save(folder)
            return Proof(holds=True, facts={})  # that it is whole is proven when it is put back
        case "restore_disk":
            return restore(folder)
        case "power_fail":
            return power_fail(folder)
        case "damage":
            return damage(folder, msgspec.json.decode(wanted, type=Damage))
        case "set_clock":
            return set_clock(folder, msgspec.json.decode(wanted, type=ClockSkew))
        case "trouble_disk":
            return trouble_disk(folder, msgspec.json.decode(wanted, type=DiskTrouble))
        case _:
            raise SystemExit(f"on_host: there is no {verb!r}")


def main() -> None:
    """Do it, and print the proof."""
    verb, folder, *rest = sys.argv[1:]
    proof = done(verb, Path(folder), "".join(rest).encode())
    sys.stdout.write(msgspec.json.encode(proof).decode() + "\n")


if __name__ == "__main__":
    main()
