"""One short fault after another on random brokers, the rests between them growing (Redpanda's recycle storm)."""

from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Final

import msgspec

from tribunal.nemesis.api import Cluster, Effect
from tribunal.nemesis.combine import Fault, aimed, one_of
from tribunal.nemesis.episodes import spree
from tribunal.nemesis.faults import isolate, kill, pause, stop

NEEDS: Final = frozenset({"kill", "stop", "start", "pause", "cut"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long each fault lasts, how the rests grow, and the seed of all chance (drawn by the plan)."""

    each_ms: int = 400
    rest_ms: int = 300
    growth_ms: int = 300
    rest_ms_max: int = 3_000
    seed: int = 0


def fault(cluster: Cluster, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Bite and heal: every single fault did. The first one hits the target."""
    random = Random(f"{options.seed}/storm")

    def episode(number: int) -> tuple[Fault, int]:
        victim = node if number == 0 else random.choice(cluster.spec.broker_ids)
        chosen = one_of(
            random,
            aimed(kill, victim),
            aimed(stop, victim),
            aimed(pause, victim),
            aimed(isolate, victim, others="nodes"),
        )
        return chosen, options.each_ms

    return spree(
        cluster, node, episode, lambda number: min(options.rest_ms + number * options.growth_ms, options.rest_ms_max)
    )
