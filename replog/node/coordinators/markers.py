"""End markers: how a coordinator gets them into every partition, and how a partition's leader writes them (SPEC 4.2.4).

The sender asks leaders again and again, wherever the partitions go, until each has its marker or is gone. It ends with its
coordinator: the next one loads the same decision and sends the same markers, and a repeated marker does no harm.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from replog.controller.authorization import Operation, of_cluster
from replog.controller.served_api import ServedApi
from replog.coordinators.events import MarkersWritten, SendMarkers
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.coordinators.transaction import PROTOCOL_2
from replog.coordinators.transaction_coordinator import TransactionCoordinator
from replog.errors import Error
from replog.log.batch import end_transaction_marker
from replog.log.log import Appended
from replog.log.validation import Origin
from replog.node.coordinators.internal_topics import InternalTopics
from replog.node.coordinators.runtime import CoordinatorRuntime, CoordinatorShard
from replog.node.net.broker_links import BrokerLinks
from replog.node.net.few_lines import FewLines
from replog.node.net.handlers import AnswersApi, HandledApi
from replog.node.net.in_turns import in_turns, refused_later
from replog.node.net.server import AwaitedRequest
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.recent import Recent
from replog.types import NO_NODE, ZERO_UUID, NodeId, TopicPartition
from replog.wire.messages import write_txn_markers as wtm

RETRY_MS: Final = 100
SAY_AGAIN_MS: Final = 60_000
REFUSALS_KEPT: Final = 1000
# With a higher epoch at the partition its transaction was ended there by somebody else: a recovering leader (KIP-704),
# or a later decision. There is nothing left for this marker to end.
DONE: Final = (Error.NONE, Error.INVALID_PRODUCER_EPOCH)


class Outcome(NamedTuple):
    """What a leader says of one partition's marker."""

    partition: TopicPartition
    error: Error


# Leaders that have not answered yet, each with what it was asked for.
Asking = dict[asyncio.Task[list[Outcome]], list[TopicPartition]]


class MarkerSender:
    """The coordinator's side."""

    def __init__(self, replicas: Replicas, links: BrokerLinks, topics: InternalTopics, tasks: Tasks) -> None:
        self.replicas = replicas
        self.links = links
        self.topics = topics
        self.tasks = tasks
        self._lines = FewLines(replicas.world)

    def send(self, coordinator: CoordinatorShard[TransactionCoordinator], markers: SendMarkers) -> None:
        """Begin; the coordinator's core is notified when all are written."""
        self.tasks.start(self._send(coordinator, markers))

    async def _send(self, coordinator: CoordinatorShard[TransactionCoordinator], markers: SendMarkers) -> None:
        missing = dict.fromkeys(markers.partitions)
        last: dict[TopicPartition, Error] = {}  # what each was refused with, which is a line once
        asking: Asking = {}
        try:
            while missing and not coordinator.is_ended:
                for node, partitions in self._by_leader(missing, asking).items():
                    work = self._ask(node, coordinator, markers, partitions)
                    asking[asyncio.get_running_loop().create_task(work)] = partitions
                # A leader answers when its replicas have the marker, after up to 30 s: nobody else's markers wait for that,
                # nor what has no leader at the moment.
                is_all_asked = missing.keys() <= _asked(asking)
                answered = await _first_of(asking, within_s=None if is_all_asked else RETRY_MS / 1000)
                for partition, error in (outcome for task in answered for outcome in task.result()):
                    if error in DONE:
                        missing.pop(partition, None)  # the peer may name what nobody asked for
                    if error not in (Error.NONE, Error.NOT_LEADER_OR_FOLLOWER, last.get(partition)):
                        last[partition] = error
                        self._log(markers, partition, error)
                    if error is Error.TRANSACTION_COORDINATOR_FENCED:
                        return  # a later leader of our partition is at it
                for task in answered:
                    del asking[task]
                if (answered or not asking) and not missing.keys() <= _asked(asking):
                    await asyncio.sleep(RETRY_MS / 1000)
        finally:
            for task in asking:
                task.cancel()
        if not coordinator.is_ended:
            done = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
            coordinator.perform(coordinator.core.on_markers_written(done, coordinator.now()))

    def _by_leader(self, missing: dict[TopicPartition, None], asking: Asking) -> dict[NodeId, list[TopicPartition]]:
        """Return whom to ask for what nobody has been asked for yet; what is gone is missing no more."""
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        image, asked = self.replicas.metadata.image, _asked(asking)
        for partition in [one for one in missing if one not in asked]:
            topic = image.topics_by_name.get(partition.topic)
            if topic is None or partition.partition not in topic.partitions:
                del missing[partition]  # deleted, perhaps created again with fewer: nobody reads it any more
                continue
            leader = self.topics.leader_of(partition.topic, partition.partition)
            if leader != NO_NODE:
                by_leader.setdefault(leader, []).append(partition)
        return by_leader

    async def _ask(
        self,
        node: NodeId,
        coordinator: CoordinatorShard[TransactionCoordinator],
        markers: SendMarkers,
        partitions: list[TopicPartition],
    ) -> list[Outcome]:
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition.partition)
        marker = wtm.WritableTxnMarker(
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            transaction_result=markers.committed,
            topics=[
                wtm.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()
            ],
            coordinator_epoch=coordinator.leader_epoch,
            transaction_version=markers.transaction_version,
        )
        answer = await self.links.send(node, wtm.EXCHANGE, wtm.WriteTxnMarkersRequest(markers=[marker]))
        if answer is None:
            return []
        return [
            Outcome(TopicPartition(topic.name, result.partition_index), result.error_code)
            for written in answer.markers
            for topic in written.topics
            for result in topic.partitions
        ]

    def _log(self, markers: SendMarkers, partition: TopicPartition, error: Error) -> None:
        what = f"marker of {markers.transactional_id!r} ({markers.producer_id}, epoch {markers.producer_epoch})"
        self._lines.log("warning", f"{what} on {partition}: {error.name}")


