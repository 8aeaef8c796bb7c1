"""Every fault on every kind of cluster that claims it: injected, proven, healed; and what is left afterwards: nothing.

The table goes to runs/fault-matrix.md, or where TRIBUNAL_MATRIX says. In the gate each fault is tried once on processes
in namespaces (`test_faults_on_processes.py`), and three faults on every other kind; the rest is nightly.
(Hosts over ssh: `tests/clusters/test_ssh.py`.)
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clusters import containers, processes
from clusters.api import ClusterError, ClusterSpec
from clusters.images.build import engine
from clusters.namespaces import way_in
from harness.catalog import faults
from harness.fault_journal import NotHealed, heal, refuse_unless_healed
from harness.plan import refusal
from tests.nemesis.fault_matrix import write_row
from tests.nemesis.fault_table import COMPOSED, ONCE
from tests.nemesis.living_cluster import LivingCluster, broken, hurt
from tests.nemesis.machine import left_of

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]
PATIENT = {"broker.session.timeout.ms": 5000}
KINDS = {
    "namespaces": (processes, ClusterSpec(isolation="namespaces", settings=PATIENT)),
    "proxies": (processes, ClusterSpec(isolation="proxies", settings=PATIENT)),
    "containers": (containers, ClusterSpec(settings=PATIENT)),
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
        if not refusal(faults()[case[0]], module) and not (no_mounts and "mount_disk" in faults()[case[0]].NEEDS)
    ]


def matrix():
    for kind in KINDS:
        reason = why_not(kind)
        for case in claimed(kind):
            marks = [] if case[0] in IN_THE_GATE.get(kind, ()) else [pytest.mark.nightly]
            if kind == "containers":
                marks.append(pytest.mark.containers)
            if reason:
                marks.append(pytest.mark.skip(reason=reason))
            yield pytest.param(kind, *case, id=f"{kind}-{case[0]}", marks=marks)


@pytest.fixture(scope="module")
def living(request, tmp_path_factory):
    """A cluster of the asked-for kind; one at a time (parameters come kind by kind)."""
    os.environ.setdefault("TRIBUNAL_BASE_IMAGE", "interpreter")
    module, spec = KINDS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    before = left_of(folder)
    living = LivingCluster.launched(module, folder, spec)
    yield living
    living.close()
    assert module.leftovers(folder) == []
    assert left_of(folder) == before


@pytest.mark.parametrize(("living", "name", "node", "lasts_s", "options"), list(matrix()), indirect=["living"])
def test_a_fault_bites_and_heals(request, living, name, node, lasts_s, options):
    began = time.monotonic()
    kind = request.node.callspec.params["living"]
    try:
        effect = living.run(lambda cluster: hurt(cluster, faults()[name], node, lasts_s, **options))
    except BaseException as problem:
        write_row(kind, name, bit=False, healed=False, took_s=time.monotonic() - began, words=type(problem).__name__)
        raise

    healed = effect.heal is not None and effect.heal.holds
    write_row(kind, name, bit=effect.proof.holds, healed=healed, took_s=time.monotonic() - began)
    assert effect.proof.holds, broken(effect.proof.facts)
    assert healed, effect.heal and broken(effect.heal.facts)
    assert living.cluster.failures() == []


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
    before = left_of(run_dir)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as harness:
        assert harness.stdout.readline() == "hurt\n"
        harness.kill()

    with pytest.raises(NotHealed, match="tribunal heal"):
        refuse_unless_healed(tmp_path)
    done = heal(tmp_path)

    assert any("healed" in line for line in done)
    assert left_of(run_dir) == before
    refuse_unless_healed(tmp_path)
