"""A node that does not start again after a fault: what proves it, what the system's file makes of it, and the neighbours that prove nothing."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.judge.restarts import Meaning, permitted_rows, proven
from tribunal.checkers.judge.verdict import check
from tribunal.checkers.judge.waits import Waits
from tribunal.harness.cli.main import exit_code
from tribunal.results.manifest import Made, Setting
from tribunal.results.not_started import Attempt, NotStarted
from tribunal.results.rows import Fault, Wait
from tribunal.results.verdict import PERMITTED_TABLE, RunVerdict, Verdict

S = 1_000_000_000
ENDED = Attempt(started_ns=30 * S, seen_ns=31 * S, how="ended", exit_code=1)
FIRST = Attempt(started_ns=20 * S, seen_ns=21 * S, how="ended", exit_code=1)
SILENT = Attempt(started_ns=30 * S, seen_ns=50 * S, how="silent")
SEEN = NotStarted(node=2, fault=1, within_ms=10_000, first=FIRST, second=ENDED, not_ready=(2,))
KILL = Fault(index=0, kind="kill", resolved_target="node 2", injected_ns=1, took_effect=True, healed=True)
TORN = Fault(index=1, kind="torn-loss", resolved_target="node 2", injected_ns=19 * S, took_effect=True, healed=False)
PROMISED: dict[str, Setting] = {"promises.starts_after.torn-loss": True, "promises.starts_after.kill": True}
NO_WAITS = Waits(())


def changed(seen: NotStarted = SEEN, **fields: object) -> NotStarted:
    return msgspec.structs.replace(seen, **fields)


def of_attempt(second: Attempt, **fields: object) -> NotStarted:
    return changed(second=msgspec.structs.replace(second, **fields))


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(SEEN, id="it ends again"),
        pytest.param(of_attempt(ENDED, exit_code=-11), id="by a signal of its own"),
        pytest.param(of_attempt(SILENT), id="it runs and does not serve"),
        pytest.param(changed(touched=(0,)), id="its disk had been touched before, by what it promises to survive"),
    ],
)
def test_a_node_that_does_not_start_twice_breaks_the_promise(seen: NotStarted) -> None:
    (found,) = proven([seen], [KILL, TORN], PROMISED, NO_WAITS)

    assert (found.meaning, found.node, found.violation.kind) == ("broken", 2, "does_not_start")
    assert "node 2 does not start again after torn-loss" in found.words


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        pytest.param(changed(second=None), TORN, id="it served at the second start, or nobody tried"),
        pytest.param(of_attempt(ENDED, exit_code=-9), TORN, id="somebody killed it"),
        pytest.param(of_attempt(ENDED, exit_code=137), TORN, id="somebody killed it behind a shell"),
        pytest.param(of_attempt(ENDED, exit_code=None), TORN, id="nobody knows how it ended"),
        pytest.param(of_attempt(SILENT, seen_ns=40 * S), TORN, id="it was not waited for longer than a start may take"),
        pytest.param(changed(not_ready=(2, 3)), TORN, id="another node is not ready, which it may wait for"),
        pytest.param(SEEN, msgspec.structs.replace(TORN, took_effect=False), id="the fault is not proven"),
        pytest.param(SEEN, msgspec.structs.replace(TORN, resolved_target="node 3"), id="the fault struck another node"),
        pytest.param(SEEN, msgspec.structs.replace(TORN, index=5), id="no such fault"),
        pytest.param(changed(not_undone=(0,)), TORN, id="of another fault nobody knows whether it is undone"),
    ],
)
def test_what_may_come_from_elsewhere_proves_nothing(seen: NotStarted, fault: Fault) -> None:
    assert proven([seen], [KILL, fault], PROMISED, NO_WAITS) == []


def test_a_node_that_waited_for_a_processor_gets_as_much_longer() -> None:
    """It was silent for 20 s, may take 10, and had no processor for 11."""
    waits = Waits((Wait(holder="node", node=2, since_ns=30 * S, until_ns=45 * S, waited_ns=11 * S),))

    assert proven([of_attempt(SILENT)], [TORN], PROMISED, waits) == []
    assert len(proven([of_attempt(SILENT, seen_ns=52 * S)], [TORN], PROMISED, waits)) == 1


@pytest.mark.parametrize(
    ("settings", "touched", "meaning"),
    [
        pytest.param({"promises.starts_after.torn-loss": False}, (), "permitted", id="it need not"),
        pytest.param({"promises.starts_after.kill": False}, (), "unsaid", id="that is said of another fault"),
        pytest.param({}, (), "unsaid", id="nothing is said"),
        pytest.param(PROMISED, (), "broken", id="it has to"),
        pytest.param(
            PROMISED | {"promises.starts_after.kill": False}, (0,), "permitted", id="a former fault touched its disk"
        ),
        pytest.param(PROMISED | {"promises.starts_after.kill": False}, (), "broken", id="a former fault did not"),
        pytest.param({"promises.starts_after.torn-loss": True}, (0,), "unsaid", id="of a former fault nothing is said"),
    ],
)
def test_the_file_says_what_it_means(settings: dict[str, Setting], touched: tuple[int, ...], meaning: Meaning) -> None:
    (found,) = proven([changed(touched=touched)], [KILL, TORN], settings, NO_WAITS)

    assert found.meaning == meaning


def test_one_of_two_may_lack_the_other() -> None:
    """Both are down: what one of them need not survive may be what the other one waits for."""
    other = changed(node=3, fault=2, not_ready=(2, 3))
    own = changed(not_ready=(2, 3))
    faults = [TORN, Fault(index=2, kind="wipe", resolved_target="node 3", injected_ns=19 * S, took_effect=True)]
    promised = PROMISED | {"promises.starts_after.wipe": True}

    meanings = [
        [one.meaning for one in proven([own, other], faults, settings, NO_WAITS)]
        for settings in (promised, promised | {"promises.starts_after.wipe": False})
    ]

    assert meanings == [["broken", "broken"], ["permitted", "permitted"]]


@pytest.mark.parametrize(
    ("fault", "seen", "node", "at_ns"),
    [
        pytest.param(
            Fault(index=2, kind="wipe", resolved_target="node 3", injected_ns=17 * S, took_effect=True),
            [changed(not_ready=(2, 3)), changed(node=3, fault=2, not_ready=(2, 3))],
            3,
            17 * S,
            id="that of another node, which this one may wait for",
        ),
        pytest.param(
            Fault(index=2, kind="wipe", resolved_target="node 2", injected_ns=5 * S, took_effect=True, healed=True),
            [changed(touched=(2,))],
            2,
            5 * S,
            id="a former one of its own",
        ),
    ],
)
def test_what_permits_it_is_named_with_its_own_node_and_time(
    tmp_path: Path, fault: Fault, seen: list[NotStarted], node: int, at_ns: int
) -> None:
    """The rows had the node that did not start, and when it was put down."""
    found = proven(seen, [TORN, fault], PROMISED | {"promises.starts_after.wipe": False}, NO_WAITS)

    (written,) = permitted_rows(found[:1], tmp_path)

    (row,) = pq.read_table(pa.BufferReader(written.rows)).to_pylist()
    assert (row["event"], row["event_ns"], row["holders"]) == ("wipe", at_ns, [node])


def test_a_fault_without_effect_permits_nothing() -> None:
    """Whether it had touched the disk is not known: nobody is accused either."""
    missed = Fault(index=2, kind="wipe", resolved_target="node 2", injected_ns=5 * S, took_effect=False)
    seen = changed(touched=(2,))

    found = [
        proven([seen], [TORN, missed], PROMISED | {"promises.starts_after.wipe": promised}, NO_WAITS)
        for promised in (False, True)
    ]

    assert [[one.meaning for one in each] for each in found] == [[], ["broken"]]


def judged(run_dir: Path, said: dict[str, Setting], seen: NotStarted) -> RunVerdict:
    """Judge a run in which a node did not come back, and nothing else went wrong."""
    run = Run(run_dir)
    value = run.send(0, at=10)
    run.fault("torn-loss", at=20, node=2, healed=False)
    run.recorder.row("phases", name="faults", start_ns=0, end_ns=100_000_000, load=[])
    run.final_read({0: value})
    settings = dict(run.settings) | {f"promises.starts_after.{kind}": promised for kind, promised in said.items()}
    run.recorder.finish(Made(settings=settings, least_load=0, not_started=(seen,)))
    return check([run_dir], "inline")[0]


@pytest.mark.parametrize(
    ("said", "second", "verdict", "signatures"),
    [
        pytest.param(True, ENDED, Verdict.VIOLATION, ["invariant/does_not_start/liveness"], id="promised"),
        pytest.param(False, ENDED, Verdict.PERMITTED, [], id="not promised"),
        pytest.param(None, ENDED, Verdict.ERROR, ["run/not_started"], id="not said"),
        pytest.param(True, None, Verdict.INCONCLUSIVE, [], id="promised and not proven"),
        pytest.param(False, None, Verdict.INCONCLUSIVE, [], id="not promised and not proven"),
    ],
)
def test_a_run_gets_the_verdict_that_the_file_and_the_second_start_make(
    tmp_path: Path, said: bool | None, second: Attempt | None, verdict: Verdict, signatures: list[str]
) -> None:
    kinds: dict[str, Setting] = {} if said is None else {"torn-loss": said}
    found = judged(tmp_path, kinds, changed(fault=0, second=second))

    assert found.verdict is verdict
    assert [str(one) for one in found.signatures] == signatures
    rows = pq.read_table(tmp_path / PERMITTED_TABLE).to_pylist() if found.permitted_rows else []
    assert [(row["rule"], row["event"], row["kind"], row["holders"]) for row in rows] == (
        [("R15", "torn-loss", "does_not_start", [2])] if verdict is Verdict.PERMITTED else []
    )
    if said is None:
        assert "[promises] starts_after = { torn-loss = true }" in found.reasons[0]


def test_a_real_run_is_no_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its account said "The simulation stops here, at event None"."""
    judged(tmp_path, {"torn-loss": True}, changed(fault=0))
    capsys.readouterr()

    assert exit_code(["explain", str(tmp_path)]) == 0

    said = capsys.readouterr().out
    assert "node 2 does not start again after torn-loss" in said
    assert "simulation" not in said
