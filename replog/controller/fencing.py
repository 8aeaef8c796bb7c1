"""What a broker's coming and going does to its partitions (SPEC 2.4).

Every function returns the records of one event, partitions in (topic id, partition) order, without
touching the image. Cost is proportional to the partitions that the broker is in, by the indexes.
"""

from collections.abc import Callable, Iterable

from replog.controller.election import Wish, partition_change
from replog.controller.policy import Policy
from replog.metadata.image import in_order
from replog.metadata.records import (
    FENCE,
    UNFENCE,
    MetadataRecord,
    UnregisterBrokerRecord,
    controlled_shutdown_record,
    fencing_record,
)
from replog.metadata.state import Broker, Partition
from replog.types import NodeId, TopicIdPartition

WishFor = Callable[[str, Partition], Wish]


def changes(
    policy: Policy,
    keys: Iterable[TopicIdPartition],
    wish: WishFor,
    acceptable: Callable[[NodeId], bool],
) -> list[MetadataRecord]:
    """Return the change records of these partitions; `wish` gets topic name and partition."""
    records: list[MetadataRecord] = []
    for key in keys:
        topic = policy.image.topics[key.topic_id]
        partition = topic.partitions[key.partition]
        fit = policy.image.fit(partition, acceptable)
        record = partition_change(key, partition, wish(topic.name, partition), policy.rules(topic.name), fit)
        if record is not None:
            records.append(record)
    return records


def leaving(policy: Policy, broker_id: NodeId, *, eligible_no_more: bool) -> list[MetadataRecord]:
    """Return the changes that take a broker out of all ISRs, and out of all ELRs if asked.

    eligible_no_more: its log may have lost records (unclean shutdown), or it will not come back.
    """
    image = policy.image
    keys = image.isr_members.of(broker_id)
    distrust = eligible_no_more and policy.elr_enabled
    if distrust:
        keys = in_order({*keys, *image.elr_members.of(broker_id)})
    return leaving_partitions(policy, broker_id, keys, distrust=distrust)


def leaving_partitions(
    policy: Policy, broker_id: NodeId, keys: Iterable[TopicIdPartition], *, distrust: bool = False
) -> list[MetadataRecord]:
    """Return the changes that take a broker out of these partitions' ISRs, and out of their ELRs if distrusted."""
    image = policy.image

    def without_it(topic: str, partition: Partition) -> Wish:
        return Wish(
            target_isr=tuple(node for node in partition.isr if node != broker_id),
            unclean_shutdown=(broker_id,) if distrust else (),
            election=policy.election(topic),
        )

    return changes(policy, keys, without_it, lambda node: node != broker_id and image.is_active(node))


def fence(policy: Policy, broker: Broker) -> list[MetadataRecord]:
    """Take the broker out of its ISRs, then say that it is fenced (SPEC 2.4.1)."""
    records = leaving(policy, broker.broker_id, eligible_no_more=False)
    return [*records, fencing_record(broker.broker_id, broker.epoch, FENCE)]


def unfence(policy: Policy, broker: Broker) -> list[MetadataRecord]:
    """Say that the broker is unfenced, then see whom that gives a leader (SPEC 2.4.2)."""
    record = fencing_record(broker.broker_id, broker.epoch, UNFENCE)
    if broker.in_controlled_shutdown:
        return [record]  # alive again, but still on its way out: fit for nothing
    return [record, *leaders_for_leaderless(policy, newly_active=broker.broker_id)]


def leaders_for_leaderless(policy: Policy, *, newly_active: NodeId | None = None) -> list[MetadataRecord]:
    """Re-evaluate partitions without a leader, with the newcomer (if any) counted as acceptable."""
    image = policy.image
    keys = [
        key
        for key in image.leaderless()
        if newly_active is None or newly_active in image.topics[key.topic_id].partitions[key.partition].replicas
    ]
    return leaders_for(policy, keys, newly_active=newly_active)


def leaders_for(
    policy: Policy, keys: Iterable[TopicIdPartition], *, newly_active: NodeId | None = None
) -> list[MetadataRecord]:
    """Re-evaluate who may lead these partitions."""
    return changes(
        policy,
        keys,
        lambda topic, _: Wish(election=policy.election(topic)),
        lambda node: node == newly_active or policy.image.is_active(node),
    )


def enter_controlled_shutdown(policy: Policy, broker: Broker) -> list[MetadataRecord]:
    """Move leaderships and ISR memberships off a broker that wants to stop (SPEC 2.3.5)."""
    records: list[MetadataRecord] = []
    if not broker.in_controlled_shutdown:
        records.append(controlled_shutdown_record(broker.broker_id, broker.epoch))
    return records + leaving(policy, broker.broker_id, eligible_no_more=False)


def unregister(policy: Policy, broker: Broker) -> list[MetadataRecord]:
    """Forget a broker: out of all ISRs and (D11) all ELRs, then out of the registry."""
    records = leaving(policy, broker.broker_id, eligible_no_more=True)
    return [*records, UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)]
