"""Records on the log: bytes worked out by hand from Kafka's layouts, frames, and every version's way back."""

from random import Random
from types import ModuleType
from typing import Any
from uuid import UUID

import msgspec
import pytest

from replog.errors import Error
from replog.wire.codec import MalformedMessage, decode_struct, encode_struct
from replog.wire.layout import fields_of, layout_of
from replog.wire.messages import (
    controlled_shutdown,
    elect_designated_leaders,
    get_replica_log_info,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from replog.wire.records import consumer_protocol, control, coordinator, metadata
from replog.wire.records.control import EndTxnMarker, LeaderChangeMessage, LeaderChangeMessageVoter
from replog.wire.records.coordinator import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from replog.wire.records.metadata import (
    METADATA_RECORDS,
    PartitionChangeRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)

MODULES = (
    controlled_shutdown, elect_designated_leaders, get_replica_log_info, leader_and_isr, stop_replica, update_metadata,
    consumer_protocol, control, coordinator, metadata,
)  # fmt: skip
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def top_level(module: ModuleType) -> list[type[msgspec.Struct]]:
    return [value for value in vars(module).values() if isinstance(value, type) and hasattr(value, "LAYOUT")]


ALL = {of.__name__: of for module in MODULES for of in top_level(module) if of.__module__ == module.__name__}


def drawn(of: type[msgspec.Struct], version: int, random: Random) -> Any:
    values: dict[str, Any] = {}
    for field in fields_of(of, version):
        if random.random() < 0.2:
            continue
        if field.nullable and random.random() < 0.2:
            values[field.name] = None
        elif field.is_array:
            values[field.name] = [_value(field, version, random) for _ in range(random.choice((0, 1, 20)))]
        else:
            values[field.name] = _value(field, version, random)
    return of(**values)


def _value(field: Any, version: int, random: Random) -> Any:
    if field.struct is not None:
        return drawn(field.struct, version, random)
    if field.kind in BITS:
        return random.choice((0, -1, random.getrandbits(BITS[field.kind])))
    return {
        "string": lambda: random.choice(("", "a", "größer" * 40)),
        "bytes": lambda: random.randbytes(random.choice((0, 5, 200))),
        "bool": lambda: random.random() < 0.5,
        "error": lambda: random.choice(list(Error)),
        "uuid": lambda: UUID(int=random.getrandbits(128)),
        "float64": lambda: random.uniform(-1e9, 1e9),
        "uint16": lambda: random.getrandbits(16),
        "uint32": lambda: random.getrandbits(32),
    }[field.kind]()


@pytest.mark.parametrize("of", ALL.values(), ids=ALL)
def test_every_version_comes_back_and_no_prefix_does(of: type[msgspec.Struct]):
    versions = layout_of(of).versions
    for version in range(versions.first, versions.last + 1):
        random = Random(f"{of.__name__}/{version}")
        for _ in range(10):
            record = drawn(of, version, random)
            data = encode_struct(record, version)
            assert decode_struct(of, version, data) == record
            for end in {random.randrange(len(data)) for _ in range(3)} if data else ():
                with pytest.raises(MalformedMessage):
                    decode_struct(of, version, data[:end])


@pytest.mark.parametrize("of", METADATA_RECORDS.values(), ids=lambda of: of.__name__)
def test_metadata_records_come_back_from_their_frames(of: type[msgspec.Struct]):
    random = Random(of.__name__)
    for version in range(layout_of(of).versions.last + 1):
        record = drawn(of, version, random)
        assert decode_metadata_record(encode_metadata_record(record, version)) == record


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            encode_metadata_record(TopicRecord(name="foo", topic_id=UUID(int=1))),
            b"\x01\x02\x00" + b"\x04foo" + bytes(15) + b"\x01" + b"\x00",
            id="topic: frame 1, key 2, version 0",
        ),
        pytest.param(
            encode_metadata_record(
                PartitionChangeRecord(partition_id=1, isr=[2], leader=-1, eligible_leader_replicas=[], last_known_elr=[3])
            ),
            b"\x01\x05\x02" + b"\0\0\0\1" + bytes(16) + b"\x04"
            + b"\x00\x05\x02\0\0\0\2" + b"\x01\x04\xff\xff\xff\xff" + b"\x06\x01\x01" + b"\x07\x05\x02\0\0\0\3",
            id="partition change: four tagged fields in order",
        ),
        pytest.param(encode_struct(EndTxnMarker(coordinator_epoch=7), 0), b"\0\0\0\7", id="transaction marker"),
        pytest.param(
            encode_struct(
                LeaderChangeMessage(version=0, leader_id=101, voters=[LeaderChangeMessageVoter(voter_id=101)]), 0
            ),
            b"\0\0" + b"\0\0\0\x65" + b"\x02\0\0\0\x65\0" + b"\x01" + b"\0",
            id="leader change v0: voters without directories",
        ),
        pytest.param(
            encode_key(OffsetCommitKey(group="g", topic="t", partition=2)),
            b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\2",
            id="offset commit key",
        ),
        pytest.param(
            encode_value(OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp_ms=9), 3),
            b"\0\3" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\1" + b"\0\1m" + b"\0\0\0\0\0\0\0\x09",
            id="offset commit value v3",
        ),
    ],
)  # fmt: skip
def test_bytes_by_hand(data: bytes, expected: bytes):
    assert data == expected


def test_coordinator_keys_are_distinguished():
    data = encode_key(OffsetCommitKey(group="g", topic="t", partition=2))
    assert decode_key(GroupMetadataKey, data) is None
    assert decode_key(OffsetCommitKey, data) == OffsetCommitKey(group="g", topic="t", partition=2)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x63", b"\xff\xff\0"])
def test_values_that_are_none(data: bytes):
    with pytest.raises(MalformedMessage):
        decode_value(OffsetCommitValue, data)
