"""Requests about configs, and what a changed config sets in motion (SPEC 2.8, 2.11)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from replog.config.identity import CORDONED_LOG_DIRS
from replog.controller import raised_min_isr
from replog.controller.authorization import Operation as Acl
from replog.controller.configs import (
    Operation,
    Refused,
    altered_value,
    definitions,
    describe,
    groups_refusal,
    resource_refusal,
)
from replog.controller.controller_api import ControllerApi, Decided, by_image
from replog.controller.election import Wish
from replog.controller.fencing import changes
from replog.controller.policy import MIN_ISR, UNCLEAN_ENABLE
from replog.controller.served_api import Parts, ServedApi
from replog.controller.turn import Turn
from replog.distinct import distinct
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.image import in_order
from replog.metadata.state import BROKER_RESOURCE, CLUSTER_DEFAULT, CORDONED_LEVEL, GROUP_RESOURCE, TOPIC_RESOURCE
from replog.types import TopicIdPartition
from replog.wire.messages import alter_configs as ac
from replog.wire.messages import describe_configs as dc
from replog.wire.messages import incremental_alter_configs as iac

DUPLICATE: Final = Refused(Error.INVALID_REQUEST, "Duplicate resource.")  # Kafka's words: none of them is changed
CHANGED: Final = (Error.NONE, None)

_Resource = tuple[int, str]
_Edit = tuple[str, int, str | None]  # name, operation, value
_Altered = TypeVar("_Altered", ac.AlterConfigsResourceResponse, iac.AlterConfigsResourceResponse)


def on_describe_configs(
    turn: Turn, body: dc.DescribeConfigsRequest, static: Mapping[str, str]
) -> dc.DescribeConfigsResponse:
    """Show effective configs and where they come from, of each resource once."""
    resources = distinct(body.resources, lambda each: (each.resource_type, each.resource_name))
    return dc.DescribeConfigsResponse(
        results=[
            describe(
                turn.image,
                static,
                each,
                with_synonyms=body.include_synonyms,
                with_documentation=body.include_documentation,
            )
            for each in resources
        ]
    )


def on_incremental_alter_configs(
    turn: Turn, body: iac.IncrementalAlterConfigsRequest
) -> iac.IncrementalAlterConfigsResponse:
    """Change some configs of each resource; a resource is changed whole or not at all."""
    responses = []
    named = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)
    for resource in body.resources:
        key = (resource.resource_type, resource.resource_name)
        edits = [(config.name, config.config_operation, config.value) for config in resource.configs]
        refused = DUPLICATE if named[key] > 1 else _alter(turn, key, edits, validate_only=body.validate_only)
        responses.append(_altered(iac.AlterConfigsResourceResponse, resource, *(refused or CHANGED)))
    return iac.IncrementalAlterConfigsResponse(responses=responses)


def on_alter_configs(turn: Turn, body: ac.AlterConfigsRequest) -> ac.AlterConfigsResponse:
    """Replace all configs of each resource (the old form: what is not named goes)."""
    responses = []
    resources = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)
    for resource in body.resources:
        key = (resource.resource_type, resource.resource_name)
        named = {config.name for config in resource.configs}
        edits: list[_Edit] = [(config.name, Operation.SET, config.value) for config in resource.configs]
        edits += [
            (name, Operation.DELETE, None) for name in sorted(turn.image.configs.get(key, {})) if name not in named
        ]
        refused = DUPLICATE if resources[key] > 1 else _alter(turn, key, edits, validate_only=body.validate_only)
        responses.append(_altered(ac.AlterConfigsResourceResponse, resource, *(refused or CHANGED)))
    return ac.AlterConfigsResponse(responses=responses)


def _alter(turn: Turn, resource: _Resource, edits: list[_Edit], *, validate_only: bool) -> Refused | None:
    refused = resource_refusal(turn.image, *resource)
    if refused:
        return refused
    if len({name for name, _, _ in edits}) != len(edits):
        return Refused(Error.INVALID_REQUEST, "A config is named twice.")
    records: list[r.ConfigRecord] = []
    for edit in edits:
        record = _edited(turn, resource, edit)
        if isinstance(record, Refused):
            return record
        if record is not None:
            records.append(record)
    if resource[0] == GROUP_RESOURCE:
        own = turn.image.configs.get(resource, {}) | {record.name: record.value for record in records}
        refused = groups_refusal(
            turn.policy.settings.groups, {name: text for name, text in own.items() if text is not None}
        )
        if refused:
            return refused
    if not validate_only:
        names = {record.name for record in records}
        min_isr_before = raised_min_isr.min_isr_by_topic(turn.policy) if MIN_ISR in names else {}
        turn.append(records)
        _react(turn, resource, names, min_isr_before)
    return None


def _edited(turn: Turn, resource: _Resource, edit: _Edit) -> r.ConfigRecord | Refused | None:
    name, operation, wanted = edit
    known = definitions(resource[0]) or {}
    if name not in known:
        return Refused(Error.INVALID_CONFIG, f"Unknown config name: {name}")
    current = turn.image.configs.get(resource, {}).get(name)
    value = altered_value(known[name], name, operation, wanted, current)
    if isinstance(value, Refused):
        return value
    if name == MIN_ISR and resource[0] == BROKER_RESOURCE and turn.policy.elr_enabled:
        # Leaders and controller have to agree on min ISR, or an ELR member may lack what was acknowledged.
        if resource[1] != CLUSTER_DEFAULT:
            return Refused(
                Error.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            )
        if value is None:
            return Refused(
                Error.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            )
    if name == CORDONED_LOG_DIRS:
        if resource[1] == CLUSTER_DEFAULT:
            return Refused(Error.INVALID_REQUEST, f"{name} is of one broker: name it, instead of the default of all.")
        if turn.image.metadata_version < CORDONED_LEVEL:
            return Refused(
                Error.INVALID_CONFIG, f"{name} needs metadata.version {CORDONED_LEVEL} (4.3-IV0); raise it first."
            )
    if value == current:
        return None
    return r.ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)


def _react(turn: Turn, resource: _Resource, names: set[str], min_isr_before: Mapping[str, int]) -> None:
    if MIN_ISR in names:
        # KIP-966: "if the new min ISR <= current ISR, the ELR will be removed" (D5).
        _review(turn, _with_elr(turn, resource))
        turn.append(raised_min_isr.renewed_leader_epochs(turn.policy, min_isr_before))
    if UNCLEAN_ENABLE in names:
        _review(turn, _of(turn, resource, turn.image.leaderless()))


def _review(turn: Turn, keys: Iterable[TopicIdPartition]) -> None:
    turn.append(
        changes(turn.policy, keys, lambda topic, _: Wish(election=turn.policy.election(topic)), turn.image.is_active)
    )


def _with_elr(turn: Turn, resource: _Resource) -> list[TopicIdPartition]:
    members = turn.image.elr_members
    keys = {key for node in members.nodes() for key in members.of(node)}
    return _of(turn, resource, in_order(keys))


def _of(turn: Turn, resource: _Resource, keys: list[TopicIdPartition]) -> list[TopicIdPartition]:
    if resource[0] != TOPIC_RESOURCE:
        return keys
    topic = turn.image.topics_by_name[resource[1]]
    return [key for key in keys if key.topic_id == topic.topic_id]


def _altered(
    of: type[_Altered],
    resource: ac.AlterConfigsResource | iac.AlterConfigsResource,
    error: Error,
    message: str | None = None,
) -> _Altered:
    return of(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refused_description(body: dc.DescribeConfigsRequest, error: Error) -> dc.DescribeConfigsResponse:
    results = [
        dc.DescribeConfigsResult(error_code=error, resource_type=one.resource_type, resource_name=one.resource_name)
        for one in body.resources
    ]
    return dc.DescribeConfigsResponse(results=results)


def _refused_changes(body: iac.IncrementalAlterConfigsRequest, error: Error) -> iac.IncrementalAlterConfigsResponse:
    return iac.IncrementalAlterConfigsResponse(
        responses=[_altered(iac.AlterConfigsResourceResponse, one, error) for one in body.resources]
    )


def _refused_replacement(body: ac.AlterConfigsRequest, error: Error) -> ac.AlterConfigsResponse:
    return ac.AlterConfigsResponse(
        responses=[_altered(ac.AlterConfigsResourceResponse, one, error) for one in body.resources]
    )


DESCRIBE_CONFIGS: Final = ControllerApi(
    ServedApi(
        dc.EXCHANGE,
        parts=Parts(("resources",), "results", Acl.DESCRIBE_CONFIGS),
        refuse=_refused_description,
        changes_nothing=True,
    ),
    decide=lambda decider, turn, body: on_describe_configs(turn, body, decider.static_configs),
)
INCREMENTAL_ALTER_CONFIGS: Final = ControllerApi(
    ServedApi(iac.EXCHANGE, parts=Parts(("resources",), "responses", Acl.ALTER_CONFIGS), refuse=_refused_changes),
    decide=by_image(on_incremental_alter_configs),
)
ALTER_CONFIGS: Final = ControllerApi(
    ServedApi(ac.EXCHANGE, parts=Parts(("resources",), "responses", Acl.ALTER_CONFIGS), refuse=_refused_replacement),
    decide=by_image(on_alter_configs),
)
APIS: Final[tuple[Decided, ...]] = (DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS)
