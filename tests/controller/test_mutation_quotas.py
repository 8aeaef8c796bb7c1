"""Partitions are created and deleted no faster than a client's quota permits: `controller_mutation_rate` (KIP-599)."""

from typing import Any

import pytest

from replog.controller.events import Client
from replog.controller.mutation_quotas import KEPT_MAX, WINDOW_S, MutationQuotas
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.client_quotas import CLIENT_ID, MUTATION_RATE, USER, entity_of
from replog.wire.messages import create_partitions as cp
from replog.wire.messages import create_topics as ct
from replog.wire.messages import delete_topics as dt
from tests.cases.controllers import Box

RATE = 2.0
BURST = int(RATE * WINDOW_S)
STRICT, LENIENT = Client("alice", "app", 7), Client("alice", "app", 5)
OTHER = Client("bob", "app", 7)
EXCEEDED = Error.THROTTLING_QUOTA_EXCEEDED


def box(parts: dict[str, str | None] | None = None, rate: float = RATE) -> Box:
    made = Box().features().broker(1)
    made.replay(r.quota_record(entity_of({USER: "alice"} if parts is None else parts), MUTATION_RATE, rate))
    return made.activate()


def created(there: Box, client: Client | None, *wanted: tuple[str, int], validate_only: bool = False) -> Any:
    topics = [ct.CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in wanted]
    answer = there.send(ct.CreateTopicsRequest(topics=topics, validate_only=validate_only), client=client)
    return [one.error_code for one in answer.topics], answer.throttle_time_ms


def test_topics_are_created_until_something_is_owed_and_then_refused_one_by_one() -> None:
    there = box()

    errors, wait_ms = created(there, STRICT, ("a", BURST), ("b", 10), ("c", 1))

    assert errors == [Error.NONE, Error.NONE, EXCEEDED]  # what is left may be 0, and then fall below it
    assert 10 / RATE * 1000 <= wait_ms <= 10 / RATE * 1000 + 1
    assert {*there.image.topics_by_name} == {"a", "b"}


def test_who_has_waited_is_served_and_who_has_not_is_not() -> None:
    there = box()
    _, nothing_ms = created(there, STRICT, ("a", BURST + 10))
    errors, wait_ms = created(there, STRICT, ("b", 1))

    there.now_ms += wait_ms - 2
    early, left_ms = created(there, STRICT, ("b", 1))
    there.now_ms += left_ms
    late = created(there, STRICT, ("b", 1))

    assert (nothing_ms, errors, early) == (0, [EXCEEDED], [EXCEEDED])
    assert 1 <= left_ms <= 3
    assert late == ([Error.NONE], 0)


def test_deletions_and_more_partitions_count_as_well() -> None:
    there = box()
    created(there, None, ("a", 30), ("b", 1))

    deleted = there.send(dt.DeleteTopicsRequest(topic_names=["a"]), client=STRICT)
    grown = there.send(cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name="b", count=2)]), client=STRICT)
    again = there.send(dt.DeleteTopicsRequest(topic_names=["b"]), client=STRICT)

    assert [deleted.responses[0].error_code, grown.results[0].error_code] == [Error.NONE, EXCEEDED]
    assert again.responses[0].error_code == EXCEEDED
    assert [answer.throttle_time_ms > 0 for answer in (deleted, grown, again)] == [False, True, True]
    assert len(there.image.topics_by_name["b"].partitions) == 1


def test_a_client_that_does_not_know_the_error_is_served_and_waits() -> None:
    there = box()

    first = created(there, LENIENT, ("a", BURST))
    errors, wait_ms = created(there, LENIENT, ("b", 10))
    more_errors, longer_ms = created(there, LENIENT, ("c", 10))

    assert first == ([Error.NONE], 0)
    assert errors == more_errors == [Error.NONE]
    assert 0 < wait_ms < longer_ms


@pytest.mark.parametrize("client", [
    pytest.param(OTHER, id="another user"),
    pytest.param(None, id="a node, or who asks the controller itself"),
])  # fmt: skip
def test_nobody_else_waits(client: Client | None) -> None:
    there = box()
    created(there, STRICT, ("a", BURST + 100))

    assert created(there, client, ("b", 100), ("c", 100)) == ([Error.NONE, Error.NONE], 0)


def test_those_whom_a_quota_counts_together_share_it_and_others_have_each_their_own() -> None:
    together, apart = box({CLIENT_ID: "app"}), box({USER: None})
    for there in (together, apart):
        created(there, STRICT, ("a", BURST + 10))

    assert created(together, OTHER, ("b", 1))[0] == [EXCEEDED]
    assert created(apart, OTHER, ("b", 1))[0] == [Error.NONE]


def test_what_is_refused_or_only_validated_costs_nothing() -> None:
    there = box()
    for number in range(5):
        created(there, STRICT, ("no/name", BURST))
        created(there, STRICT, (f"t{number}", BURST), validate_only=True)

    assert created(there, STRICT, ("a", BURST), ("b", 1)) == ([Error.NONE, Error.NONE], 0)


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-9])
@pytest.mark.parametrize("client", [STRICT, LENIENT], ids=["refused", "served"])
def test_who_may_do_next_to_nothing_waits_for_as_long_as_can_be_said(client: Client, rate: float) -> None:
    there = box(rate=rate)
    created(there, client, ("a", 3))

    errors, wait_ms = created(there, client, ("b", 1))

    assert errors == [EXCEEDED if client is STRICT else Error.NONE]
    assert wait_ms == 2**31 - 1


def test_who_names_a_client_for_each_request_fills_no_memory() -> None:
    there = box({CLIENT_ID: None})
    for number in range(KEPT_MAX + 10):
        created(there, Client("alice", str(number), 7), ("no/name", 1))

    quotas: MutationQuotas = there.controller.mutations
    assert len(quotas._buckets) == KEPT_MAX