def _asked(asking: Asking) -> set[TopicPartition]:
    return {partition for partitions in asking.values() for partition in partitions}


async def _first_of(asking: Asking, *, within_s: float | None) -> list[asyncio.Task[list[Outcome]]]:
    """Wait for an answer, so long at most, and return all that are there, in the order of the requests."""
    if asking:
        await asyncio.wait(asking, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    return [task for task in asking if task.done()]


class Refusal(NamedTuple):
    """What a coordinator tries again ten times a second, for as long as it is refused."""

    producer_id: int
    partition: TopicPartition
    error: Error


class Said:
    """When there was a line of a refusal."""

    __slots__ = ("at_ms",)

    def __init__(self) -> None:
        self.at_ms: int | None = None


class MarkerApi:
    """The partition leader's side."""

    def __init__(self, replicas: Replicas, groups: CoordinatorRuntime[GroupCoordinator], tasks: Tasks) -> None:
        self.replicas = replicas
        self.groups = groups
        self.tasks = tasks
        self._lines = FewLines(replicas.world)
        self._refusals: Recent[Refusal, Said] = Recent(REFUSALS_KEPT, Said)

    def write(self, request: AwaitedRequest[wtm.WriteTxnMarkersRequest, wtm.WriteTxnMarkersResponse]) -> None:
        """WriteTxnMarkers: answered when the last marker is committed."""
        gathering = Gathering(request.body, request.reply)
        in_turns(
            self.tasks,
            self.replicas.world.clock,
            _wanted(request.body),
            lambda one: self._write(gathering, *one),
            done=gathering.close,
            failed=refused_later(self.replicas.world.journal, request, WRITE_TXN_MARKERS.served),
        )

    def _write(self, gathering: "Gathering", index: int, name: TopicPartition) -> None:
        gathering.expect()
        marker = gathering.body.markers[index]
        replica = self.replicas.find(name)
        if replica is None:
            error = self.replicas.missing_error(name.topic, ZERO_UUID, name.partition)
            gathering.take(index, name, error)
            return
        if _is_repeated(marker, replica):
            self._refused(marker, name, Error.INVALID_PRODUCER_EPOCH)
            gathering.take(index, name, Error.INVALID_PRODUCER_EPOCH)
            return
        clock = self.replicas.world.clock
        wall_ms = clock.wall_ms()
        batch = end_transaction_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=wall_ms,
        )
        appended, effects = replica.partition.append(
            batch, acks=-1, now_ms=clock.now_ms(), wall_ms=wall_ms, origin=Origin.COORDINATOR
        )
        if not isinstance(appended, Appended):
            self._refused(marker, name, appended)
            gathering.take(index, name, appended)
            return
        self.groups.when_committed(
            replica,
            appended.last_offset,
            lambda: self._written(gathering, index, replica),
            lambda: gathering.take(index, name, Error.NOT_LEADER_OR_FOLLOWER),
        )
        self.replicas.grew(replica)
        self.replicas.perform(replica, effects)

    def _written(self, gathering: "Gathering", index: int, replica: Replica) -> None:
        marker = gathering.body.markers[index]
        if replica.name.topic == self.groups.topic:
            self.groups.on_marker(replica, marker.producer_id, committed=marker.transaction_result)
        gathering.take(index, replica.name, Error.NONE)

    def _refused(self, marker: wtm.WritableTxnMarker, name: TopicPartition, error: Error) -> None:
        said, now_ms = self._refusals.of(Refusal(marker.producer_id, name, error)), self.replicas.world.clock.now_ms()
        if said.at_ms is not None and now_ms - said.at_ms < SAY_AGAIN_MS:
            return
        said.at_ms = now_ms
        who = f"producer {marker.producer_id} epoch {marker.producer_epoch}, coordinator {marker.coordinator_epoch}"
        self._lines.log("info", f"{name}: end marker of {who} refused: {error.name}")


