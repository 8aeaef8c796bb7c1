"""Which messages belong to what only some clients do: workloads say what theirs do, and who waits for a message is told that nobody sends it.

Names are those of Kafka's APIs, as scenarios have them.
"""

from typing import Final

OF_PRODUCERS: Final = frozenset({"init-producer-id"})  # that are idempotent
OF_TRANSACTIONS: Final = OF_PRODUCERS | {
    "find-coordinator",
    "add-partitions-to-txn",
    "end-txn",
    "write-txn-markers",
}
OF_GROUPS: Final = frozenset(
    {
        "find-coordinator",
        "join-group",
        "sync-group",
        "heartbeat",
        "leave-group",
        "consumer-group-heartbeat",
        "offset-commit",
        "offset-fetch",
    }
)
OF_GROUPS_IN_TRANSACTIONS: Final = OF_GROUPS | OF_TRANSACTIONS | {"add-offsets-to-txn", "txn-offset-commit"}
