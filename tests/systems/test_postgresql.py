"""PostgreSQL on trial, as `systems/postgresql` describes it: each isolation level is judged by what is promised of it."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.systems.judged import judged_in, started
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.nodes.shared_memory import JOURNAL
from tribunal.clusters.spec import ClusterSpec
from tribunal.results.verdict import RunVerdict, Verdict

POSTGRESQL = Path(__file__).resolve().parents[2] / "systems" / "postgresql"
PLACES = Path("/usr/lib/postgresql")
LACKING = [
    *([] if any(PLACES.glob("*/bin/initdb")) or shutil.which("initdb") else ["initdb (Debian: postgresql)"]),
    *([] if shutil.which("setpriv") else ["setpriv (Debian: util-linux)"]),
]
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)}")

no_namespaces = pytest.mark.skipif(isinstance(way_in(), str), reason=str(way_in()))


def judged(scenario: str, system: str, out: Path, *, seed: int = 1, **overrides: str) -> RunVerdict:
    """Run a scenario of PostgreSQL and judge it; nothing of it stays running."""
    return judged_in(POSTGRESQL, scenario, {"cluster.system": str(POSTGRESQL / system), **overrides}, out, seed=seed)


CROWDED = "{name: append, keys: 2, processes: 10, rate: 400, reads: 60}"  # in a second some transactions have to meet


def convicted(system: str, out: Path, seeds: int, **overrides: str) -> RunVerdict | None:
    """Return the first run of some seeds that is convicted: whether transactions meet, and what a kill takes, is chance."""
    verdicts = (judged("append.yaml", system, out, seed=seed, **overrides) for seed in range(1, seeds + 1))
    return next((one for one in verdicts if one.verdict is Verdict.VIOLATION), None)


def test_write_skew_under_repeatable_read_is_found(tmp_path: Path) -> None:
    """Judged as serializable, the level that PostgreSQL calls repeatable read shows circles with two overtaken reads."""
    found = convicted("repeatable-read.toml", tmp_path, seeds=3, time="1s", workload=CROWDED)

    assert found is not None
    assert {finding.kind for finding in found.findings} == {"G2-item"}


def test_a_killed_server_leaves_no_shared_memory(tmp_path: Path) -> None:
    """What it makes there is in its folder, but for a segment that System V knows: the run removes that one."""
    spec = ClusterSpec(brokers=1, controllers=0, system=str(POSTGRESQL / "serializable.toml"))

    async def tried() -> str:
        cluster = await started(spec, tmp_path)
        try:
            maps = Path(f"/proc/{cluster.nodes[1].pid}/maps")
            return await asyncio.to_thread(maps.read_text)
        finally:
            await cluster.close()

    mapped = asyncio.run(tried())
    noted = (tmp_path / JOURNAL).read_text().splitlines()

    assert "/dev/shm/" not in mapped
    assert len(noted) == 1
    assert kind.leftovers(tmp_path) == []


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", ["append.yaml", "registers.yaml"])
@pytest.mark.parametrize("system", ["serializable.toml", "snapshot.toml"])
def test_what_postgresql_says_of_itself_it_keeps(scenario: str, system: str, tmp_path: Path) -> None:
    """SERIALIZABLE is serializable and REPEATABLE READ is snapshot isolation, also when the server is killed."""
    verdict = judged(scenario, system, tmp_path)

    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])


@pytest.mark.nightly
def test_commits_that_are_answered_before_they_are_written_are_lost(tmp_path: Path) -> None:
    """With synchronous_commit=off kill -9 takes what the log writer had not written."""
    found = convicted("asynchronous.toml", tmp_path, seeds=4)

    assert found is not None
    assert "element_lost" in {finding.kind for finding in found.findings}


@pytest.mark.nightly
def test_what_the_file_permits_to_be_lost_is_permitted(tmp_path: Path) -> None:
    """What three rounds of the log writer had not written; the promise does not hold where it waits much longer."""
    assert judged("append.yaml", "promised.toml", tmp_path).verdict in (Verdict.PERMITTED, Verdict.PASS)
    assert convicted("late.toml", tmp_path, seeds=8) is not None


@pytest.mark.nightly
def test_a_server_starts_again_beside_a_process_of_its_predecessor_that_does_not_end(tmp_path: Path) -> None:
    """Under load a process of a server that was killed was still there after 30 s, and the run ended as an error."""
    data, script = tmp_path / "data", str(POSTGRESQL / "node.sh")
    data.mkdir()
    tmp_path.chmod(0o755)
    where = ("127.0.1.77", "25437")
    subprocess.run(["sh", script, "init", str(data)], check=True, stdout=subprocess.DEVNULL)
    start = ["sh", script, "start", str(data), *where]
    servers = []
    try:
        for _ in range(2):
            servers.append(subprocess.Popen(start, stderr=subprocess.DEVNULL))
            deadline = time.monotonic() + 25
            while subprocess.run(["sh", script, "ready", *where], check=False).returncode != 0:
                assert time.monotonic() < deadline
                time.sleep(0.05)  # noqa: TID251
            children = Path(f"/proc/{servers[-1].pid}/task/{servers[-1].pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGSTOP)
            servers[-1].kill()
            servers[-1].wait()
    finally:
        for path in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if path.readlink() == data:
                    os.kill(int(path.parent.name), signal.SIGKILL)


@no_namespaces
@pytest.mark.nightly
def test_a_standby_that_commits_wait_for_has_them_when_it_takes_the_primarys_place(tmp_path: Path) -> None:
    """With synchronous_commit=on and a synchronous standby nothing that was answered is lost with the primary."""
    verdict = judged("failover.yaml", "synchronous.toml", tmp_path)

    assert (verdict.verdict, verdict.findings) == (Verdict.PASS, [])


@no_namespaces
@pytest.mark.nightly
def test_a_standby_that_nobody_waits_for_lacks_what_was_answered_last(tmp_path: Path) -> None:
    """What the primary answered while its link to the standby was cut is gone when that one takes its place."""
    verdict = judged("failover.yaml", "standby.toml", tmp_path)

    assert verdict.verdict is Verdict.VIOLATION
    assert "element_lost" in {finding.kind for finding in verdict.findings}
