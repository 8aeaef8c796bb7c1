"""The report: one self-contained file that says what the verdict says, escaped, drawn on one time axis."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tribunal.harness.cli.main import exit_code
from tribunal.results import report
from tribunal.results.confirmation import Rate, keep
from tribunal.results.likelihood import Likelihood, Moment
from tribunal.results.likelihood import save as save_likelihood
from tribunal.results.manifest import Made
from tribunal.results.metadata import State
from tribunal.results.report.first_screen import first_screen
from tribunal.results.report.index import index
from tribunal.results.report.layout import drawing
from tribunal.results.report.measures import LEFT, PLOT
from tribunal.results.report.minimal import keep_story
from tribunal.results.report.model import Change, Page, Rates, Series, page
from tribunal.results.report.overview import overview
from tribunal.results.report.window import BadWindow, parsed
from tribunal.results.sensitivity import measured, total
from tribunal.results.store import Recorder
from tribunal.results.values import value_of
from tribunal.results.verdict import (
    Conditions,
    Coverage,
    Finding,
    InjectedFault,
    PhaseLoad,
    RunVerdict,
    Verdict,
    save,
)

S = 1_000_000_000


def a_verdict(verdict: Verdict, *findings: Finding, **more: object) -> RunVerdict:
    return RunVerdict(run_id="r", verdict=verdict, claim="claim <b>", findings=list(findings), engine="inline", **more)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    recorder = Recorder(tmp_path, "r")
    for sequence in range(50):
        recorder.row(
            "sends",
            process=1,
            worker_class="plain",
            topic="t<0>",
            partition=0,
            value=value_of(1, sequence),
            acks=-1,
            invoke_ns=sequence * S,
            complete_ns=sequence * S + 1,
            outcome="ok",
            log_offset=sequence,
        )
    recorder.row(
        "metadata",
        metadata_offset=1,
        quorum_epoch=1,
        at_ns=0,
        record_type="PartitionRecord",
        topic="t<0>",
        partition=0,
        body='{"replicas":[1,2,3],"isr":[1,2,3],"leader":1,"leader_epoch":0}',
    )
    recorder.row(
        "metadata",
        metadata_offset=2,
        quorum_epoch=1,
        at_ns=20 * S,
        record_type="PartitionChangeRecord",
        topic="t<0>",
        partition=0,
        body='{"isr":[2],"leader":2,"eligible_leader_replicas":[3]}',
    )
    for at, high_watermark in ((1, 5), (2, 3), (3, 9)):
        recorder.row(
            "watermarks",
            observer="node-1",
            source="node",
            topic="t<0>",
            partition=0,
            leader_epoch=0,
            high_watermark=high_watermark,
            log_end_offset=12 - high_watermark,
            at_ns=at * S,
        )
    recorder.row(
        "faults",
        index=0,
        kind="kill",
        resolved_target="broker 1",
        injected_ns=19 * S,
        healed_ns=30 * S,
        took_effect=False,
        healed=True,
        proof="{}",
    )
    recorder.row("phases", name="faults", start_ns=0, end_ns=50 * S)
    recorder.finish(Made(seed=5, scenario="produce-consume"))
    return tmp_path


def test_the_report_is_one_escaped_self_contained_file(run: Path) -> None:
    lost = Finding(
        property_name="lost_writes",
        kind="lost",
        severity="violation",
        explanation="gone",
        topic="t<0>",
        partition=0,
        log_offset=7,
        value=9,
        acks=-1,
        acknowledged_ns=7 * S,
    )
    save(a_verdict(Verdict.VIOLATION, lost, test={"faults": [], "load": []}), run / "verdict.json")

    html = report.write(run).read_text()

    assert "t&lt;0&gt;-0@7" in html
    assert "claim &lt;b&gt;" in html
    assert html.count("<script") == 1  # ours, inline; what the recording says is never markup
    assert "claim <b>" not in html
    assert not re.search(r'(src|href)="(?!#)', html)
    assert len(html) < 1_500_000
    ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_page(run: Path, verdict: Verdict) -> None:
    save(a_verdict(verdict, reasons=["why"]), run / "verdict.json")

    assert f'<span class="tag {verdict}">' in report.write(run).read_text()


def test_a_damaged_recording_still_has_a_page(tmp_path: Path) -> None:
    save(a_verdict(Verdict.ERROR, reasons=["table sends: is missing"]), tmp_path / "verdict.json")

    html = report.write(tmp_path).read_text()

    assert "no recording in" in html
    assert "<svg" not in html


def test_tracks_share_one_axis_and_mark_what_went_back(run: Path) -> None:
    save(a_verdict(Verdict.PASS), run / "verdict.json")

    drawn = drawing(page(run))

    bars = [bar for track in drawn.tracks for bar in track.bars]
    assert all(bar.x >= LEFT and bar.x + bar.width <= LEFT + PLOT + 2 for bar in bars)
    assert [bar.label for bar in bars if bar.kind == "fault noeffect"] == ["kill: no effect"]
    assert {"1 e0", "2 e1"} <= {bar.label for bar in bars}
    assert [bar.kind for bar in bars if bar.label == "ELR"] == ["b2 elr"]
    assert [dot[2] for track in drawn.tracks for line in track.lines for dot in line.dots] == ["node-1: 5 → 3"]
    assert [(line.label, line.kind) for track in drawn.tracks for line in track.lines if line.title] == [
        ("", "b0 logend")
    ]
    assert any("no consumer has received" in track.title for track in drawn.tracks)
    assert [(one.text, one.anchor) for track in drawn.tracks for one in track.words] == [
        ("5 → 3", "start"),
        ("node-1: 9 → 3", "start"),
    ]


SEND = {
    "process": 1, "worker_class": "plain", "topic": "t", "partition": 0, "acks": -1, "value": value_of(1, 0), "invoke_ns": 0,
    "complete_ns": 1, "outcome": "ok", "log_offset": 0,
}  # fmt: skip


@pytest.mark.parametrize(("took_effect", "kind", "said"), [
    pytest.param(True, "fault", "had its effect", id="it had one"),
    pytest.param(False, "fault noeffect", "NO EFFECT", id="it had none"),
    pytest.param(None, "fault", "whether it had an effect is not known", id="an imported history does not say"),
])  # fmt: skip
def test_a_fault_without_effect_is_drawn_as_one_where_that_is_known(
    tmp_path: Path, took_effect: bool | None, kind: str, said: str
) -> None:
    recorder = Recorder(tmp_path, "r")
    fault = {"index": 0, "kind": "kill", "planned_target": "broker 1", "resolved_target": "broker 1", "losses": []}
    recorder.row("faults", **fault, injected_ns=S, healed_ns=5 * S, took_effect=took_effect)
    recorder.row("phases", name="faults", start_ns=0, end_ns=10 * S, load=[])
    recorder.row("sends", **SEND)
    recorder.finish(Made(mode="kraft"))
    save(a_verdict(Verdict.PASS), tmp_path / "verdict.json")

    shown = page(tmp_path)

    bars = [bar for track in drawing(shown).tracks for bar in track.bars if bar.kind.startswith("fault")]
    assert [(bar.kind, said in bar.title) for bar in bars] == [(kind, True)]
    assert [one.kind for one in overview(shown).faults] == ["fault none" if took_effect is False else "fault"]


@pytest.mark.parametrize("hours", [2, 13, 50, 1000])
def test_a_run_of_many_hours_has_an_axis(tmp_path: Path, hours: int) -> None:
    recorder = Recorder(tmp_path, "r")
    recorder.row("phases", name="faults", start_ns=0, end_ns=hours * 3600 * S, load=[])
    recorder.row("sends", **SEND)
    recorder.finish(Made(mode="kraft"))
    save(a_verdict(Verdict.PASS), tmp_path / "verdict.json")

    shown = page(tmp_path)

    assert 3 <= len(drawing(shown).ticks) <= 14
    assert 3 <= len(overview(shown).ticks) <= 14


def test_every_step_back_survives_thinning(tmp_path: Path) -> None:
    offsets = list(range(9000))
    offsets[5003] = 4000
    series = Series("node-1", list(range(9000)), offsets, [5003])
    shown = Page(
        run_dir=tmp_path,
        verdict=a_verdict(Verdict.PASS),
        manifest={},
        damage=None,
        end_ns=9000,
        brokers=[1],
        partitions={"t-0": [Change(0, State(replicas=(1,), isr=(1,), leader=1))]},
        in_full=["t-0"],
        watermarks={"t-0": [series]},
    )

    (line,) = [line for track in drawing(shown).tracks for line in track.lines]

    assert len(line.dots) == 1
    assert 1000 < line.path.count("H") < 1500


@pytest.mark.parametrize(("every_s", "said"), [
    pytest.param(100, "acks=all: available for 0.0 % of 45.000 s of asking.", id="never answered"),
    pytest.param(1, "acks=all: available for 100.0 % of 45.000 s of asking.", id="answered at once"),
])  # fmt: skip
def test_availability_is_said_of_the_time_in_which_it_was_asked_for(tmp_path: Path, every_s: int, said: str) -> None:
    recorder = Recorder(tmp_path, "r")
    common = {"process": 1, "worker_class": "plain", "topic": "t", "partition": 0, "acks": -1}
    for sequence in range(50):
        answered = sequence % every_s == every_s - 1
        own = {"invoke_ns": sequence * S * 9 // 10, "complete_ns": (sequence + 1) * S * 9 // 10}
        ended = {"outcome": "ok", "log_offset": sequence} if answered else {"outcome": "info"}
        recorder.row("sends", **common, **own, **ended, value=value_of(1, sequence))
    recorder.finish(Made(mode="kraft"))
    save(a_verdict(Verdict.PASS), tmp_path / "verdict.json")

    html = report.render(page(tmp_path))

    assert said in html
    assert ("No partition was silent." in html) is (every_s == 1)


def test_a_silence_of_one_acks_level_is_not_said_of_the_others(tmp_path: Path) -> None:
    """What acks=1 had acknowledged meanwhile was said to be nothing."""
    recorder = Recorder(tmp_path, "r")
    common = {"worker_class": "plain", "topic": "t", "partition": 0}
    recorder.row(
        "sends", **common, process=1, acks=-1, value=value_of(1, 0), invoke_ns=0, complete_ns=5 * S, outcome="info"
    )
    for sequence in range(5):
        own = {"invoke_ns": sequence * S, "complete_ns": sequence * S + 1, "outcome": "ok", "log_offset": sequence}
        recorder.row("sends", **common, **own, process=2, acks=1, value=value_of(2, sequence))
    recorder.finish(Made(mode="kraft"))
    save(a_verdict(Verdict.PASS), tmp_path / "verdict.json")

    drawn = overview(page(tmp_path))

    assert drawn is not None
    assert [block.title for block in drawn.silences] == [
        "t-0: nothing of acks=all was acknowledged from 0.000 s to 5.000 s"
    ]


@pytest.mark.parametrize(("count", "said"), [
    pytest.param(3, "2 times a partition got another leader", id="all are drawn"),
    pytest.param(9, "2 times one of the 3 partitions that are drawn here got another leader", id="some of many"),
])  # fmt: skip
def test_changes_of_leaders_are_counted_where_they_are_drawn(tmp_path: Path, count: int, said: str) -> None:
    """A large run's first screen said of all partitions what it had counted in eight of them."""
    led = [
        Change(at_ns, State(replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=leader))
        for at_ns, leader in ((0, 1), (5, 2))
    ]
    shown = Page(
        run_dir=tmp_path,
        verdict=a_verdict(Verdict.PASS),
        manifest=None,
        damage=None,
        partitions={"t-0": led, "t-1": led, "t-2": led[:1]},
        partition_count=count,
    )

    assert any(line.startswith(said) for line in first_screen(shown).believe)


