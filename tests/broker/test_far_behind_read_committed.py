"""A read_committed reader that is far behind: each answer names the aborted transactions of its records, not all that follow."""

from pathlib import Path

from replog.broker.partition import READ_COMMITTED, Partition
from replog.errors import Error
from replog.log.batch import TRANSACTIONAL, batches, end_transaction_marker
from replog.log.log import Appended
from replog.log.validation import Origin
from tests.cases.replicas import NOW_MS, PRODUCER_ID, WALL_MS, a_log, a_replica, apply_metadata, record_batch, state

TRANSACTIONS = 2_000
MAX_BYTES = 10_000


def a_leader_with_aborted_transactions(folder: Path) -> Partition:
    replica = a_replica(a_log(folder, end=0, epochs=[]))
    apply_metadata(replica, state(leader=1, isr=[1]))
    for sequence in range(TRANSACTIONS):
        batch = record_batch(0, 0, producer=(PRODUCER_ID, 0, sequence), attributes=TRANSACTIONAL)
        marker = end_transaction_marker(
            producer_id=PRODUCER_ID, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp_ms=WALL_MS
        )
        for content, origin in ((batch, Origin.CLIENT), (marker, Origin.COORDINATOR)):
            appended, _ = replica.append(content, acks=1, now_ms=NOW_MS, wall_ms=WALL_MS, origin=origin)
            assert isinstance(appended, Appended)
    return replica


def test_a_reader_is_sent_each_aborted_transaction_and_few_twice(tmp_path: Path) -> None:
    replica = a_leader_with_aborted_transactions(tmp_path)

    offset, named, answers = 0, 0, 0
    while offset < replica.high_watermark:
        answer = replica.fetch_as_consumer(
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            isolation=READ_COMMITTED,
            leader_only=True,
            max_bytes=MAX_BYTES,
            at_least_one=True,
        )
        assert answer.error is Error.NONE
        assert answer.aborted is not None
        read = list(batches(answer.records))
        began = [header.base_offset for header in read if not header.is_control]
        assert set(began) <= {aborted.first_offset for aborted in answer.aborted}
        offset, named, answers = read[-1].next_offset, named + len(answer.aborted), answers + 1

    assert answers > 20
    assert named < 2 * TRANSACTIONS
