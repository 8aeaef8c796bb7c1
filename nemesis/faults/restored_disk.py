"""Put an old copy of a broker's disk back, as who restores a machine from a snapshot or a backup; heal by starting the broker on it.

The broker is ended, its disk is copied, and it goes on. After a while it is killed, and comes back with the copy: what it had synced since is
gone, and all that stands in the copy is of an earlier life, such as the file of a clean shutdown (KIP-966 compares its broker epoch for that).
"""

import asyncio
from contextlib import asynccontextmanager
from typing import Annotated, Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanRestoreDisks
from tribunal.nemesis.api import (
    AsyncGenerator,
    ClusterError,
    Effect,
    Fault,
    back_in_service,
    incarnation,
    joined,
    registered_again,
)
from tribunal.nemesis.bounce import BounceTarget, How, end, killed_with_other_disk

NO_COPY: Final = (
    "the disk of node {} is not put back: a voter that has forgotten its vote and its log breaks any quorum"
)


class RestoreTarget(BounceTarget, CanRestoreDisks, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The copy.

    how:     how the broker is ended before its disk is copied.
    age_ms:  how long the broker serves before the copy comes back.
    """

    how: How = "stop"
    age_ms: Annotated[int, msgspec.Meta(ge=0)] = 1_000


@asynccontextmanager
async def inject(cluster: RestoreTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the process is gone, and its logs end where they ended in the copy. Heal: a new incarnation in its ISRs."""
    if node not in cluster.spec.broker_ids:
        raise ClusterError(NO_COPY.format(node))
    before = incarnation(cluster, node)
    ended = await end(cluster, node, options.how)
    try:
        await cluster.save_disk(node)
    finally:
        await cluster.start(node)
    # Another fault may keep it out of the ISR: its disk may be copied and put back all the same.
    served = await registered_again(cluster, node, before)
    await asyncio.sleep(options.age_ms / 1000)
    if not cluster.alive(node):
        raise ClusterError(f"broker {node} is down for another fault: its disk is not put back")
    former = incarnation(cluster, node)
    effect = await killed_with_other_disk(cluster, node, "restored", cluster.restore_disk)
    effect.add_proof("copied", joined(ended, "served", served))
    yield effect
    await cluster.start(node)
    effect.heal = await back_in_service(cluster, node, former)


FAULT: Final = Fault(options=Options, inject=inject)