def test_labels_at_the_lines_ends_do_not_cover_each_other(tmp_path: Path) -> None:
    shown = Page(
        run_dir=tmp_path,
        verdict=a_verdict(Verdict.PASS),
        manifest={},
        damage=None,
        end_ns=9000,
        in_full=["t-0"],
        watermarks={"t-0": [Series(f"consumer-{number}", [0, 1], [0, 50], []) for number in range(4)]},
    )

    (track,) = drawing(shown).tracks

    heights = sorted(line.y for line in track.lines)
    assert all(lower - upper >= 12 for upper, lower in pairwise(heights))


def test_a_list_of_runs_names_the_mutants_of_a_run_without_a_scenario(tmp_path: Path) -> None:
    """Else the findings of a known bug that was switched on stand there as findings of the system."""
    Recorder(tmp_path / "r", "r").finish(Made(cluster="elsewhere", seed=4, mutants=("m44_acks_all_lies",)))
    save(a_verdict(Verdict.PASS), tmp_path / "r" / "verdict.json")

    (row,) = index(tmp_path).runs

    assert (row.scenario, row.cluster, row.seed, row.mutants) == ("unknown", "elsewhere", 4, ["m44_acks_all_lies"])


def test_what_lies_beside_the_report_is_what_is_there(run: Path) -> None:
    """It named logs/ of a simulated run, which has none."""
    save(a_verdict(Verdict.PASS), run / "verdict.json")
    (run / "plan.json").write_text("{}")

    before = report.write(run).read_text()
    (run / "logs").mkdir()
    (run / "logs" / "node-1.log").write_text("started")
    after = report.write(run).read_text()

    assert "Beside this file: manifest.json, plan.json, verdict.json. Judge" in before
    assert "Beside this file: manifest.json, plan.json, verdict.json, logs/. Judge" in after


