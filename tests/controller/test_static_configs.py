"""DescribeConfigs of a broker: what its file says is listed by that broker alone, in Kafka's names, read-only; secrets are not said."""

import pytest

from replog.config.setting import ConfigType
from replog.controller.configs import STATIC_CONFIGS, Source, describe
from replog.metadata.image import Image
from replog.metadata.state import BROKER_RESOURCE
from replog.wire.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResourceResult

FILE = {"node.id": "2", "broker.session.timeout.ms": "1800", "ssl.key.password": ""}


def described(name: str, keys: list[str] | None = None) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name, configuration_keys=keys)
    return {each.name: each for each in describe(Image(), FILE, resource).configs}


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
