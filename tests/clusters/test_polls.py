"""Who answered what a real consumer read: a poll is of one node and leader epoch, and an error is of none of its former answers."""

import time

import pytest
from confluent_kafka import KafkaError, Message

from replog.types import TopicPartition
from tribunal.clusters.clients.confluent import ConfluentConsumer
from tribunal.clusters.links.answers import ClientAnswers, Fetched

P = TopicPartition("t", 0)
CLIENT = "reader-901"


@pytest.fixture
def answers():
    return ClientAnswers(dict, time.monotonic)


@pytest.fixture
def consumer(answers):
    made = ConfluentConsumer("127.0.0.1:1", CLIENT, "read_committed", answers)
    made.positions = {P: 10}
    yield made
    made.consumer.close()


def fetched(answers, offset, node, leader_epoch, high_watermark):
    one = Fetched(offset, node, leader_epoch, high_watermark, high_watermark, 0)
    answers.note_fetched(answers.next_question(), CLIENT, P, one)


def records(*offsets):
    return [Message(topic="t", partition=0, offset=offset, value=b"v", timestamp=(1, 5)) for offset in offsets]


def answered(poll):
    offsets = [record.log_offset for record in poll.records]
    return (poll.position, offsets, poll.answered_by, poll.leader_epoch, poll.high_watermark)


def test_records_of_two_leaders_are_two_polls(answers, consumer):
    fetched(answers, 10, 1, 3, 12)
    fetched(answers, 12, 2, 4, 15)

    polls = consumer._polls(records(10, 11, 12, 13))

    assert [answered(poll) for poll in polls] == [(10, [10, 11], 1, 3, 12), (12, [12, 13], 2, 4, 15)]
    assert consumer.positions == {P: 14}


def test_records_of_two_answers_of_one_leader_are_one_poll_with_the_newest_ends(answers, consumer):
    fetched(answers, 10, 1, 3, 12)
    fetched(answers, 12, 1, 3, 15)

    assert [answered(poll) for poll in consumer._polls(records(10, 11, 12))] == [(10, [10, 11, 12], 1, 3, 15)]


def test_records_behind_markers_are_of_the_answer_that_brought_them(answers, consumer):
    fetched(answers, 8, 1, 3, 12)  # up to markers at 10 and 11
    fetched(answers, 12, 2, 4, 15)

    assert [answered(poll) for poll in consumer._polls(records(12, 13))] == [(10, [12, 13], 2, 4, 15)]


def test_an_end_is_of_the_answer_that_showed_it(answers, consumer):
    fetched(answers, 8, 1, 3, 12)
    fetched(answers, 12, 2, 4, 12)
    end = Message(topic="t", partition=0, offset=12, error=KafkaError(KafkaError._PARTITION_EOF))

    assert [answered(poll) for poll in consumer._polls([end])] == [(10, [], 2, 4, 12)]


def test_an_error_is_of_no_former_answer(answers, consumer):
    fetched(answers, 10, 1, 3, 12)
    error = Message(topic="t", partition=0, offset=10, error=KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))

    (poll,) = consumer._polls([error])

    assert answered(poll) == (10, [], None, None, None)
    assert poll.error == "OFFSET_OUT_OF_RANGE"
