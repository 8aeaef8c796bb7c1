"""A node's settings: what a file may say, what is refused, and that `docs/configuration.md` says the same."""

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from replog.config import DEFINITIONS, ConfigError, NodeConfig, definition_of, load
from replog.config.areas import AREAS
from replog.config.setting import ConfigType, definitions_of
from replog.controller.configs import BROKER_CONFIGS, CORDONS, THROTTLES, TOPIC_CONFIGS
from replog.controller.policy import Strategy
from replog.coordinators.consumer_group_assignors import ASSIGNORS

ROOT = Path(__file__).parents[2]
BROKER: dict[str, Any] = {
    "process.roles": "broker",
    "node.id": 1,
    "cluster.id": "c",
    "listeners": "127.0.0.1:9092",
    "controller.quorum.voters": "101@127.0.0.1:9, 102@127.0.0.2:9",
    "log.dirs": "/a, /b",
}
IN_ZOOKEEPER_MODE: dict[str, Any] = {
    "zookeeper.connect": "z:2181",
    "node.id": 1,
    "cluster.id": "c",
    "listeners": "127.0.0.1:9092",
    "log.dirs": "/a",
}


def test_settings_are_read_by_area() -> None:
    config = NodeConfig(BROKER | {"log.segment.bytes": 4096, "log.cleanup.policy": "compact, delete"})

    assert config.log.segment_bytes == 4096
    assert config.log.cleanup_policy == ("compact", "delete")
    assert config.log.roll_ms == DEFINITIONS["log.roll.ms"].default
    assert config.log_dirs == ["/a", "/b"]
    assert [voter.node_id for voter in config.voters] == [101, 102]
    assert not config.is_zookeeper_mode


def test_a_node_of_zookeeper_mode_has_neither_roles_nor_voters() -> None:
    config = NodeConfig(IN_ZOOKEEPER_MODE)

    assert config.is_zookeeper_mode
    assert config.voters == []


def test_a_file_may_nest_names_or_quote_them() -> None:
    content = "".join(f"{name!r} = {value!r}\n" for name, value in BROKER.items())

    config = load(f"{content}min.insync.replicas = 2\n'broker.rack' = 'r'\n".encode(), "node.toml")

    assert config.topics.insync_replicas_min == 2
    assert config.identity.broker_rack == "r"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"min.isync.replicas": 2}, "unknown setting 'min.isync.replicas'; did you mean 'min.insync", id="name"
        ),
        pytest.param({"num.partitions": "2"}, "'num.partitions' must be int, not '2'", id="text for a number"),
        pytest.param({"num.partitions": True}, "'num.partitions' must be int, not True", id="flag for a number"),
        pytest.param({"log.cleaner.enable": 1}, "'log.cleaner.enable' must be bool, not 1", id="number for a flag"),
        pytest.param(
            {"log.message.timestamp.type": 1}, "'log.message.timestamp.type' must be str, not 1", id="number for a text"
        ),
        pytest.param({"listeners": 9092}, "'listeners' must be list, not 9092", id="number for a list"),
        pytest.param({"tribunal.mutants": [1]}, "'tribunal.mutants' must be list, not [1]", id="number in a list"),
        pytest.param({"log.roll.ms": 1.5}, "'log.roll.ms' must be int, not 1.5", id="fraction"),
        pytest.param({"log.roll.jitter.ms": -1}, "'log.roll.jitter.ms' must not be negative: -1", id="negative"),
        pytest.param(
            {"offsets.topic.replication.factor": 32768},
            "'offsets.topic.replication.factor' must be at most 32767: 32768",
            id="short",
        ),
        pytest.param({"min.insync.replicas": 0}, "'min.insync.replicas' must be at least 1: 0", id="too low"),
        pytest.param({"num.partitions": 1 << 31}, "'num.partitions' must be at most 2147483647: 2147483648", id="int"),
        pytest.param({"log.roll.ms": 1 << 63}, "'log.roll.ms' must be at most 9223372036854775807", id="long"),
        pytest.param({"log.cleaner.min.cleanable.ratio": 1.5}, "must be at most 1.0: 1.5", id="ratio"),
        pytest.param({"log.cleaner.min.cleanable.ratio": math.nan}, "must be at most 1.0: nan", id="no number"),
        pytest.param({"leader.recovery": "no"}, "'leader.recovery' is 'no'; use 'on' or 'off'", id="choice"),
        pytest.param({"log.cleanup.policy": "delete,keep"}, "'log.cleanup.policy' is 'keep'", id="choice in a list"),
        pytest.param({"process.roles": "broker,boss"}, "'process.roles' is 'broker,boss'; use broker", id="role"),
        pytest.param({"process.roles": ""}, "'process.roles' is ''; use broker", id="no role"),
        pytest.param({"cluster.id": ""}, "'cluster.id' must have 1 to 64 characters", id="cluster id"),
        pytest.param({"cordoned.log.dirs": "/x"}, "cordoned.log.dirs: '/x' is not one of log.dirs", id="cordon"),
        pytest.param({"cordoned.log.dirs": "*,/x"}, "cordoned.log.dirs: '*' is not one of", id="all and one"),
        pytest.param({"log.dirs": " ,"}, "'log.dirs' names no directory", id="no directory"),
        pytest.param(
            {"group.consumer.assignors": []}, "'group.consumer.assignors' names no assignor", id="no assignor"
        ),
        pytest.param({"listeners": "9092"}, "'listeners': '9092' is not host:port", id="address"),
        pytest.param({"controller.quorum.voters": "a:1"}, "'a:1' is not id@host:port", id="voter"),
        pytest.param({"listeners": "a:9²"}, "'listeners': 'a:9²' is not host:port", id="digit that is no number"),
        pytest.param(
            {"controller.quorum.voters": "2²@a:1"}, "'2²@a:1' is not id@host:port", id="voter that is no number"
        ),
        pytest.param(
            {"controller.quorum.voters": "2147483648@a:1"},
            "'2147483648@a:1' is not id@host:port",
            id="voter beyond 32 bits",
        ),
    ],
)
def test_a_bad_setting_is_named_with_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        NodeConfig(BROKER | changes)

    assert message in str(refused.value)


