"""Who a node is, what it does, and where its data lies."""

from typing import Annotated, Final

import msgspec

from replog.config.setting import kafka, ours

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
EVERY_DIRECTORY: Final = "*"


class IdentityConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who a node is, what it does, and where its data lies."""

    process_roles: Annotated[
        tuple[str, ...],
        kafka(
            "process.roles",
            "`broker`, `controller` or both. Required, except in ZooKeeper mode, where `zookeeper.connect` stands instead.",
        ),
    ] = ()
    node_id: Annotated[int, kafka("node.id", "The number of this node; no two nodes of a cluster share one.")]
    cluster_id: Annotated[
        str,
        ours(
            "cluster.id",
            "The cluster that this node belongs to: a UUID or 1 to 64 characters. Kafka has it in `meta.properties` only.",
        ),
    ]
    broker_rack: Annotated[
        str, kafka("broker.rack", "The rack of this broker, for placing replicas and for reading from a near one.")
    ] = ""
    log_dirs: Annotated[
        tuple[str, ...],
        kafka("log.dirs", "The directories of the partitions' logs; a broker survives the loss of one."),
    ]
    cordoned_log_dirs: Annotated[
        tuple[str, ...],
        kafka(
            CORDONED_LOG_DIRS,
            "Directories of `log.dirs` that take no new replicas, `*` for all of them; what they hold stays there and is served. "
            "From metadata version 30 (4.3-IV0) on, and changed while the broker runs by `kafka-configs`.",
        ),
    ] = ()
    metadata_log_dir: Annotated[
        str, kafka("metadata.log.dir", "The directory of the metadata log; the first of `log.dirs` when empty.")
    ] = ""
