"""Log directories that take no new replicas: cordons (KIP-1066), from metadata version 30 (4.3-IV0) on."""

from uuid import UUID

import pytest

from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from replog.metadata.record_versions import RecordWriter, record_version
from replog.types import NodeId
from replog.wire.messages import alter_configs as ac
from replog.wire.messages import broker_heartbeat as bh
from replog.wire.messages import broker_registration as reg
from replog.wire.messages import create_topics as ct
from replog.wire.messages import incremental_alter_configs as iac
from replog.wire.messages import update_features as uf
from replog.wire.records.metadata import decode_metadata_record
from tests.cases.controllers import CLUSTER, Box

A, B, ELSEWHERE = UUID(int=9001), UUID(int=9002), UUID(int=9099)
CORDONED_LOG_DIRS = "cordoned.log.dirs"


def raised(level: int = 30) -> Box:
    """Brokers 1 (directories A and B), 2 and 3, under this metadata version."""
    box = Box(min_insync_replicas=1).features().broker(1, log_dirs=(A, B)).broker(2).broker(3).activate()
    assert update(box, level, UPGRADE) is Error.NONE
    return box


def update(box: Box, level: int, kind: int) -> Error:
    key = uf.FeatureUpdateKey(feature="metadata.version", max_version_level=level, upgrade_type=kind)
    return Error(box.send(uf.UpdateFeaturesRequest(feature_updates=[key])).error_code)


def beat(box: Box, cordoned: list[UUID] | None, *, offline: tuple[UUID, ...] = ()) -> None:
    broker = box.image.brokers[NodeId(1)]
    answer = box.send(
        bh.BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=broker.epoch,
            current_metadata_offset=box.offset - 1,
            cordoned_log_dirs=cordoned,
            offline_log_dirs=list(offline),
        )
    )
    assert isinstance(answer, bh.BrokerHeartbeatResponse)
    assert answer.error_code is Error.NONE


def created(box: Box, name: str, factor: int = 1, partitions: int = 12) -> set[int] | Error:
    topic = ct.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
    (answer,) = box.send(ct.CreateTopicsRequest(topics=[topic], timeout_ms=1000)).topics
    if answer.error_code is not Error.NONE:
        return Error(answer.error_code)
    return {node for partition in box.image.topics_by_name[name].partitions.values() for node in partition.replicas}


def cordoned(box: Box) -> tuple[UUID, ...]:
    return box.image.brokers[NodeId(1)].cordoned_log_dirs


def test_a_broker_all_of_whose_directories_are_cordoned_gets_no_new_replicas() -> None:
    box = raised()

    beat(box, [A, B])

    assert cordoned(box) == (A, B)
    assert created(box, "without") == {2, 3}
    assert created(box, "too-many", factor=3) is Error.INVALID_REPLICATION_FACTOR


def test_a_broker_with_one_directory_that_is_not_cordoned_gets_replicas() -> None:
    box = raised()

    beat(box, [A])

    assert cordoned(box) == (A,)
    assert created(box, "with") == {1, 2, 3}


def test_what_is_cordoned_no_more_takes_replicas_again() -> None:
    box = raised()
    beat(box, [A, B])

    beat(box, [])

    assert cordoned(box) == ()
    assert created(box, "with") == {1, 2, 3}


def test_every_heartbeat_names_cordoned_directories_but_they_are_written_once() -> None:
    box = raised()
    beat(box, [B, A])

    beat(box, [A, B])
    assert box.records == []
    beat(box, [A, B, ELSEWHERE])  # not a directory of this broker
    assert box.records == []


def test_a_heartbeat_that_says_nothing_of_cordons_changes_none() -> None:
    box = raised()
    beat(box, [A])

    beat(box, None)

    assert cordoned(box) == (A,)


def test_below_level_30_nothing_is_cordoned() -> None:
    box = raised(29)

    beat(box, [A, B])

    assert (cordoned(box), box.records) == ((), [])
    assert created(box, "with") == {1, 2, 3}


def test_a_broker_that_registers_anew_is_cordoned_until_it_says_otherwise() -> None:
    """Its registration has no room for them: between it and the first heartbeat nothing may slip in."""
    box = raised()
    beat(box, [A, B])
    request = reg.BrokerRegistrationRequest(
        broker_id=1,
        cluster_id=CLUSTER,
        incarnation_id=UUID(int=77),
        listeners=[reg.Listener(name="PLAINTEXT", host="b1", port=9092)],
        features=[
            reg.Feature(name=name, min_supported_version=levels.lowest, max_supported_version=levels.highest)
            for name, levels in box.image.brokers[NodeId(1)].features.items()
        ],
        log_dirs=[B],
    )
    box.now_ms += 1_000_000

    answer = box.send(request)

    assert answer.error_code is Error.NONE
    assert cordoned(box) == (B,)


def test_records_carry_cordons_from_level_30_on() -> None:
    registered = r.RegisterBrokerRecord(log_dirs=[A], cordoned_log_dirs=[A])
    changed = r.BrokerRegistrationChangeRecord(cordoned_log_dirs=[])

    assert [record_version(registered, level) for level in (29, 30)] == [3, 4]
    assert [record_version(changed, level) for level in (29, 30)] == [2, 3]
    (written,) = RecordWriter(30).encoded([registered])
    assert decode_metadata_record(written) == registered
    (none_left,) = RecordWriter(30).encoded([changed])
    assert decode_metadata_record(none_left) == changed  # an empty list, not "as before"


def test_a_downgrade_loses_cordons_and_says_so() -> None:
    box = raised()
    beat(box, [A, B])

    assert update(box, 29, SAFE_DOWNGRADE) is Error.INVALID_UPDATE_VERSION
    assert update(box, 29, UNSAFE_DOWNGRADE) is Error.NONE
    assert [type(record) for record in box.records] == [r.BrokerRegistrationChangeRecord, r.FeatureLevelRecord]
    assert cordoned(box) == ()


def alter(box: Box, broker: str, value: str) -> iac.AlterConfigsResourceResponse:
    config = iac.AlterableConfig(name=CORDONED_LOG_DIRS, config_operation=0, value=value)
    resource = iac.AlterConfigsResource(resource_type=4, resource_name=broker, configs=[config])
    (answer,) = box.send(iac.IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert isinstance(answer, iac.AlterConfigsResourceResponse)
    return answer


@pytest.mark.parametrize(
    ("level", "broker", "error", "words"),
    [
        pytest.param(30, "1", Error.NONE, "", id="a broker's own"),
        pytest.param(29, "1", Error.INVALID_CONFIG, "needs metadata.version 30", id="before level 30"),
        pytest.param(30, "", Error.INVALID_REQUEST, "of one broker", id="the default of all"),
    ],
)
def test_who_may_set_cordons(level: int, broker: str, error: Error, words: str) -> None:
    box = raised(level)

    answer = alter(box, broker, "/data/a")

    assert answer.error_code is error
    assert words in (answer.error_message or "")


def test_the_old_request_is_held_to_the_same() -> None:
    box = raised(29)
    config = ac.AlterableConfig(name=CORDONED_LOG_DIRS, value="*")
    resource = ac.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])

    (answer,) = box.send(ac.AlterConfigsRequest(resources=[resource])).responses

    assert answer.error_code is Error.INVALID_CONFIG
