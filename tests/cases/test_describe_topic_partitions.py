"""Family describe_topic_partitions: pages and cursors."""

from typing import Any
from uuid import UUID

import pytest

from replog.controller.describe import InvalidCursor, page
from replog.errors import Error
from replog.wire.messages import describe_topic_partitions as m
from tests.cases.cases import load, only
from tests.cases.controllers import Box
from tests.cases.partitions import partition


@pytest.mark.parametrize("case", load("describe_topic_partitions"))
def test_describe_topic_partitions(case: dict[str, Any]) -> None:
    given = only(case["given"], {"topics"}, "given")
    when = only(case["when"], {"topics", "cursor", "limit", "server_limit", "unauthorized"}, "when")
    then = only(case["then"], {"error", "topics", "next"}, "then")
    box = Box().features().broker(1)
    for number, (name, count) in enumerate(given["topics"].items()):
        box.topic(*[partition({"replicas": [1]})] * count, name=name, topic_id=UUID(int=500 - number))
    cursor = when.get("cursor")
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.TopicRequest(name=name) for name in when.get("topics", [])],
        response_partition_limit=when.get("limit", 2000),
        cursor=m.DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1])
        if cursor
        else None,
    )
    hidden = when.get("unauthorized", [])

    try:
        answer = page(box.image, request, when.get("server_limit", 2000), lambda name: name not in hidden)
    except InvalidCursor:
        assert then["error"] == "INVALID_REQUEST"
        return

    assert then["error"] == "NONE"
    described = [
        [topic.name, Error(topic.error_code).name, [each.partition_index for each in topic.partitions]]
        for topic in answer.topics
    ]
    following = answer.next_cursor
    assert described == then["topics"]
    assert ([following.topic_name, following.partition_index] if following else None) == then["next"]


def test_partitions_that_are_not_known_are_left_out_and_the_next_page_begins_behind_them() -> None:
    """A broker of ZooKeeper mode was told of partitions 1 and 3 alone (found by tests/fuzz/test_conversations.py)."""
    box = Box().features().broker(1)
    box.topic(*[partition({"replicas": [1]})] * 4, name="t", topic_id=UUID(int=500))
    for unknown in (0, 2):
        del box.image.topics_by_name["t"].partitions[unknown]

    def asked(cursor: m.DescribeTopicPartitionsRequestCursor | None) -> m.DescribeTopicPartitionsResponse:
        request = m.DescribeTopicPartitionsRequest(topics=[m.TopicRequest(name="t")], cursor=cursor)
        return page(box.image, request, 1, lambda _: True)

    first = asked(None)
    second = asked(first.next_cursor)

    pages = [
        [each.partition_index for topic in answer.topics for each in topic.partitions] for answer in (first, second)
    ]
    assert pages == [[1], [3]]
    assert second.next_cursor is None
