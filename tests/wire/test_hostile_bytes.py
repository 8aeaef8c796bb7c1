"""Whatever the bytes are, decoding ends in a message or in `MalformedMessage`, soon and in little memory."""

import time
import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.wire.apis import KNOWN_APIS, Api, known_versions, request_type, response_type
from replog.wire.codec import (
    MalformedMessage,
    Request,
    decode_request,
    decode_response,
    decode_struct,
    encode_request,
    encode_response,
    encode_struct,
)
from replog.wire.decoder import MAX_ITEMS, read_unsigned_varint
from replog.wire.encoder import unsigned_varint
from replog.wire.exchange import exchange_of
from replog.wire.framing import Frames
from replog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from replog.wire.messages.fetch import FetchResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from replog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from replog.wire.records.metadata import NoOpRecord, PartitionChangeRecord, decode_metadata_record
from tests.wire.kio_values import all_messages, as_ours, drawn, kio_type, our_type

VERSIONS = [
    (api, version)
    for api in sorted(KNOWN_APIS)
    for version in range(known_versions(api).first, known_versions(api).last + 1)
]
versions = st.sampled_from(VERSIONS)


def outcome(frame: bytes) -> Request | None:
    try:
        return decode_request(frame)
    except MalformedMessage:
        return None


@given(versions, st.binary(max_size=200))
def test_random_bytes_behind_a_header(which: tuple[Api, int], data: bytes):
    api, version = which
    outcome(api.to_bytes(2, "big") + version.to_bytes(2, "big") + data)


@given(st.binary(max_size=100))
def test_random_bytes(data: bytes):
    outcome(data)


@given(versions, st.binary(max_size=200))
def test_random_answers(which: tuple[Api, int], data: bytes):
    try:
        decode_response(exchange_of(which[0]), which[1], data)
    except MalformedMessage:
        return


def test_every_message_cut_anywhere_is_malformed_or_shorter():
    """A prefix of a message is never that message, and never any other error."""
    for api, kind, version in all_messages():
        random = Random(f"cut/{api}/{kind}/{version}")
        of = our_type(api, kind)
        message = as_ours(drawn(kio_type(api, kind, version), random), of, version)
        data = encode_struct(message, version)
        for end in sorted({random.randrange(len(data)) for _ in range(6)} if data else ()):
            with pytest.raises(MalformedMessage):
                decode_struct(of, version, data[:end])


def test_every_message_with_a_flipped_byte_is_a_message_or_malformed():
    for api, kind, version in all_messages():
        random = Random(f"flip/{api}/{kind}/{version}")
        of = our_type(api, kind)
        message = as_ours(drawn(kio_type(api, kind, version), random), of, version)
        data = bytearray(encode_struct(message, version))
        for _ in range(6 if data else 0):
            data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                decode_struct(of, version, bytes(data))
            except MalformedMessage:
                continue


def test_bytes_behind_an_answer_are_malformed():
    frame = encode_response(Api.METADATA, 12, 1, MetadataResponse())[4:]
    with pytest.raises(MalformedMessage, match="1 bytes left over"):
        decode_response(exchange_of(Api.METADATA), 12, frame + b"\0")


def test_bytes_behind_a_request_are_ignored():
    """As Kafka does. These are librdkafka 2.16.0's: all topics, and three bytes that mean nothing."""
    frame = b"\0\3\0\x0d\0\0\0\3\0\7rdkafka\0" + b"\0\0\0\0" + b"\1\0\0"
    assert decode_request(frame).body == MetadataRequest(topics=None, allow_auto_topic_creation=False)


@pytest.mark.parametrize("version", [8, 12])
def test_a_count_of_items_that_the_frame_cannot_hold_allocates_nothing(version: int):
    whole = encode_request(Api.METADATA, version, 1, "x", MetadataRequest(topics=[]))[4:]
    head = whole[: whole.index(b"x") + (1 if version == 8 else 2)]
    count = b"\x7f\xff\xff\xff" if version == 8 else unsigned_varint(0x7FFFFFFF)
    tracemalloc.start()

    with pytest.raises(MalformedMessage, match="more items"):
        decode_request(head + count + bytes(1000))

    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_small_items_in_a_large_frame_are_limited_in_number():
    """Ten million empty arrays are 10 MB on the wire and would be 1 GB of objects."""
    count = 5_000_000
    frame = encode_request(Api.PRODUCE, 9, 1, "x", ProduceRequest())[4:]
    head = frame[:-2]  # the empty array of topics and the tags
    data = head + unsigned_varint(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    began = time.perf_counter()

    with pytest.raises(MalformedMessage, match="more items"):
        decode_request(data)

    assert time.perf_counter() - began < 0.5


def test_the_limit_on_items_holds_across_nested_arrays():
    many = [TopicProduceData(partition_data=[PartitionProduceData()] * 1000)] * 300
    assert MAX_ITEMS < 300 * 1000
    frame = encode_request(Api.PRODUCE, 9, 1, "x", ProduceRequest(topic_data=many))[4:]

    with pytest.raises(MalformedMessage, match="more items"):
        decode_request(frame)


def test_records_are_views_into_the_frame():
    body = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"abc" * 1000)])])
    frame = encode_request(Api.PRODUCE, 9, 1, "x", body)[4:]

    records = decode_request(frame).body.topic_data[0].partition_data[0].records

    assert isinstance(records, memoryview)
    assert records.obj is frame


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        pytest.param(b"\x02\x01\x00\x01\x00", "out of order", id="twice the same"),
        pytest.param(b"\x02\x05\x00\x01\x00", "out of order", id="descending"),
        pytest.param(b"\x01\x05\x7f", "beyond the end", id="longer than the frame"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff", "without an end", id="endless count"),
        pytest.param(b"\xff\xff\xff\xff\x7f", "beyond 31 bits", id="huge count"),
        pytest.param(b"\x01\x00\x02\x01\x01", "another length", id="known, one byte too long"),
    ],
)
def test_tagged_fields_keep_their_rules(tags: bytes, reason: str):
    """KIP-482: ascending, each of its own length; unknown ones are skipped."""
    data = encode_struct(FetchResponse(), 16)
    with pytest.raises(MalformedMessage, match=reason):
        decode_struct(FetchResponse, 16, data[:-1] + tags)


