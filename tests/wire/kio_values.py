"""kio as the oracle: random kio messages from a seeded `Random`, and the same message as ours.

Not a test module. A message is drawn for every (api, version, kind) that kio has, every field by its wire type.
"""

import dataclasses
import datetime
import importlib
import io
import pkgutil
from random import Random
from typing import Any
from uuid import UUID

import kio.schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_writer
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_schema_field_type,
    is_optional,
)

from replog.errors import Error
from replog.types import ZERO_UUID
from replog.wire.apis import KNOWN_APIS, Api, request_type, response_type
from replog.wire.layout import fields_of
from replog.wire.records import consumer_protocol, control

DATA = {
    "consumer_protocol_assignment": consumer_protocol.ConsumerProtocolAssignment,
    "consumer_protocol_subscription": consumer_protocol.ConsumerProtocolSubscription,
    "control_record_type_schema": control.ControlRecordTypeSchema,
    "end_txn_marker": control.EndTxnMarker,
    "k_raft_version_record": control.KRaftVersionRecord,
    "leader_change_message": control.LeaderChangeMessage,
    "snapshot_footer_record": control.SnapshotFooterRecord,
    "snapshot_header_record": control.SnapshotHeaderRecord,
    "voters_record": control.VotersRecord,
}
OTHER_NAMES = {"kraft_version": "k_raft_version", "kraft_version_feature": "k_raft_version_feature", "type": "type_"}
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
WORDS = ("", "a", "topic-1", "größer", "x" * 200)


def all_messages() -> list[tuple[Api, str, int]]:
    """Return every (api, kind, version) that kio and we know."""
    return [
        (Api(key), kind, int(info.name[1:]))
        for key, name in sorted(api_key_map.items())
        if key in KNOWN_APIS
        for kind in ("request", "response")
        for info in pkgutil.iter_modules(importlib.import_module(f"kio.schema.{name}").__path__)
    ]


def kio_type(api: Api, kind: str, version: int) -> Any:
    """Return kio's dataclass."""
    module = importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.{kind}")
    return next(
        value
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and value.__module__ == module.__name__ and value.__type__.name == kind
    )


def all_data() -> list[tuple[str, int]]:
    """Return every (kio package, version) of a record or protocol message that is also ours."""
    return [
        (name, int(info.name[1:]))
        for name in DATA
        for info in pkgutil.iter_modules(importlib.import_module(f"kio.schema.{name}").__path__)
    ]


def kio_data(name: str, version: int) -> Any:
    """Return kio's dataclass of a record."""
    module = importlib.import_module(f"kio.schema.{name}.v{version}.data")
    return next(
        value
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and value.__module__ == module.__name__ and value.__type__.name == "data"
    )


def our_type(api: Api, kind: str) -> Any:
    """Return our Struct."""
    return request_type(api) if kind == "request" else response_type(api)


def kio_bytes(message: Any) -> bytes:
    """Return what kio writes."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def drawn(of: Any, random: Random) -> Any:
    """Return a random kio message: defaults, nulls, empty and long values, extremes."""
    values = {}
    for field in dataclasses.fields(of):
        if field.default is not dataclasses.MISSING and random.random() < 0.3:
            continue
        values[field.name] = _drawn_field(field, random)
    return of(**values)


def _drawn_field(field: Any, random: Random) -> Any:
    shape = classify_field(field)
    tagged = "tag" in field.metadata
    if shape.is_array:
        if not tagged and "None" in str(field.type).rpartition("]")[2] and random.random() < 0.2:
            return None
        return tuple(_drawn_value(field, shape, random) for _ in range(random.choice((0, 1, 3))))
    kind = field.metadata.get("kafka_type", "struct")
    if is_optional(field) and not tagged and kind != "uuid" and random.random() < 0.2:
        return None
    return _drawn_value(field, shape, random)


def _drawn_value(field: Any, shape: Any, random: Random) -> Any:
    if isinstance(shape, EntityField | EntityTupleField):
        return drawn(shape.type_, random)
    kind = get_schema_field_type(field)
    if kind == "int16" and field.name.endswith("_error_code"):  # kio leaves some of them numbers
        return random.choice((0, 3, 133))
    if kind in BITS:
        bits = BITS[kind]
        return random.choice((0, -1, 1, -(1 << bits), (1 << bits) - 1, random.randrange(-(1 << bits), 1 << bits)))
    if kind == "string":
        return random.choice(WORDS)
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 127, 128, 300)))
    if kind == "uuid":
        return random.choice((None, UUID(int=random.getrandbits(128))))
    if kind == "error_code":
        return random.choice(list(ErrorCode))
    if kind == "bool":
        return random.random() < 0.5
    if kind == "uint16":
        return random.randrange(1 << 16)
    if kind == "float64":
        return random.uniform(-1e9, 1e9)
    if kind in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=random.choice((0, -1, random.randrange(1 << 31))))
    assert kind == "datetime_i64", kind
    return datetime.datetime.fromtimestamp(random.randrange(1 << 31), datetime.UTC)


def as_ours(message: Any, of: Any, version: int) -> Any:
    """Return the same message in our type."""
    values = {}
    for field in fields_of(of, version):
        name = field.name if hasattr(message, field.name) else field.name.removesuffix("_ms")
        name = name if hasattr(message, name) else OTHER_NAMES[name]
        values[field.name] = _our_value(getattr(message, name), field, version)
    return of(**values)


def _our_value(value: Any, field: Any, version: int, *, whole: bool = True) -> Any:
    if isinstance(value, tuple):
        return [_our_value(item, field, version, whole=False) for item in value]
    if value is None:
        return (
            ZERO_UUID
            if field.kind == "uuid" and not (field.is_array and whole)
            else -1
            if field.kind == "int64"
            else None
        )
    if dataclasses.is_dataclass(value):
        return as_ours(value, field.struct, version)
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if field.kind == "error":
        return Error(int(getattr(value, "value", value)))
    return value


assert kio.schema  # imported for its submodules
