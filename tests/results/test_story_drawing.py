"""The story's drawing: what explains the finding is never left out, and no words stand on others."""

from itertools import combinations

import pytest

from tribunal.harness.evidence.explain import Explained, lines
from tribunal.results.metadata import State
from tribunal.results.report.groups import grouped
from tribunal.results.report.moments import Change
from tribunal.results.report.sequence import CHARACTER, TIMES, sequence
from tribunal.results.report.story import (
    CLIENT,
    CONTROLLERS,
    MOST_STEPS,
    Step,
    Story,
    broker_lane,
    change_step,
    weightiest,
)
from tribunal.results.verdict import Detail, Finding

S = 1_000_000_000
FINDING = Finding(
    property_name="lost_writes", kind="lost", severity="violation", explanation="gone", topic="t", partition=0
)


def quiet(at_s: float) -> Step:
    return Step(at_ns=round(at_s * S), lane=CONTROLLERS, label="ISR {1, 2}", text="The controllers commit ISR {1, 2}.")


def test_what_explains_a_finding_is_kept_however_much_happened_before_it() -> None:
    election = Step(at_ns=40 * S, lane=CONTROLLERS, to=broker_lane(3), label="leader 3 e2", text="elected", is_key=True)
    gone = Step(at_ns=50 * S, lane=broker_lane(1), label="gone", text="gone", tone="bad")
    steps = [*(quiet(1 + 0.1 * number) for number in range(3 * MOST_STEPS)), election, gone]

    kept = weightiest(steps, at_ns=S)

    assert len(kept) == MOST_STEPS
    assert kept[-2:] == [election, gone]
    assert kept == sorted(kept, key=lambda step: step.at_ns)


def test_of_what_explains_nothing_the_nearest_to_the_moment_stays() -> None:
    steps = [quiet(number) for number in range(2 * MOST_STEPS)]

    kept = weightiest(steps, at_ns=2 * MOST_STEPS * S)

    assert kept == steps[-MOST_STEPS:]


def change(at_s: int, leader: int, leader_epoch: int) -> Change:
    state = State(
        replicas=(1, 2, 3), isr=(1, 2, 3), elr=(), leader=leader, leader_epoch=leader_epoch, partition_epoch=0
    )
    return Change(at_s * S, state)


@pytest.mark.parametrize(
    ("leader", "words"), [(-1, "elect broker 2 (before: nobody)"), (3, "elect broker 2 (before: 3)")]
)
def test_an_election_says_who_led_before_and_that_nobody_did(leader: int, words: str) -> None:
    """It said `before: -1`."""
    step = change_step(change(1, leader, 1).state, change(2, 2, 2), None, "violation")

    assert words in step.text


@pytest.mark.parametrize("first", [1, 2, 3])
def test_words_of_the_drawing_stand_beside_each_other(first: int) -> None:
    """A fault, an election and a leader's name at one lane and one moment, and a long label at the left edge."""
    second = first % 3 + 1
    fault = Step(at_ns=S, lane=broker_lane(first), label=f"pause broker {first}", text="fault", tone="fault")
    elected = Step(
        at_ns=2 * S, lane=CONTROLLERS, to=broker_lane(second), label=f"leader {second} e1, ISR {{1, 2}}", text="elected"
    )
    ended = Step(at_ns=2 * S, lane=broker_lane(second), label="log ends at 605", text="follows")
    read = Step(at_ns=3 * S, lane=CLIENT, label="✕ reads another record", text="read", tone="bad")
    story = Story(
        finding=FINDING, steps=[fault, elected, ended, read], brokers=[1, 2, 3], folded=0,
        changes=[change(0, first, 0), change(2, second, 1)],
    )  # fmt: skip

    drawn = sequence(story)

    labels = [band.label for band in drawn.bands if band.label is not None]
    assert [label.text for label in labels] == ["leader e0", "leader e1"]
    names = [(one.x, one.y - 9, one.x + len(one.text) * CHARACTER, one.y + 2) for one in labels]
    steps = [
        (mark.text_x - mark.box / 2, mark.y - (10 if mark.to_x is None else 16), mark.text_x + mark.box / 2, mark.y + (10 if mark.to_x is None else 0))
        for mark in drawn.marks
    ]  # fmt: skip
    for one, other in combinations([*names, *steps], 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, (one, other)
    assert all(left >= TIMES for left, *_ in steps)


def test_a_loss_is_explained_by_its_own_election_not_by_another_of_its_group() -> None:
    lost = [
        Finding(
            property_name="lost_writes", kind="lost", severity="violation", explanation="gone", topic="t", partition=0, log_offset=offset,
            acknowledged_ns=at_s * S, detail=Detail(promise=f"lost at the election of {leader}"),
        )
        for offset, at_s, leader in ((7, 20, 2), (3, 10, 1))
    ]  # fmt: skip
    (group,) = grouped(lost)
    first = group.witnesses[0]
    story = Story(finding=first, steps=[], changes=[], brokers=[], folded=0)

    said = "\n".join(lines(Explained(story=story, group=group)))

    assert first.detail.promise is not None
    assert first.detail.promise in said
    assert sum(f"lost at the election of {leader}" in said for leader in (1, 2)) == 1
