"""Each promise beside the mutant that breaks it: the product keeps it, the mutant does not."""

from pathlib import Path

import pytest

from replog.broker.partition import Partition
from replog.coordinators.classic_group import GroupSettings
from replog.coordinators.group_coordinator import GroupCoordinator
from replog.coordinators.transaction import State, Transaction, transaction_entry
from replog.coordinators.transaction_coordinator import TransactionCoordinator, TransactionSettings
from replog.errors import Error
from replog.log.batch import TRANSACTIONAL, end_transaction_marker
from replog.log.log import Appended
from replog.log.validation import Origin
from replog.types import TopicPartition
from replog.wire.messages.init_producer_id import InitProducerIdRequest
from replog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from replog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.cases.replicas import NOW_MS, PRODUCER_ID, WALL_MS, a_log, a_replica, apply_metadata, record_batch, state
from tests.coordinators.driving import NOW, AllTopics, Driver, new_ids
from tribunal.harness.switches import switched_on

# --- M77 -------------------------------------------------------------------------------------


def a_verifying_leader(folder: Path) -> Partition:
    replica = a_replica(a_log(folder, end=0, epochs=[]))
    replica.verifies_transactions = True
    apply_metadata(replica, state(leader=1, isr=[1]))
    return replica


def append(replica: Partition, batch: bytes, guard: int | None, origin: Origin = Origin.CLIENT) -> Appended | Error:
    return replica.append(batch, acks=-1, now_ms=NOW_MS, wall_ms=WALL_MS, origin=origin, guard=guard)[0]


def first_batch(sequence: int = 0) -> bytes:
    return record_batch(0, 0, producer=(PRODUCER_ID, 0, sequence), attributes=TRANSACTIONAL)


def end_marker() -> bytes:
    return end_transaction_marker(
        producer_id=PRODUCER_ID, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=WALL_MS
    )


def test_a_transaction_begins_with_the_coordinators_word_only(tmp_path: Path) -> None:
    replica = a_verifying_leader(tmp_path)

    assert append(replica, first_batch(), None) is Error.INVALID_TXN_STATE
    wanted = replica.unverified(first_batch(), now_ms=NOW_MS)
    assert wanted is not None
    assert isinstance(append(replica, first_batch(), wanted[1]), Appended)
    assert replica.unverified(first_batch(1), now_ms=NOW_MS) is None  # it is open now
    assert isinstance(append(replica, first_batch(1), None), Appended)


def test_a_marker_between_question_and_append_voids_the_answer(tmp_path: Path) -> None:
    """KAFKA-18575: the coordinator said yes, then the transaction ended."""
    replica = a_verifying_leader(tmp_path)
    wanted = replica.unverified(first_batch(), now_ms=NOW_MS)
    assert wanted is not None

    assert isinstance(append(replica, end_marker(), None, Origin.COORDINATOR), Appended)

    assert append(replica, first_batch(), wanted[1]) is Error.INVALID_TXN_STATE
    assert replica.log.producers.open_transactions == []


@pytest.mark.parametrize(
    ("is_of_protocol_2", "sequence", "is_taken"),
    [
        pytest.param(True, 0, True, id="the first of its transaction"),
        pytest.param(True, 1, False, id="another one"),
        pytest.param(False, 1, True, id="sequences go on from transaction to transaction"),
    ],
)
def test_what_a_forgotten_producer_begins_with(
    tmp_path: Path, is_of_protocol_2: bool, sequence: int, is_taken: bool
) -> None:
    """KAFKA-18202: the first half of its transaction was aborted by a leader that recovered, the second one must not be taken alone."""
    replica = a_verifying_leader(tmp_path)
    begun = replica.unverified(first_batch(), now_ms=NOW_MS)
    assert begun is not None
    append(replica, first_batch(), begun[1])
    append(replica, end_marker(), None, Origin.COORDINATOR)
    assert replica.log.expire_producers(WALL_MS + replica.log.settings.producer_expiration_ms) == [PRODUCER_ID]

    again = replica.unverified(first_batch(sequence), now_ms=NOW_MS, is_of_protocol_2=is_of_protocol_2)
    assert again is not None
    outcome = append(replica, first_batch(sequence), again[1])

    assert isinstance(outcome, Appended) if is_taken else outcome is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_waits_for_the_one_before_it_that_its_coordinator_was_asked_about_in_vain(tmp_path: Path) -> None:
    """KAFKA-14920: the first one is sent again, and would be out of order for ever."""
    replica = a_verifying_leader(tmp_path)
    first = replica.unverified(first_batch(), now_ms=NOW_MS)
    second = replica.unverified(first_batch(1), now_ms=NOW_MS)
    assert first is not None
    assert second is not None

    assert append(replica, first_batch(1), second[1]) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(append(replica, first_batch(), first[1]), Appended)
    assert isinstance(append(replica, first_batch(1), None), Appended)


