"""The operations window and the circle of transactions: what they show is what the recording says."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_transactions import step
from tribunal.checkers.judge.verdict import check
from tribunal.results import report
from tribunal.results.manifest import Made
from tribunal.results.report.cycle import cycle
from tribunal.results.report.measures import LEFT, PLOT
from tribunal.results.report.operations import LANES, MOST, operations
from tribunal.results.report.unread import unread
from tribunal.results.store import Recorder, Recording
from tribunal.results.values import value_of
from tribunal.results.verdict import Finding

S = 1_000_000_000


def finding(value: int, at_ms: int, **changes: object) -> Finding:
    fields = {"property_name": "lost_writes", "kind": "lost", "severity": "violation", "explanation": "gone"}
    return Finding(**fields, topic="t", partition=0, value=value, acknowledged_ns=at_ms * MS, **changes)  # type: ignore[arg-type]


def test_operations_are_drawn_from_call_to_answer(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for number in range(30):
        run.send(number, 1_000 + 10 * number, offset=number)
    value = run.send(30, 1_400, offset=30)
    recording = Recording.open(run.finish())

    drawn = operations(recording, finding(value, 1_401))

    assert drawn is not None
    (own,) = [bar for bar in drawn.bars if bar.own]
    assert "acks=all ok at offset 30" in own.title
    scale = PLOT / (drawn.end_s - drawn.start_s)
    assert math.isclose(own.x, LEFT + (1.4 - drawn.start_s) * scale, abs_tol=0.1)
    assert all(LEFT <= bar.x <= LEFT + PLOT for bar in drawn.bars)
    assert drawn.left_out == 0


def test_a_record_that_was_under_way_for_hours_has_its_window(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    value = run.send(0, 1_000, complete_ns=5 * 3_600 * S)

    drawn = operations(Recording.open(run.finish()), finding(value, 5 * 3_600_000))

    assert drawn is not None
    assert 1 < len(drawn.ticks) <= 14


def test_operations_that_overlap_have_lanes_of_their_own(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for number in range(20):
        run.recorder.row(
            "sends", process=1, worker_class="plain", topic="t", partition=0, value=value_of(1, number), acks=-1,
            invoke_ns=(1_000 + number) * MS, complete_ns=2_000 * MS, outcome="ok", log_offset=number,
        )  # fmt: skip

    drawn = operations(Recording.open(run.finish()), finding(value_of(1, 0), 2_000))

    assert drawn is not None
    assert len({bar.y for bar in drawn.bars}) == LANES
    (band,) = drawn.bands
    assert all(band.y <= bar.y < band.y + band.height for bar in drawn.bars)


def test_the_window_is_bounded_and_keeps_the_findings_own(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for number in range(MOST + 500):
        run.recorder.row(
            "sends", process=1, worker_class="plain", topic="t", partition=0, value=value_of(1, number), acks=1,
            invoke_ns=1_000 * MS + number, complete_ns=1_000 * MS + number + 1, outcome="ok", log_offset=number,
        )  # fmt: skip

    drawn = operations(Recording.open(run.finish()), finding(value_of(1, MOST + 499), 1_000))

    assert drawn is not None
    assert len(drawn.bars) == MOST
    assert drawn.left_out == 500
    assert [bar for bar in drawn.bars if bar.own]


def test_a_finding_without_a_place_has_no_window(tmp_path: Path) -> None:
    recording = Recording.open(Run(tmp_path / "run").finish())

    assert operations(recording, Finding(property_name="x", kind="y", severity="violation", explanation="")) is None


def circle(folder: Path, *transactions: str) -> Path:
    run = Run(folder)
    for process, text in enumerate(transactions):
        run.recorder.row(
            "txns", process=process, txn_id=f"x{process}", begin_ns=(1 + process) * MS, end_ns=(10 + process) * MS,
            outcome="committed", operations=[step(one) for one in text.split("; ")],
        )  # fmt: skip
    run_dir = run.finish()
    check([run_dir], "inline")
    return run_dir


@pytest.mark.parametrize(
    ("transactions", "kinds"),
    [
        pytest.param(("send t-0 5@0; poll t-1 6@0", "send t-1 6@0; poll t-0 5@0"), ["wr", "wr"], id="two read each other"),
        pytest.param(("read t-0 nothing; append t-1 1", "read t-1 nothing; append t-0 2", "read t-0 2; read t-1 1"), ["rw", "rw"], id="write skew"),
    ],
)  # fmt: skip
def test_a_circle_is_drawn_with_a_sentence_an_edge(
    tmp_path: Path, transactions: tuple[str, ...], kinds: list[str]
) -> None:
    run_dir = circle(tmp_path / "run", *transactions)
    verdict = report.page(run_dir).verdict

    drawn = cycle(Recording.open(run_dir), verdict.findings)

    assert drawn is not None
    assert [arrow.kind for arrow in drawn.arrows] == kinds
    assert {vertex.name for vertex in drawn.vertices} == {"T0", "T1"}
    assert all(arrow.sentence.startswith("T") for arrow in drawn.arrows)
    path = report.write(run_dir)
    text = path.read_text()
    assert drawn.arrows[0].sentence in text
    for start in ('<svg class="cycle"',):
        svg = text[text.index(start) : text.index("</svg>", text.index(start)) + 6]
        ElementTree.fromstring(svg)


def test_the_two_arrows_of_a_circle_of_two_lie_beside_each_other(tmp_path: Path) -> None:
    """They were drawn one on the other, each with its number at another side."""
    run_dir = circle(tmp_path / "run", "send t-0 5@0; poll t-1 6@0", "send t-1 6@0; poll t-0 5@0")

    drawn = cycle(Recording.open(run_dir), report.page(run_dir).verdict.findings)

    assert drawn is not None
    there, back = drawn.arrows
    assert abs(there.x - back.to_x) >= 12
    assert (there.y < there.to_y) is (back.to_y < back.y)
    assert (there.x < back.x) is (there.text_x < back.text_x)


def test_a_circle_of_transactions_on_objects_has_the_calls_in_its_boxes(tmp_path: Path) -> None:
    """Their edges name rows of the table `operations`; they were looked for among transactions of producers."""
    run = Run(tmp_path / "run")
    calls = [
        ('[["r","a",null],["append","b",1]]', 10, 30),
        ('[["r","b",null],["append","a",2]]', 20, 40),
    ]
    reads = [('[["r","a",[2]]]', 50, 60), ('[["r","b",[1]]]', 50, 60)]
    for process, (text, begin, end) in enumerate([*calls, *reads]):
        run.recorder.row(
            "operations", process=process, function="txn-lists", key="a b", argument=re.sub(r"\[\d\]", "null", text), result=text,
            invoke_ns=begin * MS, complete_ns=end * MS, outcome="ok",
        )  # fmt: skip
    run_dir = run.finish()
    check([run_dir], "inline")

    drawn = cycle(Recording.open(run_dir), report.page(run_dir).verdict.findings)

    assert drawn is not None
    assert sorted(vertex.label for vertex in drawn.vertices) == ["process 0, ok", "process 1, ok"]
    assert all("append" in vertex.title for vertex in drawn.vertices)


def test_without_a_circle_there_is_no_drawing(tmp_path: Path) -> None:
    run_dir = circle(tmp_path / "run", "send t-0 5@0", "poll t-0 5@0")

    assert cycle(Recording.open(run_dir), report.page(run_dir).verdict.findings) is None


def test_unread_counts_what_is_acknowledged_and_not_yet_received(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "r")
    for number, acknowledged_s in enumerate((1, 2, 3, 4)):
        send = {"process": 1, "worker_class": "plain", "topic": "t", "partition": 0, "value": number, "acks": 1}
        recorder.row("sends", **send, invoke_ns=0, complete_ns=acknowledged_s * S, outcome="ok")
    for index, (answered_s, values) in enumerate([(0, []), (5, [0, 2]), (7, [0, 1, 9])]):
        poll = {"process": 9, "poll_index": index, "topic": "t", "partition": 0}
        asked = {"isolation": "read_uncommitted", "phase": "tail", "invoke_ns": 0, "outcome": "ok"}
        recorder.row("polls", **poll, **asked, complete_ns=answered_s * S)
        for value in values:
            recorder.row("reads", **poll, log_offset=value, value=value, phase="tail")
    recorder.finish(Made())

    counts = unread(Recording.open(tmp_path), ["t-0"], bin_ns=S, bins=9)

    assert counts == [0, 1, 2, 3, 4, 2, 2, 1, 1]


def test_a_read_before_its_acknowledgement_is_no_debt(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "r")
    send = {"process": 1, "worker_class": "plain", "topic": "t", "partition": 0, "value": 1, "acks": 1}
    recorder.row("sends", **send, invoke_ns=0, complete_ns=5 * S, outcome="ok")
    poll = {"process": 9, "poll_index": 0, "topic": "t", "partition": 0}
    asked = {"isolation": "read_uncommitted", "phase": "tail", "invoke_ns": 0, "outcome": "ok"}
    recorder.row("polls", **poll, **asked, complete_ns=S)
    recorder.row("reads", **poll, log_offset=0, value=1, phase="tail")
    recorder.finish(Made())

    assert unread(Recording.open(tmp_path), ["t-0"], bin_ns=S, bins=7) == [0] * 7
