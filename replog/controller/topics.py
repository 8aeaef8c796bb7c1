"""Creating, growing and deleting topics (SPEC 2.11).

A topic's records go out as one atomic group, topic before configs before partitions. A new
partition's ISR is the active brokers of its assignment, in that order; the first of them leads.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from replog.controller.configs import TOPIC_CONFIGS, invalid_value
from replog.controller.placement import placements
from replog.controller.policy import Policy
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.state import TOPIC_RESOURCE, Nodes, Partition, Topic
from replog.types import METADATA_TOPIC, ZERO_UUID, LeaderEpoch, NodeId, PartitionEpoch
from replog.wire.messages.create_partitions import CreatePartitionsTopic
from replog.wire.messages.create_topics import CreatableTopic
from replog.wire.messages.delete_topics import DeleteTopicState

if TYPE_CHECKING:
    from random import Random

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
BROKER_DEFAULT: Final = -1
LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class TopicOutcome(NamedTuple):
    """What became of one topic of a request: an error with words for people, or records."""

    error: Error
    message: str | None
    records: list[r.MetadataRecord]
    topic_id: UUID = ZERO_UUID
    partition_count: int = -1
    replication_factor: int = -1


class _Assignment(NamedTuple):
    error: Error
    message: str
    replicas: list[Nodes]


def too_many() -> TopicOutcome:
    """Return the outcome of each topic of a request that asks for more partitions than one may."""
    return refused(Error.POLICY_VIOLATION, f"More than {PARTITIONS_PER_REQUEST_MAX} partitions in one request.")


def refused(error: Error, message: str) -> TopicOutcome:
    """Return the outcome of a topic that is not served."""
    return TopicOutcome(error, message, [])


def partition_count(policy: Policy, topics: Sequence[CreatableTopic]) -> int:
    """Return how many partitions a request would create."""
    default = policy.settings.num_partitions
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == BROKER_DEFAULT else max(topic.num_partitions, 0))
        for topic in topics
    )


def missing_partitions(image: Image, topics: Sequence[CreatePartitionsTopic]) -> int:
    """Return how many partitions a request would give to the topics that there are."""
    there_are = image.topics_by_name
    return sum(
        max(topic.count - len(there_are[topic.name].partitions), 0) for topic in topics if topic.name in there_are
    )


def create(policy: Policy, wanted: CreatableTopic, new_topic_id: Callable[[], UUID], random: "Random") -> TopicOutcome:
    """Return the records that create a topic, or why it cannot be (SPEC 2.11.1-3)."""
    image = policy.image
    wrong = invalid_name(image, wanted.name)
    if wrong:
        return refused(Error.INVALID_TOPIC_EXCEPTION, wrong)
    if wanted.name == METADATA_TOPIC:  # its folder is that of the metadata log; the error is Kafka's
        return refused(Error.TOPIC_AUTHORIZATION_FAILED, f"Topic {METADATA_TOPIC} is the metadata log itself.")
    if wanted.name in image.topics_by_name:
        return refused(Error.TOPIC_ALREADY_EXISTS, f"Topic '{wanted.name}' already exists.")
    for config in wanted.configs:
        wrong = _invalid_config(config.name, config.value)
        if wrong:
            return refused(Error.INVALID_CONFIG, wrong)
    assignment = _manual(image, wanted) if wanted.assignments else _automatic(policy, wanted, random)
    if assignment.error is not Error.NONE:
        return refused(assignment.error, assignment.message)
    topic_id = new_topic_id()
    records: list[r.MetadataRecord] = [r.TopicRecord(name=wanted.name, topic_id=topic_id)]
    records += [
        r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=wanted.name, name=config.name, value=config.value)
        for config in wanted.configs
        if config.value is not None
    ]
    records += _partition_records(image, topic_id, 0, assignment.replicas)
    return TopicOutcome(Error.NONE, None, records, topic_id, len(assignment.replicas), len(assignment.replicas[0]))


def invalid_name(image: Image, name: str) -> str | None:
    """Return what is wrong with a new topic's name, None when it is fine."""
    if name in (".", "..") or not LEGAL_NAME.fullmatch(name):
        return f"Topic name {name!r} is illegal: 1 to 249 of letters, digits, '.', '_', '-'; not '.' or '..'."
    other = image.colliding_topic(name)
    return f"Topic '{name}' collides with existing topic: {other}" if other else None


def _invalid_config(name: str, value: str | None) -> str | None:
    definition = TOPIC_CONFIGS.get(name)
    if definition is None:
        return f"Unknown topic config name: {name}"
    return None if value is None else invalid_value(definition, name, value)


