"""Redis on trial, as `systems/redis` describes it: what it loses is found, and what it keeps is not accused."""

import shutil
from pathlib import Path

import pytest

from tests.systems.judged import judged_in
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.systems.clocks import lacking as no_clocks
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.results.verdict import RunVerdict, Verdict

REDIS = Path(__file__).resolve().parents[2] / "systems" / "redis"
LACKING = [program for program in ("redis-server", "redis-cli") if shutil.which(program) is None]
NO_DISKS = str(way_in()) if isinstance(way_in(), str) else no_disks()
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)} (Debian: redis-server)")


def judged(scenario: str, overrides: dict[str, str], out: Path, *, seed: int = 1) -> RunVerdict:
    """Run a scenario of Redis and judge it; nothing of it stays running."""
    return judged_in(REDIS, scenario, overrides, out, seed=seed)


def test_a_primary_without_persistence_loses_what_a_replica_acknowledged(tmp_path: Path) -> None:
    """It comes back empty and its replicas copy that; each lost element had been confirmed by WAIT 1."""
    verdict = judged("kill-primary.yaml", {"time": "1s"}, tmp_path)

    assert verdict.verdict is Verdict.VIOLATION
    assert {finding.kind for finding in verdict.findings} == {"element_lost"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scenario", "overrides"),
    [
        pytest.param("kill-durable.yaml", {}, id="one server"),
        pytest.param(
            "kill-primary.yaml", {"cluster.system": str(REDIS / "replicated.toml")}, id="primary and replicas"
        ),
    ],
)
def test_a_server_that_syncs_each_change_passes(scenario: str, overrides: dict[str, str], tmp_path: Path) -> None:
    """With `appendfsync always` kill -9 takes nothing."""
    verdict = judged(scenario, overrides, tmp_path)

    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("system", "verdict"),
    [
        pytest.param("snapshots.toml", Verdict.PERMITTED, id="as much as its file permits"),
        pytest.param("late-snapshots.toml", Verdict.VIOLATION, id="more than its file permits"),
        pytest.param("everysec.toml", Verdict.PASS, id="nothing"),
    ],
)
def test_what_a_kill_takes_is_judged_by_what_the_file_permits(system: str, verdict: Verdict, tmp_path: Path) -> None:
    """A server that writes later loses more; only its own file says how much of that is permitted."""
    found = judged("kill-late.yaml", {"cluster.system": str(REDIS / system)}, tmp_path)

    assert found.verdict is verdict
    assert {finding.kind for finding in found.findings} <= {"element_lost"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("system", "verdict"),
    [
        pytest.param("durable.toml", Verdict.PASS, id="synced"),
        pytest.param("snapshots.toml", Verdict.PERMITTED, id="as much as its file permits"),
    ],
)
def test_a_queue_of_a_server_that_is_killed(system: str, verdict: Verdict, tmp_path: Path) -> None:
    """A list that elements are moved from while they are given out keeps them, or loses what its file permits."""
    found = judged("queue.yaml", {"cluster.system": str(REDIS / system)}, tmp_path)

    assert (found.verdict, found.reasons) == (verdict, [])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scenario", "system", "verdict", "kinds"),
    [
        pytest.param("counter.yaml", "durable.toml", Verdict.PASS, set(), id="counter synced"),
        pytest.param(
            "counter.yaml", "snapshots.toml", Verdict.PERMITTED, {"too_low"}, id="as much as its file permits"
        ),
        pytest.param(
            "counter.yaml", "late-snapshots.toml", Verdict.VIOLATION, {"too_low"}, id="counter of a minute ago"
        ),
        pytest.param("lock.yaml", "durable.toml", Verdict.PASS, set(), id="lock synced"),
        pytest.param(
            "lock.yaml",
            "late-snapshots.toml",
            Verdict.VIOLATION,
            {"token_back", "held_twice"},
            id="lock of a minute ago",
        ),
    ],
)
def test_counters_and_locks_of_a_server_that_is_killed(
    scenario: str, system: str, verdict: Verdict, kinds: set[str], tmp_path: Path
) -> None:
    """What was acknowledged is counted, and held by one; a server that forgets it is convicted."""
    found = judged(scenario, {"cluster.system": str(REDIS / system)}, tmp_path)

    assert found.verdict is verdict
    assert {finding.kind for finding in found.findings} <= kinds


@pytest.mark.nightly
@pytest.mark.skipif(bool(no_clocks()), reason=no_clocks() or "there are clocks")
def test_a_clock_that_jumps_ahead_ends_leases_and_nothing_else(tmp_path: Path) -> None:
    """Whoever was promised a lock for two seconds loses it at once. Nobody may hold one just then: of some seeds one has to be convicted."""
    without = judged("clock.yaml", {}, tmp_path)
    leases = (
        judged_in(REDIS, "clock.yaml", {"cluster.system": str(REDIS / "lease.toml")}, tmp_path, seed=seed)
        for seed in range(1, 5)
    )
    convicted = next((one for one in leases if one.verdict is Verdict.VIOLATION), None)

    assert (without.verdict, without.reasons) == (Verdict.PASS, [])
    assert convicted is not None
    assert {finding.kind for finding in convicted.findings} == {"held_twice"}


@pytest.mark.nightly
@pytest.mark.skipif(isinstance(way_in(), str), reason=str(way_in()))
def test_a_failover_by_sentinel_loses_what_the_old_primary_acknowledged(tmp_path: Path) -> None:
    """It is cut off from replicas and sentinels, clients still reach it, and it comes back as a replica of another one."""
    verdict = judged("sentinel.yaml", {}, tmp_path)

    assert verdict.verdict is Verdict.VIOLATION
    assert {finding.kind for finding in verdict.findings} == {"element_lost"}


@pytest.mark.nightly
@pytest.mark.skipif(isinstance(way_in(), str), reason=str(way_in()))
@pytest.mark.parametrize(
    ("system", "right"),
    [
        pytest.param("stream.toml", Verdict.PERMITTED, id="as its file permits"),
        pytest.param("stream-strict.toml", Verdict.VIOLATION, id="its file permits nothing"),
    ],
)
def test_a_failover_takes_what_the_primary_alone_acknowledged(system: str, right: Verdict, tmp_path: Path) -> None:
    """What a replica had too stays, in both."""
    verdict = judged("stream.yaml", {"cluster.system": str(REDIS / system)}, tmp_path)

    assert verdict.verdict is right
    assert {finding.kind for finding in verdict.findings} == {"element_lost"}


@pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "there are such disks")
def test_a_loss_of_power_takes_what_is_synced_every_second(tmp_path: Path) -> None:
    """What the kernel had and the disk had not is gone. It may come right after a sync: of some seeds one has to be convicted."""
    verdicts = (judged("power-loss.yaml", {"time": "2s"}, tmp_path, seed=seed) for seed in range(1, 5))

    convicted = next((one for one in verdicts if one.verdict is Verdict.VIOLATION), None)

    assert convicted is not None
    assert {finding.kind for finding in convicted.findings} == {"element_lost"}


@pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "there are such disks")
def test_a_loss_of_power_takes_nothing_that_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    """The same server on the same disk, with `appendfsync always`."""
    always = {"cluster.system": str(REDIS / "power-always.toml"), "time": "2s"}

    verdict = judged("power-loss.yaml", always, tmp_path)

    assert verdict.verdict is not Verdict.VIOLATION
    assert verdict.findings == []
