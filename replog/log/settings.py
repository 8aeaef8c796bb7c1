"""How one log behaves, with Kafka's defaults; the broker resolves topic over broker configuration."""

import msgspec

from replog.config import NodeConfig

FOREVER_MS = 9223372036854775807
NEVER = 9223372036854775807


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one log; a negative retention means no limit.

    flush_messages:  so many records that are not durable are too many to acknowledge one more; 1 syncs every append.
    flush_ms:        for so long records may wait to be made durable; nobody waits for it.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 604800000
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10485760
    message_bytes_max: int = 1048588
    log_append_time: bool = False
    timestamp_before_ms_max: int = FOREVER_MS
    timestamp_after_ms_max: int = 3600000
    retention_ms: int = 604800000
    retention_bytes: int = -1
    deletes: bool = True
    compacts: bool = False
    tombstone_retention_ms: int = 86400000
    cleanable_share_min: float = 0.5
    compaction_lag_ms_min: int = 0
    compaction_lag_ms_max: int = NEVER
    producer_expiration_ms: int = 86400000
    flush_messages: int = NEVER
    flush_ms: int = NEVER

    @property
    def flushes_early(self) -> bool:
        """Tell whether replication alone is not trusted to keep records."""
        return self.flush_messages != NEVER or self.flush_ms != NEVER

    @classmethod
    def of_broker(cls, config: NodeConfig) -> "LogSettings":
        """Return a broker's defaults for its topics."""
        policies = config.text("log.cleanup.policy").split(",")
        return cls(
            segment_bytes=config.integer("log.segment.bytes"),
            segment_ms=config.integer("log.roll.ms"),
            index_interval_bytes=config.integer("log.index.interval.bytes"),
            index_bytes_max=config.integer("log.index.size.max.bytes"),
            message_bytes_max=config.integer("message.max.bytes"),
            log_append_time=config.text("log.message.timestamp.type") == "LogAppendTime",
            timestamp_before_ms_max=config.integer("log.message.timestamp.before.max.ms"),
            timestamp_after_ms_max=config.integer("log.message.timestamp.after.max.ms"),
            retention_ms=config.integer("log.retention.ms"),
            retention_bytes=config.integer("log.retention.bytes"),
            deletes="delete" in policies,
            compacts="compact" in policies,
            producer_expiration_ms=config.integer("producer.id.expiration.ms"),
            flush_messages=config.integer("log.flush.interval.messages"),
            flush_ms=config.integer("log.flush.interval.ms"),
        )
