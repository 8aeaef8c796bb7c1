"""Kernels against brute force: the slow and obvious answer, on any small history."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tribunal.checkers.api import Context, PartitionRows
from tribunal.checkers.properties import log_order, lost_writes, watermarks
from tribunal.results.recording import TABLES
from tribunal.results.values import value_of

CONTEXT = Context(complete=True)
Row = dict[str, Any]

sends = st.lists(
    st.fixed_dictionaries(
        {
            "acks": st.sampled_from([-1, 0, 1]),
            "outcome": st.sampled_from(["ok", "info", "fail"]),
            "invoke_ns": st.integers(0, 20),
            "took_ns": st.integers(0, 8),
        }
    ),
    max_size=8,
)
placed = st.lists(st.integers(0, 9), unique=True, max_size=8)
observed = st.lists(
    st.fixed_dictionaries(
        {
            "observer": st.sampled_from(["a", "b"]),
            "leader_epoch": st.sampled_from([0, 1, None]),
            "high_watermark": st.one_of(st.none(), st.integers(0, 4)),
            "at_ns": st.integers(0, 5),
        }
    ),
    max_size=10,
)


def rows_of(**tables: list[Row]) -> PartitionRows:
    return PartitionRows({name: pa.Table.from_pylist(rows, schema=TABLES[name].arrow) for name, rows in tables.items()})


def sent(chosen: list[Row]) -> list[Row]:
    rows = []
    for sequence, row in enumerate(chosen):
        outcome = "sent" if row["acks"] == 0 else row["outcome"]
        rows.append(
            {
                "process": 1, "worker_class": "plain", "topic": "t", "partition": 0, "value": value_of(1, sequence),
                "acks": row["acks"], "outcome": outcome, "invoke_ns": row["invoke_ns"],
                "complete_ns": row["invoke_ns"] + row["took_ns"],
            }
        )  # fmt: skip
    return rows


def final_read(values: list[int]) -> dict[str, list[Row]]:
    poll = {
        "process": 9,
        "topic": "t",
        "partition": 0,
        "phase": "final",
        "outcome": "ok",
        "high_watermark": len(values),
    }
    reads = [
        {
            "process": 9,
            "poll_index": 0,
            "topic": "t",
            "partition": 0,
            "log_offset": offset,
            "value": value,
            "phase": "final",
        }
        for offset, value in enumerate(values)
    ]
    polls = [poll | {"position": 0, "record_count": len(values)}, poll | {"position": len(values), "record_count": 0}]
    return {"reads": reads, "polls": polls}


def kinds(table: pa.Table, kind: str, column: str) -> list[Any]:
    return sorted(row[column] for row in table.to_pylist() if row["kind"] == kind)


@settings(max_examples=60, deadline=None)
@given(sends, placed)
def test_lost_is_acknowledged_and_absent(chosen: list[Row], kept: list[int]) -> None:
    rows = sent(chosen)
    log = [value_of(1, sequence) for sequence in kept]

    found = lost_writes.kernel(rows_of(sends=rows, **final_read(log)), CONTEXT).anomalies

    lost = [row["value"] for row in rows if row["outcome"] == "ok" and row["acks"] != 0 and row["value"] not in log]
    phantom = [value for value in log if value not in [row["value"] for row in rows]]
    refused = [row["value"] for row in rows if row["outcome"] == "fail" and row["value"] in log]
    assert kinds(found, "lost", "value") == sorted(lost)
    assert kinds(found, "phantom", "value") == sorted(phantom)
    assert kinds(found, "refused_yet_written", "value") == sorted(refused)


@settings(max_examples=60, deadline=None)
@given(sends, placed)
def test_real_time_order_is_every_pair_in_the_wrong_order(chosen: list[Row], kept: list[int]) -> None:
    rows = sent(chosen)
    log = [value_of(1, sequence) for sequence in kept if sequence < len(rows)]

    found = log_order.kernel(rows_of(sends=rows, **final_read(log)), CONTEXT).anomalies

    by_value = {row["value"]: row for row in rows}
    culprits = [
        before
        for place, before in enumerate(log)
        if any(
            by_value[behind]["outcome"] == "ok" and by_value[behind]["complete_ns"] < by_value[before]["invoke_ns"]
            for behind in log[place + 1 :]
        )
    ]
    assert kinds(found, "real_time_order", "value") == sorted(culprits)
    overtaken = [value for place, value in enumerate(log) if any(value < before for before in log[:place])]
    assert kinds(found, "overtaken", "value") == sorted(overtaken)


@settings(max_examples=60, deadline=None)
@given(observed)
def test_a_step_back_is_between_neighbours_of_one_observer_and_epoch(chosen: list[Row]) -> None:
    rows = [row | {"source": "fetch", "topic": "t", "partition": 0} for row in chosen]

    found = watermarks.kernel(rows_of(watermarks=rows), CONTEXT).anomalies

    back = []
    for observer in "ab":
        for epoch in (0, 1):
            own = [row for row in rows if row["observer"] == observer and row["leader_epoch"] == epoch]
            seen = sorted((row["at_ns"], row["high_watermark"]) for row in own if row["high_watermark"] is not None)
            back += [after[1] for before, after in pairwise(seen) if after[1] < before[1]]
    assert kinds(found, "high_watermark_back", "log_offset") == sorted(back)
