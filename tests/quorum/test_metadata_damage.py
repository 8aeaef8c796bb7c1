"""Damaged metadata stops a node, which says file, position and reason; what a crash may tear is cut and fetched again."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replog.host.world import RealDisk
from replog.node.quorum.metadata_damage import DamagedMetadata, SyncedEnd, check_synced
from replog.node.quorum.metadata_log import metadata_directory
from tests.quorum.quorum_nodes import Nodes, until

RECORDS = 40


def lived(folder: Path, *, snapshot: bool = False) -> tuple[Nodes, Path]:
    """A member that has committed records and was killed; its folder."""
    nodes = Nodes(folder, voters=1)

    async def main() -> None:
        await nodes.start()
        leader = await nodes.led()
        for number in range(RECORDS):
            leader.quorum.append([b"record %d" % number])
            await until(lambda: leader.quorum.applied_offset == leader.quorum.log_end_offset)
            if snapshot and number == RECORDS // 2:
                leader.quorum.take_snapshot([b"a snapshot of them"])
        nodes.kill(101)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    return nodes, Path(metadata_directory(nodes.config(101)))


def comes_back(nodes: Nodes) -> list[bytes]:
    """Start the member again; return the records that it knows, or raise what stops it."""
    found: list[bytes] = []

    async def main() -> None:
        try:
            await nodes.start()
            leader = await nodes.led()
            await until(lambda: leader.quorum.applied_offset == leader.quorum.log_end_offset)
            found.extend(leader.state.values)
        finally:
            nodes.close()
            await asyncio.sleep(0.01)

    asyncio.run(main())
    return found


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern))


def test_what_was_synced_is_known_and_read_again(tmp_path: Path) -> None:
    nodes, folder = lived(tmp_path)
    end = SyncedEnd(RealDisk(), str(folder)).offset

    assert end > RECORDS
    check_synced(RealDisk(), str(folder), start=0, end=end)
    assert comes_back(nodes) == [b"record %d" % number for number in range(RECORDS)]


DAMAGES: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "a bit of the log": ("*.log", lambda path: flip(path, path.stat().st_size // 2), "checksum"),
    "the first bit of a batch": ("*.log", lambda path: flip(path, 3), "offset"),
    "the log's end": ("*.log", lambda path: path.write_bytes(path.read_bytes()[:-30]), "torn"),
    "the log": ("*.log", lambda path: path.write_bytes(b""), "was synced up to"),
    "a whole segment": ("*.log", Path.unlink, "missing"),
    "the quorum's state": ("quorum-state", lambda path: path.write_bytes(b"{"), "not a quorum state"),
    "the quorum's state, emptied": ("quorum-state", lambda path: path.write_bytes(b""), "not a quorum state"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_stops_the_node_and_changes_nothing(tmp_path: Path, what: str) -> None:
    pattern, damage, words = DAMAGES[what]
    nodes, folder = lived(tmp_path)
    path = newest(folder, pattern)
    damage(path)
    before = {one: one.read_bytes() for one in sorted(folder.iterdir()) if one.is_file()}

    with pytest.raises(DamagedMetadata) as stopped:
        comes_back(nodes)

    assert stopped.value.path == str(path)
    assert words in stopped.value.reason
    assert str(path) in str(stopped.value)
    assert f"at {stopped.value.position}" in str(stopped.value)
    assert {one: one.read_bytes() for one in sorted(folder.iterdir()) if one.is_file()} == before


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        pytest.param(lambda path: flip(path, path.stat().st_size // 2), "checksum", id="a bit"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-40]), "", id="cut off"),
        pytest.param(lambda path: path.write_bytes(b""), "no footer", id="emptied"),
    ],
)
def test_a_damaged_snapshot_stops_the_node(tmp_path: Path, damage: Callable[[Path], Any], words: str) -> None:
    nodes, folder = lived(tmp_path, snapshot=True)
    path = newest(folder, "*.checkpoint")
    damage(path)

    with pytest.raises(DamagedMetadata) as stopped:
        comes_back(nodes)

    assert stopped.value.path == str(path)
    assert words in stopped.value.reason


def test_a_log_that_begins_where_no_snapshot_ends_stops_the_node(tmp_path: Path) -> None:
    nodes, folder = lived(tmp_path)
    segment = newest(folder, "*.log")
    for suffix in (".log", ".index", ".timeindex"):
        old = segment.with_suffix(suffix)
        if old.exists():
            old.unlink()
    (folder / "synced-end").unlink()
    later = folder / "00000000000000000020.log"
    later.write_bytes(b"what recovery would cut off" * 10)
    before = {one: one.read_bytes() for one in sorted(folder.iterdir()) if one.is_file()}

    with pytest.raises(DamagedMetadata, match="no snapshot reaches it"):
        comes_back(nodes)

    assert {one: one.read_bytes() for one in sorted(folder.iterdir()) if one.is_file()} == before


def test_what_a_controller_decides_at_once_is_written_however_small_segments_are(tmp_path: Path) -> None:
    """A topic of many partitions is one batch: refusing it would end one controller after the other."""
    nodes = Nodes(tmp_path, voters=1, **{"log.segment.bytes": 2_000})
    records = [b"%100d" % number for number in range(100)]

    async def main() -> None:
        await nodes.start()
        leader = await nodes.led()
        for appended in (records[:1], records[1:99], records[99:]):
            leader.quorum.append(appended)
            await until(lambda: leader.quorum.applied_offset == leader.quorum.log_end_offset)
        assert len(leader.log.segments) > 1
        nodes.kill(101)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert comes_back(nodes) == records


def test_a_torn_end_that_was_never_acknowledged_is_cut_off(tmp_path: Path) -> None:
    """A crash between write and sync: no majority counts on it."""
    nodes, folder = lived(tmp_path)
    with newest(folder, "*.log").open("ab") as log:
        log.write(b"\x00\x00\x00\x00\x00\x00\x00\x64half a batch")

    assert comes_back(nodes) == [b"record %d" % number for number in range(RECORDS)]


@pytest.mark.parametrize("content", [b"", b"torn", bytes(12), b"\xff" * 12])
def test_a_torn_note_of_the_synced_end_says_nothing(tmp_path: Path, content: bytes) -> None:
    nodes, folder = lived(tmp_path)
    (folder / "synced-end").write_bytes(content)

    assert SyncedEnd(RealDisk(), str(folder)).offset == 0
    assert len(comes_back(nodes)) == RECORDS


def test_the_note_goes_down_before_the_log_is_cut(tmp_path: Path) -> None:
    end = SyncedEnd(RealDisk(), str(tmp_path))
    end.raise_to(100)
    end.raise_to(90)
    end.lower_to(40)
    end.lower_to(60)

    assert SyncedEnd(RealDisk(), str(tmp_path)).offset == 40
