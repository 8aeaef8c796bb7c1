"""One short fault after another on random brokers, the rests between them growing (Redpanda's recycle storm)."""

from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Final

import msgspec

from tribunal.nemesis.api import Aimed, Effect, Fault
from tribunal.nemesis.combine import aimed, idle, one_of
from tribunal.nemesis.episodes import EpisodeTarget, episodes
from tribunal.nemesis.faults import isolate, kill, pause, stop


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long each fault lasts, how the rests grow, and the seed of all chance (drawn by the plan)."""

    each_ms: int = 400
    rest_ms: int = 300
    growth_ms: int = 300
    rest_ms_max: int = 3_000
    seed: int = 0


def inject(cluster: EpisodeTarget, node: int, options: Options) -> AbstractAsyncContextManager[Effect]:
    """Inject and heal: every single fault took effect, and healed. The first one hits the target."""
    random = Random(f"{options.seed}/storm")

    def episode(number: int) -> tuple[Aimed, int]:
        victim = node if number == 0 else random.choice(cluster.spec.broker_ids)
        chosen = one_of(
            random,
            aimed(kill.FAULT, victim, kill.Options()),
            aimed(stop.FAULT, victim, stop.Options()),
            aimed(pause.FAULT, victim, pause.Options()),
            aimed(isolate.FAULT, victim, isolate.Options(others="nodes")),
        )
        return chosen if cluster.alive(victim) else idle, options.each_ms  # who has ended it starts it again

    return episodes(
        cluster, node, episode, lambda number: min(options.rest_ms + number * options.growth_ms, options.rest_ms_max)
    )


FAULT: Final = Fault(options=Options, inject=inject)
