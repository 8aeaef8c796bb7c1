"""Let one of a broker's several log directories fail in the midst of an append; heal by mending it and starting the broker again.

The broker goes on with the others: what lies in the one that fails is led by somebody else, and it leaves the ISR. The one that is mended
has what it had, and nobody has closed it: it is recovered at the next start (KIP-112, KIP-858).
"""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.api import TopicPartition
from tribunal.clusters.capabilities import CanFailDirectory
from tribunal.clusters.spec import KRAFT, ClusterSpec
from tribunal.nemesis.api import (
    AsyncGenerator,
    Effect,
    Fault,
    FaultTarget,
    Proof,
    back_in_service,
    came_true,
    incarnation,
    joined,
)
from tribunal.nemesis.bounce import BounceTarget, How, end

NOTICE_TIMEOUT_MS: Final = 10_000


class DirectoryTarget(BounceTarget, CanFailDirectory, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the broker is ended once its directory is mended, and whether the fault needs to be noticed while it lasts."""

    how: How = "stop"
    must_be_noticed: bool = True


@asynccontextmanager
async def inject(cluster: DirectoryTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the directory answers nothing, and the broker leads none of its logs. Heal: it is as before, and a new incarnation is in its ISRs."""
    former, logs = incarnation(cluster, node), cluster.logs_of_failing_directory(node)
    effect = Effect(node, await cluster.fail_directory(node))
    if options.must_be_noticed:
        noticed = await came_true(
            lambda: not cluster.alive(node) or not any(_serves(cluster, node, one) for one in logs),
            timeout_ms=NOTICE_TIMEOUT_MS,
            what="the broker serves nothing of the directory",
            cluster=cluster,
        )
        effect.add_proof("noticed", noticed)
    yield effect
    mended = await cluster.mend_directory(node)
    if not cluster.alive(node):  # another fault has ended it meanwhile, and starts it
        effect.heal = Proof(holds=mended.holds, facts={**mended.facts, "node": "down for another fault"})
        return
    await end(cluster, node, options.how)
    await cluster.start(node)
    effect.heal = joined(mended, "service", await back_in_service(cluster, node, former))


def _serves(cluster: FaultTarget, node: int, partition: TopicPartition) -> bool:
    """Return whether a broker leads a partition, or follows one that has another leader, as far as is committed."""
    state = cluster.state.partitions.get(partition)
    return state is not None and (state.leader == node or (state.leader >= 0 and node in state.isr))


def refused(options: Options, spec: ClusterSpec) -> str:
    """Say why there is no such directory; empty: there is."""
    return "" if spec.log_directories > 1 else "brokers have one log directory: --set cluster.log_directories=2"


FAULT: Final = Fault(options=Options, inject=inject, modes=(KRAFT,), refused=refused)
