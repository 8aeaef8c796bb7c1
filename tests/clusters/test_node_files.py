"""What nodes leave in files, read while they write and after they died; and that they end with their harness."""

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tomllib
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from replog.log import batch
from tribunal.clusters.api import ClusterError
from tribunal.clusters.capabilities import Damage
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kafka.disk import CLEAN_SHUTDOWN, previous_broker_epoch
from tribunal.clusters.links.addresses import free_port, taken_address
from tribunal.clusters.links.relays import node_host
from tribunal.clusters.nodes.disk_copies import restore, save
from tribunal.clusters.nodes.final_logs import dumped_logs, log_bytes
from tribunal.clusters.nodes.log_damage import do_damage, log_ends
from tribunal.clusters.nodes.mounts import MountedDisks
from tribunal.clusters.nodes.node_events import EventFile
from tribunal.clusters.nodes.node_files import directory_id
from tribunal.clusters.nodes.node_process import PARENT_DEATH, last_lines, process_exists, states_of, toml
from tribunal.clusters.nodes.on_host import wipe
from tribunal.clusters.nodes.serving import refuses


def test_events_come_whole_and_once(tmp_path):
    clock = RunClock()
    path = tmp_path / "events.jsonl"
    events = EventFile(2, path, clock.at_ns)
    line = json.dumps({"event": "registered", "node_ns": clock.start_ns + 5, "node": 2, "broker_epoch": 9})

    assert events.drain() == []
    path.write_text(line + "\n" + line[:20])
    (first,) = events.drain()
    path.write_text(line + "\n" + line + "\n")
    (second,) = events.drain()

    assert (first.name, first.at_ns, first.fields) == ("registered", 5, {"broker_epoch": 9})
    assert second == first


