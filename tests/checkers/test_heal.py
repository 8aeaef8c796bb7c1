"""A heal that does not come about: two looks that prove a violation, and their neighbours that prove none."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.judge.heal import stands_still
from tribunal.checkers.judge.verdict import check
from tribunal.results.heal import Look, PartitionSeen, Unhealed
from tribunal.results.manifest import Made
from tribunal.results.verdict import RunVerdict, Verdict
from tribunal.results.violation import CommittedPartition, NoProgress

TIMEOUT_MS = 20_000
NAME = "t-0"
STATE = CommittedPartition(leader=1, leader_epoch=4, partition_epoch=9, replicas=(1, 2, 3), isr=(1, 2))
NOBODY = msgspec.structs.replace(STATE, leader=-1, isr=(), elr=(2, 3))


def seen(state: CommittedPartition = STATE, ends: dict[int, int | None] | None = None) -> PartitionSeen:
    return PartitionSeen(name=NAME, state=state, log_ends={1: 70, 2: 70, 3: 41} if ends is None else ends)


def look(at_ms: int, *lacking: PartitionSeen, **more: tuple[int, ...]) -> Look:
    whole: dict[str, tuple[int, ...]] = {"answering": (101, 1, 2, 3), "unfenced": (1, 2, 3)}
    return Look(at_ns=at_ms * 1_000_000, lacking=lacking, **(whole | more))


def unhealed(first: Look | None, second: Look | None, **more: tuple[int, ...]) -> Unhealed:
    faults: dict[str, tuple[int, ...]] = {"not_undone": (), "on_disks": ()}
    return Unhealed(
        timeout_ms=TIMEOUT_MS, nodes=(101, 1, 2, 3), brokers=(1, 2, 3), first=first, second=second, **(faults | more)
    )


FIRST, SECOND = look(60_000, seen()), look(80_000, seen(ends={1: 95, 2: 95, 3: 41}))


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(unhealed(FIRST, SECOND), id="a follower that fetches nothing, beside an ISR that is written to"),
        pytest.param(unhealed(look(60_000, seen(NOBODY)), look(80_000, seen(NOBODY))), id="no leader, an ELR"),
        pytest.param(
            unhealed(look(60_000, seen(ends={3: None})), look(80_000, seen(ends={3: None}))),
            id="a replica without a log",
        ),
    ],
)
def test_what_stands_still_although_everything_is_undone_is_a_violation(facts: Unhealed) -> None:
    violation = stands_still(facts)

    assert violation is not None
    assert violation.kind == "no_full_isr"


LAST = msgspec.structs.replace(STATE, leader=-1, isr=(1,))


@pytest.mark.parametrize(
    ("emptied", "ends", "state", "proves"),
    [
        pytest.param((1,), {1: 0, 2: 70, 3: 41}, LAST, False, id="its disk lost the whole log of the last member"),
        pytest.param((1,), {1: None, 2: 70, 3: 41}, LAST, False, id="it has no log at all"),
        pytest.param((), {1: 0, 2: 70, 3: 41}, LAST, True, id="no fault took it"),
        pytest.param((2,), {1: 0, 2: 0, 3: 41}, LAST, True, id="another disk lost its own"),
        pytest.param((1,), {1: 70, 2: 70, 3: 41}, LAST, True, id="it has fetched it again"),
        pytest.param((1,), {1: 0, 2: 70, 3: 41}, msgspec.structs.replace(LAST, isr=(1, 2)), True, id="one of two"),
    ],
)
def test_who_lost_the_whole_log_is_for_an_operator(
    emptied: tuple[int, ...], ends: dict[int, int | None], state: CommittedPartition, proves: bool
) -> None:
    partition = msgspec.structs.replace(seen(state, ends), emptied=emptied)

    assert (stands_still(unhealed(look(60_000, partition), look(80_000, partition))) is not None) is proves


def changed(**fields: object) -> CommittedPartition:
    return msgspec.structs.replace(STATE, **fields)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(None, id="full service came about"),
        pytest.param(unhealed(None, None), id="nobody looked"),
        pytest.param(unhealed(FIRST, None), id="one look alone"),
        pytest.param(unhealed(FIRST, SECOND, not_undone=(0,)), id="a fault is not undone"),
        pytest.param(unhealed(FIRST, SECOND, on_disks=(0,)), id="bytes on a disk were altered"),
        pytest.param(unhealed(FIRST, look(79_999, seen())), id="looked again too early"),
        pytest.param(unhealed(FIRST, look(80_000)), id="it came about late"),
        pytest.param(unhealed(FIRST, look(80_000, seen(changed(isr=(1, 3))))), id="another ISR"),
        pytest.param(unhealed(FIRST, look(80_000, seen(changed(leader=2)))), id="another leader"),
        pytest.param(unhealed(FIRST, look(80_000, seen(changed(leader_epoch=5)))), id="elected anew meanwhile"),
        pytest.param(
            unhealed(FIRST, look(80_000, seen(changed(partition_epoch=11)))), id="in the ISR and out meanwhile"
        ),
        pytest.param(unhealed(FIRST, look(80_000, seen(ends={1: 70, 2: 70, 3: 42}))), id="the follower catches up"),
        pytest.param(unhealed(FIRST, look(80_000, seen(ends={1: 70, 2: 70, 3: None}))), id="the follower begins anew"),
        pytest.param(unhealed(FIRST, look(80_000, seen(ends={1: 70, 2: 70}))), id="the follower's disk was not read"),
        pytest.param(
            unhealed(FIRST, look(80_000, seen(), msgspec.structs.replace(seen(), name="t-1"))),
            id="another one fell out",
        ),
        pytest.param(unhealed(FIRST, look(80_000, seen(), answering=(101, 1, 2))), id="a broker does not answer"),
        pytest.param(unhealed(FIRST, look(80_000, seen(), answering=(1, 2, 3))), id="a controller does not answer"),
        pytest.param(unhealed(look(60_000, seen(), unfenced=(1, 2)), SECOND), id="a broker is fenced"),
        pytest.param(
            unhealed(*(look(at_ms, seen(changed(leader=-1, isr=(), elr=()))) for at_ms in (60_000, 80_000))),
            id="no leader, nobody in ISR and ELR: an operator has to say whom to trust",
        ),
        pytest.param(
            unhealed(look(60_000, seen(NOBODY)), look(80_000, seen(NOBODY, ends={1: 71, 2: 70, 3: 41}))),
            id="no leader, and a log moves",
        ),
    ],
)
def test_whatever_moves_or_is_not_known_proves_nothing(facts: Unhealed | None) -> None:
    assert stands_still(facts) is None


EMPTY = msgspec.structs.replace(STATE, leader=-1, isr=(2,))


@pytest.mark.parametrize(("whom", "end", "until_ms", "proves"), [
    pytest.param(2, 0, 90_000, False, id="the only member of the ISR has another disk"),
    pytest.param(2, None, 90_000, False, id="on which no log was made yet"),
    pytest.param(2, 5, 90_000, True, id="on which something stands again"),
    pytest.param(3, 0, 90_000, True, id="who has another disk is not in the ISR"),
    pytest.param(2, 0, 70_000, True, id="it is not passed over any more"),
])  # fmt: skip
def test_whose_disk_was_replaced_is_not_waited_for(whom: int, end: int | None, until_ms: int, proves: bool) -> None:
    partition = seen(EMPTY, ends={1: 0, 2: end, 3: 0})

    def passed_over(name: str, node: int, at_ns: int) -> bool:
        return (name, node) == (NAME, whom) and at_ns < until_ms * 1_000_000

    violation = stands_still(unhealed(look(60_000, partition), look(80_000, partition)), passed_over)

    assert (violation is not None) is proves


def test_the_evidence_names_the_partition_its_state_and_the_log_ends_at_both_looks() -> None:
    violation = stands_still(unhealed(FIRST, SECOND))

    assert violation is not None
    assert violation.facts == NoProgress(
        expected=violation.facts.expected,  # type: ignore[union-attr]
        timeout_ms=TIMEOUT_MS,
        states={NAME: STATE},
        first_ns=60_000_000_000,
        second_ns=80_000_000_000,
        log_ends={NAME: ({1: 70, 2: 70, 3: 41}, {1: 95, 2: 95, 3: 41})},
    )


def judged(run_dir: Path, facts: Unhealed | None) -> RunVerdict:
    """Judge a run in which a kill was undone, and full service did not come about within the time to heal."""
    run = Run(run_dir)
    value = run.send(0, at=10)
    run.fault("kill", at=20, node=3, healed=False)
    run.recorder.row("phases", name="faults", start_ns=0, end_ns=100_000_000, load=[])
    run.final_read({0: value})
    run.recorder.finish(Made(cluster="processes", settings=dict(run.settings), least_load=0, unhealed=facts))
    return check([run_dir], "inline")[0]


@pytest.mark.parametrize(
    ("moved", "verdict", "signatures"),
    [
        pytest.param(lambda: SECOND, Verdict.VIOLATION, ["invariant/no_full_isr/liveness"], id="stands still"),
        pytest.param(lambda: look(80_000, seen(ends={1: 95, 2: 95, 3: 90})), Verdict.INCONCLUSIVE, [], id="moves"),
    ],
)
def test_a_run_gets_the_verdict_that_its_looks_prove(
    tmp_path: Path, moved: Callable[[], Look], verdict: Verdict, signatures: list[str]
) -> None:
    found = judged(tmp_path, unhealed(FIRST, moved()))

    assert found.verdict is verdict
    assert [str(finding.signature) for finding in found.violations] == signatures
    for finding in found.violations:
        assert "t-0: leader 1 epoch 4" in finding.explanation
        assert "70 and 95 on 1, 70 and 95 on 2, 41 and 41 on 3" in finding.explanation
        assert "from 60.0 s to 80.0 s" in finding.explanation
