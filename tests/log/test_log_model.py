"""Any history of a log leaves what a plain list of batches would hold, before and after it is opened again."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replog.host.world import RealDisk
from replog.log.log import Log
from tests.log.batches import DIRECTORY, SMALL, a_disk, content, opened, state
from tests.log.histories import Model, Operation, headers, histories, perform


def _run(history: list[Operation]):
    disk, model = a_disk(), Model()
    log = opened(disk)
    for operation in history:
        written = perform(log, operation, model)
        model.perform(operation, written)
        assert log.log_end_offset == model.end, operation
        assert log.log_start_offset == model.start, operation
        assert log.flushed_offset == model.flushed, operation
    return disk, log, model


@given(histories)
@settings(max_examples=150)
def test_a_log_holds_what_the_model_holds(history: list[Operation]) -> None:
    _, log, model = _run(history)

    assert content(log) == model.content


@given(histories, st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 900), st.booleans())
@settings(max_examples=150)
def test_reads_return_whole_batches_below_their_end(
    history: list[Operation], from_share: int, end_share: int, max_bytes: int, at_least_one: bool
) -> None:
    _, log, model = _run(history)
    offset, end_offset = model.offset(from_share), model.offset(end_share)

    found = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, at_least_one=at_least_one)

    visible = [b for b in model.batches if b[1] > offset and b[1] <= end_offset]
    sizes = [len(b[2]) for b in visible]
    assert b"".join(b[2] for b in visible).startswith(found)
    assert len(found) <= max(max_bytes, sizes[0] if sizes and at_least_one else 0)
    if visible and (at_least_one or sizes[0] <= max_bytes):
        assert found
    assert all(header.next_offset <= end_offset for header in headers(found))


@given(histories)
@settings(max_examples=150)
def test_opening_again_changes_nothing(history: list[Operation]) -> None:
    """SPEC 3.11: after a clean stop without a scan, after a kill with one, from nothing but the batches."""
    disk, log, model = _run(history)
    log.epochs.truncate_from_end(log.log_end_offset)  # an epoch without records does not outlive the process
    before = state(log)

    killed = opened(disk, recover=True, recovery_point=model.flushed, log_start_offset=model.start)
    assert state(killed) == before
    assert content(killed) == model.content
    killed.close()

    clean = opened(disk, recovery_point=model.end, log_start_offset=model.start)
    assert state(clean) == before
    assert content(clean) == model.content
    assert clean.flushed_offset == model.end
    for name in disk.list_directory(DIRECTORY):
        if not name.endswith(".log"):
            disk.remove(f"{DIRECTORY}/{name}")

    bare = opened(disk, recovery_point=model.end, log_start_offset=model.start)
    assert state(bare) == before


@given(histories)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_files_are_the_same_on_a_real_disk(tmp_path: Path, history: list[Operation]) -> None:
    simulated, log, model = _run(history)
    log.close()
    disk = RealDisk()
    directory = f"{tmp_path}/{len(list(tmp_path.iterdir()))}/t-0"
    real, model = _opened_at(disk, directory), Model()
    for operation in history:
        model.perform(operation, perform(real, operation, model))
    real.close()

    names = simulated.list_directory(DIRECTORY)
    assert disk.list_directory(directory) == names
    assert [disk.read_file(f"{directory}/{name}") for name in names] == [
        simulated.read_file(f"{DIRECTORY}/{name}") for name in names
    ]
    again = _opened_at(disk, directory)
    assert content(again) == model.content
    again.close_files()


def _opened_at(disk: RealDisk, directory: str) -> Log:
    return Log.open(disk, directory, SMALL, recover=False, recovery_point=0, log_start_offset=0, now_ms=0)


@given(histories)
@settings(max_examples=100)
def test_a_follower_ends_up_with_the_same_bytes(history: list[Operation]) -> None:
    _, leader, _ = _run(history)
    follower = opened(a_disk(), log_start_offset=leader.log_start_offset)

    while follower.log_end_offset < leader.log_end_offset:
        fetched = leader.read(
            follower.log_end_offset, max_bytes=200, end_offset=leader.log_end_offset, at_least_one=True
        )
        follower.append_as_follower(fetched)

    assert content(follower) == content(leader)
    leader.epochs.truncate_from_end(leader.log_end_offset)
    assert follower.epochs == leader.epochs
    assert state(follower)["producers"] == state(leader)["producers"]
