"""What a topic gets that does not say otherwise."""

from typing import Annotated

import msgspec

from replog.config.setting import kafka


class TopicsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic gets that does not say otherwise."""

    auto_create_enable: Annotated[
        bool,
        kafka("auto.create.topics.enable", "Whether a topic that a client asks for is created when it does not exist."),
    ] = True
    delete_enable: Annotated[
        bool, kafka("delete.topic.enable", "Whether topics can be deleted; where not, who asks is refused.")
    ] = True
    partition_count: Annotated[int, kafka("num.partitions", "The number of partitions of a new topic.", lowest=1)] = 1
    replication_factor: Annotated[
        int, kafka("default.replication.factor", "The number of replicas of a new topic's partitions.")
    ] = 1
    insync_replicas_min: Annotated[
        int,
        kafka(
            "min.insync.replicas",
            "How many replicas must be in sync for a write with acks=all and, by KIP-966, for the high watermark to advance.",
            lowest=1,
            topic="min.insync.replicas",
        ),
    ] = 1
