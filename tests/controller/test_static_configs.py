"""DescribeConfigs: who says what of brokers and topics, which values there are at which level, and which one holds.

As Apache Kafka 4.3.1 answers: of a broker that broker alone, of the default of all what was set; synonyms and documentation if asked.
"""

from typing import Any
from uuid import UUID

import pytest

from replog.broker.topic_settings import TopicSettings
from replog.config.setting import ConfigType
from replog.controller.configs import STATIC_CONFIGS, Source, describe, describe_loggers
from replog.errors import Error
from replog.metadata.image import Image
from replog.metadata.records import ConfigRecord
from replog.metadata.state import BROKER_RESOURCE, TOPIC_RESOURCE
from replog.wire.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tests.broker.test_topic_settings import OWN_FILE
from tests.cases.controllers import Box

FILE = {
    "node.id": "2",
    "broker.session.timeout.ms": "1800",
    "ssl.key.password": "",
    "ssl.keystore.location": "",
    "log.retention.ms": "4",
}


def answered(image: Image, resource_type: int, name: str, **asked: Any) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=asked.pop("keys", None)
    )
    return describe(image, FILE, resource, **asked)


def described(name: str, keys: list[str] | None = None) -> dict[str, DescribeConfigsResourceResult]:
    return {each.name: each for each in answered(Image(), BROKER_RESOURCE, name, keys=keys).configs}


def a_configured_cluster() -> Image:
    """A topic t, whose retention is said at each level that there is; one that says nothing of itself is u."""
    box = Box().features().topic(name="t").topic(name="u", topic_id=UUID(int=8))
    image: Image = box.replay(
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="1"),
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="2", name="log.retention.ms", value="2"),
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="7", name="log.retention.ms", value="7"),
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name="log.retention.ms", value="3"),
    ).image
    return image


@pytest.mark.parametrize(("name", "value", "source"), [
    ("broker.session.timeout.ms", "1800", Source.STATIC_BROKER),
    ("replica.lag.time.max.ms", "30000", Source.DEFAULT),
])  # fmt: skip
def test_a_broker_lists_what_it_was_started_with(name: str, value: str, source: Source) -> None:
    found = described("2")[name]

    assert (found.value, found.config_source, found.read_only) == (value, source, True)


def test_what_may_be_changed_while_it_runs_is_not_read_only() -> None:
    assert not described("2")["min.insync.replicas"].read_only


def test_a_secret_is_named_and_not_said() -> None:
    secrets = [each for each in described("2").values() if each.config_type == ConfigType.PASSWORD]

    assert secrets
    assert all(each.is_sensitive and each.value is None for each in secrets)


@pytest.mark.parametrize("name", ["", "3"], ids=["the default of all", "another broker"])
def test_nobody_lists_what_another_one_was_started_with(name: str) -> None:
    assert not described(name).keys() & STATIC_CONFIGS.keys()


def test_only_what_was_asked_for_is_listed() -> None:
    assert list(described("2", ["node.id", "no.such", "compression.type"])) == ["compression.type", "node.id"]


@pytest.mark.parametrize(("name", "words"), [
    ("3", "Unexpected broker id, expected 2 or empty string, but received 3"),
    ("x", "Broker id must be an integer, but it is: x"),
])  # fmt: skip
def test_nobody_says_anything_of_another_broker(name: str, words: str) -> None:
    answer = answered(a_configured_cluster(), BROKER_RESOURCE, name)

    assert (answer.error_code, answer.error_message, answer.configs) == (Error.INVALID_REQUEST, words, [])


def test_the_default_of_all_is_what_somebody_has_set_for_all() -> None:
    (found,) = answered(a_configured_cluster(), BROKER_RESOURCE, "", with_synonyms=True).configs

    assert (found.name, found.value, found.config_source) == ("log.retention.ms", "3", Source.DYNAMIC_DEFAULT_BROKER)
    assert [(one.name, one.value) for one in found.synonyms or []] == [("log.retention.ms", "3")]


OF_BROKER = [
    ("log.retention.ms", "2", Source.DYNAMIC_BROKER),
    ("log.retention.ms", "3", Source.DYNAMIC_DEFAULT_BROKER),
    ("log.retention.ms", "4", Source.STATIC_BROKER),
    ("log.retention.ms", "604800000", Source.DEFAULT),
]


@pytest.mark.parametrize(("kind", "name", "config", "levels"), [
    (TOPIC_RESOURCE, "t", "retention.ms", [("retention.ms", "1", Source.TOPIC), *OF_BROKER]),
    (TOPIC_RESOURCE, "u", "retention.ms", OF_BROKER),
    (BROKER_RESOURCE, "2", "log.retention.ms", OF_BROKER),
    (BROKER_RESOURCE, "2", "broker.session.timeout.ms",
     [("broker.session.timeout.ms", "1800", Source.STATIC_BROKER), ("broker.session.timeout.ms", "9000", Source.DEFAULT)]),
])  # fmt: skip
def test_the_first_of_all_levels_holds(
    kind: int, name: str, config: str, levels: list[tuple[str, str, Source]]
) -> None:
    (found,) = answered(a_configured_cluster(), kind, name, keys=[config], with_synonyms=True).configs

    assert [(one.name, one.value, one.source) for one in found.synonyms or []] == levels
    assert (found.value, found.config_source) == levels[0][1:]


@pytest.mark.parametrize(("topic", "retention_ms"), [("t", 1), ("u", 2)])
def test_logs_obey_what_is_described_by_the_broker_that_keeps_them(topic: str, retention_ms: int) -> None:

    assert TopicSettings(OWN_FILE).of_log(a_configured_cluster(), topic).retention_ms == retention_ms


def test_synonyms_and_documentation_are_said_if_asked_for() -> None:
    image = a_configured_cluster()
    for kind, name in ((TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "2")):
        plain = answered(image, kind, name).configs
        whole = answered(image, kind, name, with_synonyms=True, with_documentation=True).configs

        assert all(not one.synonyms and one.documentation is None for one in plain)
        assert all(one.documentation for one in whole)
        assert [(one.name, one.value) for one in plain] == [(one.name, one.value) for one in whole]


def test_what_is_not_set_has_no_value_and_comes_from_nowhere() -> None:
    found = described("2")

    assert (found["ssl.key.password"].config_source, found["ssl.keystore.key"].config_source) == (
        Source.STATIC_BROKER,
        Source.DEFAULT,
    )
    assert [found[name].value for name in ("ssl.keystore.location", "ssl.keystore.key")] == [None, None]
    assert found["controller.quorum.voters"].value == ""  # an empty list is one


@pytest.mark.parametrize(("name", "keys", "shown"), [
    ("2", None, [("root", "WARN")]),
    ("2", ["root"], [("root", "WARN")]),
    ("2", ["kafka.server"], []),
    ("3", None, "Unexpected broker id, expected 2 but received 3"),
    ("", None, "Broker id must not be empty"),
])  # fmt: skip
def test_a_broker_has_one_logger(name: str, keys: list[str] | None, shown: list[tuple[str, str]] | str) -> None:
    asked = DescribeConfigsResource(resource_type=8, resource_name=name, configuration_keys=keys)

    answer = describe_loggers(2, "warning", asked)

    assert (answer.error_message or [(one.name, one.value) for one in answer.configs]) == shown
    assert answer.error_code is (Error.INVALID_REQUEST if isinstance(shown, str) else Error.NONE)
