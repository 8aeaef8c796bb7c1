"""Waiting requests: never answered early, never twice, always in order."""

from replog.broker.purgatory import BUCKET_MS, Deadlines, DelayedProduce, ProduceQueue, ProduceResult
from replog.errors import Error
from replog.wire.messages.produce import TopicProduceData

TOPIC = TopicProduceData(name="t")


def waiting(last_offset: int) -> ProduceResult:
    return ProduceResult(TOPIC, 0, None, last_offset=last_offset)


def a_produce(*results: ProduceResult, deadline_ms: int = 1000) -> DelayedProduce:
    return DelayedProduce(list(results), deadline_ms, lambda _: None)


def test_a_produce_is_complete_when_its_last_partition_is() -> None:
    first, second = waiting(5), waiting(7)
    op = a_produce(first, second)
    left, right = ProduceQueue(), ProduceQueue()
    left.add(op, first)
    right.add(op, second)

    assert left.complete_ready(lambda _: Error.NONE) == []
    assert right.complete_ready(lambda _: Error.NONE) == [op]


def test_only_reached_offsets_are_completed_and_in_order() -> None:
    ops = [a_produce(waiting(offset)) for offset in (4, 2, 9)]
    queue = ProduceQueue()
    for op in ops:
        queue.add(op, op.results[0])

    done = queue.complete_ready(lambda offset: Error.NONE if offset < 5 else None)

    assert done == [ops[1], ops[0]]
    assert ops[2].results[0].error is None


def test_a_timed_out_produce_is_not_completed_again() -> None:
    op = a_produce(waiting(3))
    queue = ProduceQueue()
    queue.add(op, op.results[0])
    op.time_out()

    assert queue.complete_ready(lambda _: Error.NONE) == []
    assert op.results[0].error is Error.REQUEST_TIMED_OUT


def test_deadlines_come_out_in_order_and_never_early() -> None:
    deadlines: Deadlines[DelayedProduce] = Deadlines()
    late, soon, gone = (a_produce(deadline_ms=ms) for ms in (100, 10, 11))
    for op in (late, soon, gone):
        deadlines.add(op)
    deadlines.discard(gone)

    assert deadlines.expire(9) == []
    assert deadlines.expire(10 + BUCKET_MS) == [soon]
    assert deadlines.next_ms is not None
    assert deadlines.next_ms >= 100
    assert deadlines.expire(200) == [late]
    assert deadlines.next_ms is None
