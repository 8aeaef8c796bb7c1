"""Records in the versions of an older metadata version (KIP-966, "Software downgrade")."""

from uuid import UUID

import msgspec
import pytest

from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.record_versions import RecordWriter, as_read_back, record_version
from replog.types import NO_NODE
from replog.wire.messages import update_features as uf
from replog.wire.records.metadata import decode_metadata_record
from tests.cases.controllers import Box
from tests.cases.partitions import TOPIC_ID
from tests.kips.scenes import a_cluster, beat, fence, lists, propose, register

CHANGE = r.PartitionChangeRecord(
    partition_id=0, topic_id=TOPIC_ID, isr=[1], eligible_leader_replicas=[2], directories=[UUID(int=5)]
)


@pytest.mark.parametrize(
    ("record", "by_metadata_version"),
    [
        pytest.param(r.PartitionRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 25: 2}, id="partition"),
        pytest.param(CHANGE, {7: 0, 17: 1, 22: 1, 23: 2, 25: 2}, id="partition change"),
        pytest.param(r.RegisterBrokerRecord(), {7: 1, 8: 2, 17: 3, 25: 3}, id="registration"),
        pytest.param(r.BrokerRegistrationChangeRecord(), {7: 1, 17: 2, 25: 2}, id="registration change"),
        pytest.param(r.TopicRecord(), {7: 0, 25: 0}, id="topic"),
    ],
)
def test_each_metadata_version_has_its_record_versions(
    record: r.MetadataRecord, by_metadata_version: dict[int, int]
) -> None:
    assert {level: record_version(record, level) for level in by_metadata_version} == by_metadata_version


def test_what_an_old_version_cannot_carry_is_gone_for_its_writer_too() -> None:
    without_elr = as_read_back(CHANGE, 22)
    without_directories = as_read_back(CHANGE, 16)

    assert without_elr == msgspec.structs.replace(CHANGE, eligible_leader_replicas=None)
    assert without_directories == msgspec.structs.replace(CHANGE, eligible_leader_replicas=None, directories=None)


def test_a_changed_metadata_version_holds_for_the_records_after_it() -> None:
    writer = RecordWriter(25)
    level = r.FeatureLevelRecord(name="metadata.version", feature_level=22)

    before, _, after = writer.encoded([CHANGE, level, CHANGE])

    assert (before[2], after[2]) == (2, 1)  # frame version, key, version
    assert decode_metadata_record(after) == as_read_back(CHANGE, 22)


def update(box: Box, feature: str, level: int, upgrade_type: int) -> Error:
    key = uf.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    return Error(box.send(uf.UpdateFeaturesRequest(feature_updates=[key])).error_code)


def downgraded(state: dict[str, object], fenced: tuple[int, ...] = ()) -> Box:
    box = a_cluster(state, fenced=fenced)
    assert update(box, "metadata.version", 22, 3) is Error.INVALID_UPDATE_VERSION  # ELR has to be off first
    assert update(box, "eligible.leader.replicas.version", 0, 2) is Error.NONE
    assert update(box, "metadata.version", 22, 2) is Error.INVALID_UPDATE_VERSION  # it loses metadata
    assert update(box, "metadata.version", 22, 3) is Error.NONE
    return box


def test_a_downgrade_writes_the_lists_off_before_it_cannot_any_more() -> None:
    box = downgraded({"replicas": [1, 2, 3], "isr": [1], "elr": [2, 3]})

    assert [type(record) for record in box.records] == [r.PartitionChangeRecord, r.FeatureLevelRecord]
    assert lists(box.partition()) == ([1], [], [])


def test_who_waits_for_its_last_leader_goes_on_waiting() -> None:
    """SPEC 2.13.2."""
    lost = {"replicas": [1, 2, 3], "isr": [], "elr": [2], "last_known": [1], "leader": -1}
    box = downgraded(lost, fenced=(1, 2, 3))

    beat(box, 2)
    with_former_elr_member = box.partition().leader
    beat(box, 1)

    assert with_former_elr_member == NO_NODE
    assert (box.partition().leader, box.partition().isr) == (1, (1,))


def test_what_is_replayed_is_what_the_active_controller_has() -> None:
    """Its own image never holds what the log's record version leaves out."""
    box = downgraded({"replicas": [1, 2, 3], "isr": [1], "elr": [2]})
    snapshot = list(RecordWriter(box.image.metadata_version).encoded(box.image.snapshot()))
    follower = Image()
    for value in snapshot:
        follower.replay(decode_metadata_record(value), box.offset - 1)
    writer = RecordWriter(box.image.metadata_version)

    offset = box.offset
    for act in (lambda: propose(box, [1, 2]), lambda: register(box, 3, clean=True), lambda: fence(box, 2)):
        act()
        for value in writer.encoded(box.records):
            follower.replay(decode_metadata_record(value), offset)
            offset += 1

    assert dict(follower.partitions()) == dict(box.image.partitions())
    assert follower.brokers == box.image.brokers


def test_after_the_upgrade_the_next_change_records_the_elr() -> None:
    box = downgraded({"replicas": [1, 2, 3], "isr": [1, 2]})
    assert fence(box, 2).elr == ()

    assert update(box, "metadata.version", 25, 1) is Error.NONE
    assert update(box, "eligible.leader.replicas.version", 1, 1) is Error.NONE
    beat(box, 2)
    propose(box, [1, 2])
    fence(box, 2)

    assert lists(box.partition()) == ([1], [2], [])


@pytest.mark.parametrize(("level", "kept"), [(14, 0), (15, 1)])
def test_a_snapshot_names_controllers_only_where_they_register(level: int, kept: int) -> None:
    image = Image()
    image.replay(r.FeatureLevelRecord(name="metadata.version", feature_level=level), 0)
    image.replay(r.RegisterControllerRecord(controller_id=101), 1)

    registrations = [record for record in image.snapshot() if isinstance(record, r.RegisterControllerRecord)]

    assert len(registrations) == kept