def test_a_torn_event_is_passed_over(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "star\n{"event": "stop", "node_ns": 1}\n')

    assert [event.name for event in EventFile(1, path, RunClock().at_ns).drain()] == ["stop"]


def a_log(folder, *batches):
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(b"".join(batches))


def a_batch(base_offset, *values):
    records = [batch.NewRecord(key=None, value=value.to_bytes(8)) for value in values]
    return batch.build(records, timestamp_ms=1, base_offset=base_offset, leader_epoch=3)


def entries_of(node, log_dir):
    return [entry for log in dumped_logs(node, log_dir) for entry in log.entries]


def test_a_log_without_records_is_read_as_well(tmp_path):
    a_log(tmp_path / "t-0")
    a_log(tmp_path / "t-1", a_batch(0, 11))
    (tmp_path / "t-1" / "00000000000000000001.log").touch()

    found = [(log.partition, log.log_start_offset, log.log_end_offset) for log in dumped_logs(2, tmp_path)]

    assert found == [(0, 0, 0), (1, 0, 1)]


def test_final_logs_are_read_from_segments(tmp_path):
    a_log(tmp_path / "t-1", a_batch(0, 11, 12), a_batch(2, 13))
    a_log(tmp_path / "__cluster_metadata-0", a_batch(0, 99))

    entries = entries_of(2, tmp_path)

    assert [(entry.log_offset, entry.value, entry.batch_first_offset) for entry in entries] == [
        (0, 11, 0),
        (1, 12, 0),
        (2, 13, 2),
    ]
    assert {(entry.node, entry.topic, entry.partition, entry.leader_epoch) for entry in entries} == {(2, "t", 1, 3)}


def test_a_damaged_value_is_none_of_ours(tmp_path):
    a_log(tmp_path / "t-0", a_batch(0, 11, (1 << 63) + 12))

    found = [(entry.value, entry.foreign_value) for entry in entries_of(1, tmp_path)]

    assert found == [(11, None), (None, ((1 << 63) + 12).to_bytes(8))]


def test_a_log_ends_at_its_torn_batch(tmp_path):
    a_log(tmp_path / "t-0", a_batch(0, 11), a_batch(1, 12)[:-3])

    assert [entry.value for entry in entries_of(1, tmp_path)] == [11]


def test_a_wiped_disk_has_no_logs(tmp_path):
    a_log(tmp_path / "t-0", a_batch(0, 11))

    assert log_bytes(tmp_path)["t-0"] > 0
    assert log_bytes(tmp_path / "nothing") == {}


@pytest.mark.parametrize("log", ["t-0", "__cluster_metadata-0"], ids=["a broker's", "a controller's"])
def test_a_wipe_of_a_disk_that_held_any_log_is_proven(tmp_path, log):
    a_log(tmp_path / "data" / log, a_batch(0, 11))

    proof = wipe(tmp_path)

    assert proof.holds
    assert list(proof.facts["log_bytes_before"]) == [log]
    assert set(proof.facts["log_end_offsets_before"]) == ({"t-0"} if log == "t-0" else set())


def test_a_wipe_of_a_disk_that_held_no_log_proves_nothing(tmp_path):
    (tmp_path / "data").mkdir()

    assert not wipe(tmp_path).holds


def test_a_copy_of_a_disk_that_is_put_back_is_what_it_was(tmp_path):
    a_log(tmp_path / "data" / "t-0", a_batch(0, 11))
    save(tmp_path)
    a_log(tmp_path / "data" / "t-1", a_batch(0, 7))
    log = tmp_path / "data" / "t-0" / f"{0:020}.log"
    log.write_bytes(a_batch(0, 11) + a_batch(1, 5))
    (tmp_path / "undo").mkdir()

    proof = restore(tmp_path)

    assert proof.holds
    assert proof.facts["log_end_offsets_before"] == {"t-0": 2, "t-1": 1}
    assert proof.facts["log_end_offsets_after"] == {"t-0": 1, "t-1": 0}
    assert log.read_bytes() == a_batch(0, 11)
    assert not (tmp_path / "undo").exists()  # nothing of a copy was written and not synced


def test_a_copy_may_be_put_back_again(tmp_path):
    a_log(tmp_path / "data" / "t-0", a_batch(0, 11))
    save(tmp_path)
    for _ in range(2):
        (tmp_path / "data" / "t-0" / f"{0:020}.log").unlink()

        assert restore(tmp_path).facts["log_end_offsets_after"] == {"t-0": 1}


def test_a_copy_that_nobody_made_is_not_put_back_and_nothing_is_lost(tmp_path):
    a_log(tmp_path / "data" / "t-0", a_batch(0, 11))

    with pytest.raises(ClusterError, match="there is no copy of a disk to put back"):
        restore(tmp_path)

    assert log_ends(tmp_path / "data") == {"t-0": 1}


def test_a_copy_that_fails_says_why(tmp_path):
    with pytest.raises(ClusterError, match=r"data: its copy failed: .*No such file"):
        save(tmp_path)


@pytest.mark.parametrize("damage", Damage)
def test_damage_of_a_log_that_has_nothing_sound_proves_nothing(tmp_path, damage):
    """kill -9 in the midst of the first append leaves half a batch: there is nothing to harm, and nothing breaks."""
    a_log(tmp_path / "t-0", a_batch(0, 11)[:30])

    assert not do_damage(tmp_path, damage).holds


def test_a_disk_is_tried_in_its_own_folder_also_where_a_name_has_spaces(tmp_path):
    """A scenario's name is part of the run's: what a shell makes of two words of it is somebody else's file."""
    folder, foreign = tmp_path / "a run" / "1", tmp_path / "a"
    (folder / "data").mkdir(parents=True)
    foreign.write_text("somebody's")

    async def run(argv):
        done = await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True, text=True)
        return done.stdout

    proof = asyncio.run(MountedDisks(run, lambda node: folder, while_running=False).mend(1))

    assert proof.holds
    assert list((folder / "data").iterdir()) == []
    assert foreign.read_text() == "somebody's"


def refused(path, *_):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def test_a_log_that_may_not_be_read_is_said_in_words(tmp_path, monkeypatch):
    """Where nodes run as another user than the harness."""
    a_log(tmp_path / "t-0", a_batch(0, 11))
    monkeypatch.setattr(Path, "read_bytes", refused)

    with pytest.raises(ClusterError, match=r"node 2: its files cannot be read: .*t-0.*: Permission denied"):
        entries_of(2, tmp_path)