def test_a_violation_says_what_to_do_next_and_a_pass_does_not(run: Path) -> None:
    lost = Finding(
        property_name="lost_writes", kind="lost", severity="violation", explanation="gone", topic="t<0>", partition=0,
        log_offset=7, value=value_of(1, 7), acks=-1, acknowledged_ns=7 * S,
    )  # fmt: skip
    save(a_verdict(Verdict.VIOLATION, lost), run / "verdict.json")
    found = report.write(run).read_text()
    (run / "simulation.json").write_text('{"trace_hash": "ab"}')
    simulated = report.write(run).read_text()
    save(a_verdict(Verdict.PASS), run / "verdict.json")
    passed = report.write(run).read_text()

    assert f"tribunal explain {run}" in found
    assert "tribunal shrink" not in found  # of a run on real nodes the simulator may know nothing
    assert f"tribunal shrink {run}" in simulated
    assert "tribunal explain" not in passed


@pytest.mark.parametrize(("known", "shown"), [
    pytest.param(True, '<span class="good">yes</span>', id="yes"),
    pytest.param(False, '<b class="bad">no', id="no"),
    pytest.param(None, "not known", id="the run was cut off before anybody looked"),
])  # fmt: skip
def test_a_fault_of_which_nobody_knows_whether_it_took_effect_is_not_one_without_effect(
    run: Path, known: bool | None, shown: str
) -> None:
    fault = InjectedFault(index=0, kind="kill", took_effect=known, healed=known)
    save(a_verdict(Verdict.INCONCLUSIVE, test=Conditions(faults=(fault,))), run / "verdict.json")

    table = report.write(run).read_text().partition("<caption>Faults")[2].partition("</table>")[0]

    assert table.count(shown) == 2


