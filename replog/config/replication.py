"""How followers fetch from leaders, and when they count as in sync."""

from typing import Annotated, Literal

import msgspec

from replog.config.setting import Long, kafka, ours


class ReplicationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How followers fetch from leaders, and when they count as in sync."""

    lag_ms_max: Annotated[
        Long,
        kafka(
            "replica.lag.time.max.ms", "A follower that has not caught up for this long leaves the in-sync replicas."
        ),
    ] = 30000
    fetch_wait_ms_max: Annotated[
        int,
        kafka("replica.fetch.wait.max.ms", "How long a leader may hold a follower's fetch when it has nothing new."),
    ] = 500
    fetch_backoff_ms: Annotated[
        int,
        kafka(
            "replica.fetch.backoff.ms", "How long a follower waits before it fetches a partition again after an error."
        ),
    ] = 1000
    fetch_bytes_min: Annotated[
        int, kafka("replica.fetch.min.bytes", "A leader holds a follower's fetch until it has this much.")
    ] = 1
    fetch_partition_bytes_max: Annotated[
        int,
        kafka(
            "replica.fetch.max.bytes",
            "How much of one partition a follower asks for; a first batch that is larger is sent all the same.",
        ),
    ] = 1048576
    fetch_bytes_max: Annotated[
        int,
        kafka("replica.fetch.response.max.bytes", "The largest answer to a follower's fetch, over all partitions."),
    ] = 10485760
    high_watermark_checkpoint_interval_ms: Annotated[
        Long, kafka("replica.high.watermark.checkpoint.interval.ms", "How often high watermarks are written to disk.")
    ] = 5000
    leader_recovery: Annotated[
        Literal["on", "off"],
        ours(
            "leader.recovery",
            "Whether a leader that was elected uncleanly refuses requests until it has recovered (KIP-704); "
            "`off` does as Apache Kafka does.",
        ),
    ] = "on"
