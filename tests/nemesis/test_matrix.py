"""Every fault on every kind of cluster that claims it: injected, proven, healed; and what is left afterwards: nothing.

The table goes to runs/fault-matrix.md, or where TRIBUNAL_MATRIX says. Each fault is tried once on processes in namespaces
(`test_faults_on_processes.py`); here are the other kinds: three faults each in the gate, all of them in the nightly lane.
(Hosts over ssh: `tests/clusters/test_ssh.py`; the gate's three on containers: `tests/containers`.)
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.nemesis.fault_matrix import write_row
from tests.nemesis.fault_table import COMPOSED, ONCE
from tests.nemesis.living_cluster import LivingCluster, broken, hurt
from tests.nemesis.machine import left_of, ours
from tribunal.clusters.api import ClusterError, ClusterSpec
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.images.build import engine
from tribunal.clusters.kinds import containers, processes
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.harness.catalog import faults
from tribunal.harness.fault_journal import NotHealed, heal, refuse_unless_healed
from tribunal.harness.plan import refusal

ROOT = Path(__file__).parents[2]
NIGHTLY = pytest.mark.nightly
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]
LONG_SESSIONS = {"broker.session.timeout.ms": 5000}
KINDS = {
    "proxies": (processes, ClusterSpec(isolation="proxies", settings=LONG_SESSIONS)),
    "containers": (containers, ClusterSpec(settings=LONG_SESSIONS)),
}
IN_THE_GATE = {"proxies": ("kill", "isolate", "slow")}  # the other kinds have tests of their own there


def why_not(kind):
    if kind == "namespaces" and isinstance(way_in(), str):
        return way_in()
    if kind == "containers":
        try:
            engine().close()
        except ClusterError as problem:
            return str(problem)
    return ""


def claimed(kind):
    """Return the cases of the faults that this kind claims here; without namespaces there are no mounts."""
    module, spec = KINDS[kind]
    no_mounts = spec.isolation == "proxies"
    return [
        case
        for case in ONCE + COMPOSED
        if not refusal(faults()[case[0]], module.KIND)
        and not (no_mounts and Capability.MOUNT_DISK in faults()[case[0]].needs)
    ]


def cases(kind):
    """Return a kind's cases as parameters: those that are not for the gate are nightly."""
    reason = why_not(kind)
    lane = [pytest.mark.containers] if kind == "containers" else []
    lane += [pytest.mark.skip(reason=reason)] if reason else []
    return [
        pytest.param(*case, id=case[0], marks=lane + ([] if case[0] in IN_THE_GATE.get(kind, ()) else [NIGHTLY]))
        for case in claimed(kind)
    ]


def a_cluster(kind, tmp_path_factory):
    """Yield a cluster, and see that nothing of it is left."""
    os.environ.setdefault("TRIBUNAL_BASE_IMAGE", "interpreter")
    module, spec = KINDS[kind]
    folder = tmp_path_factory.mktemp(kind)
    living = LivingCluster.launched(module, folder, spec)
    yield living
    living.close()
    assert module.leftovers(folder) == []
    assert ours(left_of(folder)) == []


@pytest.fixture(scope="module")
def behind_proxies(tmp_path_factory):
    yield from a_cluster("proxies", tmp_path_factory)


@pytest.fixture(scope="module")
def in_containers(tmp_path_factory):
    yield from a_cluster("containers", tmp_path_factory)


def bites_and_heals(kind, living, name, node, lasts_s, options):
    began = time.monotonic()
    try:
        effect = living.run(lambda cluster: hurt(cluster, faults()[name], node, lasts_s, **options))
    except BaseException as problem:
        write_row(
            kind, name, took_effect=False, healed=False, took_s=time.monotonic() - began, words=type(problem).__name__
        )
        raise

    healed = effect.heal is not None and effect.heal.holds
    write_row(kind, name, took_effect=effect.proof.holds, healed=healed, took_s=time.monotonic() - began)
    assert effect.proof.holds, broken(effect.proof.facts)
    assert healed, effect.heal and broken(effect.heal.facts)
    assert living.cluster.failures() == []


@pytest.mark.parametrize(("name", "node", "lasts_s", "options"), cases("proxies"))
def test_a_fault_bites_and_heals_behind_proxies(behind_proxies, name, node, lasts_s, options):
    bites_and_heals("proxies", behind_proxies, name, node, lasts_s, options)


@pytest.mark.parametrize(("name", "node", "lasts_s", "options"), cases("containers"))
def test_a_fault_bites_and_heals_in_containers(in_containers, name, node, lasts_s, options):
    bites_and_heals("containers", in_containers, name, node, lasts_s, options)


IN_FORCE = [["pause", 1], ["narrow", 2], ["isolate", 2]]
KILLED = [
    pytest.param("processes", [*IN_FORCE, ["mount-full", 3]], id="processes"),
    pytest.param(
        "containers",
        [*IN_FORCE, ["mount-full", 3]],
        id="containers",
        marks=[pytest.mark.nightly, pytest.mark.containers],
    ),
]


@pytest.mark.parametrize(("kind", "in_force"), KILLED)
def test_a_harness_killed_in_the_middle_leaves_nothing_that_heal_does_not_undo(tmp_path, kind, in_force):
    why = why_not("namespaces" if kind == "processes" else kind)
    if why:
        pytest.skip(why)
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "tests.nemesis.hurt_and_wait", kind, str(run_dir), json.dumps(in_force)]
    environment = {"TRIBUNAL_BASE_IMAGE": "interpreter"} | os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as harness:
        assert harness.stdout.readline() == "hurt\n"
        harness.kill()

    with pytest.raises(NotHealed, match="tribunal heal"):
        refuse_unless_healed(tmp_path)
    done = heal(tmp_path)

    assert any("healed" in line for line in done)
    assert ours(left_of(run_dir)) == []
    refuse_unless_healed(tmp_path)
