"""A described system's node is ready when its own probe says so, which may be later than when it goes on."""

import asyncio
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tests.systems.judged import context_of, started
from tribunal.clusters.api import ClusterError, NotServing, until
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.links.relays import node_host
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.nodes.leftovers import PROC, command_lines, end_processes, own_processes
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems import cluster as cluster_module
from tribunal.clusters.systems.commands import ended_well
from tribunal.clusters.systems.description import Addresses, BadSystem, Nodes, Ready, read_system
from tribunal.clusters.systems.disks import lacking
from tribunal.clusters.systems.places import OnLoopback
from tribunal.clusters.systems.program import SystemProgram
from tribunal.clusters.systems.ways import Streams
from tribunal.harness.new import made_system

CATCHING_UP_S = 0.4
LACKING = str(way_in()) if isinstance(way_in(), str) else lacking()


def test_a_node_that_goes_on_may_have_to_catch_up_before_it_is_ready(tmp_path: Path) -> None:
    """One look behind SIGCONT would say that the pause was not healed; nobody waits longer than for a start."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    behind, file = tmp_path / "behind", tmp_path / "keeper" / "system.toml"
    probe = f'ready = {{ command = ["sh", "-c", "test ! -e {behind}"], within_ms = 3000 }}'
    lines = file.read_text().splitlines()
    file.write_text("\n".join(probe if line.startswith("ready") else line for line in lines))
    assert probe in file.read_text()

    async def tried() -> tuple[bool, bool]:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        try:
            await cluster.pause(1)
            behind.touch()
            asyncio.get_running_loop().call_later(CATCHING_UP_S, behind.unlink)
            caught_up = await cluster.resume(1)
            await cluster.pause(1)
            behind.touch()
            never = await cluster.resume(1)
        finally:
            await cluster.close()
        return caught_up.holds, never.holds

    assert asyncio.run(tried()) == (True, False)


def with_probe(folder: Path, probe: str, **changes: str) -> Path:
    """Make the sample system with a readiness command; return its file."""
    made_system("keeper", folder)
    (folder / "run").mkdir()
    file = folder / "keeper" / "system.toml"
    ready = f'ready = {{ command = ["sh", "-c", "{probe}"], within_ms = 8000 }}'
    text = "\n".join(ready if line.startswith("ready") else line for line in file.read_text().splitlines())
    assert ready in text
    for old, new in changes.items():
        assert f"{old} = " in text
        text = re.sub(rf"^{old} = .*", f"{old} = {new}", text, flags=re.MULTILINE)
    file.write_text(text)
    return file


def test_a_look_that_takes_its_time_is_waited_for(tmp_path: Path) -> None:
    """On a busy machine a command that starts programs takes longer than a second; who is looked at anew each second is never ready."""
    file = with_probe(tmp_path, "sleep 1.5")

    async def tried() -> bool:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        await cluster.close()
        return cluster.state.is_fully_in_sync(spec)

    assert asyncio.run(tried())


def test_a_node_that_does_not_answer_holds_up_no_other_s_look(tmp_path: Path) -> None:
    """The look at a paused node lasts; that another one was killed is seen meanwhile."""
    hung = tmp_path / "hung"
    file = with_probe(tmp_path, f"test {{node}} = 2 || test ! -e {hung} || sleep 30", count="2")

    async def tried() -> bool:
        spec = ClusterSpec(brokers=2, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        try:
            hung.touch()
            await asyncio.sleep(0.5)
            await cluster.kill(2)
            await asyncio.sleep(1)
            return cluster.state.brokers[2].fenced
        finally:
            await cluster.close()

    assert asyncio.run(tried())


def test_a_page_without_an_end_is_no_answer(tmp_path: Path) -> None:
    """Whoever is asked may be something else; looking at it must not end the watch over all nodes."""

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"x" * 200_000)
        await writer.drain()
        writer.close()

    async def tried() -> bool:
        async with await asyncio.start_server(flood, "127.0.0.1", 0) as server:
            endpoint = server.sockets[0].getsockname()
            nodes = Nodes(count=1, start=("keeper",), ready=Ready(http="/health"))
            addresses = Addresses(folder=tmp_path, hosts={}, ports={}, data={})
            return await SystemProgram("one", nodes, 1, addresses, OnLoopback()).answers(endpoint, wait_ms=2_000)

    assert asyncio.run(tried()) is False


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_that_is_reset_at_once_is_no_answer(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """On uvloop writing to it is no OSError, which ended the watch over all nodes."""

    class Reset(OnLoopback):
        async def connect(self, node: int, endpoint: tuple[str, int]) -> Streams:
            reader, writer = await super().connect(node, endpoint)
            writer.transport.abort()
            await asyncio.sleep(0.01)
            return reader, writer

    async def tried() -> bool:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            endpoint = server.sockets[0].getsockname()
            nodes = Nodes(count=1, start=("keeper",), ready=Ready(http="/health"))
            addresses = Addresses(folder=tmp_path, hosts={}, ports={}, data={})
            return await SystemProgram("one", nodes, 1, addresses, Reset()).answers(endpoint, wait_ms=2_000)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(tried()) is False


def test_a_look_that_hangs_is_known_as_the_run_s_and_ends_with_who_waits_for_it(tmp_path: Path) -> None:
    """Whoever undoes a harness that was killed finds it, and its children."""

    async def tried() -> tuple[int, list[int]]:
        looking = asyncio.create_task(ended_well(["/bin/sh", "-c", "sleep 598; true"], tmp_path))
        deadline = asyncio.get_running_loop().time() + 10
        while len(own_processes(tmp_path)) < 2 and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - only the system knows
            await asyncio.sleep(0.02)
        known = len(own_processes(tmp_path))
        looking.cancel()
        await asyncio.wait([looking])
        return known, own_processes(tmp_path)

    assert asyncio.run(tried()) == (2, [])


@pytest.mark.parametrize("word", ["{node}", "{data}", "{port}", "--at={host}:{port:main}"])
def test_a_client_that_would_be_of_a_node_is_refused_with_its_file(tmp_path: Path, word: str) -> None:
    """It runs for a process of the workload, and is told where the nodes are; {host@1} says which one is meant."""
    made_system("keeper", tmp_path)
    file = tmp_path / "keeper" / "system.toml"
    text = file.read_text()
    own = '"{python}", "{folder}/client.py"'
    assert own in text

    file.write_text(text.replace(own, f'{own}, "{word}"'))
    with pytest.raises(BadSystem, match="a client is of no node"):
        read_system(file)

    file.write_text(text.replace(own, f'{own}, "{{host@1}}:{{port:main@1}}"'))
    assert read_system(file).client is not None


@pytest.mark.parametrize("what", ['ready = { command = ["no-such-probe"] }', 'stop = ["no-such-probe"]'])
def test_a_command_whose_program_is_missing_is_named_before_a_node_starts(tmp_path: Path, what: str) -> None:
    """Each look of it would fail, and the node seem not to serve."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    file = tmp_path / "keeper" / "system.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(what.partition(" ")[0])]
    file.write_text("\n".join(lines).replace("[nodes]", f"[nodes]\n{what}", 1))
    spec = ClusterSpec(brokers=1, controllers=0, system=str(file))

    with pytest.raises(ClusterError, match="there is no program no-such-probe"):
        asyncio.run(started(spec, tmp_path / "run"))


