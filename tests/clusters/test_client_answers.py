"""What clients were answered is read off their connections: of an offset the batch, of a position the fetch, and of which leader."""

from itertools import count
from uuid import UUID

import pytest

from replog.errors import Error
from replog.log import batch
from replog.types import TopicPartition
from replog.wire.apis import Api
from replog.wire.codec import encode_request, encode_response
from replog.wire.messages import offset_commit as oc
from replog.wire.messages import offset_fetch as of
from replog.wire.messages import txn_offset_commit as toc
from replog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from replog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tribunal.clusters.api import CLIENTS
from tribunal.clusters.links.answers import Appended, ClientAnswers
from tribunal.clusters.links.frames import REQUEST_HEAD_BYTES, RESPONSE_HEAD_BYTES, Conversation, Cutter

P = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)


class Line:
    """A connection of clients to a node, cut into small pieces."""

    def __init__(self, answers, node):
        talk = Conversation(CLIENTS, node)
        self.ways = {True: Cutter(talk.request, REQUEST_HEAD_BYTES), False: Cutter(talk.response, RESPONSE_HEAD_BYTES)}
        self.listener = answers.listener()

    def carry(self, data, *, is_request):
        for start in range(0, len(data), 7):
            for piece in self.ways[is_request].feed(bytes(data[start : start + 7])):
                self.listener.pass_by(piece)

    def produced(self, base_offset, number, *, error=Error.NONE, version=9, **sent):
        self.sends(number, version=version, **sent)
        self.acknowledges(base_offset, number, error=error, version=version)

    def sends(self, number, *, count=3, version=9, client_id="worker-1", producer=(40, 2, 0)):
        records = batch.build([batch.NewRecord(None, b"v")] * count, timestamp_ms=1, producer=producer)
        data = [PartitionProduceData(index=0, records=records)]
        asked = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=data)])
        self.carry(encode_request(Api.PRODUCE, version, number, client_id, asked), is_request=True)

    def acknowledges(self, base_offset, number, *, error=Error.NONE, version=9):
        answered = [PartitionProduceResponse(index=0, error_code=error, base_offset=base_offset)]
        answer = ProduceResponse(
            responses=[TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=answered)]
        )
        self.carry(encode_response(Api.PRODUCE, version, number, answer), is_request=False)

    def fetched(self, offset, number, *, epoch, high_watermark, error=Error.NONE, version=12):
        self.asks(offset, number, epoch=epoch, version=version)
        self.answers(number, high_watermark=high_watermark, error=error, version=version)

    def asks(self, offset, number, *, epoch, version=12):
        wanted = [FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=offset)]
        asked = FetchRequest(topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=wanted)])
        self.carry(encode_request(Api.FETCH, version, number, "reader-901", asked), is_request=True)

    def answers(self, number, *, high_watermark, error=Error.NONE, version=12):
        answered = PartitionData(
            error_code=error, high_watermark=high_watermark, last_stable_offset=high_watermark - 1, log_start_offset=0
        )
        answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[answered])])
        self.carry(encode_response(Api.FETCH, version, number, answer), is_request=False)


@pytest.fixture
def answers():
    return ClientAnswers(lambda: {"t": str(TOPIC_ID)}, count().__next__)


@pytest.mark.parametrize(("version", "topic_id"), [(9, None), (13, str(TOPIC_ID))])
def test_an_acknowledged_offset_is_of_the_batch_that_it_lies_in(answers, version, topic_id):
    Line(answers, 1).produced(10, 1, version=version)

    assert [answers.appended("worker-1", P, offset) for offset in (9, 10, 12, 13)] == [
        None, Appended(10, 13, 1, 40, 2, topic_id), Appended(10, 13, 1, 40, 2, topic_id), None,
    ]  # fmt: skip
    assert answers.appended("worker-2", P, 10) is None


def test_where_two_nodes_acknowledged_an_offset_nobody_is_named(answers):
    Line(answers, 1).produced(10, 1)
    Line(answers, 2).produced(12, 1)

    assert [getattr(answers.appended("worker-1", P, offset), "node", None) for offset in (11, 12, 13)] == [1, None, 2]


def test_a_batch_that_was_sent_again_is_of_who_answered_the_last_attempt(answers):
    """The first leader's answer passed the link and went with the client's connection when the leader was killed."""
    Line(answers, 1).produced(10, 1)
    Line(answers, 2).produced(10, 1)

    assert answers.appended("worker-1", P, 11).node == 2


