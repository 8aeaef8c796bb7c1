"""Change a topic's min.insync.replicas for a while; heal by returning to the default."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Final

import msgspec

from tribunal.clusters.api import Declined
from tribunal.clusters.capabilities import CanConfigureTopics
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, all_back, joined

SETTING: Final = "min.insync.replicas"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To what."""

    to: Annotated[int, msgspec.Meta(ge=1)] = 1


@asynccontextmanager
async def inject(cluster: CanConfigureTopics, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject and heal: the controller has accepted the change for every topic of the run that is still there."""
    topics = await _set(cluster, _topics(cluster), str(options.to))
    effect = Effect(node, Proof(holds=bool(topics), facts={"topics": topics, SETTING: options.to}))
    yield effect
    done = await _set(cluster, topics, None)
    effect.heal = joined(Proof(holds=True, facts={"default_again": done}), "service", await all_back(cluster))


async def _set(cluster: CanConfigureTopics, topics: Sequence[str], value: str | None) -> list[str]:
    """Set it for these topics; return those that are there: an operator may delete topics meanwhile."""
    done = []
    for topic in topics:
        try:
            await cluster.set_topic_config(topic, SETTING, value)
        except Declined:
            if topic in _topics(cluster):
                raise
        else:
            done.append(topic)
    return done


def _topics(cluster: CanConfigureTopics) -> list[str]:
    return sorted({name.topic for name in cluster.state.partitions if not name.topic.startswith("__")})


FAULT: Final = Fault(options=Options, inject=inject)
