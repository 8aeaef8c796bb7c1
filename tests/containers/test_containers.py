"""Nodes in containers: serving, killed, paused, cut off, losing power, each proven; and nothing left behind."""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.clusters.docker_images import unnamed
from tests.nemesis.living_cluster import LivingCluster, broken, hurt
from tribunal.clusters.api import ClusterError, CutMode
from tribunal.clusters.clock import RunClock
from tribunal.clusters.images import build
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


def made_image(client, folder):
    return build.node_image(client, folder / "image.log", folder, lambda _: None)


# Python there does not come to its end; each folder has an image of its own.
HANGS = """FROM {base}
COPY hangs.py /hangs.py
RUN python3 /hangs.py {unique}
"""
HANGING = """import os, shutil
own = shutil.which("python3")
os.rename(os.path.realpath(own), own + "-itself")
if os.path.lexists(own):
    os.unlink(own)
with open(own, "w") as file:
    file.write(f"#!/bin/sh\\nexec {own}-itself -c 'import time; time.sleep(597)'\\n")
os.chmod(own, 0o755)
"""


def test_who_gives_up_while_the_nodes_image_is_built_waits_for_nothing(tmp_path, monkeypatch):
    """A thread waited for the end of the build: Ctrl-C came through when it was over."""
    run_dir, base = tmp_path / "run", f"tribunal-test-base:{tmp_path.name}"
    run_dir.mkdir()
    with closing(engine()) as client:
        (tmp_path / "Dockerfile").write_text(
            HANGS.format(base=build._base(client, build.INTERPRETER, print), unique=tmp_path)
        )
        (tmp_path / "hangs.py").write_text(HANGING)
        client.images.build(path=str(tmp_path), tag=base, rm=True)
        monkeypatch.setenv("TRIBUNAL_BASE_IMAGE", base)

        async def given_up():
            spec = ClusterSpec(brokers=1, controllers=0)
            launching = asyncio.create_task(containers.launch(spec, run_dir, RunClock(), "A" * 22))
            while not any(
                one.startswith("build container") for one in await asyncio.to_thread(containers.leftovers, run_dir)
            ):
                assert not launching.done()
                await asyncio.sleep(0.05)
            launching.cancel()
            began = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await launching
            return began

        try:
            began = asyncio.run(given_up())
            took_s = time.monotonic() - began
            assert containers.leftovers(run_dir) == []
            assert unnamed(client, tmp_path) == []
        finally:
            client.images.remove(base, force=True)

    assert took_s < 30
    assert "Step" in (run_dir / "logs" / "image.log").read_text()


def test_an_image_that_does_not_build_shows_its_last_lines(tmp_path, monkeypatch):
    (tmp_path / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo about to fail && exit 9\n")
    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setattr(build, "_base", lambda client, name, report: base)
    client = engine()
    base = next(tag for image in client.images.list(build.BASE_REPOSITORY) for tag in image.tags)

    with pytest.raises(ClusterError, match="about to fail"):
        made_image(client, tmp_path)

    client.close()


def test_the_image_has_every_package_that_a_node_imports(tmp_path, monkeypatch):
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    with closing(engine()) as client:
        tag = made_image(client, tmp_path)
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


def test_a_base_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIBUNAL_BASE_IMAGE", "127.0.0.1:1/no-such-image:0")
    client = engine()

    with pytest.raises(ClusterError, match="is not here and cannot be pulled"):
        made_image(client, tmp_path)

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
