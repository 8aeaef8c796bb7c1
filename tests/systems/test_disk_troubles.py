"""Disks of described systems that are full, read-only, slow or failing: what is refused or held up is what a fault says, and it is proven by that alone."""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.systems.test_forgetful_disk import mounted, mounting
from tests.systems.test_redis import REDIS, judged
from tests.systems.test_sample import ONE_KILL, planned
from tests.systems.test_sample import judged as judged_plan
from tribunal.clusters.api import Proof, until
from tribunal.clusters.capabilities import DiskTrouble, Failing
from tribunal.clusters.systems.disks import ForgetfulDisk, Forgotten
from tribunal.clusters.systems.forgetful_disk import Inode, Lost
from tribunal.harness.new import made_system
from tribunal.harness.scenario import BadScenario
from tribunal.results.store import Recording
from tribunal.results.verdict import Verdict

SOON_MS = 100
TRYING = """
import errno, os, sys, time
os.chdir(sys.argv[1])
def tried(what):
    began = time.monotonic()
    try:
        what()
        said = "ok"
    except OSError as problem:
        said = errno.errorcode[problem.errno]
    return said, round(time.monotonic() - began, 1)
there = os.open("there", os.O_RDWR | os.O_CREAT)
at_once = os.open("at-once", os.O_RDWR | os.O_CREAT | os.O_DSYNC)
if os.fstat(there).st_size == 0:
    os.write(there, b"0123456789")
ready = open(sys.argv[2], "w")
while not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
print(*(word for what in (
    lambda: os.pwrite(there, b"x", 3),
    lambda: os.pwrite(there, b"more", os.fstat(there).st_size),
    lambda: os.close(os.open("new", os.O_CREAT | os.O_WRONLY)),
    lambda: os.read(there, 10),
    lambda: os.fsync(there),
    lambda: os.pwrite(at_once, b"x", 0),
) for word in tried(what)[:1]))
"""


async def tries(folder: Path, misbehave: Callable[[ForgetfulDisk], "asyncio.Future[Proof]"]) -> tuple[list[str], Proof]:
    """Return how a program's requests ended on a disk that misbehaves: a write within, one behind the end, a new name, a read, two syncs."""
    ready, go_on = folder / "ready", folder / "go-on"
    async with mounted(folder) as (disk, spaces, data):
        program = asyncio.create_task(
            spaces.run_aside(["python3", "-c", TRYING, str(data), str(ready), str(go_on)], name="1")
        )
        await until(ready.exists, timeout_ms=10_000, what="the program is ready")
        proven = asyncio.ensure_future(misbehave(disk))
        await asyncio.sleep(SOON_MS / 1000)
        go_on.touch()
        return (await program).split(), await proven


@mounting
@pytest.mark.parametrize(
    ("trouble", "ended"),
    [
        pytest.param("full", "ok ENOSPC ENOSPC ok ok ENOSPC", id="full"),
        pytest.param("read-only", "EROFS EROFS EROFS ok ok EROFS", id="read-only"),
        pytest.param("fine", "ok ok ok ok ok ok", id="fine"),
    ],
)
def test_what_a_disk_refuses_is_what_the_trouble_says(trouble: str, ended: str, tmp_path: Path) -> None:
    """A full disk has no room for more; what has room already is taken."""
    said, proof = asyncio.run(tries(tmp_path, lambda disk: disk.trouble(DiskTrouble(writes=trouble))))

    assert said == ended.split()
    assert proof.holds
    assert proof.facts["requests"] == ({} if trouble == "fine" else {trouble: proof.facts["requests"][trouble]})


@mounting
@pytest.mark.parametrize(
    ("failing", "ended"),
    [
        pytest.param("writes", "EIO EIO EIO ok ok EIO", id="writes"),
        pytest.param("syncs", "ok ok ok ok EIO EIO", id="syncs"),
    ],
)
def test_a_disk_that_fails_answers_such_requests_with_eio(failing: Failing, ended: str, tmp_path: Path) -> None:
    """The others are taken."""
    said, proof = asyncio.run(tries(tmp_path, lambda disk: disk.fail(failing)))

    assert (said, proof.holds) == (ended.split(), True)


@mounting
def test_a_slow_sync_holds_up_nobody_else_and_ends_at_once_when_the_disk_is_quick_again(tmp_path: Path) -> None:
    """Others' reads and writes are answered meanwhile; the proof is a sync that was held up to its end."""
    syncing = "import os, sys; held = open(sys.argv[1] + '/f', 'wb', 0); held.write(b'x'); os.fsync(held.fileno())"
    reading = "import os, sys; [os.stat(sys.argv[1] + '/f') for _ in range(50)]"

    async def tried() -> None:
        async with mounted(tmp_path) as (disk, spaces, data):
            began = time.monotonic()
            slow = asyncio.create_task(disk.trouble(DiskTrouble(fsync_delay_ms=1_500)))
            await spaces.run_aside(["python3", "-c", syncing, str(data)], name="1")
            took_s = time.monotonic() - began
            proof = await slow
            idle = await disk.trouble(DiskTrouble(fsync_delay_ms=60_000), within_ms=SOON_MS)
            # Not by `run_aside`: the keeper runs one command after the other.
            held_up = await asyncio.create_subprocess_exec(
                *spaces.command("1"), sys.executable, "-c", syncing, str(data)
            )
            await asyncio.sleep(SOON_MS / 1000)
            await spaces.run_aside(["python3", "-c", reading, str(data)], name="1")
            is_held = held_up.returncode is None
            mended = await disk.trouble(DiskTrouble())
            await asyncio.wait_for(held_up.wait(), 10)
        assert took_s >= 1.5
        assert (proof.holds, proof.facts["requests"]) == (True, {"delayed": 1})
        assert (idle.holds, is_held, mended.holds) == (False, True, True)

    asyncio.run(tried())


