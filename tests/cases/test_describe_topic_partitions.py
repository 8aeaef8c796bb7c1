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