def test_unknown_tagged_fields_are_skipped():
    data = encode_struct(FetchResponse(session_id=9), 16)
    assert decode_struct(FetchResponse, 16, data[:-1] + b"\x02\x40\x01z\x41\x00").session_id == 9


@given(st.integers(min_value=0, max_value=0x7FFFFFFF))
def test_varints_come_back(value: int):
    data = unsigned_varint(value)
    assert read_unsigned_varint(data, 0) == (value, len(data))


@given(st.binary(max_size=60))
def test_metadata_records_of_any_bytes(data: bytes):
    try:
        decode_metadata_record(data)
    except MalformedMessage:
        return


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02\x05\x00", b"\x01\x63\x00", b"\x01\x05\x09", b"\x01\x05\x02\x00"])
def test_metadata_records_that_are_none(data: bytes):
    with pytest.raises(MalformedMessage):
        decode_metadata_record(data)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_come_back_however_the_stream_is_cut(contents: list[bytes], data: st.DataObject):
    stream = b"".join(len(content).to_bytes(4, "big") + content for content in contents)
    frames, found = Frames(100), []
    position = 0
    while position < len(stream):
        size = data.draw(st.integers(min_value=1, max_value=50))
        frames.feed(stream[position : position + size])
        position += size
        while (frame := frames.next_frame()) is not None:
            found.append(bytes(frame))
    assert found == contents
    assert frames.held_bytes == 0


def test_null_where_none_is_allowed_is_malformed():
    data = encode_struct(MetadataRequest(topics=None), 1)
    assert decode_struct(MetadataRequest, 1, data).topics is None
    with pytest.raises(MalformedMessage):
        decode_struct(MetadataRequest, 0, data)


def test_what_a_version_does_not_have_stays_out():
    body = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    assert decode_struct(MetadataRequest, 3, encode_struct(body, 3)).allow_auto_topic_creation


@pytest.mark.parametrize("api", sorted(KNOWN_APIS))
def test_defaults_come_back_in_every_version(api: Api):
    for version in range(known_versions(api).first, known_versions(api).last + 1):
        request, response = request_type(api)(), response_type(api)()
        assert decode_request(encode_request(api, version, 1, None, request)[4:]).body == request
        assert decode_response(exchange_of(api), version, encode_response(api, version, 1, response)[4:]) == (
            1,
            response,
        )


def test_partition_changes_write_what_changed_only():
    """KIP-966: absent lists mean no change; tags 6 and 7 carry the lists of eligible replicas."""
    assert encode_struct(PartitionChangeRecord(partition_id=1), 2)[-1:] == b"\0"
    change = PartitionChangeRecord(partition_id=1, isr=[], eligible_leader_replicas=[3], leader=-1)
    assert decode_struct(PartitionChangeRecord, 2, encode_struct(change, 2)) == change
    assert encode_struct(NoOpRecord(), 0) == b"\0"


@pytest.mark.parametrize("version", [4, 7])
def test_words_that_quote_a_long_name_are_cut_to_what_a_string_can_hold(version: int):
    """A legal request may hold 32,767 bytes in a name; who quotes it in an error has too many (it ended the node)."""
    words = "Topic name \u2603" + "\u2603" * 20_000
    body = CreateTopicsResponse(topics=[CreatableTopicResult(name="x", error_message=words)])

    told = decode_response(
        exchange_of(Api.CREATE_TOPICS), version, encode_response(Api.CREATE_TOPICS, version, 1, body)[4:]
    )[1]

    assert words.startswith(told.topics[0].error_message)
    assert 32_764 < len(told.topics[0].error_message.encode()) <= 32_767


@pytest.mark.parametrize(("length", "taken"), [(32_767, True), (32_768, False), (1 << 22, False)])
def test_a_compact_string_is_no_longer_than_kafka_takes_it(length: int, taken: bool):
    frame = encode_request(Api.METADATA, 12, 1, "x", MetadataRequest(topics=[MetadataRequestTopic(name="x" * length)]))

    assert (outcome(frame[4:]) is not None) is taken
