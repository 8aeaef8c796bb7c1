"""Settings of single groups (resource type 32): what a group may be given, within which bounds, and how it is described."""

from typing import Any

import pytest

from replog.config.groups import GroupsConfig
from replog.controller.configs import Source, describe
from replog.errors import Error
from replog.metadata.image import Image
from replog.metadata.state import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE
from replog.wire.messages import alter_configs as ac
from replog.wire.messages import describe_configs as dc
from replog.wire.messages import incremental_alter_configs as iac
from tests.cases.controllers import Box

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE, APPEND = 0, 1, 2


def altered(
    box: Box, values: dict[str, str | None], *, group: str = "g", operation: int = SET
) -> tuple[Error, str | None]:
    configs = [
        iac.AlterableConfig(name=name, config_operation=operation, value=value) for name, value in values.items()
    ]
    resource = iac.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    answer: Any = box.send(iac.IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
    return Error(answer.error_code), answer.error_message


def own(box: Box, group: str = "g") -> dict[str, str]:
    return dict(box.image.configs.get((GROUP_RESOURCE, group), {}))


def described(
    image: Image, static: dict[str, str], group: str = "g", keys: list[str] | None = None
) -> dc.DescribeConfigsResult:
    resource = dc.DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=keys)
    return describe(image, static, resource, with_synonyms=True)


def test_a_group_is_given_settings_of_its_own_and_loses_them() -> None:
    box = Box().features().activate()

    assert altered(box, {SESSION: "50000", HEARTBEAT: "6000"}) == (Error.NONE, None)
    assert own(box) == {SESSION: "50000", HEARTBEAT: "6000"}
    assert own(box, "h") == {}
    assert altered(box, {HEARTBEAT: None}, operation=DELETE) == (Error.NONE, None)
    assert own(box) == {SESSION: "50000"}

    resource = ac.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[])
    assert box.send(ac.AlterConfigsRequest(resources=[resource])).responses[0].error_code is Error.NONE
    assert own(box) == {}


@pytest.mark.parametrize(("values", "words"), [
    ({SESSION: "44999"}, "greater than or equal to group.consumer.min.session.timeout.ms (45000)"),
    ({SESSION: "60001"}, "less than or equal to group.consumer.max.session.timeout.ms (60000)"),
    ({HEARTBEAT: "4999"}, "greater than or equal to group.consumer.min.heartbeat.interval.ms (5000)"),
    ({HEARTBEAT: "15001"}, "less than or equal to group.consumer.max.heartbeat.interval.ms (15000)"),
    ({SESSION: "50000", HEARTBEAT: "5_000"}, "Invalid value '5_000'"),
    ({SESSION: "soon"}, "Invalid value 'soon'"),
    ({SESSION: None}, "Null value"),
    ({"share.session.timeout.ms": "45000"}, "Unknown config name: share.session.timeout.ms"),
    ({"streams.session.timeout.ms": "45000"}, "Unknown config name: streams.session.timeout.ms"),
    ({"retention.ms": "1"}, "Unknown config name: retention.ms"),
])  # fmt: skip
def test_what_a_group_may_not_have_is_refused_whole(values: dict[str, str | None], words: str) -> None:
    box = Box().features().activate()

    error, said = altered(box, values)

    assert error is Error.INVALID_CONFIG
    assert words in (said or "")
    assert own(box) == {}


@pytest.mark.parametrize("values", [{SESSION: "45000"}, {SESSION: "60000"}, {HEARTBEAT: "5000"}, {HEARTBEAT: "15000"}])
def test_bounds_are_allowed_themselves(values: dict[str, str | None]) -> None:
    assert altered(Box().features().activate(), values) == (Error.NONE, None)


def test_a_session_has_to_be_longer_than_the_interval_also_where_only_one_of_them_is_the_groups_own() -> None:
    groups = GroupsConfig(consumer_session_timeout_ms_min=6000, consumer_heartbeat_interval_ms_max=50_000)
    box = Box(groups=groups).features().activate()

    assert altered(box, {HEARTBEAT: "45000"})[0] is Error.INVALID_CONFIG  # the session's default
    assert altered(box, {HEARTBEAT: "44999"})[0] is Error.NONE
    assert altered(box, {SESSION: "44999"})[0] is Error.INVALID_CONFIG
    assert altered(box, {SESSION: "45001"})[0] is Error.NONE
    assert own(box) == {SESSION: "45001", HEARTBEAT: "44999"}


def test_a_number_is_no_list() -> None:
    assert altered(Box().features().activate(), {SESSION: "50000"}, operation=APPEND)[0] is Error.INVALID_CONFIG


def test_there_are_no_settings_of_all_groups() -> None:
    box = Box().features().activate()

    assert altered(box, {SESSION: "50000"}, group="")[0] is Error.INVALID_REQUEST
    assert described(box.image, {}, "").error_code is Error.INVALID_REQUEST


def test_zookeeper_keeps_none_so_it_is_refused_there() -> None:
    image = Image()  # without a metadata version, as in ZooKeeper mode

    assert described(image, {}).error_code is Error.INVALID_REQUEST


def test_each_value_is_described_with_what_would_hold_without_it() -> None:
    box = Box().features().activate()
    altered(box, {SESSION: "50000"})
    file = {f"group.{SESSION}": "48000", f"group.{HEARTBEAT}": "5000"}

    found = {one.name: one for one in described(box.image, file).configs}

    assert {name: (one.value, one.config_source, one.read_only) for name, one in found.items()} == {
        SESSION: ("50000", Source.GROUP, False),
        HEARTBEAT: ("5000", Source.DEFAULT, False),
    }
    levels = {name: [(one.name, one.value, one.source) for one in found[name].synonyms or []] for name in found}
    assert levels == {
        SESSION: [
            (SESSION, "50000", Source.GROUP),
            (f"group.{SESSION}", "48000", Source.STATIC_BROKER),
            (f"group.{SESSION}", "45000", Source.DEFAULT),
        ],
        HEARTBEAT: [(f"group.{HEARTBEAT}", "5000", Source.DEFAULT)],
    }


def test_an_unknown_group_is_described_by_what_would_hold() -> None:
    found = described(Box().features().image, {}, "nobody's", [HEARTBEAT, "no.such"])

    assert [(one.name, one.value) for one in found.configs] == [(HEARTBEAT, "5000")]


@pytest.mark.parametrize(("name", "error"), [("s", Error.NONE), ("", Error.INVALID_REQUEST)])
def test_a_subscription_of_client_metrics_has_no_settings_and_is_given_none(name: str, error: Error) -> None:
    box = Box().features().activate()
    asked = dc.DescribeConfigsResource(resource_type=CLIENT_METRICS_RESOURCE, resource_name=name)
    change = iac.AlterConfigsResource(
        resource_type=CLIENT_METRICS_RESOURCE,
        resource_name=name,
        configs=[iac.AlterableConfig(name="metrics", value="org.apache.kafka.producer.")],
    )

    found = describe(box.image, {}, asked)

    assert (found.error_code, found.configs) == (error, [])
    answer: Any = box.send(iac.IncrementalAlterConfigsRequest(resources=[change])).responses[0]
    assert answer.error_code is Error.INVALID_REQUEST
