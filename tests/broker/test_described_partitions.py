"""What Metadata answers say of partitions is kept until the partition or a broker changes, and not longer."""

from replog.errors import Error
from replog.metadata import records as r
from replog.node.api.described_partitions import DescribedPartitions
from replog.types import NO_NODE
from tests.cases.controllers import Box
from tests.cases.partitions import TOPIC_ID, partition


def cluster() -> Box:
    box = Box().features().broker(1).broker(2)
    return box.topic(partition({"replicas": [1, 2]}), partition({"replicas": [2, 1]}))


def test_a_partition_is_described_anew_when_it_changes_and_the_others_are_not() -> None:
    box, described = cluster(), DescribedPartitions()
    topic = box.image.topics[TOPIC_ID]
    before = described.of(box.image, topic)

    box.replay(r.PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[2]))
    after = described.of(box.image, topic)

    assert [one.isr_nodes for one in before] == [[1, 2], [2, 1]]
    assert [one.isr_nodes for one in after] == [[1, 2], [2]]
    assert after[0] is before[0]


def test_all_partitions_are_described_anew_when_a_broker_changes() -> None:
    box, described = cluster(), DescribedPartitions()
    topic = box.image.topics[TOPIC_ID]
    before = described.of(box.image, topic)

    broker = box.image.brokers[2]
    box.replay(r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=broker.epoch, fenced=r.FENCE))
    after = described.of(box.image, topic)

    assert [(one.leader_id, one.error_code, one.offline_replicas) for one in before] == [
        (1, Error.NONE, []),
        (2, Error.NONE, []),
    ]
    assert [(one.leader_id, one.error_code, one.offline_replicas) for one in after] == [
        (1, Error.NONE, [2]),
        (NO_NODE, Error.LEADER_NOT_AVAILABLE, [2]),
    ]


def test_a_topic_that_is_gone_is_forgotten() -> None:
    box, described = cluster(), DescribedPartitions()
    described.of(box.image, box.image.topics[TOPIC_ID])

    box.replay(r.RemoveTopicRecord(topic_id=TOPIC_ID))
    described._forget(box.image)

    assert described._by_topic == {}
