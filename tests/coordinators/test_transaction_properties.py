"""Whatever producers do, and however slow or full the log is: transactions move along the allowed edges only."""

from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replog.coordinators.events import MarkersWritten, NotWritten
from replog.coordinators.transaction import BEFORE, PREPARED, State, Transaction, decode
from replog.coordinators.transaction_coordinator import TransactionCoordinator, TransactionSettings
from replog.errors import Error
from replog.types import TopicPartition
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from replog.wire.messages.end_txn import EndTxnRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.coordinators.driving import NOW, Driver

PRODUCERS = st.integers(0, 1)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), PRODUCERS),
        *[st.tuples(st.just("add"), PRODUCERS, st.integers(0, 2))] * 2,
        *[st.tuples(st.just("end"), PRODUCERS, st.booleans())] * 2,
        st.tuples(st.just("markers"), st.just(0)),
        st.tuples(st.just("time"), st.sampled_from([100, 10_000, 70_000])),
        st.tuples(st.sampled_from(["hold", "release", "refuse", "fail_over"]), st.just(0)),
    ),
    min_size=10,
    max_size=60,
)


class Producer:
    """A client with the id and epoch that it was last given."""

    def __init__(self) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.asking: int | None = None


class World:
    """One transactional id, two producers that want it, and a log that is replayed at fail-overs."""

    def __init__(self, version: int) -> None:
        self.end_version = version
        self.ids = count(100)
        self.producers = [Producer(), Producer()]
        self.driver = Driver(self._core())

    def _core(self) -> TransactionCoordinator:
        return TransactionCoordinator(TransactionSettings(), lambda: next(self.ids))

    def step(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("init", number):
                self._init(self.producers[number])
            case ("add", number, partition):
                self._add(self.producers[number], partition)
            case ("end", number, committed):
                self._end(self.producers[number], committed=committed)
            case ("markers", _):
                self._markers_written()
            case ("time", duration_ms):
                self.driver.pass_time(duration_ms)
            case ("hold", _):
                self.driver.hold()
            case ("release", _):
                self.driver.release()
            case ("refuse", _):
                self._refuse_held()
            case ("fail_over", _):
                self._fail_over()
        for producer in self.producers:
            self._look(producer)

    def _init(self, producer: Producer) -> None:
        body = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        producer.asking = self.driver.send(body, version=4)

    def _look(self, producer: Producer) -> None:
        answer = self.driver.replies.pop(producer.asking or -1, None)
        if answer is not None and answer.error_code is Error.NONE and answer.producer_id >= 0:
            producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch

    def _add(self, producer: Producer, partition: int) -> None:
        body = AddPartitionsToTxnTransaction(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[AddPartitionsToTxnTopic(name="a", partitions=[partition])],
        )
        self.driver.send(body, version=3)

    def _end(self, producer: Producer, *, committed: bool) -> None:
        body = EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        producer.asking = self.driver.send(body, version=self.end_version)

    def _markers_written(self) -> None:
        sent, self.driver.markers = self.driver.markers, []
        for markers in sent:
            done = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
            self.driver.perform(self.driver.core.on_markers_written(done, self.driver.now))

    def _refuse_held(self) -> None:
        held, self.driver.held = self.driver.held or [], None
        for write in held:
            self.driver.log.remove(write)
        for write in held:
            refused = NotWritten(write.ticket, Error.NOT_ENOUGH_REPLICAS)
            self.driver.perform(self.driver.core.on_not_written(refused, self.driver.now))

    def _fail_over(self) -> None:
        """Load a new coordinator from what is in the log; the former one's unfinished business is lost."""
        self.driver.held, self.driver.markers = None, []
        self.driver.core = self._core()
        for write in self.driver.log:
            for entry in write.entries:
                self.driver.core.replay(entry.key, entry.value, 0, None)
        self.driver.perform(self.driver.core.on_loaded(self.driver.now))

    def stored(self) -> list[Transaction]:
        records = [decode(entry.key, entry.value) for write in self.driver.log for entry in write.entries]
        return [record[1] for record in records if record is not None and record[1] is not None]

    def check(self) -> None:
        """Look at the log as the next coordinator would."""
        known = Transaction(
            transactional_id="t",
            producer_id=-1,
            producer_epoch=-1,
            timeout_ms=0,
            state=State.EMPTY,
            last_update_ms=NOW.wall_ms,
        )
        for following in self.stored():
            # A fence is never stored by itself: it is on the way to the abort.
            via_fence = known.state in BEFORE[State.PREPARE_EPOCH_FENCE] and following.state is State.PREPARE_ABORT
            assert known.state in BEFORE[following.state] or via_fence, (known, following)
            if following.producer_id == known.producer_id:
                assert following.producer_epoch >= known.producer_epoch
            if following.state in PREPARED and known.state is State.ONGOING:
                assert following.partitions == known.partitions
            known = following


@settings(max_examples=150, deadline=None)
@given(EVENTS, st.sampled_from([4, 5]))
def test_only_allowed_edges_are_ever_stored(events: list[tuple[Any, ...]], version: int) -> None:
    world = World(version)
    for event in events:
        world.step(event)
        world.check()


@settings(max_examples=80, deadline=None)
@given(EVENTS, st.sampled_from([4, 5]))
def test_whatever_was_decided_is_completed_after_a_fail_over(events: list[tuple[Any, ...]], version: int) -> None:
    world = World(version)
    for event in events:
        world.step(event)
    world.step(("fail_over", 0))
    for _ in range(4):
        world.step(("time", 80_000))
        world.step(("markers", 0))

    newest = world.stored()[-1:]
    assert all(transaction.state not in (State.ONGOING, *PREPARED) for transaction in newest)


def test_a_partition_is_named_once() -> None:
    world = World(4)
    world.step(("init", 0))
    world.step(("add", 0, 1))
    world.step(("add", 0, 1))

    assert [transaction.partitions for transaction in world.stored()] == [(), (TopicPartition("a", 1),)]
