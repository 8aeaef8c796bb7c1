"""Quotas of users, clients and addresses: changed and shown (KIP-546, KIP-612)."""

from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from replog.controller.authorization import Operation, of_cluster
from replog.controller.controller_api import ControllerApi, Decided, by_image
from replog.controller.served_api import ServedApi
from replog.controller.turn import Turn
from replog.errors import Error
from replog.metadata import records as r
from replog.metadata.client_quotas import (
    CLIENT_ID,
    CONNECTION_RATE,
    CONSUMER_RATE,
    IP,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
    entity_of,
    order,
)
from replog.wire.messages import alter_client_quotas as alter
from replog.wire.messages import describe_client_quotas as describe

TYPES: Final = (USER, CLIENT_ID, IP)
KEYS: Final = (PRODUCER_RATE, CONSUMER_RATE, REQUEST_PERCENTAGE, MUTATION_RATE)
KEYS_OF_ADDRESSES: Final = (CONNECTION_RATE,)
WHOLE: Final = (PRODUCER_RATE, CONSUMER_RATE)
LIMIT_MAX: Final = float(2**63)
CONNECTION_RATE_MAX: Final = 2**31 - 1  # Kafka's is an int
EXACT: Final = 0  # kinds of matches that a filter asks for
DEFAULT: Final = 1
ANY: Final = 2
Parts = Sequence[alter.AlterClientQuotasRequestEntityData]


def on_alter_quotas(turn: Turn, body: alter.AlterClientQuotasRequest) -> alter.AlterClientQuotasResponse:
    """Set and remove quotas; of an entity all of it or nothing."""
    named = Counter(_entity(one.entity) for one in body.entries)
    results = []
    for one in body.entries:
        refused = _refusal(one)
        if refused is None and named[_entity(one.entity)] > 1:
            refused = "The same entity cannot be altered twice in a request"
        if refused is None and not body.validate_only:
            turn.append(_records(turn, one))
        results.append(_result(one.entity, Error.NONE if refused is None else Error.INVALID_REQUEST, refused))
    return alter.AlterClientQuotasResponse(entries=results)


def _entity(parts: Parts) -> Entity:
    return entity_of({part.entity_type: _name(part.entity_type, part.entity_name) for part in parts})


def _name(kind: str, name: str | None) -> str | None:
    """Return the name; of an address the one way to write it that sockets have."""
    if kind != IP or name is None:
        return name
    try:
        return str(ip_address(name))
    except ValueError:
        return name


def _refusal(one: alter.AlterClientQuotasRequestEntryData) -> str | None:
    if not one.entity:
        return "Invalid empty client quota entity"
    types = [part.entity_type for part in one.entity]
    if unknown := [name for name in types if name not in TYPES]:
        return f"Quotas of {unknown[0]!r} are not known here; entities are of {', '.join(TYPES)}"
    if len({*types}) < len(types):
        return "An entity has one part of each type"
    if any(part.entity_name == "" for part in one.entity):
        return "Empty entity names are not supported: the default of a type has none"
    if IP in types and len(types) > 1:
        return "An address is an entity of its own: its connections come before anybody has said who he is"
    names = [part.entity_name for part in one.entity if part.entity_type == IP and part.entity_name is not None]
    if names and not _is_address(names[0]):
        return f"{names[0]!r} is no address; names of hosts are not looked up"
    keys = KEYS_OF_ADDRESSES if IP in types else KEYS
    return next((words for op in one.ops for words in [_refused_operation(op, keys)] if words is not None), None)


def _is_address(name: str) -> bool:
    try:
        return "%" not in str(ip_address(name))
    except ValueError:
        return False


