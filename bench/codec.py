"""Our codec against kio's in one run: times for encoding and decoding, and how many times faster ours is.

Ratios, not times, are what to compare between machines. kio decodes natively (Rust), ours is Python: below 1 is kio's win.

    python bench/codec.py
"""

import io
import timeit
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import kio.schema.broker_heartbeat.v1.request as kio_heartbeat
import kio.schema.fetch.v16.request as kio_fetch_request
import kio.schema.fetch.v16.response as kio_fetch_response
import kio.schema.metadata.v12.response as kio_metadata
import kio.schema.produce.v9.request as kio_produce
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from replog.wire.apis import Api, request_type, response_type
from replog.wire.codec import decode_struct, encode_struct

TOPIC_ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
BATCH = bytes(1000)
SECONDS_EACH = 0.2


def messages() -> dict[str, tuple[Any, type, int]]:
    """Return kio's messages with our type and the version."""
    return {
        "produce request, 1 partition": (produce(1), request_type(Api.PRODUCE), 9),
        "produce request, 20 partitions": (produce(20), request_type(Api.PRODUCE), 9),
        "fetch request, 1 partition": (fetch_request(1), request_type(Api.FETCH), 16),
        "fetch request, 50 partitions": (fetch_request(50), request_type(Api.FETCH), 16),
        "fetch response, 1 partition": (fetch_response(1), response_type(Api.FETCH), 16),
        "fetch response, 50 partitions": (fetch_response(50), response_type(Api.FETCH), 16),
        "metadata response, 100 partitions": (metadata(100), response_type(Api.METADATA), 12),
        "broker heartbeat request": (heartbeat(), request_type(Api.BROKER_HEARTBEAT), 1),
    }


def produce(partitions: int) -> Any:
    data = [kio_produce.PartitionProduceData(index=n, records=BATCH) for n in range(partitions)]
    topic = kio_produce.TopicProduceData(name="topic", partition_data=tuple(data))
    return kio_produce.ProduceRequest(
        acks=-1, timeout=timedelta(seconds=30), topic_data=(topic,), transactional_id=None
    )


def fetch_request(partitions: int) -> Any:
    wanted = [
        kio_fetch_request.FetchPartition(
            partition=n, fetch_offset=12345678, partition_max_bytes=1 << 20, current_leader_epoch=5
        )
        for n in range(partitions)
    ]
    topic = kio_fetch_request.FetchTopic(topic_id=TOPIC_ID, partitions=tuple(wanted))
    return kio_fetch_request.FetchRequest(
        max_wait=timedelta(milliseconds=500), min_bytes=1, topics=(topic,), forgotten_topics_data=()
    )


def fetch_response(partitions: int) -> Any:
    data = [
        kio_fetch_response.PartitionData(
            partition_index=n,
            error_code=ErrorCode.none,
            high_watermark=12345678,
            last_stable_offset=12345678,
            aborted_transactions=None,
            records=BATCH,
        )
        for n in range(partitions)
    ]
    topic = kio_fetch_response.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=tuple(data))
    return kio_fetch_response.FetchResponse(throttle_time=timedelta(), error_code=ErrorCode.none, responses=(topic,))


def metadata(partitions: int) -> Any:
    partition_fields = [
        kio_metadata.MetadataResponsePartition(
            error_code=ErrorCode.none,
            partition_index=n,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=(1, 2, 3),
            isr_nodes=(1, 2, 3),
        )
        for n in range(partitions)
    ]
    topic = kio_metadata.MetadataResponseTopic(
        error_code=ErrorCode.none, name="topic", topic_id=TOPIC_ID, partitions=tuple(partition_fields)
    )
    brokers = tuple(kio_metadata.MetadataResponseBroker(node_id=n, host="127.0.0.1", port=9092) for n in (1, 2, 3))
    return kio_metadata.MetadataResponse(throttle_time=timedelta(), brokers=brokers, topics=(topic,))


def heartbeat() -> Any:
    return kio_heartbeat.BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=77, current_metadata_offset=1000, want_fence=False, want_shut_down=False
    )


def microseconds(action: Callable[[], object]) -> float:
    """Return the best time of one call."""
    timer = timeit.Timer(action)
    number, _ = timer.autorange()
    number = max(1, int(number * SECONDS_EACH))
    return min(timer.repeat(5, number)) / number * 1e6


def main() -> None:
    """Print one line a message."""
    print(
        f"{'message':36} {'encode: kio':>12} {'ours':>9} {'ratio':>6}   {'decode: kio':>12} {'ours':>9} {'ratio':>6}  (µs)"
    )
    for name, (theirs, of, version) in messages().items():
        write, read = entity_writer(type(theirs)), entity_reader(type(theirs))
        buffer = io.BytesIO()
        write(buffer, theirs)
        data = buffer.getvalue()
        ours = decode_struct(of, version, data)
        assert encode_struct(ours, version) == data
        slow = microseconds(lambda write=write, theirs=theirs: write(io.BytesIO(), theirs))
        fast = microseconds(lambda ours=ours, version=version: encode_struct(ours, version))
        native = microseconds(lambda read=read, data=data: read(data, 0))
        compiled = microseconds(lambda of=of, version=version, data=data: decode_struct(of, version, data))
        print(
            f"{name:36} {slow:12.1f} {fast:9.1f} {slow / fast:6.1f}   "
            f"{native:12.1f} {compiled:9.1f} {native / compiled:6.2f}"
        )


if __name__ == "__main__":
    main()
