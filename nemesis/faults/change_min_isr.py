"""Change a topic's min.insync.replicas for a while; heal by returning to the default."""

from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tribunal.clusters.capabilities import CanConfigureTopics
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, all_back, joined

SETTING: Final = "min.insync.replicas"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To what."""

    to: int = 1


@asynccontextmanager
async def inject(cluster: CanConfigureTopics, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject and heal: the controller has accepted the change for every topic of the run."""
    topics = sorted({name.topic for name in cluster.state.partitions if not name.topic.startswith("__")})
    for topic in topics:
        await cluster.set_topic_config(topic, SETTING, str(options.to))
    effect = Effect(node, Proof(holds=bool(topics), facts={"topics": topics, SETTING: options.to}))
    yield effect
    for topic in topics:
        await cluster.set_topic_config(topic, SETTING, None)
    effect.heal = joined(Proof(holds=True, facts={"default_again": topics}), "service", await all_back(cluster))


FAULT: Final = Fault(options=Options, inject=inject)
