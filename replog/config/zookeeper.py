"""ZooKeeper mode: brokers without `process.roles` (KIP-380)."""

from typing import Annotated

import msgspec

from replog.config.setting import kafka


class ZooKeeperConfig(msgspec.Struct, frozen=True, kw_only=True):
    """ZooKeeper mode: brokers without `process.roles` (KIP-380)."""

    connect: Annotated[
        str, kafka("zookeeper.connect", "The ensemble: `host:port,host:port/chroot`. Required in ZooKeeper mode.")
    ] = ""
    session_timeout_ms: Annotated[
        int,
        kafka(
            "zookeeper.session.timeout.ms", "A broker whose heartbeats do not reach ZooKeeper for this long has left."
        ),
    ] = 18000
    connection_timeout_ms: Annotated[
        int,
        kafka(
            "zookeeper.connection.timeout.ms",
            "How long a broker tries to reach ZooKeeper at its start before it gives up.",
        ),
    ] = 18000
    inter_broker_protocol_version: Annotated[
        str,
        kafka(
            "inter.broker.protocol.version",
            "The version of the control requests between brokers, 2.1 to 3.4. Kafka's default is its own version.",
        ),
    ] = "3.4"
