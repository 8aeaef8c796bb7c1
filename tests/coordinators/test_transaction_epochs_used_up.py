"""What a producer is answered at the end of its epochs, where the next transaction has a new producer id (KIP-890)."""

import struct
from itertools import count

import pytest

from replog.coordinators.events import MarkersWritten
from replog.coordinators.transaction import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    PROTOCOL_2,
    State,
    Transaction,
    transaction_entry,
)
from replog.coordinators.transaction_coordinator import TransactionCoordinator, TransactionSettings
from replog.errors import Error
from replog.types import TopicPartition
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from replog.wire.messages.end_txn import EndTxnRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.coordinators.driving import NOW, Driver

OLD_ID, NEW_ID = 7, 100


def a_transaction(state: State, epoch: int) -> Driver:
    """A coordinator that loads an id in this state and epoch."""
    known = Transaction(
        transactional_id="t",
        producer_id=OLD_ID,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        last_update_ms=NOW.wall_ms,
        partitions=(TopicPartition("a", 0),) if state is State.ONGOING else (),
        start_ms=NOW.wall_ms,
        protocol=PROTOCOL_2,
    )
    ids = count(NEW_ID)
    driver = Driver(TransactionCoordinator(TransactionSettings(), lambda: next(ids)))
    entry = transaction_entry(known)
    driver.core.replay(entry.key, entry.value, 0, None)
    driver.perform(driver.core.on_loaded(NOW))
    return driver


def add(producer_id: int, epoch: int) -> AddPartitionsToTxnTransaction:
    topics = [AddPartitionsToTxnTopic(name="a", partitions=[0])]
    return AddPartitionsToTxnTransaction(
        transactional_id="t", producer_id=producer_id, producer_epoch=epoch, topics=topics
    )


def added(driver: Driver, producer_id: int, epoch: int) -> Error:
    return Error(driver.ask(add(producer_id, epoch)).topic_results[0].results_by_partition[0].partition_error_code)


def end(producer_id: int, epoch: int, *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(transactional_id="t", producer_id=producer_id, producer_epoch=epoch, committed=committed)


def init(producer_id: int, epoch: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
    )


def markers_written(driver: Driver) -> None:
    for markers in driver.markers:
        done = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
        driver.perform(driver.core.on_markers_written(done, driver.now))


def test_the_next_producer_id_waits_for_the_markers_of_the_last() -> None:
    """It was given out with the decision: who comes with it is early, not unknown."""
    driver = a_transaction(State.ONGOING, EPOCH_EXHAUSTED)
    ended = driver.ask(end(OLD_ID, EPOCH_EXHAUSTED))
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (Error.NONE, NEW_ID, 0)

    assert added(driver, NEW_ID, 0) is Error.CONCURRENT_TRANSACTIONS
    assert driver.ask(end(NEW_ID, 0, committed=False)).error_code is Error.CONCURRENT_TRANSACTIONS
    assert driver.ask(init(NEW_ID, 0)).error_code is Error.CONCURRENT_TRANSACTIONS
    assert added(driver, NEW_ID, 1) is Error.INVALID_PRODUCER_ID_MAPPING
    markers_written(driver)

    assert added(driver, NEW_ID, 0) is Error.NONE
    assert added(driver, OLD_ID, EPOCH_EXHAUSTED) is Error.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("state", [State.COMPLETE_ABORT, State.EMPTY])
def test_the_last_epoch_is_nobodys(state: State) -> None:
    """Aborted by time, the transaction went to the epoch that is kept for fencing: nothing comes behind it."""
    driver = a_transaction(state, EPOCH_MAX)

    assert driver.ask(end(OLD_ID, EPOCH_EXHAUSTED, committed=False)).error_code is Error.PRODUCER_FENCED


def test_who_was_fenced_is_not_taken_for_a_retry() -> None:
    driver = a_transaction(State.COMPLETE_COMMIT, 4)
    assert driver.ask(init(-1, -1)).producer_epoch == 5

    assert driver.ask(end(OLD_ID, 4)).error_code is Error.PRODUCER_FENCED


def test_whose_transaction_was_aborted_by_time_is_fenced_when_it_commits() -> None:
    """KAFKA-20785: clients take INVALID_TXN_STATE for a mistake of their own, and end; PRODUCER_FENCED lets them begin again."""
    driver = a_transaction(State.ONGOING, 4)
    driver.pass_time(60_000 + 2 * driver.core.settings.scan_interval_ms)
    markers_written(driver)

    assert driver.ask(end(OLD_ID, 4)).error_code is Error.PRODUCER_FENCED


def test_who_aborts_what_it_has_committed_has_made_a_mistake() -> None:
    driver = a_transaction(State.ONGOING, 4)
    assert driver.ask(end(OLD_ID, 4)).error_code is Error.NONE
    markers_written(driver)

    assert driver.ask(end(OLD_ID, 4, committed=False)).error_code is Error.INVALID_TXN_STATE
    assert driver.ask(end(OLD_ID, 4)).error_code is Error.NONE


def test_who_ends_without_a_new_epoch_has_markers_without_one() -> None:
    """A producer may add by writing and end by the former protocol; its markers do not raise the epoch."""
    driver = a_transaction(State.ONGOING, 4)
    assert driver.send(end(OLD_ID, 4), version=4) in driver.replies

    assert [(sent.producer_epoch, sent.transaction_version) for sent in driver.markers] == [(4, 0)]


@pytest.mark.parametrize("state", [State.COMPLETE_ABORT, State.EMPTY])
def test_nobody_ends_a_transaction_in_the_last_epoch(state: State) -> None:
    """It was given to nobody, and there is no next one: counting on from it ended the broker."""
    driver = a_transaction(state, EPOCH_MAX)

    assert driver.ask(end(OLD_ID, EPOCH_MAX, committed=False)).error_code is Error.PRODUCER_FENCED
    assert added(driver, OLD_ID, EPOCH_MAX) is Error.PRODUCER_FENCED
    assert driver.ask(init(-1, -1)).producer_id == NEW_ID


def test_a_step_that_no_record_holds_is_not_under_way() -> None:
    """Whatever is made of the exception: the id goes on as it was, and does not wait for ever for a write that nobody made."""
    driver = a_transaction(State.ONGOING, 4)
    beyond = [AddPartitionsToTxnTopic(name="a", partitions=[1 << 31])]  # which no decoder hands over
    body = AddPartitionsToTxnTransaction(transactional_id="t", producer_id=OLD_ID, producer_epoch=4, topics=beyond)

    with pytest.raises(struct.error):
        driver.send(body)

    assert driver.ask(end(OLD_ID, 4)).error_code is Error.NONE
