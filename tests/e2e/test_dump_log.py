"""kafka-dump-log reads every file of our logs, and finds in them what was written."""

import re
from pathlib import Path

import pytest

from replog.host.world import RealDisk
from replog.log.batch import TRANSACTIONAL, NewRecord, build, end_transaction_marker, records
from replog.log.cleaner import Cleaner
from replog.log.compression import Codec
from replog.log.log import Appended, Log
from replog.log.settings import LogSettings
from replog.log.validation import Origin
from tests.controller.test_controller_registration import metadata_log_of_three
from tests.e2e.kafka_command import Tools, jars_or_skip

SETTINGS = LogSettings(
    segment_bytes=8_000, index_interval_bytes=1000, compacts=True, deletes=False, timestamp_after_ms_max=1 << 50
)
STARTED_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs") / "dumped-0"


def put(log: Log, content: bytes, epoch: int, origin: Origin = Origin.CLIENT) -> None:
    appended = log.append_as_leader(content, leader_epoch=epoch, now_ms=STARTED_MS, origin=origin)
    assert isinstance(appended, Appended), appended


def filled(folder: Path) -> Log:
    """A log of all codecs, with idempotent and transactional producers, two leader epochs, several segments; compacted."""
    log = Log.open(
        RealDisk(), str(folder), SETTINGS, recover=False, recovery_point=0, log_start_offset=0, now_ms=STARTED_MS
    )
    for number in range(150):
        entries = [
            NewRecord(
                b"key-%d-%d" % (number if number < 5 else 1000 + number % 40, index),
                b"value-%d" % number * 4,
                (("h", b"x"),),
                STARTED_MS + number * 10,
            )
            for index in range(5)
        ]
        producer = (77, 0, number * 5) if number % 3 else (-1, -1, -1)
        if number % 3:
            producer = (77, 0, (number - 1 - (number - 1) // 3) * 5)
        batch = build(entries, timestamp_ms=STARTED_MS, producer=producer, attributes=Codec(number % 5))
        put(log, batch, epoch=3 if number < 80 else 5)
    for sequence, committed in enumerate((True, False)):
        entry = NewRecord(b"t%d" % sequence, b"transactional")
        put(log, build([entry], timestamp_ms=STARTED_MS, producer=(99, 1, sequence), attributes=TRANSACTIONAL), epoch=5)
        marker = end_transaction_marker(
            producer_id=99, producer_epoch=1, committed=committed, coordinator_epoch=4, timestamp_ms=STARTED_MS
        )
        put(log, marker, 5, Origin.COORDINATOR)
    log.flush()
    return log


def test_kafka_reads_what_we_wrote(folder: Path) -> None:
    tools = Tools(jars_or_skip(), "")
    log = filled(folder)
    end_offset = log.log_end_offset
    cleaned = Cleaner(log, high_watermark=end_offset, now_ms=STARTED_MS).run()
    assert cleaned is not None
    assert cleaned.bytes_after < cleaned.bytes_before * 0.7
    kept = {
        record.offset: record
        for segment in log.segments
        for header in segment.headers()
        if not header.is_control
        for record in records(segment.batch_bytes(header))
    }
    entry_counts = [len(segment.index_entries) for segment in log.segments]
    log.close()

    files = [
        str(path) for suffix in ("log", "index", "timeindex", "txnindex") for path in sorted(folder.glob(f"*.{suffix}"))
    ]
    said = tools.run("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", ",".join(files))
    snapshot = tools.run("kafka-dump-log", "--files", str(max(folder.glob("*.snapshot"))))

    assert len(log.segments) > 3
    assert "isvalid: false" not in said
    assert "Mismatches" not in said
    assert "mismatch" not in said.lower()
    dumped = re.findall(r"^\| offset: (\d+) .*? key: (\S+) payload: (\S+)$", said, re.MULTILINE)
    assert {int(offset): (key.encode(), value.encode()) for offset, key, value in dumped} == {
        offset: (record.key, record.value) for offset, record in kept.items()
    }
    times = dict(re.findall(r"^\| offset: (\d+) CreateTime: (\d+) ", said, re.MULTILINE))
    assert {int(offset): int(time) for offset, time in times.items() if int(offset) in kept} == {
        offset: record.timestamp_ms for offset, record in kept.items()
    }
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in said
    for epoch in (3, 5):
        assert f"partitionLeaderEpoch: {epoch} " in said
    assert said.count("endTxnMarker: COMMIT") == 1
    assert said.count("endTxnMarker: ABORT") == 1
    assert f"producerId: 99 firstOffset: 752 lastOffset: 753 lastStableOffset: {end_offset}" in said
    assert said.count(" position: ") >= sum(entry_counts)
    assert "producerId: 77 producerEpoch: 0" in snapshot
    assert "producerId: 99 producerEpoch: 1 coordinatorEpoch: 4" in snapshot
    epochs = (folder / "leader-epoch-checkpoint").read_text().split()
    assert epochs == ["0", "2", "3", "0", "5", "400"]


def test_kafka_reads_who_votes_and_which_controllers_there_are(tmp_path: Path) -> None:
    """Control records of KIP-853 and registrations of KIP-919, in the log of three controllers."""
    tools = Tools(jars_or_skip(), "")
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(metadata_log_of_three())

    said = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(log))

    assert "isvalid: false" not in said
    assert "KRaftVersion" in said
    assert '"kRaftVersion":1' in said
    assert "KRaftVoters" in said
    assert '"voterId":103' in said
    assert said.count('"REGISTER_CONTROLLER_RECORD"') >= 1
