"""What the end of a produce proves, and a producer on real sockets against two small servers."""

import pytest

from replog.client.client import Client
from replog.client.outcomes import GIVEN_UP, NEVER_LEFT, BatchEnd, Outcome
from replog.client.produce_attempt import NO_ATTEMPT, Attempt, batch_end
from replog.client.producer import Producer, ProducerSettings
from replog.errors import Error
from replog.host.world import RealClock
from replog.types import NodeId, TopicPartition
from replog.wire.messages.produce import PartitionProduceResponse
from tests.wire.test_client import TOPIC_ID, Cluster, on_cluster

PARTITION = TopicPartition("t", 0)
SETTINGS = ProducerSettings(
    acks=-1, idempotent=False, delivery_timeout_ms=3000, request_timeout_ms=3000, linger_ms=2, batches_in_flight=1
)
LOST = Attempt(None, "ConnectionLost", sent=True)


def answered(error: Error) -> Attempt:
    return Attempt(PartitionProduceResponse(error_code=error, base_offset=7), None, sent=True)


@pytest.mark.parametrize(
    ("attempt", "acks", "may_have_left", "attempts", "outcome"),
    [
        pytest.param(answered(Error.NONE), -1, True, 1, Outcome.DONE, id="acknowledged"),
        pytest.param(Attempt(None, None, sent=True), 0, True, 1, Outcome.UNACKNOWLEDGED, id="acks=0"),
        pytest.param(LOST, -1, True, 1, Outcome.UNKNOWN, id="connection lost"),
        pytest.param(NO_ATTEMPT, -1, False, None, Outcome.WITHOUT_EFFECT, id="never sent"),
        pytest.param(NO_ATTEMPT, -1, True, None, Outcome.UNKNOWN, id="not sent this time, but before"),
        pytest.param(answered(Error.NOT_ENOUGH_REPLICAS), -1, True, 1, Outcome.WITHOUT_EFFECT, id="refused at once"),
        pytest.param(answered(Error.NOT_ENOUGH_REPLICAS), -1, True, None, Outcome.UNKNOWN, id="refused after retries"),
        pytest.param(answered(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND), -1, True, 1, Outcome.UNKNOWN, id="appended"),
    ],
)
def test_the_end_of_a_batch(
    attempt: Attempt, acks: int, may_have_left: bool, attempts: int | None, outcome: Outcome
) -> None:
    end = batch_end(attempt, acks=acks, may_have_left=may_have_left, attempts=attempts)

    assert end.outcome is outcome
    assert (end.base_offset is not None) == (outcome is Outcome.DONE)


def test_a_batch_of_records_ends_together() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        ends: list[tuple[list[str], BatchEnd]] = []
        producer: Producer[str] = Producer(client, RealClock(), SETTINGS, lambda *end: ends.append(end))

        for token in ("first", "second"):
            producer.send(PARTITION, None, b"value", token)
        left = await producer.flush(3000)

        assert left == 0
        assert ends == [
            (["first", "second"], BatchEnd(Outcome.DONE, None, 40, 1, answered_by=NodeId(2), topic_id=TOPIC_ID))
        ]

    on_cluster(scenario)


def test_what_left_before_the_close_nobody_knows_and_what_did_not_is_surely_not_written() -> None:
    async def scenario(cluster: Cluster, client: Client) -> None:
        cluster.silent = cluster.leader
        await client.refresh(["t"])
        ends: dict[str, BatchEnd] = {}
        producer: Producer[str] = Producer(
            client, RealClock(), SETTINGS, lambda tokens, end: ends.update(dict.fromkeys(tokens, end))
        )

        producer.send(PARTITION, None, b"value", "left")
        await producer.flush(100)
        producer.send(PARTITION, None, b"value", "waits")
        await producer.close()

        assert ends == {"left": GIVEN_UP, "waits": NEVER_LEFT}

    on_cluster(scenario)
