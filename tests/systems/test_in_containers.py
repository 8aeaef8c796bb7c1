"""A described system whose nodes run in containers of an image: started, killed, paused, judged; and nothing stays, also not of a harness that is killed."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.clusters.docker_images import no_engine, unnamed
from tests.systems.judged import judged_in, started
from tribunal.clusters.api import ClusterError, CutMode, Link, Proof, until
from tribunal.clusters.images import build, half_images
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.nodes.leftovers import command_lines
from tribunal.clusters.nodes.mounts import below
from tribunal.clusters.nodes.node_container import left_of, named, remove_all
from tribunal.clusters.notices import listening
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems import program
from tribunal.clusters.systems.cluster import WATCH_MS, SystemCluster
from tribunal.clusters.systems.container_links import lacking
from tribunal.clusters.systems.containers import InContainers
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.harness.fault_journal import refuse_unless_healed
from tribunal.harness.new import made_system
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run, new_run_dir
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.store import Recording
from tribunal.results.verdict import RunVerdict, Verdict

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

ROOT = Path(__file__).parents[2]
WITHIN_S = 60
BUILT_S = 180  # a build has many steps of the engine, and its end some rounds of the guard


needs_engine = [
    pytest.mark.containers,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(no_engine()), reason=no_engine() or "there is one"),
]


needs_root = pytest.mark.skipif(bool(lacking()), reason=lacking() or "nothing is lacking")
NO_DISKS = no_disks(in_containers=True)
needs_disks = pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "nothing is lacking")
FORGETFUL = ("count = ", 'disk = "forgetful"\ncount = ')


async def launched(folder: Path, run: Path, *, count: int) -> SystemCluster:
    """Return the system of a folder, running."""
    await asyncio.to_thread(run.mkdir)
    spec = ClusterSpec(brokers=count, controllers=0, system=str(folder / "system.toml"))
    return await started(spec, run)


def in_image(folder: Path, image: str, *more: tuple[str, str]) -> Path:
    """Make the sample system in a folder, its nodes in containers of this image; return its own folder."""
    made_system("keeper", folder)
    for file in (folder / "keeper").glob("*.toml"):
        text = file.read_text().replace("[nodes]\n", f'[nodes]\nimage = "{image}"\n')
        for old, new in more:
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)
    return folder / "keeper"


def built_of(folder: Path, dockerfile: str) -> Path:
    """Make the sample system in a folder, its nodes in containers of an image that is built; return its own folder."""
    own = in_image(folder, "any", ('image = "any"', 'dockerfile = "Dockerfile"'))
    (own / "Dockerfile").write_text(dockerfile)
    return own


# Two steps that come to their end, and one that does not.
LONG_BUILD = """FROM {image}
RUN echo {unique} > /first
RUN echo second > /second
RUN python3 -c 'import time; time.sleep(597)  # {unique}'
"""


def is_at_its_long_step(client: "DockerClient", runs: Path) -> bool:
    """Return whether the run in a folder has taken note of two images and of the container of the third step."""
    noted = [half_images.half_made(client, note.parent) for note in runs.glob(f"*/{half_images.NOTE}")]
    return [len(one) for one in noted] == [3]


def removed_somehow(container: "Container") -> None:
    """Remove a container, or let somebody else."""
    from docker.errors import APIError

    with contextlib.suppress(APIError):
        container.remove(force=True)


def sleeping_step(client: "DockerClient", unique: Path) -> int:
    """Return how many containers run the step that does not come to its end."""
    running = client.containers.list(ignore_removed=True)
    return sum(f"time.sleep(597)  # {unique}" in " ".join(one.attrs["Config"]["Cmd"] or []) for one in running)


def remove_built(word: str) -> None:
    """Remove the images of described systems whose history names a word."""
    with closing(build.engine()) as client:
        for one in client.images.list(build.SYSTEM_REPOSITORY):
            if any(word in step["CreatedBy"] for step in one.history()):
                client.images.remove(one.id, force=True)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image with Python in it, made of this interpreter: no registry is asked."""
    with closing(build.engine()) as client:
        yield build._base(client, build.INTERPRETER, lambda _: None)


def sleepers() -> int:
    """Return how many processes of this machine sleep as the hung look of the test does."""
    return sum(words[1:3] == ["-c", "import time; time.sleep(599)"] for _, words in command_lines())