def _automatic(policy: Policy, wanted: CreatableTopic, random: "Random") -> _Assignment:
    count, factor = wanted.num_partitions, wanted.replication_factor
    count = policy.settings.num_partitions if count == BROKER_DEFAULT else count
    factor = policy.settings.default_replication_factor if factor == BROKER_DEFAULT else factor
    if count < 1:
        return _Assignment(
            Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.", []
        )
    if factor < 1:
        return _Assignment(Error.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.", [])
    replicas = placements(policy.image, partition_count=count, replication_factor=factor, first_index=0, random=random)
    if replicas is None:
        return _Assignment(Error.INVALID_REPLICATION_FACTOR, _too_few(policy.image, factor), [])
    return _Assignment(Error.NONE, "", replicas)


def _too_few(image: Image, factor: int) -> str:
    active = sum(broker.is_active for broker in image.brokers.values())
    return f"Cannot place {factor} replicas: {active} broker(s) active, {len(image.brokers)} registered."


def _manual(image: Image, wanted: CreatableTopic) -> _Assignment:
    if wanted.num_partitions != BROKER_DEFAULT or wanted.replication_factor != BROKER_DEFAULT:
        message = "A manual assignment goes with partition count and replication factor -1."
        return _Assignment(Error.INVALID_REQUEST, message, [])
    by_index = {a.partition_index: tuple(NodeId(node) for node in a.broker_ids) for a in wanted.assignments}
    if sorted(by_index) != list(range(len(wanted.assignments))):
        message = "Partitions of a manual assignment must be numbered from 0 without gaps."
        return _Assignment(Error.INVALID_REPLICA_ASSIGNMENT, message, [])
    return checked_assignment(image, [by_index[index] for index in sorted(by_index)], None)


def checked_assignment(image: Image, replicas: list[Nodes], replication_factor: int | None) -> _Assignment:
    """Check assignments made by people: known brokers, no duplicates, one factor, one alive."""
    factor = len(replicas[0]) if replication_factor is None else replication_factor
    for nodes in replicas:
        wrong = invalid_replicas(image, nodes)
        if not wrong and len(nodes) != factor:
            wrong = f"Inconsistent replication factors: {len(nodes)} and {factor}."
        if not wrong and not any(image.is_active(node) for node in nodes):
            wrong = f"All brokers of the assignment {list(nodes)} are fenced or shutting down."
        if wrong:
            return _Assignment(Error.INVALID_REPLICA_ASSIGNMENT, wrong, [])
    return _Assignment(Error.NONE, "", replicas)


def invalid_replicas(image: Image, nodes: Nodes) -> str | None:
    """Return what is wrong with a replica list that somebody asks for."""
    if not nodes:
        return "A partition needs at least one replica."
    if len(set(nodes)) != len(nodes):
        return f"Duplicate brokers in the replica list {list(nodes)}."
    unknown = [int(node) for node in nodes if node not in image.brokers]
    return f"Brokers {unknown} are not registered." if unknown else None


def _partition_records(image: Image, topic_id: UUID, first_index: int, replicas: list[Nodes]) -> list[r.MetadataRecord]:
    return [
        r.partition_record(topic_id, first_index + position, new_partition(image, nodes))
        for position, nodes in enumerate(replicas)
    ]


def new_partition(image: Image, replicas: Nodes) -> Partition:
    """Return a partition's first state (SPEC 2.11.2)."""
    isr = tuple(node for node in replicas if image.is_active(node))
    return Partition(
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
        directories=image.default_directories(replicas),
    )


def delete(image: Image, wanted: DeleteTopicState) -> TopicOutcome:
    """Return the record that deletes a topic, by name or by id."""
    if (wanted.name is None) == (wanted.topic_id == ZERO_UUID):
        return refused(Error.INVALID_REQUEST, "Name a topic either by name or by id.")
    if wanted.name is None:
        topic = image.topics.get(wanted.topic_id)
        if topic is None:
            return refused(Error.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    else:
        topic = image.topics_by_name.get(wanted.name)
        if topic is None:
            return refused(Error.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.")
    return TopicOutcome(Error.NONE, None, [r.RemoveTopicRecord(topic_id=topic.topic_id)], topic.topic_id)


def grow(policy: Policy, wanted: CreatePartitionsTopic, random: "Random") -> TopicOutcome:
    """Return the records that give a topic more partitions (SPEC 2.11.5)."""
    image = policy.image
    topic = image.topics_by_name.get(wanted.name)
    if topic is None:
        return refused(Error.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.")
    missing = wanted.count - len(topic.partitions)
    if missing <= 0:
        message = f"Topic currently has {len(topic.partitions)} partitions, which is not fewer than {wanted.count}."
        return refused(Error.INVALID_PARTITIONS, message)
    assignment = _grown(image, topic, wanted, missing, random)
    if assignment.error is not Error.NONE:
        return refused(assignment.error, assignment.message)
    records = _partition_records(image, topic.topic_id, len(topic.partitions), assignment.replicas)
    return TopicOutcome(Error.NONE, None, records, topic.topic_id)


def _grown(image: Image, topic: Topic, wanted: CreatePartitionsTopic, missing: int, random: "Random") -> _Assignment:
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments:
        if len(wanted.assignments) != missing:
            message = f"{missing} new partitions, but {len(wanted.assignments)} assignments."
            return _Assignment(Error.INVALID_REPLICA_ASSIGNMENT, message, [])
        given = [tuple(NodeId(node) for node in a.broker_ids) for a in wanted.assignments]
        return checked_assignment(image, given, factor)
    replicas = placements(
        image,
        partition_count=missing,
        replication_factor=factor,
        first_index=len(topic.partitions),
        random=random,
    )
    if replicas is None:
        return _Assignment(Error.INVALID_REPLICATION_FACTOR, _too_few(image, factor), [])
    return _Assignment(Error.NONE, "", replicas)
