"""A cluster and a load drawn from the seed: what a scenario says is only one of many (swarm testing).

Drawn are shape, replication factor, min ISR, ELR and unclean elections, time-outs, flush settings, segment sizes, how
often the controllers take snapshots, and the load with its partitions, which decide how the acks levels mix. Most
draws stay near what clusters have in earnest, because rare settings hide what common ones would show.

ZooKeeper mode knows no quorum of controllers, no snapshots and no ELR; there the servers of the ensemble, the session
time-out and the protocol version are drawn, of those that have broker epochs (KIP-380: before 2.2 its races are known).
"""

from collections.abc import Mapping
from random import Random
from typing import Final

from msgspec.structs import replace

from tribunal.clusters.spec import RACK_AWARE, SELECTOR, ClusterSpec, SettingValue

SCALED: Final = (
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "replica.lag.time.max.ms",
)
SCALED_IN_ZOOKEEPER_MODE: Final = (
    "broker.session.timeout.ms",
    "zookeeper.session.timeout.ms",
    "replica.lag.time.max.ms",
)
RACKS_SHARE: Final = 0.25
PROTOCOLS: Final = ("2.2", "2.6", "2.8", "3.2", "3.4", "3.4", "3.4")


def drawn_cluster(spec: ClusterSpec, random: Random) -> ClusterSpec:
    """Draw a cluster; what the scenario sets by name stays."""
    brokers = max(random.choice((3, 3, 3, 4, 5)), *spec.kafka_brokers[-1:], 0)
    replication_factor = random.choice((3, 3, 3, min(brokers, 4)))
    return replace(
        spec,
        brokers=brokers,
        controllers=max(
            random.choice((1, 3, 3) if spec.is_zookeeper_mode else (1, 3, 3, 3, 5)), spec.least_controllers
        ),
        replication_factor=replication_factor,
        min_insync_replicas=random.choice((1, 2, 2, 2, replication_factor - 1)),
        settings={**_settings(spec, random), **spec.settings},
    )


def _settings(spec: ClusterSpec, random: Random) -> dict[str, SettingValue]:
    slowness = random.choice((0.7, 1.0, 1.0, 1.6))
    scaled = SCALED_IN_ZOOKEEPER_MODE if spec.is_zookeeper_mode else SCALED
    settings: dict[str, SettingValue] = {name: round(spec.timeout_ms(name) * slowness) for name in scaled}
    if spec.is_zookeeper_mode:
        settings["inter.broker.protocol.version"] = random.choice(PROTOCOLS)
    else:
        settings["eligible.leader.replicas.enable"] = random.random() < 0.8
    settings["unclean.leader.election.enable"] = random.random() < 0.15
    settings["log.segment.bytes"] = random.choice((4_096, 65_536, 1 << 30))
    if random.random() < 0.3:
        settings["log.flush.interval.messages"] = random.choice((1, 10))
    if not spec.is_zookeeper_mode and random.random() < 0.4:
        settings["metadata.log.max.record.bytes.between.snapshots"] = random.choice((1_000, 4_000))
    return settings


def with_points(spec: ClusterSpec, random: Random) -> ClusterSpec:
    """Let named points in the nodes' code be late or fail in half of the seeds (`replog/node/fault_injection_points.py`, simulated nodes only)."""
    return replace(spec, settings={"tribunal.points": random.random() < 0.5, **spec.settings})


def with_racks(spec: ClusterSpec, random: Random) -> ClusterSpec:
    """Let leaders send readers to the replica of their rack in a quarter of the seeds (KIP-392), where readers know theirs: in the simulator."""
    is_drawn = random.random() < RACKS_SHARE and not spec.is_zookeeper_mode
    return replace(spec, settings={SELECTOR: RACK_AWARE, **spec.settings}) if is_drawn else spec


def drawn_load(options: Mapping[str, object], random: Random) -> Mapping[str, object]:
    """Draw the load, where the workload has such options."""
    choices: dict[str, tuple[int, ...]] = {"partitions": (1, 3, 6), "rate": (60, 150, 240), "readers": (1, 2)}
    return {**options, **{name: random.choice(values) for name, values in choices.items() if name in options}}
