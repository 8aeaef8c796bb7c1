"""A disk that forgets what was not synced: what it keeps is what a sync made last, and a system that syncs too late is convicted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.systems.test_sample import ONE_KILL, planned
from tribunal.clusters.capabilities import PartLost
from tribunal.clusters.namespaces.spaces import Namespaces, way_in
from tribunal.clusters.systems.disks import ForgetfulDisk, Forgotten, lacking
from tribunal.clusters.systems.forgetful_disk import PAGE, SECTOR, Inode, Lost, matches
from tribunal.harness.scenario import BadScenario

LACKING = str(way_in()) if isinstance(way_in(), str) else lacking()
mounting = pytest.mark.skipif(bool(LACKING), reason=LACKING or "there are such disks")

PLACES = st.integers(0, 3 * PAGE)
ACTS = st.one_of(
    st.tuples(st.just("write"), PLACES, st.binary(min_size=1, max_size=2 * PAGE)),
    st.tuples(st.just("resize"), PLACES, st.just(b"")),
    st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    st.tuples(st.just("forget"), st.just(0), st.just(b"")),
)
NO_CUT = ACTS.filter(lambda act: act[0] != "resize")


@given(st.lists(ACTS, max_size=30))
def test_a_file_has_after_each_act_what_plain_bytes_would_have(acts: list[tuple[str, int, bytes]]) -> None:
    """Against a model that copies all of its bytes at each sync."""
    inode, live, synced = Inode(2, 0o100644, 0, 0), bytearray(), b""
    written: set[int] = set()
    for act, place, data in acts:
        if act == "write":
            inode.write(place, data)
            live.extend(bytes(max(0, place - len(live))))
            live[place : place + len(data)] = data
            written |= set(range(place, place + len(data)))
        elif act == "resize":
            inode.resize(place)
            live = live[:place] + bytes(max(0, place - len(live)))
        elif act == "sync":
            inode.sync()
            synced = bytes(live)
            written.clear()
        else:
            lost = inode.forget()
            differing = sum(one != other for one, other in zip(live, synced, strict=False))
            assert lost.has_other_length == (len(live) != len(synced))
            assert lost.is_changed or bytes(live) == synced
            assert len({one for one in written if one < len(live)}) <= lost.bytes <= len(live)
            assert lost.bytes >= differing
            live = bytearray(synced)
            written.clear()
        assert (inode.size, inode.read(0, 10 * PAGE)) == (len(live), bytes(live))


@given(st.lists(NO_CUT, max_size=20))
def test_each_byte_that_was_written_and_not_synced_is_counted_once(acts: list[tuple[str, int, bytes]]) -> None:
    """Whatever pages it lies in, and however often it was written."""
    inode, written = Inode(2, 0o100644, 0, 0), set[int]()
    for act, place, data in acts:
        if act == "write":
            inode.write(place, data)
            written |= set(range(place, place + len(data)))
            continue
        if act == "sync":
            inode.sync()
        else:
            assert inode.forget().bytes == len(written)
        written.clear()


@pytest.mark.parametrize(
    ("synced", "after", "lost"),
    [
        pytest.param(b"", lambda inode: inode.write(0, b"x"), Lost(1, True, True), id="one byte"),
        pytest.param(b"abc", lambda inode: inode.write(1, b"x"), Lost(1, False, True), id="a byte within"),
        pytest.param(b"", lambda inode: inode.resize(1 << 20), Lost(0, True, True), id="room made in advance"),
        pytest.param(
            b"",
            lambda inode: (inode.resize(1 << 20), inode.write(5, b"xy")),
            Lost(2, True, True),
            id="two bytes in such room",
        ),
        pytest.param(b"abc", lambda inode: inode.resize(1), Lost(0, True, True), id="cut"),
        pytest.param(
            b"abc", lambda inode: (inode.resize(1), inode.resize(3)), Lost(2, False, True), id="cut and made zeros"
        ),
        pytest.param(
            b"abc", lambda inode: (inode.write(3, b"xyz"), inode.resize(3)), Lost(0, False, True), id="written and cut"
        ),
        pytest.param(b"abc", lambda _: None, Lost(0, False, False), id="nothing"),
    ],
)
def test_bytes_and_lengths_are_counted_apart(synced: bytes, after: Callable[[Inode], object], lost: Lost) -> None:
    """A page is no byte, and a length is no data."""
    inode = Inode(2, 0o100644, 0, 0)
    inode.write(0, synced)
    inode.sync()

    after(inode)

    assert inode.forget() == lost
    assert inode.read(0, 10) == synced


def synced_after(acts: list[tuple[str, int, bytes]]) -> tuple[Inode, bytes]:
    """Return a file that was synced after some acts, and what it held then."""
    inode = Inode(2, 0o100644, 0, 0)
    done(inode, acts)
    inode.sync()
    return inode, inode.read(0, 1 << 20)


@given(synced=st.lists(ACTS, max_size=6), after=st.lists(NO_CUT, max_size=12), seed=st.integers(0, 99))
def test_a_torn_loss_leaves_the_first_bytes_of_what_was_not_synced(
    synced: list[tuple[str, int, bytes]], after: list[tuple[str, int, bytes]], seed: int
) -> None:
    """In the file's order all that changed before some place is there, and nothing of it behind that; what was synced is whole."""
    inode, old = synced_after(synced)
    done(inode, [one for one in after if one[0] == "write"])
    live = inode.read(0, 1 << 20)

    kept = inode.keep_part("torn", Random(seed))
    lost = inode.forget()

    found = inode.read(0, 1 << 20)
    padded = old.ljust(len(live), b"\0")
    assert len(old) <= len(found) <= len(live)
    assert any(found == (live[:place] + padded[place:])[: len(found)] for place in range(len(live) + 1))
    assert (kept + lost.bytes > 0) == any(one[0] == "write" for one in after)
    assert inode.forget() == Lost(0, False, False)


