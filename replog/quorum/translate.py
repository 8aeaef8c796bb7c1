"""Between Kafka's nested messages and the flat ones of `messages.py`; pure.

Kafka's requests could name many partitions of many topics; the metadata log has exactly one. Going out we fill the fields
of all versions; coming in absent ones hold Kafka's defaults, which mean "not given".
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar, assert_never
from uuid import UUID

import msgspec

from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import (
    BatchHeader,
    ControlType,
    CorruptBatch,
    batches,
    control_records,
    fetched_batches,
    has_valid_crc,
)
from replog.quorum import messages
from replog.quorum.messages import BatchSpan, OffsetAndEpoch, Reply, Request
from replog.quorum.voters import ReplicaKey
from replog.types import METADATA_TOPIC, METADATA_TOPIC_ID, NO_NODE, NodeId
from replog.wire.apis import Api
from replog.wire.codec import decode_struct
from replog.wire.messages import begin_quorum_epoch as begin
from replog.wire.messages import end_quorum_epoch as end
from replog.wire.messages import fetch, fetch_snapshot, vote
from replog.wire.records.control import VotersRecord

PRE_VOTE_VERSION = 2  # of Vote: earlier ones cannot ask without consequences (KIP-996)
LISTENER = "CONTROLLER"
METADATA = "metadata log"
MAX_FETCH_BYTES = 8 * 1024 * 1024

Item = TypeVar("Item")
AnyAnswer = TypeVar("AnyAnswer", bound=messages.Answer)


class Address(Protocol):
    """Where a member listens, in whichever message."""

    @property
    def host(self) -> str:
        """Name or address."""

    @property
    def port(self) -> int:
        """Port."""


class Leader(Protocol):
    """Who leads, in whichever message."""

    @property
    def leader_id(self) -> int:
        """Node, -1 when nobody is known."""

    @property
    def leader_epoch(self) -> int:
        """Its epoch."""


# --- requests, going out


def to_wire(request: Request) -> tuple[Api, msgspec.Struct]:
    """Return the API and the message for a request of ours."""
    match request:
        case messages.VoteRequest():
            return Api.VOTE, _vote_to_wire(request)
        case messages.BeginQuorumEpochRequest():
            return Api.BEGIN_QUORUM_EPOCH, _begin_to_wire(request)
        case messages.EndQuorumEpochRequest():
            return Api.END_QUORUM_EPOCH, _end_to_wire(request)
        case messages.FetchRequest():
            return Api.FETCH, _fetch_to_wire(request)
        case messages.FetchSnapshotRequest():
            return Api.FETCH_SNAPSHOT, _fetch_snapshot_to_wire(request)
        case _:
            assert_never(request)


def _vote_to_wire(request: messages.VoteRequest) -> vote.VoteRequest:
    voter = request.voter or ReplicaKey(NO_NODE)
    partition = vote.VoteRequestPartitionData(
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )
    topic = vote.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=request.cluster_id, voter_id=voter.node_id, topics=[topic])


def _begin_to_wire(request: messages.BeginQuorumEpochRequest) -> begin.BeginQuorumEpochRequest:
    voter = request.voter or ReplicaKey(NO_NODE)
    partition = begin.BeginQuorumEpochRequestPartitionData(
        voter_directory_id=voter.directory_id, leader_id=request.leader_id, leader_epoch=request.epoch
    )
    endpoints = [
        begin.LeaderEndpoint(name=LISTENER, host=endpoint.host, port=endpoint.port)
        for endpoint in _given(request.endpoint)
    ]
    topic = begin.BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return begin.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id, voter_id=voter.node_id, topics=[topic], leader_endpoints=endpoints
    )


def _end_to_wire(request: messages.EndQuorumEpochRequest) -> end.EndQuorumEpochRequest:
    candidates = [
        end.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id) for key in request.preferred
    ]
    partition = end.EndQuorumEpochRequestPartitionData(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.node_id for key in request.preferred],
        preferred_candidates=candidates,
    )
    endpoints = [
        end.LeaderEndpoint(name=LISTENER, host=endpoint.host, port=endpoint.port)
        for endpoint in _given(request.endpoint)
    ]
    topic = end.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return end.EndQuorumEpochRequest(cluster_id=request.cluster_id, topics=[topic], leader_endpoints=endpoints)


def _fetch_to_wire(request: messages.FetchRequest) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        current_leader_epoch=request.epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        partition_max_bytes=MAX_FETCH_BYTES,
        high_watermark=request.high_watermark,
        replica_directory_id=request.replica.directory_id,
    )
    topic = fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.node_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.node_id),
        max_wait_ms=request.max_wait_ms,
        max_bytes=MAX_FETCH_BYTES,
        topics=[topic],
    )


def _fetch_snapshot_to_wire(request: messages.FetchSnapshotRequest) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.FetchSnapshotRequestSnapshotId(
            end_offset=request.snapshot.offset, epoch=request.snapshot.epoch
        ),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    topic = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=request.max_bytes,
        topics=[topic],
    )


# --- requests, coming in


def from_wire(version: int, body: msgspec.Struct) -> Request:
    """Return a peer's request; what it says of other partitions only counts as "not exactly the metadata log"."""
    match body:
        case vote.VoteRequest():
            return _vote_from_wire(body)
        case begin.BeginQuorumEpochRequest():
            return _begin_from_wire(body)
        case end.EndQuorumEpochRequest():
            return _end_from_wire(body)
        case fetch.FetchRequest():
            return _fetch_from_wire(body, version)
        case fetch_snapshot.FetchSnapshotRequest():
            return _fetch_snapshot_from_wire(body)
        case _:
            raise AssertionError(f"{type(body).__name__} is not for the quorum")