def judged(folder: Path, out: Path, system: str = "system.toml") -> RunVerdict:
    """Run the sample system under a kill and a pause."""
    steps = "[{kill: node 1, for: 100ms, after: 500ms}, {pause: node 1, for: 300ms, after: 200ms}]"
    overrides = {"steps": steps, "time": "2s", "warm_up": "500ms", "cluster.system": str(folder / system)}
    return judged_in(folder, "scenario.yaml", overrides, out)


class TestWithAnEngine:
    """What takes a container engine."""

    pytestmark = needs_engine

    def test_a_system_in_containers_is_killed_and_paused_and_passes(self, tmp_path: Path, image: str) -> None:
        """Its data is in the run's folder, and outlives its processes."""
        verdict = judged(in_image(tmp_path, image), tmp_path / "runs")

        assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])
        assert verdict.judged["calls on registers"] > 20
        (run_dir,) = (tmp_path / "runs").iterdir()
        assert Recording.open(run_dir).manifest.described.version == "keeper 1.0"

    def test_what_its_containers_lose_is_found(self, tmp_path: Path, image: str) -> None:
        """The same with the server that acknowledges before it has written: the kill reaches the server itself."""
        folder = in_image(tmp_path, image)

        verdicts = (judged(folder, tmp_path / "runs", "lossy.toml") for _ in range(4))

        assert any(one.verdict is Verdict.VIOLATION for one in verdicts)

    def test_prepare_readiness_and_stop_run_in_the_image(self, tmp_path: Path, image: str) -> None:
        """`prepare` in a container of its own, the others in the node's."""
        ready = 'ready = { command = ["python3", "-c", "import socket; socket.create_connection((\'{host}\', {port}), 1)"] }'
        prepare = 'prepare = ["sh", "-c", "echo prepared > {data}/prepared"]'
        stop = 'stop = ["sh", "-c", "kill -TERM 1; sleep 5"]'  # it is ended with the container
        folder = in_image(tmp_path, image, ("ready = {", f"{prepare}\n{stop}\n{ready}\n# ready = {{"))
        scenario = {"steps": "[{stop: node 1, for: 100ms, after: 500ms}]", "time": "1s", "warm_up": "500ms"}

        verdict = judged_in(folder, "scenario.yaml", scenario, tmp_path / "runs")

        assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])
        (run_dir,) = (tmp_path / "runs").iterdir()
        assert (run_dir / "nodes" / "1" / "data" / "prepared").read_text() == "prepared\n"

    @needs_root
    def test_looks_that_hang_take_no_thread_and_end_in_their_container(
        self, tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A loop has few threads; where each hung look kept one, soon nothing that blocks was done any more. Its children end with it."""
        monkeypatch.setattr(program, "LOOK_MS", 300)
        hangs = "test ! -e {data}/hung || { python3 -c 'import time; time.sleep(599)'; true; }"
        folder = in_image(
            tmp_path, image, ("ready = {", f'ready = {{ command = ["sh", "-c", "{hangs}"] }}\n# ready = {{')
        )
        hung = tmp_path / "run" / "nodes" / "1" / "data" / "hung"

        async def tried() -> tuple[bool, int]:
            cluster = await launched(folder, tmp_path / "run", count=1)
            try:
                await asyncio.to_thread(hung.touch)
                await until(
                    lambda: cluster.state.brokers[1].fenced, timeout_ms=20_000, what="a hung look", cluster=cluster
                )
                await asyncio.sleep(8 * (0.3 + WATCH_MS / 1000))
                async with asyncio.timeout(3):
                    sleeping = await asyncio.to_thread(sleepers)
                return cluster.nodes[1].alive, sleeping
            finally:
                await cluster.close()

        assert asyncio.run(tried()) in ((True, 0), (True, 1))

    @needs_root
    def test_a_stop_that_hangs_is_given_up_and_said(self, tmp_path: Path, image: str) -> None:
        """What it said is in its log, and the node goes on."""
        stop = 'stop = ["sh", "-c", "echo asked; exec python3 -c \'import time; time.sleep(599)\'"]\nstop_within_ms = 1000\n'
        folder = in_image(tmp_path, image, ("ready = {", f"{stop}ready = {{"))

        async def tried() -> tuple[bool, float]:
            cluster = await launched(folder, tmp_path / "run", count=1)
            try:
                with pytest.raises(ClusterError, match="node 1 does not end within 1000 ms"):
                    await cluster.stop(1)
                alive, before = cluster.alive(1), time.monotonic()
            finally:
                await cluster.close()
            return alive, time.monotonic() - before

        alive, closing_s = asyncio.run(tried())

        assert alive
        assert closing_s < WITHIN_S
        assert (tmp_path / "run" / "logs" / "stop-1.log").read_text() == "asked\n"

    @needs_root
    def test_links_of_containers_are_cut_and_stay_so_when_a_node_is_killed(self, tmp_path: Path, image: str) -> None:
        """Between nodes and to clients, each proven by packets; who starts again meanwhile is cut off still."""
        folder = in_image(tmp_path, image, ("count = 1", "count = 2"))
        nodes, clients = [Link(1, 2), Link(2, 1)], [Link(0, 1), Link(1, 0)]

        async def tried() -> None:
            cluster = await launched(folder, tmp_path / "run", count=2)
            client = cluster.clients.objects("one")
            try:
                before = await client.call("write", "r0", 1)
                cuts = [await cluster.cut(nodes, CutMode.HOLD), await cluster.cut(clients, CutMode.HOLD)]
                killed = await cluster.kill(1)
                await cluster.start(1)  # it is ready: the harness asks it past every cut
                meanwhile = await client.call("write", "r0", 2)
                again = await cluster.cut(clients, CutMode.HOLD)
                await cluster.heal(clients)
                heals = [await cluster.heal(clients), await cluster.heal(nodes)]
                after = await client.call("write", "r0", 3)
            finally:
                await cluster.close()
            assert (before.outcome, meanwhile.outcome, after.outcome) == ("ok", "info", "ok")
            assert all(one.holds for one in (*cuts, killed, *heals)), (cuts, killed, heals)
            assert not again.holds  # no probe was answered before it
            assert kind.leftovers(tmp_path / "run") == []

        asyncio.run(tried())

    @needs_root
    def test_what_is_refused_between_containers_is_answered_at_once(self, tmp_path: Path, image: str) -> None:
        """Also where both ways are refused."""
        folder = in_image(tmp_path, image)

        async def tried() -> None:
            cluster = await launched(folder, tmp_path / "run", count=1)
            try:
                cut = await cluster.cut([Link(0, 1), Link(1, 0)], CutMode.RESET)
                refused = await cluster.clients.objects("one").call("write", "r0", 1)
                healed = await cluster.heal([Link(0, 1), Link(1, 0)])
            finally:
                await cluster.close()
            assert (cut.holds, healed.holds) == (True, True), (cut, healed)
            assert refused.outcome == "fail"  # a connection that is refused: nothing was sent

        asyncio.run(tried())

    @needs_root
    def test_a_run_with_a_node_cut_off_in_its_container_is_judged(self, tmp_path: Path, image: str) -> None:
        """Calls of that time are left open, and none is lost."""
        steps = {"steps": "[{isolate: node 1, for: 2s, after: 200ms}]", "time": "3s", "warm_up": "2s"}
        folder = in_image(tmp_path, image)

        verdict = judged_in(folder, "scenario.yaml", steps, tmp_path / "runs")

        assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])
        (run_dir,) = (tmp_path / "runs").iterdir()
        assert "info" in Recording.open(run_dir).table("operations")["outcome"].to_pylist()

    @pytest.mark.nightly
    @needs_root
    @pytest.mark.parametrize(
        ("file", "fault"),
        [
            pytest.param(
                "system.toml", "{isolate: leader(p0), from: all, for: 1.2x session, after: 300ms}", id="cut off"
            ),
            pytest.param("power.toml", "{power-loss: leader(p0), for: 1.2x session, after: 300ms}", id="powerless"),
        ],
    )
    def test_a_log_in_containers_is_judged_with_its_replicas(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, fault: str
    ) -> None:
        """The committed metadata are seen past a cut, and the final logs are read in the nodes' folders, or what their disks had is copied."""
        monkeypatch.setenv("TRIBUNAL_BASE_IMAGE", build.INTERPRETER)
        with closing(build.engine()) as client:
            image = build.node_image(client, tmp_path / "image.log", tmp_path, lambda _: None)
        folder = tmp_path / "replog"
        shutil.copytree(ROOT / "systems" / "replog", folder)
        text = (folder / file).read_text()
        (folder / file).write_text(text.replace("[nodes]\n", f'[nodes]\nimage = "{image}"\n'))
        steps = f"[{fault}, {{kill: leader(p0), for: 1.2x session}}]"
        overrides = {"steps": steps, "time": "1s", "cluster.system": str(folder / file)}

        verdict = judged_in(folder, "kill.yaml", overrides, tmp_path / "runs")

        assert verdict.verdict in (Verdict.PASS, Verdict.PERMITTED), verdict.reasons
        assert verdict.judged["acknowledged, acks=all"] > 50
        assert verdict.judged["partitions with a final log"] == 3

    def test_an_image_is_built_of_a_dockerfile_once_for_what_lies_there(self, tmp_path: Path, image: str) -> None:
        """What the builder says is in the run's logs; where nothing has changed nobody builds again."""
        folder = built_of(
            tmp_path, f"FROM {image}\nARG UNIQUE={tmp_path}\nCOPY server.py /made.py\nRUN echo this is built\n"
        )

        async def served(run: Path) -> tuple[str, str]:
            cluster = await launched(folder, run, count=1)
            try:
                answer = await cluster.clients.objects("one").call("write", "r0", 1)
            finally:
                await cluster.close()
            return answer.outcome, await asyncio.to_thread((run / "logs" / "image.log").read_text)

        try:
            first = asyncio.run(served(tmp_path / "first"))
            again = asyncio.run(served(tmp_path / "again"))
            (folder / "server.py").write_text((folder / "server.py").read_text() + "# another one\n")
            changed = asyncio.run(served(tmp_path / "changed"))
        finally:
            remove_built(str(tmp_path))

        assert [first[0], again[0], changed[0]] == ["ok", "ok", "ok"]
        assert ["this is built" in said for said in (first[1], again[1], changed[1])] == [True, False, True]

    def test_a_dockerfile_that_does_not_build_is_said_with_the_builders_last_lines(
        self, tmp_path: Path, image: str
    ) -> None:
        """And nothing of the run stays."""
        folder = built_of(tmp_path, f"FROM {image}\nRUN echo about to fail && exit 9\n")

        plan = made(load(folder / "scenario.yaml", {}), seed=1, cluster="system", time_ms=None, mutants=())
        run_dir = new_run_dir(plan, tmp_path / "runs")
        ending = asyncio.run(Run(plan, run_dir, Silent()).execute())

        assert (ending.failure or "").startswith("the image of Dockerfile does not build: ")
        assert "    about to fail\n" in (ending.failure or "")
        assert kind.leftovers(run_dir) == []

    def test_a_killed_harness_leaves_nothing_of_a_build(self, tmp_path: Path, image: str) -> None:
        """No process, no container of the step it was at, no image without a name."""
        folder = built_of(tmp_path, LONG_BUILD.format(image=image, unique=tmp_path))
        with closing(build.engine()) as client:
            harness = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tribunal.harness.cli.main", "run", str(folder / "scenario.yaml")),
                    *("--cluster", "system", "--quiet", "--out", str(tmp_path / "runs")),
                ],
                cwd=ROOT,
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            with harness:
                deadline = time.monotonic() + BUILT_S
                while not (building := is_at_its_long_step(client, tmp_path / "runs")):
                    assert time.monotonic() < deadline
                    time.sleep(0.05)  # noqa: TID251
                (run_dir,) = (tmp_path / "runs").iterdir()
                made_meanwhile = unnamed(client, tmp_path)
                harness.kill()
                harness.wait()
                while (run_dir / "unhealed.json").exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.05)  # noqa: TID251

            assert (building, len(made_meanwhile)) == (True, 2)
            assert sleeping_step(client, tmp_path) == 0
            assert unnamed(client, tmp_path) == []
        assert kind.leftovers(run_dir) == []
        assert "unnamed image" in (run_dir / "heal.log").read_text()

    def test_who_gives_up_in_the_midst_of_a_build_waits_for_nothing(self, tmp_path: Path, image: str) -> None:
        """Ctrl-C waited for the end of the step; meanwhile one is told how it stands."""
        folder = built_of(tmp_path, LONG_BUILD.format(image=image, unique=tmp_path))
        lines: list[str] = []

        async def given_up(client: "DockerClient") -> float:
            with listening(lines.append):
                launching = asyncio.create_task(launched(folder, tmp_path / "run", count=1))
            while not (lines and await asyncio.to_thread(is_at_its_long_step, client, tmp_path)):
                await asyncio.sleep(0.05)
                assert not launching.done()
            began = time.monotonic()
            launching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await launching
            return time.monotonic() - began

        with closing(build.engine()) as client:
            took_s = asyncio.run(given_up(client))

            assert took_s < WITHIN_S / 2
            assert sleeping_step(client, tmp_path) == 0
            assert unnamed(client, tmp_path) == []
        assert kind.leftovers(tmp_path / "run") == []
        assert lines[-1].startswith("building the image of Dockerfile, ")

    def test_a_note_that_another_machine_wrote_removes_nothing(self, tmp_path: Path, image: str) -> None:
        """Who sends a run's folder may name any container in it."""
        (tmp_path / "run").mkdir()
        with closing(build.engine()) as client:
            container = client.containers.create(image, ["sleep"])
            try:
                forged = msgspec.json.encode(half_images.Made(True, container.short_id))
                (tmp_path / "run" / half_images.NOTE).write_bytes(forged + b"\n" + forged + b"\tproof\n")

                assert half_images.half_made(client, tmp_path / "run") == []
                assert half_images.remove_half(client, tmp_path / "run") == []
                assert client.containers.get(container.id).id == container.id
            finally:
                container.remove(force=True)

    def test_a_build_that_fails_leaves_no_image(self, tmp_path: Path, image: str) -> None:
        """Of its first steps neither."""
        folder = built_of(tmp_path, f"FROM {image}\nRUN echo {tmp_path}\nRUN exit 9\n")

        with closing(build.engine()) as client:
            with pytest.raises(ClusterError, match="does not build"):
                asyncio.run(launched(folder, tmp_path / "run", count=1))
            assert unnamed(client, tmp_path) == []

    def test_a_killed_harness_leaves_no_container(self, tmp_path: Path, image: str) -> None:
        """The run's guard removes them, and the network, and unmounts their disks."""
        folder = in_image(tmp_path, image, *(() if NO_DISKS else (FORGETFUL,)))
        command = [sys.executable, "-m", "tribunal.harness.cli.main", "run", str(folder / "scenario.yaml")]
        harness = subprocess.Popen(
            [*command, "--cluster", "system", "--quiet", "--out", str(tmp_path / "runs"), "--set", "time=60s"],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with harness, closing(build.engine()) as client:
            deadline = time.monotonic() + WITHIN_S
            runs: list[Path] = []
            while not (runs and any("container" in one for one in left_of(client, runs[0]))):
                assert time.monotonic() < deadline
                runs = list((tmp_path / "runs").glob("*"))
                time.sleep(0.05)  # noqa: TID251
            harness.kill()
            harness.wait()
            while not (runs[0] / "heal.log").exists() or left_of(client, runs[0]):
                assert time.monotonic() < deadline
                time.sleep(0.05)  # noqa: TID251
            while (runs[0] / "unhealed.json").exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)  # noqa: TID251

        assert kind.leftovers(runs[0]) == []
        refuse_unless_healed(tmp_path / "runs")

    def test_what_is_being_removed_already_is_waited_for(self, tmp_path: Path, image: str) -> None:
        """The engine refuses to remove a container twice at once; whoever gives up a preparation and ends the run does both."""
        removing: list[threading.Thread] = []
        with closing(build.engine()) as client:
            for number in range(4):
                made_one = client.containers.create(
                    image, ["sleep"], name=f"{named(tmp_path)}-{number}", labels={build.LABEL: str(tmp_path)}
                )
                removing.append(threading.Thread(target=lambda one=made_one: removed_somehow(one)))
            for thread in removing:
                thread.start()
            remove_all(client, tmp_path)
            assert left_of(client, tmp_path) == []
            for thread in removing:
                thread.join()

    @pytest.mark.skipif(os.geteuid() != 0, reason="who is not root cannot empty what another user wrote")
    def test_an_images_own_user_may_write_to_a_disk_that_was_wiped(self, tmp_path: Path, image: str) -> None:
        """The folder is made anew, by the harness."""
        folder = built_of(tmp_path, f"FROM {image}\nARG UNIQUE={tmp_path}\nUSER 4711\n")

        async def served() -> str:
            cluster = await launched(folder, tmp_path / "run", count=1)
            try:
                await cluster.kill(1)
                await cluster.wipe(1)
                await cluster.start(1)
                return (await cluster.clients.objects("one").call("write", "r0", 1)).outcome
            finally:
                await cluster.close()

        try:
            assert asyncio.run(served()) == "ok"
        finally:
            remove_built(str(tmp_path))

    @needs_disks
    def test_what_was_not_synced_in_a_container_is_lost_with_its_power_alone(self, tmp_path: Path, image: str) -> None:
        """The sample writes, and never syncs; its image's own user does. A kill takes nothing, a wipe everything."""
        folder = built_of(tmp_path, f"FROM {image}\nARG UNIQUE={tmp_path}\nUSER 4711\n")
        file = folder / "system.toml"
        file.write_text(file.read_text().replace(*FORGETFUL))

        async def found(cluster: SystemCluster, value: int, fault: Callable[[int], Awaitable[Proof]]) -> object:
            """Write a value, let the fault come, and read again."""
            written = await cluster.clients.objects("one").call("write", "r0", value)
            assert written.outcome == "ok"
            proof = await fault(1)
            assert proof.holds, proof
            if cluster.alive(1):
                await cluster.kill(1)
            await cluster.start(1)
            return (await cluster.clients.objects("two").call("read", "r0", None)).value

        async def tried() -> tuple[object, object, object]:
            cluster = await launched(folder, tmp_path / "run", count=1)
            try:
                mounted = len(below(tmp_path / "run"))
                killed = await found(cluster, 1, cluster.kill)
                powerless = await found(cluster, 2, cluster.power_fail)
                return mounted, killed, powerless
            finally:
                await cluster.close()

        try:
            assert asyncio.run(tried()) == (1, 1, None)
        finally:
            remove_built(str(tmp_path))
        assert kind.leftovers(tmp_path / "run") == []

    @needs_disks
    def test_an_engine_that_does_not_see_the_disks_is_refused(self, tmp_path: Path, image: str) -> None:
        """Nodes would write beside them, and a loss would take nothing: who mounts nothing is as one whose mounts nobody sees."""
        folder = in_image(tmp_path, image, FORGETFUL)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(InContainers, "prefix", lambda _self, _node: ("unshare", "--mount"))
            with pytest.raises(
                ClusterError, match=r"write to the disk .* did not reach it: the container engine has mounts"
            ):
                asyncio.run(launched(folder, tmp_path / "run", count=1))

        assert kind.leftovers(tmp_path / "run") == []

    def test_an_image_that_there_is_not_is_named(self, tmp_path: Path) -> None:
        """In one line, and nothing of the run stays."""
        folder = in_image(tmp_path, "tribunal-no-such-image:none")

        plan = made(load(folder / "scenario.yaml", {}), seed=1, cluster="system", time_ms=None, mutants=())
        run_dir = new_run_dir(plan, tmp_path / "runs")

        ending = asyncio.run(Run(plan, run_dir, Silent()).execute())

        assert (ending.failure or "").startswith("image tribunal-no-such-image:none is not here and cannot be pulled: ")
        assert kind.leftovers(run_dir) == []


