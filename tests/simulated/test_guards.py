"""The guards of the nodes' code: read out of the code, counted where they are, and without a trace in what is simulated."""

import asyncio
import csv

import pytest

from replog.log import batch
from tests.simulated.cluster_program import NOWHERE
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.guards import COUNTER, counted
from tribunal.clusters.simulated.running import run_simulated
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.sweep import SeedResult, Sweep, guards_table
from tribunal.results.guards import GUARDS, cold, read, write
from tribunal.results.verdict import Verdict

TORN = "replog.log.batch.header_at: raises CorruptBatch"
SHORT = "replog.log.batch.header_at: raises CorruptBatch (3)"


@pytest.fixture(scope="module")
def plain_code():
    return batch.header_at.__code__


async def a_killed_broker_comes_back():
    """Its registration is refused meanwhile: a guard is reached."""
    cluster = await launch(ClusterSpec(controllers=1), NOWHERE, RunClock(), "guards")
    await cluster.kill(1)
    await cluster.start(1)
    await asyncio.sleep(0.5)
    await cluster.close()


@pytest.fixture(scope="module")
def uncounted(plain_code):
    """Run it before anything is counted."""
    return run_simulated("guards", a_killed_broker_comes_back)[1].loop.trace_hash()


@pytest.fixture(scope="module")
def guards(plain_code, uncounted):
    with counted() as found:
        yield found
    assert batch.header_at.__code__ is plain_code
    assert COUNTER not in vars(batch)


def torn_header():
    with pytest.raises(batch.CorruptBatch, match="torn header"):
        batch.header_at(b"", 0)


def test_each_guard_is_named_once_and_counted_where_it_is(guards):
    names = [str(guard) for guard in guards.known]
    before = guards.counts()
    torn_header()

    assert len(names) == len(set(names)) > 500
    assert {"answers", "raises", "catches"} == {guard.what.split()[0] for guard in guards.known}
    assert guards.counts() - before == {TORN: 1}


def test_a_simulation_is_the_same_with_and_without_counting(uncounted, guards):
    before = guards.counts()
    _, simulation = run_simulated("guards", a_killed_broker_comes_back)

    assert simulation.loop.trace_hash() == uncounted
    assert any("answers DUPLICATE_BROKER_REGISTRATION" in name for name in guards.counts() - before)


def test_what_no_run_reached_is_cold_and_stands_in_the_table(guards, tmp_path):
    account = Sweep()
    for seed, count in ((1, 2), (2, 1)):
        result = SeedResult(scenario="s", seed=seed, verdict=Verdict.PASS, claim="", guards={TORN: count})
        account.add(result)

    table = guards_table(account, guards)
    path = write(tmp_path, table)

    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert path.name == GUARDS
    assert SHORT in cold(table)
    assert TORN not in cold(table)
    assert len(cold(table)) == len(guards.known) - 1
    assert read(tmp_path) == table
    assert sum(int(row["reached"]) for row in rows) == 3
