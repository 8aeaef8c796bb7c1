"""Finalized features: which levels exist, who supports them, what turning one on or off needs (SPEC 2.13)."""

from collections.abc import Mapping
from typing import Final

from replog.controller.policy import ELR_FEATURE, MIN_ISR, Settings
from replog.controller.registration import CLEAN_SHUTDOWN_DETECTION_LEVEL
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.record_versions import HIGHEST, METADATA_VERSION, NEWEST
from replog.metadata.state import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    CORDONED_LEVEL,
    DIRECTORIES_LEVEL,
    UNASSIGNED,
    FeatureRange,
)

KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"  # 2: KIP-890, an epoch for every transaction
# 1 permits the new group protocol of KIP-848; what brokers offer of it is another matter, as with
# group.coordinator.rebalance.protocols of the released software.
GROUP_VERSION: Final = "group.version"

# Levels that this software can run with; brokers register with the same.
SUPPORTED: Final[dict[str, FeatureRange]] = {
    ELR_FEATURE: FeatureRange(0, 1),
    GROUP_VERSION: FeatureRange(0, 1),
    KRAFT_VERSION: FeatureRange(0, 1),
    METADATA_VERSION: FeatureRange(7, HIGHEST),
    TRANSACTION_VERSION: FeatureRange(0, 2),
}

# Metadata versions that brought records, or fields of records, which older ones cannot read (the released software's table).
METADATA_CHANGED_AT: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 20, 23, CORDONED_LEVEL})

Outcome = tuple[Error, str | None, list[r.MetadataRecord]]

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


def bootstrap(settings: Settings) -> list[r.MetadataRecord]:
    """Return the first records of a cluster."""
    records: list[r.MetadataRecord] = [
        r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=NEWEST),
        r.FeatureLevelRecord(name=KRAFT_VERSION, feature_level=SUPPORTED[KRAFT_VERSION].highest),
        r.FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=SUPPORTED[TRANSACTION_VERSION].highest),
        r.FeatureLevelRecord(name=GROUP_VERSION, feature_level=SUPPORTED[GROUP_VERSION].highest),
    ]
    if settings.eligible_leader_replicas:
        records.append(r.FeatureLevelRecord(name=ELR_FEATURE, feature_level=1))
        records.append(_cluster_config(MIN_ISR, str(settings.min_insync_replicas)))
    return records


def finalized(levels: Mapping[str, int], *, voters_in_log: bool) -> dict[str, int]:
    """Return the features in force by name, ascending, each with its level; those at level 0 are not.

    voters_in_log:  the quorum's log says who votes. A quorum that Apache Kafka's controllers began says kraft.version there alone, not in
                    the metadata, and its nodes answer clients with it all the same.
    """
    known = {name: level for name, level in levels.items() if level > 0}
    if voters_in_log:
        known.setdefault(KRAFT_VERSION, SUPPORTED[KRAFT_VERSION].highest)
    return dict(sorted(known.items()))


def update(
    image: Image, settings: Settings, name: str, level: int, upgrade_type: int, wanted: Mapping[str, int]
) -> Outcome:
    """Return error, words and records of one feature's update.

    wanted: all levels of the same request: they take effect together, so each is measured against the others.
    """
    if name not in SUPPORTED and level == 0 and name not in image.features:
        return Error.NONE, None, []  # tools lower every feature that they know of to its level of a release
    wrong = _refusal(image, name, level, upgrade_type, image.features | dict(wanted))
    if wrong is not None:
        return Error.INVALID_UPDATE_VERSION, wrong, []
    if level == image.features.get(name, 0):
        return Error.NONE, None, []
    records: list[r.MetadataRecord] = []
    if name == METADATA_VERSION and level < CLEAN_SHUTDOWN_DETECTION_LEVEL:
        records += _without_lists(image)
    if name == METADATA_VERSION and level < DIRECTORIES_LEVEL:
        records += _without_directories(image)
    if name == METADATA_VERSION and level < CORDONED_LEVEL:
        records += _without_cordons(image)
    records.append(r.FeatureLevelRecord(name=name, feature_level=level))
    if name == ELR_FEATURE and level >= 1:
        records += _one_min_isr_for_all(image, settings)
    return Error.NONE, None, records