def test_rare_states_are_counted_through_restarts_and_those_not_reached_are_named(run: Path) -> None:
    recorder = Recorder(run / "own", "r")
    counts = ((1, 1), (2, 2), (3, 5), (4, 1), (5, 2))  # seconds and count: from the fourth on a new process counts
    for at_s, count in counts:
        recorder.row("probes", name="isr_shrunk", node=1, at_ns=at_s * S, count=count)
    recorder.row("probes", name="isr_shrunk", node=2, at_ns=S, count=3)
    recorder.row("probes", name="point fetch", node=2, at_ns=S, count=9)
    recorder.finish(Made(seed=5))
    save(a_verdict(Verdict.PASS), run / "own" / "verdict.json")

    real = report.write(run / "own").read_text()
    simulation = {"probes": {"isr_empty": 4}, "unreached": ["elr_nonempty", "leaderless"]}
    (run / "own" / "simulation.json").write_text(json.dumps(simulation))
    simulated = report.write(run / "own").read_text()

    assert page(run / "own").rare_states == {"isr_shrunk": 10}
    assert "<dt>isr shrunk</dt><dd>10</dd>" in real
    assert "were not reached" not in real  # which ones a release of its own can count nobody knows
    assert "<dt>isr empty</dt><dd>4</dd>" in simulated
    assert "2 rare states were not reached" in simulated
    assert "elr nonempty, leaderless" in simulated


def test_a_window_of_more_seconds_than_there_are_is_refused() -> None:
    with pytest.raises(BadWindow, match="is no stretch of time"):
        parsed(f"0:{'9' * 400}")


def test_what_the_nodes_were_set_to_is_there(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "r")
    recorder.finish(
        Made(
            settings={
                "min.insync.replicas": 2,
                "unclean.leader.election.enable": False,
                "unset": None,
                "roots": ["a", "b"],
            }
        )
    )
    save(a_verdict(Verdict.PASS), tmp_path / "verdict.json")

    html = report.write(tmp_path).read_text()

    assert "<dt>unclean.leader.election.enable</dt><dd>false</dd>" in html
    assert "<dt>roots</dt><dd>a, b</dd>" in html
    assert "<dt>unset</dt>" not in html


