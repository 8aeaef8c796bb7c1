"""The log matrix at several moments: what nodes reported is drawn, what nobody reported is called unknown."""

import pytest
from msgspec.structs import replace

from tests.checkers.recorded import MS, Run
from tribunal.results.report.matrix import CUT, LATER, UNKNOWN, matrix
from tribunal.results.report.photographs import Presence, Report, least_end_later, presence
from tribunal.results.store import Recording
from tribunal.results.verdict import Detail, Finding, GuiltyElection

ENDS = [Report(10, 5), Report(20, 8), Report(30, 8), Report(30, 3)]


@pytest.mark.parametrize(
    ("offset", "at_ns", "finally_there", "found"),
    [
        pytest.param(4, 10, False, Presence.THERE, id="reported"),
        pytest.param(4, 9, False, Presence.UNKNOWN, id="on its way to the first report"),
        pytest.param(6, 15, False, Presence.UNKNOWN, id="between two reports"),
        pytest.param(8, 15, False, Presence.ABSENT, id="a later report ends short of it"),
        pytest.param(6, 10, False, Presence.ABSENT, id="reported at this moment"),
        pytest.param(6, 29, False, Presence.THERE, id="as last reported"),
        pytest.param(6, 30, False, Presence.ABSENT, id="cut at this moment"),
        pytest.param(6, 31, True, Presence.UNKNOWN, id="written again some time before the end"),
    ],
)
def test_a_log_only_grows_between_two_reports(offset, at_ns, finally_there, found):
    assert presence(ENDS, offset, at_ns, finally_there=finally_there) is found


def test_an_answer_to_a_producer_says_that_the_node_held_the_record_and_nothing_of_its_end():
    known = [Report(10, 5), Report(12, 7, at_least=True), Report(13, 2, at_least=True)]

    assert presence(known, 6, 12, finally_there=False) is Presence.THERE
    assert presence(known, 6, 14, finally_there=False) is Presence.THERE
    assert presence(known, 7, 14, finally_there=False) is Presence.ABSENT
    assert (least_end_later(known, 12) or 7) > 6
    assert least_end_later([*known, Report(20, 6)], 12) == 6
    assert least_end_later([*known, Report(20, 6)], 20) is None


def log_end(run, node, end, at, *, epoch=0):
    run.recorder.row(
        "watermarks", observer=f"node-{node}", source="node", topic="t", partition=0, leader_epoch=epoch, log_end_offset=end, at_ns=at * MS
    )  # fmt: skip


def log(run, node, values):
    for offset, (value, epoch) in enumerate(values):
        run.recorder.row(
            "logs", node=node, topic="t", partition=0, log_offset=offset, leader_epoch=epoch, value=value, is_control=False
        )  # fmt: skip


def looks(logs):
    """Return what is drawn of each broker: (column, shade, mark) of its cells."""
    return {one.name: [(cell.column, cell.shade, cell.mark) for cell in one.cells] for one in logs}


@pytest.fixture
def lost(tmp_path):
    """Broker 1 acknowledged offset 1 alone, broker 2 was elected without it, broker 1 cut it away, another record took the place."""
    run = Run(tmp_path / "run")
    for node in (1, 2):
        log_end(run, node, 0, 1)
    kept, gone = run.send(0, 10, answered_by=1), run.send(1, 20, answered_by=1)
    log_end(run, 2, 1, 30, epoch=1)
    for end in (2, 1):
        log_end(run, 1, end, 40, epoch=1)
    other = run.send(2, 35, offset=1, answered_by=2)
    for node in (1, 2):
        log(run, node, [(kept, 0), (other, 1)])
    run.recorder.close_segment()
    election = GuiltyElection(leader=2, how="clean", leader_epoch=1, at_ns=30 * MS)
    finding = Finding(
        topic="t", partition=0, property_name="lost_writes", kind="lost", severity="violation", explanation="", value=gone,
        log_offset=1, acks=-1, acknowledged_ns=21 * MS, detail=Detail(election=election),
    )  # fmt: skip
    return Recording.open(run.run_dir), finding


def test_where_nobody_knows_leader_epochs_none_is_named(tmp_path):
    run = Run(tmp_path / "run")
    sent = [run.send(number, 10 + number) for number in range(4)]
    log(run, 1, [(sent[0], None), (sent[1], -1), (sent[2], 5)])
    run.recorder.close_segment()
    finding = Finding(
        topic="t", partition=0, property_name="lost_writes", kind="lost", severity="violation", explanation="", value=sent[3],
        log_offset=3, acks=-1, acknowledged_ns=14 * MS, detail=Detail(),
    )  # fmt: skip

    found = matrix(Recording.open(run.run_dir), finding, [finding])

    assert [name for _, name in found.epochs] == ["e5"]
    assert [run.epoch for run in found.whole[0]] == [None, 5]
    assert [name for _, name in found.logs[0].labels] == ["e5"]
    assert not [cell.title for cell in found.logs[0].cells if "None" in cell.title or "-1" in cell.title]


