"""One attempt to have a batch written, and what the last of several attempts proves about it."""

from typing import Final, NamedTuple
from uuid import UUID

from replog.client.client import Client, Unreachable
from replog.client.connection import ConnectionLost, UnsupportedVersion
from replog.client.outcomes import BatchEnd, Outcome
from replog.errors import Error
from replog.types import NodeId, TopicPartition
from replog.wire.messages.produce import PartitionProduceResponse

# With a single attempt these say that the broker wrote nothing.
NOTHING_WRITTEN: Final = frozenset(
    {
        Error.NOT_ENOUGH_REPLICAS,
        Error.INVALID_REQUIRED_ACKS,
        Error.INVALID_RECORD,
        Error.INVALID_TIMESTAMP,
        Error.INVALID_TOPIC_EXCEPTION,
        Error.MESSAGE_TOO_LARGE,
        Error.RECORD_LIST_TOO_LARGE,
    }
)
# Refused whole, before anything was written: fewer records may fit.
TOO_LARGE: Final = frozenset({Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE})


class Attempt(NamedTuple):
    """How one request ended: an answer, whose it was and of which topic, or why there is none and whether it left."""

    answer: PartitionProduceResponse | None
    error: str | None
    sent: bool
    node: NodeId | None = None
    topic_id: UUID | None = None


NO_ATTEMPT: Final = Attempt(None, "_TIMED_OUT", sent=False)  # there was no time for any


async def attempt_produce(
    client: Client,
    partition: TopicPartition,
    content: bytes,
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> Attempt:
    """Send a batch once."""
    try:
        leader = await client.leader(*partition)
        produced = await client.produce_to(
            leader, *partition, content, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
        )
    except (Unreachable, UnsupportedVersion) as problem:
        return Attempt(None, type(problem).__name__, sent=False)
    except ConnectionLost as problem:
        return Attempt(None, type(problem).__name__, sent=True)
    if produced is None:
        return Attempt(None, None, sent=True)
    return Attempt(produced.answer, None, sent=True, node=leader.node_id, topic_id=produced.topic_id)


def error_of(attempt: Attempt) -> Error | None:
    """Return what the broker answered; None where it did not."""
    return attempt.answer.error_code if attempt.answer is not None else None


def batch_end(
    attempt: Attempt,
    *,
    acks: int,
    may_have_left: bool,
    attempts: int | None,
    producer: tuple[int, int] | None = None,
) -> BatchEnd:
    """Say what a batch's last attempt proves.

    may_have_left:  whether any attempt reached the network.
    attempts:       1 for producers with a single attempt, None for those that retry.
    producer:       producer id and epoch that it was sent with.
    """
    if attempt.answer is not None and attempt.answer.error_code is Error.NONE:
        base_offset = attempt.answer.base_offset
        return BatchEnd(Outcome.DONE, None, base_offset, attempts, attempt.node, producer, attempt.topic_id)
    if attempt.answer is None and attempt.error is None:
        assert acks == 0
        return BatchEnd(Outcome.UNACKNOWLEDGED, None, None, attempts, None, producer)
    name = attempt.answer.error_code.name if attempt.answer is not None else attempt.error
    nothing_written = not may_have_left or (
        attempts == 1 and attempt.answer is not None and attempt.answer.error_code in NOTHING_WRITTEN
    )
    outcome = Outcome.WITHOUT_EFFECT if nothing_written else Outcome.UNKNOWN
    return BatchEnd(outcome, name, None, attempts, attempt.node, producer)
