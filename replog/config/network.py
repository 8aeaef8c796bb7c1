"""Where a node listens, and how much of its memory connections and requests may take."""

from typing import Annotated, Literal

import msgspec

from replog.config.setting import INT_MAX, Long, kafka, ours


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node listens, and what connections and requests may ask of it."""

    listeners: Annotated[
        tuple[str, ...],
        kafka("listeners", "The addresses that this node binds: `NAME://host:port`, or one without a name."),
    ]
    advertised_listeners: Annotated[
        tuple[str, ...],
        kafka(
            "advertised.listeners",
            "The addresses that clients and brokers connect to, by the same names; those of `listeners` where there is none.",
        ),
    ] = ()
    listener_protocols: Annotated[
        tuple[str, ...],
        kafka(
            "listener.security.protocol.map",
            "How each listener is secured: `NAME:PROTOCOL`, which is `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`. "
            "A listener that is named like a protocol needs no entry, and controllers' have none of it without one.",
        ),
    ] = ()
    inter_broker_listener_name: Annotated[
        str,
        kafka(
            "inter.broker.listener.name",
            "The listener by which brokers reach each other; the first one when empty.",
        ),
    ] = ""
    controller_listener_names: Annotated[
        tuple[str, ...],
        kafka(
            "controller.listener.names",
            "The listeners of controllers. Brokers connect to them as the first of these is secured.",
        ),
    ] = ()
    controller_listeners: Annotated[
        str, ours("controller.listeners", "Where the controller of a node with both roles listens; required there.")
    ] = ""
    controller_advertised_listeners: Annotated[
        str,
        ours(
            "controller.advertised.listeners",
            "The controller's address for others; when empty, that of `controller.quorum.voters`, "
            "else the one that it listens on.",
        ),
    ] = ""
    socket_request_bytes_max: Annotated[
        int, kafka("socket.request.max.bytes", "A connection that announces a longer request is closed.", lowest=1)
    ] = 104857600
    connections_idle_ms_max: Annotated[
        Long, kafka("connections.max.idle.ms", "A connection that has been idle for this long is closed.")
    ] = 600000
    connections_max: Annotated[
        int,
        kafka("max.connections", "With so many connections to a listener a further one is closed.", lowest=1),
    ] = INT_MAX
    connections_per_host_max: Annotated[
        int,
        kafka("max.connections.per.ip", "With so many connections from an address a further one from there is closed."),
    ] = INT_MAX
    connections_per_second_max: Annotated[
        int,
        kafka(
            "max.connection.creation.rate",
            "With so many new connections to a listener in a second, further ones are closed.",
            lowest=1,
        ),
    ] = INT_MAX
    failed_authentication_delay_ms: Annotated[
        int,
        kafka(
            "connection.failed.authentication.delay.ms",
            "Who failed to log in gets the answer, and is closed, after this long.",
            lowest=0,
        ),
    ] = 100
    request_progress_ms_max: Annotated[
        Long,
        ours(
            "tribunal.request.progress.ms",
            "A connection that stays in the middle of a request for so long, without a further "
            "64 KiB of it or its end, is closed.",
        ),
    ] = 30000
    queued_request_bytes_max: Annotated[
        Long,
        kafka(
            "queued.max.request.bytes",
            "While unanswered requests take more memory than this, connections are not read. Kafka's default is no limit.",
        ),
    ] = 16 * 1024 * 1024
    request_partition_count_max: Annotated[
        int,
        kafka(
            "max.request.partition.size.limit",
            "The largest number of partitions in one answer to DescribeTopicPartitions.",
            lowest=1,
        ),
    ] = 2000
    fetch_bytes_max: Annotated[
        int,
        kafka(
            "fetch.max.bytes",
            "The largest answer to a consumer's fetch; a first batch that is larger is sent all the same.",
            lowest=1024,
        ),
    ] = 57671680
    fetch_session_count_max: Annotated[
        int,
        kafka(
            "max.incremental.fetch.session.cache.slots",
            "The largest number of incremental fetch sessions that are remembered (KIP-227).",
        ),
    ] = 1000
    replica_selector_class: Annotated[
        Literal["", "org.apache.kafka.common.replica.RackAwareReplicaSelector"],
        kafka(
            "replica.selector.class",
            "Which replica a consumer is directed to: the leader, or one in the consumer's rack.",
        ),
    ] = ""
