"""`delete.topic.enable`: who may not delete topics is refused, and the topic stays."""

from uuid import UUID

import pytest

from replog.errors import Error
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_topics as dt
from tests.cases.controllers import Box


def with_a_topic(**settings: bool) -> tuple[Box, UUID]:
    box = Box(**settings).features().broker(1).activate()
    answer = box.send(
        ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    )
    return box, answer.topics[0].topic_id


def requests(topic_id: UUID) -> list[dt.DeleteTopicsRequest]:
    return [
        dt.DeleteTopicsRequest(topic_names=["t"]),
        dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name="t")]),
        dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=None, topic_id=topic_id)]),
    ]


@pytest.mark.parametrize("form", [0, 1, 2])
def test_where_deletion_is_disabled_each_topic_is_refused_and_stays(form: int) -> None:
    box, topic_id = with_a_topic(topic_deletion=False)

    answer = box.send(requests(topic_id)[form])

    assert [one.error_code for one in answer.responses] == [Error.TOPIC_DELETION_DISABLED]
    assert "t" in box.image.topics_by_name


@pytest.mark.parametrize("form", [0, 1, 2])
def test_by_default_topics_are_deleted(form: int) -> None:
    box, topic_id = with_a_topic()

    answer = box.send(requests(topic_id)[form])

    assert [one.error_code for one in answer.responses] == [Error.NONE]
    assert "t" not in box.image.topics_by_name
