"""Foreign and damaged znodes: each is named, none is guessed at; what Kafka's releases wrote is read."""

from collections.abc import Callable

import pytest

from replog.types import NodeId, TopicPartition
from replog.zookeeper import paths, znodes
from replog.zookeeper.znodes import DamagedZnode

T0 = TopicPartition("t", 0)
GOOD_STATE = b'{"controller_epoch":6,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}'


def state(data: bytes) -> object:
    return znodes.partition_state(T0, data)


def topic(data: bytes) -> object:
    return znodes.topic("t", data)


def broker(data: bytes) -> object:
    return znodes.broker(NodeId(1), data, 50)


def producer_ids(data: bytes) -> object:
    return znodes.decoded(znodes.ProducerIdsZnode, paths.PRODUCER_IDS, data)


def controller(data: bytes) -> object:
    return znodes.decoded(znodes.ControllerZnode, paths.CONTROLLER, data)


def cluster_id(data: bytes) -> object:
    return znodes.decoded(znodes.ClusterIdZnode, paths.CLUSTER_ID, data)


def topic_config(data: bytes) -> object:
    return znodes.topic_config("t", data)


def cluster_config(data: bytes) -> object:
    return znodes.broker_config("", data)


STATE, TOPIC = paths.state(T0), paths.topic("t")

FINE: list[tuple[Callable[[bytes], object], bytes]] = [
    (state, GOOD_STATE),
    (state, b'{"controller_epoch":6,"leader":-1,"version":1,"leader_epoch":4,"isr":[1],"leader_recovery_state":1}'),
    (topic, b'{"version":1,"partitions":{"0":[1,2]}}'),
    (topic, b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAABw","partitions":{"0":[1]},"adding_replicas":{}}'),
    (broker, b'{"version":5,"host":"h","port":1,"endpoints":["PLAINTEXT://h:1"],"features":{},"jmx_port":-1}'),
    (producer_ids, b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'),
    (controller, b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}'),
    (cluster_id, b'{"version":"1","id":"c"}'),
    (topic_config, b'{"version":1,"config":{"min.insync.replicas":"2","compression.type":"zstd"}}'),
    (topic_config, b'{"version":1,"config":{"follower.replication.throttled.replicas":"0:1"}}'),
    (cluster_config, b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'),
]

DAMAGED: list[tuple[Callable[[bytes], object], str, bytes]] = [
    (state, STATE, b""),
    (state, STATE, GOOD_STATE.replace(b'"version":1', b'"version":2')),
    (state, STATE, GOOD_STATE.replace(b'"leader":1', b'"leader":"one"')),
    (state, STATE, GOOD_STATE.replace(b'"leader":1', b'"leader":3')),
    (state, STATE, GOOD_STATE.replace(b"[1,2]", b"[1,1]")),
    (state, STATE, GOOD_STATE.replace(b"[1,2]", b"[]")),
    (state, STATE, GOOD_STATE.replace(b'"leader_epoch":4', b'"leader_epoch":-4')),
    (state, STATE, GOOD_STATE[:-1] + b',"leader_recovery_state":2}'),
    (topic, TOPIC, b'{"version":4,"partitions":{"0":[1]}}'),
    (topic, TOPIC, b'{"version":3}'),
    (topic, TOPIC, b'{"version":3,"partitions":{"zero":[1]}}'),
    (topic, TOPIC, b'{"version":3,"partitions":{"007":[1]}}'),  # its state would be looked for at .../7
    (topic, TOPIC, '{"version":3,"partitions":{"\u0663":[1]}}'.encode()),  # a three in Arabic
    (topic, TOPIC, b'{"version":3,"partitions":{"2147483648":[1]}}'),
    (topic, TOPIC, b'{"version":3,"partitions":{"0":[2147483648]}}'),
    (topic, TOPIC, b'{"version":3,"partitions":{"0":[]}}'),
    (topic, TOPIC, b'{"version":3,"partitions":{"0":[1,1]}}'),
    (topic, TOPIC, b'{"version":3,"topic_id":"x","partitions":{"0":[1]}}'),
    (broker, paths.broker(1), b'{"version":9,"host":"h","port":1}'),
    (broker, paths.broker(1), b'{"version":5,"port":1}'),
    (broker, paths.broker(1), b'{"version":5,"host":"h","port":70000}'),  # each broker would refuse all metadata for it
    (producer_ids, paths.PRODUCER_IDS, b'{"version":1,"broker":1}'),
    (controller, paths.CONTROLLER, b"1"),
    (cluster_id, paths.CLUSTER_ID, b'{"version":"2","id":"c"}'),
    (topic_config, paths.topic_config("t"), b"no json"),
    (topic_config, paths.topic_config("t"), b'{"version":1,"config":{"min.insync.replicas":"two"}}'),
    (cluster_config, "/config/brokers/<default>", b'{"version":1,"config":{"log.retention.ms":"\xc3\xa4"}}'),
]


@pytest.mark.parametrize(("read", "data"), FINE)
def test_what_kafka_writes_is_read(read: Callable[[bytes], object], data: bytes) -> None:
    assert read(data) is not None


@pytest.mark.parametrize(("read", "path", "data"), DAMAGED)
def test_a_damaged_znode_is_named(read: Callable[[bytes], object], path: str, data: bytes) -> None:
    with pytest.raises(DamagedZnode, match=f"znode {path} is damaged or foreign: .+"):
        read(data)


@pytest.mark.parametrize("name", ["..", "a b", "x" * 250])
def test_a_topic_that_nobody_may_create_is_foreign(name: str) -> None:
    with pytest.raises(DamagedZnode, match="no topic may have this name"):
        znodes.topic(name, b'{"version":3,"partitions":{"0":[1]}}')


def test_a_child_that_is_no_broker_is_foreign() -> None:
    with pytest.raises(DamagedZnode, match="znode /brokers/ids/one is damaged"):
        znodes.node_id(paths.BROKER_IDS, "one")


@pytest.mark.parametrize("data", [b"2147483646", b"0", b"0000000007"])
def test_a_controller_epoch_that_another_can_follow_is_read(data: bytes) -> None:
    assert znodes.controller_epoch(data) == int(data)


@pytest.mark.parametrize("data", [b"2147483647", b"99999999999", b"9" * 5000])
def test_a_controller_epoch_that_none_can_follow_is_named(data: bytes) -> None:
    """It ended its broker in a traceback, or was sent as an epoch that no request can carry."""
    with pytest.raises(
        DamagedZnode, match=r"znode /controller_epoch is .+: no epoch comes after \d{10,40}: 2147483647 is"
    ):
        znodes.controller_epoch(data)


@pytest.mark.parametrize("data", [b"", b"-1", b"one", b'{"epoch":1}'])
def test_a_controller_epoch_that_is_no_number(data: bytes) -> None:
    with pytest.raises(DamagedZnode, match="znode /controller_epoch is damaged"):
        znodes.controller_epoch(data)
