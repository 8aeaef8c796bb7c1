"""Nodes of a described system whose wall clock is wrong: the library that is preloaded, and the faults that ask it to."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.systems.judged import judged_in, started
from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.capabilities import ClockSkew
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems import clocks
from tribunal.clusters.systems.cluster import SystemCluster
from tribunal.harness.evidence.bundle import bundle
from tribunal.harness.new import made_system
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.store import Recording
from tribunal.results.verdict import Verdict, save

MINUTE_MS = 60_000
NO_CLOCKS = clocks.lacking()
needs_compiler = pytest.mark.skipif(bool(NO_CLOCKS), reason=NO_CLOCKS or "there is one")
SHIMMED = ("count = 1", 'count = 1\nclock = "shim"')


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built as a run builds it."""
    return asyncio.run(clocks.built(tmp_path_factory.mktemp("run")))


def said(library: Path, folder: Path, program: str, *, offset_ms: int, drift_ppm: int = 0) -> str:
    """Run a Python program whose wall clock is wrong by so much; return what it said."""
    folder.mkdir(exist_ok=True)
    control = clocks.controlled(folder)
    control._ask(offset_ms=offset_ms, drift_ppm=drift_ppm, since_ns=time.monotonic_ns())
    words = clocks.words(folder, library.parent)
    done = subprocess.run([*words, sys.executable, "-c", program], capture_output=True, text=True, check=True)
    control.close()
    return done.stdout


# Each says a number of seconds of the wall clock, by another call of the C library.
READERS = {
    "clock_gettime": "import time; print(time.clock_gettime(time.CLOCK_REALTIME))",
    "coarse": "import time; print(time.clock_gettime(6 - 1))",
    "gettimeofday": "import ctypes; t = (ctypes.c_long * 2)(); ctypes.CDLL(None).gettimeofday(t, None); print(t[0])",
    "time": "import ctypes; f = ctypes.CDLL(None).time; f.restype = ctypes.c_long; print(f(None))",
    "timespec_get": "import ctypes; t = (ctypes.c_long * 2)(); ctypes.CDLL(None).timespec_get(t, 1); print(t[0])",
    "a child": "import subprocess; print(subprocess.run(['date', '+%s'], capture_output=True, text=True).stdout)",
}

# Each waits until a moment that is 200 ms ahead by the clock that the call goes by, and says how many seconds that took.
WAITING = """
import ctypes, time
libc, moment, room = ctypes.CDLL(None), (ctypes.c_long * 2)(), (ctypes.c_char * 256)()
def ahead(clock):
    moment[0], moment[1] = divmod(time.clock_gettime_ns(clock) + 200_000_000, 10**9)
    return ctypes.byref(moment)
began = time.monotonic()
{wait}
print(time.monotonic() - began)
"""
LOCKED = "lock = (ctypes.c_char * 256)(); libc.pthread_mutex_lock(lock); "
WAITS = {
    "sem_timedwait": "libc.sem_init(room, 0, 0); libc.sem_timedwait(room, ahead(0))",
    "sem_clockwait, monotonic": "libc.sem_init(room, 0, 0); libc.sem_clockwait(room, 1, ahead(1))",
    "pthread_cond_timedwait": f"{LOCKED} libc.pthread_cond_timedwait(room, lock, ahead(0))",
    "pthread_cond_clockwait, wall": f"{LOCKED} libc.pthread_cond_clockwait(room, lock, 0, ahead(0))",
    "pthread_mutex_timedlock": f"{LOCKED} libc.pthread_mutex_timedlock(lock, ahead(0))",
    "pthread_rwlock_timedrdlock": "libc.pthread_rwlock_wrlock(room); libc.pthread_rwlock_timedwrlock(room, ahead(0)); time.sleep(0.2)",
    "clock_nanosleep, wall": "libc.clock_nanosleep(0, 1, ahead(0), None)",
    "clock_nanosleep, monotonic": "libc.clock_nanosleep(1, 1, ahead(1), None)",
    "time.sleep": "time.sleep(0.2)",
}


