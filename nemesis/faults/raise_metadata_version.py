"""Finalize the metadata.version of another release of Apache Kafka; from then on no older release can come back, and there is nothing to mend."""

import asyncio
from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec

from tribunal.clusters.api import Declined
from tribunal.clusters.capabilities import CanRaiseMetadataVersion
from tribunal.clusters.kafka.releases import NEWEST, release
from tribunal.clusters.spec import KRAFT, ClusterSpec
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, all_back

SHOWN_TIMEOUT_MS: Final = 15_000
POLL_MS: Final = 200


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose metadata.version, and what the cluster is to say: `refused` while it has a node that does not know it."""

    to: str = NEWEST
    expect: Literal["done", "refused"] = "done"


@asynccontextmanager
async def inject(cluster: CanRaiseMetadataVersion, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: the brokers show the new level, or the request was refused and they show the former. Heal: every ISR is full."""
    level = release(options.to).metadata_version
    former, refused = await cluster.metadata_version(), ""
    try:
        await cluster.raise_metadata_version(level)
    except Declined as problem:
        refused = str(problem)
    shown = await _shown(cluster, former if refused else level)
    holds = shown == (former if refused else level) and bool(refused) is (options.expect == "refused")
    facts: dict[str, object] = {
        "former": former,
        "asked": level,
        "shown": shown,
        "expected": options.expect,
        "refused": refused,
    }
    effect = Effect(node, Proof(holds=holds, facts=facts))
    yield effect
    effect.heal = await all_back(cluster)


async def _shown(cluster: CanRaiseMetadataVersion, wanted: int) -> int:
    """Wait until a broker shows this level, which it may learn later than the controllers; return what is shown last."""
    shown = await cluster.metadata_version()
    for _ in range(SHOWN_TIMEOUT_MS // POLL_MS):
        if shown == wanted:
            break
        await asyncio.sleep(POLL_MS / 1000)
        shown = await cluster.metadata_version()
    return shown


def _refused(options: Options, spec: ClusterSpec) -> str:
    try:
        wanted, first = release(options.to), spec.formatted_level
    except ValueError as problem:
        return str(problem)
    if wanted.metadata_version <= first:
        by = "replog's controllers" if spec.kafka else release(spec.version).name
        return (
            f"the cluster is formatted by {by}, with metadata.version {first}:"
            f" that of {wanted.name}, {wanted.metadata_version}, raises nothing"
        )
    return ""


FAULT: Final = Fault(options=Options, inject=inject, modes=(KRAFT,), refused=_refused)
