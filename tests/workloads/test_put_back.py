"""What operators put back in the end is put back whatever else cannot be: else the cluster owes less than it is asked for."""

from random import Random

import pytest

from tests.simulated.cluster_program import NOWHERE, Rows
from tribunal.clusters.clock import RunClock
from tribunal.clusters.kinds.simulated import launch
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.clusters.spec import ClusterSpec
from tribunal.workloads.api import Stage
from tribunal.workloads.kinds import operator

FIRST, SECOND = "operator-0", "operator-1"


class Lagging:
    """Who asks a broker that does not know of a topic yet."""

    def __init__(self, known, unseen):
        self._known = known
        self._unseen = unseen

    def __getattr__(self, name):
        return getattr(self._known, name)

    async def topics(self):
        return {name: seen for name, seen in (await self._known.topics()).items() if name != self._unseen}


@pytest.mark.parametrize("unseen", [FIRST, None])
def test_settings_are_put_back_also_where_a_topic_cannot_be_made(unseen):
    """A broker that lagged did not name a topic that was there; making it was refused, again and again, and min ISR stayed as it was."""

    async def story():
        rows, clock = Rows(), RunClock()
        cluster = await launch(ClusterSpec(controllers=1), NOWHERE, clock, "put-back")
        stage = Stage(clients=cluster.clients, sink=rows, now_ns=clock.now_ns)
        chosen = operator.plan(operator.Options(operators=1, partitions=1), Random(1))
        try:
            await operator.prepare(stage, chosen, 3)
            own = {name: operator._OwnTopic(stage, chosen, place) for place, name in enumerate((FIRST, SECOND))}
            one = operator._Operator(stage, chosen, 0, own)
            await one._look()
            await one._set_config(SECOND, "min.insync.replicas", "3", own[SECOND])
            one._operator = Lagging(one._operator, unseen)
            await one._put_back()
            for topic in own.values():
                await topic.leave()
        finally:
            await cluster.close()
        return [(row["value"], row["outcome"]) for row in rows.of("admin") if row["api"] == "set_config"]

    with sealed(Simulation("put back")) as simulation:
        ordered = simulation.run(story())

    assert ordered[0] == ("3", "ok")
    assert (None, "ok") in ordered[1:]