def _vote_from_wire(body: vote.VoteRequest) -> messages.VoteRequest:
    named = [(topic.topic_name, topic.partitions) for topic in body.topics]
    partition = _first(named) or vote.VoteRequestPartitionData()
    return messages.VoteRequest(
        cluster_id=body.cluster_id,
        only_metadata=_is_only(named, lambda one: one.partition_index),
        epoch=partition.replica_epoch,
        candidate=ReplicaKey(NodeId(partition.replica_id), partition.replica_directory_id),
        voter=_key(body.voter_id, partition.voter_directory_id),
        last_epoch=partition.last_offset_epoch,
        last_offset=partition.last_offset,
        pre_vote=partition.pre_vote,
    )


def _begin_from_wire(body: begin.BeginQuorumEpochRequest) -> messages.BeginQuorumEpochRequest:
    named = [(topic.topic_name, topic.partitions) for topic in body.topics]
    partition = _first(named) or begin.BeginQuorumEpochRequestPartitionData()
    return messages.BeginQuorumEpochRequest(
        cluster_id=body.cluster_id,
        only_metadata=_is_only(named, lambda one: one.partition_index),
        epoch=partition.leader_epoch,
        leader_id=NodeId(partition.leader_id),
        voter=_key(body.voter_id, partition.voter_directory_id),
        endpoint=_first_endpoint(body.leader_endpoints),
    )


def _end_from_wire(body: end.EndQuorumEpochRequest) -> messages.EndQuorumEpochRequest:
    named = [(topic.topic_name, topic.partitions) for topic in body.topics]
    partition = _first(named) or end.EndQuorumEpochRequestPartitionData()
    preferred = [
        ReplicaKey(NodeId(one.candidate_id), one.candidate_directory_id) for one in partition.preferred_candidates
    ]
    return messages.EndQuorumEpochRequest(
        cluster_id=body.cluster_id,
        only_metadata=_is_only(named, lambda one: one.partition_index),
        epoch=partition.leader_epoch,
        leader_id=NodeId(partition.leader_id),
        preferred=tuple(preferred or [ReplicaKey(NodeId(one)) for one in partition.preferred_successors]),
        endpoint=_first_endpoint(body.leader_endpoints),
    )


