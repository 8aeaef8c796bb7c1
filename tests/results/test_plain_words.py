"""A verdict in plain words: first whether a promise was broken, then how many are gone of how many, and why they may be."""

import pytest

from tribunal.results.plain_words import sentences
from tribunal.results.report.figures_of import figure_tables
from tribunal.results.report.groups import grouped
from tribunal.results.verdict import Detail, Finding, GuiltyElection, RunVerdict, Verdict

PROMISE = Detail(promise="acks=1 promises the leader's log only")


def lost(severity: str, count: int, acks: int, **more: object) -> Finding:
    fields = {"property_name": "lost_writes", "kind": "lost", "explanation": "gone", "topic": "t", "partition": 0}
    return Finding(**{**fields, **more}, severity=severity, count=count, acks=acks)  # type: ignore[arg-type]


def said(verdict: Verdict, *findings: Finding, judged: dict[str, int] | None = None) -> list[str]:
    return sentences(RunVerdict(run_id="r", verdict=verdict, claim="", findings=list(findings), judged=judged or {}))


JUDGED = {"acknowledged, acks=1": 40, "acknowledged, acks=all": 60, "records read": 7}


def test_a_permitted_loss_is_no_broken_promise() -> None:
    permitted = lost("permitted", 9, 1, rule="R5", detail=PROMISE)

    assert said(Verdict.PERMITTED, permitted, judged=JUDGED) == [
        "Nothing that was promised was lost.",
        "9 of 100 acknowledged records are gone, and each may be: 9 with acks=1 by R5 (acks=1 promises the leader's log only).",
    ]


def test_what_was_promised_and_is_lost_stands_before_what_may_be() -> None:
    permitted = lost("permitted", 9, 1, rule="R5", detail=PROMISE)

    first, second = said(Verdict.VIOLATION, permitted, lost("violation", 3, -1), judged=JUDGED)

    assert first == "3 records that had to survive are lost: acknowledged with acks=all, and no rule permits it."
    assert second.startswith("9 more of 100 acknowledged records are gone, and each may be:")


def test_what_was_only_read_is_none_of_what_was_acknowledged() -> None:
    """A record is `lost_after_read` where nobody acknowledged it; its count stood in "17 of 100 acknowledged records"."""
    read = lost("permitted", 17, 0, kind="lost_after_read", rule="R1")

    assert said(Verdict.PERMITTED, lost("permitted", 9, 1, rule="R5"), read, judged=JUDGED)[1:] == [
        "9 of 100 acknowledged records are gone, and each may be: 9 with acks=1 by R5.",
        "17 records that somebody had read and nobody had acknowledged are gone, and each may be: 17 with acks=0 by R1.",
    ]


def test_a_record_that_was_only_read_and_had_to_survive_is_not_called_acknowledged() -> None:
    read = lost("violation", 1, 0, kind="lost_after_read")

    assert said(Verdict.VIOLATION, read, judged=JUDGED) == [
        "1 record that somebody had read and nobody had acknowledged is lost, and no rule permits it."
    ]


def test_a_rule_is_explained_once_however_many_acks_levels_it_permits() -> None:
    by_level = [lost("permitted", count, acks, rule="R4", detail=PROMISE) for count, acks in ((5, -1), (3, 1), (2, 0))]

    said_of_rule = said(Verdict.PERMITTED, *by_level, judged=JUDGED)[1]

    assert said_of_rule.endswith(
        "5 with acks=all, 3 with acks=1 and 2 with acks=0 by R4 (acks=1 promises the leader's log only)."
    )


@pytest.mark.parametrize(
    ("verdict", "first"),
    [
        pytest.param(Verdict.PASS, "Nothing was lost and nothing went back.", id="pass"),
        pytest.param(Verdict.INCONCLUSIVE, "This run proves nothing", id="inconclusive"),
        pytest.param(Verdict.ERROR, "There is no verdict", id="error"),
    ],
)
def test_every_verdict_has_a_sentence(verdict: Verdict, first: str) -> None:
    assert said(verdict)[0].startswith(first)


def at(partition: int, leader_epoch: int, how: str = "clean") -> Finding:
    election = GuiltyElection(leader=1, how=how, leader_epoch=leader_epoch, topic="t", partition=partition)
    return lost("violation", 2, -1, partition=partition, detail=Detail(election=election))


def test_one_bug_in_many_partitions_is_one_cause() -> None:
    (group,) = grouped([at(0, 1), at(1, 1), at(1, 2)])

    assert (group.count, group.where) == (6, [("t-1", 4), ("t-0", 2)])
    assert group.elections == [f"clean election of broker 1, leader epoch {epoch}" for epoch in (1, 2)]


def test_elections_of_another_kind_are_another_cause() -> None:
    assert len(grouped([at(0, 1), at(0, 1, how="unclean")])) == 2


def test_figures_are_tables_and_no_zeros() -> None:
    figures = {"mine": {"slow": [{"acks": -1, "longest_ns": 2_500_000_000}], "none": [], "zero": 0, "share": 0.25}}

    by_title = {table.title: table for table in figure_tables(figures)}

    assert by_title["mine: slow"].columns == ["acks", "longest"]
    assert by_title["mine: slow"].rows == [["all", "2.500 s"]]
    assert by_title["mine"].rows == [["share", "0.25"]]
    assert len(by_title) == 2


def test_who_kept_every_promise_of_objects_is_said_how_many_calls_were_judged() -> None:
    """A described system has no records: "nothing was lost and nothing went back" is a log's sentence."""
    judged = {"calls on registers": 995, "registers": 5, "transactions on lists": 0, "registrations": 0}

    assert said(Verdict.PASS, judged=judged) == ["No promise was broken.", "995 calls on registers were judged."]
    assert said(Verdict.PASS, judged=JUDGED) == [
        "Nothing was lost and nothing went back.",
        "All 100 acknowledged records were found again at the end.",
    ]
