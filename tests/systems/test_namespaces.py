"""Described systems in network namespaces: nodes and clients are parted by packets that are stopped, and it is seen that they are."""

import asyncio
from pathlib import Path

import pytest

from tests.systems.judged import started
from tests.systems.test_sample import judged, planned
from tribunal.clusters.api import CutMode, Link, Unsupported
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems.cluster import SystemCluster
from tribunal.harness.new import made_system
from tribunal.harness.scenario import BadScenario
from tribunal.results.store import Recording
from tribunal.results.verdict import Verdict

LACKING = way_in()
pytestmark = pytest.mark.skipif(isinstance(LACKING, str), reason=str(LACKING))
APART = {"cluster.isolation": "namespaces"}
BOTH_WAYS = [Link(0, 1), Link(1, 0)]


async def launched(folder: Path) -> SystemCluster:
    """Return the sample system, running in namespaces."""
    made_system("keeper", folder)
    (folder / "run").mkdir()
    spec = ClusterSpec(brokers=1, controllers=0, system=str(folder / "keeper" / "system.toml"), isolation="namespaces")
    return await started(spec, folder / "run")


def test_a_node_that_is_cut_off_is_not_reached_and_comes_back(tmp_path: Path) -> None:
    """Calls of that time are left open, none is lost, the node is killed there too, and nothing stays running.

    Clients are connected by then, and the cut lasts for twice as long as one of them waits: whoever calls in its first half gets no answer.
    """
    steps = {
        "steps": "[{isolate: node 1, for: 2s, after: 200ms}, {kill: node 1, for: 100ms, after: 200ms}]",
        "workload": "{name: register, keys: 20, rate: 60}",
        "warm_up": "2s",
        "time": "3s",
    }

    verdict, run_dir = judged(planned(tmp_path, APART | steps), tmp_path)

    assert (verdict.verdict, verdict.reasons) == (Verdict.PASS, [])
    assert "info" in Recording.open(run_dir).table("operations")["outcome"].to_pylist()
    assert kind.leftovers(run_dir) == []


def test_a_cut_is_proven_by_what_no_longer_arrives_and_its_heal_by_what_does(tmp_path: Path) -> None:
    """Clients get no call through while it lasts; what is cut already proves nothing, and passes when both cuts have healed."""

    async def tried() -> None:
        cluster = await launched(tmp_path)
        client = cluster.clients.objects("one")
        try:
            before = await client.call("write", "r0", 1)
            cut = await cluster.cut(BOTH_WAYS, CutMode.HOLD)
            again = await cluster.cut(BOTH_WAYS, CutMode.HOLD)
            meanwhile = await client.call("write", "r0", 2)
            first = await cluster.heal(BOTH_WAYS)
            healed = await cluster.heal(BOTH_WAYS)
            after = await client.call("write", "r0", 3)
        finally:
            await cluster.close()
        assert (before.outcome, meanwhile.outcome, after.outcome) == ("ok", "info", "ok")
        assert (cut.holds, again.holds, healed.holds) == (True, False, True), (cut, again, healed)
        assert first.facts["cut_by_others"] == [str(link) for link in BOTH_WAYS]
        assert kind.leftovers(tmp_path / "run") == []

    asyncio.run(tried())


def test_one_direction_can_be_cut_and_connections_refused(tmp_path: Path) -> None:
    """What is refused is answered at once; bytes cannot be lost for good where nobody reads them."""

    async def tried() -> None:
        cluster = await launched(tmp_path)
        try:
            one_way = await cluster.cut(BOTH_WAYS[:1], CutMode.RESET)
            answer = await cluster.clients.objects("one").call("write", "r0", 1)
            healed = await cluster.heal(BOTH_WAYS[:1])
            with pytest.raises(Unsupported, match="mode drop"):
                await cluster.cut(BOTH_WAYS, CutMode.DROP)
        finally:
            await cluster.close()
        assert (one_way.holds, healed.holds) == (True, True), (one_way, healed)
        assert answer.outcome == "fail"  # a connection that is refused: nothing was sent

    asyncio.run(tried())


def test_links_of_nodes_that_share_a_network_are_not_cut(tmp_path: Path) -> None:
    """The refusal says what would part them."""
    with pytest.raises(BadScenario, match=r"cannot cut \(.*cluster.isolation=namespaces parts them\)"):
        planned(tmp_path, {"steps": "[{isolate: node 1}]"})