def _refused_operation(op: alter.OpData, keys: Sequence[str]) -> str | None:
    if op.key not in keys:
        return f"{op.key!r} limits nothing here; quotas of such an entity are {', '.join(keys)}"
    if op.remove:
        return None
    if op.key == CONNECTION_RATE and not (1 <= op.value <= CONNECTION_RATE_MAX and op.value == int(op.value)):
        return f"{op.key} is a whole number of connections in a second, 1 to {CONNECTION_RATE_MAX}: {op.value}"
    if not 0 < op.value < LIMIT_MAX:
        return f"{op.key} is more than 0: {op.value}"
    if op.key in WHOLE and op.value != int(op.value):
        return f"{op.key} is a whole number of bytes in a second, 1 or more: {op.value}"
    return None


def _records(turn: Turn, one: alter.AlterClientQuotasRequestEntryData) -> list[r.MetadataRecord]:
    """Return what changes; where an operation is named twice the last one holds."""
    entity, quotas = _entity(one.entity), turn.image.client_quotas
    wanted = {op.key: None if op.remove else op.value for op in one.ops}
    return [r.quota_record(entity, key, value) for key, value in wanted.items() if quotas.value(entity, key) != value]


def _result(parts: Parts, error: Error, words: str | None) -> alter.AlterClientQuotasResponseEntryData:
    entity = [
        alter.AlterClientQuotasResponseEntityData(entity_type=one.entity_type, entity_name=one.entity_name)
        for one in parts
    ]
    return alter.AlterClientQuotasResponseEntryData(error_code=error, error_message=words, entity=entity)


def on_describe_quotas(turn: Turn, body: describe.DescribeClientQuotasRequest) -> describe.DescribeClientQuotasResponse:
    """Show the quotas of the entities that a filter fits."""
    types = [one.entity_type for one in body.components]
    if len({*types}) < len(types):
        return _refused_filter("A filter has one component of each type")
    for one in body.components:
        if not one.entity_type:
            return _refused_filter("The type of a component is empty")
        if one.match_type not in (EXACT, DEFAULT, ANY):
            return _refused_filter(f"Unknown match type {one.match_type}")
        if (one.match is None) is (one.match_type == EXACT):
            return _refused_filter("An exact match names what it matches, and no other match does")
    found = sorted(turn.image.client_quotas.by_entity.items(), key=lambda item: order(item[0]))
    return describe.DescribeClientQuotasResponse(
        error_message=None, entries=[_shown(entity, values) for entity, values in found if _fits(body, dict(entity))]
    )


def _fits(body: describe.DescribeClientQuotasRequest, parts: dict[str, str | None]) -> bool:
    if body.strict and len(parts) != len(body.components):
        return False
    return all(
        one.entity_type in parts
        and (one.match_type == ANY or parts[one.entity_type] == _name(one.entity_type, one.match))
        for one in body.components
    )


def _shown(entity: Entity, values: dict[str, float]) -> describe.EntryData:
    return describe.EntryData(
        entity=[describe.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[describe.ValueData(key=key, value=value) for key, value in sorted(values.items())],
    )


def _refused_filter(words: str) -> describe.DescribeClientQuotasResponse:
    return describe.DescribeClientQuotasResponse(error_code=Error.INVALID_REQUEST, error_message=words, entries=None)


def _unaltered(body: alter.AlterClientQuotasRequest, error: Error) -> alter.AlterClientQuotasResponse:
    return alter.AlterClientQuotasResponse(entries=[_result(one.entity, error, None) for one in body.entries])


ALTER_QUOTAS: Final = ControllerApi(
    ServedApi(alter.EXCHANGE, questions=(of_cluster(Operation.ALTER_CONFIGS),), refuse=_unaltered),
    decide=by_image(on_alter_quotas),
)
DESCRIBE_QUOTAS: Final = ControllerApi(
    ServedApi(describe.EXCHANGE, questions=(of_cluster(Operation.DESCRIBE_CONFIGS),), changes_nothing=True),
    decide=by_image(on_describe_quotas),
)
APIS: Final[tuple[Decided, ...]] = (ALTER_QUOTAS, DESCRIBE_QUOTAS)