@given(begin=st.integers(0, 9_000), length=st.integers(1, 9_000), seed=st.integers(0, 99))
def test_no_sector_that_was_synced_is_torn(begin: int, length: int, seed: int) -> None:
    """A disk writes a sector whole or not at all; systems find a torn record by the zeros of sectors that were made in advance."""
    inode = Inode(2, 0o100644, 0, 0)
    done(inode, [("resize", 20_000, b""), ("sync", 0, b""), ("write", begin, b"x" * length)])

    inode.keep_part("torn", Random(seed))
    inode.forget()

    found = inode.read(0, 1 << 20)
    end = found.rfind(b"x") + 1
    assert found == bytes(begin) + b"x" * (end - begin) + bytes(20_000 - end) if end else found == bytes(20_000)
    assert end % SECTOR == 0


def test_of_what_was_cut_again_nothing_reaches_the_disk() -> None:
    """A page of which no byte is left that changed has no place where it could be torn."""
    inode = Inode(2, 0o100644, 0, 0)
    done(inode, [("write", 0, b"first"), ("sync", 0, b""), ("write", 5, b"and more"), ("resize", 5, b"")])

    assert inode.keep_part("torn", Random(1)) == 0
    assert inode.forget() == Lost(0, False, True)
    assert inode.read(0, 20) == b"first"


@given(synced=st.lists(ACTS, max_size=6), after=st.lists(ACTS, max_size=12), seed=st.integers(0, 99))
def test_a_reordered_loss_leaves_each_page_as_it_was_or_as_it_is(
    synced: list[tuple[str, int, bytes]], after: list[tuple[str, int, bytes]], seed: int
) -> None:
    """Whatever was done; the length is one that the file had at its sync, or has, or that a page on the disk takes."""
    inode, old = synced_after(synced)
    done(inode, [one for one in after if one[0] in ("write", "resize")])
    live = inode.read(0, 1 << 20)

    inode.keep_part("reordered", Random(seed))
    inode.forget()

    found = inode.read(0, 1 << 20)
    assert len(old) <= len(found) <= max(len(old), len(live))
    for begin in range(0, len(found), PAGE):
        wanted = [one.ljust(len(found), b"\0")[begin : min(begin + PAGE, len(found))] for one in (old, live)]
        assert found[begin : begin + PAGE] in wanted


