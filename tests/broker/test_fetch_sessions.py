"""Incremental fetch sessions (KIP-227): who is asked about what, and what a replica claims without repeating it."""

from random import Random
from uuid import UUID

import pytest

from replog.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    LAST_EPOCH,
    Asked,
    FetchSession,
    FetchSessions,
    Key,
    Opened,
    SessionClient,
)
from replog.broker.fetcher import FetchSource, FetchState
from replog.broker.isr import Advance, BrokerView, Contact, LeaderState, PartitionState, Propose
from replog.errors import Error
from replog.types import BrokerEpoch, LeaderEpoch, LeaderRecoveryState, NodeId, PartitionEpoch, TopicPartition
from replog.wire.messages.fetch import FetchPartition
from tests.identities import an_identity

TOPIC = UUID(int=7)
CONSUMER, REPLICA = NodeId(-1), NodeId(2)


def wanted(*indexes: int, offset: int = 0) -> list[tuple[Key, FetchPartition]]:
    return [((TOPIC, index), FetchPartition(partition=index, fetch_offset=offset)) for index in indexes]


def keys(*indexes: int) -> list[Key]:
    return [(TOPIC, index) for index in indexes]


class Asker:
    """Opens sessions with little to say."""

    def __init__(self, slots: int = 10) -> None:
        self.sessions = FetchSessions(slots, Random(1))
        self.now_ms = 0

    def answer(self, session_id: int, epoch: int, *asked: int, forgotten: list[Key] | None = None, **more: object):
        fields = {"replica": CONSUMER, "uses_topic_ids": True, "offset": 0} | more
        offset = fields.pop("offset")
        return self.sessions.open(
            session_id=session_id,
            epoch=epoch,
            wanted=wanted(*asked, offset=offset),  # type: ignore[arg-type]
            forgotten=forgotten or [],
            now_ms=self.now_ms,
            **fields,  # type: ignore[arg-type]
        )

    def session(self, *asked: int, **more: object) -> FetchSession:
        opened = self.answer(0, INITIAL_EPOCH, *asked, **more)
        assert isinstance(opened, Opened)
        return opened.session


def test_a_session_remembers_what_is_not_repeated():
    asker = Asker()
    session = asker.session(0, 1, 2)
    for partition in list(session.due):
        partition.report(0, 0)
        partition.unmark()

    opened = asker.answer(session.session_id, 1, 1, offset=5)

    assert opened.session is session
    assert not opened.is_full
    assert [partition.key for partition in session.due] == keys(1)
    assert session.partitions[(TOPIC, 1)].wanted.fetch_offset == 5
    assert list(session.partitions) == keys(0, 1, 2)


def test_a_partition_that_moves_is_due_again():
    session = Asker().session(0, 1)
    for partition in list(session.due):
        partition.unmark()

    session.partitions[(TOPIC, 1)].mark()

    assert [partition.key for partition in session.due] == keys(1)


def test_epochs_count_up_and_begin_again_at_one():
    asker = Asker()
    session = asker.session(0)

    assert isinstance(asker.answer(session.session_id, 1), Opened)
    assert asker.answer(session.session_id, 1) is Error.INVALID_FETCH_SESSION_EPOCH
    assert asker.answer(session.session_id, 3) is Error.INVALID_FETCH_SESSION_EPOCH
    session.next_epoch = LAST_EPOCH
    assert isinstance(asker.answer(session.session_id, LAST_EPOCH), Opened)
    assert isinstance(asker.answer(session.session_id, 1), Opened)


def test_a_session_belongs_to_its_reader_and_its_way_of_naming_topics():
    asker = Asker()
    session = asker.session(0, replica=REPLICA)

    assert asker.answer(session.session_id + 1, 1, replica=REPLICA) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert asker.answer(session.session_id, 1, replica=CONSUMER) is Error.FETCH_SESSION_ID_NOT_FOUND
    opened = asker.answer(session.session_id, 1, replica=REPLICA, uses_topic_ids=False)
    assert opened is Error.FETCH_SESSION_TOPIC_ID_ERROR


