"""Restart nodes one after another with another release of Apache Kafka, the target first: one round of an upgrade, or of a way back; nothing is left to mend."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanChangeRelease, CanRaiseMetadataVersion
from tribunal.clusters.kafka.java import no_java_for
from tribunal.clusters.kafka.releases import NEWEST, release
from tribunal.clusters.spec import KRAFT, ClusterSpec
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault
from tribunal.nemesis.bounce import BounceTarget, How
from tribunal.nemesis.one_by_one import Other, in_turn, must_know_what_is_finalized, replaced


class ReleaseTarget(BounceTarget, CanChangeRelease, CanRaiseMetadataVersion, Protocol):
    """A cluster whose nodes end, change and are started again."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which release, and how each node ends; `alone`: the target changes and no other one, else all of its role."""

    to: str = NEWEST
    how: How = "stop"
    alone: bool = False


@asynccontextmanager
async def inject(cluster: ReleaseTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: every node ended and came back, running the other release. Heal: every ISR is full."""
    nodes = in_turn(cluster.spec, node, alone=options.alone)
    version = release(options.to).name
    await must_know_what_is_finalized(cluster, release(version))
    await cluster.fetch_release(version)  # nobody is down meanwhile
    other = Other(
        "release",
        lambda one: cluster.change_release(one, version),
        lambda one: cluster.runs_release(one, version),
    )
    async with replaced(cluster, node, nodes, options.how, other) as effect:
        yield effect


def _refused(options: Options, spec: ClusterSpec) -> str:
    try:
        wanted, first = release(options.to), release(spec.version)
    except ValueError as problem:
        return str(problem)
    if wanted.numbers < first.numbers:
        return (
            f"Apache Kafka {wanted.name} does not know the metadata.version that {first.name} formats with;"
            f" the way back to it begins there: kafka: {wanted.name}"
        )
    return no_java_for(wanted)


FAULT: Final = Fault(
    options=Options, inject=inject, modes=(KRAFT,), refused=_refused, releases=lambda options: (options.to,)
)
