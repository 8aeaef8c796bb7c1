"""The disk: what survives a kill, a power failure, and a disk that misbehaves."""

import asyncio
import errno
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribunal.clusters.simulated import disk as module
from tribunal.clusters.simulated.disk import PowerLost, SimulatedDisk
from tribunal.clusters.simulated.process import NS_PER_MS, NS_PER_S


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


@pytest.fixture
def _everything_is_lost(monkeypatch):
    monkeypatch.setattr(module, "SURVIVAL_BIASES", (0.0,))


def crash(disk):
    disk.power_fail()
    disk.power_on()


def written(disk, path, content, *, named=True):
    file = disk.open(path, create=True)
    file.append(content)
    if named:
        disk.sync_directory(path.rpartition("/")[0])
    return file


@pytest.mark.usefixtures("_everything_is_lost")
def test_only_what_was_synced_survives(disk):
    file = written(disk, "log", b"synced ")
    file.sync()
    file.append(b"unsynced")
    before = disk.read_file("log")
    crash(disk)

    assert before == b"synced unsynced"
    assert disk.read_file("log") == b"synced "


@pytest.mark.usefixtures("_everything_is_lost")
def test_a_sync_that_has_returned_is_not_waiting_for_a_longer_one_before_it(disk):
    """What it had promised was lost with the power: the disk lied, and whoever relied on it was accused."""
    file = written(disk, "log", b"first ")
    disk.faults.slowdown = 1_000
    file.begin_sync()
    disk.faults.slowdown = 1
    file.append(b"second")
    file.sync()
    crash(disk)

    assert disk.read_file("log") == b"first second"


@pytest.mark.usefixtures("_everything_is_lost")
def test_a_name_is_durable_only_after_its_directory_was_synced(disk):
    disk.make_directory("a/b")
    disk.sync_directory("")
    disk.sync_directory("a")
    written(disk, "a/b/kept", b"x").sync()
    written(disk, "a/b/lost", b"x", named=False).sync()
    crash(disk)

    assert disk.list_directory("a/b") == ["kept"]


@pytest.mark.usefixtures("_everything_is_lost")
def test_an_unsynced_rename_or_removal_is_undone(disk):
    written(disk, "old", b"old").sync()
    written(disk, "gone", b"gone").sync()
    disk.rename("old", "new")
    disk.remove("gone")
    crash(disk)

    assert disk.list_directory("") == ["gone", "old"]
    assert disk.read_file("gone") == b"gone"


def moved(disk):
    """Move a durable file to another directory; nothing is synced since."""
    for directory in ("a", "b"):
        disk.make_directory(directory)
    disk.sync_directory("")
    written(disk, "a/old", b"x").sync()
    disk.rename("a/old", "b/new")


def places(disk):
    return [f"{directory}/{name}" for directory in ("a", "b") for name in disk.list_directory(directory)]


def test_a_file_that_is_moved_to_another_directory_has_one_name_after_a_power_failure(monkeypatch):
    """Two coins could leave it both names, or none: the file was gone. File systems with a journal move it whole or not at all."""
    monkeypatch.setattr(module, "SURVIVAL_BIASES", (0.5,))
    found = []
    for seed in range(30):
        disk = SimulatedDisk(Random(seed))
        moved(disk)
        crash(disk)
        found.append(places(disk))

    assert {tuple(one) for one in found} == {("a/old",), ("b/new",)}


@pytest.mark.usefixtures("_everything_is_lost")
@pytest.mark.parametrize("synced", ["a", "b"])
def test_a_move_is_durable_with_either_of_its_directories(disk, synced):
    moved(disk)
    disk.sync_directory(synced)
    crash(disk)

    assert places(disk) == ["b/new"]


@pytest.mark.parametrize("seed", range(20))
def test_replacing_a_file_leaves_the_old_or_the_new_one(seed):
    outcomes = set()
    for operation in range(12):
        disk = SimulatedDisk(Random(f"{seed}/{operation}"))
        disk.replace_file("state", b"old")
        disk.crash_at(operation)
        try:
            disk.replace_file("state", b"new state")
        except PowerLost:
            crash(disk)
            outcomes.add(disk.read_file("state"))

    assert outcomes <= {b"old", b"new state"}
    assert b"old" in outcomes


@pytest.mark.parametrize("seed", range(20))
def test_what_a_power_failure_leaves_of_unsynced_pages(seed):
    disk = SimulatedDisk(Random(seed))
    file = written(disk, "log", bytes([1]) * 10_000)
    file.sync()
    content = bytes([1]) * 10_000 + bytes([2]) * 50_000
    file.append(content[10_000:])
    crash(disk)
    left = disk.read_file("log")

    assert left[:10_000] == content[:10_000]
    for start in range(10_240, len(left), 512):
        assert left[start : start + 512] in (content[start : start + 512][: len(left) - start], bytes(512))


def test_power_failures_differ():
    lengths = set()
    for seed in range(30):
        disk = SimulatedDisk(Random(seed))
        written(disk, "log", bytes([2]) * 50_000)
        crash(disk)
        lengths.add(len(disk.read_file("log")))

    assert {0, 50_000} < lengths
    assert any(length % 4096 for length in lengths - {50_000}), "no torn page at the end"


