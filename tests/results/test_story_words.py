"""What a report's story says is so: of records that nobody acknowledged, of logs that begin later, of brokers with large ids."""

from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tribunal.results.metadata import State
from tribunal.results.report.moments import Change, changes_of
from tribunal.results.report.story import CONTROLLERS, Story, change_step, story_of
from tribunal.results.store import Recording
from tribunal.results.values import value_of
from tribunal.results.verdict import Detail, Finding, GuiltyElection


def story_in(run: Run, **finding: object) -> Story:
    recording = Recording.open(run.finish())
    fields = {
        "property_name": "lost_writes",
        "severity": "violation",
        "explanation": "gone",
        "topic": "t",
        "partition": 0,
    }
    election = GuiltyElection(leader=2, how="clean", leader_epoch=1, at_ns=200 * MS)
    hero = Finding(**fields, **finding, detail=Detail(election=election))  # type: ignore[arg-type]
    return story_of(recording, hero, [*changes_of(recording, "t-0")], 1_000 * MS)


def said(story: Story) -> str:
    return "\n".join(step.text for step in story.steps)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.mark.parametrize(("acks", "words"), [
    pytest.param(-1, "acknowledged although nobody had seen it committed", id="acks=all promises that it is committed"),
    pytest.param(1, "Nobody had seen the record committed before", id="acks=1 does not"),
    pytest.param(0, "Nobody had seen the record committed before", id="nobody acknowledged it"),
])  # fmt: skip
def test_an_acknowledgement_too_early_is_said_of_acks_all_alone(run: Run, acks: int, words: str) -> None:
    value = run.send(0, 100, acks=acks)
    run.change(200, leader=2, isr=[2, 3])
    run.watermark(1, 300, epoch=1, observer="node-2")
    run.final_read({})

    story = story_in(run, kind="lost", log_offset=0, value=value, acks=acks, acknowledged_ns=101 * MS)

    assert words in said(story)
    assert said(story).count("although nobody had seen") == (acks == -1)


@pytest.mark.parametrize(("acknowledged_ns", "words"), [
    pytest.param(101 * MS, "where record 0 of process 7 had been acknowledged", id="acknowledged"),
    pytest.param(None, "where record 0 of process 7 had been read", id="only read"),
])  # fmt: skip
def test_a_wrong_read_says_what_had_been_known_of_the_record(run: Run, acknowledged_ns: int | None, words: str) -> None:
    """Of a record whose producer got no answer it said that it had been acknowledged."""
    outcome = {} if acknowledged_ns else {"outcome": "info", "log_offset": None, "complete_ns": None}
    value = run.send(0, 100, **outcome)  # type: ignore[arg-type]
    run.read({0: value}, 150, epoch=0)
    run.change(200, leader=2, isr=[2, 3])
    run.read({0: run.send(1, 250, offset=0)}, 300, epoch=1)
    run.final_read({0: value_of(7, 1)}, epoch=1)

    kind = "lost" if acknowledged_ns else "lost_after_read"
    story = story_in(run, kind=kind, log_offset=0, value=value, acks=-1, acknowledged_ns=acknowledged_ns)

    assert words in said(story)


def test_a_wrong_read_of_a_record_that_was_only_read_lies_behind_that(run: Run) -> None:
    """A reader that was there before it had been written received what stood there then: nothing is wrong with that."""
    earlier = run.send(5, 10, offset=0)
    run.read({0: earlier}, 50, epoch=0, process=91)
    value = run.send(0, 100, outcome="info", log_offset=None, complete_ns=None)
    run.read({0: value}, 150, epoch=1)
    run.change(200, leader=2, isr=[2, 3])
    run.final_read({0: run.send(1, 250, offset=0)}, epoch=2)

    story = story_in(run, kind="lost_after_read", log_offset=0, value=value, acks=-1)

    assert "at offset 0" in said(story)
    assert all(step.at_ns != 50 * MS for step in story.steps)


