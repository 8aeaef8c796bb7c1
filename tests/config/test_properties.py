"""A node that is configured by Apache Kafka's server.properties: what is taken, what is passed over, what is refused."""

from pathlib import Path

import pytest

from replog.__main__ import main
from replog.config import DEFINITIONS, ConfigError, NodeConfig, Voter
from replog.config.endpoints import Endpoint
from replog.config.kafkas_names import WITHOUT_MEANING
from replog.config.properties import REFUSED, config_of, parsed
from replog.host.config_file import read_config
from replog.types import NodeId

# The settings of the file that Apache Kafka 4.3 comes with.
KAFKAS_OWN = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def read(text: str, **changes: str) -> NodeConfig:
    more = "".join(f"{name.replace('__', '.')}={value}\n" for name, value in changes.items())
    return config_of(f"{text}{more}".encode(), "server.properties", cluster_id="c", host="here")


def test_kafkas_own_file_makes_a_node_of_both_roles_and_lists_what_it_passes_over() -> None:
    config = read(KAFKAS_OWN)

    assert config.roles == {"broker", "controller"}
    assert config.voters == [Voter(NodeId(1), Endpoint("localhost", 9093))]
    assert [one.advertised for one in config.listeners.brokers] == [Endpoint("localhost", 9092)]
    assert config.log.retention_ms == 168 * 3600 * 1000
    assert config.log.segment_bytes == 1 << 30
    assert config.log_dirs == ["/tmp/kraft-combined-logs"]
    assert config.ignored == (
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"remote__log__storage__system__enable": "true"}, "there is no tiered storage", id="another tier"),
        pytest.param(
            {"controlled__shutdown__enable": "false"},
            "a broker always hands over its partitions when it stops; leave it out or say",
            id="flag",
        ),
        pytest.param({"create__topic__policy__class__name": "a.B"}, "code of one's own is not loaded", id="a class"),
        pytest.param({"ssl__keystore__password": "hush"}, "cannot be what was given: PEM files", id="a secret"),
        pytest.param({"listener__name__plaintext__sasl__jaas__config": "x"}, "hold for all listeners", id="a listener"),
        pytest.param({"ssl__keystore__type": "JKS"}, "'ssl.keystore.type' is 'JKS'; use 'PEM'", id="another form"),
        pytest.param({"min__insync__replica": "2"}, "did you mean 'min.insync.replicas'", id="a mistyped name"),
        pytest.param({"num__partitions": "many"}, "'num.partitions' must be int, not 'many'", id="text for a number"),
        pytest.param({"log__cleaner__enable": "yes"}, "'log.cleaner.enable' must be bool, not 'yes'", id="flag's text"),
        pytest.param({"log__roll__hours": "week"}, "'log.roll.hours' must be int, not 'week'", id="another unit"),
        pytest.param({"broker__id": "2"}, "'broker.id' is '2', and 'node.id' is '1'", id="two ids"),
        pytest.param({"security__inter__broker__protocol": "SSL"}, "say the same; leave one out", id="two listeners"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_by_name(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(KAFKAS_OWN, **changes)

    assert str(refused.value).startswith("server.properties: ")
    assert message in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"delete__topic__enable": "true"}, id="what is so anyway"),
        pytest.param({"broker__id": "1"}, id="one id under two names"),
        pytest.param({"metric__reporters": "a.B", "confluent__license__topic": "t"}, id="no business of ours"),
        pytest.param({"group__coordinator__rebalance__protocols": "classic, consumer"}, id="spaces"),
    ],
)
def test_what_changes_nothing_is_accepted(changes: dict[str, str]) -> None:
    assert read(KAFKAS_OWN, **changes).voters == read(KAFKAS_OWN).voters


def test_units_and_names_of_kafkas_are_ours_and_the_more_exact_one_counts() -> None:
    text = KAFKAS_OWN.replace("log.dirs=", "log.dir=")

    assert read(text).log_dirs == read(KAFKAS_OWN).log_dirs
    assert read(text, log__retention__minutes="5").log.retention_ms == 300_000
    assert read(text, log__retention__minutes="5", log__retention__ms="7").log.retention_ms == 7
    assert read(text, log__retention__minutes="-1").log.retention_ms == -1


def test_a_listener_on_all_addresses_is_advertised_under_the_machines_name() -> None:
    (listener,) = read(KAFKAS_OWN, advertised__listeners="").listeners.brokers

    assert (listener.endpoint, listener.advertised) == (Endpoint("", 9092), Endpoint("here", 9092))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a=1\nb : 2\nc 3\n", {"a": "1", "b": "2", "c": "3"}, id="separators"),
        pytest.param("# a=1\n ! b=2\n\nc=3#4", {"c": "3#4"}, id="comments"),
        pytest.param("a=1,\\\n   2\nb=x\\\\\nc=3", {"a": "1,2", "b": "x\\", "c": "3"}, id="continued lines"),
        pytest.param(r"a\=b=\u0041\tc", {"a=b": "A\tc"}, id="escapes"),
        pytest.param("a=1\na=2\nb\nc=", {"a": "2", "b": "", "c": ""}, id="twice, and nothing"),
        pytest.param("a=b=c\nd=e:f", {"a": "b=c", "d": "e:f"}, id="separators in values"),
    ],
)
def test_files_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    """The format of `java.util.Properties.load`."""
    assert parsed(text) == expected


def test_every_name_stands_in_one_place() -> None:
    """A setting that is implemented one day is passed over no longer."""
    assert not WITHOUT_MEANING & set(DEFINITIONS)
    assert not WITHOUT_MEANING & set(REFUSED)
    assert not set(REFUSED) & set(DEFINITIONS)


def test_the_cluster_is_named_by_who_formats_and_then_by_the_directories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KAFKAS_OWN.replace("/tmp/kraft-combined-logs", str(tmp_path / "data")))

    assert main(["combined", "--config", str(file)]) == 2
    assert "python -m replog format --cluster-id ID" in capsys.readouterr().err
    assert main(["format", "--config", str(file), "--cluster-id", "mine"]) == 0
    assert read_config(file).cluster_id == "mine"
    assert main(["format", "--config", str(file), "--cluster-id", "another"]) == 3
    assert "belongs to cluster.id mine" in capsys.readouterr().err
