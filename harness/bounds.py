"""What of a drawn cluster real nodes can be: each costs a process, and their time does not stand still.

In the simulator a node costs a few objects, and a busy machine only makes a run last longer. Real nodes share real
cores: more of them than a run is usually tried with would only show that the machine is small, and time-outs below the
profile's would expire because no process got the processor in time. The harness follows their metadata over the network, and
must not be overtaken by snapshots. So of what a seed draws, shape, time-outs and snapshots are bounded, the same on every
machine: a plan is a matter of the seed. What a scenario sets by name stays as it is.

A kind whose nodes refuse small values says so in `Kind.least` (Kafka's segments have at least 1 MiB, KIP-1030).
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from tribunal.clusters.api import Kind
from tribunal.clusters.spec import ClusterSpec, SettingValue

BROKERS_MAX: Final = 4
CONTROLLERS_MAX: Final = 3
LEAST: Final[Mapping[str, int]] = {"metadata.log.max.record.bytes.between.snapshots": 4_000}


def bounded(drawn: ClusterSpec, scenario: ClusterSpec, kind: Kind) -> ClusterSpec:
    """Bound what was drawn for a scenario's cluster to what this kind's nodes can be."""
    if kind.is_simulated:
        return drawn
    least = {**LEAST, **kind.least}
    return replace(
        drawn,
        brokers=max(min(drawn.brokers, BROKERS_MAX), *scenario.kafka_brokers[-1:], 0),  # those that it names are there
        controllers=max(min(drawn.controllers, CONTROLLERS_MAX), scenario.least_controllers),
        settings={name: _bounded_setting(name, value, scenario, least) for name, value in drawn.settings.items()},
    )


def _bounded_setting(name: str, value: SettingValue, scenario: ClusterSpec, least: Mapping[str, int]) -> SettingValue:
    if name in scenario.settings or isinstance(value, bool) or not isinstance(value, int):
        return value
    if name.endswith(".timeout.ms"):
        return max(value, scenario.timeout_ms(name))
    return max(value, least.get(name, value))