def _fetch_from_wire(body: fetch.FetchRequest, version: int) -> messages.FetchRequest:
    named = [
        (METADATA_TOPIC if topic.topic_id == METADATA_TOPIC_ID else topic.topic, topic.partitions)
        for topic in body.topics
    ]
    partition = _first(named) or fetch.FetchPartition()
    replica_id = body.replica_id if version < 15 else body.replica_state.replica_id
    return messages.FetchRequest(
        cluster_id=body.cluster_id,
        only_metadata=_is_only(named, lambda one: one.partition),
        replica=ReplicaKey(NodeId(replica_id), partition.replica_directory_id),
        epoch=partition.current_leader_epoch,
        fetch_offset=partition.fetch_offset,
        last_fetched_epoch=partition.last_fetched_epoch,
        max_wait_ms=body.max_wait_ms,
        high_watermark=partition.high_watermark,
    )


def _fetch_snapshot_from_wire(body: fetch_snapshot.FetchSnapshotRequest) -> messages.FetchSnapshotRequest:
    named = [(topic.name, topic.partitions) for topic in body.topics]
    partition = _first(named) or fetch_snapshot.FetchSnapshotRequestPartitionSnapshot()
    return messages.FetchSnapshotRequest(
        cluster_id=body.cluster_id,
        only_metadata=_is_only(named, lambda one: one.partition),
        replica=ReplicaKey(NodeId(body.replica_id), partition.replica_directory_id),
        epoch=partition.current_leader_epoch,
        snapshot=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        position=partition.position,
        max_bytes=body.max_bytes,
    )


def _first(named: list[tuple[str, list[Item]]]) -> Item | None:
    """Return the first partition named, None when there is none."""
    return next((partition for _, partitions in named for partition in partitions), None)


def _is_only(named: list[tuple[str, list[Item]]], index: Callable[[Item], int]) -> bool:
    if len(named) != 1 or named[0][0] != METADATA_TOPIC or len(named[0][1]) != 1:
        return False
    return index(named[0][1][0]) == 0


def _key(node_id: int, directory_id: UUID) -> ReplicaKey | None:
    return None if node_id < 0 else ReplicaKey(NodeId(node_id), directory_id)


def _given(endpoint: Endpoint | None) -> list[Endpoint]:
    return [] if endpoint is None else [endpoint]


def _first_endpoint(endpoints: Iterable[Address]) -> Endpoint | None:
    return next((Endpoint(one.host, one.port) for one in endpoints), None)


# --- answers, going out


def answer_to_wire(answer: Reply, version: int, content: bytes = b"") -> msgspec.Struct:
    """Return the message for an answer of ours; `content` is what it names of the log or of a snapshot."""
    match answer:
        case messages.VoteAnswer():
            return _vote_answer_to_wire(answer)
        case messages.BeginQuorumEpochAnswer():
            return _begin_answer_to_wire(answer)
        case messages.EndQuorumEpochAnswer():
            return _end_answer_to_wire(answer)
        case messages.FetchAnswer():
            return _fetch_answer_to_wire(answer, content)
        case messages.FetchSnapshotAnswer():
            return _fetch_snapshot_answer_to_wire(answer, content)
        case _:
            assert_never(answer)


def _vote_answer_to_wire(answer: messages.VoteAnswer) -> vote.VoteResponse:
    if answer.top_error is not Error.NONE:
        return vote.VoteResponse(error_code=answer.top_error)
    partition = vote.VoteResponsePartitionData(
        error_code=answer.error,
        leader_id=answer.leader_id,
        leader_epoch=answer.epoch,
        vote_granted=answer.granted,
    )
    topic = vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = [
        vote.NodeEndpoint(node_id=answer.leader_id, host=one.host, port=one.port) for one in _given(answer.endpoint)
    ]
    return vote.VoteResponse(topics=[topic], node_endpoints=endpoints)


