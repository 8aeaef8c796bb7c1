"""Which anomalies are shown, and in which order, does not depend on the order in which an engine found them."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.api import ANOMALY, Excuse, Found, Kind, Meaning, PartitionRows, Property, anomalies
from tribunal.checkers.guarantees import Promise
from tribunal.checkers.judge.judge import judged_of_run
from tribunal.checkers.judge.partition import PartitionJudge
from tribunal.checkers.judge.tables import FoundIn, Place, Tables
from tribunal.checkers.judge.timeline import Judgement
from tribunal.checkers.judge.witnesses import WITNESSES, answers
from tribunal.checkers.properties import control_plane
from tribunal.results.store import Recording
from tribunal.results.verdict import Detail

KIND = next(iter(control_plane.KINDS))


def judged(rows: list[dict[str, object]]) -> list[FoundIn]:
    tables = Tables()
    tables.add(judged_of_run("control_plane", Path(), Found(pa.Table.from_pylist(rows, schema=ANOMALY))))
    tables.sort()
    return tables.findings


@pytest.mark.parametrize("count", [2, WITNESSES + 5])
def test_anomalies_that_only_their_details_distinguish_are_shown_in_one_order(count: int) -> None:
    anomalies = [
        dict.fromkeys(ANOMALY.names) | {"kind": KIND, "at_ns": 5, "node": 1, "detail": f"broker {number:02}"}
        for number in range(count)
    ]
    expected = judged(anomalies)

    for seed in range(5):
        assert judged(Random(seed).sample(anomalies, count)) == expected

    assert len(expected) == min(count, WITNESSES)
    assert sum(row.finding.count for row in expected) == count
    assert "broker 00" in str(expected[0].finding.detail.detail)


def test_what_is_known_of_a_row_stays_with_it_where_compaction_takes_others(tmp_path):
    run = Run(tmp_path / "run", **{"cleanup.policy": "compact"})
    judge = PartitionJudge(Recording.open(run.finish()), "t-0", PartitionRows({}))
    kinds = {"gap": Kind(Meaning.NOTE, "words", (Excuse.BY_ORDER,)), "other": Kind(Meaning.NOTE, "words")}
    rows = pa.concat_tables([anomalies("gap", log_offset=[1]), anomalies("other", log_offset=[2])])

    answers = judge.explained(
        Property(tables=(), kinds=kinds, name="mine"), Found(rows, details={1: Detail(operations=(5,))})
    )

    (finding,) = [row.finding for row in answers if isinstance(row, FoundIn)]
    assert (finding.kind, finding.log_offset, finding.detail.operations) == ("other", 2, (5,))


@pytest.mark.parametrize(("places", "expected"), [
    pytest.param([("t", 0), ("t", 1)], [("t", 0), ("t", 1)], id="of two partitions"),
    pytest.param([("t", 0), ("u", 0)], [("t", 0), ("u", 0)], id="of two topics"),
    pytest.param([("t", 0), ("t", 0)], [("t", 0)], id="twice of one"),
    pytest.param([(None, None)], [("own", 3)], id="of no other place"),
])  # fmt: skip
def test_what_is_wrong_with_elections_is_said_of_the_partition_that_they_were_in(
    places: list[tuple[str | None, int | None]], expected: list[tuple[str, int]]
) -> None:
    promise = Promise(None, ("elr_lost_member",))
    judgements = {
        row: Judgement(promise, None, 4, 5 + row, (1,), topic=topic, partition=partition)
        for row, (topic, partition) in enumerate(places)
    }
    found = Found(anomalies("mine", log_offset=range(len(places))))
    chosen = Property(tables=(), kinds={"mine": Kind(Meaning.PROMISED, "words")}, name="mine")

    findings = [
        row.finding for row in answers(chosen, found, judgements, Place("run", "own", 3)) if isinstance(row, FoundIn)
    ]

    wrong = [one for one in findings if one.kind == "elr_lost_member"]
    assert [(one.topic, one.partition) for one in wrong] == expected
