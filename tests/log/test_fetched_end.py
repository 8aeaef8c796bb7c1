"""What a broker of Apache Kafka answers ends where so many bytes end: within a batch, mostly, for who is far behind."""

from types import SimpleNamespace
from typing import Any

import pytest

from replog.client.consumer import Consumer
from replog.log.batch import CorruptBatch, NewRecord, build
from replog.quorum.messages import FetchAnswer
from replog.quorum.translate import answer_from_wire
from replog.types import METADATA_TOPIC
from replog.wire.messages import fetch
from tests.log.batches import a_disk, opened

ONE = build([NewRecord(None, b"first")], timestamp_ms=1, base_offset=0, leader_epoch=3)
TWO = build([NewRecord(None, b"second" * 20)], timestamp_ms=1, base_offset=1, leader_epoch=3)
ENDS = [pytest.param(size, id=f"{size} bytes of the next") for size in (1, 12, 60, 61, len(TWO) - 1)]


def answered(content: bytes) -> FetchAnswer:
    partition = fetch.PartitionData(records=content, current_leader=fetch.LeaderIdAndEpoch(leader_id=1, leader_epoch=3))
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, partitions=[partition])
    answer = answer_from_wire(fetch.FetchResponse(responses=[topic]))
    assert isinstance(answer, FetchAnswer)
    return answer


@pytest.mark.parametrize("size", ENDS)
def test_a_follower_takes_what_is_whole_and_asks_for_the_rest_again(size: int) -> None:
    """It called the answer damaged, and would have got the same one for ever."""
    log = opened(a_disk())

    log.append_as_follower(ONE + TWO[:size])
    assert log.log_end_offset == 1
    log.append_as_follower(TWO)

    assert bytes(log.read(0, max_bytes=1 << 20, end_offset=2, at_least_one=True)) == ONE + TWO


@pytest.mark.parametrize("size", ENDS)
def test_a_member_of_the_quorum_takes_what_is_whole(size: int) -> None:
    answer = answered(ONE + TWO[:size])

    assert [(span.base_offset, span.end_offset) for span in answer.batches] == [(0, 1)]


@pytest.mark.parametrize("size", ENDS)
def test_a_consumer_reads_what_is_whole(size: int) -> None:
    consumer: Any = SimpleNamespace(_isolation_level=0)
    consumer._visible = lambda *of: Consumer._visible(consumer, *of)

    found, position = Consumer._read(consumer, fetch.PartitionData(records=ONE + TWO[:size]), 0)

    assert position == 1
    assert [record.value for read in found for record in read.records] == [b"first"]


def test_an_answer_without_a_whole_batch_is_damaged() -> None:
    """A leader answers with one at least, as long as it may be."""
    log = opened(a_disk())

    with pytest.raises(CorruptBatch, match="torn"):
        log.append_as_follower(TWO[:-1])
    with pytest.raises(CorruptBatch, match="torn"):
        answered(ONE[:-1])
    assert log.log_end_offset == 0


def test_a_damaged_batch_behind_a_whole_one_is_damaged() -> None:
    harmed = bytearray(TWO)
    harmed[-1] ^= 1

    with pytest.raises(CorruptBatch, match="checksum"):
        opened(a_disk()).append_as_follower(ONE + bytes(harmed))