def test_a_run_that_was_shrunk_shows_its_minimal_run(run: Path) -> None:
    fault = '{"kind": "kill", "target": {"text": "leader(p0)"}, "lasts_ms": 900, "after_ms": 50}'
    for name, faults in (("plan.json", f"{fault},{fault}"), ("plan.min.json", fault)):
        (run / name).write_text(
            f'{{"seed": 1, "spec": {{"brokers": 3, "controllers": 3}}, "time_ms": 5000, "faults": [{faults}]}}'
        )
    save(a_verdict(Verdict.PASS), run / "verdict.json")

    html = report.write(run).read_text()

    assert "faults 2 → 1." in html
    assert "kill leader(p0) for 900 ms, 50 ms after the cluster was whole" in html
    assert "Drawing of the minimal run" not in html  # nobody kept its story
    (run / "plan.min.json").unlink()
    assert "Minimal run" not in report.write(run).read_text()


@pytest.mark.parametrize(("small", "said"), [
    pytest.param([{"origin": 1}], ["no", "yes"], id="the second is left"),
    pytest.param([{"origin": 0}, {"origin": 1}], ["yes", "yes"], id="both are left"),
    pytest.param([{}], [], id="nobody knows which is left"),
])  # fmt: skip
def test_the_table_of_faults_says_which_are_in_the_minimal_run(
    run: Path, small: list[dict[str, int]], said: list[str]
) -> None:
    fault = {"kind": "kill", "target": {"text": "leader(p0)"}, "lasts_ms": 900, "after_ms": 50}
    plan = {"seed": 1, "spec": {"brokers": 3, "controllers": 3}, "time_ms": 5000}
    (run / "plan.json").write_text(json.dumps(plan | {"faults": [fault, fault]}))
    (run / "plan.min.json").write_text(json.dumps(plan | {"faults": [fault | one for one in small]}))
    faults = tuple(InjectedFault(index=index, kind="kill", took_effect=True, healed=True) for index in (0, 1))
    save(a_verdict(Verdict.PASS, test=Conditions(faults=faults)), run / "verdict.json")

    rows = re.findall(r'<tr id="fault-\d">.*?</tr>', report.render(page(run)), re.DOTALL)

    assert len(rows) == 2
    assert [word for row in rows for word in re.findall(r"<td>(yes|no)</td>", row)] == said


def test_the_storys_faults_lead_to_their_proofs(run: Path) -> None:
    lost = Finding(
        property_name="lost_writes", kind="lost", severity="violation", explanation="gone", topic="t<0>", partition=0,
        log_offset=20, value=value_of(1, 20), acks=-1, acknowledged_ns=20 * S,
    )  # fmt: skip
    known = page_with(run, lost, Conditions(faults=(InjectedFault(index=0, kind="kill"),)))
    unknown = page_with(run, lost, Conditions())

    link = r'Fault 0: kill [^<]*</span> <a class="see" href="#fault-0">proof<span class="hidden"> of fault 0</span></a>'

    assert re.search(link, known)
    assert 'href="#fault-' not in unknown  # the verdict has no such row


def page_with(run: Path, finding: Finding, test: Conditions) -> str:
    save(a_verdict(Verdict.VIOLATION, finding, test=test), run / "verdict.json")
    return report.render(page(run))


def test_the_load_is_held_against_what_had_to_be_completed(run: Path) -> None:
    load = tuple(
        PhaseLoad(phase=phase, acks=acks, ok=ok, fail=0, info=0, sent=sent)
        for phase, acks, ok, sent in (
            ("warm-up", -1, 3, 0),
            ("faults", -1, 4, 0),
            ("faults", 1, 5, 0),
            ("faults", 0, 0, 5),
        )
    )
    save(a_verdict(Verdict.PASS, test=Conditions(load=load, least_load={"faults": 5})), run / "verdict.json")

    html = report.render(page(run))
    table = html[html.index("<caption>Load") : html.index("</table>", html.index("<caption>Load"))]

    assert re.findall(r">(reached|not reached)<", table) == ["not reached", "reached", "reached"]
    assert table.count('<td class="n">5 <') == 3


