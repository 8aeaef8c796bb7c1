"""The museum of known faults: what counts as shown, what is as expected, what a visit does with its time, and its page."""

from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tests.harness.this_machine import skip_unless_it_can
from tribunal.clusters.api import ClusterError
from tribunal.harness.campaign.museum import Tour, chosen, seen, sides
from tribunal.harness.campaign.museum_entries import (
    ENTRIES,
    AbortedReads,
    Entry,
    Leaderless,
    LostWrites,
    NoFullIsr,
    QuorumEpochs,
    QuorumWaits,
    TornTransactions,
    UnendedTransactions,
)
from tribunal.harness.catalog import Unknown, scenario_file
from tribunal.harness.cli.session import conduct
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import load
from tribunal.results.museum import Attempt, Exhibit, Museum, Shown, Side, summary
from tribunal.results.museum import load as read
from tribunal.results.report import museum as page
from tribunal.results.verdict import Finding, RunVerdict, Verdict
from tribunal.results.violation import CommittedPartition, Expected, Invariant, NoProgress, Violation

LAST_REPLICA = ENTRIES[0]


def attempt(verdict: Verdict, shows: bool) -> Attempt:
    return Attempt(seed=1, verdict=verdict, shows=shows, measured="", seconds=1.0, run_dir="runs/x")


def exhibit(side: Side, expected: Verdict, *attempts: Attempt) -> Exhibit:
    return Exhibit(side=side, system="x", expected=(expected,), again="", attempts=list(attempts))


def judged(*findings: Finding) -> RunVerdict:
    return RunVerdict(run_id="r", verdict=Verdict.VIOLATION, claim="", findings=list(findings))


def lost(severity: str, acks: int) -> Finding:
    return Finding(property_name="lost_writes", kind="lost", severity=severity, explanation="", acks=acks, count=7)


@pytest.mark.parametrize(
    ("finding", "shows"),
    [
        pytest.param(lost("violation", -1), True, id="acks=all"),
        pytest.param(lost("permitted", -1), True, id="acks=all, permitted by the contract of its release"),
        pytest.param(lost("permitted", 1), False, id="acks=1"),
    ],
)
def test_a_loss_shows_a_fault_only_of_records_that_were_acknowledged_by_all(finding: Finding, shows: bool) -> None:
    found, measured = LostWrites().seen(Path(), judged(finding))

    assert found is shows
    assert measured == f"{7 if shows else 0} records of acks=all lost"


@pytest.mark.parametrize(
    ("expected", "shows"),
    [
        pytest.param(Expected.FULL_ISR, True, id="a replica stays out of the ISR"),
        pytest.param(Expected.CORE_PROGRESS, False, id="a quorum alone does not progress"),
    ],
)
def test_a_replica_that_never_comes_back_shows_a_missed_bounce(expected: Expected, shows: bool) -> None:
    state = CommittedPartition(leader=1, leader_epoch=0, partition_epoch=3, replicas=(1, 2, 3), isr=(1, 2))
    violation = Violation(
        invariant=Invariant.LIVENESS, facts=NoProgress(expected=expected, timeout_ms=5, states={"t-0": state})
    )
    found = Finding(
        property_name="invariant", kind="liveness", severity="violation", explanation="", violation=violation
    )

    assert NoFullIsr().seen(Path(), judged(found)) == (shows, f"{int(shows)} partitions without full ISR")
    assert not NoFullIsr().seen(Path(), judged(lost("violation", -1)))[0]


@pytest.mark.parametrize(
    ("kind", "severity", "shows"),
    [
        pytest.param("leaderless", "violation", True, id="left without leader"),
        pytest.param("leaderless", "note", False, id="not accused"),
        pytest.param("led_twice", "violation", False, id="something else of leaders"),
    ],
)
def test_a_partition_without_leader_shows_a_cleared_elr_only_where_it_is_accused(
    kind: str, severity: str, shows: bool
) -> None:
    found = Finding(property_name="led", kind=kind, severity=severity, explanation="")

    assert Leaderless().seen(Path(), judged(found)) == (shows, f"{int(shows)} partitions left without leader")


@pytest.mark.parametrize(("severity", "count"), [("violation", 5), ("permitted", 0)])
def test_a_late_end_of_a_transaction_shows_by_what_was_aborted_and_read(severity: str, count: int) -> None:
    read = [
        Finding(property_name="aborted_reads", kind="aborted_read", severity=severity, explanation="", count=number)
        for number in (2, 3)
    ]
    other = Finding(property_name="aborted_reads", kind="other", severity="violation", explanation="")

    measured = f"{count} records of aborted transactions read as committed"
    assert AbortedReads().seen(Path(), judged(*read, other)) == (bool(count), measured)