def test_who_never_gets_its_coordinators_word_is_forgotten_in_the_end(tmp_path: Path) -> None:
    """Each producer id that was tried in vain stayed until the leadership ended."""
    replica = a_verifying_leader(tmp_path)
    wanted = replica.unverified(first_batch(), now_ms=NOW_MS)
    assert wanted is not None
    expiration_ms = replica.log.settings.producer_expiration_ms

    replica.expire_producers(now_ms=NOW_MS + expiration_ms - 1, wall_ms=WALL_MS)
    assert replica.verifications.holds(PRODUCER_ID, wanted[1])

    replica.expire_producers(now_ms=NOW_MS + expiration_ms, wall_ms=WALL_MS)
    assert not replica.verifications.holds(PRODUCER_ID, wanted[1])


def test_a_later_epoch_begins_anew(tmp_path: Path) -> None:
    replica = a_verifying_leader(tmp_path)
    replica.unverified(first_batch(), now_ms=NOW_MS)
    later = record_batch(0, 0, producer=(PRODUCER_ID, 1, 5), attributes=TRANSACTIONAL)
    begun = replica.unverified(later, now_ms=NOW_MS)
    assert begun is not None

    assert isinstance(append(replica, later, begun[1]), Appended)


def test_m77_lets_a_late_batch_open_a_transaction_that_nobody_ends(tmp_path: Path) -> None:
    with switched_on(("m77_no_verify",)):
        replica = a_verifying_leader(tmp_path)
        append(replica, end_marker(), None, Origin.COORDINATOR)

        append(replica, first_batch(), None)

        assert len(replica.log.producers.open_transactions) == 1


# --- M78 -------------------------------------------------------------------------------------


def markers_after_fail_over() -> int:
    """Load a coordinator from a log that ends with a decision; return how many partitions get a marker."""
    decided = Transaction(
        transactional_id="t",
        producer_id=7,
        producer_epoch=0,
        timeout_ms=60_000,
        state=State.PREPARE_COMMIT,
        last_update_ms=NOW.wall_ms,
        partitions=(TopicPartition("a", 0), TopicPartition("b", 1)),
        start_ms=NOW.wall_ms,
    )
    driver = Driver(TransactionCoordinator(TransactionSettings(), lambda: 1))
    entry = transaction_entry(decided)
    driver.core.replay(entry.key, entry.value, 0, None)
    driver.perform(driver.core.on_loaded(NOW))
    return sum(len(markers.partitions) for markers in driver.markers)


def test_a_decision_is_carried_out_by_the_next_coordinator() -> None:
    assert markers_after_fail_over() == 2


def test_m78_leaves_the_decision_lying() -> None:
    with switched_on(("m78_no_resume",)):
        assert markers_after_fail_over() == 0


# --- M80 -------------------------------------------------------------------------------------


def epochs_of_two_producers() -> tuple[int, int]:
    driver = Driver(TransactionCoordinator(TransactionSettings(), lambda: 7))
    body = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    first, second = driver.ask(body), driver.ask(body)
    assert first.producer_id == second.producer_id == 7
    return first.producer_epoch, second.producer_epoch


def test_the_second_producer_of_an_id_has_a_later_epoch() -> None:
    assert epochs_of_two_producers() == (0, 1)


def test_m80_gives_both_the_same() -> None:
    with switched_on(("m80_no_fence",)):
        assert epochs_of_two_producers() == (0, 0)


# --- M84 -------------------------------------------------------------------------------------


def commit_of_the_generation_before() -> Error:
    settings = GroupSettings(initial_rebalance_delay_ms=0)
    driver = Driver(GroupCoordinator(settings, AllTopics(), new_ids(), expiry_interval_ms=10**9))
    join = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range")],
    }
    first = driver.ask(JoinGroupRequest(**join), version=3)
    driver.send(JoinGroupRequest(**join), version=3)
    driver.send(JoinGroupRequest(**join, member_id=first.member_id), version=3)  # begins the next generation
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    body = OffsetCommitRequest(
        group_id="g",
        member_id=first.member_id,
        generation_id_or_member_epoch=first.generation_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[asked])],
    )
    answer: Error = driver.ask(body).topics[0].partitions[0].error_code
    return answer


def test_a_commit_of_an_older_generation_is_refused() -> None:
    assert commit_of_the_generation_before() is Error.ILLEGAL_GENERATION


def test_m84_takes_it() -> None:
    with switched_on(("m84_no_generation",)):
        assert commit_of_the_generation_before() is Error.NONE