@mounting
def test_an_idle_node_proves_nothing(tmp_path: Path) -> None:
    """Nobody asked the disk for anything, so nobody knows what it would have done; another trouble's refusals are no proof either."""

    async def tried() -> tuple[Proof, Proof]:
        async with mounted(tmp_path) as (disk, spaces, data):
            writing = ["sh", "-c", f"while ! echo x > {data}/f; do sleep 0.01; done 2>/dev/null"]
            program = asyncio.create_task(spaces.run_aside(writing, name="1"))
            idle = await disk.fail("reads", within_ms=SOON_MS)
            await program
            refused = asyncio.create_task(spaces.run_aside(writing, name="1"))
            full = await disk.trouble(DiskTrouble(writes="read-only"))
            again = await disk.fail("reads", within_ms=SOON_MS)
            await disk.trouble(DiskTrouble())
            await refused
        assert full.holds
        return idle, again

    for proof in asyncio.run(tried()):
        assert not proof.holds
        assert "an idle node proves nothing" in str(proof.facts["missing"])


@mounting
def test_two_that_ask_a_disk_at_once_get_each_its_own_answer(tmp_path: Path) -> None:
    """Two faults of one node may overlap."""

    async def tried() -> list[Forgotten]:
        async with mounted(tmp_path) as (disk, _, _):
            return await asyncio.wait_for(asyncio.gather(*(disk.ask("opened") for _ in range(5))), 10)

    assert {one.held for one in asyncio.run(tried())} == {1}


def test_what_a_refused_sync_should_have_kept_is_not_kept_by_the_next_one() -> None:
    """As on ext4: the next sync says that all is well, and a loss of power shows what was not written."""
    inode = Inode(2, 0o100644, 0, 0)
    inode.write(0, b"first")
    inode.sync()
    inode.write(0, b"other and more")
    inode.forsake()
    inode.sync()
    assert inode.read(0, 20) == b"other and more"

    lost = inode.forget()

    assert lost == Lost(14, False, True)
    assert inode.read(0, 20) == b"first" + bytes(9)


def test_what_is_written_again_after_a_refused_sync_is_kept() -> None:
    """Who writes anew has its bytes synced, with the page that they are in."""
    inode = Inode(2, 0o100644, 0, 0)
    inode.write(0, b"first")
    inode.forsake()
    inode.write(0, b"again")
    inode.sync()

    assert inode.forget() == Lost(0, False, False)
    assert inode.read(0, 20) == b"again"


@pytest.mark.parametrize(
    ("fault", "capability"),
    [
        pytest.param("slow-fsync", "trouble_disk", id="slow"),
        pytest.param("full-disk", "trouble_disk", id="full"),
        pytest.param("read-only-disk", "trouble_disk", id="read-only"),
        pytest.param("failing-disk", "fail_disk", id="failing"),
        pytest.param("torn-loss", "lose_part", id="a part lost"),
    ],
)
def test_only_a_disk_between_the_node_and_its_files_misbehaves(fault: str, capability: str, tmp_path: Path) -> None:
    """A plan for any other is refused by the name of what is missing."""
    planned(tmp_path, ONE_KILL)

    with pytest.raises(BadScenario, match=rf'cannot {capability} \(.*keeper has no disk = "forgetful"\)'):
        planned(tmp_path, {"steps": f"[{{{fault}: node 1}}]"})


@mounting
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="not installed: redis-server")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("slow-fsync: node 1, delay_ms: 100", id="slow"),
        pytest.param("full-disk: node 1", id="full"),
        pytest.param("torn-loss: node 1", id="torn"),
        pytest.param("torn-loss: node 1, kept: reordered", id="reordered", marks=pytest.mark.nightly),
        pytest.param("torn-loss: node 1, kept: nothing, files: '**/*.aof'", id="of some files"),
        pytest.param("failing-disk: node 1, requests: syncs", id="failing", marks=pytest.mark.nightly),
        pytest.param("read-only-disk: node 1", id="read-only", marks=pytest.mark.nightly),
    ],
)
def test_a_server_that_syncs_each_change_loses_nothing_by_its_disk(fault: str, tmp_path: Path) -> None:
    """Redis with `appendfsync always` waits for a slow disk, and ends at one that refuses; what it acknowledged is there."""
    always = {"cluster.system": str(REDIS / "power-always.toml"), "time": "2s"}

    verdict = judged("power-loss.yaml", always | {"steps": f"[{{{fault}, for: 300ms, after: 300ms}}]"}, tmp_path)

    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])


@mounting
def test_a_loss_of_files_that_there_are_not_is_not_proven(tmp_path: Path) -> None:
    """It takes nothing, and says which files there are."""
    made_system("keeper", tmp_path)
    file = tmp_path / "keeper" / "system.toml"
    file.write_text(file.read_text().replace("[nodes]\n", '[nodes]\ndisk = "forgetful"\n'))
    steps = "[{torn-loss: node 1, kept: nothing, files: 'wal/*', for: 300ms, after: 300ms}]"
    plan = planned(tmp_path, {"steps": steps, "time": "1s", "cluster.isolation": "namespaces"})

    verdict, run_dir = judged_plan(plan, tmp_path / "runs")

    assert verdict.verdict is Verdict.INCONCLUSIVE
    (fault,) = Recording.open(run_dir).table("faults").to_pylist()
    assert "a file that matches 'wal/*'; there is log" in fault["proof"]
