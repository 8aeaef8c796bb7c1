"""How the log of a partition is kept: segments, time stamps, durability, retention, compaction.

Most of it is a default that topics override; `replog.controller.configs` has the topics' side.
"""

from typing import Annotated, Literal

import msgspec

from replog.config.setting import LONG_MAX, Long, kafka, ours, without_effect


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the log of a partition is kept: segments, time stamps, durability, retention, compaction."""

    segment_bytes: Annotated[
        int,
        kafka(
            "log.segment.bytes", "A segment that would grow beyond this is closed.", lowest=14, topic="segment.bytes"
        ),
    ] = 1 << 30
    roll_ms: Annotated[
        Long,
        kafka("log.roll.ms", "A segment is closed when it is older than this.", lowest=1, topic="segment.ms"),
    ] = 604800000
    roll_jitter_ms: Annotated[
        Long,
        without_effect(
            "log.roll.jitter.ms", "Segments of all logs may be rolled at the same time.", topic="segment.jitter.ms"
        ),
    ] = 0
    preallocate: Annotated[
        bool, without_effect("log.preallocate", "Files grow as they are written.", topic="preallocate")
    ] = False
    index_interval_bytes: Annotated[
        int,
        kafka(
            "log.index.interval.bytes",
            "How many bytes of records there are to one index entry.",
            topic="index.interval.bytes",
        ),
    ] = 4096
    index_bytes_max: Annotated[
        int,
        kafka(
            "log.index.size.max.bytes",
            "A segment is closed when its index has this size.",
            lowest=4,
            topic="segment.index.bytes",
        ),
    ] = 10485760
    message_bytes_max: Annotated[
        int, kafka("message.max.bytes", "A batch that is larger than this is refused.", topic="max.message.bytes")
    ] = 1048588
    compression_type: Annotated[
        Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"],
        without_effect(
            "compression.type",
            "Batches stay as the producer compressed them.",
            topic="compression.type",
        ),
    ] = "producer"
    timestamp_type: Annotated[
        Literal["CreateTime", "LogAppendTime"],
        kafka(
            "log.message.timestamp.type",
            "Whether a record keeps its producer's time stamp or gets the leader's.",
            topic="message.timestamp.type",
        ),
    ] = "CreateTime"
    timestamp_before_ms_max: Annotated[
        Long,
        kafka(
            "log.message.timestamp.before.max.ms",
            "A record whose time stamp is further in the past is refused.",
            topic="message.timestamp.before.max.ms",
        ),
    ] = LONG_MAX
    timestamp_after_ms_max: Annotated[
        Long,
        kafka(
            "log.message.timestamp.after.max.ms",
            "A record whose time stamp is further in the future is refused.",
            topic="message.timestamp.after.max.ms",
        ),
    ] = 3600000
    flush_messages: Annotated[
        Long,
        kafka(
            "log.flush.interval.messages",
            "How many records may wait to be made durable before an append must sync; 1 syncs every append.",
            lowest=1,
            topic="flush.messages",
        ),
    ] = LONG_MAX
    flush_ms: Annotated[
        Long,
        kafka(
            "log.flush.interval.ms",
            "How long records may wait to be made durable; no request waits for it.",
            topic="flush.ms",
        ),
    ] = LONG_MAX
    flush_checkpoint_interval_ms: Annotated[
        int,
        kafka(
            "log.flush.offset.checkpoint.interval.ms",
            "How often logs are made durable and the recovery points are written.",
        ),
    ] = 60000
    retention_ms: Annotated[
        Long,
        kafka(
            "log.retention.ms",
            "Segments whose newest record is older than this are deleted; -1: no limit.",
            lowest=-1,
            topic="retention.ms",
        ),
    ] = 604800000
    retention_bytes: Annotated[
        Long,
        kafka(
            "log.retention.bytes",
            "The oldest segments of a log that is larger than this are deleted; -1: no limit.",
            lowest=-1,
            topic="retention.bytes",
        ),
    ] = -1
    retention_check_interval_ms: Annotated[
        Long, kafka("log.retention.check.interval.ms", "How often logs are checked for segments to delete.", lowest=1)
    ] = 300000
    cleanup_policy: Annotated[
        tuple[Literal["delete", "compact"], ...],
        kafka(
            "log.cleanup.policy",
            "What happens to old records: whole segments are deleted, or all but the last record of a key, or both.",
            topic="cleanup.policy",
        ),
    ] = ("delete",)
    segment_delete_delay_ms: Annotated[
        Long,
        without_effect(
            "log.segment.delete.delay.ms",
            "Files are deleted as soon as nothing reads them.",
            topic="file.delete.delay.ms",
        ),
    ] = 60000
    cleaner_enable: Annotated[
        bool, kafka("log.cleaner.enable", "Whether logs with the policy `compact` are compacted.")
    ] = True
    cleaner_backoff_ms: Annotated[
        Long, kafka("log.cleaner.backoff.ms", "How often the cleaner looks for a log to compact.")
    ] = 15000
    cleanable_share_min: Annotated[
        float,
        kafka(
            "log.cleaner.min.cleanable.ratio",
            "A log is compacted when at least this share of it has not been compacted.",
            highest=1.0,
            topic="min.cleanable.dirty.ratio",
        ),
    ] = 0.5
    compaction_lag_ms_min: Annotated[
        Long,
        kafka(
            "log.cleaner.min.compaction.lag.ms",
            "A record that is younger than this is not compacted.",
            topic="min.compaction.lag.ms",
        ),
    ] = 0
    compaction_lag_ms_max: Annotated[
        Long,
        kafka(
            "log.cleaner.max.compaction.lag.ms",
            "A log with an uncompacted record older than this is compacted whatever the ratio.",
            lowest=1,
            topic="max.compaction.lag.ms",
        ),
    ] = LONG_MAX
    tombstone_retention_ms: Annotated[
        Long,
        kafka(
            "log.cleaner.delete.retention.ms",
            "How long compaction keeps a tombstone, the record that deletes a key.",
            topic="delete.retention.ms",
        ),
    ] = 86400000
    scrub_bytes_per_second: Annotated[
        Long,
        ours(
            "log.scrub.bytes.per.second",
            "How fast what is committed is read again to find, and to repair from the ISR, what went bad on the disk; 0: never.",
        ),
    ] = 0
    producer_expiration_ms: Annotated[
        int,
        kafka(
            "producer.id.expiration.ms",
            "An idempotent producer that has written nothing for this long is forgotten.",
            lowest=1,
        ),
    ] = 86400000
    producer_expiration_check_interval_ms: Annotated[
        int,
        kafka(
            "producer.id.expiration.check.interval.ms",
            "How often idempotent producers to forget are looked for.",
            lowest=1,
        ),
    ] = 600000
