"""Partitions are created no faster than the settings permit (KIP-599's bucket)."""

from typing import Any

import pytest

from replog.controller.creation_rate import CreationRate
from replog.errors import Error
from replog.wire.messages import create_partitions as cp
from replog.wire.messages import create_topics as ct
from tests.cases.controllers import Box


def box(**settings: Any) -> Box:
    return Box(**settings).features().broker(1).activate()


def create(box: Box, name: str, count: int, *, validate_only: bool = False) -> tuple[Error, int]:
    wanted = ct.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    answer = box.send(ct.CreateTopicsRequest(topics=[wanted], validate_only=validate_only))
    (topic,) = answer.topics
    return topic.error_code, answer.throttle_time_ms


def grow(box: Box, name: str, count: int) -> tuple[Error, int]:
    answer = box.send(cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name=name, count=count)]))
    return answer.results[0].error_code, answer.throttle_time_ms


SERVED = (Error.NONE, 0)


def test_who_wants_more_than_is_left_waits_until_it_is_made_up_for() -> None:
    limited = box(partition_creation_rate=10)

    first = create(limited, "a", 30)  # more than a second's worth, from a full bucket
    error, wait_ms = create(limited, "b", 1)
    grown, _ = grow(limited, "a", 31)
    looked = create(limited, "c", 1, validate_only=True)
    limited.now_ms += wait_ms
    later = create(limited, "b", 1)

    assert first == looked == later == SERVED
    assert (error, grown) == (Error.THROTTLING_QUOTA_EXCEEDED, Error.THROTTLING_QUOTA_EXCEEDED)
    assert 2000 <= wait_ms <= 2002
    assert {*limited.image.topics_by_name} == {"a", "b"}
    assert len(limited.image.topics_by_name["a"].partitions) == 30


def test_what_is_refused_for_another_reason_costs_nothing() -> None:
    limited = box(partition_creation_rate=1)

    assert [create(limited, "no/name", 5)[0] for _ in range(3)] == [Error.INVALID_TOPIC_EXCEPTION] * 3
    assert create(limited, "a", 1) == SERVED


def test_unless_it_is_set_nobody_waits() -> None:
    free = box()

    assert [create(free, str(number), 100) for number in range(50)] == [SERVED] * 50


@pytest.mark.parametrize("step_ms", [1, 7, 1000, 100_000])
def test_over_any_time_the_rate_holds(step_ms: int) -> None:
    rate, now_ms, created = CreationRate(20), 5_000, 0
    for _ in range(500):
        if not rate.wait_ms(now_ms):
            rate.spend(3)
            created += 3
        now_ms += step_ms

    seconds = 500 * step_ms / 1000
    assert created <= 20 * (seconds + 1) + 3
    assert created >= min(1500, 20 * seconds) * 0.9
