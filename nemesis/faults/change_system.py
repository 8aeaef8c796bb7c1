"""Restart nodes one after another with the other of two systems, on the files that they have: one round of a migration in place; nothing is left to mend."""

from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol

import msgspec

from tribunal.clusters.capabilities import CanChangeSystem, CanRaiseMetadataVersion, SystemName
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.spec import KRAFT
from tribunal.nemesis.api import AsyncGenerator, ClusterError, Effect, Fault
from tribunal.nemesis.bounce import BounceTarget, How
from tribunal.nemesis.one_by_one import Other, in_turn, must_know_what_is_finalized, replaced

OTHER: Final[dict[SystemName, SystemName]] = {"replog": "apache-kafka", "apache-kafka": "replog"}


class SystemTarget(BounceTarget, CanChangeSystem, CanRaiseMetadataVersion, Protocol):
    """A cluster whose nodes end, go over to another system and are started again."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which system, and how each node ends; `other`: each goes over to the one that it does not run.

    alone:  the target goes over and no other one, else all of its role, the target first.
    """

    to: Literal["replog", "apache-kafka", "other"] = "other"
    how: How = "stop"
    alone: bool = False


@asynccontextmanager
async def inject(cluster: SystemTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: every node that did not run the system yet ended and came back, running it. Heal: every ISR is full."""
    nodes = in_turn(cluster.spec, node, alone=options.alone)
    wanted = {one: OTHER[cluster.system_of(one)] if options.to == "other" else options.to for one in nodes}
    going = [one for one in nodes if cluster.system_of(one) != wanted[one]]
    if not going:
        raise ClusterError(f"there is nobody to go over: nodes {nodes} run {options.to} already")
    if any(wanted[one] == "apache-kafka" for one in going):  # replog knows all that a mixed cluster can finalize
        await must_know_what_is_finalized(cluster, release(cluster.spec.version))
    other = Other(
        "system",
        lambda one: cluster.change_system(one, wanted[one]),
        lambda one: cluster.runs_system(one, wanted[one]),
    )
    async with replaced(cluster, node, going, options.how, other) as effect:
        yield effect


FAULT: Final = Fault(options=Options, inject=inject, modes=(KRAFT,))
