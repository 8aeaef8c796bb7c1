"""What a delivery report proves (docs/verdicts.md, facts): guessing wrong here accuses the innocent."""

import pytest
from confluent_kafka import KafkaError

from tribunal.clusters.clients.confluent import delivered


@pytest.mark.parametrize(
    ("code", "offset", "acks", "outcome"),
    [
        pytest.param(None, 7, -1, "ok", id="acknowledged by all"),
        pytest.param(None, 7, 1, "ok", id="acknowledged by the leader"),
        pytest.param(None, None, 0, "sent", id="fire and forget"),
        pytest.param(None, -1001, -1, "info", id="acknowledged without an offset"),
        pytest.param(KafkaError._MSG_TIMED_OUT, None, -1, "info", id="timed out"),
        pytest.param(KafkaError._TRANSPORT, None, 1, "info", id="connection lost"),
        pytest.param(KafkaError._PURGE_INFLIGHT, None, 1, "info", id="given up under way"),
        pytest.param(
            KafkaError._PURGE_QUEUE, None, 1, "info", id="given up while it waited, perhaps for another attempt"
        ),
        pytest.param(KafkaError._UNKNOWN_TOPIC, None, -1, "info", id="topic gone, perhaps after an attempt"),
        pytest.param(KafkaError._UNKNOWN_PARTITION, None, -1, "info", id="partition gone, perhaps after an attempt"),
        pytest.param(KafkaError._QUEUE_FULL, None, 1, "fail", id="refused locally"),
        pytest.param(KafkaError.NOT_ENOUGH_REPLICAS, None, -1, "info", id="refused in the last attempt"),
        pytest.param(KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None, -1, "info", id="appended, not replicated"),
        pytest.param(KafkaError.NOT_LEADER_FOR_PARTITION, None, -1, "info", id="not the leader"),
        pytest.param(KafkaError.REQUEST_TIMED_OUT, None, -1, "info", id="timed out at the broker"),
        pytest.param(KafkaError.INVALID_REQUIRED_ACKS, None, 1, "fail", id="never valid"),
        pytest.param(KafkaError.INVALID_RECORD, None, 1, "info", id="invalid by settings that may have changed since"),
        pytest.param(KafkaError.INVALID_TIMESTAMP, None, -1, "info", id="so is its time"),
        pytest.param(KafkaError.INVALID_REQUIRED_ACKS, None, 0, "info", id="acks=0 is never refused"),
        pytest.param(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, None, -1, "info", id="out of sequence"),
    ],
)
def test_outcome(code, offset, acks, outcome):
    name = None if code is None else str(code)

    assert delivered(code, name, offset, acks=acks).outcome == outcome


def test_attempts_are_unknown():
    """librdkafka retries without counting: a record of a producer without retries may stand twice in the log."""
    assert delivered(None, None, 7, acks=-1).attempts is None