def test_forgotten_partitions_leave_and_the_last_one_ends_the_session():
    asker = Asker()
    session = asker.session(0, 1)
    session_id = session.session_id

    first = asker.answer(session_id, 1, forgotten=keys(0, 9))
    last = asker.answer(session_id, 2, forgotten=keys(1))

    assert [partition.key for partition in first.dropped] == keys(0)
    assert list(last.session.partitions) == []
    assert last.session.session_id == 0
    assert asker.answer(session_id, 3) is Error.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("epoch", "has_session"),
    [pytest.param(INITIAL_EPOCH, True, id="a new one"), pytest.param(FINAL_EPOCH, False, id="none")],
)
def test_a_full_fetch_ends_the_session_it_names(epoch: int, has_session: bool):
    asker = Asker()
    session = asker.session(0)

    opened = asker.answer(session.session_id, epoch, 0, 1)

    assert opened.is_full
    assert (opened.session.session_id != 0) == has_session
    assert opened.ended == [session]
    assert [partition.key for partition in opened.dropped] == keys(0)
    assert asker.answer(session.session_id, 1) is Error.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("present", "newcomer", "after_ms", "displaces"),
    [
        pytest.param((1, CONSUMER), (1, CONSUMER), 1_000, False, id="in use"),
        pytest.param((1, CONSUMER), (9, CONSUMER), 1_000, False, id="young, whoever comes"),
        pytest.param((9, CONSUMER), (1, CONSUMER), 121_000, True, id="stale"),
        pytest.param((9, REPLICA), (1, CONSUMER), 121_000, True, id="stale, even a replica's"),
        pytest.param((2, CONSUMER), (3, CONSUMER), -121_000, True, id="old and smaller"),
        pytest.param((3, CONSUMER), (2, CONSUMER), -121_000, False, id="old and larger"),
        pytest.param((3, CONSUMER), (1, REPLICA), -121_000, True, id="old, a replica comes"),
        pytest.param((1, REPLICA), (9, CONSUMER), -121_000, False, id="a replica's in use"),
    ],
)
def test_who_makes_room_for_whom(
    present: tuple[int, NodeId], newcomer: tuple[int, NodeId], after_ms: int, displaces: bool
):
    """A negative time: the session was used until a moment ago."""
    asker = Asker(slots=1)
    first = asker.session(*range(present[0]), replica=present[1])
    asker.now_ms = abs(after_ms)
    if after_ms < 0:
        asker.answer(first.session_id, 1, replica=present[1])

    second = asker.session(*range(newcomer[0]), replica=newcomer[1])

    assert (second.session_id != 0) == displaces
    assert (first.session_id in asker.sessions.sessions) != displaces


def test_the_asking_side_names_only_what_changed():
    source = FetchSource(backoff_ms=100)
    offsets = dict.fromkeys(range(3), 0)
    for index in offsets:
        source.follow(TopicPartition("t", index), TOPIC, LeaderEpoch(1))

    def position(state: FetchState) -> FetchPartition:
        return FetchPartition(partition=state.name.partition, fetch_offset=offsets[state.name.partition])

    assert [state.name.partition for state, _ in source.question(position).wanted] == [0, 1, 2]
    source.session.answered(Asked(0, 0), Error.NONE, 77)
    offsets[1] = 5
    source.changed(TopicPartition("t", 1))
    source.changed(TopicPartition("t", 2))
    assert [state.name.partition for state, _ in source.question(position).wanted] == [1]
    source.session.answered(Asked(0, 1), Error.NONE, 77)
    source.forget(TopicPartition("t", 0))
    source.back_off(TopicPartition("t", 2), now_ms=0)
    assert source.question(position) == ([], keys(0, 2))
    source.session.answered(Asked(0, 2), Error.NONE, 77)
    assert source.is_due(100)
    assert [state.name.partition for state, _ in source.question(position).wanted] == [2]
    assert (source.session.session_id, source.session.epoch) == (77, 3)