@pytest.mark.parametrize(
    ("more", "overrides", "words"),
    [
        pytest.param([], {"cluster.isolation": "namespaces"}, "runs in containers: no isolation namespaces", id="namespaces"),
        pytest.param([("count = 1", 'count = 1\ndockerfile = "Dockerfile"')], {}, "of an image or of a dockerfile, not both", id="both"),
        pytest.param([('image = "any"', 'dockerfile = "Dockerfile"')], {}, "dockerfile Dockerfile: there is no file", id="no Dockerfile"),
        pytest.param([('image = "any"', 'dockerfile = "../Dockerfile"')], {}, "it has to lie in the folder", id="a Dockerfile elsewhere"),
        pytest.param([('image = "any"', 'dockerfile = ".docker/Dockerfile"')], {}, "hidden names are not sent", id="a hidden Dockerfile"),
    ],
)  # fmt: skip
def test_what_containers_do_not_give_is_refused_when_it_is_planned(
    tmp_path: Path, more: list[tuple[str, str]], overrides: dict[str, str], words: str
) -> None:
    """By the name of what is missing, before anything starts."""
    folder = in_image(tmp_path, "any", *more)

    with pytest.raises(BadScenario, match=words):
        made(load(folder / "scenario.yaml", overrides), seed=1, cluster="system", time_ms=None, mutants=())


@pytest.mark.parametrize(
    ("more", "steps", "words"),
    [
        pytest.param((), "[{isolate: node 1}]", r"cannot cut \(.*the networks of its containers takes root", id="cuts"),
        pytest.param(
            (FORGETFUL,), "[{power-loss: node 1}]", "disks .*: mounting them for containers takes root", id="disks"
        ),
    ],
)
def test_who_is_not_root_is_refused_what_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[tuple[str, str], ...], steps: str, words: str
) -> None:
    """By what it takes, before anything starts."""
    folder = in_image(tmp_path, "any", *more)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(BadScenario, match=words):
        made(
            load(folder / "scenario.yaml", {"steps": steps}),
            seed=1,
            cluster="system",
            time_ms=None,
            mutants=(),
        )