def test_an_answer_to_a_former_attempt_that_comes_late_is_of_nobody_any_more(answers):
    first, second = Line(answers, 1), Line(answers, 2)
    first.sends(1)
    second.produced(10, 1)
    first.acknowledges(10, 1)

    assert answers.appended("worker-1", P, 11).node == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((40, 2, 0), (40, 2, 3), id="two batches of a producer"),
        pytest.param((40, 2, 0), (41, 0, 0), id="of two producers"),
        pytest.param((-1, -1, -1), (-1, -1, -1), id="of nobody in particular"),
    ],
)
def test_where_two_nodes_acknowledged_different_batches_at_one_offset_nobody_is_named(answers, one, other):
    Line(answers, 1).produced(10, 1, producer=one)
    Line(answers, 2).produced(10, 1, producer=other)

    assert answers.appended("worker-1", P, 11) is None


def test_a_refused_batch_is_of_no_offset(answers):
    Line(answers, 1).produced(-1, 1, error=Error.NOT_LEADER_OR_FOLLOWER)

    assert answers.appended("worker-1", P, -1) is None
    assert answers.appended("worker-1", P, 0) is None


@pytest.mark.parametrize("version", [12, 16])
def test_a_position_is_of_the_last_fetch_from_there_or_before(answers, version):
    one, two = Line(answers, 1), Line(answers, 2)
    one.fetched(0, 1, epoch=3, high_watermark=20, version=version)
    one.fetched(20, 2, epoch=3, high_watermark=40, version=version)
    two.fetched(30, 1, epoch=4, high_watermark=35, error=Error.NOT_LEADER_OR_FOLLOWER, version=version)

    def answered(position):
        found = answers.fetched("reader-901", P, position)
        return (found.node, found.leader_epoch, found.high_watermark, found.last_stable_offset)

    assert [answered(position) for position in (0, 19, 20, 35)] == [
        (1, 3, 20, 19),
        (1, 3, 20, 19),
        (1, 3, 40, 39),
        (1, 3, 40, 39),
    ]

    # A new leader is asked again from where the user stands: what the old one had said behind it is thrown away.
    two.fetched(10, 2, epoch=4, high_watermark=15, version=version)

    assert [answered(position) for position in (9, 10, 20)] == [(1, 3, 20, 19), (2, 4, 15, 14), (2, 4, 15, 14)]
    answers.forget("reader-901")
    assert answers.fetched("reader-901", P, 10) is None


def test_an_answer_knows_when_its_question_passed(answers):
    """Two are under way: each answer was made after its own question, however late it comes."""
    one = Line(answers, 1)
    one.asks(0, 1, epoch=3)
    one.asks(20, 2, epoch=3)
    one.answers(1, high_watermark=20)
    one.answers(2, high_watermark=40)
    one.fetched(40, 3, epoch=3, high_watermark=60)

    assert [answers.fetched("reader-901", P, position).asked_s for position in (0, 20, 40)] == [0, 1, 2]


def test_frames_that_cannot_be_read_pass_unheard(answers):
    line = Line(answers, 1)
    asked = encode_request(Api.PRODUCE, 9, 1, "worker-1", ProduceRequest(acks=-1))
    line.carry(bytes(asked[:14]) + bytes(len(asked) - 14), is_request=True)
    line.produced(10, 2)

    assert answers.appended("worker-1", P, 10).node == 1


def test_an_answer_of_a_deposed_leader_that_comes_late_is_of_no_position(answers):
    paused, new = Line(answers, 1), Line(answers, 2)
    paused.asks(10, 1, epoch=3)
    new.fetched(10, 1, epoch=4, high_watermark=30)
    new.fetched(30, 2, epoch=4, high_watermark=50)

    paused.answers(1, high_watermark=90)

    found = [answers.fetched("reader-901", P, position) for position in (10, 30)]
    assert [(one.node, one.leader_epoch, one.high_watermark) for one in found] == [(2, 4, 30), (2, 4, 50)]


def test_an_answer_to_what_was_asked_before_a_client_went_elsewhere_is_of_no_position(answers):
    one = Line(answers, 1)
    one.asks(500, 1, epoch=3)
    answers.forget("reader-901")
    one.answers(1, high_watermark=900)

    assert answers.fetched("reader-901", P, 600) is None

    one.fetched(100, 2, epoch=3, high_watermark=900)
    assert answers.fetched("reader-901", P, 600).offset == 100


def test_who_answers_for_a_topic_that_is_gone_answers_for_no_other_one_of_that_name():
    there = {"t": str(TOPIC_ID)}
    answers = ClientAnswers(lambda: there, count().__next__)
    Line(answers, 1).fetched(0, 1, epoch=0, high_watermark=5, version=13)
    there["t"] = str(UUID(int=8))
    answers.name("", UUID(int=8))

    Line(answers, 1).fetched(5, 1, epoch=0, high_watermark=9, version=13)

    found = answers.fetched("reader-901", P, 5)
    assert (found.topic_id, found.high_watermark) == (str(TOPIC_ID), 9)


