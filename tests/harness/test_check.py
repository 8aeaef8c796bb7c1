"""From findings to one of five verdicts: each has a run here, and each INCONCLUSIVE its reason."""

import shutil
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.judge.verdict import check
from tribunal.results.verdict import ExcusingEvent, RunVerdict, Verdict, load


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def judged(run_dir: Path) -> RunVerdict:
    (verdict,) = check([run_dir], "inline")
    if run_dir.is_dir():
        assert load(run_dir / "verdict.json") == verdict
    return verdict


def a_good_run(run: Run) -> list[int]:
    run.phase("faults", 0, 500)
    return [run.send(i, 100 + i) for i in range(3)]


def test_pass_says_how_much_was_judged(run: Run) -> None:
    values = a_good_run(run)
    run.fault("kill", 150, node=1)
    run.final_read(dict(enumerate(values)))

    verdict = judged(run.finish())

    assert verdict.verdict is Verdict.PASS
    assert "3 acknowledged, acks=all" in verdict.claim


def test_a_verdict_that_cannot_be_written_is_given_all_the_same(run: Run) -> None:
    run.final_read(dict(enumerate(a_good_run(run))))
    run_dir = run.finish()
    (run_dir / "verdict.json.tmp").mkdir()  # root may write into read-only folders
    written: list[Path] = []

    (verdict,) = check([run_dir], "inline", unwritten=lambda path, _: written.append(path))

    assert verdict.verdict is Verdict.PASS
    assert written == [run_dir / "verdict.json"]
    with pytest.raises(IsADirectoryError):
        check([run_dir], "inline")


def test_a_folder_that_is_no_run_is_left_as_it_was(tmp_path: Path) -> None:
    (verdict,) = check([tmp_path], "inline")

    assert verdict.verdict is Verdict.ERROR
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("facts", "is_known"),
    [
        pytest.param({"type": "clean_shutdown_file"}, True, id="of this version"),
        pytest.param({"type": "a_fact_of_another_version"}, False, id="of another version"),
        pytest.param({"type": "two_batches", "third": 3}, False, id="with other fields"),
    ],
)
def test_an_invariant_that_a_simulation_stopped_at_is_a_violation_whatever_its_facts(
    run: Run, facts: dict[str, object], is_known: bool
) -> None:
    run.final_read(dict(enumerate(a_good_run(run))))
    run_dir = run.finish()
    violated = {"invariant": "I20", "facts": facts, "node": 1}
    written = {"invariant": "I20", "violation": "words", "violated_at_event": 7, "violated": violated}
    (run_dir / "simulation.json").write_bytes(msgspec.json.encode(written))

    (finding,) = judged(run_dir).violations

    assert (finding.kind, finding.explanation, finding.detail.event) == ("I20", "words", 7)
    assert (finding.violation is not None) is is_known
    assert str(finding.signature) == "invariant/clean_shutdown_file/I20"


def test_a_violation_names_the_record_and_the_moment(run: Run) -> None:
    values = a_good_run(run)
    run.final_read(dict(enumerate(values[:2])))

    verdict = judged(run.finish())

    (finding,) = verdict.violations
    assert verdict.verdict is Verdict.VIOLATION
    assert (finding.place, finding.value, finding.acks) == ("t-0@2", values[2], -1)
    assert finding.acknowledged_ns == 103_000_000
    assert "must survive" in finding.detail.promise


def test_a_permitted_loss_names_its_rule(run: Run) -> None:
    values = [run.send(i, 100 + i, acks=1) for i in range(3)]
    run.change(200, leader=2, isr=[2, 3])
    run.final_read(dict(enumerate(values[:2])))

    verdict = judged(run.finish())

    assert verdict.verdict is Verdict.PERMITTED
    assert verdict.permitted[0].rule == "R5"
    assert verdict.claim == "no promise was broken; permitted by R5: 1 x lost (acks=1)"
    assert (verdict.verdict.exit_code(strict=False), verdict.verdict.exit_code(strict=True)) == (0, 1)


def test_every_permitted_loss_stands_in_a_table_with_its_rule_and_event(run: Run) -> None:
    values = [run.send(i, 100 + i, acks=1) for i in range(30)]
    run.change(200, leader=2, isr=[2, 3])
    run.final_read(dict(enumerate(values[:2])))
    run_dir = run.finish()

    verdict = judged(run_dir)
    rows = pq.read_table(run_dir / "permitted.parquet").to_pylist()

    assert len(verdict.permitted) == 20 < verdict.permitted_rows == len(rows) == 28
    assert [row["log_offset"] for row in rows] == [*range(2, 30)]
    event = {"rule": "R5", "event": "clean election", "event_topic": "t", "event_partition": 0, "leader": 2}
    assert all(row.items() >= (event | {"event_ns": 200_000_000, "leader_epoch": 1}).items() for row in rows)
    assert all(row["holders"] == [1, 2, 3] or row["holders"] == [1] for row in rows)


def test_what_is_damaged_permits_nothing(run: Run) -> None:
    """The other partition's loss is permitted by metadata that may be as wrong as the table that is damaged."""
    values = [run.send(i, 100 + i, acks=1) for i in range(30)]
    run.send(30, 200, topic="u", offset=0)
    run.change(200, leader=2, isr=[2, 3])
    run.final_read(dict(enumerate(values[:2])))
    run_dir = run.cut_off()
    (path,) = (run_dir / "recording/sends/tp=u-0").glob("part-*.parquet")
    path.write_bytes(path.read_bytes()[:-30])

    verdict = judged(run_dir)

    assert (verdict.verdict, verdict.permitted_rows) == (Verdict.ERROR, 0)
    assert not (run_dir / "permitted.parquet").exists()