@pytest.mark.parametrize(("offsets", "words"), [
    pytest.param([0, 1], "holds nothing (the log ends at 2)", id="it ends before"),
    pytest.param([9, 10], "holds nothing (the log begins at 9)", id="it begins behind"),
    pytest.param([0, 9], "holds nothing (the log goes on at 9)", id="a hole"),
])  # fmt: skip
def test_a_log_without_the_record_says_why(run: Run, offsets: list[int], words: str) -> None:
    """Of a log that begins behind the record it said where it ends."""
    value = run.send(5, 100)
    run.change(200, leader=2, isr=[2, 3])
    for offset in offsets:
        run.log(2, {offset: run.send(20 + offset, 50, offset=offset)}, epoch=1)
    run.final_read({})

    story = story_in(run, kind="lost", log_offset=5, value=value, acks=-1, acknowledged_ns=101 * MS)

    assert words in said(story)


def test_a_broker_is_a_broker_whatever_its_id(run: Run) -> None:
    """Clusters that others set up name their brokers as they like; from 101 on they were drawn as controllers."""
    before = State(replicas=(1001, 1002), isr=(1001, 1002), leader=1001, leader_epoch=0)
    after = Change(5, State(replicas=(1001, 1002), isr=(1002,), leader=1002, leader_epoch=1))

    step = change_step(before, after, None, "violation")

    assert (step.lane, step.to) == (CONTROLLERS, "broker 1002")


@pytest.mark.parametrize(("sent", "arrows"), [
    pytest.param({"answered_by": 2, "complete_ns": 300 * MS}, [("client", "broker 1"), ("broker 2", "client")], id="the new leader"),
    pytest.param({"answered_by": None, "complete_ns": 300 * MS}, [("client", "broker 1"), ("broker 2", "client")], id="who led when it was answered"),
    pytest.param({"answered_by": 1, "complete_ns": 300 * MS}, [("client", "broker 1"), ("broker 1", "client")], id="the deposed one, who does not know"),
])  # fmt: skip
def test_an_acknowledgement_is_drawn_from_who_gave_it(
    run: Run, sent: dict[str, int | None], arrows: list[tuple[str, str]]
) -> None:
    """It was drawn from the leader of the moment at which the record had been sent."""
    value = run.send(0, 100, **sent)  # type: ignore[arg-type]
    run.change(200, leader=2, isr=[2, 3])
    run.final_read({})

    story = story_in(run, kind="lost", log_offset=0, value=value, acks=-1, acknowledged_ns=300 * MS)

    assert [(step.lane, step.to) for step in story.steps if "client" in (step.lane, step.to) and step.to] == arrows


@pytest.mark.parametrize(("acks", "ended", "words"), [
    pytest.param(0, {"outcome": "sent"}, "The record is sent, no answer asked for, 1.0 ms later", id="acks=0"),
    pytest.param(-1, {"outcome": "info", "log_offset": None}, "The record is of unknown outcome, 1.0 ms later", id="no answer"),
])  # fmt: skip
def test_what_nobody_answered_comes_back_from_no_broker(
    run: Run, acks: int, ended: dict[str, str | None], words: str
) -> None:
    """The record `is info`, said an arrow from the leader to the client."""
    value = run.send(0, 100, acks=acks, **ended)  # type: ignore[arg-type]
    run.read({0: value}, 150, epoch=0)
    run.final_read({})

    story = story_in(run, kind="lost_after_read", log_offset=0, value=value, acks=acks)

    assert words in said(story)
    assert [step.lane for step in story.steps if step.to == "client"] == []


def test_a_record_that_is_sent_while_nobody_leads_goes_to_nobody(run: Run) -> None:
    """It was sent to the controllers, and they acknowledged it."""
    run.change(50, leader=-1, isr=[2])
    value = run.send(0, 100, answered_by=2, complete_ns=300 * MS)
    run.change(200, leader=2, isr=[2])
    run.final_read({})

    story = story_in(run, kind="lost", log_offset=0, value=value, acks=-1, acknowledged_ns=300 * MS)

    own = [(step.lane, step.to) for step in story.steps if step.label.startswith(("Produce", "acknowledged"))]
    assert own == [("client", None), ("broker 2", "client")]
