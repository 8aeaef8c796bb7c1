"""An operator's orders: asked until an answer stands, and what is known of attempts that nobody answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from replog.errors import Error
from replog.wire.exchange import Exchange, Q, R
from replog.wire.messages import delete_records as dr
from replog.wire.messages import delete_topics as dt
from tribunal.clusters.api import ClusterError, Refused, TopicPartition
from tribunal.clusters.clients import operator_requests as requests
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.clients.operating import Operating
from tribunal.clusters.values import NotAsked, Unanswered

DONE, REFUSED, PASSING = Error.NONE, Error.TOPIC_DELETION_DISABLED, Error.NOT_CONTROLLER
SILENT, UNREACHABLE = Unanswered("silent"), NotAsked("down")


class Broker:
    """Gives these answers, one after another; implements `Asker`."""

    def __init__(self, *answers: Error | ClusterError) -> None:
        self._answers = list(answers)

    async def ask_once(self, exchange: Exchange[Q, R], version: int, body: Q, node: int | None) -> R:
        answer = self._answers.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        found: Any = dt.DeleteTopicsResponse(responses=[dt.DeletableTopicResult(name="t", error_code=answer)])
        result: R = found
        return result

    async def brokers(self) -> list[int]:
        return [1]

    async def close(self) -> None:
        """Release nothing."""


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[bool]]:
    monkeypatch.setattr("tribunal.clusters.clients.operating.RETRY_MS", 0)

    async def delete(*answers: Error | ClusterError) -> bool:
        operator = Operating(Broker(*answers))
        await operator.delete_topic("t")
        return operator.left_in_doubt

    return delete


@pytest.mark.parametrize(("answers", "left_in_doubt"), [
    pytest.param([DONE], False, id="at once"),
    pytest.param([UNREACHABLE, PASSING, DONE], False, id="nothing was done before"),
    pytest.param([SILENT, DONE], True, id="somebody was silent before"),
])  # fmt: skip
def test_an_attempt_that_nobody_answered_stays_in_doubt(
    deleted: Callable[..., Any], answers: list[Error | ClusterError], left_in_doubt: bool
) -> None:
    assert asyncio.run(deleted(*answers)) is left_in_doubt


@pytest.mark.parametrize(("answers", "is_refused"), [
    pytest.param([REFUSED], True, id="at once"),
    pytest.param([UNREACHABLE, REFUSED], True, id="nobody was asked before"),
    pytest.param([Error.BROKER_NOT_AVAILABLE, REFUSED], True, id="nobody took it before"),
    pytest.param([SILENT, REFUSED], False, id="an attempt before may have done it"),
    pytest.param([PASSING, REFUSED], False, id="who was deposed before may have done it"),
    pytest.param([Error.UNKNOWN_TOPIC_OR_PARTITION], False, id="a broker may have asked twice"),
])  # fmt: skip
def test_a_refusal_is_sure_only_if_nothing_was_in_doubt_before(
    deleted: Callable[..., Any], answers: list[Error | ClusterError], is_refused: bool
) -> None:
    with pytest.raises(ClusterError) as raised:
        asyncio.run(deleted(*answers))

    assert isinstance(raised.value, Refused) is is_refused


def deletion(error: Error) -> dt.DeleteTopicsResponse:
    return dt.DeleteTopicsResponse(responses=[dt.DeletableTopicResult(name="t", error_code=error)])


@pytest.mark.parametrize(("attempts", "left_in_doubt"), [
    pytest.param([(deletion(DONE), True)], False, id="at once"),
    pytest.param([(None, True), (deletion(PASSING), True), (deletion(DONE), True)], False, id="nothing was done before"),
    pytest.param([(deletion(DONE), False)], True, id="another broker was silent"),
    pytest.param([(None, False), (deletion(DONE), True)], True, id="all were silent before"),
    pytest.param([(deletion(Error.REQUEST_TIMED_OUT), True), (deletion(DONE), True)], True, id="timed out before"),
])  # fmt: skip
def test_who_injects_a_fault_knows_of_an_order_that_may_be_carried_out_once_more(
    monkeypatch: pytest.MonkeyPatch, attempts: list[tuple[dt.DeleteTopicsResponse | None, bool]], left_in_doubt: bool
) -> None:
    async def ask_any(*_: object) -> tuple[dt.DeleteTopicsResponse | None, bool]:
        return next(coming)

    monkeypatch.setattr("tribunal.clusters.clients.administration.RETRY_MS", 0)
    monkeypatch.setattr(Administration, "_ask_any", ask_any)
    administration, coming = Administration(dict), iter(attempts)

    asyncio.run(administration.insist(dt.EXCHANGE, 6, requests.deletion("t", 1), requests.deletion_errors))

    assert administration.left_in_doubt is left_in_doubt


@pytest.mark.parametrize(("attempts", "is_refused"), [
    pytest.param([(deletion(REFUSED), True)], True, id="at once"),
    pytest.param([(None, True), (deletion(REFUSED), True)], True, id="nobody was asked before"),
    pytest.param([(deletion(PASSING), True), (deletion(REFUSED), True)], False, id="who was deposed before may have done it"),
])  # fmt: skip
def test_who_injects_a_fault_takes_no_refusal_for_sure_after_somebody_was_deposed(
    monkeypatch: pytest.MonkeyPatch, attempts: list[tuple[dt.DeleteTopicsResponse | None, bool]], is_refused: bool
) -> None:
    async def ask_any(*_: object) -> tuple[dt.DeleteTopicsResponse | None, bool]:
        return next(coming)

    monkeypatch.setattr("tribunal.clusters.clients.administration.RETRY_MS", 0)
    monkeypatch.setattr(Administration, "_ask_any", ask_any)
    administration, coming = Administration(dict), iter(attempts)

    with pytest.raises(ClusterError) as raised:
        asyncio.run(administration.insist(dt.EXCHANGE, 6, requests.deletion("t", 1), requests.deletion_errors))

    assert isinstance(raised.value, Refused) is is_refused


@pytest.mark.parametrize(("error", "is_refused"), [
    pytest.param(Error.NOT_LEADER_OR_FOLLOWER, False, id="deposed while followers followed"),
    pytest.param(Error.LEADER_NOT_AVAILABLE, True, id="nobody leads"),
])  # fmt: skip
def test_records_may_be_gone_where_the_leader_was_deposed_while_it_deleted_them(
    monkeypatch: pytest.MonkeyPatch, error: Error, is_refused: bool
) -> None:
    monkeypatch.setattr("tribunal.clusters.clients.operating.RETRY_MS", 0)

    class Leader(Broker):
        async def ask_once(self, exchange: Exchange[Q, R], version: int, body: Q, node: int | None) -> R:
            found: Any = dr.DeleteRecordsResponse(topics=[dr.DeleteRecordsTopicResult(name="t", partitions=[
                dr.DeleteRecordsPartitionResult(partition_index=0, low_watermark=-1, error_code=next(codes))
            ])])  # fmt: skip
            result: R = found
            return result

    async def leader(*_: object) -> int:
        return 1

    codes = iter([error, Error.OFFSET_OUT_OF_RANGE])
    monkeypatch.setattr(Operating, "_leader", leader)

    with pytest.raises(ClusterError) as raised:
        asyncio.run(Operating(Leader()).delete_records(TopicPartition("t", 0), 7))

    assert isinstance(raised.value, Refused) is is_refused