def test_the_matrix_shows_where_the_record_was_and_when_its_last_copy_went(lost):
    recording, finding = lost

    found = matrix(recording, finding, [finding])

    acknowledged, elected, cut = found.photographs
    shade = found.logs[0].cells[0].shade
    assert [one.at_ns for one in found.photographs] == [21 * MS, 30 * MS, 40 * MS]
    assert "broker 2 is elected, leader epoch 1" in elected.words
    assert "broker 1's log ends at 1: offset 1 is gone from it" in cut.words
    assert looks(acknowledged.logs) == {
        "broker 1": [(0, shade, "ring"), (1, LATER, "ring")],
        "broker 2": [(0, UNKNOWN, "")],
    }
    assert looks(elected.logs)["broker 2"] == [(0, shade, "ring")]
    assert looks(cut.logs)["broker 1"] == [(0, shade, "ring"), (1, CUT, "cross")]
    # What took the place is acknowledged by now, but the row above is about the record that is gone.
    assert looks(cut.logs)["broker 2"] == [(0, shade, "ring"), (1, found.logs[1].cells[1].shade, "")]
    assert [cell.mark for one in found.logs for cell in one.cells] == ["ring", "cross", "ring", "cross"]
    assert found.end == 2
    assert [[(run.start, run.width, run.epoch) for run in log] for log in found.whole] == [
        [(0, 0.5, 0), (0.5, 0.5, 1)]
    ] * 2
    assert found.epochs == [(0, "e0"), (0.5, "e1")]


def test_a_finding_whose_time_is_not_known_has_final_logs_only(lost):
    recording, finding = lost
    timeless = replace(finding, acknowledged_ns=None)

    assert matrix(recording, timeless, [timeless]).photographs == []


def test_leader_epochs_are_written_where_they_begin_at_each_moment(lost):
    recording, finding = lost

    found = matrix(recording, finding, [finding])

    labels = [[one.labels for one in moment.logs] for moment in (*found.photographs, found)]
    # What broker 1 had at offset 1 was gone in the end: nobody says in which epoch it was written.
    assert labels == [
        [[(0, "e0")], []],
        [[(0, "e0")], [(0, "e0")]],
        [[(0, "e0")], [(0, "e0"), (1, "e1")]],
        [[(0, "e0"), (1, "e1")], [(0, "e0"), (1, "e1")]],
    ]


@pytest.mark.parametrize(("acks", "shown"), [(0, [(0, -1), (1, 0)]), (1, [(0, -1)])])
def test_a_record_that_was_sent_with_acks_0_is_shown_where_a_log_has_it(tmp_path, acks, shown):
    run = Run(tmp_path / "run")
    answered = run.send(0, 10, offset=0)
    sent = run.send(1, 20, acks=acks, outcome="sent" if acks == 0 else "info", offset=None)
    log(run, 1, [(answered, 0), (sent, 0)])
    run.recorder.close_segment()
    finding = Finding(
        topic="t", partition=0, property_name="lost_writes", kind="lost", severity="note", explanation="", value=answered, log_offset=0,
    )  # fmt: skip

    found = matrix(Recording.open(run.run_dir), finding, [finding])

    assert [(one.column, one.acks) for one in found.acknowledged] == shown
    assert "acks=0: sent, nobody answered" in found.acknowledged[-1].title or acks == 1


@pytest.mark.parametrize("count", [1, 6, 7, 20, 44])
def test_every_leader_epoch_of_the_window_has_a_shade_that_there_is(tmp_path, count):
    """From the seventh on cells had none: they were black, as is what was cut away."""
    run = Run(tmp_path / "run")
    log(run, 1, [(run.send(offset, 10 + offset), min(offset, count - 1)) for offset in range(44)])
    run.recorder.close_segment()
    finding = Finding(
        topic="t", partition=0, property_name="lost_writes", kind="lost", severity="note", explanation="", value=0, log_offset=0,
    )  # fmt: skip

    found = matrix(Recording.open(run.run_dir), finding, [finding])

    shades = [cell.shade for one in found.logs for cell in one.cells]
    assert {*shades, *(one.shade for runs in found.whole for one in runs)} <= set(range(6))
    assert len(set(shades)) == min(count, 6)
    assert shades == sorted(shades)
