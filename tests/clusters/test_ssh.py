"""Hosts over ssh, for real: several sshd, each in a network namespace of this machine, hurt and left clean."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters.ssh_town import NODES, ROOT, Town, a_key, why_not
from tests.nemesis.fault_matrix import write_row
from tests.nemesis.fault_table import COMPOSED, ONCE
from tribunal.clusters.api import CLIENTS, ClusterError
from tribunal.clusters.kinds import ssh
from tribunal.clusters.namespaces.network import address, device
from tribunal.clusters.nodes import hosts_of_run
from tribunal.clusters.nodes.ssh_hosts import HostEntry, Shell, read_hosts
from tribunal.harness.catalog import faults
from tribunal.harness.plan import refusal

FILES_OF_SLOW = 1_000  # takes seconds, while a host without packages is refused at once
STARTED = 4  # three brokers and a controller; stories that ask for three controllers have all
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are hosts"),
]


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with Town(tmp_path_factory.mktemp("town")) as town:
        yield town


THREE = [["kill", 1, {}, 0.3], ["isolate", 2, {"others": "nodes"}, 0.3], ["power-loss", 3, {}, 0.3]]


def test_three_faults_bite_and_heal_on_hosts_and_nothing_is_left(town):
    report = town.reported(THREE)

    assert "refused" not in report, report
    assert {name: report[name] for name, *_ in THREE} == dict.fromkeys(("kill", "isolate", "power-loss"), True), report
    assert report["leftovers"] == []
    assert report["records"] >= report["acknowledged"] > 0
    assert {"start", "registered", "unfenced"} <= set(report["events"])
    assert report["offset_ms"] < 20  # one machine: one clock
    assert not list((town.folder / "remote").rglob("*"))


# What a shell on a host of the town says of commands, one after the other, each with so many bytes of input.
TRIED = """
import json, sys
from pathlib import Path
from tribunal.clusters.nodes.ssh_hosts import Shell, read_hosts
shell = Shell(read_hosts(Path(sys.argv[1])).entry(1))
shell.open()
for command, size in json.loads(sys.argv[2]):
    code, said, complaint = shell.tried(command, bytes(size))
    print(json.dumps([code, said.decode(), len(complaint), complaint[:20]]))