@pytest.mark.parametrize(
    "what", ["ready = { command = [PROBE], within_ms = 500 }", "stop = [PROBE]", "start = [PROBE]"]
)
def test_a_file_that_nobody_may_execute_is_named_as_such(tmp_path: Path, what: str) -> None:
    """A script that was written and not made one: each look of it failed, and the node seemed not to serve."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "keeper" / "probe.sh").write_text("#!/bin/sh\n")
    file = tmp_path / "keeper" / "system.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(what.partition(" ")[0])]
    words = what.replace("PROBE", '"{folder}/probe.sh", "{set:write}"')
    file.write_text("\n".join(lines).replace("[nodes]", f"[nodes]\n{words}", 1))
    spec = ClusterSpec(brokers=1, controllers=0, system=str(file))

    with pytest.raises(ClusterError, match=r"probe\.sh may not be executed: chmod \+x"):
        asyncio.run(started(spec, tmp_path / "run"))


@pytest.mark.skipif(bool(LACKING), reason=LACKING or "there are such disks")
def test_a_disk_is_wiped_when_the_node_s_children_have_ended_too(tmp_path: Path) -> None:
    """A child that outlives the kill would write to the next disk."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    file = tmp_path / "keeper" / "system.toml"
    child = """start = ["sh", "-c", '(exec 9>"$0/held"; exec sleep 3) & exec "$@"', "{data}", "{python}","""
    file.write_text(file.read_text().replace('start = ["{python}",', f'disk = "forgetful"\n{child}'))
    assert child in file.read_text()

    async def tried() -> tuple[bool, object]:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file), isolation="namespaces")
        cluster = await started(spec, tmp_path / "run")
        try:
            await cluster.kill(1)
            wiped = await cluster.wipe(1)
            await cluster.start(1)
        finally:
            await cluster.close()
        return wiped.holds, wiped.facts["all_closed"]

    assert asyncio.run(tried()) == (True, True)


