"""The worlds by name, and their settings from text.

A world's settings are a struct of numbers and switches, so that the command line can set each by its name.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tribunal.harness.catalog import nearest
from tribunal.harness.explore.engine import World
from tribunal.harness.explore.partition.events import Settings as PartitionSettings
from tribunal.harness.explore.partition.world import PartitionWorld
from tribunal.harness.scenario import BadScenario

PARTITION: Final = "partition"
ABOUT: Final[Mapping[str, str]] = {
    PARTITION: "one partition, three brokers, the controller: who may lead and what may be lost",
}


def world(name: str, given: Mapping[str, str]) -> tuple[World, dict[str, str]]:
    """Return a world with these settings, and all its settings as text."""
    if name != PARTITION:
        raise nearest("world", name, ABOUT)
    settings = _settings(name, PartitionSettings, given)
    shown = {field: str(value).lower() for field, value in msgspec.structs.asdict(settings).items()}
    return PartitionWorld(settings), shown


def _settings(name: str, of: type[PartitionSettings], given: Mapping[str, str]) -> PartitionSettings:
    known = of.__struct_fields__
    for field in given:
        if field.replace("-", "_") not in known:
            raise nearest(f"setting of world {name}", field, known)
    try:
        return msgspec.convert({field.replace("-", "_"): value for field, value in given.items()}, of, strict=False)
    except msgspec.ValidationError as problem:
        raise BadScenario(f"world {name}: {problem}") from None
