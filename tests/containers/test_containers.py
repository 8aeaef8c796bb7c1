"""Nodes in containers: serving, killed, paused, cut off, losing power, each proven; and nothing left behind."""

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.nemesis.living_cluster import LivingCluster, broken, hurt
from tribunal.clusters.api import ClusterError, CutMode
from tribunal.clusters.clock import RunClock
from tribunal.clusters.images.build import engine
from tribunal.clusters.kinds import containers
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults

ROOT = Path(__file__).parents[2]


def no_engine():
    """Return why there is no container engine, or nothing."""
    try:
        engine().close()
    except ClusterError as problem:
        return f"{problem}: {containers.REMEDY}"
    return ""


pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(no_engine()), reason=no_engine() or "there is one"),
]


@pytest.fixture(scope="module", autouse=True)
def _base_without_a_registry():
    before = os.environ.get("TRIBUNAL_BASE_IMAGE")
    os.environ.setdefault("TRIBUNAL_BASE_IMAGE", "interpreter")
    yield
    if before is None:
        del os.environ["TRIBUNAL_BASE_IMAGE"]


@pytest.fixture(scope="module")
def living(tmp_path_factory, _base_without_a_registry):
    directory = tmp_path_factory.mktemp("containers")
    living = LivingCluster.launched(containers, directory)
    yield living
    living.close()
    assert containers.leftovers(directory) == []


THREE = [("kill", 1, {}), ("pause", 2, {}), ("isolate", 3, {"others": "nodes"})]
MORE = [
    ("stop", 1, {}),
    ("wipe", 2, {}),
    ("power-loss", 3, {}),
    ("slow", 1, {"delay_ms": 40, "jitter_ms": 10}),
    ("half-open", 2, {"others": "nodes"}),
    ("hold-messages", 1, {"api": "fetch"}),
    ("clock-jump", 3, {}),
    ("full-disk", 2, {}),
    ("bit-flip", 1, {}),
]


@pytest.mark.parametrize(
    ("name", "node", "options"),
    [pytest.param(*case, id=case[0]) for case in THREE]
    + [pytest.param(*case, id=case[0], marks=pytest.mark.nightly) for case in MORE],
)
def test_a_fault_bites_and_heals(living, name, node, options):
    effect = living.run(lambda cluster: hurt(cluster, faults()[name], node, 0.5, **options))

    assert effect.proof.holds, broken(effect.proof.facts)
    assert effect.heal is not None
    assert effect.heal.holds, broken(effect.heal.facts)
    assert living.cluster.failures() == []


def test_a_node_is_reached_from_its_own_address(living):
    links = living.cluster.links

    async def story(cluster):
        sock = await links.addresses.connect_as(2, links.advertised(1))
        host = sock.getsockname()[0]
        sock.close()
        return host

    assert links.caller(living.run(story)) == 2


def test_a_killed_harness_leaves_containers_that_a_sweep_removes(tmp_path):
    program = (
        "import asyncio, sys, pathlib\n"
        "from tribunal.clusters.kinds import containers\n"
        "from tribunal.clusters.clock import RunClock\n"
        "from tribunal.clusters.spec import ClusterSpec\n"
        "async def main():\n"
        "    spec = ClusterSpec(brokers=1, controllers=1, replication_factor=1, min_insync_replicas=1)\n"
        "    await containers.launch(spec, pathlib.Path(sys.argv[1]), RunClock(), 'A' * 22)\n"
        "    print('up', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    harness = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with harness:
        assert harness.stdout.readline() == "up\n"
        harness.kill()

    left = containers.leftovers(tmp_path)
    done = containers.sweep(tmp_path)

    assert len(left) == len(done) == 3
    assert containers.leftovers(tmp_path) == []


def test_an_image_that_does_not_build_shows_its_last_lines(tmp_path, monkeypatch):
    from tribunal.clusters.images import build

    (tmp_path / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo about to fail && exit 9\n")
    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setattr(build, "_base", lambda client, name: base)
    client = engine()
    base = next(tag for image in client.images.list(build.BASE_REPOSITORY) for tag in image.tags)

    with pytest.raises(ClusterError, match="about to fail"):
        build.node_image(client)

    client.close()


def test_the_image_has_every_package_that_a_node_imports(monkeypatch):
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    from tribunal.clusters.images.build import node_image

    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    with closing(engine()) as client:
        tag = node_image(client)
    program = (
        "import importlib, pkgutil, replog;"
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(replog.__path__, 'replog.')"
        " if '__main__' not in m.name and '.mutants.' not in m.name];"
        "print('all there')"
    )
    container = DockerContainer(tag).with_command(["python3", "-c", program])
    with container:
        wrapped = container.get_wrapped_container()
        code = wrapped.wait()["StatusCode"]
        said = b"".join(container.get_logs()).decode()
    container.get_docker_client().client.close()

    assert (code, said.strip()) == (0, "all there"), said


def test_a_base_that_is_not_there_is_refused(monkeypatch):
    from tribunal.clusters.images import build

    monkeypatch.setenv("TRIBUNAL_BASE_IMAGE", "127.0.0.1:1/no-such-image:0")
    client = engine()

    with pytest.raises(ClusterError, match="is not here and cannot be pulled"):
        build.node_image(client)

    client.close()


def test_a_cut_takes_less_than_100_ms_besides_its_probes(living):
    async def story(cluster):
        links = cluster.links
        loop = asyncio.get_running_loop()
        began = loop.time()
        links.cuts |= dict.fromkeys(_pairs(cluster), CutMode.HOLD)
        links.apply_hindrances()
        cut_ms = (loop.time() - began) * 1000
        links.cuts.clear()
        links.apply_hindrances()
        return cut_ms

    assert living.run(story) < 100


def _pairs(cluster):
    from tribunal.nemesis.link_groups import links_of

    return links_of(cluster.spec, 1, "nodes")


def test_without_an_engine_the_reason_is_said(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")

    (obstacle,) = containers.obstacles()

    assert "no container engine answers" in obstacle.reason
    assert "ensure_docker" in obstacle.remedy
    with pytest.raises(ClusterError, match="no container engine"):
        asyncio.run(containers.launch(ClusterSpec(), Path("unused"), RunClock(), "A" * 22))