def test_a_folder_that_may_not_be_looked_into_is_no_empty_log(tmp_path, monkeypatch):
    """Who takes its end for 0 finds that nobody copies anything, and accuses the system of it."""
    a_log(tmp_path / "t-0", a_batch(0, 11))
    for name in ("listdir", "scandir"):
        usual = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda path, usual=usual: refused(path) if str(path).endswith("t-0") else usual(path)
        )

    with pytest.raises(PermissionError):
        log_ends(tmp_path)


@pytest.mark.parametrize(("is_there", "epoch"), [(False, -1), (True, None)], ids=["none", "not to be read"])
def test_how_a_process_ended_is_not_known_where_its_file_may_not_be_read(tmp_path, is_there, epoch):
    """An unclean shutdown excuses: it has to be read, not guessed."""
    if is_there:
        (tmp_path / CLEAN_SHUTDOWN).mkdir()

    assert previous_broker_epoch(tmp_path) == epoch


def test_settings_survive_toml():
    settings = {"a.b": 'say "x"', "n": -1, "yes": True, "share": 0.5, "mutants": ["m44_acks_local"], "none": []}

    flat = tomllib.loads(toml(settings))

    assert flat == settings


def test_the_directory_id_is_formattings(tmp_path):
    assert directory_id(tmp_path) is None
    (tmp_path / "meta.properties").write_text("version=1\ndirectory.id=abc\n")
    assert directory_id(tmp_path) == "abc"


def test_a_log_shows_its_end(tmp_path):
    log = tmp_path / "1.log"
    log.write_text("\n".join(map(str, range(100))))

    assert last_lines(log, 2) == "    98\n    99"
    assert "empty" in last_lines(tmp_path / "none")


def test_of_a_long_log_the_end_alone_is_read(tmp_path):
    log = tmp_path / "1.log"
    log.write_bytes(b"a line\n" * 3_000_000 + b"the last one\n")

    tracemalloc.start()
    try:
        said = last_lines(log, 1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert said == "    the last one"
    assert most < 1_000_000


async def taken_port():
    server = await asyncio.start_server(lambda _, writer: writer.close(), node_host(1), 0)
    port = server.sockets[0].getsockname()[1]
    try:
        assert taken_address([1, 2], port).startswith(f"127.0.1.1:{port}")
        with pytest.raises(ClusterError, match=f"port already taken: 127.0.1.1:{port}"):
            free_port([1, 2], port)
        assert free_port([1, 2], None) != port
        assert not await refuses((node_host(1), port), within_s=0)
    finally:
        server.close()
    assert await refuses((node_host(1), port))
    await asyncio.sleep(0.01)


async def silent_port():
    with socket.create_server((node_host(1), 0)) as listening:  # nobody takes what comes
        asyncio.get_running_loop().call_later(1.5, listening.close)
        return await refuses(listening.getsockname())


def test_a_port_that_is_refused_late_is_refused():
    """On a busy machine the first connection may wait longer than anybody asks at a time."""
    assert asyncio.run(silent_port())


def test_a_taken_port_is_named():
    asyncio.run(taken_port())


def test_a_stopped_process_is_seen():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        states = states_of(process.pid)
        process.kill()

    assert states == {process.pid: "T"}
    assert states_of(process.pid) == {}
    assert not process_exists(process.pid)


HARNESS = """
import subprocess, sys, os, time
child = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()),
                          sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"],
                         stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_node_dies_with_its_harness():
    with subprocess.Popen([sys.executable, "-c", HARNESS, str(PARENT_DEATH)], stdout=subprocess.PIPE) as harness:
        node = int(harness.stdout.readline())
        watched = os.pidfd_open(node)
        harness.kill()

    with suppress(OSError):
        import select

        poller = select.poll()
        poller.register(watched, select.POLLIN)
        assert poller.poll(5_000), "the node outlived its harness"
    os.close(watched)


def test_the_program_that_ties_a_node_to_its_harness_is_a_file_of_its_own():
    assert Path(PARENT_DEATH).is_file()