def test_a_preparation_that_does_not_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the node and the command; nothing of it stays running."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    file = tmp_path / "keeper" / "system.toml"
    file.write_text(file.read_text().replace("[nodes]", '[nodes]\nprepare = ["sleep", "600"]', 1))
    monkeypatch.setattr(cluster_module, "PREPARE_MS", 100)
    spec = ClusterSpec(brokers=1, controllers=0, system=str(file))

    with pytest.raises(ClusterError, match=r"node 1: .*sleep 600 does not end within 100 ms"):
        asyncio.run(started(spec, tmp_path / "run"))


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        pytest.param('["sh", "-c", "echo no room here >&2; exit 3"]', "failed(.|\n)*no room here", id="fails"),
        pytest.param('["no-such-program"]', "there is no program no-such-program", id="missing"),
    ],
)
def test_a_preparation_that_fails_is_said_with_its_last_lines(tmp_path: Path, prepare: str, words: str) -> None:
    """Its output is kept in the run's logs, for it is the only one who knows what went wrong."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    file = tmp_path / "keeper" / "system.toml"
    file.write_text(file.read_text().replace("[nodes]", f"[nodes]\nprepare = {prepare}", 1))
    spec = ClusterSpec(brokers=1, controllers=0, system=str(file))

    with pytest.raises(ClusterError, match=words):
        asyncio.run(started(spec, tmp_path / "run"))

    assert kind.leftovers(tmp_path / "run") == []


# Writes zeros over its environment, as programs do that show a title, and serves.
UNMARKED = """import ctypes, runpy, sys
begin, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(begin, 0, end - begin)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.skipif(not PROC.is_dir(), reason="no /proc")
def test_a_server_behind_a_shell_that_wrote_over_its_environment_ends_with_the_run(tmp_path: Path) -> None:
    """redis-server does, for its title; its output goes to the run's folder all the same."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "unmarked.py").write_text(UNMARKED)
    file = tmp_path / "keeper" / "system.toml"
    shell = f"""start = ["sh", "-c", '"$@" & wait', "sh", "{{python}}", "{tmp_path / "unmarked.py"}","""
    file.write_text(file.read_text().replace('start = ["{python}",', shell))
    assert shell in file.read_text()

    async def tried() -> list[int]:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        await cluster.close()
        return [pid for pid, words in command_lines() if str(tmp_path / "unmarked.py") in words]

    left = asyncio.run(tried())
    end_processes(left)

    assert left == []


def behind_a_shell(folder: Path) -> Path:
    """Describe a system whose node is a shell with the server as its child; return its file."""
    made_system("keeper", folder)
    (folder / "run").mkdir()
    file = folder / "keeper" / "system.toml"
    shell = """start = ["sh", "-c", '"$@" & wait', "sh", "{python}","""
    file.write_text(file.read_text().replace('start = ["{python}",', shell))
    assert shell in file.read_text()
    return file


def test_a_server_behind_a_shell_ends_with_the_run(tmp_path: Path) -> None:
    """The shell is the node that is killed; the server is its child and would hold the ports of the next run."""
    file = behind_a_shell(tmp_path)

    async def tried() -> int:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        try:
            return len(kind.leftovers(tmp_path / "run"))
        finally:
            await cluster.close()

    assert asyncio.run(tried()) == 2
    assert kind.leftovers(tmp_path / "run") == []


def test_a_server_behind_a_shell_ends_also_where_putting_down_fails(tmp_path: Path) -> None:
    """What goes wrong is raised when nothing is left: a run whose evidence cannot be had leaves no processes."""
    file = behind_a_shell(tmp_path)

    async def refused() -> None:
        raise ClusterError("nothing is had any more")

    async def tried() -> None:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        cluster._view.close = refused  # type: ignore[method-assign]
        await cluster.close()

    with pytest.raises(ClusterError, match="nothing is had"):
        asyncio.run(tried())

    left = kind.leftovers(tmp_path / "run")
    kind.sweep(tmp_path / "run")
    assert left == []


def test_a_watch_that_ended_is_a_failure_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node would stay as ready as it was last seen, and no heal be waited for."""
    made_system("keeper", tmp_path)
    (tmp_path / "run").mkdir()
    file = tmp_path / "keeper" / "system.toml"

    async def broken(*_: object, **__: object) -> bool:
        raise ZeroDivisionError("a bug of a look")

    async def tried() -> list[str]:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        try:
            assert cluster.failures() == []
            monkeypatch.setattr(SystemProgram, "answers", broken)
            await asyncio.sleep(0.5)
            return cluster.failures()
        finally:
            await cluster.close()

    assert asyncio.run(tried()) == ["nobody looks at its nodes any more: ZeroDivisionError: a bug of a look"]


@pytest.mark.parametrize("base_port", [21_733, None])
def test_each_port_of_a_node_has_its_number_from_the_one_that_was_asked_for_on(
    tmp_path: Path, base_port: int | None
) -> None:
    """As in namespaces and on hosts."""
    made_system("keeper", tmp_path)
    file = tmp_path / "keeper" / "system.toml"
    file.write_text(file.read_text().replace("[nodes]", '[nodes]\nports = ["main", "peer"]', 1))
    spec = ClusterSpec(brokers=1, controllers=0, system=str(file), base_port=base_port)
    run = context_of(spec, tmp_path)

    ports = asyncio.run(OnLoopback().open(run, read_system(file), file.parent)).ports[1]

    assert len(set(ports.values())) == 2
    assert base_port is None or list(ports.values()) == [base_port, base_port + 1]


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """So is one above all that there are."""
    made_system("keeper", tmp_path)
    file = tmp_path / "keeper" / "system.toml"
    file.write_text(file.read_text().replace("[nodes]", '[nodes]\nports = ["main", "peer"]', 1))

    def opened(base_port: int) -> None:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file), base_port=base_port)
        run = context_of(spec, tmp_path)
        asyncio.run(OnLoopback().open(run, read_system(file), file.parent))

    with socket.create_server((node_host(1), 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"{node_host(1)}:{port}"):
            opened(port)
    with pytest.raises(ClusterError, match="65535"):
        opened(65_535)


def test_looks_that_take_long_leave_the_machine_to_the_node(tmp_path: Path) -> None:
    """A command for each look starts programs: without a rest as long as these take, three nodes' looks kept a processor busy by themselves."""
    looks, look_s, watched_s = tmp_path / "looks", 0.2, 3.0
    file = with_probe(tmp_path, f"echo >> {looks}; sleep {look_s}")

    async def tried() -> tuple[int, float]:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        began, before = asyncio.get_running_loop().time(), looks.stat().st_size
        await asyncio.sleep(watched_s)
        seen, took_s = looks.stat().st_size - before, asyncio.get_running_loop().time() - began
        await cluster.close()
        return seen, took_s

    seen, took_s = asyncio.run(tried())

    assert 1 <= seen <= took_s / (3 * look_s) + 1


def test_a_node_that_serves_late_may_not_end_by_itself_any_more(tmp_path: Path) -> None:
    """Its start had failed, for it was silent; until it serves its end belongs to that start, behind that it is a failure of the run."""
    behind = tmp_path / "behind"
    file = with_probe(tmp_path, f"test ! -e {behind}")
    file.write_text(file.read_text().replace("within_ms = 8000", "within_ms = 1500"))

    async def tried() -> tuple[list[str], list[str]]:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(file))
        cluster = await started(spec, tmp_path / "run")
        try:
            await cluster.kill(1)
            behind.touch()
            with pytest.raises(NotServing):
                await cluster.start(1)
            behind.unlink()
            await until(lambda: cluster.state.is_fully_in_sync(spec), timeout_ms=5_000, what="ready", cluster=cluster)
            before = cluster.failures()
            os.kill(cluster.nodes[1].pid or 0, signal.SIGTERM)
            await until(lambda: not cluster.alive(1), timeout_ms=5_000, what="ended", cluster=cluster)
            await asyncio.sleep(0.1)
            return before, cluster.failures()
        finally:
            await cluster.close()

    before, failures = asyncio.run(tried())

    assert before == []
    assert failures