def test_a_new_leader_epoch_is_named_again_and_the_old_ones_answer_does_not_count():
    source = FetchSource(backoff_ms=100)
    name = TopicPartition("t", 0)
    source.follow(name, TOPIC, LeaderEpoch(1))
    source.question(lambda state: FetchPartition(current_leader_epoch=state.leader_epoch))
    source.session.answered(Asked(0, 0), Error.NONE, 77)

    source.follow(name, TOPIC, LeaderEpoch(2))

    assert source.state_of((TOPIC, 0), name) is None
    question = source.question(lambda state: FetchPartition(current_leader_epoch=state.leader_epoch))
    assert [partition.current_leader_epoch for _, partition in question.wanted] == [2]
    assert question.forgotten == []
    assert source.state_of((TOPIC, 0), name) is source.states[name]


@pytest.mark.parametrize(
    ("error", "session_id", "afterwards"),
    [
        pytest.param(Error.NONE, 77, (77, 2), id="goes on"),
        pytest.param(Error.NONE, 0, (0, 0), id="ended by the server"),
        pytest.param(Error.FETCH_SESSION_ID_NOT_FOUND, 0, (0, 0), id="lost"),
        pytest.param(Error.INVALID_FETCH_SESSION_EPOCH, 0, (77, 0), id="out of step: have it ended"),
    ],
)
def test_how_the_asking_side_goes_on(error: Error, session_id: int, afterwards: tuple[int, int]):
    client = SessionClient()
    client.answered(Asked(0, 0), Error.NONE, 77)

    client.answered(Asked(0, 1), error, session_id)

    assert (client.session_id, client.epoch) == afterwards


def test_an_answer_from_before_a_new_beginning_is_ignored():
    client = SessionClient()
    client.answered(Asked(0, 0), Error.NONE, 77)

    client.begin_anew()
    client.answered(Asked(0, 1), Error.NONE, 77)

    assert client.is_new


def test_the_first_answer_from_before_a_new_beginning_is_ignored_and_its_session_ended():
    """Else the server would keep partitions in the session that the asking side has forgotten, and never lets go."""
    source = FetchSource(backoff_ms=1000)
    source.follow(TopicPartition("t", 0), TOPIC, LeaderEpoch(1))
    source.question(lambda state: FetchPartition(partition=state.name.partition))
    asked = source.session.asked

    source.session.begin_anew()  # this broker was registered again
    source.session.answered(asked, Error.NONE, 77)
    source.forget(TopicPartition("t", 0))

    assert source.session.is_new
    assert source.session.session_id == 77


def leader(lag_ms_max: int = 1000) -> LeaderState:
    brokers = {NodeId(node): BrokerView(epoch=BrokerEpoch(node), fenced=False, shutting_down=False) for node in (1, 2)}
    state = PartitionState(
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(1),
        partition_epoch=PartitionEpoch(1),
        replicas=(NodeId(1), NodeId(2)),
        isr=(NodeId(1), NodeId(2)),
        recovery=LeaderRecoveryState.RECOVERED,
    )
    return LeaderState(
        state=state,
        identity=an_identity(1),
        brokers=brokers,
        min_insync_replicas=1,
        log_end_offset=10,
        high_watermark=10,
        epoch_start_offset=10,
        lag_ms_max=lag_ms_max,
        now_ms=0,
    )


def fetched(state: LeaderState, contact: Contact | None, *, offset: int = 10, now_ms: int = 0) -> None:
    state.on_fetch(
        replica=REPLICA,
        fetch_offset=offset,
        log_start_offset=0,
        broker_epoch=BrokerEpoch(2),
        now_ms=now_ms,
        contact=contact,
    )


def test_a_replica_with_a_live_session_is_in_sync_after_a_long_idle_time():
    state, contact = leader(), Contact(0)
    fetched(state, contact)

    contact.last_ms = 99_900  # an hour of fetches that did not name the partition
    state.on_append(11, 100_000)

    assert state.is_up_to_date(REPLICA) is False
    assert state.on_tick(100_800) == []
    assert [type(effect) for effect in state.on_tick(101_000)] == [Propose]


def test_a_replica_whose_session_fell_silent_lags_with_the_next_record():
    state, contact = leader(), Contact(0)
    fetched(state, contact)

    contact.last_ms = 50_000
    assert state.on_tick(100_000) == []  # nothing is missing yet
    state.on_append(11, 100_000)

    assert [type(effect) for effect in state.on_tick(100_000)] == [Propose]


