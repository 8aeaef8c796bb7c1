"""The committed metadata as an observer sees it: fetched from the controllers as any broker would fetch it.

The observer asks the quorum's leader for the metadata log from where it stands, applies what lies below the
high watermark, and asks again from there. It never takes an uncommitted record, so its log never diverges. It
serves two purposes: targets of faults are chosen by its state, and its entries are the recording's table
`metadata`. It reaches the controllers' own addresses, never through a relay: no cut blinds it.

It begins before the first node does. Controllers drop records that a snapshot holds: an observer that is
referred to a snapshot has been overtaken, and a recording with a hole judges nobody. The observer says so then, and the run ends.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from replog.errors import Error
from replog.log import batch
from replog.metadata.records import MetadataRecord
from replog.types import METADATA_TOPIC, METADATA_TOPIC_ID
from replog.wire.decoder import MalformedMessage
from replog.wire.messages.fetch import EXCHANGE, FetchPartition, FetchRequest, FetchTopic, PartitionData
from replog.wire.records.metadata import decode_metadata_record
from tribunal.clusters.clients.asking import FAILURES, Asking
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.endings import put_down
from tribunal.clusters.secured.door import OPEN, Door

WAIT_MS: Final = 250
ANSWER_WAIT_MS: Final = 1500
BACKOFF_MS: Final = 50
COMMIT_WAIT_MS: Final = 10
FETCH_BYTES: Final = 1 << 20
CLIENT_ID: Final = "tribunal-observer"


class MetadataView:
    """Reads committed batches of a metadata log.

    now_ns:         the run's clock: when a record was seen.
    wall_start_ms:  what this machine's wall clock said as the run's began, for what controllers stamped.
    """

    def __init__(self, committed: CommittedRecords, *, now_ns: Callable[[], int], wall_start_ms: float) -> None:
        self.state = committed.state
        self.next_offset = 0
        self.last_epoch = 0  # of an empty log (SPEC 1.10.1 refuses a negative one)
        self._now_ns = now_ns
        self._committed = committed
        self._wall_start_ms = wall_start_ms

    def apply_committed(self, data: bytes | memoryview, high_watermark: int) -> int:
        """Apply the batches below the high watermark; return how many records were new."""
        before = self.next_offset
        for header in batch.batches(data):
            if header.next_offset > high_watermark:
                break
            if header.base_offset < self.next_offset:
                continue
            if not header.is_control:
                seen_ns = max(0, self._now_ns())  # one for all of a batch, which is committed at once
                for record in batch.records(data, header):
                    self._apply(record, header.leader_epoch, seen_ns)
            self.next_offset = header.next_offset
            self.last_epoch = header.leader_epoch
        if self.next_offset != before:
            self._committed.refresh(self.next_offset - 1)
        return self.next_offset - before

    def _apply(self, record: batch.Record, epoch: int, seen_ns: int) -> None:
        decoded = decode_metadata_record(record.value or b"")
        # (A partition is named by topic id: its topic may be removed by this very record.)
        topic = self._topic_of(decoded)
        self._committed.replay(decoded, record.offset)
        self._committed.note(
            decoded,
            metadata_offset=record.offset,
            quorum_epoch=epoch,
            at_ns=seen_ns,
            stamped_ns=round((record.timestamp_ms - self._wall_start_ms) * 1_000_000),
            topic=topic or self._topic_of(decoded),
            partition=getattr(decoded, "partition_id", None),
        )

    def _topic_of(self, record: MetadataRecord) -> str | None:
        topic_id = getattr(record, "topic_id", None)
        topic = self._committed.image.topics.get(topic_id) if topic_id is not None else None
        return topic.name if topic else None


class MetadataObserver:
    """Follows the metadata log over the network until stopped."""

    def __init__(
        self,
        view: MetadataView,
        controllers: Mapping[int, tuple[str, int]],
        cluster_id: str,
        *,
        fetch_version: int,
        door: Door = OPEN,
    ) -> None:
        """`fetch_version`: of Fetch, one that the controllers answer."""
        self.view = view
        self._door = door
        self._fetch_version = fetch_version
        self._controllers = dict(controllers)
        self._cluster_id = cluster_id
        self._order = list(self._controllers)
        self._task: asyncio.Task[None] | None = None
        self.overtaken = ""  # what it missed, once the log was cut before it had read it

    def start(self) -> None:
        """Follow from now on; the controllers may come later."""
        self._task = asyncio.create_task(self._follow(), name="metadata observer")

    async def stop(self) -> None:
        """Stop following; what was seen stays."""
        task, self._task = self._task, None
        if task is not None:
            await put_down(task)

    async def _follow(self) -> None:
        while True:
            node = self._order[0]
            with contextlib.suppress(*FAILURES):
                await self._fetch_from(node)
            if self._order[0] == node:  # it knew of no other leader
                self._order.append(self._order.pop(0))
            await asyncio.sleep(BACKOFF_MS / 1000)

    async def _fetch_from(self, node: int) -> None:
        """Fetch from one controller as long as it leads; put the leader it names first."""
        asking = await Asking.open(self._controllers[node], CLIENT_ID, ANSWER_WAIT_MS, self._door)
        try:
            while True:
                answer = await self._ask(asking)
                before = self.view.next_offset
                if not self._take(answer):
                    return
                if answer.records and self.view.next_offset == before:
                    await asyncio.sleep(COMMIT_WAIT_MS / 1000)  # not committed yet: asking at once would only spin
        finally:
            asking.close()

    async def _ask(self, asking: Asking) -> PartitionData:
        body = await asking.ask(EXCHANGE, self._fetch_version, self._request(), ANSWER_WAIT_MS)
        for topic in body.responses:
            for partition in topic.partitions:
                return partition
        raise MalformedMessage(f"no metadata partition in the answer: {body.error_code!r}")

    def _request(self) -> FetchRequest:
        partition = FetchPartition(
            partition=0,
            # Unknown at first: the refusal names it.
            current_leader_epoch=self.view.state.quorum_epoch,
            fetch_offset=self.view.next_offset,
            last_fetched_epoch=self.view.last_epoch,
            partition_max_bytes=FETCH_BYTES,
        )
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            cluster_id=self._cluster_id,
            topics=[FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )

    def _take(self, answer: PartitionData) -> bool:
        state = self.view.state
        leader = answer.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= state.quorum_epoch:
            state.quorum_leader, state.quorum_epoch = leader.leader_id, leader.leader_epoch
            if leader.leader_id in self._controllers:
                self._order.sort(key=lambda node: node != leader.leader_id)
        if answer.error_code is not Error.NONE:
            return False
        if answer.snapshot_id.end_offset >= 0:
            self.overtaken = (
                f"the metadata log was cut up to offset {answer.snapshot_id.end_offset} before its observer had read "
                f"offset {self.view.next_offset}: raise metadata.log.max.record.bytes.between.snapshots"
            )
            return False
        state.quorum_leader = self._order[0]
        self.view.apply_committed(answer.records or b"", answer.high_watermark)
        return True