def _refusal(image: Image, name: str, level: int, upgrade_type: int, after: Mapping[str, int]) -> str | None:
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"Upgrade type {upgrade_type} is unknown."
    unsupported = _unsupported(image, name, level)
    if unsupported is not None:
        return unsupported
    now = image.features.get(name, 0)
    if level < now and upgrade_type == UPGRADE:
        return f"Can't downgrade {name} from {now} to {level} with an upgrade request."
    if level > now and upgrade_type != UPGRADE:
        return f"Can't upgrade {name} from {now} to {level} with a downgrade request."
    if level < now and name == KRAFT_VERSION:
        return f"{KRAFT_VERSION} cannot go back from {now} to {level}: the voters are in the log."
    if level < now and name == METADATA_VERSION and upgrade_type != UNSAFE_DOWNGRADE:
        lost = [changed for changed in sorted(METADATA_CHANGED_AT) if level < changed <= now]
        if lost:
            return f"Lowering {METADATA_VERSION} loses what level {lost[0]} brought; ask for an unsafe downgrade."
    if name == METADATA_VERSION and level < CLEAN_SHUTDOWN_DETECTION_LEVEL and after.get(ELR_FEATURE):
        return f"{ELR_FEATURE} needs {METADATA_VERSION} {CLEAN_SHUTDOWN_DETECTION_LEVEL}; lower it first."
    needed = name == ELR_FEATURE and level > 0
    if needed and after.get(METADATA_VERSION, 0) < CLEAN_SHUTDOWN_DETECTION_LEVEL:
        return f"{ELR_FEATURE} needs {METADATA_VERSION} {CLEAN_SHUTDOWN_DETECTION_LEVEL}."
    return None


def _unsupported(image: Image, name: str, level: int) -> str | None:
    """Return who cannot run with a level, None when all can."""
    ours = SUPPORTED.get(name)
    if ours is None or not (ours.lowest <= level <= ours.highest or (level == 0 and name != METADATA_VERSION)):
        return f"Feature {name} level {level} is not supported by the controllers."
    for broker in sorted(image.brokers.values(), key=lambda broker: broker.broker_id):
        levels = broker.features.get(name, FeatureRange(0, 0))
        if level and not levels.lowest <= level <= levels.highest:
            return f"Broker {broker.broker_id} does not support level {level} of {name}."
    for controller_id, controller in sorted(image.controllers.items()):
        supported = {each.name: each for each in controller.features}.get(name)
        if level and (
            supported is None or not supported.min_supported_version <= level <= supported.max_supported_version
        ):
            return f"Controller {controller_id} does not support level {level} of {name}."
    return None


def _without_lists(image: Image) -> list[r.MetadataRecord]:
    """Write down, while it can be written, that nobody is in an ELR: older records have no room for it.

    A partition that waits for its last leader waits for it as it did before there were ELRs: as the one in its ISR.
    """
    records: list[r.MetadataRecord] = []
    for key, partition in image.partitions():
        if partition.elr or partition.last_known_elr:
            awaited: list[int] = list(partition.last_known_elr) if len(partition.last_known_elr) == 1 else []
            record = r.PartitionChangeRecord(
                partition_id=key.partition,
                topic_id=key.topic_id,
                isr=awaited if awaited and not partition.isr else None,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            records.append(record)
    return records


def _without_cordons(image: Image) -> list[r.MetadataRecord]:
    """Write down, while it can be written, that no directory is cordoned: a snapshot of older records will not know of it."""
    return [
        r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=[])
        for broker_id, broker in sorted(image.brokers.items())
        if broker.cordoned_log_dirs
    ]


def _without_directories(image: Image) -> list[r.MetadataRecord]:
    """Write down that nobody has said where replicas lie: a snapshot of older records will not know either."""
    return [
        r.PartitionChangeRecord(
            partition_id=key.partition, topic_id=key.topic_id, directories=[UNASSIGNED] * len(partition.replicas)
        )
        for key, partition in image.partitions()
        if partition.directories
    ]


def _one_min_isr_for_all(image: Image, settings: Settings) -> list[r.MetadataRecord]:
    """Write the cluster-level min ISR and remove broker-level ones: leaders and controller must agree."""
    records: list[r.MetadataRecord] = []
    if image.cluster_config(MIN_ISR) is None:
        records.append(_cluster_config(MIN_ISR, str(settings.min_insync_replicas)))
    for resource_type, resource in sorted(image.configs):
        if resource_type == BROKER_RESOURCE and resource and MIN_ISR in image.configs[resource_type, resource]:
            records.append(
                r.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=resource, name=MIN_ISR, value=None)
            )
    return records


def _cluster_config(name: str, value: str) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=CLUSTER_DEFAULT, name=name, value=value)