def test_what_a_session_repeats_counts_only_until_the_log_grows():
    state, contact = leader(), Contact(0)
    fetched(state, contact)

    state.on_append(11, 1_000)
    contact.last_ms = 5_000
    state.on_append(12, 5_001)

    assert [type(effect) for effect in state.on_tick(5_001)] == [Propose]


def test_a_forgotten_partition_is_repeated_no_more():
    state, contact = leader(), Contact(0)
    fetched(state, contact)
    contact.last_ms = 2_000

    state.on_forgotten(REPLICA, contact)
    contact.last_ms = 90_000
    state.on_append(11, 90_000)

    assert state.followers[REPLICA].last_caught_up_ms == 2_000


def test_the_end_of_a_session_that_a_replica_has_left_behind_says_nothing_of_its_present_one():
    """A replica that was killed comes back with another session; the earlier one goes when somebody needs its place."""
    state, former, contact = leader(), Contact(0), Contact(0)
    fetched(state, former)
    fetched(state, contact)

    state.on_forgotten(REPLICA, former)
    contact.last_ms = 90_000
    state.on_append(11, 90_000)

    assert state.followers[REPLICA].last_caught_up_ms == 90_000
    assert state.on_tick(90_100) == []


def test_only_a_member_of_the_isr_at_the_end_is_up_to_date():
    state = leader()
    assert not state.is_up_to_date(REPLICA)  # it never fetched

    fetched(state, None)
    assert state.is_up_to_date(REPLICA)
    state.on_append(11, 1)
    assert not state.is_up_to_date(REPLICA)
    fetched(state, None, offset=11, now_ms=2)
    assert state.is_up_to_date(REPLICA)
    assert not state.is_up_to_date(NodeId(3))
    assert Advance(11) not in state.on_tick(3)


def test_all_sessions_together_have_so_many_partitions() -> None:
    """A request may name any number of partitions, also such as do not exist."""
    sessions = FetchSessions(10, Random(1), partitions_max=5)

    def opened(session_id: int, epoch: int, *indexes: int, forgotten: list[Key] | None = None) -> Opened | Error:
        return sessions.open(
            session_id=session_id,
            epoch=epoch,
            wanted=wanted(*indexes),
            forgotten=forgotten or [],
            replica=CONSUMER,
            uses_topic_ids=True,
            now_ms=0,
        )

    first = opened(0, INITIAL_EPOCH, 0, 1, 2)
    assert isinstance(first, Opened)
    second = opened(0, INITIAL_EPOCH, 0, 1, 2)
    assert isinstance(second, Opened)
    assert (first.session.session_id != 0, second.session.session_id) == (True, 0)

    known = first.session.session_id
    assert isinstance(opened(known, 1, 3, 4), Opened)
    assert opened(known, 2, 0, 5) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(opened(known, 2, 0, forgotten=keys(3, 4)), Opened)
    third = opened(0, INITIAL_EPOCH, 0, 1)
    assert isinstance(third, Opened)
    assert third.session.session_id
    assert sessions.partition_count == 5
    opened(third.session.session_id, FINAL_EPOCH)
    assert sessions.partition_count == 3


@pytest.mark.parametrize(
    ("size", "stays"), [pytest.param(6, True, id="fits never"), pytest.param(5, False, id="fits then")]
)
def test_a_session_makes_room_only_for_what_fits_then(size: int, stays: bool) -> None:
    """Who asks for more than all sessions may have gets none, and costs no other reader its session."""
    sessions = FetchSessions(10, Random(1), partitions_max=5)

    def opened(count: int, now_ms: int) -> int:
        answer = sessions.open(
            session_id=0,
            epoch=INITIAL_EPOCH,
            wanted=wanted(*range(count)),
            forgotten=[],
            replica=CONSUMER,
            uses_topic_ids=True,
            now_ms=now_ms,
        )
        assert isinstance(answer, Opened)
        return answer.session.session_id

    former = opened(2, 0)

    later = opened(size, 120_001)

    assert (former in sessions.sessions, later == 0) == (stays, stays)
