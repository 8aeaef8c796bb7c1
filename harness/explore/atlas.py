"""The worlds by name, and their settings from text.

A world's settings are a struct of numbers and switches, so that the command line can set each by its name.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from tribunal.harness.catalog import nearest
from tribunal.harness.explore.engine import World
from tribunal.harness.explore.partition.events import Settings as PartitionSettings
from tribunal.harness.explore.partition.world import PartitionWorld
from tribunal.harness.explore.quorum.world import QuorumWorld
from tribunal.harness.explore.quorum.world import Settings as QuorumSettings
from tribunal.harness.scenario import BadScenario
from tribunal.results.unreadable import UNREADABLE

PARTITION: Final = "partition"
QUORUM: Final = "quorum"
ABOUT: Final[Mapping[str, str]] = {
    PARTITION: "one partition, its brokers, the controller: who may lead and what may be lost",
    QUORUM: "the metadata quorum: votes, pre-votes, replication, another voter; who leads, and whether anybody can",
}
Settings = TypeVar("Settings", PartitionSettings, QuorumSettings)


def world(name: str, given: Mapping[str, str]) -> tuple[World, dict[str, str]]:
    """Return a world with these settings, and all its settings as text."""
    if name == PARTITION:
        of_partition = _settings(name, PartitionSettings, given)
        return PartitionWorld(of_partition), _shown(of_partition)
    if name == QUORUM:
        of_quorum = _settings(name, QuorumSettings, given)
        return QuorumWorld(of_quorum), _shown(of_quorum)
    raise nearest("world", name, ABOUT)


def _shown(settings: msgspec.Struct) -> dict[str, str]:
    return {field: str(value).lower() for field, value in msgspec.structs.asdict(settings).items()}


def _settings(name: str, of: type[Settings], given: Mapping[str, str]) -> Settings:
    known = of.__struct_fields__
    for field in given:
        if field.replace("-", "_") not in known:
            raise nearest(f"setting of world {name}", field, known)
    try:
        return msgspec.convert({field.replace("-", "_"): value for field, value in given.items()}, of, strict=False)
    except UNREADABLE as problem:
        raise BadScenario(f"world {name}: {problem}") from None
