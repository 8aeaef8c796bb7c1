"""How what a client asked for ended: what is proven about its effect, and the error's name where there is one.

A request without an answer is `UNKNOWN`, never `WITHOUT_EFFECT`: it may have been carried out. `WITHOUT_EFFECT` is said only
where nothing left this client, or where the answer says that nothing was written.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from replog.types import NodeId, TopicPartition


class Outcome(Enum):
    """What is proven about a request's effect."""

    DONE = "done"  # the cluster said so
    UNACKNOWLEDGED = "unacknowledged"  # acks=0: it left, and nobody answers
    WITHOUT_EFFECT = "without effect"
    UNKNOWN = "unknown"


class BatchEnd(NamedTuple):
    """How a batch ended: all its records alike, at consecutive offsets.

    base_offset:  the offset of its first record, None unless the leader said it.
    attempts:     how often it was sent; None where a retry may have left uncounted.
    answered_by:  whose answer the last one was, None without an answer.
    producer:     producer id and epoch that it was sent with, None for neither idempotent nor transactional ones.
    topic_id:     of the topic that it stands in, as the leader named that; None unless the leader did.
    """

    outcome: Outcome
    error: str | None
    base_offset: int | None
    attempts: int | None
    answered_by: NodeId | None = None
    producer: tuple[int, int] | None = None
    topic_id: UUID | None = None


# A producer is closed, or has no room: what was offered and never left, and what may have left.
NO_ROOM = BatchEnd(Outcome.WITHOUT_EFFECT, "_QUEUE_FULL", None, 0)
NEVER_LEFT = BatchEnd(Outcome.WITHOUT_EFFECT, "_PURGE_QUEUE", None, 0)
GIVEN_UP = BatchEnd(Outcome.UNKNOWN, "_PURGE_INFLIGHT", None, None)


class CommitEnd(NamedTuple):
    """How a commit of offsets ended. node: who took them; None: nobody has, as far as is known."""

    outcome: Outcome
    error: str | None
    node: NodeId | None = None


class CommittedOffsets(NamedTuple):
    """Answer of OffsetFetch: what the group committed (None: nothing), or why there is no answer. node: who gave it."""

    offsets: Mapping[TopicPartition, int | None]
    error: str | None
    node: int | None = None


class TransactionOutcome(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class TransactionEnd(NamedTuple):
    """How a transaction ended; `answered`: the coordinator said so, at this moment."""

    outcome: TransactionOutcome
    answered: bool
    error: str | None
