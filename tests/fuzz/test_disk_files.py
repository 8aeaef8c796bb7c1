"""Files of a node's disk with something else in them, and batches of clients: refused by name, or what a checksum vouches for; never a traceback.

The gate draws the same changes every time; the night goes on with other seeds. By hand: `python -m tests.fuzz.test_disk_files --minutes 30 --seed x`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

import pytest

from replog.errors import Error
from replog.host.world import RealDisk
from replog.log.batch import (
    HEADER_BYTES,
    ControlType,
    CorruptBatch,
    NewRecord,
    build,
    control_batch,
    header_at,
    records,
)
from replog.log.checkpoints import CorruptCheckpoint, read_offsets, rendered
from replog.log.clean_shutdown import broker_epoch
from replog.log.compression import Codec, packed
from replog.log.epochs import EpochCache
from replog.log.producers import CorruptSnapshot, ProducerStates
from replog.log.recovery import cleanings, snapshot_offsets
from replog.log.settings import LogSettings
from replog.log.validation import Origin, admitted
from replog.node.quorum.metadata_damage import DamagedMetadata, SyncedEnd, check_synced
from replog.node.quorum.metadata_log import snapshot_ids, snapshot_records
from replog.quorum import state_file
from replog.quorum.state_file import StoredQuorumState
from replog.quorum.voters import ReplicaKey
from replog.types import NodeId, QuorumEpoch
from tests.broker.test_hostile_live import resealed
from tests.fuzz.mutations import as_json, changed_bytes, changed_text, changed_tree
from tests.fuzz.targets import NIGHT_MINUTES, by_hand, repeated_for

CHANGES: Final = 300  # of each file, in the gate
INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)
NOW_MS: Final = 1_000_000
STATE: Final = state_file.encode(
    StoredQuorumState(epoch=QuorumEpoch(7), leader_id=NodeId(2), voted=ReplicaKey(NodeId(3), UUID(int=5)))
)
WORDS: Final = (
    "²",
    "--5",
    "5-",
    "-",
    "9" * 30,
    "9" * 5000,
    "0x1",
    "1e3",
    "+1",
    "1_0",
    "٣",
    str(2**63),
    str(-(2**63) - 1),
    "NaN",
    "",
)
NUMBERS: Final = (
    *(0, 1, -1, 2**7, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1),
    *(-2, -(2**31), -(2**63), 61, 62, 1000),
)


# --- text files ---------------------------------------------------------------------------------


def changed_lines(content: bytes, random: Random) -> bytes:
    """Return a checkpoint file in which something is another."""
    if random.random() < 0.3:
        return changed_bytes(content, random)
    lines = content.decode().split("\n")
    number = random.randrange(len(lines))
    words = lines[number].split(" ")
    words[random.randrange(len(words))] = random.choice(WORDS)
    lines[number] = " ".join(words)
    return "\n".join(lines).encode()


def read_checkpoint(path: Path) -> None:
    for (_, partition), offset in read_offsets(RealDisk(), str(path)).items():
        assert partition in INT32
        assert offset in INT64


def read_epochs(path: Path) -> None:
    try:
        cache = EpochCache.from_checkpoint(path.read_bytes())
    except AssertionError:
        return  # epochs or offsets that go back; recovery takes it for damage as well
    assert all(epoch in INT32 and start in INT64 for epoch, start in cache.entries)


def read_cleanings(path: Path) -> None:
    assert all(one.end_offset in INT64 and one.at_ms in INT64 for one in cleanings(RealDisk(), str(path.parent)))


def read_state(path: Path) -> None:
    state = state_file.decode(path.read_bytes())
    if state is not None:
        assert state.epoch in INT32
        assert state.leader_id in INT32
        assert state.voted is None or state.voted.node_id in INT32
        assert state_file.decode(state_file.encode(state)) == state


def read_clean_shutdown(path: Path) -> None:
    assert broker_epoch(path.read_bytes()) in INT64


TEXTS: Final[dict[str, tuple[bytes, Callable[[Path], None]]]] = {
    "replication-offset-checkpoint": (rendered(["t 0 5", "t 1 -1", "u 2 77"]), read_checkpoint),
    "leader-epoch-checkpoint": (rendered(["0 0", "3 10", "4 19"]), read_epochs),
    "cleaner-offset": (rendered(["5 1000", "9 2000"]), read_cleanings),
    "quorum-state": (STATE, read_state),
    ".kafka_cleanshutdown": (b'{"version":0,"brokerEpoch":77}', read_clean_shutdown),
}


def read_changed_texts(folder: Path, seed: str, count: int) -> None:
    for name, (content, read) in TEXTS.items():
        for number in range(count):
            random = Random(f"{seed}/{name}/{number}")
            if content.startswith(b"{") and random.random() < 0.7:
                changed = as_json(changed_tree(json.loads(content), random))
            elif content.startswith(b"{") and random.random() < 0.5:
                changed = changed_text(content.decode(), random).encode(errors="replace")
            else:
                changed = changed_lines(content, random)
            path = folder / name
            path.write_bytes(changed)
            try:
                read(path)
            except CorruptCheckpoint:
                pass
            except Exception as problem:
                problem.add_note(f"{seed}/{name}/{number}: {changed[:300]!r}")
                raise


def test_a_changed_text_file_is_read_or_named(tmp_path: Path) -> None:
    read_changed_texts(tmp_path, "gate", CHANGES)


@pytest.mark.parametrize("name", TEXTS)
def test_the_file_as_it_was_is_read(name: str, tmp_path: Path) -> None:
    content, read = TEXTS[name]
    (tmp_path / name).write_bytes(content)

    read(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        *(
            b'{"leaderId":2,"leaderEpoch":%s,"votedId":-1,"data_version":1}' % number
            for number in (b"1e400", b"7.5", b"true", b'"7"')
        ),
        b'{"leaderId":2,"leaderEpoch":4294967296,"votedId":-1,"data_version":1}',
        b'{"leaderId":2,"leaderEpoch":7,"votedId":9999999999,"data_version":1}',
        b"[" * 100_000,
    ],
)
def test_a_quorum_state_that_no_member_wrote_is_none(content: bytes) -> None:
    assert state_file.decode(content) is None


def test_files_that_are_not_the_logs_do_not_stop_it(tmp_path: Path) -> None:
    """Somebody keeps a copy of a snapshot beside it."""
    odd = ("copy.checkpoint", "7-x.checkpoint", "copy.snapshot", "copy.log", "²-1.checkpoint", "²2.snapshot")
    short = ("0.log", "7-3.checkpoint", "8-3.checkpoint", "9.snapshot", "8.snapshot")
    beyond = (
        f"{'9' * 20}.snapshot",
        f"{'9' * 20}.log",
        f"{'9' * 20}-0000000003.checkpoint",
        f"{7:020d}-9999999999.checkpoint",
    )
    for name in (*odd, *short, *beyond):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "00000000000000000007-0000000003.checkpoint").write_bytes(b"")
    (tmp_path / "00000000000000000009.snapshot").write_bytes(b"")
    disk = RealDisk()

    assert [(one.offset, one.epoch) for one in snapshot_ids(disk, str(tmp_path))] == [(7, 3)]
    assert snapshot_offsets(disk, str(tmp_path)) == [9]
    with pytest.raises(DamagedMetadata, match="missing"):
        check_synced(disk, str(tmp_path), start=0, end=5)


# --- files with checksums -----------------------------------------------------------------------


def a_snapshot() -> bytes:
    values = [[NewRecord(None, b"record %d" % number) for number in range(start, start + 5)] for start in (0, 5, 10)]
    middle = [build(chunk, timestamp_ms=NOW_MS, base_offset=1 + 5 * number) for number, chunk in enumerate(values)]
    first = control_batch(ControlType.SNAPSHOT_HEADER, bytes(12), timestamp_ms=NOW_MS, base_offset=0, leader_epoch=0)
    last = control_batch(ControlType.SNAPSHOT_FOOTER, bytes(4), timestamp_ms=NOW_MS, base_offset=16, leader_epoch=0)
    return b"".join([first, *middle, last])


def producers() -> bytes:
    states = ProducerStates()
    for producer in range(4):
        batch = build([NewRecord(b"k", b"v")], timestamp_ms=NOW_MS, producer=(producer, 0, 0))
        states.update(header_at(batch, 0), producer, NOW_MS)
    return states.to_snapshot()


def changed_batches(content: bytes, random: Random) -> bytes:
    """Return batches of which bytes are others, or whole ones are missing, twice, or in another order."""
    if random.random() < 0.6:
        return changed_bytes(content, random)
    whole, position = [], 0
    while position < len(content):
        header = header_at(content, position)
        whole.append(content[position : header.end])
        position = header.end
    match random.randrange(3):
        case 0:
            del whole[random.randrange(len(whole))]
        case 1:
            whole.insert(random.randrange(len(whole)), random.choice(whole))
        case _:
            random.shuffle(whole)
    return b"".join(whole)


def read_changed_binaries(folder: Path, seed: str, count: int) -> None:
    """What is accepted in spite of a change says the same as before."""
    snapshot, known = a_snapshot(), producers()
    disk, end = RealDisk(), folder / "synced-end"
    SyncedEnd(disk, str(folder)).raise_to(1234)
    note = end.read_bytes()
    for number in range(count):
        random = Random(f"{seed}/binaries/{number}")
        said = f"{seed}/binaries/{number}"
        try:
            found = list(snapshot_records(changed_batches(snapshot, random)))
        except CorruptBatch:
            pass
        else:
            assert found == list(snapshot_records(snapshot)), said
        try:
            states = ProducerStates.from_snapshot(changed_bytes(known, random))
        except CorruptSnapshot:
            pass
        else:
            assert states.to_snapshot() == known, said
        end.write_bytes(changed_bytes(note, random))
        assert SyncedEnd(disk, str(folder)).offset in (0, 1234), said
        end.write_bytes(note)


def test_a_changed_file_with_checksums_is_refused_or_says_the_same(tmp_path: Path) -> None:
    read_changed_binaries(tmp_path, "gate", CHANGES)


@pytest.mark.parametrize("what", ["missing", "twice", "in another order"])
def test_a_snapshot_without_some_of_its_batches_is_none(what: str) -> None:
    """Each batch has a checksum; that all are there, in their order, only their offsets say."""
    content = a_snapshot()
    first = header_at(content, 0).end
    second = header_at(content, first).end
    third = header_at(content, second).end
    parts = {
        "missing": content[:first] + content[second:],
        "twice": content[:second] + content[first:],
        "in another order": content[:first] + content[second:third] + content[first:second] + content[third:],
    }

    with pytest.raises(CorruptBatch, match="offset"):
        list(snapshot_records(parts[what]))


# --- batches of clients -------------------------------------------------------------------------

FIELDS: Final = {  # of a batch's header: position and size
    "base offset": (0, 8),
    "length": (8, 4),
    "leader epoch": (12, 4),
    "magic": (16, 1),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "count": (57, 4),
}


def drawn_batch(random: Random) -> bytes:
    """Return a batch with records that fit or not, packed in any codec, whose header lies in none to three fields; its checksum is right."""
    new = [
        NewRecord(
            random.choice((None, b"", b"key")),
            random.randbytes(random.choice((0, 1, 63, 64, 300))),
            timestamp_ms=NOW_MS + random.randrange(-5, 5),
        )
        for _ in range(random.choice((1, 2, 5, 70)))
    ]
    whole = build(new, timestamp_ms=NOW_MS)
    content = whole[HEADER_BYTES:]
    if random.random() < 0.5:
        content = changed_bytes(content, random)
    codec = random.choice(list(Codec))
    body = bytes(packed(content, codec))
    if codec is not Codec.NONE and random.random() < 0.3:
        body = changed_bytes(body, random)
    batch = bytearray(whole[:HEADER_BYTES] + body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = int(codec).to_bytes(2, "big")
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        position, size = random.choice(list(FIELDS.values()))
        number = random.choice((*NUMBERS, random.getrandbits(63)))
        batch[position : position + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "big")
    return resealed(batch)


def look_at_batches(seed: str, count: int) -> tuple[int, int]:
    """Return how many drawn batches were admitted and refused; what is admitted is read to its end."""
    admitted_, refused = 0, 0
    for number in range(count):
        random = Random(f"{seed}/batch/{number}")
        batch = drawn_batch(random)
        settings = LogSettings(compacts=random.random() < 0.2, log_append_time=random.random() < 0.2)
        try:
            found = admitted(memoryview(batch), settings, origin=Origin.CLIENT, now_ms=NOW_MS)
            if isinstance(found, Error):
                refused += 1
                continue
            admitted_ += 1
            (header,) = found
            read = list(records(batch, header))
        except Exception as problem:
            problem.add_note(f"{seed}/batch/{number}")
            raise
        first = header.base_offset
        assert [record.offset - first for record in read] == list(range(header.count)), f"{seed}/batch/{number}"
        if not settings.log_append_time:
            assert max(record.timestamp_ms for record in read) == header.max_timestamp_ms, f"{seed}/batch/{number}"
        assert not settings.compacts or all(record.key is not None for record in read), f"{seed}/batch/{number}"
    return admitted_, refused


def test_what_is_admitted_of_lying_batches_can_be_read() -> None:
    taken, refused = look_at_batches("gate", 5 * CHANGES)

    assert taken > CHANGES // 2
    assert refused > CHANGES


# --- by night -----------------------------------------------------------------------------------


def repeated(folder: Path, minutes: float, seed: str) -> int:
    """Go through all of it with one seed after the other."""

    def once(number: str) -> None:
        read_changed_texts(folder, number, CHANGES)
        read_changed_binaries(folder, number, CHANGES)
        look_at_batches(number, 5 * CHANGES)

    return repeated_for(minutes, once, seed)


@pytest.mark.nightly
@pytest.mark.timeout(NIGHT_MINUTES * 60 + 300)
def test_files_of_a_disk_for_half_an_hour(tmp_path: Path) -> None:
    assert repeated(tmp_path, NIGHT_MINUTES, "night")


if __name__ == "__main__":
    by_hand(__doc__, repeated)