def _begin_answer_to_wire(answer: messages.BeginQuorumEpochAnswer) -> begin.BeginQuorumEpochResponse:
    if answer.top_error is not Error.NONE:
        return begin.BeginQuorumEpochResponse(error_code=answer.top_error)
    partition = begin.BeginQuorumEpochResponsePartitionData(
        error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
    )
    topic = begin.BeginQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = [
        begin.NodeEndpoint(node_id=answer.leader_id, host=one.host, port=one.port) for one in _given(answer.endpoint)
    ]
    return begin.BeginQuorumEpochResponse(topics=[topic], node_endpoints=endpoints)


def _end_answer_to_wire(answer: messages.EndQuorumEpochAnswer) -> end.EndQuorumEpochResponse:
    if answer.top_error is not Error.NONE:
        return end.EndQuorumEpochResponse(error_code=answer.top_error)
    partition = end.EndQuorumEpochResponsePartitionData(
        error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
    )
    topic = end.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = [
        end.NodeEndpoint(node_id=answer.leader_id, host=one.host, port=one.port) for one in _given(answer.endpoint)
    ]
    return end.EndQuorumEpochResponse(topics=[topic], node_endpoints=endpoints)


def _fetch_answer_to_wire(answer: messages.FetchAnswer, content: bytes) -> fetch.FetchResponse:
    if answer.top_error is not Error.NONE:
        return fetch.FetchResponse(error_code=answer.top_error)
    diverging, snapshot = answer.diverging, answer.snapshot
    partition = fetch.PartitionData(
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        records=content,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
        diverging_epoch=fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
        if diverging
        else fetch.EpochEndOffset(),
        snapshot_id=fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
        if snapshot
        else fetch.SnapshotId(),
    )
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    endpoints = [
        fetch.NodeEndpoint(node_id=answer.leader_id, host=one.host, port=one.port) for one in _given(answer.endpoint)
    ]
    return fetch.FetchResponse(responses=[topic], node_endpoints=endpoints)


def _fetch_snapshot_answer_to_wire(
    answer: messages.FetchSnapshotAnswer, content: bytes
) -> fetch_snapshot.FetchSnapshotResponse:
    if answer.top_error is not Error.NONE:
        return fetch_snapshot.FetchSnapshotResponse(error_code=answer.top_error)
    snapshot = answer.snapshot or OffsetAndEpoch(-1, -1)
    partition = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        error_code=answer.error,
        snapshot_id=fetch_snapshot.FetchSnapshotResponseSnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        size=answer.size,
        position=answer.position,
        unaligned_records=content,
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
    )
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    endpoints = [
        fetch_snapshot.NodeEndpoint(node_id=answer.leader_id, host=one.host, port=one.port)
        for one in _given(answer.endpoint)
    ]
    return fetch_snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=endpoints)


# --- answers, coming in


def answer_from_wire(body: object) -> Reply | None:
    """Return a peer's answer; None when it says nothing of the metadata log.

    Raises `CorruptBatch` or `MalformedMessage` on damaged records.
    """
    match body:
        case vote.VoteResponse():
            return _vote_answer(body)
        case begin.BeginQuorumEpochResponse():
            return _begin_answer(body)
        case end.EndQuorumEpochResponse():
            return _end_answer(body)
        case fetch.FetchResponse():
            return _fetch_answer(body)
        case fetch_snapshot.FetchSnapshotResponse():
            return _fetch_snapshot_answer(body)
        case _:
            raise AssertionError(f"{type(body).__name__} is not of the quorum")


def _vote_answer(body: vote.VoteResponse) -> Reply | None:
    partition = _first([(topic.topic_name, topic.partitions) for topic in body.topics])
    if partition is None:
        return _failed(messages.VoteAnswer(), body.error_code)
    answer = messages.VoteAnswer(top_error=body.error_code, error=partition.error_code, granted=partition.vote_granted)
    return _with_leader(answer, partition, body.node_endpoints)


def _begin_answer(body: begin.BeginQuorumEpochResponse) -> Reply | None:
    partition = _first([(topic.topic_name, topic.partitions) for topic in body.topics])
    if partition is None:
        return _failed(messages.BeginQuorumEpochAnswer(), body.error_code)
    answer = messages.BeginQuorumEpochAnswer(top_error=body.error_code, error=partition.error_code)
    return _with_leader(answer, partition, body.node_endpoints)


