"""How one log behaves, with Kafka's defaults; the broker resolves topic over broker configuration."""

import msgspec

from replog.config.log import LogConfig
from replog.config.setting import LONG_MAX

NEVER = LONG_MAX
_KAFKAS = LogConfig()


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one log; a negative retention means no limit.

    flush_messages:  so many records that are not durable are too many to acknowledge one more; 1 syncs every append.
    flush_ms:        for so long records may wait to be made durable; nobody waits for it.
    """

    segment_bytes: int = _KAFKAS.segment_bytes
    segment_ms: int = _KAFKAS.roll_ms
    index_interval_bytes: int = _KAFKAS.index_interval_bytes
    index_bytes_max: int = _KAFKAS.index_bytes_max
    message_bytes_max: int = _KAFKAS.message_bytes_max
    log_append_time: bool = False
    timestamp_before_ms_max: int = _KAFKAS.timestamp_before_ms_max
    timestamp_after_ms_max: int = _KAFKAS.timestamp_after_ms_max
    retention_ms: int = _KAFKAS.retention_ms
    retention_bytes: int = _KAFKAS.retention_bytes
    deletes: bool = True
    compacts: bool = False
    tombstone_retention_ms: int = _KAFKAS.tombstone_retention_ms
    cleanable_share_min: float = _KAFKAS.cleanable_share_min
    compaction_lag_ms_min: int = _KAFKAS.compaction_lag_ms_min
    compaction_lag_ms_max: int = _KAFKAS.compaction_lag_ms_max
    producer_expiration_ms: int = _KAFKAS.producer_expiration_ms
    flush_messages: int = _KAFKAS.flush_messages
    flush_ms: int = _KAFKAS.flush_ms

    @property
    def flushes_early(self) -> bool:
        """Return whether replication alone is not trusted to keep records."""
        return self.flush_messages != NEVER or self.flush_ms != NEVER

    @classmethod
    def of(cls, config: LogConfig) -> "LogSettings":
        """Return what a configuration means for a log: a broker's own, or one that a topic has overridden in part."""
        return cls(
            segment_bytes=config.segment_bytes,
            segment_ms=config.roll_ms,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=config.index_bytes_max,
            message_bytes_max=config.message_bytes_max,
            log_append_time=config.timestamp_type == "LogAppendTime",
            timestamp_before_ms_max=config.timestamp_before_ms_max,
            timestamp_after_ms_max=config.timestamp_after_ms_max,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            deletes="delete" in config.cleanup_policy,
            compacts="compact" in config.cleanup_policy,
            tombstone_retention_ms=config.tombstone_retention_ms,
            cleanable_share_min=config.cleanable_share_min,
            compaction_lag_ms_min=config.compaction_lag_ms_min,
            compaction_lag_ms_max=config.compaction_lag_ms_max,
            producer_expiration_ms=config.producer_expiration_ms,
            flush_messages=config.flush_messages,
            flush_ms=config.flush_ms,
        )
