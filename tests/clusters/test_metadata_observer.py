"""The harness's own look at the metadata log: it waits for its controllers, and says when the log was cut before it."""

import asyncio
import contextlib
from uuid import UUID

from replog.log import batch
from replog.wire.codec import decode_request, encode_response
from replog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from replog.wire.records.metadata import RemoveTopicRecord, TopicRecord, encode_metadata_record
from tribunal.clusters.api import ClusterState
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.metadata import MetadataObserver, MetadataView


def cut_up_to(offset):
    """Return how a controller answers that has nothing below this offset."""
    partition = PartitionData(
        current_leader=LeaderIdAndEpoch(leader_id=101, leader_epoch=1),
        snapshot_id=SnapshotId(end_offset=offset, epoch=1),
    )
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])


async def answering(body, port=0):
    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = decode_request(await reader.readexactly(int.from_bytes(await reader.readexactly(4))))
                writer.write(encode_response(request.api, request.version, request.correlation_id, body))
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", port)


async def overtaken():
    closed = await answering(cut_up_to(40))
    endpoint = closed.sockets[0].getsockname()
    closed.close()
    await closed.wait_closed()
    observer = MetadataObserver(
        MetadataView(CommittedRecords(ClusterState()), now_ns=lambda: 0, wall_start_ms=0.0),
        {101: endpoint},
        "A" * 22,
        fetch_version=17,
    )
    observer.start()
    await asyncio.sleep(0)  # it begins, and nobody is there yet

    server = await answering(cut_up_to(40), endpoint[1])
    async with asyncio.timeout(20):
        while not observer.overtaken:  # noqa: ASYNC110 - it notifies nobody
            await asyncio.sleep(0.01)
    await observer.stop()
    server.close()
    return observer.overtaken


def test_an_observer_that_was_overtaken_by_a_snapshot_says_so():
    assert asyncio.run(overtaken()).startswith(
        "the metadata log was cut up to offset 40 before its observer had read offset 0"
    )


def test_a_record_is_of_the_time_at_which_the_harness_saw_it_beside_the_controllers_stamp():
    """A topic that is deleted and created again is another one: its records carry another id."""
    first, second = UUID(int=1), UUID(int=2)
    clock = iter(range(1_000, 9_000, 1_000))
    gathered = CommittedRecords(ClusterState())
    view = MetadataView(gathered, now_ns=lambda: next(clock), wall_start_ms=50_000.0)
    records = [
        TopicRecord(name="t", topic_id=first),
        RemoveTopicRecord(topic_id=first),
        TopicRecord(name="t", topic_id=second),
    ]

    for offset, (record, wall_ms) in enumerate(zip(records, (50_001, 49_000, 50_002), strict=True)):
        committed = batch.build(
            [batch.NewRecord(None, encode_metadata_record(record))],
            timestamp_ms=wall_ms, base_offset=offset, leader_epoch=1,
        )  # fmt: skip
        view.apply_committed(committed, offset + 1)
    entries = gathered.drain()

    assert [entry.at_ns for entry in entries] == [1_000, 2_000, 3_000]
    assert [entry.stamped_ns for entry in entries] == [1_000_000, -1_000_000_000, 2_000_000]
    assert [entry.topic for entry in entries] == ["t", "t", "t"]
    assert [entry.topic_id for entry in entries] == [str(first), str(first), str(second)]