def done(inode: Inode, acts: list[tuple[str, int, bytes]]) -> None:
    """Do some acts."""
    for act, place, data in acts:
        if act == "write":
            inode.write(place, data)
        elif act == "resize":
            inode.resize(place)
        elif act == "sync":
            inode.sync()


WRITING = """
import os, sys
os.chdir(sys.argv[1])
os.makedirs("folder/inner")
kept = open("kept", "wb", buffering=0)
kept.write(b"k" * 10_000)
open("old", "wb", buffering=0).write(b"not synced")
with open("moved", "wb", buffering=0) as moved:
    moved.write(b"m" * 5)
    os.fsync(moved.fileno())
os.fsync(kept.fileno())
kept.write(b"gone")
os.pwrite(kept.fileno(), b"gone", 3)
os.rename("moved", "elsewhere")
open("new", "wb").close()
at_once = os.open("folder/inner/at-once", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
os.write(at_once, b"at once")
os.unlink("new")
"""
READING = """
import os, sys
os.chdir(sys.argv[1])
for folder, _, names in sorted(os.walk(".")):
    for name in sorted(names):
        print(folder, name, open(os.path.join(folder, name), "rb").read()[:12])
print(os.stat("kept").st_size)
"""


EMPTYING = """
import os, sys
os.chdir(sys.argv[1])
os.mkdir("many")
for number in range(3000):
    open(f"many/{number:060}", "w").close()
with os.scandir("many") as listed:
    for one in listed:
        os.unlink(one.path)
os.rmdir("many")
"""
COUNTED = """
import os, sys
os.chdir(sys.argv[1])
def written(name, data):
    made = open(name, "wb+", buffering=0)
    made.write(data)
    return made
removed, kept = written("removed", b"r" * 500), written("kept", b"k" * 500)
os.fsync(kept.fileno())
removed.write(b"r" * 700)
os.unlink("removed")
kept.write(b"1")
os.posix_fallocate(kept.fileno(), 0, 100_000)
for number in range(30):
    written(f"log-{number}", b"l" * 10_000).close()
    os.unlink(f"log-{number}")
os.link("kept", "second")
print(os.fstat(kept.fileno()).st_nlink, os.fstat(removed.fileno()).st_nlink)
os.pread(removed.fileno(), 2000, 0).decode().index("r" * 1200)
"""
LINGERING = """
import os, sys, time
held = open(os.path.join(sys.argv[1], "held"), "wb", buffering=0)
if os.fork() == 0:
    os.setsid()
    held.write(b"x")
    for _ in range(6000):  # should nobody be there any more who lets it end
        if os.path.exists(sys.argv[2]):
            break
        time.sleep(0.01)
"""


@asynccontextmanager
async def mounted(folder: Path) -> AsyncIterator[tuple[ForgetfulDisk, Namespaces, Path]]:
    """Have a disk on a folder `data` in namespaces; yield it with these and the folder."""
    data, run_dir = folder / "data", folder / "run"
    data.mkdir()
    run_dir.mkdir()
    spaces = Namespaces(run_dir)
    spaces.open()
    disk = ForgetfulDisk(data, folder / "disk.log", run_dir)
    try:
        spaces.make("1")
        await disk.mount(spaces.command("1"))
        yield disk, spaces, data
    finally:
        await disk.close()
        spaces.close()


