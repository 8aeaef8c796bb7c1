"""Whatever readers do (KIP-848): no partition is with two of them, and at rest each is with one."""

import re
from contextlib import suppress
from time import process_time
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.coordinators.consumer_group import ConsumerGroupState
from replog.coordinators.consumer_group_assignors import ASSIGNORS, Wish
from replog.coordinators.topic_pattern import BadPattern, TopicPattern
from replog.errors import Error
from replog.types import TopicIdPartition
from tests.coordinators.test_consumer_group_scenarios import Reader, SomeTopics, a_driver, successor

NAMES = ["a", "b", "s", "c"]
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["beat", "beat", "beat", "slow", "lost", "again", "leave", "away"]), st.integers(0, 3)
        ),
        st.tuples(st.just("time"), st.sampled_from([100, 1_500, 20_000, 50_000])),
        st.tuples(st.sampled_from(["grow", "failover"]), st.just(0)),
    ),
    min_size=5,
    max_size=50,
)


class World:
    """Readers of one group, one of them static, and what they believe to own."""

    def __init__(self, assignor: str) -> None:
        self.topics = SomeTopics(t=3, u=2)
        self.driver = a_driver(self.topics)
        wanted = [["t"], ["t", "u"], ["t", "u"], ["u"]]
        self.readers = [
            Reader(self.driver, name, topics=topics, server_assignor=assignor)
            for name, topics in zip(NAMES, wanted, strict=True)
        ]
        self.readers[2].said["instance_id"] = "static"

    def step(self, what: str, number: int) -> None:
        if what == "time":
            self.driver.pass_time(number)
        elif what == "grow":
            self.topics.counts["t"] += 1
        elif what == "failover":
            self._fail_over()
        else:
            self._read(what, self.readers[number])
        self.check()

    def _read(self, what: str, reader: Reader) -> None:
        if what == "leave":
            reader.beat(epoch=-1)
            reader.owned, reader.epoch = set(), 0
        elif what == "away":
            reader.beat(epoch=-2)
            reader.owned, reader.epoch = set(), 0
        elif what == "again":
            reader.beat(epoch=0)
        else:
            had, epoch = set(reader.owned), reader.epoch
            answer = reader.beat(keeps=what == "slow")
            if what == "lost" and answer.error_code is Error.NONE:
                reader.owned, reader.epoch = had, epoch  # the answer never reached it
            if answer.error_code is not Error.NONE:
                reader.owned, reader.epoch = set(), 0  # fenced, or forgotten: it begins anew

    def _fail_over(self) -> None:
        after = successor(self.driver)
        after.log = list(self.driver.log)
        after.now = self.driver.now
        after.core.on_loaded(after.now)
        self.driver = after
        for reader in self.readers:
            reader.driver = after

    def check(self) -> None:
        group = self.driver.core.consumer.groups.get("g")
        if group is None:
            return
        held: dict[TopicIdPartition, str] = {}
        for member_id, place in group.places.items():
            for partition in place.assigned | place.revoking:
                assert held.setdefault(partition, member_id) == member_id
        assert held == group.holders
        assert group.assignment_epoch <= group.epoch
        for reader in self.readers:
            place = group.places.get(reader.name)
            if place is not None and place.epoch == reader.epoch > 0:
                assert {(one.topic_id, one.partition) for one in place.assigned | place.revoking} >= reader.owned


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_no_partition_is_with_two_members_and_all_are_given_at_rest(assignor: str) -> None:
    @given(STEPS)
    @settings(max_examples=150, deadline=None)
    def run(steps: list[tuple[str, int]]) -> None:
        world = World(assignor)
        for what, number in steps:
            world.step(what, number)
        for reader in world.readers:
            if reader.name == "s":
                reader.beat(epoch=-1)
        world.driver.pass_time(60_000)  # who left without a word is out
        for _ in range(6):
            world.driver.pass_time(1_500)
            for reader in world.readers:
                world._read("beat", reader)
                world.check()
        group = world.driver.core.consumer.groups["g"]
        assert group.state is ConsumerGroupState.STABLE
        everything = {(world.topics.ids[name], i) for name, count in world.topics.counts.items() for i in range(count)}
        owned: list[Any] = [one for reader in world.readers for one in reader.owned]
        assert len(owned) == len(set(owned))
        assert set(owned) == everything

    run()


