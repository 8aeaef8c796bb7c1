"""Whether the load goes on: a fault that keeps its clients out for ever would otherwise pass, for nobody loses what nobody writes."""

from collections.abc import Mapping

from tribunal.clusters.api import Proof
from tribunal.clusters.capabilities import ShowsLoad
from tribunal.nemesis.api import came_true


async def load_goes_on(cluster: ShowsLoad, before: Mapping[int, int]) -> Proof:
    """Wait until clients that were answered before are answered again: produces, fetches, whichever there were.

    before:  what `answered_counts` was when the fault began: without any load there is nothing to wait for.
    """
    now = cluster.answered_counts()
    kinds = [api for api, count in before.items() if count]
    goes_on = await came_true(
        lambda: all(cluster.answered_counts()[api] > now[api] for api in kinds),
        timeout_ms=cluster.spec.recovery_timeout_ms,
        what="clients are answered again",
        cluster=cluster,
    )
    return Proof(
        holds=goes_on.holds, facts=goes_on.facts, undone=True
    )  # whoever is answered by now, nothing is left to mend