@needs_compiler
class TestLibrary:
    """What a program sees that it is preloaded into."""

    @pytest.mark.parametrize("call", READERS)
    @pytest.mark.parametrize("offset_ms", [MINUTE_MS, -MINUTE_MS])
    def test_each_call_that_reads_the_wall_clock_is_wrong_by_as_much(
        self, library: Path, tmp_path: Path, call: str, offset_ms: int
    ) -> None:
        """Also of a program's children."""
        before = float(said(library, tmp_path / "right", READERS[call], offset_ms=0))
        after = float(said(library, tmp_path / "wrong", READERS[call], offset_ms=offset_ms))

        assert offset_ms / 1000 - 2 < after - before < offset_ms / 1000 + 10

    @pytest.mark.parametrize("call", WAITS)
    def test_a_wait_until_a_moment_is_as_long_as_the_program_meant(
        self, library: Path, tmp_path: Path, call: str
    ) -> None:
        """The kernel knows the right clock alone: a moment a minute ahead of it would come a minute too late."""
        program = WAITING.format(wait=WAITS[call])

        assert 0.19 < float(said(library, tmp_path, program, offset_ms=MINUTE_MS)) < 20

    @pytest.mark.parametrize("call", ["sem_timedwait", "pthread_cond_timedwait", "clock_nanosleep, wall"])
    def test_a_wait_ends_when_a_clock_that_drifts_shows_its_moment(
        self, library: Path, tmp_path: Path, call: str
    ) -> None:
        """Not before it, as by a clock that goes at half the pace, and not long behind it, as by one of ten times the pace."""
        program = f"{WAITING.format(wait=WAITS[call])}print((time.time_ns() - moment[0] * 10**9 - moment[1]) / 1e9)"

        _, behind_s = said(library, tmp_path, program, offset_ms=0, drift_ppm=-500_000).split()
        took_s, _ = said(
            library, tmp_path, program.replace("200_000_000", "60_000_000_000"), offset_ms=0, drift_ppm=9_000_000
        ).split()

        assert float(behind_s) > -0.001
        assert 5.9 < float(took_s) < 40

    @pytest.mark.parametrize("offset_ms", [MINUTE_MS, -MINUTE_MS])
    def test_a_wait_for_ever_is_one(self, library: Path, tmp_path: Path, offset_ms: int) -> None:
        """Programs say so by the last moment that a number holds: C++ by time_point::max()."""
        forever = "moment[0], moment[1] = divmod(2**63 - 1, 10**9)"
        program = f"""{WAITING.split("began")[0]}
import threading
{forever}
libc.sem_init(room, 0, 0)
threading.Timer(0.2, lambda: libc.sem_post(room)).start()
print(libc.sem_timedwait(room, ctypes.byref(moment)))
"""

        assert int(said(library, tmp_path, program, offset_ms=offset_ms)) == 0

    def test_the_monotonic_clock_stays_right(self, library: Path, tmp_path: Path) -> None:
        """A jump of the wall clock is nothing that it shows."""
        with_jump = float(said(library, tmp_path, "import time; print(time.monotonic())", offset_ms=MINUTE_MS))

        assert abs(with_jump - float(Path("/proc/uptime").read_text().split()[0])) < 20


ASKS = "for _ in range(200):\n                time.time(), time.sleep(LATER_S / 200)"


def shimmed(folder: Path, *more: tuple[str, str]) -> Path:
    """Make the sample system in a folder, its node with a clock of its own, which it looks at; return its own folder."""
    made_system("keeper", folder)
    server = folder / "keeper" / "server.py"
    assert "time.sleep(LATER_S)" in server.read_text()
    server.write_text(server.read_text().replace("time.sleep(LATER_S)", ASKS))
    file = folder / "keeper" / "system.toml"
    text = file.read_text()
    for old, new in (SHIMMED, *more):
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return folder / "keeper"


def launched(folder: Path, run: Path, tried: Callable[[SystemCluster], Awaitable[list[Proof]]]) -> list[Proof]:
    """Do something with the system of a folder, running; return what was proven."""

    async def launch() -> list[Proof]:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(folder / "system.toml"))
        cluster = await started(spec, run)
        try:
            return await tried(cluster)
        finally:
            await cluster.close()

    run.mkdir()
    return asyncio.run(launch())