OFFSETS = {P: 7}


def commits(line, number, offset=7, *, version=9, error=Error.NONE, answered=True):
    """Let a member commit, and a coordinator answer."""
    part = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    asked = oc.OffsetCommitRequest(
        group_id="g", topics=[oc.OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=[part])]
    )
    line.carry(encode_request(Api.OFFSET_COMMIT, version, number, "member-8", asked), is_request=True)
    done = oc.OffsetCommitResponsePartition(partition_index=0, error_code=error)
    answer = oc.OffsetCommitResponse(
        topics=[oc.OffsetCommitResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[done])]
    )
    if answered:
        line.carry(encode_response(Api.OFFSET_COMMIT, version, number, answer), is_request=False)


def commits_in_transaction(line, number, *, version=3):
    """Let a producer commit a group's positions, and the group's coordinator answer."""
    part = toc.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = toc.TxnOffsetCommitRequestTopic(name="t", partitions=[part])
    asked = toc.TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[topic])
    line.carry(encode_request(Api.TXN_OFFSET_COMMIT, version, number, "worker-1", asked), is_request=True)
    done = toc.TxnOffsetCommitResponsePartition(partition_index=0)
    answer = toc.TxnOffsetCommitResponse(topics=[toc.TxnOffsetCommitResponseTopic(name="t", partitions=[done])])
    line.carry(encode_response(Api.TXN_OFFSET_COMMIT, version, number, answer), is_request=False)


def fetches_positions(line, number, offset, *, version=9, error=Error.NONE):
    """Let a member ask for its group's positions, and a coordinator answer."""
    older = of.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    wanted = of.OffsetFetchRequestTopics(name="t", topic_id=TOPIC_ID, partition_indexes=[0])
    group = of.OffsetFetchRequestGroup(group_id="g", topics=[wanted])
    asked = of.OffsetFetchRequest(group_id="g", topics=[older], groups=[group])
    line.carry(encode_request(Api.OFFSET_FETCH, version, number, "member-8", asked), is_request=True)
    place = {"partition_index": 0, "committed_offset": offset, "error_code": error}
    found = of.OffsetFetchResponseTopic(name="t", partitions=[of.OffsetFetchResponsePartition(**place)])
    newer = of.OffsetFetchResponseTopics(
        name="t", topic_id=TOPIC_ID, partitions=[of.OffsetFetchResponsePartitions(**place)]
    )
    answer = of.OffsetFetchResponse(topics=[found], groups=[of.OffsetFetchResponseGroup(group_id="g", topics=[newer])])
    line.carry(encode_response(Api.OFFSET_FETCH, version, number, answer), is_request=False)


@pytest.mark.parametrize("version", [7, 9, 10])
def test_a_commit_is_answered_by_who_took_these_positions(answers, version):
    commits(Line(answers, 2), 1, version=version)

    assert answers.coordinated("member-8", OFFSETS, is_commit=True) == 2
    assert answers.coordinated("member-8", {P: 8}, is_commit=True) is None
    assert answers.coordinated("member-8", OFFSETS, is_commit=False) is None
    assert answers.coordinated("member-9", OFFSETS, is_commit=True) is None


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param({"error": Error.NOT_COORDINATOR}, 1, id="refused"),
        pytest.param({"answered": False}, 1, id="not answered"),
        pytest.param({}, 2, id="taken"),
    ],
)
def test_positions_that_were_committed_again_are_of_who_took_the_last_attempt(answers, second, expected):
    commits(Line(answers, 1), 1)
    commits(Line(answers, 2), 1, **second)

    assert answers.coordinated("member-8", OFFSETS, is_commit=True) == expected


def test_a_commit_in_a_transaction_is_answered_by_the_groups_coordinator(answers):
    commits_in_transaction(Line(answers, 3), 1)

    assert answers.coordinated("worker-1", OFFSETS, is_commit=True) == 3


@pytest.mark.parametrize("version", [7, 9, 10])
def test_positions_are_of_who_gave_them(answers, version):
    fetches_positions(Line(answers, 1), 1, 7, version=version)
    fetches_positions(Line(answers, 2), 1, -1, version=version)
    fetches_positions(Line(answers, 3), 1, 7, version=version, error=Error.UNSTABLE_OFFSET_COMMIT)

    assert answers.coordinated("member-8", OFFSETS, is_commit=False) == 1
    assert answers.coordinated("member-8", {P: None}, is_commit=False) == 2
