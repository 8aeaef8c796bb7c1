"""What findings are distinguished by: the value, its text form, and what was written before there were kinds."""

import msgspec
import pytest

from replog.log.batch import _varint_at as varint_in
from replog.types import TopicPartition
from tribunal.clusters.simulated.violation import Violated
from tribunal.results import words
from tribunal.results.signature import Signature, of_exception, of_violation, read, renewed, without_numbers
from tribunal.results.verdict import Finding
from tribunal.results.violation import (
    Batch,
    Differs,
    Expected,
    Grows,
    Invariant,
    LogEndsEarly,
    NoProgress,
    Role,
    Violation,
    WentBack,
)

P = TopicPartition("produce-consume", 3)
ENDS_EARLY = LogEndsEarly(role=Role.IN_ISR, log_end_offset=10, committed_end=12)


@pytest.mark.parametrize(
    ("old", "now"),
    [
        pytest.param("lost_writes/lost", "lost_writes/lost", id="a checker's"),
        pytest.param("unseen/stopped", "skipped_records/stopped", id="of a property that had another name"),
        pytest.param("I4: produce-consume-#: committed", "invariant/differs/I4", id="another batch"),
        pytest.param(
            "I4: produce-consume-#: leader # of epoch # ends at #; # was exposed as committed",
            "invariant/log_of_leader_ends_early/I4",
            id="a leader's log ends early",
        ),
        pytest.param(
            "I4: t-#: # exposes #, its log ends at #", "invariant/exposed_beyond_log/I4", id="exposed beyond the log"
        ),
        pytest.param(
            "I9: produce-consume-#: # is in the ISR with log end #, committed is #",
            "invariant/log_of_isr_ends_early/I9",
            id="a member's log ends early",
        ),
        pytest.param("I14: __cluster_metadata-#", "invariant/two_batches/I14", id="words that were cut off"),
        pytest.param(
            "I17: produce-consume-# on #: producer # epoch # has sequence # at #, expected # of epoch #",
            "invariant/out_of_sequence/I17",
            id="a sequence",
        ),
        pytest.param(
            "liveness: no progress with a quorum alone within # ms",
            "invariant/no_core_progress/liveness",
            id="no progress",
        ),
        pytest.param(
            "liveness: no every ISR full after everything was mended within # ms",
            "invariant/no_full_isr/liveness",
            id="no full ISR",
        ),
        pytest.param(
            "ERROR: the run ended early: node # serves: not within # ms", "run/Unsettled", id="did not come about"
        ),
        pytest.param(
            "ERROR: the run ended early: broker-# ended by itself: None", "run/ClusterError", id="a node ended"
        ),
        pytest.param("ERROR: the run ended early: KeyError: #", "run/KeyError", id="a bug in a run"),
        pytest.param("ERROR: checker lost_writes failed: IndexError: #", "lost_writes/failed", id="a checker failed"),
        pytest.param(
            "ERROR: checker unseen failed: IndexError: #", "skipped_records/failed", id="one of another name failed"
        ),
        pytest.param("ERROR: table sends: row #: value # was sent twice", "recording/damaged", id="a bad recording"),
        pytest.param("the harness: AssertionError()", "harness/AssertionError", id="a bug of ours"),
        pytest.param("the harness: process died", "harness/process_died", id="a child died"),
    ],
)
def test_what_was_found_before_is_the_same_finding_now(old, now):
    assert str(read(old)) == now
    assert read(now) == read(old)
    assert renewed(now) == now


@pytest.mark.parametrize(
    "text", ["", "lost", "a/b/c/d", "lost_writes/", "I4: something nobody ever said", "I" + "99: lost"]
)
def test_what_was_never_a_signature_is_refused_and_shown_as_it_is(text):
    with pytest.raises(ValueError, match=r"signature"):
        read(text)

    assert renewed(text) == text


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        pytest.param(ENDS_EARLY, "log_of_isr_ends_early", id="by the replica's role"),
        pytest.param(WentBack(what=Grows.BROKER_EPOCH, before=3, now=2), "broker_epoch_went_back", id="by what grows"),
        pytest.param(NoProgress(expected=Expected.FULL_ISR, timeout_ms=5), "no_full_isr", id="by what was asked for"),
        pytest.param(
            Differs(committed=Batch(base_offset=1, last_offset=2, epoch=3, crc=4), found=None),
            "differs",
            id="by its tag",
        ),
    ],
)
def test_a_violation_is_distinguished_by_its_facts(facts, kind):
    violation = Violation(invariant=Invariant.I4, facts=facts, topic="t", partition=0, node=1, epoch=2)
    again = msgspec.json.decode(msgspec.json.encode(violation), type=Violation)

    assert again == violation
    assert of_violation(again) == Signature("invariant", kind, "I4")


def test_other_words_and_other_numbers_are_the_same_finding(monkeypatch):
    one, other = (
        Violated(Invariant.I9, LogEndsEarly(role=Role.IN_ISR, log_end_offset=end, committed_end=99), partition=P, node=end)
        for end in (1, 2)
    )  # fmt: skip
    before = of_violation(one.violation)
    monkeypatch.setattr(words, "ROLES", dict.fromkeys(Role, "is something else"))

    assert of_violation(one.violation) == of_violation(other.violation) == before


def test_the_same_words_of_other_facts_are_another_finding():
    one = Violation(invariant=Invariant.I9, facts=ENDS_EARLY)
    other = Violation(invariant=Invariant.I8, facts=msgspec.structs.replace(ENDS_EARLY, role=Role.IN_ELR))

    assert of_violation(one) != of_violation(other)


def test_a_verdict_of_before_has_only_words_and_keeps_its_identity():
    finding = Finding(
        property_name="invariant", kind="I9", severity="violation",
        explanation="t-0: 3 is in the ISR with log end 4, committed is 7",
    )  # fmt: skip
    unknown = msgspec.structs.replace(finding, kind="I4", explanation="words of somebody else's")

    assert finding.signature == Signature("invariant", "log_of_isr_ends_early", "I9")
    assert unknown.signature == Signature("invariant", "unknown", "I4")


def test_a_verdict_of_before_keeps_the_identity_of_what_a_renamed_property_found():
    finding = Finding(property_name="unseen", kind="stopped", severity="violation", explanation="words")

    assert finding.signature == read("unseen/stopped") == Signature("skipped_records", "stopped")


def test_reasons_alike_are_counted_together():
    assert without_numbers("fault 3 `kill broker 2` had no effect\nmore") == "fault # `kill broker #` had no effect"


def test_bugs_of_ours_that_raise_the_same_are_distinguished_by_where_they_are():
    found = []
    for fails in (lambda: read(""), lambda: read("a/b/c/d"), lambda: varint_in(b"\xff" * 11, 0), lambda: int("x")):
        with pytest.raises(ValueError, match=r".") as raised:
            fails()
        found.append(of_exception(raised.value))

    assert [str(one) for one in found] == [
        "harness/ValueError/tribunal.results.signature.read",
        "harness/ValueError/tribunal.results.signature.read",
        "harness/ValueError/replog.log.batch._varint_at",
        "harness/ValueError",
    ]
    assert [read(str(one)) for one in found] == found