IDS = [UUID(int=1), UUID(int=2), UUID(int=3)]


@given(st.lists(st.sets(st.sampled_from(IDS)), min_size=1, max_size=6), st.tuples(*[st.integers(0, 9)] * 3), st.data())
@settings(max_examples=150, deadline=None)
def test_assignors_give_each_wanted_partition_to_one_who_wants_it(
    wanted: list[set[UUID]], sizes: tuple[int, ...], data: st.DataObject
) -> None:
    counts = dict(zip(IDS, sizes, strict=True))
    wishes = {f"m{i}": Wish(topics=frozenset(topics), order=f"m{i}") for i, topics in enumerate(wanted)}
    for name, assign in ASSIGNORS.items():
        target = assign(wishes, counts)
        given_out = [partition for share in target.values() for partition in share]
        expected = [(topic, i) for topic in set().union(*wanted) for i in range(counts[topic])]
        assert sorted(given_out) == sorted(expected)
        assert all(one.topic_id in wishes[member].topics for member, share in target.items() for one in share)
        if name == "uniform" and len({wish.topics for wish in wishes.values()}) == 1:
            loads = [len(share) for share in target.values()]
            assert max(loads) - min(loads) <= 1
            fewer = data.draw(st.sampled_from(sorted(wishes)))
            rest = {
                member: Wish(topics=wish.topics, order=member, before=target[member])
                for member, wish in wishes.items()
                if member != fewer
            }
            after = assign(rest, counts)
            assert all(target[member] <= after[member] for member in rest)  # nobody gives up what it need not


ALPHABET = st.sampled_from(
    ["a", "b", ".", "-", "x*", "(a|b)", "[ab]", "[^b-]", "a?", "b+", ".{1,2}", "^", "$", r"\.", r"\d"]
)


@given(st.lists(ALPHABET, max_size=6), st.text("ab.-1x", max_size=6))
@settings(max_examples=400, deadline=None)
def test_patterns_match_as_python_has_it(parts: list[str], name: str) -> None:
    pattern = "".join(parts)
    try:
        expected = re.fullmatch(pattern, name) is not None
    except re.error:
        with pytest.raises(BadPattern):
            TopicPattern(pattern)
        return
    assert TopicPattern(pattern).matches(name) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a)\1", "(?=a)a", "(?i)a", "a{1,5}{1,5}(", "((a{99}){99}){99}", "(?:(?:){9999}){9999}", "x" * 2000),
        "(" * 300 + "a" + ")*" * 300,
    ],
)
def test_patterns_that_cannot_be_matched_in_one_pass_are_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        TopicPattern(pattern)


def test_what_is_accepted_once_is_accepted_deep_in_the_stack_too() -> None:
    """A pattern is checked when a member names it, and compiled again whenever topics change, also elsewhere."""

    def accepts(pattern: str, depth: int) -> bool:
        if depth:
            return accepts(pattern, depth - 1)
        try:
            TopicPattern(pattern)
        except BadPattern:
            return False
        return True

    for nesting in range(10, 200, 10):
        pattern = "(" * nesting + "a" + ")*" * nesting
        assert accepts(pattern, 300) == accepts(pattern, 0), nesting


def test_a_pattern_made_to_hang_does_not() -> None:
    assert not TopicPattern("(a+)+$b").matches("a" * 249)


@pytest.mark.parametrize("pattern", ["(.?){1600}", "(.*){1000}", f"([{'acegikmoqsuwy' * 60}]?){{1200}}"])
def test_a_pattern_of_thousands_of_positions_ends_soon_or_is_given_up(pattern: str) -> None:
    compiled, began = TopicPattern(pattern), process_time()

    with suppress(BadPattern):
        _ = [compiled.matches(f"some-topic-{number}-" + "acegikmoqsuwy" * 10) for number in range(1000)]

    assert process_time() - began < 1  # a tenth of it on a quiet machine; 1,000 names took half a minute


def test_a_pattern_that_people_write_is_compared_with_many_names() -> None:
    names = [f"team-{number % 50}.orders.{number}" for number in range(10_000)]
    compiled = TopicPattern(r"team-(7|8|9)\.(orders|bills)\.[0-9]+")

    assert sum(map(compiled.matches, names)) == 600
