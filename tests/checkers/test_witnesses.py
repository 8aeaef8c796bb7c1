"""Which anomalies are shown, and in which order, does not depend on the order in which an engine found them."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from tribunal.checkers.api import ANOMALY, Found
from tribunal.checkers.judge.judge import judged_of_run
from tribunal.checkers.judge.tables import FoundIn, Tables
from tribunal.checkers.judge.witnesses import WITNESSES
from tribunal.checkers.properties import control_plane

KIND = next(iter(control_plane.KINDS))


def judged(anomalies: list[dict[str, object]]) -> list[FoundIn]:
    tables = Tables()
    tables.add(judged_of_run("control_plane", Path(), Found(pa.Table.from_pylist(anomalies, schema=ANOMALY))))
    tables.sort()
    return tables.findings


@pytest.mark.parametrize("count", [2, WITNESSES + 5])
def test_anomalies_that_only_their_details_tell_apart_are_shown_in_one_order(count: int) -> None:
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