@pytest.mark.usefixtures("_everything_is_lost")
def test_a_truncation_is_durable_only_after_a_sync(disk):
    file = written(disk, "log", b"0123456789")
    file.sync()
    file.truncate(4)
    file.append(b"xy")
    before = disk.read_file("log")
    crash(disk)
    file = disk.open("log")
    undone = file.read_at(0, 100)
    file.truncate(4)
    file.append(b"xy")
    file.sync()
    crash(disk)

    assert before == b"0123xy"
    assert undone == b"0123456789"
    assert disk.read_file("log") == b"0123xy"


@pytest.mark.usefixtures("_everything_is_lost")
def test_a_lying_disk_loses_what_was_synced(disk):
    file = written(disk, "log", b"")
    disk.faults.lying_share = 1.0
    file.append(b"acknowledged")
    file.sync()
    crash(disk)

    assert disk.read_file("log") == b""


@pytest.mark.usefixtures("_everything_is_lost")
def test_after_a_failed_sync_the_pages_count_as_clean(disk):
    file = written(disk, "log", b"")
    file.append(b"doomed")
    disk.faults.sync_error_share = 1.0
    with pytest.raises(OSError, match="Input/output") as refusal:
        file.sync()
    disk.faults.sync_error_share = 0.0
    file.sync()
    readable = disk.read_file("log")
    crash(disk)

    assert refusal.value.errno == errno.EIO
    assert readable == b"doomed"
    assert disk.read_file("log") == b""


def test_a_full_disk_refuses_and_gives_space_back(disk):
    disk.faults.capacity_bytes = 100
    file = written(disk, "a", bytes(90))
    with pytest.raises(OSError, match="No space") as refusal:
        file.append(bytes(20))
    disk.remove("a")
    written(disk, "b", bytes(100))

    assert refusal.value.errno == errno.ENOSPC


def test_reads_and_writes_may_fail(disk):
    file = written(disk, "a", b"x")
    disk.faults.read_error_share = disk.faults.write_error_share = 1.0

    with pytest.raises(OSError, match="Input/output"):
        file.read_at(0, 1)
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"y")


def test_bits_flip_and_files_are_cut_behind_their_owners_back(disk):
    file = written(disk, "a", b"\x00" * 8)
    file.sync()
    disk.flip_bit("a", 10)
    disk.cut_file("a", 4)
    crash(disk)

    assert disk.read_file("a") == b"\x00\x04\x00\x00"


def test_a_wiped_directory_is_empty_for_good(disk):
    disk.make_directory("data/t-0")
    written(disk, "data/t-0/log", b"x").sync()
    written(disk, "data/meta", b"x").sync()
    disk.wipe("data/t-0")
    crash(disk)

    assert disk.used_bytes == len(disk.read_file("data/meta")) if disk.exists("data/meta") else True
    assert not disk.exists("data/t-0/log")


def test_directories_move_with_all_they_hold(disk):
    disk.make_directory("data/t-0")
    written(disk, "data/t-0/log", b"x")
    disk.rename("data/t-0", "data/t-0.gone")
    with pytest.raises(FileNotFoundError):
        disk.list_directory("data/t-0")
    before = disk.list_directory("data")
    disk.remove_tree("data/t-0.gone")
    disk.remove_tree("data/t-0.gone")

    assert before == ["t-0.gone"]
    assert disk.list_directory("data") == []
    assert disk.used_bytes == 0


def test_nothing_works_without_power(disk):
    file = written(disk, "a", b"x")
    disk.power_fail()

    for operation in (file.sync, lambda: file.append(b"y"), lambda: disk.open("a"), lambda: file.read_at(0, 1)):
        with pytest.raises(PowerLost):
            operation()


@pytest.mark.usefixtures("_everything_is_lost")
def test_a_kill_loses_nothing_and_a_power_failure_in_a_sync_does(simulation, server):
    server.disk.open("log", create=True)
    server.disk.sync_directory("")

    async def main(world):
        file = world.disk.open("log")
        file.append(b"written")
        await asyncio.sleep(1)
        world.disk.crash_at(0)
        file.sync()

    server.start(main)
    simulation.loop.run_for(NS_PER_MS)
    server.kill()
    after_the_kill = server.disk.read_file("log")
    server.start(main)
    simulation.loop.run_for(2 * NS_PER_S)
    server.power_on()

    assert after_the_kill == b"written"
    assert server.disk.read_file("log") == b""


def test_a_killed_process_leaves_the_kernel_only_after_its_blocking_call(simulation, server):
    server.disk.faults.sync_ns_min, server.disk.faults.sync_ns_max = 50 * NS_PER_MS, 50 * NS_PER_MS + 1
    begun = []

    async def main(world):
        begun.append(world.clock.now_ns())
        world.disk.open("log", create=True).sync()

    server.start(main)
    simulation.loop.run_for(20 * NS_PER_MS)
    server.kill()
    server.start(main)
    simulation.loop.run_for(100 * NS_PER_MS)

    assert begun[1] - begun[0] >= 50 * NS_PER_MS


