"""Consumer groups of both protocols, their offsets, and the topic that keeps them."""

from typing import Annotated, Final, Literal

import msgspec

from replog.config.setting import INT_MAX, Long, Short, kafka

# What a group of the new protocol may have of its own; `group.` before it: what holds for those that have not (KIP-848).
OWN_SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
OWN_HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"


class GroupsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Consumer groups of both protocols, their offsets, and the topic that keeps them."""

    initial_rebalance_delay_ms: Annotated[
        int,
        kafka(
            "group.initial.rebalance.delay.ms",
            "How long an empty classic group waits for further members before its first rebalance.",
        ),
    ] = 3000
    session_timeout_ms_min: Annotated[
        int, kafka("group.min.session.timeout.ms", "A member of a classic group may not ask for a shorter session.")
    ] = 6000
    session_timeout_ms_max: Annotated[
        int, kafka("group.max.session.timeout.ms", "A member of a classic group may not ask for a longer session.")
    ] = 1800000
    member_count_max: Annotated[
        int, kafka("group.max.size", "The largest number of members of a classic group.", lowest=1)
    ] = INT_MAX
    consumer_session_timeout_ms: Annotated[
        int,
        kafka(
            "group.consumer.session.timeout.ms",
            "A member that has sent no heartbeat for this long is removed (KIP-848).",
            lowest=1,
        ),
    ] = 45000
    consumer_heartbeat_interval_ms: Annotated[
        int,
        kafka(
            "group.consumer.heartbeat.interval.ms",
            "The interval at which members have to send heartbeats (KIP-848).",
            lowest=1,
        ),
    ] = 5000
    consumer_session_timeout_ms_min: Annotated[
        int,
        kafka(
            "group.consumer.min.session.timeout.ms",
            "A group's own `consumer.session.timeout.ms` may not be shorter.",
            lowest=1,
        ),
    ] = 45000
    consumer_session_timeout_ms_max: Annotated[
        int,
        kafka(
            "group.consumer.max.session.timeout.ms",
            "A group's own `consumer.session.timeout.ms` may not be longer.",
            lowest=1,
        ),
    ] = 60000
    consumer_heartbeat_interval_ms_min: Annotated[
        int,
        kafka(
            "group.consumer.min.heartbeat.interval.ms",
            "A group's own `consumer.heartbeat.interval.ms` may not be shorter.",
            lowest=1,
        ),
    ] = 5000
    consumer_heartbeat_interval_ms_max: Annotated[
        int,
        kafka(
            "group.consumer.max.heartbeat.interval.ms",
            "A group's own `consumer.heartbeat.interval.ms` may not be longer.",
            lowest=1,
        ),
    ] = 15000
    consumer_member_count_max: Annotated[
        int,
        kafka(
            "group.consumer.max.size",
            "The largest number of members of a group of the new protocol (KIP-848).",
            lowest=1,
        ),
    ] = INT_MAX
    consumer_assignors: Annotated[
        tuple[Literal["uniform", "range"], ...],
        kafka("group.consumer.assignors", "The assignors that are offered; the first is the default (KIP-848)."),
    ] = ("uniform", "range")
    offset_metadata_bytes_max: Annotated[
        int, kafka("offset.metadata.max.bytes", "The largest metadata text of a committed offset.")
    ] = 4096
    offsets_retention_minutes: Annotated[
        int,
        kafka(
            "offsets.retention.minutes",
            "The offsets of a group that has been empty for this long are deleted.",
            lowest=1,
        ),
    ] = 10080
    offsets_retention_check_interval_ms: Annotated[
        Long,
        kafka("offsets.retention.check.interval.ms", "How often groups are checked for offsets to delete.", lowest=1),
    ] = 600000
    offsets_topic_partition_count: Annotated[
        int, kafka("offsets.topic.num.partitions", "The number of partitions of `__consumer_offsets`.", lowest=1)
    ] = 50
    offsets_topic_replication_factor: Annotated[
        Short, kafka("offsets.topic.replication.factor", "The number of replicas of `__consumer_offsets`.", lowest=1)
    ] = 3
    offsets_topic_segment_bytes: Annotated[
        int, kafka("offsets.topic.segment.bytes", "The size of the segments of `__consumer_offsets`.", lowest=1)
    ] = 104857600
