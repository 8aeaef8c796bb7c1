"""Family transactions: the coordinator's state machine, end markers at partitions, last stable offset (SPEC 4.2)."""

from typing import Any

import pytest

from replog.coordinators.coordinated_partitions import CoordinatedPartition, CoordinatedPartitions
from replog.coordinators.events import MarkersWritten
from replog.coordinators.transaction import State, Transaction
from replog.coordinators.transaction_coordinator import Slot, TransactionCoordinator, TransactionSettings
from replog.errors import Error
from replog.log.batch import (
    TRANSACTIONAL,
    BatchHeader,
    NewRecord,
    batches,
    build,
    end_transaction,
    end_transaction_marker,
)
from replog.log.producers import Append, ProducerStates
from replog.types import TopicPartition
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from replog.wire.messages.end_txn import EndTxnRequest
from replog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.cases.cases import load, only
from tests.cases.replicas import PRODUCER_ID
from tests.coordinators.driving import NOW, Driver

GIVEN = {"state", "producer_id", "epoch", "role", "pending", "partitions", "partition", "hwm", "open"}
WHEN = {
    *("api", "event", "check", "commit", "producer_id", "epoch", "txn_id", "partitions"),
    *("producer_epoch", "coordinator_epoch", "transactional"),
}
THEN = {"error", "state", "epoch", "fenced_epoch", "new_producer_id", "sends", "partitions", "lso"}
STATES = {state.words: state for state in State}
NEW_PRODUCER_ID = 1000


@pytest.mark.parametrize("case", load("transactions"))
def test_transactions(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], THEN, "then")

    if "partition" in given:
        answer = _at_partition(given["partition"], when)
    elif "check" in when:
        answer = _checked(given, when["check"])
    else:
        answer = _at_coordinator(given, when)

    assert {name: answer[name] for name in then} == then


# --- coordinator -----------------------------------------------------------------------------


def _at_coordinator(given: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    coordinated_partitions = _coordinated(given)
    found = coordinated_partitions.find(0)
    if isinstance(found, Error):
        return {"error": found.name}
    driver = Driver(found.core)
    answer = _event(driver, given, when) if "event" in when else _asked(driver, when)
    known = driver.core.slots["t"].known
    return answer | {
        "state": known.state.words,
        "epoch": known.producer_epoch,
        "fenced_epoch": known.producer_epoch,
        "new_producer_id": known.producer_id == NEW_PRODUCER_ID and given.get("producer_id") is not None,
        "partitions": [str(partition) for partition in known.partitions],
        "sends": "markers again" if driver.markers else None,
    }


def _coordinated(given: dict[str, Any]) -> CoordinatedPartitions[TransactionCoordinator]:
    coordinated_partitions: CoordinatedPartitions[TransactionCoordinator] = CoordinatedPartitions()
    assert given.get("role", "coordinator") in ("coordinator", "none")
    if given.get("role") == "none":
        return coordinated_partitions
    core = TransactionCoordinator(TransactionSettings(), lambda: NEW_PRODUCER_ID)
    coordinated = CoordinatedPartition(0, 0, core)
    coordinated.is_loaded = True
    coordinated_partitions.take(coordinated)
    if given.get("state") is not None:
        core.slots["t"] = _slot(given)
    return coordinated_partitions


def _slot(given: dict[str, Any]) -> Slot:
    state = STATES[given["state"]]
    has_partitions = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    names = given.get("partitions", ["a-0"] if has_partitions else [])
    slot = Slot(
        Transaction(
            transactional_id="t",
            producer_id=given["producer_id"],
            producer_epoch=given["epoch"],
            timeout_ms=60_000,
            state=state,
            last_update_ms=NOW.wall_ms,
            partitions=tuple(_partition(name) for name in names),
            start_ms=NOW.wall_ms,
        )
    )
    if "pending" in given:
        assert slot.known is not None
        assert given["pending"] == "PrepareAbort"
        slot.next = slot.known.prepared(NOW.wall_ms, committed=False)
    return slot


def _partition(name: str) -> TopicPartition:
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, int(index))


def _event(driver: Driver, given: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    match when["event"]:
        case "load":
            driver.perform(driver.core.on_loaded(NOW))
        case "markers_done":
            done = MarkersWritten("t", given["producer_id"], given["epoch"])
            driver.perform(driver.core.on_markers_written(done, NOW))
        case event:
            raise AssertionError(event)
    return {}


def _asked(driver: Driver, when: dict[str, Any]) -> dict[str, Any]:
    match when["api"]:
        case "end_txn":
            body = EndTxnRequest(
                transactional_id="t",
                producer_id=when["producer_id"],
                producer_epoch=when["epoch"],
                committed=when["commit"],
            )
            return {"error": driver.ask(body, version=3).error_code.name}
        case "init_producer_id":
            body = InitProducerIdRequest(transactional_id=when["txn_id"], transaction_timeout_ms=60_000)
            return {"error": driver.ask(body, version=4).error_code.name}
        case "add_partitions":
            topics = [AddPartitionsToTxnTopic(name="a", partitions=[0])]
            assert when["partitions"] == ["a-0"]
            body = AddPartitionsToTxnTransaction(
                transactional_id="t", producer_id=7, producer_epoch=when["epoch"], topics=topics
            )
            result = driver.ask(body, version=3).topic_results[0].results_by_partition[0]
            return {"error": result.partition_error_code.name}
        case api:
            raise AssertionError(api)


# --- partition -------------------------------------------------------------------------------


def _at_partition(partition: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    only(partition, {"producer_epoch", "coordinator_epoch", "ongoing"}, "partition")
    states = ProducerStates()
    if partition.get("ongoing"):
        states.update(_data(when["epoch"], 0, transactional=True), 0, now_ms=0)
        verdict = states.check(_data(when["epoch"], 1, transactional=when["transactional"]))
        assert when["api"] == "produce"
        return {"error": "NONE" if isinstance(verdict, Append) else verdict.name}
    header, marker = _marker(partition["producer_epoch"], partition["coordinator_epoch"])
    states.end_transaction(header, marker, 0, 0)
    assert when["api"] == "write_marker"
    return {"error": states.check_marker(PRODUCER_ID, when["producer_epoch"], when["coordinator_epoch"]).name}


def _data(epoch: int, sequence: int, *, transactional: bool) -> BatchHeader:
    content = build(
        [NewRecord(None, b"")],
        timestamp_ms=0,
        producer=(PRODUCER_ID, epoch, sequence),
        attributes=TRANSACTIONAL if transactional else 0,
    )
    return next(batches(content))


def _marker(epoch: int, coordinator_epoch: int) -> Any:
    content = end_transaction_marker(
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        committed=True,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=0,
    )
    header = next(batches(content))
    return header, end_transaction(content, header)


def _checked(given: dict[str, Any], check: str) -> dict[str, Any]:
    assert check == "lso"
    states = ProducerStates()
    for index, offset in enumerate(sorted(given["open"])):
        content = build(
            [NewRecord(None, b"")], timestamp_ms=0, producer=(PRODUCER_ID + index, 0, 0), attributes=TRANSACTIONAL
        )
        states.update(next(batches(content)), offset, now_ms=0)
    unstable = states.first_unstable_offset(given["hwm"])
    return {"lso": given["hwm"] if unstable is None else min(unstable, given["hwm"])}
