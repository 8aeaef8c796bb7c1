"""Members of groups through librdkafka: what waits for a coordinator holds up nobody."""

import asyncio
import time

from tribunal.clusters.api import Answered, GroupSettings, TopicPartition
from tribunal.clusters.clients.confluent_coordinated import ConfluentMember
from tribunal.clusters.links.answers import ClientAnswers

NOBODY = "127.0.0.1:1"


def test_a_commit_without_a_coordinator_leaves_the_member_usable() -> None:
    async def story() -> tuple[Answered, float]:
        settings = GroupSettings(group="g", topic="t", isolation="read_committed", session_timeout_ms=6_000)
        member = ConfluentMember(NOBODY, "member-8", settings, ClientAnswers(dict, time.monotonic))
        began = time.monotonic()
        answered = await member.commit({TopicPartition("t", 0): 5}, 200)
        assert await member.poll(10, 50) == []
        assert member.membership.member is None
        took_s = time.monotonic() - began
        await member.close()
        return answered, took_s

    answered, took_s = asyncio.run(story())

    assert answered == Answered("info", "_TIMED_OUT")
    assert took_s < 4  # librdkafka itself gives up after the session's 6 s