def _wanted(body: wtm.WriteTxnMarkersRequest) -> Iterator[tuple[int, TopicPartition]]:
    """Return which of a request's markers goes where."""
    for index, marker in enumerate(body.markers):
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                yield index, TopicPartition(topic.name, partition)


def _is_repeated(marker: wtm.WritableTxnMarker, replica: Replica) -> bool:
    """Return whether it comes late, to end the transaction behind its own (KIP-1228).

    In protocol version 2 a marker has a later epoch than what it ends; in the same epoch is what came after it.
    """
    if marker.transaction_version < PROTOCOL_2 or replica.partition.leadership is None:
        return False
    producers = replica.partition.log.producers
    producer = producers.get(marker.producer_id)
    return (
        producer is not None
        and producer.epoch == marker.producer_epoch
        and producers.has_open_transaction(marker.producer_id)
    )


class Gathering:
    """The outcomes of one WriteTxnMarkers, as they come."""

    def __init__(self, body: wtm.WriteTxnMarkersRequest, reply: Callable[[wtm.WriteTxnMarkersResponse], None]) -> None:
        self.body = body
        self.reply = reply
        self.outcomes: dict[tuple[int, TopicPartition], Error] = {}
        self._missing_count = 1  # until `close`

    def expect(self) -> None:
        """Wait for one more."""
        self._missing_count += 1

    def close(self) -> None:
        """Have asked for all."""
        self._took()

    def take(self, index: int, name: TopicPartition, error: Error) -> None:
        """Note one partition's outcome."""
        self.outcomes[index, name] = error
        self._took()

    def _took(self) -> None:
        self._missing_count -= 1
        if self._missing_count == 0:
            self.reply(wtm.WriteTxnMarkersResponse(markers=list(self._results())))

    def _results(self) -> Iterable[wtm.WritableTxnMarkerResult]:
        for index, marker in enumerate(self.body.markers):
            topics = [
                wtm.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        wtm.WritableTxnMarkerPartitionResult(
                            partition_index=partition,
                            error_code=self.outcomes[index, TopicPartition(topic.name, partition)],
                        )
                        for partition in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ]
            yield wtm.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


def _refused(body: wtm.WriteTxnMarkersRequest, error: Error) -> wtm.WriteTxnMarkersResponse:
    answer = wtm.WritableTxnMarkerPartitionResult
    markers = [
        wtm.WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                wtm.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[answer(partition_index=index, error_code=error) for index in topic.partition_indexes],
                )
                for topic in marker.topics
            ],
        )
        for marker in body.markers
    ]
    return wtm.WriteTxnMarkersResponse(markers=markers)


WRITE_TXN_MARKERS: Final = HandledApi(
    ServedApi(wtm.EXCHANGE, questions=(of_cluster(Operation.ALTER, Operation.CLUSTER_ACTION),), refuse=_refused),
    MarkerApi.write,
)
APIS: Final[tuple[AnswersApi[MarkerApi], ...]] = (WRITE_TXN_MARKERS,)