@needs_compiler
def test_a_node_s_clock_is_wrong_as_long_as_it_shall_be(tmp_path: Path) -> None:
    """It jumps and drifts while the node runs, stays wrong where the node starts again, and is right again."""

    async def tried(cluster: SystemCluster) -> list[Proof]:
        jumped = await cluster.set_clock(1, ClockSkew(offset_ms=-MINUTE_MS))
        killed = await cluster.kill(1)
        await cluster.start(1)
        again = await cluster.set_clock(1, ClockSkew(offset_ms=-MINUTE_MS))
        drifting = await cluster.set_clock(1, ClockSkew(drift_ppm=50_000))
        return [jumped, killed, again, drifting, await cluster.set_clock(1, ClockSkew())]

    proofs = launched(shimmed(tmp_path), tmp_path / "run", tried)

    assert all(proof.holds for proof in proofs), proofs
    assert kind.leftovers(tmp_path / "run") == []


@needs_compiler
def test_a_program_that_does_not_ask_the_library_proves_nothing(tmp_path: Path) -> None:
    """As one that was linked statically, or asks the kernel: its clock is right, whatever the page says."""

    async def tried(cluster: SystemCluster) -> list[Proof]:
        return [await cluster.set_clock(1, ClockSkew(offset_ms=MINUTE_MS))]

    (proof,) = launched(
        shimmed(tmp_path, ("start = [", 'start = ["env", "-u", "LD_PRELOAD", ')), tmp_path / "run", tried
    )

    assert not proof.holds
    assert "has not asked" in str(proof.facts["missing"])


@needs_compiler
def test_a_run_with_wrong_clocks_is_judged(tmp_path: Path) -> None:
    """The sample goes by no clock, and loses nothing."""
    steps = "[{clock-jump: node 1, for: 300ms}, {clock-strobe: node 1, for: 300ms}, {clock-drift: node 1, for: 600ms}]"
    folder = shimmed(tmp_path)

    verdict = judged_in(folder, "scenario.yaml", {"steps": steps, "time": "3s", "warm_up": "500ms"}, tmp_path / "runs")

    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])
    (run_dir,) = (tmp_path / "runs").iterdir()
    faults = Recording.open(run_dir).table("faults").to_pylist()
    assert {row["kind"] for row in faults} == {"clock-jump", "clock-strobe", "clock-drift"}
    assert all(row["took_effect"] and row["healed"] for row in faults)
    # The library is of this machine alone: nobody could tell what a program in an archive does.
    save(verdict, run_dir / "verdict.json")
    assert [one.name for one in bundle(run_dir, tmp_path / "run.zip").files if one.name.endswith(".so")] == []


@pytest.mark.parametrize(
    ("more", "compilers", "words"),
    [
        pytest.param((SHIMMED[1], "count = 1"), ("sh",), 'has no clock = "shim"', id="no shim"),
        pytest.param(
            ("count = 1", 'count = 1\nimage = "any"'), ("sh",), "no processes of this machine", id="containers"
        ),
        pytest.param(("count = 1", "count = 1 "), (), "there is no C compiler", id="no compiler"),
    ],
)
def test_where_nobody_moves_a_clock_that_is_said_when_it_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, str], compilers: tuple[str, ...], words: str
) -> None:
    """By what is missing."""
    folder = shimmed(tmp_path, more)
    monkeypatch.setattr(clocks, "COMPILERS", compilers)

    with pytest.raises(BadScenario, match=rf"cannot set_clock \(.*{words}"):
        made(
            load(folder / "scenario.yaml", {"steps": "[{clock-jump: node 1}]"}),
            seed=1, cluster="system", time_ms=None, mutants=(),
        )  # fmt: skip


@needs_compiler
def test_a_path_that_the_linker_cuts_is_refused(tmp_path: Path) -> None:
    """Nothing would be preloaded, and every program would say so on its own."""
    run = tmp_path / "a run"
    run.mkdir()

    with pytest.raises(ClusterError, match="space or a colon"):
        asyncio.run(clocks.built(run))


@needs_compiler
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_node_of_another_user_has_a_clock_too(library: Path, tmp_path: Path) -> None:
    """Who may not write into the page could not say what it saw."""
    clocks.controlled(tmp_path).close()

    assert (tmp_path / clocks.PAGE).stat().st_mode & 0o666 == 0o666
    assert library.stat().st_mode & 0o444 == 0o444