@mounting
def test_what_was_synced_is_there_after_a_loss_and_nothing_else(tmp_path: Path) -> None:
    """Bytes by their file's sync, names by any; a file whose name alone was synced is empty, as on a journaled file system."""

    async def tried() -> None:
        async with mounted(tmp_path) as (disk, spaces, data):
            await spaces.run_aside(["python3", "-c", WRITING, str(data)], name="1")
            lost = await disk.ask("forget")
            found = await spaces.run_aside(["python3", "-c", READING, str(data)], name="1")
            left = await disk.ask("forget")
            wiped = await disk.ask("wipe")
            listed = await spaces.run_aside(["ls", str(data)], name="1")
        assert found.splitlines() == [
            ". elsewhere b'mmmmm'",
            ". kept b'kkkkkkkkkkkk'",
            ". new b''",  # its name was synced with another file, its removal was not
            ". old b''",
            "./folder/inner at-once b'at once'",
            "10000",
        ]
        assert (lost.bytes, lost.lengths, lost.files, lost.names) == (10 + 8, 2, 2, 1)
        assert (left, listed) == (Forgotten(), "")
        assert wiped.bytes == 10_000 + 5 + 7
        assert list(data.iterdir()) == []  # outside the namespaces there never was anything

    asyncio.run(tried())


@mounting
def test_a_loss_counts_bytes_of_files_that_have_a_name_and_keeps_no_others(tmp_path: Path) -> None:
    """What was unlinked is missed by nobody; nor does it fill the memory of the disk."""

    async def tried() -> None:
        async with mounted(tmp_path) as (disk, spaces, data):
            links = await spaces.run_aside(["python3", "-c", COUNTED, str(data)], name="1")
            held = await disk.ask("opened")
            lost = await disk.ask("forget")
        assert links == "2 0\n"
        assert held.held <= 3  # the root, and `kept` and `removed`, which was synced under its name
        assert (lost.bytes, lost.lengths, lost.files) == (1, 1, 1)

    asyncio.run(tried())


@mounting
def test_a_part_of_what_was_not_synced_may_have_reached_the_disk(tmp_path: Path) -> None:
    """Of files whose name is on the disk; the loss that follows has nothing left to take."""
    writing = (
        "import os, sys; os.chdir(sys.argv[1]); held = open('held', 'wb', 0); held.write(b's' * 5000); os.fsync(held.fileno());"
        "held.write(b'u' * 50_000); open('nameless', 'wb', 0).write(b'n' * 9000)"
    )
    reading = "import os, sys; os.chdir(sys.argv[1]); print(os.listdir('.'), open('held', 'rb').read().decode())"

    async def tried() -> None:
        async with mounted(tmp_path) as (disk, spaces, data):
            await spaces.run_aside(["python3", "-c", writing, str(data)], name="1")
            lost = await disk.forget_part(PartLost(files="**/*", kept="torn", seed=5))
            names, content = (await spaces.run_aside(["python3", "-c", reading, str(data)], name="1")).split()
            left = await disk.ask("forget")
        assert (names, content) == ("['held']", "s" * 5000 + "u" * lost.kept)
        assert 0 < lost.kept < 50_000
        assert lost.bytes == 50_000 - lost.kept + 9000
        assert left == Forgotten()

    asyncio.run(tried())


@mounting
def test_a_loss_may_be_one_of_some_files(tmp_path: Path) -> None:
    """Of others all had reached the disk, and all names, as when the kernel had written them by itself; a new file that is meant is empty then."""
    writing = (
        "import os, sys; os.chdir(sys.argv[1]); os.makedirs('wal/old')\n"
        "for name in ('wal/1.log', 'wal/old/0.log', 'index'):\n"
        "    file = open(name, 'wb', 0); file.write(b's' * 100); os.fsync(file.fileno()); file.write(b'u' * 900)\n"
        "open('wal/2.log', 'wb', 0).write(b'n' * 50); open('new', 'wb', 0).write(b'n' * 60); os.rename('index', 'wal/index')"
    )
    reading = (
        "import os, sys; os.chdir(sys.argv[1])\n"
        "print(*(os.path.getsize(name) for name in ('wal/1.log', 'wal/2.log', 'wal/old/0.log', 'wal/index', 'new')))"
    )

    async def tried() -> None:
        async with mounted(tmp_path) as (disk, spaces, data):
            await spaces.run_aside(["python3", "-c", writing, str(data)], name="1")
            lost = await disk.forget_part(PartLost(files="wal/*.log", kept="nothing", seed=1))
            said = (await spaces.run_aside(["python3", "-c", reading, str(data)], name="1")).split()
            none = await disk.forget_part(PartLost(files="wal/*.idx", kept="nothing", seed=1))
        assert said == ["100", "0", "1000", "1000", "60"]
        assert (lost.bytes, lost.kept, lost.names, lost.matching, lost.others) == (900 + 50, 2 * 900 + 60, 0, 2, ())
        assert (none.matching, none.others) == (0, ("new", "wal/1.log", "wal/2.log", "wal/index", "wal/old/0.log"))

    asyncio.run(tried())