@pytest.mark.parametrize(
    ("property_name", "kind", "severity", "measured"),
    [
        pytest.param("hanging_transactions", "hanging", "violation", (2, 0), id="open for ever"),
        pytest.param("aborted_reads", "aborted_read", "violation", (0, 2), id="committed with another transaction"),
        pytest.param("hanging_transactions", "hanging", "permitted", (0, 0), id="excused"),
        pytest.param("hanging_transactions", "other", "violation", (0, 0), id="something else"),
    ],
)
def test_a_late_produce_shows_by_a_transaction_without_end_or_by_what_was_aborted_and_read(
    property_name: str, kind: str, severity: str, measured: tuple[int, int]
) -> None:
    found = Finding(property_name=property_name, kind=kind, severity=severity, explanation="", count=2)

    words = "{} partitions whose last stable offset stays behind, {} records of aborted transactions read as committed"
    assert TornTransactions().seen(Path(), judged(found)) == (any(measured), words.format(*measured))


@pytest.mark.parametrize(
    ("property_name", "kind", "severity", "count"),
    [
        pytest.param("hanging_transactions", "hanging", "violation", 2, id="accused"),
        pytest.param("hanging_transactions", "hanging", "permitted", 2, id="permitted by the contract of its release"),
        pytest.param("hanging_transactions", "open", "note", 0, id="open with right"),
        pytest.param("aborted_reads", "aborted_read", "permitted", 0, id="something else"),
    ],
)
def test_a_leader_that_did_not_recover_shows_by_a_transaction_without_end_permitted_or_not(
    property_name: str, kind: str, severity: str, count: int
) -> None:
    found = Finding(property_name=property_name, kind=kind, severity=severity, explanation="", count=2)

    measured = f"{count} partitions whose last stable offset stays behind"
    assert UnendedTransactions().seen(Path(), judged(found)) == (bool(count), measured)


