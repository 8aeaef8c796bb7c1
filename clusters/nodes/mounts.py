"""Full and read-only disks by real mounts: the kernel refuses the write, not the node's disk port.

*Full*: the node's folder moves, while the node is down, to a small file system in memory, which is then shrunk to what lies
in it; every further write gets ENOSPC. *Read-only*: the node's folder is mounted on itself, read-only; what the node had
open stays writable, as after a remount, but everything that it opens, makes or renames gets EROFS. Its event file and
its control page are no disk of its own, and stay as they are.

The mounts live in the namespaces of the run's processes, or (containers) in the machine's own, which takes root; there
`below` finds what a killed harness has left. So do the forgetful disks of described systems in containers (`clusters/systems/disks.py`).
"""

import shlex
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from tribunal.clusters.api import ClusterError, Proof

Runner = Callable[[Sequence[str]], Awaitable[str]]  # runs a command where the mounts are to be; `ClusterError`

SMALL_BYTES: Final = 64 << 20
BESIDES: Final = ("events.jsonl", "control.page")
MOUNTS: Final = Path("/proc/self/mountinfo")
COMPLAINT_LETTERS: Final = 300
# (The shell passes over a failure in front of `&&`, also by `set -e`: what must not fail has a line of its own.)
MOVE: Final = """set -e
mkdir -p {small}
undone() {{ umount -R {small}; rmdir {small}; }}
trap undone EXIT
mount -t tmpfs -o size={size} tribunal {small}
cp -a {folder}/. {small}/
rm -rf {small}/undo
for name in {besides}; do mount --bind {folder}/$name {small}/$name; done
mount --rbind {small} {folder}
trap - EXIT"""
# The node goes on writing, so a little room is left to it, and then taken.
SHRINK: Final = """set -e
used=$(($(stat -f -c '%b - %f' {small})))
mount -o remount,nr_blocks=$((used + 256)) {small}
dd if=/dev/zero of={small}/filler bs=4096 2>/dev/null || true"""
MOVE_BACK: Final = """set -e
umount -R {folder}
rm -rf {folder}/data {folder}/undo
cp -a {small}/data {folder}/data
umount -R {small}
rmdir {small}"""
FREEZE: Final = """set -e
mount --bind {folder} {folder}
for name in {besides}; do mount --bind {folder}/$name {folder}/$name; done
mount -o remount,bind,ro {folder}"""
THAW: Final = "umount -R {folder}"
TRY: Final = 'f={folder}/data/tribunal-probe; head -c 8192 /dev/zero >"$f" && rm -f "$f"'


class MountedDisks:
    """The disks of one cluster's nodes."""

    def __init__(self, run: Runner, folder: Callable[[int], Path], *, while_running: bool) -> None:
        self.while_running = while_running  # whether a running node sees what is mounted meanwhile
        self._run = run
        self._folder = folder
        self._small: set[int] = set()
        self._frozen: set[int] = set()

    async def move(self, node: int) -> None:
        """Move a dead node's folder to a small file system; `ClusterError` where it does not fit: it is as it was."""
        await self._shell(MOVE, node)
        self._small.add(node)

    async def fill(self, node: int) -> Proof:
        """Take away the room that is left; a node may be running."""
        await self._shell(SHRINK, node)
        return await self._refused(node, "No space left on device")

    async def freeze(self, node: int) -> Proof:
        """Let nothing new be written; a node may be running."""
        self._frozen.add(node)
        await self._shell(FREEZE, node)
        return await self._refused(node, "Read-only file system")

    async def mend(self, node: int) -> Proof:
        """Give a dead node its old disk back, with what it wrote meanwhile."""
        if node in self._frozen:
            await self._shell(THAW, node)
            self._frozen.discard(node)
        if node in self._small:
            await self._shell(MOVE_BACK, node)
            self._small.discard(node)
        try:
            await self._shell(TRY, node)
        except ClusterError as problem:
            return Proof(holds=False, facts={"write": str(problem)})
        return Proof(holds=True, facts={"write": "taken"})

    async def close(self) -> None:
        """Give every disk back."""
        for node in sorted(self._small | self._frozen):
            await self.mend(node)

    async def _refused(self, node: int, why: str) -> Proof:
        """Prove by a write of one's own that there is no room."""
        try:
            await self._shell(TRY, node)
        except ClusterError as problem:
            return Proof(holds=why in str(problem), facts={"write": str(problem).rpartition(": ")[2]})
        return Proof(holds=False, facts={"write": "taken"})

    async def _shell(self, script: str, node: int) -> None:
        folder = self._folder(node)
        words = {
            "folder": shlex.quote(str(folder)),
            "small": shlex.quote(f"{folder}.small"),
            "size": SMALL_BYTES,
            "besides": " ".join(BESIDES),
        }
        await self._run(["sh", "-c", script.format(**words)])


def below(folder: Path) -> list[Path]:
    """Return what is mounted on a folder and in it, the innermost first."""
    own = str(folder.resolve())
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return []
    found = [line.split()[4].replace("\\040", " ") for line in lines]
    return [Path(path) for path in reversed(found) if path == own or path.startswith(f"{own}/")]


def mount_here(argv: list[str]) -> str:
    """Run a command of mounting on this machine; `ClusterError` with its complaint."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603 - our own scripts
    if done.returncode != 0:
        raise ClusterError(f"mounting: {' '.join(done.stderr.split())[:COMPLAINT_LETTERS]}")
    return done.stdout


def unmount_all(folder: Path) -> list[str]:
    """Take away what is mounted on a folder and in it; return what was taken. Raises ClusterError."""
    return [f"{path} unmounted" for path in below(folder) if mount_here(["umount", str(path)]) == ""]
