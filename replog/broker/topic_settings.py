"""What the committed configuration says of a topic: how its logs behave, and how many replicas must be in sync.

A topic's own value wins over the cluster's dynamic default, that over the node's file (SPEC 2.11). Values were checked
when they were set; they are text in the metadata log.
"""

from collections.abc import Mapping
from typing import Any

from replog.controller.configs import topic_value
from replog.log.settings import LogSettings
from replog.metadata.image import Image


class TopicSettings:
    """Effective settings of topics, by the image and the node's own file."""

    def __init__(self, static: Mapping[str, Any]) -> None:
        self.static = static

    def text(self, image: Image, topic: str, name: str) -> str:
        """Return an effective value as text."""
        return topic_value(image, self.static, topic, name)[0]

    def number(self, image: Image, topic: str, name: str) -> int:
        """Return an effective whole number."""
        return int(self.text(image, topic, name))

    def min_insync_replicas(self, image: Image, topic: str) -> int:
        """Return the configured minimum; the replication factor caps it elsewhere."""
        return self.number(image, topic, "min.insync.replicas")

    def of_log(self, image: Image, topic: str) -> LogSettings:
        """Return how the topic's logs behave."""
        policies = [policy.strip() for policy in self.text(image, topic, "cleanup.policy").split(",")]
        return LogSettings(
            segment_bytes=self.number(image, topic, "segment.bytes"),
            segment_ms=self.number(image, topic, "segment.ms"),
            index_interval_bytes=self.number(image, topic, "index.interval.bytes"),
            index_bytes_max=self.number(image, topic, "segment.index.bytes"),
            message_bytes_max=self.number(image, topic, "max.message.bytes"),
            log_append_time=self.text(image, topic, "message.timestamp.type") == "LogAppendTime",
            timestamp_before_ms_max=self.number(image, topic, "message.timestamp.before.max.ms"),
            timestamp_after_ms_max=self.number(image, topic, "message.timestamp.after.max.ms"),
            retention_ms=self.number(image, topic, "retention.ms"),
            retention_bytes=self.number(image, topic, "retention.bytes"),
            deletes="delete" in policies,
            compacts="compact" in policies,
            tombstone_retention_ms=self.number(image, topic, "delete.retention.ms"),
            producer_expiration_ms=int(self.static["producer.id.expiration.ms"]),
            compaction_lag_ms_min=self.number(image, topic, "min.compaction.lag.ms"),
            compaction_lag_ms_max=self.number(image, topic, "max.compaction.lag.ms"),
            cleanable_share_min=float(self.text(image, topic, "min.cleanable.dirty.ratio")),
            flush_messages=self.number(image, topic, "flush.messages"),
            flush_ms=self.number(image, topic, "flush.ms"),
        )