@pytest.mark.parametrize(
    ("committed_ms", "shows", "measured"),
    [
        pytest.param((90, 31_000), True, "nothing committed for 30.0 s of 30.0 s", id="until it is back"),
        pytest.param((90, 20_000, 31_000), False, "nothing committed for 19.9 s of 30.0 s", id="before it is back"),
        pytest.param((90, 4_000), True, "nothing committed for 3.9 s of 30.0 s", id="a leader that was lost again"),
    ],
)
def test_a_quorum_waits_where_nothing_is_committed_while_a_majority_is_up(
    committed_ms: tuple[int, ...], shows: bool, measured: str, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run")
    run.fault("remove-voter", 0, node=103, lasts=60_000)
    run.fault("kill", 100, node=101, lasts=30_000, index=1)
    run.fault("kill", 10_000, node=103, lasts=500, index=2)
    for at in committed_ms:
        run.metadata("NoOpRecord", at)

    assert QuorumWaits().seen(run.finish(), judged()) == (shows, measured)


def test_a_quorum_of_which_nothing_was_seen_before_does_not_wait(tmp_path: Path) -> None:
    """Where nobody looked, nothing is committed."""
    run = Run(tmp_path / "run")
    run.fault("kill", -60_000, node=101, lasts=30_000)

    assert QuorumWaits().seen(run.finish(), judged()) == (False, "nothing was seen to be committed before")


def test_a_quorum_that_lost_nobody_does_not_wait(tmp_path: Path) -> None:
    assert not QuorumWaits().seen(Run(tmp_path / "run").finish(), judged())[0]


@pytest.mark.parametrize(("place", "shows"), [(0, False), (1, True), (2, False)], ids=["ours", "known bug", "release"])
def test_a_known_bug_is_shown_by_any_violation_and_a_release_by_the_fault_alone(place: int, shows: bool) -> None:
    other = Finding(property_name="control_plane", kind="elr_member_forgotten", severity="violation", explanation="")

    assert seen(list(sides(LAST_REPLICA))[place], Path(), judged(other))[0] is shows


@pytest.mark.parametrize(
    ("side", "expected", "attempts", "as_expected", "outcome"),
    [
        pytest.param(
            Side.HAS,
            Verdict.VIOLATION,
            [attempt(Verdict.VIOLATION, True), attempt(Verdict.PASS, False)],
            True,
            "1 of 2 show it (95 %: 1% to 99%)",
            id="shown once",
        ),
        pytest.param(
            Side.HAS, Verdict.VIOLATION, [attempt(Verdict.PASS, False)], False, "0 of 1 show it (95 %: 0% to 98%)",
            id="never shown",
        ),
        pytest.param(
            Side.HAS, Verdict.VIOLATION, [attempt(Verdict.INCONCLUSIVE, True)], None,
            "1 of 1 show it (95 %: 2% to 100%)", id="seen, but not judged",
        ),
        pytest.param(
            Side.HAS, Verdict.VIOLATION, [attempt(Verdict.INCONCLUSIVE, True), attempt(Verdict.PERMITTED, True)], False,
            "2 of 2 show it (95 %: 16% to 100%)", id="judged otherwise",
        ),
        pytest.param(
            Side.HAS_NOT, Verdict.PASS, [attempt(Verdict.PASS, False)], True, "0 of 1 show it (95 %: 0% to 98%)",
            id="rightly not shown",
        ),
        pytest.param(
            Side.HAS_NOT, Verdict.PASS, [attempt(Verdict.PASS, True)], False, "1 of 1 show it (95 %: 2% to 100%)",
            id="shown by who should not have it",
        ),
        pytest.param(
            Side.HAS_NOT, Verdict.PASS, [attempt(Verdict.VIOLATION, False)], False, "0 of 1 show it (95 %: 0% to 98%)",
            id="something else is wrong",
        ),
        pytest.param(
            Side.HAS_NOT, Verdict.PASS, [attempt(Verdict.INCONCLUSIVE, False)], None, "no run was judged",
            id="no verdict",
        ),
        pytest.param(Side.HAS, Verdict.PASS, [], None, "not tried", id="not tried"),
    ],
)  # fmt: skip
def test_a_side_is_as_expected_by_the_runs_that_count(
    side: Side, expected: Verdict, attempts: list[Attempt], as_expected: bool | None, outcome: str
) -> None:
    one = exhibit(side, expected, *attempts)

    assert one.is_as_expected is as_expected
    assert one.outcome == outcome


@pytest.mark.parametrize(
    ("results", "code"),
    [((True, True), 0), ((True, False), 1), ((True, None), 2), ((None, False), 1)],
)
def test_one_side_that_is_not_as_expected_fails_a_visit(results: tuple[bool | None, ...], code: int) -> None:
    attempts = {True: [attempt(Verdict.PASS, False)], False: [attempt(Verdict.PASS, True)], None: []}
    sides_ = [exhibit(Side.HAS_NOT, Verdict.PASS, *attempts[one]) for one in results]
    row = Shown(name="K", fault="f", proposal="p", scenario="s", sign="x", story="y", exhibits=sides_)

    assert Museum(began="", commit="", lock_sha256="", budget_s=1, shown=[row]).exit_code == code


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_side_of_an_entry_can_be_planned_and_has_the_same_steps(entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tribunal.clusters.kinds.apache_kafka.java_release", lambda: 17)
    monkeypatch.setattr("tribunal.clusters.kinds.apache_kafka.way_in", lambda: ())

    plans = [
        made(load(scenario_file(one.scenario), one.overrides), seed=1, cluster=one.cluster, time_ms=None, mutants=one.mutants)
        for one in sides(entry)
    ]  # fmt: skip

    assert [plan.spec.version for plan in plans] == ["", "", *filter(None, (entry.has, entry.has_not))]
    round_ = len(load(scenario_file(entry.scenario), {}).steps)
    assert len({tuple((fault.kind, fault.target) for fault in plan.faults[:round_]) for plan in plans}) == 1


def test_an_entry_is_named_in_any_case_and_a_wrong_name_is_answered_with_the_nearest() -> None:
    names = [one.name for one in ENTRIES]
    last, first = names[-1], names[0]

    assert [one.name for one in chosen(ENTRIES, ["kip-903"])] == ["KIP-903"]
    assert [one.name for one in chosen(ENTRIES, [last, first, last.lower()])] == [first, last]
    assert chosen(ENTRIES, ()) == list(ENTRIES)
    with pytest.raises(Unknown, match=r"unknown entry 'KIP-904'; did you mean KIP-903"):
        chosen(ENTRIES, ["KIP-903", "KIP-904"])


def test_a_visit_tries_every_side_once_before_any_twice_and_says_what_could_not_be_run(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def refusing(plan: Plan, folder: Path) -> tuple[Path, RunVerdict] | None:
        asked.append((plan.spec.version or "".join(plan.spec.mutants) or "ours", plan.seed))
        raise ClusterError("no `mvn` on the path")

    said: list[str] = []
    tour = Tour([LAST_REPLICA], budget_s=60, runs=2, first_seed=5, out=tmp_path, conduct=refusing, notify=said.append)
    found = tour.show()

    assert asked == [(who, seed) for seed in (5, 6) for who in ("ours", "m01_no_elr", "3.9.1", "4.3.1")]
    assert found.exit_code == 2
    assert "no `mvn` on the path" in said[0]
    assert read(tmp_path / "museum.json") == found


def test_a_run_without_a_readable_recording_is_an_error_of_its_own_and_the_visit_goes_on(tmp_path: Path) -> None:
    """What an entry measures may be read off the recording itself: a run that never came up has none."""
    cut_off_voter = next(entry for entry in ENTRIES if isinstance(entry.sign, QuorumEpochs))

    def without_recording(plan: Plan, folder: Path) -> tuple[Path, RunVerdict] | None:
        run_dir = folder / plan.cluster
        run_dir.mkdir(parents=True, exist_ok=True)
        return run_dir, RunVerdict(run_id="r", verdict=Verdict.PASS, claim="", findings=[])

    tour = Tour([cut_off_voter], budget_s=60, runs=1, first_seed=1, out=tmp_path, conduct=without_recording, notify=str)
    found = tour.show()

    attempts = [one for side in found.shown[0].exhibits for one in side.attempts]
    assert [one.verdict for one in attempts] == [Verdict.ERROR] * 4
    assert not any(one.counts for one in attempts)
    assert all("no recording in" in one.reasons[-1] for one in attempts)


def test_a_visit_without_time_tries_nothing_and_knows_nothing(tmp_path: Path) -> None:
    def refusing(plan: Plan, folder: Path) -> tuple[Path, RunVerdict] | None:
        raise AssertionError("there was no time for it")

    tour = Tour([LAST_REPLICA], budget_s=0, runs=1, first_seed=1, out=tmp_path, conduct=refusing, notify=lambda _: None)

    assert tour.show().exit_code == 2


def conducted(plan: Plan, folder: Path) -> tuple[Path, RunVerdict] | None:
    judged_run = conduct(plan, folder, "inline", quiet=True)
    return None if judged_run is None else (judged_run.run_dir, judged_run.verdict)


@pytest.mark.nightly
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # of a simulation stopped at an invariant
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_our_own_log_does_not_show_a_fault_and_its_known_bug_does(entry: Entry, tmp_path: Path) -> None:
    said: list[str] = []
    tour = Tour([entry], budget_s=600, runs=3, first_seed=1, out=tmp_path, conduct=conducted, notify=said.append)
    tour.sides = [side for side in tour.sides if side.exhibit.side in (Side.OURS, Side.MUTANT)]

    exhibits = {one.side: one for one in tour.show().shown[0].exhibits}

    assert exhibits[Side.OURS].is_as_expected, said
    assert exhibits[Side.MUTANT].is_as_expected, said
    assert exhibits[Side.MUTANT].evidence is not None


@pytest.mark.nightly
@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param("raised-min-isr", "hold-messages", id="4.3.1"),
        pytest.param("KIP-380", "missed-bounce", id="2.1.1"),
        pytest.param("KAFKA-12671", "hold-messages", id="3.5.2"),
        pytest.param("KIP-704", "isolate", id="3.1.2"),
    ],
)
def test_a_released_kafka_shows_the_fault_that_it_has(tmp_path: Path, name: str, fault: str) -> None:
    skip_unless_it_can("apache-kafka", [fault])
    said: list[str] = []
    tour = Tour(
        chosen(ENTRIES, [name]), budget_s=1500, runs=1, first_seed=1, out=tmp_path, conduct=conducted,
        notify=said.append,
    )  # fmt: skip
    tour.sides = [side for side in tour.sides if side.exhibit.side is Side.HAS]

    exhibits = {one.side: one for one in tour.show().shown[0].exhibits}

    assert exhibits[Side.HAS].is_as_expected, said


def test_a_release_that_speaks_as_an_older_one_stands_beside_itself() -> None:
    (entry,) = chosen(ENTRIES, ["KIP-101"])

    shown = {side.exhibit.side: side for side in sides(entry)}

    has, has_not = shown[Side.HAS], shown[Side.HAS_NOT]
    assert (has.exhibit.system, has_not.exhibit.system) == ("Apache Kafka 2.1.1 as 0.11.0-IV1", "Apache Kafka 2.2.2")
    assert set(has.overrides) - set(has_not.overrides) == {"cluster.settings.inter.broker.protocol.version"}
    assert "--set cluster.settings.inter.broker.protocol.version=0.11.0-IV1" in has.exhibit.again
    assert (
        load(scenario_file(has.scenario), has.overrides).spec.settings["inter.broker.protocol.version"] == "0.11.0-IV1"
    )


def test_the_page_and_the_summary_have_every_side(tmp_path: Path) -> None:
    row = Shown(
        name="KIP-1", fault="a <fault>", proposal="KIP-1", scenario="museum/x", sign=QuorumEpochs(most=3).words, story="It <happens>.",
        exhibits=[exhibit(Side.HAS, Verdict.VIOLATION, attempt(Verdict.VIOLATION, True)), exhibit(Side.OURS, Verdict.PASS)],
    )  # fmt: skip
    museum = Museum(began="now", commit="c", lock_sha256="l", budget_s=60, shown=[row])

    html = page.write(museum, tmp_path).read_text()

    assert "a &lt;fault&gt;" in html
    assert "no release is known" in html
    assert "1 of 1 show it" in html
    assert "not known" in html
    assert summary(museum).splitlines()[0] == "KIP-1  a <fault>: unknown"
