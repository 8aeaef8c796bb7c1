"""A broker's lifecycle with its controller (SPEC 2.3, 3.11)."""

from uuid import UUID

import pytest

from replog.broker.lifecycle import Fenced, Give, Lifecycle, Phase, Register, Registered, SendHeartbeat, Stop, Unfenced
from replog.errors import Error
from tests.identities import an_identity

INCARNATION = UUID(int=5)


def a_lifecycle(previous: int = -1) -> Lifecycle:
    return Lifecycle(
        identity=an_identity(incarnation=INCARNATION.int),
        previous_broker_epoch=previous,
        heartbeat_interval_ms=2000,
        registration_timeout_ms=60_000,
        shutdown_timeout_ms=30_000,
        retry_ms=200,
        now_ms=0,
    )


def heartbeat_answered(lifecycle: Lifecycle, error: Error = Error.NONE, **said: bool) -> list[object]:
    fields = {"is_caught_up": True, "is_fenced": False, "should_shut_down": False} | said
    return list(lifecycle.on_heartbeat_answer(error, now_ms=10, **fields))


def a_ready_lifecycle() -> Lifecycle:
    lifecycle = a_lifecycle()
    lifecycle.on_tick(0)
    lifecycle.on_registration_answer(Error.NONE, 40, 1)
    lifecycle.on_metadata(40, 2)
    lifecycle.on_tick(2)
    heartbeat_answered(lifecycle, is_fenced=True)
    lifecycle.on_tick(10)
    heartbeat_answered(lifecycle)
    return lifecycle


def test_it_registers_with_the_epoch_of_the_incarnation_that_ended_cleanly() -> None:
    lifecycle = a_lifecycle(previous=7)

    assert lifecycle.on_tick(0) == [Register(incarnation=INCARNATION, previous_broker_epoch=7)]
    assert lifecycle.on_tick(1) == []  # one request at a time


def test_it_asks_to_stay_fenced_until_it_has_caught_up() -> None:
    lifecycle = a_lifecycle()
    lifecycle.on_tick(0)
    assert lifecycle.on_registration_answer(Error.NONE, 40, 1) == [
        Registered(broker_epoch=40, previous_broker_epoch=-1)
    ]
    assert lifecycle.on_tick(1) == [
        SendHeartbeat(broker_epoch=40, metadata_offset=-1, want_fence=True, want_shutdown=False)
    ]
    heartbeat_answered(lifecycle, is_caught_up=False, is_fenced=True)

    lifecycle.on_metadata(41, 50)
    assert lifecycle.on_tick(50) == [
        SendHeartbeat(broker_epoch=40, metadata_offset=41, want_fence=True, want_shutdown=False)
    ]
    heartbeat_answered(lifecycle, is_caught_up=True, is_fenced=True)

    assert lifecycle.on_tick(50) == [
        SendHeartbeat(broker_epoch=40, metadata_offset=41, want_fence=False, want_shutdown=False)
    ]
    assert heartbeat_answered(lifecycle) == [Unfenced()]
    assert lifecycle.phase is Phase.READY


def test_it_asks_again_at_once_when_it_caught_up_while_the_controller_answered() -> None:
    lifecycle = a_lifecycle()
    lifecycle.on_tick(0)
    lifecycle.on_registration_answer(Error.NONE, 40, 1)
    lifecycle.on_tick(1)

    lifecycle.on_metadata(40, 5)
    heartbeat_answered(lifecycle, is_caught_up=False, is_fenced=True)

    assert lifecycle.on_tick(10) == [
        SendHeartbeat(broker_epoch=40, metadata_offset=40, want_fence=True, want_shutdown=False)
    ]


def test_a_lost_session_changes_neither_epoch_nor_incarnation() -> None:
    lifecycle = a_ready_lifecycle()
    lifecycle.on_tick(5000)

    assert heartbeat_answered(lifecycle, is_fenced=True) == [Fenced()]
    assert lifecycle.on_tick(9000) == [
        SendHeartbeat(broker_epoch=40, metadata_offset=40, want_fence=False, want_shutdown=False)
    ]


@pytest.mark.parametrize("error", [Error.STALE_BROKER_EPOCH, Error.BROKER_ID_NOT_REGISTERED])
def test_a_controller_that_forgot_the_broker_makes_it_register_again(error: Error) -> None:
    lifecycle = a_ready_lifecycle()
    lifecycle.on_tick(5000)
    heartbeat_answered(lifecycle, error)

    assert lifecycle.on_tick(5001) == [Register(incarnation=INCARNATION, previous_broker_epoch=40)]


def test_a_predecessors_session_is_waited_out_but_not_for_ever() -> None:
    lifecycle = a_lifecycle()
    lifecycle.on_tick(0)
    assert lifecycle.on_registration_answer(Error.DUPLICATE_BROKER_REGISTRATION, -1, 1) == []
    assert lifecycle.on_tick(100) == []
    assert lifecycle.on_tick(201) == [Register(incarnation=INCARNATION, previous_broker_epoch=-1)]

    assert isinstance(lifecycle.on_registration_answer(Error.DUPLICATE_BROKER_REGISTRATION, -1, 60_001)[0], Give)


def test_it_leaves_when_the_controller_lets_it_go() -> None:
    lifecycle = a_ready_lifecycle()

    assert lifecycle.begin_shutdown(100) == []
    assert lifecycle.on_tick(100) == [
        SendHeartbeat(broker_epoch=40, metadata_offset=40, want_fence=False, want_shutdown=True)
    ]
    assert heartbeat_answered(lifecycle, should_shut_down=False) == []
    lifecycle.on_tick(400)
    assert heartbeat_answered(lifecycle, should_shut_down=True) == [Stop(agreed=True)]


def test_it_leaves_anyhow_when_time_is_up() -> None:
    lifecycle = a_ready_lifecycle()
    lifecycle.begin_shutdown(100)
    lifecycle.on_tick(100)
    lifecycle.on_no_answer(200)

    assert lifecycle.on_tick(30_100) == [Stop(agreed=False)]


def test_a_broker_that_never_registered_just_stops() -> None:
    lifecycle = a_lifecycle()

    assert lifecycle.begin_shutdown(5) == [Stop(agreed=False)]


def test_that_other_directories_are_cordoned_is_reported_at_once() -> None:
    lifecycle = a_ready_lifecycle()
    assert lifecycle.on_tick(20) == []  # the next one is due in two seconds

    lifecycle.on_cordons_changed(20)
    first = lifecycle.on_tick(20)
    lifecycle.on_cordons_changed(21)  # while that one is under way: it may have said what was before
    assert lifecycle.on_tick(22) == []
    heartbeat_answered(lifecycle)
    second = lifecycle.on_tick(23)
    heartbeat_answered(lifecycle)

    assert [type(one) for one in (*first, *second)] == [SendHeartbeat, SendHeartbeat]
    assert lifecycle.on_tick(24) == []