def test_properties_without_a_row_are_named(run: Path) -> None:
    covered = Coverage(cells=9, judged=9, without_rows=("bank", "group_ends"))
    save(a_verdict(Verdict.PASS, coverage=covered), run / "verdict.json")

    assert "had all of their inputs; but 2 properties had not one row" in report.render(page(run))
    assert "2 properties had not one row to look at" in report.render(page(run))
    assert "<p>bank, group ends</p>" in report.render(page(run))


def test_how_often_real_nodes_showed_it_stands_beside_the_verdict(run: Path) -> None:
    save(a_verdict(Verdict.VIOLATION), run / "verdict.json")
    keep(Rate(cluster="processes", sought=("lost_writes/lost",), runs=4, shown=1), run)
    keep(Rate(cluster="containers", sought=(), runs=2, shown=2), run)
    keep(Rate(cluster="processes", sought=("lost_writes/lost",), runs=8, shown=5), run)

    html = report.render(page(run))

    assert "5 of 8 runs of its plan on processes show lost_writes/lost (95 %: 24% to 91%)" in html
    assert "2 of 2 runs of its plan on containers show a violation" in html
    (run / "confirm.json").write_text('[{"cluster": "processes", "sought": [], "runs": 2, "shown": 3}]')
    assert "runs of its plan" not in report.render(page(run))


def test_a_minimal_run_is_drawn_by_the_story_that_was_kept_of_it(run: Path) -> None:
    plan = '{"seed": 1, "spec": {"brokers": 3, "controllers": 3}, "time_ms": 5000, "faults": []}'
    other, lost = (
        Finding(
            property_name="lost_writes", kind=kind, severity="violation", explanation=f"{kind} here", topic="t<0>", partition=0,
            log_offset=offset, value=value_of(1, offset), acks=-1, acknowledged_ns=offset * S,
        )
        for kind, offset in (("rewound", 3), ("lost", 7))
    )  # fmt: skip
    save(a_verdict(Verdict.VIOLATION, other, lost), run / "verdict.json")
    for name in ("plan.json", "plan.min.json"):
        (run / name).write_text(plan)

    kept = keep_story(run, run, lost.signature)  # it stands for the minimal run here
    html = report.write(run).read_text()

    assert kept == run / "story.min.json"
    own = html[html.index('<section id="minimal">') : html.index('<section id="timeline">')]
    assert "Drawing of the minimal run; the same as text below" in own
    assert "sends its record 7 to t&lt;0&gt;-0 with acks=all" in own
    assert len(set(re.findall(r'<marker id="([^"]+)"', html))) == len(re.findall(r"<marker ", html))
    (run / "story.min.json").write_text("{")
    assert "Drawing of the minimal run" not in report.write(run).read_text()
    save(a_verdict(Verdict.PASS), run / "verdict.json")
    assert keep_story(run, run, None) is None


def test_a_run_without_a_finding_says_what_the_judge_sees_and_one_with_a_finding_needs_it_not(run: Path):
    save(a_verdict(Verdict.PASS), run / "verdict.json")
    passed = report.render(page(run))
    save(a_verdict(Verdict.VIOLATION), run / "verdict.json")
    violated = report.render(page(run))

    figure = total(measured().figures.values())
    assert (
        f"Of {figure.injected:,} anomalies that were put into copies of {measured().recordings} other recordings"
        in passed
    )
    assert "anomalies that were put into copies" not in violated


def test_a_run_of_which_the_likelihood_is_known_shows_its_curve_and_when_it_was_sealed(run: Path):
    save(a_verdict(Verdict.VIOLATION), run / "verdict.json")
    moments = [Moment(at_ns=number * 10 * S, runs=4, shown=shown) for number, shown in enumerate((0, 3, 4, 4))]
    save_likelihood(Likelihood(signature="lost <i>", end_ns=30 * S, each=4, moments=moments), run)

    drawn = report.render(page(run))

    assert "From 20.000 s on every run shows it" in drawn
    assert "lost &lt;i&gt;" in drawn
    assert drawn.count("runs show it (") == 8  # as a title and in the list


