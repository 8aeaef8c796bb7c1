"""Family producer_state: idempotent producers on the partition leader (SPEC 4.1)."""

from typing import Any

import pytest

from replog.errors import Error
from replog.log.batch import NewRecord, batches, build
from replog.log.producers import Append, Duplicate, Producer, ProducerStates, Verdict
from tests.cases.cases import load, only

PRODUCER_ID = 7


@pytest.mark.parametrize("case", load("producer_state"))
def test_producer_state(case: dict[str, Any]) -> None:
    states = _states(only(case["given"], {"producer"}, "given")["producer"])
    when = only(case["when"], {"first_seq", "last_seq", "epoch"}, "when")
    then = only(case["then"], {"result"}, "then")

    verdict = states.check(_header(when))

    assert _name(verdict) == then["result"]


def _states(given: dict[str, Any] | None) -> ProducerStates:
    """Return the states after the batches that a case calls `recent`."""
    states = ProducerStates()
    if given is None:
        return states
    only(given, {"epoch", "last_seq", "recent"}, "producer")
    recent = given["recent"] or [[given["last_seq"], given["last_seq"]]]
    assert recent[-1][1] == given["last_seq"]
    offset = 0
    for first, last in recent:
        header = _header({"first_seq": first, "last_seq": last, "epoch": given["epoch"]})
        states.update(header, offset, now_ms=0)
        offset += last - first + 1
    producer = states.get(PRODUCER_ID)
    assert isinstance(producer, Producer)
    if not given["recent"]:
        producer.recent.clear()
    return states


def _header(when: dict[str, Any]):
    count = when["last_seq"] - when["first_seq"] + 1
    content = build(
        [NewRecord(None, b"")] * count, timestamp_ms=0, producer=(PRODUCER_ID, when["epoch"], when["first_seq"])
    )
    return next(batches(content))


def _name(verdict: Verdict) -> str:
    match verdict:
        case Append():
            return "APPEND"
        case Duplicate():
            return "DUPLICATE"
        case Error():
            return verdict.name
