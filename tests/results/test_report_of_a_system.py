"""The report of a system that is no log: nodes and calls, the story of a lost element, and no word of brokers, sends or elections."""

from pathlib import Path

import msgspec
import pytest

from tribunal.harness.cli.screen import one_screen
from tribunal.harness.evidence.explain import explained, lines
from tribunal.results import report
from tribunal.results.manifest import Made, Setting
from tribunal.results.report.first_screen import first_screen
from tribunal.results.report.model import page
from tribunal.results.report.sequence import sequence
from tribunal.results.store import Recorder
from tribunal.results.verdict import Detail, Finding, RunVerdict, Verdict, save

S = 1_000_000_000
LOST = "an element whose addition was acknowledged is missing in the last read"


def lost(value: int) -> Finding:
    return Finding(
        property_name="sets", kind="element_lost", severity="violation", explanation=LOST, value=value, acknowledged_ns=value * S + 5,
        detail=Detail(detail=f"set s0: {value} is missing"),
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three nodes, ten additions, the first of which are gone after node 1 was killed."""
    recorder = Recorder(tmp_path, "r")
    for node in (1, 2, 3):
        recorder.row("nodes", node=node, role="node", event="start", at_ns=node)
    for number in range(10):
        recorder.row(
            "operations", process=number % 2 + 1, function="add", key="s0", argument=str(number), invoke_ns=number * S,
            complete_ns=number * S + 5, outcome="ok" if number != 6 else "info",
            answered_by=number % 3 + 1,
        )  # fmt: skip
    recorder.row(
        "operations", process=999, function="read-all", key="s0", result="[7,8,9]", invoke_ns=19 * S, complete_ns=20 * S, outcome="ok"
    )  # fmt: skip
    recorder.row(
        "faults", index=0, kind="kill", resolved_target="node 1", injected_ns=6 * S, healed_ns=7 * S, took_effect=True, healed=True, proof="{}"
    )  # fmt: skip
    recorder.row("phases", name="final-read", start_ns=0, end_ns=21 * S)
    recorder.finish(Made(seed=1, scenario="kill-primary", cluster="system"))
    verdict = RunVerdict(
        run_id="r", verdict=Verdict.VIOLATION, claim="6 x element lost", findings=[lost(2), lost(1), lost(3)]
    )
    save(verdict, tmp_path / "verdict.json")
    return tmp_path


def test_the_first_screen_counts_nodes_and_calls(run: Path) -> None:
    scale = dict(first_screen(page(run)).scale)
    html = report.write(run).read_text()

    assert scale["cluster"] == "3 nodes"
    assert scale["operations"] == "11 calls"
    for word in (
        "1,000,000,000",
        "controllers",
        "new leader",
        "another leader",
        "broker",
        ">mode<",
        "Completed sends",
        "sends completed",
    ):
        assert word not in html[html.index("<body>") : html.index("<script>")], word
    assert "Completed calls per second" in html


def test_the_story_says_how_an_element_came_and_went(run: Path) -> None:
    found = page(run).story

    assert found is not None
    assert [(step.at_ns, step.lane) for step in found.shortest] == [
        (1 * S, "client"), (1 * S + 5, "client"), (6 * S, "node 1"), (20 * S, "client"),
    ]  # fmt: skip
    assert found.shortest[0].text == "Process 2 calls add 1 on s0."
    assert found.shortest[1].text == "It is acknowledged by node 2, 0.0 ms later."
    assert found.shortest[-1].text.startswith("The last read of s0, by process 999, lacks it")
    assert [lane.name for lane in sequence(found).lanes] == ["client", "node 1"]


def test_what_the_recording_does_not_have_is_not_said(run: Path) -> None:
    unknown = Finding(
        property_name="sets",
        kind="element_lost",
        severity="violation",
        explanation=LOST,
        value=77,
        acknowledged_ns=3 * S,
    )
    verdict = RunVerdict(run_id="r", verdict=Verdict.VIOLATION, claim="", findings=[unknown])
    save(verdict, run / "verdict.json")

    found = page(run).story

    assert found is not None
    assert [step.label for step in found.steps if step.tone == "bad"] == ["✕ element lost"]


def test_one_cause_is_one_line_on_the_terminal_and_its_values_are_the_clients_own(run: Path) -> None:
    verdict = page(run).verdict

    said = one_screen(verdict, run, None).splitlines()
    explanation = next(lines(next(explained(run))))

    assert [line for line in said if "alike" in line] == [f"  cluster value 1  at 1.000 s  {LOST}  (3 alike)"]
    assert any("… and 2 more witnesses in" in line for line in said)
    assert explanation == "VIOLATION  element lost  cluster  value 1"


def test_a_step_is_no_longer_than_a_terminal_can_show(run: Path) -> None:
    """A circle of seventy transactions with their lists was tens of kilobytes on one line."""
    long = Finding(
        property_name="object_transactions",
        kind="G0",
        severity="violation",
        explanation="transactions depend on each other in a circle (G0)",
        acknowledged_ns=S,
        detail=Detail(detail="T1 wrote a version that T2 replaced; " * 400),
    )
    save(msgspec.structs.replace(page(run).verdict, findings=[long]), run / "verdict.json")

    said = [line for one in explained(run) for line in lines(one)]

    assert max(map(len, said)) < 1_200
    assert any(line.endswith("characters more are in verdict.json)") for line in said)


def test_a_column_that_no_finding_fills_is_left_out(run: Path) -> None:
    html = report.write(run).read_text()

    table = html[html.index('<table class="findings">') :]
    head = table[: table.index("</thead>")]
    assert ["acks" in head, "rule and reason" in head, "from, to" in head, "witnesses" in head] == [
        False,
        False,
        True,
        True,
    ]
    row = table[table.index("<tbody>") : table.index("</tbody>")]
    assert row.count("<th") + row.count("<td") == head.count("<th ") == 5


@pytest.mark.parametrize(
    ("settings", "is_of_objects"),
    [
        pytest.param({"promises.consistency": "serializable"}, True, id="objects"),
        pytest.param({"min.insync.replicas": 2, "promises.starts_after.kill": True}, False, id="a log"),
    ],
)
def test_a_described_log_is_reported_as_a_log(
    tmp_path: Path, settings: dict[str, Setting], is_of_objects: bool
) -> None:
    """It counted calls, of which it has none, and named no mode; of calls it cited anomalies that the judge had seen in recordings of logs."""
    recorder = Recorder(tmp_path, "r")
    for node in (1, 2, 3):
        recorder.row("nodes", node=node, role="broker", event="start", at_ns=node)
    recorder.finish(Made(seed=1, cluster="system", settings=settings))
    save(RunVerdict(run_id="r", verdict=Verdict.PASS, claim=""), tmp_path / "verdict.json")

    content = page(tmp_path)
    shown = first_screen(content)

    assert content.is_of_a_system is is_of_objects
    assert dict(shown.scale)["cluster"] == "3 nodes"
    assert ("has not been measured" in " ".join(shown.believe)) is is_of_objects
    assert ("this judge called" in " ".join(shown.believe)) is not is_of_objects