def test_what_a_sync_was_refused_for_is_gone_also_of_a_file_whose_bytes_had_reached_the_disk() -> None:
    inode = Inode(2, 0o100644, 0, 0)
    done(inode, [("write", 0, b"first"), ("sync", 0, b""), ("write", PAGE, b"refused")])
    inode.forsake()
    done(inode, [("write", 2 * PAGE, b"later")])

    assert inode.keep_all() == 5
    inode.forget()

    assert inode.read(PAGE, 2 * PAGE) == bytes(PAGE) + b"later"


@pytest.mark.parametrize(
    ("path", "pattern", "is_meant"),
    [
        ("a", "**/*", True), ("d/a", "**/*", True), ("d/e/a", "**/*", True), ("d/a", "*", False), ("a", "*", True),
        ("d/a", "d/*", True), ("d/e/a", "d/*", False), ("d/e/a", "d/**/a", True), ("d/a", "d/**/a", True), ("d/A", "d/a", False),
        ("d/a.log", "**/*.log", True), ("d/a.logs", "**/*.log", False), (".a", "*", True), ("d", "d/**", False),
    ],
)  # fmt: skip
def test_a_pattern_means_files_by_their_names(path: str, pattern: str, is_meant: bool) -> None:
    assert matches(path.split("/"), pattern.split("/")) is is_meant


@mounting
def test_a_folder_is_listed_whole_while_its_files_are_removed(tmp_path: Path) -> None:
    """A place in the listing must not mean another name when names before it are gone: `rmdir` would refuse."""

    async def tried() -> str:
        async with mounted(tmp_path) as (_, spaces, data):
            await spaces.run_aside(["python3", "-c", EMPTYING, str(data)], name="1")
            return await spaces.run_aside(["ls", str(data)], name="1")

    assert asyncio.run(tried()) == ""


@mounting
def test_whoever_still_has_a_file_open_could_write_after_the_loss(tmp_path: Path) -> None:
    """A node's child may outlive its kill: the disk says that a file is open until that child has ended too."""

    async def tried() -> tuple[bool, bool]:
        async with mounted(tmp_path) as (disk, spaces, data):
            go_on = tmp_path / "go-on"
            await spaces.run_aside(
                ["sh", "-c", f"python3 -c '{LINGERING}' {data} {go_on} >/dev/null 2>&1 </dev/null"], name="1"
            )
            try:
                while_held = await disk.is_closed(within_ms=100)
            finally:
                go_on.touch()
            return while_held, await disk.is_closed(within_ms=10_000)

    assert asyncio.run(tried()) == (False, True)


@pytest.mark.parametrize(
    ("disk", "overrides", "words"),
    [
        pytest.param("plain", {}, r"cannot power_fail \(nobody knows what was not synced", id="no such disk"),
        pytest.param("forgetful", {}, "mounted in namespaces: --set cluster.isolation=namespaces", id="no namespaces"),
    ],
)
def test_power_is_taken_only_from_disks_that_know_what_was_not_synced(
    disk: str, overrides: dict[str, str], words: str, tmp_path: Path
) -> None:
    """Killing alone would take nothing from a disk, and pass for a loss of power."""
    plan = {"steps": "[{power-loss: node 1}]"}
    planned(tmp_path, ONE_KILL)
    described = tmp_path / "keeper" / "system.toml"
    described.write_text(described.read_text().replace("[nodes]", f'[nodes]\ndisk = "{disk}"'))

    with pytest.raises(BadScenario, match=words):
        planned(tmp_path, plan | overrides)
