"""Transactions, and the topic that keeps them."""

from typing import Annotated

import msgspec

from replog.config.setting import Short, kafka


class TransactionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions, and the topic that keeps them."""

    timeout_ms_max: Annotated[
        int,
        kafka(
            "transaction.max.timeout.ms", "A producer may not ask for a longer time-out of its transactions.", lowest=1
        ),
    ] = 900000
    id_expiration_ms: Annotated[
        int,
        kafka(
            "transactional.id.expiration.ms",
            "A transactional id that was not used for this long is forgotten.",
            lowest=1,
        ),
    ] = 604800000
    abort_scan_interval_ms: Annotated[
        int,
        kafka(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "How often transactions that exceeded their time-out are looked for and aborted.",
            lowest=1,
        ),
    ] = 10000
    partition_verification_enable: Annotated[
        bool,
        kafka(
            "transaction.partition.verification.enable",
            "Whether a leader asks the coordinator that a transaction is open before it appends to it (KIP-890); it always does where a write adds its partition.",
        ),
    ] = True
    verification_backoff_ms: Annotated[
        int,
        kafka("add.partitions.to.txn.retry.backoff.ms", "The wait before a verification is repeated.", lowest=1),
    ] = 20
    verification_backoff_ms_max: Annotated[
        int,
        kafka("add.partitions.to.txn.retry.backoff.max.ms", "How long a verification is repeated."),
    ] = 100
    topic_partition_count: Annotated[
        int,
        kafka("transaction.state.log.num.partitions", "The number of partitions of `__transaction_state`.", lowest=1),
    ] = 50
    topic_replication_factor: Annotated[
        Short,
        kafka("transaction.state.log.replication.factor", "The number of replicas of `__transaction_state`.", lowest=1),
    ] = 3
    topic_insync_replicas_min: Annotated[
        int, kafka("transaction.state.log.min.isr", "The `min.insync.replicas` of `__transaction_state`.", lowest=1)
    ] = 2
    topic_segment_bytes: Annotated[
        int,
        kafka("transaction.state.log.segment.bytes", "The size of the segments of `__transaction_state`.", lowest=1),
    ] = 104857600
