"""A partition whose leader and ISR changed very often is judged in a time that grows with its changes, not with their square."""

import time

import pyarrow as pa

from tribunal.checkers.guarantees import Settings
from tribunal.checkers.judge.presence import leaderless
from tribunal.checkers.judge.timeline import Entry, Record, Timeline
from tribunal.results.metadata import State
from tribunal.results.recording import TABLES
from tribunal.results.rows import Metadata, table_of

CHANGES = 20_000
RECORDS = 20
STEP_NS = 100_000_000
MOST_S = 20  # of CPU: one by one all changes were looked at for each deposed leader of each record, which took minutes


def test_a_record_of_unknown_epoch_is_judged_fast_behind_many_elections() -> None:
    settings = Settings(
        min_isr=2, replication_factor=3, elr=True, unclean=True, recovery="off", high_watermark_needs_min_isr=True
    )
    entries = [
        Entry(
            at_ns=place * STEP_NS, facts=(), settings=settings,
            state=State(
                replicas=(1, 2, 3), isr=(1, 2, 3) if place % 2 else (1, 2), leader=1 + place // 10 % 2, leader_epoch=place // 10,
            ),
        )
        for place in range(CHANGES)
    ]  # fmt: skip
    timeline = Timeline(entries, settings)
    sent_ns = (CHANGES - 100) * STEP_NS
    began = time.process_time()

    judged = [
        timeline.judge(
            Record(log_offset=offset, acks=-1, invoke_ns=sent_ns + offset, complete_ns=sent_ns + offset + 1_000_000)
        )
        for offset in range(RECORDS)
    ]

    assert time.process_time() - began < MOST_S
    assert all(one.promise.must_survive for one in judged)


def test_very_many_short_times_without_a_leader_are_looked_at_fast() -> None:
    """Without ELR the whole history before each of them was gone through for whose disk had lost all, and each time all that had been observed."""
    settings = Settings(
        min_isr=2, replication_factor=3, elr=False, unclean=False, recovery="off", high_watermark_needs_min_isr=True
    )
    entries = [
        Entry(
            at_ns=place * STEP_NS, facts=(), settings=settings, changed=True,
            state=State(replicas=(1, 2, 3), isr=(1, 2), leader=-1 if place % 2 else 1, leader_epoch=place),
        )
        for place in range(CHANGES)
    ]  # fmt: skip
    observed = [
        Metadata(metadata_offset=place, quorum_epoch=1, record_type="NoOpRecord", body="{}", at_ns=place * STEP_NS // 2)
        for place in range(2 * CHANGES)
    ]
    tables: dict[str, pa.Table] = {name: TABLES[name].arrow.empty_table() for name in TABLES}
    tables["metadata"] = table_of(Metadata, observed)
    began = time.process_time()

    assert leaderless(entries, {"mode": "kraft"}, tables.__getitem__) is None

    assert time.process_time() - began < MOST_S / 4