@pytest.mark.usefixtures("_everything_is_lost")
def test_a_sync_in_the_background_takes_its_time(simulation, server):
    server.disk.faults.sync_ns_min, server.disk.faults.sync_ns_max = 50 * NS_PER_MS, 50 * NS_PER_MS + 1
    server.disk.open("log", create=True)
    server.disk.sync_directory("")
    seen = []

    async def main(world):
        file = world.disk.open("log")
        file.append(b"first")
        start_ms = world.clock.now_ms()
        await world.disk.sync_in_background([file])
        seen.append(world.clock.now_ms() - start_ms)
        file.append(b"second")
        await world.disk.sync_in_background([file])

    server.start(main)
    simulation.loop.run_for(70 * NS_PER_MS)
    server.power_fail()
    server.power_on()

    assert seen == [50]
    assert server.disk.read_file("log") == b"first"


def test_a_crash_point_kills_the_machine_in_the_middle_of_a_write(simulation, server):
    after = []

    async def main(world):
        file = world.disk.open("log", create=True)
        world.disk.crash_at(1)
        try:
            file.append(bytes(1000))
            file.append(bytes(1000))
            after.append("went on")
        except Exception:  # noqa: BLE001
            after.append("caught")

    server.start(main)
    simulation.loop.run_for(NS_PER_MS)

    assert after == []
    assert not server.running
    assert not server.host.up


writes = st.tuples(st.just("write"), st.integers(0, 6000), st.integers(1, 5000))
steps = st.lists(
    st.one_of(
        writes,
        st.tuples(st.just("append"), st.integers(1, 5000)),
        st.tuples(st.just("truncate"), st.integers(0, 6000)),
        st.tuples(st.just("sync")),
        st.tuples(st.just("crash")),
    ),
    max_size=25,
)


@given(steps, st.integers(0, 10_000))
def test_content_is_what_was_written_and_synced_bytes_stay(history, seed):
    disk = SimulatedDisk(Random(seed))
    file = written(disk, "f", b"")
    model, durable, fill = bytearray(), b"", 0
    for name, *arguments in history:
        fill = fill % 250 + 1
        match name:
            case "write":
                position, size = arguments
                file.write_at(position, bytes([fill]) * size)
                model.extend(bytes(max(0, position - len(model))))
                model[position : position + size] = bytes([fill]) * size
            case "append":
                assert file.append(bytes([fill]) * arguments[0]) == len(model)
                model += bytes([fill]) * arguments[0]
            case "truncate":
                file.truncate(arguments[0])
                del model[arguments[0] :]
                model.extend(bytes(max(0, arguments[0] - len(model))))
            case "sync":
                file.sync()
                durable = bytes(model)
            case "crash":
                synced = bytes(model) == durable
                crash(disk)
                file = disk.open("f")
                left = disk.read_file("f")
                assert left == durable or not synced
                model, durable = bytearray(left), left
        assert file.read_at(0, 1 << 20) == model
    assert disk.used_bytes == len(model)


@pytest.mark.usefixtures("_everything_is_lost")
def test_a_copy_is_what_was_seen_and_is_durable_once_it_is_put_back(disk):
    disk.make_directory("data/log")
    disk.sync_directory("")
    file = written(disk, "data/log/kept", b"synced ")
    file.sync()
    file.append(b"and not")
    copy = disk.copied("data")
    written(disk, "data/log/later", b"x").sync()
    file.truncate(3)
    disk.put_back("data", copy)
    crash(disk)

    assert disk.list_directory("data/log") == ["kept"]
    assert disk.read_file("data/log/kept") == b"synced and not"


def test_a_copy_stays_as_it_was_whatever_is_written_behind_it(disk):
    disk.make_directory("data")
    written(disk, "data/file", b"first")
    copy = disk.copied("data")
    for _ in range(2):
        disk.open("data/file").append(b" more")
        disk.put_back("data", copy)

        assert disk.read_file("data/file") == b"first"


def test_a_copy_that_is_put_back_takes_the_room_that_it_took(disk):
    disk.make_directory("data")
    written(disk, "data/file", bytes(100))
    copy, used = disk.copied("data"), disk.used_bytes
    written(disk, "data/other", bytes(1_000))
    disk.put_back("data", copy)

    assert disk.used_bytes == used == 100


def test_a_power_failure_leaves_some_of_the_files_of_a_directory_that_was_being_removed():
    found = set()
    for seed in range(20):
        disk = SimulatedDisk(Random(seed))
        disk.make_directory("data/t-0")
        for name in "abc":
            written(disk, f"data/t-0/{name}", b"x").sync()
        for path in ("data/t-0", "data", ""):
            disk.sync_directory(path)
        disk.crash_at(2)
        with pytest.raises(PowerLost):
            disk.remove_tree("data/t-0")
        disk.power_on()
        found.add("".join(disk.list_directory("data/t-0")))

    assert "abc" in found
    assert {len(names) for names in found} >= {1, 2, 3}
