"""The process on a Spark worker that runs seeds: plans come in by stdin, results go out by stdout, a forked child runs each.

Usage: `python -m tribunal.harness.campaign.seed_server DESCRIPTOR`; whoever started it holds the other end of that pipe, and when
nobody holds it any more, this process and its children end.
"""

import io
import os
import shutil
import signal
import sys
import tarfile
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from tribunal.clusters.simulated.guards import counted
from tribunal.harness.campaign.seed_task import LENGTH, NOTES_STATES
from tribunal.harness.campaign.sweep import SeedResult, run_name, states_file, swept
from tribunal.harness.plan import Plan
from tribunal.harness.simulated import warm_up
from tribunal.results.scratch import Scratch, remove_abandoned

READY: Final = b"ready"


def serve(plans: BinaryIO, results: BinaryIO) -> None:
    """Run plans until there are no more."""
    warm_up()
    with Scratch("seeds", in_memory=True) as scratch, counted() as guards:
        _send(results, READY)
        while head := plans.read(NOTES_STATES.size):
            (notes_states,) = NOTES_STATES.unpack(head)
            plan = msgspec.json.decode(plans.read(*LENGTH.unpack(plans.read(LENGTH.size))), type=Plan)
            (result,) = swept(
                [plan], jobs=1, budget_s=None, scratch=scratch, guards=guards, notes_states=notes_states
            ).results
            _send(results, msgspec.json.encode(result))
            _send(results, packed(result))
            _send(results, taken(states_file(scratch / run_name(plan))))


def packed(result: SeedResult) -> bytes:
    """Take a run's folder away as a tar archive, empty if there is nothing to look at."""
    folder = Path(result.run_dir)
    if not result.run_dir or not folder.is_dir():
        return b""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=".")
    shutil.rmtree(folder)
    return content.getvalue()


def taken(path: Path) -> bytes:
    """Take a file away; empty where there is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    path.unlink()
    return content


def _send(results: BinaryIO, content: bytes) -> None:
    results.write(LENGTH.pack(len(content)) + content)
    results.flush()


def _end_with(descriptor: int) -> None:
    """Fork a watcher that ends this whole group of processes when nobody holds the pipe's other end any more."""
    if os.fork() == 0:
        for own in (0, 1):  # held here, they would keep who reads from a server that was killed waiting for ever
            os.close(own)
        os.read(descriptor, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.close(descriptor)


def main() -> None:
    """Serve whoever started this process."""
    _end_with(int(sys.argv[1]))
    plans, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a run prints is no result
    remove_abandoned()  # of servers whose machine or worker was killed
    serve(plans, results)


if __name__ == "__main__":
    main()
