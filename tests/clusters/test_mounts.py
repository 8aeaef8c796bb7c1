"""A node's folder on a small disk, mounted in a namespace that ends with the test's own process."""

import os
import shutil
import subprocess
import sys

import pytest


def may_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = ["unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not may_mount(), reason="mounting takes root, and a machine that lets it mount")
STORY = """
import asyncio, subprocess, sys
from pathlib import Path
from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.mounts import MountedDisks, below

async def run(argv):
    done = subprocess.run(list(argv), capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(done.stderr)
    return done.stdout

async def main(folder):
    disks = MountedDisks(run, lambda node: folder, while_running=False)
    try:
        await disks.move(1)
        print("moved")
    except ClusterError as problem:
        print("refused:", "No space left" in str(problem))
    await disks.close()
    print("mounted:", below(folder.parent), folder.with_name("n1.small").exists())

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.parametrize(("size_mb", "said"), [(1, "moved"), (70, "refused: True")])
def test_a_disk_comes_back_whole(tmp_path, size_mb, said):
    folder = tmp_path / "n1"
    (folder / "data").mkdir(parents=True)
    for name in ("events.jsonl", "control.page"):
        (folder / name).touch()
    records = folder / "data" / "records"
    records.write_bytes(b"r" * (size_mb << 20))

    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", sys.executable, "-c", STORY, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert records.stat().st_size == size_mb << 20
    assert done.stdout.splitlines() == [said, "mounted: [] False"]
