"""What a kind of cluster cannot do is refused when the plan is made, with the reason."""

import errno
import json
import os
import re
import socket
import sys
from importlib.metadata import distribution, version

import pytest
from packaging.requirements import Requirement

from tribunal.clusters.images import build
from tribunal.clusters.images.interpreter_base import PACKAGES
from tribunal.clusters.kinds import apache_kafka, containers, processes, ssh
from tribunal.clusters.nodes.node_container import named
from tribunal.clusters.obstacles import with_tool
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults
from tribunal.harness.doctor import examined
from tribunal.harness.plan import made, must_be_possible, refusal
from tribunal.harness.scenario import BadScenario, load


def test_a_fault_that_a_kind_cannot_do_at_all_is_refused():
    assert refusal(faults()["mount-full"], apache_kafka.KIND) == "mount_disk"


def test_a_fault_that_this_machine_cannot_do_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr(processes, "way_in", lambda: "no network namespaces: forbidden")
    monkeypatch.setattr(containers.os, "geteuid", lambda: 1000)

    assert refusal(faults()["mount-full"], processes.KIND) == "mount_disk (no network namespaces: forbidden)"
    assert refusal(faults()["mount-full"], containers.KIND) == "mount_disk (mounting into containers takes root)"
    assert refusal(faults()["kill"], processes.KIND) == ""


@pytest.mark.parametrize("scenario", ["leader dies", "größe", "a:b,c"])
def test_containers_of_a_scenario_of_any_name_are_called_as_an_engine_takes_it(tmp_path, scenario):
    """An engine takes letters, digits, _, . and - alone."""
    names = [named(tmp_path / f"20261129T090000Z-{scenario}-{kind}-7") for kind in ("containers", "system")]

    assert all(re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name) for name in names)
    assert len(set(names)) == 2


@pytest.mark.parametrize(("fault", "kinds"), [("late-leave", {"ssh", "apache-kafka", "mixed"}), ("stop", set())])
def test_a_fault_of_zookeeper_mode_works_on_no_kind_without_that_mode(fault, kinds):
    (health,) = examined(fault).faults

    assert {kind for kind, reason in health.refused.items() if "ZooKeeper mode" in reason} == kinds
    assert "simulated" in health.works_on


@pytest.mark.parametrize("fault", ["remove-voter", "remove-broker"])
def test_a_fault_of_kraft_mode_is_refused_in_zookeeper_mode(fault):
    """A ZooKeeper mode has no voters, and forgets a broker whose session has ended by itself."""
    with pytest.raises(BadScenario, match=f"fault {fault} strikes what only KRaft mode has: --mode kraft"):
        must_be_possible([fault], ClusterSpec(mode="zookeeper"), "processes")

    must_be_possible([fault], ClusterSpec(), "processes")


def test_runs_of_one_name_in_two_folders_share_no_container(tmp_path):
    names = {containers.named(tmp_path / folder / ("run" * 30)) for folder in ("a", "b")}

    assert len(names) == 2
    assert max(map(len, names)) <= 60


def test_an_engine_that_refuses_this_user_is_distinguished_from_one_that_is_not_there(monkeypatch):
    def forbidden(self, address):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(build.socket, "socket", type("Door", (socket.socket,), {"connect": forbidden}))
    monkeypatch.delenv("DOCKER_HOST", raising=False)

    (obstacle,) = containers.obstacles()

    assert obstacle.reason == "no container engine answers at unix:///var/run/docker.sock: Permission denied"
    assert "usermod -aG docker" in obstacle.remedy


@pytest.mark.parametrize(
    ("kind", "package", "extra"), [(containers, "docker", "replog[containers]"), (ssh, "paramiko", "replog[ssh]")]
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(kind, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)

    (obstacle,) = kind.obstacles()

    assert obstacle.reason == f"the package '{package}' is not installed"
    assert f"pip install '{package}>=" in obstacle.remedy
    assert extra in obstacle.remedy


@pytest.mark.parametrize("kind", [processes, containers], ids=["processes", "containers"])
def test_a_fault_that_works_is_not_refused(kind):
    assert refusal(faults()["isolate"], kind.KIND) == ""


def test_a_remedy_names_a_checkouts_tool_only_where_there_is_one(tmp_path):
    (tmp_path / "get_it.py").touch()

    in_a_checkout = with_tool("get_it.py", "python tools/get_it.py", otherwise="apt-get install it", tools=tmp_path)
    installed = with_tool("get_it.py", "python tools/get_it.py", otherwise="apt-get install it", tools=tmp_path / "no")

    assert in_a_checkout == "python tools/get_it.py"
    assert installed == "apt-get install it"


@pytest.mark.parametrize(("mode", "step"), [
    ("zookeeper", {"hold-messages": "broker 1", "api": "broker-heartbeat"}),
    ("zookeeper", {"fast-bounce": "broker 1", "late": "broker-registration"}),
    ("kraft", {"drop-messages": "broker 1", "api": "leader-and-isr"}),
])  # fmt: skip
def test_messages_that_nobody_sends_in_a_mode_are_refused_at_plan_time(tmp_path, mode, step):
    """A rule for them would meet no message, and the run would end as INCONCLUSIVE."""
    assert "nobody sends" in str(planned(tmp_path, mode, step))
    assert planned(tmp_path, "kraft" if mode == "zookeeper" else "zookeeper", step) is None


def planned(folder, mode, step):
    path = folder / "s.yaml"
    content = {"scenario": "s", "about": "a", "cluster": {"mode": mode}, "time": "5s", "steps": [step | {"for": "1s"}]}
    path.write_text(json.dumps(content | {"workload": {"name": "produce-consume"}}))
    try:
        made(load(path, {}), seed=1, cluster="simulated", time_ms=None, mutants=())
    except BadScenario as problem:
        return problem
    return None


def test_an_image_installs_what_the_lock_file_pins_and_nothing_else():
    installed = build.requirements(build.LOCK)

    names = [line.partition("==")[0].replace("-", "_") for line in installed.splitlines() if "==" in line]
    assert names == [*PACKAGES]
    assert installed.count("--hash=sha256:") >= len(names)
    assert {*installed.splitlines()} <= {*build.LOCK.read_text().splitlines()}
    needed = {
        Requirement(line).name.replace("-", "_")
        for name in names
        for line in distribution(name).requires or ()
        if "extra ==" not in line
    }
    assert needed <= {*names}


def test_an_image_of_an_installed_harness_has_the_versions_that_run_it(tmp_path):
    installed = build.requirements(tmp_path / "no-lock-there")

    assert f"msgspec=={version('msgspec')}\n" in installed