def test_a_table_of_an_earlier_verdict_goes_when_nothing_is_permitted_any_more(run: Run) -> None:
    run.final_read(dict(enumerate(a_good_run(run))))
    run_dir = run.finish()
    (run_dir / "permitted.parquet").write_bytes(b"of before")

    assert judged(run_dir).permitted_rows == 0
    assert not (run_dir / "permitted.parquet").exists()


def test_what_is_gone_by_order_names_the_order(run: Run) -> None:
    values = a_good_run(run)
    order = {"api": "delete_records", "topic": "t", "partition": 0, "log_offset": 1, "outcome": "ok"}
    run.recorder.row("admin", **order, invoke_ns=300_000_000, complete_ns=301_000_000)
    run.poll(99, "final", 1, 2, 900, high_watermark=3, log_start_offset=1)
    for offset in (1, 2):
        read = {"process": 99, "poll_index": 0, "topic": "t", "partition": 0, "phase": "final"}
        run.recorder.row("reads", **read, log_offset=offset, value=values[offset])
    run.poll(99, "final", 3, 0, 901, high_watermark=3, log_start_offset=1)

    (finding,) = judged(run.finish()).permitted

    assert (finding.rule, finding.detail.excuse) == (
        "gone_by_order", ExcusingEvent(event="order", topic="t", partition=0, at_ns=300_000_000, holders=(1, 2, 3))
    )  # fmt: skip


def test_a_run_in_which_nothing_was_acknowledged_is_inconclusive(run: Run) -> None:
    run.send(0, 100, outcome="info", complete_ns=None, log_offset=None)
    run.final_read({})

    verdict = judged(run.finish())

    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert verdict.reasons == ["nothing was acknowledged: there was nothing that could be lost"]


@pytest.mark.parametrize(
    ("took_effect", "healed", "reason"),
    [
        pytest.param(False, True, "had no effect", id="no effect"),
        pytest.param(True, False, "was not healed", id="not healed"),
    ],
)
def test_a_fault_without_effect_or_heal_is_inconclusive(run: Run, took_effect: bool, healed: bool, reason: str) -> None:
    values = a_good_run(run)
    run.fault("kill", 150, node=1, took_effect=took_effect, healed=healed)
    run.final_read(dict(enumerate(values)))

    verdict = judged(run.finish())

    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert reason in verdict.reasons[0]


def test_a_phase_without_its_load_is_inconclusive(run: Run) -> None:
    values = a_good_run(run)
    run.final_read(dict(enumerate(values)))

    verdict = judged(run.finish(least_load=5))

    assert verdict.reasons == ["phase faults acks=all: 3 acknowledged (need 5)"]


def test_a_violation_stands_even_when_a_fault_had_no_effect(run: Run) -> None:
    values = a_good_run(run)
    run.fault("kill", 150, node=1, took_effect=False)
    run.final_read(dict(enumerate(values[:2])))

    assert judged(run.finish()).verdict is Verdict.VIOLATION


def test_a_cut_off_recording_is_inconclusive(run: Run) -> None:
    a_good_run(run)

    verdict = judged(run.cut_off())

    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert any("t-0" in reason for reason in verdict.reasons)
    assert any("cut off" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("table", ["sends", "polls", "metadata", "faults", "probes"])
def test_a_missing_table_is_an_error_in_one_line(run: Run, table: str) -> None:
    values = a_good_run(run)
    run.final_read(dict(enumerate(values[:2])))
    run_dir = run.cut_off()
    shutil.rmtree(run_dir / "recording" / table)

    verdict = judged(run_dir)

    assert verdict.verdict is Verdict.ERROR
    assert verdict.reasons[0] == f"table {table}: the table is missing"
    assert Verdict.ERROR.exit_code(strict=False) == 3


def test_a_contradictory_row_is_an_error_and_proves_nothing(run: Run) -> None:
    values = a_good_run(run)
    run.send(0, 300)
    run.final_read(dict(enumerate(values[:2])))

    verdict = judged(run.finish())

    assert verdict.verdict is Verdict.ERROR
    assert "sent twice" in verdict.reasons[0]
    assert verdict.findings == []


def test_a_folder_without_a_recording_is_an_error(tmp_path: Path) -> None:
    assert judged(tmp_path / "nothing").verdict is Verdict.ERROR


def test_a_run_that_ended_early_is_an_error(run: Run) -> None:
    values = a_good_run(run)
    run.final_read(dict(enumerate(values)))

    assert judged(run.finish(failure="broker 2 died")).verdict is Verdict.ERROR


def test_many_runs_get_their_verdicts_in_order(tmp_path: Path) -> None:
    good, bad = Run(tmp_path / "good"), Run(tmp_path / "bad")
    for run, shown in ((good, 3), (bad, 1)):
        values = a_good_run(run)
        run.final_read(dict(enumerate(values[:shown])))

    verdicts = check([bad.finish(), good.finish()], "inline")

    assert [verdict.verdict for verdict in verdicts] == [Verdict.VIOLATION, Verdict.PASS]


def test_a_run_that_is_named_twice_is_judged_once(tmp_path: Path) -> None:
    run = Run(tmp_path / "good")
    run.final_read(dict(enumerate(a_good_run(run))))
    folder = run.finish()
    (once,) = check([folder], "inline")

    assert check([folder, folder], "inline") == [once, once]