def _end_answer(body: end.EndQuorumEpochResponse) -> Reply | None:
    partition = _first([(topic.topic_name, topic.partitions) for topic in body.topics])
    if partition is None:
        return _failed(messages.EndQuorumEpochAnswer(), body.error_code)
    answer = messages.EndQuorumEpochAnswer(top_error=body.error_code, error=partition.error_code)
    return _with_leader(answer, partition, body.node_endpoints)


def _fetch_answer(body: fetch.FetchResponse) -> Reply | None:
    partition = _first([(topic.topic, topic.partitions) for topic in body.responses])
    if partition is None:
        return _failed(messages.FetchAnswer(), body.error_code)
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    content = partition.records or b""
    answer = messages.FetchAnswer(
        top_error=body.error_code,
        error=partition.error_code,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        diverging=OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging.epoch >= 0 else None,
        snapshot=OffsetAndEpoch(snapshot.end_offset, snapshot.epoch) if snapshot.epoch >= 0 else None,
        records=content,
        batches=_spans(content, fetched_batches(content, METADATA)),
    )
    return _with_leader(answer, partition.current_leader, body.node_endpoints)


def _fetch_snapshot_answer(body: fetch_snapshot.FetchSnapshotResponse) -> Reply | None:
    partition = _first([(topic.name, topic.partitions) for topic in body.topics])
    if partition is None:
        return _failed(messages.FetchSnapshotAnswer(), body.error_code)
    content = partition.unaligned_records or b""
    answer = messages.FetchSnapshotAnswer(
        top_error=body.error_code,
        error=partition.error_code,
        snapshot=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        size=partition.size,
        position=partition.position,
        length=len(content),
        content=content,
    )
    return _with_leader(answer, partition.current_leader, body.node_endpoints)


def _failed(answer: AnyAnswer, error: Error) -> AnyAnswer | None:
    return None if error is Error.NONE else msgspec.structs.replace(answer, top_error=error)


def _with_leader(answer: AnyAnswer, leader: Leader, endpoints: Iterable[Address]) -> AnyAnswer:
    return msgspec.structs.replace(
        answer, epoch=leader.leader_epoch, leader_id=NodeId(leader.leader_id), endpoint=_first_endpoint(endpoints)
    )


# --- batches


def spans(content: bytes | memoryview) -> tuple[BatchSpan, ...]:
    """Return the outline of whole batches; `CorruptBatch` or `MalformedMessage` when one is damaged."""
    return _spans(content, batches(content, METADATA))


def _spans(content: bytes | memoryview, headers: Iterable[BatchHeader]) -> tuple[BatchSpan, ...]:
    view = memoryview(content)
    outline = []
    for header in headers:
        if not has_valid_crc(view, header):
            raise CorruptBatch(METADATA, header.position, "checksum")
        voters: tuple[ReplicaKey, ...] | None = None
        endpoints: tuple[tuple[NodeId, Endpoint], ...] = ()
        for kind, value in control_records(view, header) if header.is_control else ():
            if kind == ControlType.KRAFT_VOTERS:
                record = decode_struct(VotersRecord, 0, value)
                voters, endpoints = _voters(record), _endpoints(record)
        outline.append(BatchSpan(header.base_offset, header.next_offset, header.leader_epoch, voters, endpoints))
    return tuple(outline)


def _voters(record: VotersRecord) -> tuple[ReplicaKey, ...]:
    return tuple(ReplicaKey(NodeId(one.voter_id), one.voter_directory_id) for one in record.voters)


def _endpoints(record: VotersRecord) -> tuple[tuple[NodeId, Endpoint], ...]:
    return tuple(
        (NodeId(one.voter_id), Endpoint(one.endpoints[0].host, one.endpoints[0].port))
        for one in record.voters
        if one.endpoints
    )