shell.close()
"""
# Waits for a command that does not end; says when it runs, and what became of it.
WATCHED = """
import sys, time
from pathlib import Path
from tribunal.clusters.nodes import ssh_hosts
ssh_hosts.IDLE_S = ssh_hosts.ASKED_EVERY_S = 1
shell = ssh_hosts.Shell(ssh_hosts.read_hosts(Path(sys.argv[1])).entry(2))
shell.open()
has_hung_up = shell.watched("echo runs; sleep 100", lambda said: print(said.decode(), end="", flush=True))
print("hung up" if has_hung_up else "ended", shell.is_open)
"""


def from_clients(town, program, *words):
    return town.start(
        str(CLIENTS), sys.executable, "-c", program, str(town.hosts), *words,
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_what_a_command_complains_of_is_received_however_much_it_is_and_whatever_it_has_not_read(town):
    loud = "head -c 5000000 /dev/zero | tr '\\0' x >&2; echo done"
    refusing = "exec 0<&-; echo no room >&2; sleep 0.2; exit 3"

    with from_clients(town, TRIED, json.dumps([[loud, 0], [refusing, 20_000_000], ["cat | wc -c", 100_000]])) as asked:
        said = [json.loads(line) for line in asked.stdout]

    assert said == [[0, "done\n", 5_000_000, "x" * 20], [3, "", 7, "no room"], [0, "100000\n", 0, ""]]


def test_a_host_that_falls_silent_has_hung_up(town):
    """It has lost its power, or its network: nobody there closes the connection."""
    with from_clients(town, WATCHED) as watching:
        assert watching.stdout.readline() == "runs\n"
        town.spaces.run(["ip", "link", "set", device(2), "down"])
        try:
            said, _ = watching.communicate(timeout=40)
        finally:
            town.spaces.run(["ip", "link", "set", device(2), "up"])
            town.spaces.run(["ip", "route", "add", f"{address(2)}/32", "dev", device(2)])  # it went with the link
            watching.kill()

    assert said == "hung up False\n"


EVERY = [
    [name, node, options, lasts_s]
    for name, node, lasts_s, options in ONCE + COMPOSED
    if not refusal(faults()[name], ssh.KIND)
]


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_every_fault_bites_and_heals_on_hosts(town):
    report = town.reported(EVERY, run="every", controllers=3)  # three votes: one can be taken

    for name, *_ in EVERY:
        fine = report[name] is True
        write_row("ssh", name, took_effect=fine, healed=fine, took_s=report["took_s"][name])
    assert {name: report[name] for name, *_ in EVERY if report[name] is not True} == {}
    assert report["leftovers"] == []


def test_a_host_that_shows_another_key_is_refused(town):
    other = a_key(town.folder / "other")

    report = town.reported([], hosts=town.write_hosts("other.toml", other), run="other-key")

    assert "shows another key than the pinned one" in report["refused"]


def test_a_host_that_does_not_answer_is_named(town):
    report = town.reported(
        [], hosts=town.write_hosts("silent.toml", town.host_key, ssh=f"{address(1)}:2222"), run="silent"
    )

    assert f"host {address(1)}:2222 of node" in report["refused"]
    assert "does not answer" in report["refused"]


def test_a_host_whose_python_lacks_packages_says_which(town):
    report = town.reported([], hosts=town.write_hosts("bare.toml", town.host_key, python="python3 -S"), run="bare")

    assert "needs msgspec" in report["refused"]
    assert not list((town.folder / "remote").rglob("*"))


def test_a_host_that_is_still_being_furnished_when_another_is_refused_is_left_empty(town):
    folder = town.folder / "remote" / hosts_of_run.run_name(town.folder / "slow") / "2" / "code"
    slow = town.folder / "slow-python"
    slow.write_text(
        f"#!/bin/sh\nfor i in $(seq {FILES_OF_SLOW}); do mkdir -p {folder}; : > {folder}/$i; done\n"
        f'exec {sys.executable} "$@"\n'
    )
    slow.chmod(0o755)
    pythons = {101: {"python": "python3 -S"}, 2: {"python": str(slow)}}

    report = town.reported([], hosts=town.write_hosts("slow.toml", town.host_key, of_one=pythons), run="slow")

    assert "needs msgspec" in report["refused"]
    assert not list((town.folder / "remote").rglob("*"))


@pytest.mark.nightly
def test_a_killed_harness_leaves_daemons_that_a_sweep_ends(town):
    with town.story("up", run="killed") as story:
        assert story.stdout.readline() == "up\n"
        story.kill()

    left = town.reported("leftovers", run="killed")
    done = town.reported("sweep", run="killed")

    assert len([line for line in left if "process" in line]) >= STARTED
    assert len(done) == STARTED
    assert town.reported("leftovers", run="killed") == []


def left_on_hosts(town, run, pid, hosts=None):
    """Write what a run of this name has left on two hosts: folders, each with the id of a process."""
    known = read_hosts(hosts or town.hosts)
    hosts_of_run.write_record(town.folder / run, known)
    folders = [
        Path(hosts_of_run.remote_folder(known.entry(node), hosts_of_run.run_name(town.folder / run)))
        for node in NODES[:2]
    ]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "sessions").write_text(f"{pid}\n")
    return folders


def test_an_id_that_another_process_has_by_now_is_not_the_node(town):
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as bystander:
        folders = left_on_hosts(town, "stale", bystander.pid)

        left = town.reported("leftovers", run="stale")
        town.reported("sweep", run="stale")

        alive = bystander.poll() is None
        bystander.kill()
    assert alive
    assert [line for line in left if "process" in line] == []
    assert [folder for folder in folders if folder.exists()] == []


def test_a_host_that_does_not_answer_keeps_no_other_from_being_swept(town):
    hosts = town.write_hosts("one-silent.toml", town.host_key, of_one={1: {"ssh": f"{address(1)}:2222"}})
    with subprocess.Popen(["sleep", "600"]) as ended:
        silent, other = left_on_hosts(town, "one-silent", ended.pid, hosts)
        ended.kill()

    report = town.reported("sweep", run="one-silent")

    assert f"host {address(1)}:2222 of node 1 does not answer" in report["refused"]
    assert silent.exists()
    assert not other.exists()
    shutil.rmtree(silent)


@pytest.mark.parametrize("find", [hosts_of_run.leftovers, hosts_of_run.sweep], ids=lambda find: find.__name__)
def test_a_record_of_hosts_that_was_cut_off_is_named(tmp_path, find):
    (tmp_path / hosts_of_run.RECORD).write_text('{"relay": "192.0.')

    with pytest.raises(ClusterError, match=rf"{hosts_of_run.RECORD}: .*truncated"):
        find(tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("relay = 7", "relay: a text is needed, not a whole number", id="wrong type"),
        pytest.param("relay = ", "Invalid value", id="no TOML"),
        pytest.param('relay = "a"\nnode = []\nnodes = 3', "unknown field `nodes`", id="unknown word"),
        pytest.param(
            'relay = "a"\n[[node]]\nid = 1\naddress = "b"\nhost_key = "k"\n[[node]]\nid = 2\naddress = "b"\nhost_key = "k"',
            "two nodes on b",
            id="address twice",
        ),
        pytest.param(
            'relay = "a"\n[[node]]\nid = 1\naddress = "b"\nssh = "b:ssh"\nhost_key = "k"',
            "ssh = 'b:ssh' of node 1",
            id="port no number",
        ),
        pytest.param(
            '[[node]]\nid = 1\naddress = "b:22"\nhost_key = "k"',
            "address = 'b:22' of node 1",
            id="a port in the address",
        ),
        pytest.param(
            '[[node]]\nid = 1\naddress = "b"\nhost_key = "k"\ndirectory = "~/runs"',
            "directory = '~/runs' of node 1: it has to be a full path",
            id="a folder that is another one elsewhere",
        ),
        pytest.param(
            '[[node]]\nid = 1\naddress = "b"\nhost_key = "k"\n[[node]]\nid = 1\naddress = "c"\nhost_key = "k"',
            "node 1 stands there twice",
            id="node twice",
        ),
    ],
)
def test_a_bad_file_of_hosts_is_refused_in_one_line(tmp_path, text, complaint):
    path = tmp_path / "hosts.toml"
    path.write_text(text)

    with pytest.raises(ClusterError, match=complaint) as refused:
        read_hosts(path)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "ssh", "endpoint"),
    [
        ("192.0.2.1", None, ("192.0.2.1", 22)),
        ("192.0.2.1", "192.0.2.9:2222", ("192.0.2.9", 2222)),
        ("2001:db8::1", None, ("2001:db8::1", 22)),
        ("2001:db8::1", "[2001:db8::1]:2222", ("2001:db8::1", 2222)),
    ],
)
def test_an_address_may_be_of_either_sort(address, ssh, endpoint):
    assert HostEntry(id=1, address=address, ssh=ssh, host_key="k").endpoint == endpoint


def test_a_missing_file_of_hosts_says_how_to_name_another(tmp_path):
    with pytest.raises(ClusterError, match=r"--set cluster\.hosts=FILE"):
        read_hosts(tmp_path / "none.toml")


def test_a_pinned_key_that_is_none_is_refused():
    with pytest.raises(ClusterError, match="host_key of node 1 is no public key"):
        Shell(HostEntry(id=1, address="127.0.0.1", host_key="nonsense")).open()
