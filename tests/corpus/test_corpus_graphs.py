"""Our graph checkers against the verdicts of Elle and jepsen.tests.kafka.

The rules of comparison are written in this folder's README. In short: of cycles the strongest are compared, because which of the
weaker ones is listed depends on the order of the search; what is an artefact of the peer's search is not compared; every history
that is an exception stands in a table below, with its reason.
"""

import gc
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from tribunal.checkers.graphs import list_append, rw_register, send_poll
from tribunal.checkers.graphs.models import implied_by, ruled_out
from tribunal.checkers.graphs.operations import Operation, paired

sys.path.insert(0, str(Path(__file__).parent))
import corpus

ARTEFACTS = {"empty-transaction-graph", "cycle-search-timeout"}
OPTIONS = {
    "wfr-keys?": "writes_follow_reads",
    "sequential-keys?": "sequential_keys",
    "linearizable-keys?": "linearizable_keys",
}
# Cycles that the peer did not list although they are there.
INCOMPATIBLE = "its reads contradict each other; the peer's search ended with a weaker cycle of the same component"
TIMED_OUT = "the peer's search timed out"
STRONGER = {
    "sim-prefix-c03-n1000-038": TIMED_OUT,
    "sim-prefix-c10-n1000-047": TIMED_OUT,
    "sim-prefix-c10-n100-043": INCOMPATIBLE + " (it says that one of our class exists)",
    "sim-prefix-c10-n30-040": INCOMPATIBLE + " (it says that one of our class exists)",
    "elle-histories-huge-scc-edn": TIMED_OUT,
    "k1000-020-hole": "the peer says that a cycle of our class exists and shows a weaker one",
}
# Models that the peer rules out by an anomaly that it does not list for the model asked for.
UNLISTED = {
    ("la-internal-1", "read-committed"),
    ("la-internal-1", "read-uncommitted"),
    ("la-internal-1", "repeatable-read"),
    ("la-internal-3", "repeatable-read"),
    ("rw-g1a-1", "read-uncommitted"),
}
# A register's value that nobody wrote: the peer has no name for it.
PHANTOM_UNNAMED = {"rw-phantom", "elle-rw-register-edn"}
# A known defect of jepsen.tests.kafka: `unseen` of a key without an ok send that was polled once.
UNSEEN_DEFECT = {
    "g1a-1",
    "g1a-2-txn",
    "g1a-n1-info",
    "ins-3-fail",
    "inc-7-info-proved",
    "lost-9-info-same-key-proof",
}


def is_cycle(anomaly: str) -> bool:
    return anomaly.startswith("G") and anomaly not in {"G1a", "G1b"}


def comparable(anomalies: set[str]) -> set[str]:
    kept = {a for a in anomalies if a not in ARTEFACTS and not a.endswith("cycle-exists")}
    return {a for a in kept if not is_cycle(a) or not any(implied_by(a, {b}) for b in kept - {a})}


def agree(name: str, ours: set[str], theirs: set[str]) -> None:
    if name not in STRONGER:
        assert comparable(ours) == comparable(theirs)
        return
    assert {a for a in ours if not is_cycle(a)} == {a for a in comparable(theirs) if not is_cycle(a)}
    assert any(is_cycle(a) for a in ours) == any(is_cycle(a) for a in theirs)


def elle_verdicts():
    models = {"list-append", "rw-register"}
    others = (case for case in corpus.elle_cli_cases() if case["model"] in models)
    return [*corpus.parameters(corpus.elle_cases(), "elle"), *corpus.parameters(others, "elle-cli")]


@pytest.mark.parametrize("case", elle_verdicts())
def test_corpus_transactions_agree_with_elle(case):
    operations = paired(case["history"])
    for model, verdict in case["verdict"].items():
        if "exception" in verdict:
            continue

        if case["model"] == "list-append":
            found = list_append.check(operations, model)
        else:
            options = {OPTIONS[name]: value for name, value in case.get("options", {}).items() if name in OPTIONS}
            found = rw_register.check(operations, model, **options)

        ours = found.anomalies
        if case["id"] in PHANTOM_UNNAMED:
            assert "phantom" in ours
            ours = ours - {"phantom"}
        agree(case["id"], ours, set(verdict["anomaly_types"]))
        weakest, stronger = ruled_out(ours)
        if case["id"] not in STRONGER and (case["id"], model) not in UNLISTED:
            assert (weakest, stronger) == (verdict["not"], verdict["also_not"])


def kafka_verdicts():
    return corpus.parameters(corpus.kafka_cases(), "kafka")


class Loaded:
    """The operations of the case at hand: reading a large history takes longer than checking it."""

    name = ""
    operations: ClassVar[list[Operation]] = []

    @classmethod
    def of(cls, case):
        if cls.name != case["id"]:
            # Millions of small lists that all stay: looking for garbage among them takes longer than to read them.
            gc.disable()
            cls.name, cls.operations = case["id"], paired(case["load"]())
            gc.enable()
        return cls.operations


# The decorator above varies fastest: both ways of one case follow each other.
@pytest.mark.parametrize("ww", [pytest.param(True, id="ww"), pytest.param(False, id="no-ww")])
@pytest.mark.parametrize("case", kafka_verdicts())
def test_corpus_logs_agree_with_jepsen(case, ww):
    verdict = case["verdict"]["ww_deps" if ww else "no_ww_deps"]

    found = send_poll.check(Loaded.of(case), ww=ww)

    if "exception" in verdict:
        # The peer throws on a value that nobody sent and on reads without offsets; we say what is wrong.
        assert found.anomalies or case["id"] == "x-4-only-unknown-offset-reads"
        return
    ours, theirs = found.anomalies, set(verdict["error_types"])
    if "inconsistent-offsets" in theirs:
        ours, theirs = ({a for a in side if not depends_on_choice(a)} for side in (ours, theirs))
    if case["id"] in UNSEEN_DEFECT:
        ours, theirs = ours - {"unseen"}, theirs - {"unseen"}
    agree(case["id"], ours, theirs)
    if theirs - ARTEFACTS:
        for subscribe in (False, True):
            valid = not send_poll.invalid(found, ww=ww, subscribe=subscribe)
            unseen_only = case["id"] in UNSEEN_DEFECT
            assert valid == verdict["valid"]["subscribe" if subscribe else "assign"] or unseen_only


def depends_on_choice(anomaly: str) -> bool:
    """Where an offset holds two values, upstream picks one by hash order (this folder's README)."""
    return "poll-skip" in anomaly or "nonmonotonic" in anomaly or anomaly.startswith(("G0", "G1c"))