@pytest.mark.parametrize("name", [name for name in BROKER if name != "controller.quorum.voters"])
def test_what_must_be_given_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^setting '{name}' is missing$"):
        NodeConfig({other: value for other, value in BROKER.items() if other != name})


def test_a_node_has_to_know_voters_or_bootstrap_servers() -> None:
    others = {name: value for name, value in BROKER.items() if name != "controller.quorum.voters"}
    servers = {"controller.quorum.bootstrap.servers": "a:9,b:9"}

    with pytest.raises(
        ConfigError, match=r"'controller\.quorum\.voters' is missing, or 'controller\.quorum\.bootstrap"
    ):
        NodeConfig(others)

    assert [str(server) for server in NodeConfig(others | servers).bootstrap_servers] == ["a:9", "b:9"]
    with pytest.raises(ConfigError, match=r"'controller\.quorum\.bootstrap\.servers': 'a' is not host:port"):
        NodeConfig(others | {"controller.quorum.bootstrap.servers": "a"})


def test_a_retention_may_be_unlimited() -> None:
    config = NodeConfig(BROKER | {"log.retention.ms": -1, "log.retention.bytes": -1})

    assert (config.log.retention_ms, config.log.retention_bytes) == (-1, -1)


def test_texts_are_what_kafka_would_write() -> None:
    texts = NodeConfig(BROKER | {"log.cleanup.policy": ["delete", "compact"], "log.preallocate": True}).texts

    assert texts["log.cleanup.policy"] == "delete,compact"
    assert texts["log.preallocate"] == "true"
    assert texts["log.cleaner.min.cleanable.ratio"] == "0.5"
    assert set(texts) == {name for name, each in DEFINITIONS.items() if each.type is not ConfigType.PASSWORD}


def test_a_node_has_every_area() -> None:
    """What is in no area of a node's configuration would be accepted and forgotten."""
    parts = {type(value) for value in vars(NodeConfig(BROKER)).values()}

    assert parts >= set(AREAS.values())


def test_every_default_is_a_value_that_a_file_may_have() -> None:
    given = {name: each.default for name, each in DEFINITIONS.items() if each.default is not None}

    checked = {name: DEFINITIONS[name].checked(list(v) if isinstance(v, tuple) else v) for name, v in given.items()}

    assert checked == given


def test_every_setting_has_one_name_and_one_sentence() -> None:
    definitions = [each for area in AREAS.values() for each in definitions_of(area)]

    assert len({each.name for each in definitions}) == len(definitions)
    assert [each.name for each in definitions if not each.setting.description.endswith(".")] == []
    assert [each.name for each in definitions if each.name.startswith("tribunal.") and each.setting.is_kafkas] == []


def test_topic_configs_are_the_topics_side_of_the_same_settings() -> None:
    segment_bytes = TOPIC_CONFIGS["segment.bytes"]

    assert (segment_bytes.synonym, segment_bytes.default, segment_bytes.lowest) == (
        "log.segment.bytes",
        "1073741824",
        14,
    )
    of_topics = {name for name, each in DEFINITIONS.items() if each.setting.topic}
    assert set(BROKER_CONFIGS) == of_topics | set(THROTTLES) | set(CORDONS)


def test_choices_are_those_that_the_code_knows() -> None:
    assert definition_of("unclean.recovery.strategy").choices == tuple(strategy.value for strategy in Strategy)
    assert set(definition_of("group.consumer.assignors").choices) == set(ASSIGNORS)


def test_the_page_is_what_the_generator_writes() -> None:
    spec = importlib.util.spec_from_file_location(
        "generate_configuration", ROOT / "tools" / "generate_configuration.py"
    )
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)

    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")

    assert page == generator.page(), "run python tools/generate_configuration.py"