def test_a_window_has_the_timeline_of_its_stretch_only_in_a_file_of_its_own(run: Path) -> None:
    save(a_verdict(Verdict.PASS), run / "verdict.json")
    whole = report.write(run).read_text()

    path = report.write(run, parsed("2.5:25"))

    assert path.name == "report-2.5-25.html"
    assert (run / "report.html").read_text() == whole
    text = path.read_text()
    assert "Drawn from 2.500 s to 25.000 s only" in text
    assert 'data-start="2.5" data-end="25.0"' in text
    drawn = drawing(page(run, parsed("2.5:25")))
    assert [label for _, label in drawn.ticks] == [*map(str, range(4, 24, 2)), "24 s"]
    bars = {bar.label: bar for track in drawn.tracks for bar in track.bars if bar.label}
    assert bars["1 e0"].x == LEFT
    assert math.isclose(bars["2 e1"].x, LEFT + PLOT * 17.5 / 22.5, abs_tol=0.01)
    assert [at_s for at_s, _ in drawn.events] == [19.0, 20.0]
    (rates,) = [track for track in drawn.tracks if track.title.startswith("Completed sends")]
    seconds = [at_ms / 1000 for at_ms, value in rates.lines[0].values if value]
    assert [round(one) for one in seconds] == list(range(3, 25))


def test_what_lies_outside_of_a_window_is_left_out_and_what_held_at_its_begin_is_kept(run: Path) -> None:
    save(a_verdict(Verdict.PASS), run / "verdict.json")

    drawn = drawing(page(run, parsed("2.5:15s")))

    assert not [track for track in drawn.tracks if track.title.startswith("Faults")]
    assert {bar.label for track in drawn.tracks for bar in track.bars if " e" in bar.label} == {"1 e0"}
    (marks,) = [track for track in drawn.tracks if "high watermark" in track.title]
    assert not [dot for line in marks.lines for dot in line.dots]  # it went back before
    assert marks.low == 3
    assert [line.values for line in marks.lines if not line.title] == [[(2000, 3.0), (3000, 9.0)]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nonsense", "write A:B in seconds"),
        ("4", "write A:B in seconds"),
        ("-1:4", "write A:B in seconds"),
        ("5:5", "has no length"),
        ("7:5", "has no length"),
        ("90:95", "the run was over after 50.000 s"),
    ],
)
def test_a_window_that_cannot_be_drawn_is_refused_and_nothing_is_written(
    run: Path, given: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(a_verdict(Verdict.PASS), run / "verdict.json")

    assert exit_code(["report", str(run), "--window", given]) == 64

    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not list(run.glob("report*.html"))


def test_a_window_of_a_folder_of_runs_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(a_verdict(Verdict.PASS), run / "verdict.json")

    assert exit_code(["report", str(run.parent), "--window", "1:2"]) == 64

    assert "is a folder of runs" in capsys.readouterr().err


@pytest.mark.parametrize(("failures", "said"), [
    pytest.param(1, "failed: up to 0.067", id="one in a quarter of a minute"),
    pytest.param(30, "failed: up to 2", id="thirty"),
    pytest.param(1_500, "failed: up to 100", id="many"),
])  # fmt: skip
def test_a_rate_of_less_than_one_a_second_is_not_none(tmp_path: Path, failures: int, said: str) -> None:
    """In a run of an hour a bin has fifteen seconds: beside the curve of what failed stood `up to 0`, and `at most 0/s` was acknowledged."""
    counts = {word: [0] * 240 for word in ("ok", "sent", "fail", "info")}
    counts["ok"][3], counts["fail"][3] = 3, failures
    shown = Page(
        run_dir=tmp_path, verdict=a_verdict(Verdict.PASS), manifest=None, damage=None, end_ns=3_600 * S, rates=Rates(15 * S, counts)
    )  # fmt: skip

    tracks = {track.title: track for track in drawing(shown).tracks}
    whole = overview(shown)

    assert [words.text for track in tracks.values() for words in track.words] == [said]
    assert [label for _, label in tracks["Completed sends per second"].grid] == ["0", "0.1", "0.2"]
    assert whole is not None
    assert whole.most == "0.2/s"


def test_what_is_said_at_the_curve_of_a_log_is_found_in_one_pass(tmp_path: Path) -> None:
    """Each position was looked for in the list of those that were reported once: a minute and more for a long run."""
    looked = []

    class Positions(list[int]):
        def __contains__(self, position: object) -> bool:
            looked.append(position)
            return super().__contains__(position)

    alone = Positions(range(0, 3_000, 2))
    series = Series("node-1", list(range(3_000)), list(range(3_000)), [], is_log_end=True, alone=alone)
    shown = Page(
        run_dir=tmp_path, verdict=a_verdict(Verdict.PASS), manifest=None, damage=None, end_ns=3_000, in_full=["t-0"],
        watermarks={"t-0": [series]},
    )  # fmt: skip

    drawing(shown)

    assert looked == []
