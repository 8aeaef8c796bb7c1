"""Which partitions nobody can write to, because those who would have to ask a coordinator that is not there."""

import pytest

from replog.coordinators.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from tribunal.clusters.api import TopicPartition
from tribunal.clusters.simulated.writers import Writers

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
KNOWN = [P, Q, *(TopicPartition(topic, number) for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) for number in range(4))]


def keeps(transactional_id: str) -> TopicPartition:
    return TopicPartition(TRANSACTIONS_TOPIC, partition_for(transactional_id, 4))


def keeps_positions(group: str) -> TopicPartition:
    return TopicPartition(OFFSETS_TOPIC, partition_for(group, 4))


def other_than(partition: TopicPartition) -> list[TopicPartition]:
    return [one for one in KNOWN if one != partition]


@pytest.fixture
def writers() -> Writers:
    """Two processes in transactions of one id."""
    found = Writers()
    for client in ("worker-1", "worker-2"):
        found.named(client, "processor-2").sends_to(P)
    return found


def test_who_writes_in_transactions_waits_for_what_keeps_these(writers):
    assert writers.all_wait_for(P, KNOWN, [keeps("processor-2")])


def test_who_writes_in_transactions_waits_for_no_other_partition(writers):
    assert not writers.all_wait_for(P, KNOWN, other_than(keeps("processor-2")))


def test_who_writes_without_transactions_waits_for_none(writers):
    writers.named("worker-3", None).sends_to(P)

    assert not writers.all_wait_for(P, KNOWN, KNOWN)


def test_one_whose_transactions_are_kept_elsewhere_goes_on(writers):
    other = next(f"x{number}" for number in range(9) if keeps(f"x{number}") != keeps("processor-2"))
    writers.named("worker-3", other).sends_to(P)

    assert not writers.all_wait_for(P, KNOWN, [keeps("processor-2")])
    assert writers.all_wait_for(P, KNOWN, [keeps("processor-2"), keeps(other)])


def test_a_partition_to_which_nobody_writes_waits_for_none(writers):
    assert not writers.all_wait_for(Q, KNOWN, KNOWN)


def test_the_present_id_counts(writers):
    other = next(f"x{number}" for number in range(9) if keeps(f"x{number}") != keeps("processor-2"))
    for client in ("worker-1", "worker-2"):
        writers.named(client, other)

    assert not writers.all_wait_for(P, KNOWN, [keeps("processor-2")])
    assert writers.all_wait_for(P, KNOWN, [keeps(other)])


def test_a_group_whose_positions_transactions_commit_counts(writers):
    for client in ("worker-1", "worker-2"):
        writers.named(client, "processor-2").groups.add("g")

    others = [one for one in other_than(keeps_positions("g")) if one.topic == OFFSETS_TOPIC]
    assert writers.all_wait_for(P, KNOWN, [keeps_positions("g")])
    assert not writers.all_wait_for(P, KNOWN, others)


def test_what_is_not_there_yet_keeps_nothing(writers):
    assert not writers.all_wait_for(P, [P, Q], [keeps("processor-2")])
