"""Restart the brokers one after another in good order, each with other settings: one round of an upgrade (KIP-380, KIP-704)."""

from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from tribunal.clusters.capabilities import CanReconfigure
from tribunal.clusters.spec import ZOOKEEPER, SettingValue
from tribunal.nemesis.api import AsyncGenerator, Effect, Fault, Proof, all_back
from tribunal.nemesis.bounce import StopTarget
from tribunal.nemesis.link_groups import from_target


class UpgradeTarget(StopTarget, CanReconfigure, Protocol):
    """What this fault asks of a cluster."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings that every broker is restarted with, by Kafka's names."""

    settings: dict[str, SettingValue] = {}


@asynccontextmanager
async def inject(cluster: UpgradeTarget, node: int, options: Options) -> AsyncGenerator[Effect]:
    """Inject: every broker has another broker epoch. Heal: everybody is back."""
    before = {broker: state.broker_epoch for broker, state in cluster.state.brokers.items()}
    effect = Effect(node, Proof(holds=True, facts={"settings": options.settings, "epochs_before": before}))
    for number, broker in enumerate(from_target(cluster.spec.broker_ids, node)):
        await cluster.stop(broker)
        await cluster.reconfigure(broker, options.settings)
        await cluster.start(broker)
        effect.add_proof(f"whole_{number}", await all_back(cluster))
    after = {broker: state.broker_epoch for broker, state in cluster.state.brokers.items()}
    anew = all(after[broker] > before.get(broker, -1) for broker in cluster.spec.broker_ids if broker in after)
    effect.add_proof("anew", Proof(holds=anew, facts={"epochs_after": after}))
    yield effect
    effect.heal = await all_back(cluster)


FAULT: Final = Fault(options=Options, inject=inject, modes=(ZOOKEEPER,))
