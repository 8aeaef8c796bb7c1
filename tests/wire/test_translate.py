"""Old AlterPartition requests and answers (SPEC 2.7.1)."""

from uuid import UUID

from replog.errors import Error
from replog.types import ZERO_UUID
from replog.wire.messages import alter_partition as ap
from replog.wire.translate import current_alter_partition, old_alter_partition

TOPIC_ID = UUID(int=7)


def a_request(**topic: object) -> ap.AlterPartitionRequest:
    partition = ap.AlterPartitionRequestPartitionData(partition_index=0, new_isr=[1, 2])
    return ap.AlterPartitionRequest(
        broker_id=1,
        topics=[ap.AlterPartitionRequestTopicData(partitions=[partition], **topic)],  # type: ignore[arg-type]
    )


def test_names_become_ids_and_members_get_unknown_epochs() -> None:
    current = current_alter_partition(a_request(topic_name="t"), 0, lambda name: TOPIC_ID if name == "t" else ZERO_UUID)

    (topic,) = current.topics
    assert topic.topic_id == TOPIC_ID
    assert topic.partitions[0].new_isr_with_epochs == [
        ap.BrokerState(broker_id=1, broker_epoch=-1),
        ap.BrokerState(broker_id=2, broker_epoch=-1),
    ]


def test_version_two_has_ids_but_no_epochs() -> None:
    current = current_alter_partition(a_request(topic_id=TOPIC_ID), 2, lambda _: ZERO_UUID)

    assert current.topics[0].topic_id == TOPIC_ID
    assert [member.broker_epoch for member in current.topics[0].partitions[0].new_isr_with_epochs] == [-1, -1]


def test_the_current_version_is_left_alone() -> None:
    request = a_request(topic_id=TOPIC_ID)

    assert current_alter_partition(request, 3, lambda _: ZERO_UUID) is request


def test_old_versions_are_answered_old_words() -> None:
    """Before KIP-841 and KIP-903 there was no INELIGIBLE_REPLICA and no NEW_LEADER_ELECTED."""
    answered = [
        ap.AlterPartitionResponsePartitionData(partition_index=0, error_code=Error.INELIGIBLE_REPLICA),
        ap.AlterPartitionResponsePartitionData(partition_index=1, error_code=Error.NEW_LEADER_ELECTED),
        ap.AlterPartitionResponsePartitionData(partition_index=2, error_code=Error.INVALID_REQUEST),
    ]
    response = ap.AlterPartitionResponse(
        topics=[ap.AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=answered)]
    )

    old = [each.error_code for each in old_alter_partition(response, 1).topics[0].partitions]

    assert old == [Error.OPERATION_NOT_ATTEMPTED, Error.FENCED_LEADER_EPOCH, Error.INVALID_REQUEST]
    assert old_alter_partition(response, 2) is response
