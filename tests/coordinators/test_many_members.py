"""Groups of hundreds of members whose subscriptions differ, as while a service is rolled out that reads one topic more."""

from time import process_time
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.coordinators.consumer_group import Partitions
from replog.coordinators.consumer_group_assignors import Counts, Loads, Target, Wish, uniform_assignment
from replog.types import TopicIdPartition

MEMBERS = 400
TOPICS = [UUID(int=number) for number in range(1, 21)]
MOST_S = 1.0  # of all, twice; with a look at each member for each partition it is three times that


def rolled_out(count: int) -> dict[str, frozenset[UUID]]:
    """What each member wants, where so many of them read the last topic, too."""
    return {f"member-{number:03}": frozenset(TOPICS if number < count else TOPICS[:-1]) for number in range(MEMBERS)}


def assigned(topics: dict[str, frozenset[UUID]], counts: Counts, before: Target) -> Target:
    nothing: Partitions = frozenset()
    wishes = {
        name: Wish(topics=wanted, before=before.get(name, nothing), order=name) for name, wanted in topics.items()
    }
    return uniform_assignment(wishes, counts)


def test_partitions_are_spread_among_hundreds_of_members_in_no_time() -> None:
    """Each member that joins or changes its mind has all of it done again, and nobody else is answered meanwhile."""
    counts = dict.fromkeys(TOPICS, 500)
    began = process_time()
    first = assigned(rolled_out(MEMBERS // 2), counts, {})
    second = assigned(rolled_out(MEMBERS // 2 + 1), counts, first)
    assert process_time() - began < MOST_S

    for target in (first, second):
        assert {len(share) for share in target.values()} == {25}
        assert sum(map(len, target.values())) == len(frozenset[TopicIdPartition]().union(*target.values())) == 10_000
    assert sum(len(first[name] - second[name]) for name in first) < 100


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60), st.data())
def test_who_has_least_is_who_has_least_of_all(steps: list[tuple[str, bool]], data: st.DataObject) -> None:
    subscribers = {topic: sorted(data.draw(st.sets(st.sampled_from("abcd"), min_size=1))) for topic in TOPICS[:3]}
    loads = Loads(subscribers, list("abcd"))
    for member, gives in steps:
        if gives:
            loads.give(member)
        elif loads.of[member]:
            loads.take(member)

        for topic, members in subscribers.items():
            assert loads.least(topic) == min(members, key=lambda name: (loads.of[name], name))


@pytest.mark.parametrize("extra", [0, 1])
def test_a_topic_that_nobody_wants_is_with_nobody(extra: int) -> None:
    counts = {TOPICS[0]: 2, TOPICS[1]: 2 + extra, TOPICS[2]: 5}
    found = assigned({"a": frozenset(TOPICS[:1]), "b": frozenset(TOPICS[:2])}, counts, {})

    assert found["a"] | found["b"] == {
        TopicIdPartition(topic, index) for topic in TOPICS[:2] for index in range(counts[topic])
    }
