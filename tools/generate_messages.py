"""Generate `replog/wire/messages/*.py`: message types without versions, from kio's types with versions.

For each API that a listener offers kio has one dataclass per version; ours is one Struct with the union of their fields, each field
annotated with its wire type and versions (`replog/wire/layout.py`). What kio lacks of an API that it has is
widened here (AlterPartition 0-1); whole APIs and records that it lacks are written by hand in the same form.

Names: kio's, but times are whole milliseconds and say so (`timeout_ms`, as in Kafka's schemas). Where a nested type
of the request and one of the response have the same name, both get the message's name in front
(`VoteRequestPartitionData`, `VoteResponsePartitionData`). Run it again after kio changes; the output is committed.
"""

import dataclasses
import datetime
import importlib
import pkgutil
import re
import subprocess
import sys
import types
import typing
import uuid
from pathlib import Path
from typing import Any

from kio.schema.index import api_key_map
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from replog.wire.apis import KNOWN_APIS, Api

TARGET = Path(__file__).parent.parent / "replog" / "wire" / "messages"
MISSING = dataclasses.MISSING
PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "uuid": "UUID",
    "bytes": "bytes",
    "records": "bytes | memoryview",
    "error": "Error",
}
IMPLICIT_DEFAULTS = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "uuid": "ZERO_UUID",
    "bytes": 'b""',
    "records": 'b""',
    "error": "Error.NONE",
}
KIO_TIMES = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}

# AlterPartition 0-1 (KIP-704, KIP-497): topics by name; kio starts at version 2. SPEC 2.7.1.
WIDENED: dict[str, dict[str, Any]] = {
    "alter_partition": {
        "versions": range(4),
        "fields": {
            ("TopicData", "topic_name"): ("string", [0, 1]),
            ("PartitionData", "leader_recovery_state"): ("int8", [1, 2, 3]),
            ("PartitionData", "new_isr"): ("int32", [0, 1, 2]),
        },
    }
}


@dataclasses.dataclass
class FieldPlan:
    """A field in the union of versions."""

    name: str
    kind: str  # with [] in front for arrays
    struct: str | None
    versions: list[int] = dataclasses.field(default_factory=list)
    nullable: list[int] = dataclasses.field(default_factory=list)
    tagged: list[int] = dataclasses.field(default_factory=list)
    tag: int = -1
    default: str | None = None  # source text; None: the type's implicit default

    @property
    def is_array(self) -> bool:
        """Return whether it is an array."""
        return self.kind.startswith("[]")


@dataclasses.dataclass
class StructPlan:
    """A struct in the union of versions; fields in wire order."""

    name: str
    fields: dict[str, FieldPlan] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class MessagePlan:
    """A top-level type with its nested ones, innermost first."""

    name: str
    key: int
    kind: str
    versions: list[int]
    flexible: list[int]
    structs: dict[str, StructPlan] = dataclasses.field(default_factory=dict)


# --- reading kio


def message_plan(api: str, kind: str) -> MessagePlan:
    """Merge all versions of one API's request or response."""
    package = importlib.import_module(f"kio.schema.{api}")
    versions = sorted(int(info.name[1:]) for info in pkgutil.iter_modules(package.__path__))
    entities = {version: _entity(api, version, kind) for version in versions}
    top = entities[versions[-1]]
    plan = MessagePlan(
        name=top.__name__,
        key=int(top.__api_key__),
        kind=kind,
        versions=versions,
        flexible=[version for version in versions if entities[version].__flexible__],
    )
    for version in reversed(versions):
        _merge(plan, entities[version], version)
    return plan


def _entity(api: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    wanted = [
        value
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and value.__module__ == module.__name__ and value.__type__.name == kind  # type: ignore[attr-defined]
    ]
    assert len(wanted) == 1, (api, version, kind)
    return wanted[0]


def _merge(plan: MessagePlan, entity: Any, version: int) -> None:
    """Add one version's fields (versions come newest first); unknown fields go behind their predecessor."""
    struct = plan.structs.setdefault(entity.__name__, StructPlan(entity.__name__))
    previous: str | None = None
    for field in dataclasses.fields(entity):
        planned = _field_plan(field)
        known = struct.fields.get(planned.name)
        if known is None:
            _insert_behind(struct, previous, planned)
            known = planned
        assert (known.kind, known.struct) == (planned.kind, planned.struct), (plan.name, entity, field.name)
        known.versions.append(version)
        if known.default is None:
            known.default = planned.default
        if _is_nullable(field, planned.kind):
            known.nullable.append(version)
        tag = get_field_tag(field)
        if tag is not None:
            assert known.tag in (-1, int(tag)), (plan.name, field.name)
            known.tag = int(tag)
            known.tagged.append(version)
        else:
            previous = planned.name
        shape = classify_field(field)
        if isinstance(shape, EntityField | EntityTupleField):
            _merge(plan, shape.type_, version)


def _insert_behind(struct: StructPlan, previous: str | None, planned: FieldPlan) -> None:
    items = list(struct.fields.items())
    position = 0 if previous is None else [name for name, _ in items].index(previous) + 1
    items.insert(position, (planned.name, planned))
    struct.fields = dict(items)


def _field_plan(field: Any) -> FieldPlan:
    shape = classify_field(field)
    array = "[]" if shape.is_array else ""
    if isinstance(shape, EntityField | EntityTupleField):
        return FieldPlan(field.name, f"{array}struct", shape.type_.__name__, default=_struct_default(field))
    kafka_type = get_schema_field_type(field)
    name = field.name
    if kafka_type in KIO_TIMES:
        kafka_type, name = KIO_TIMES[kafka_type], name.removesuffix("_ms") + "_ms"
    if kafka_type == "error_code" or (kafka_type == "int16" and name.endswith("error_code")):
        kafka_type = "error"
    return FieldPlan(name, array + kafka_type, None, default=_source(field.default, array + kafka_type))


def _is_nullable(field: Any, kind: str) -> bool:
    """Return whether null can be on the wire: kio also says None for the zero uuid and for the time -1."""
    if kind.startswith("[]"):
        return typing.get_origin(field.type) is types.UnionType
    if kind == "uuid" or field.metadata.get("kafka_type") == "datetime_i64":
        return False
    return bool(is_optional(field))


def _struct_default(field: Any) -> str | None:
    return "None" if field.default is None else None


def _source(value: Any, kind: str) -> str | None:
    """Return a default as Python source; None when kio names none."""
    if value is MISSING or value == ():
        return None
    if kind == "uuid":
        return "ZERO_UUID"
    if value is None:
        return "-1" if kind == "int64" else "None"
    if isinstance(value, datetime.timedelta):
        return str(round(value.total_seconds() * 1000))
    if kind == "error":
        return "Error.NONE" if int(getattr(value, "value", value)) == 0 else None
    if isinstance(value, bool):
        return str(bool(value))
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        return f'"{value}"'
    assert not isinstance(value, uuid.UUID | datetime.datetime), (value, kind)
    return repr(value)


# --- widening


def widen(api: str, plan: MessagePlan) -> None:
    """Add what kio lacks of an API that it has."""
    change = WIDENED.get(api)
    if change is None:
        return
    first_known = plan.versions[0]
    added = [version for version in change["versions"] if version not in plan.versions]
    plan.versions = added + plan.versions
    plan.flexible = added + plan.flexible
    for struct in plan.structs.values():
        for field in struct.fields.values():
            special = change["fields"].get((struct.name, field.name))
            if special:
                field.versions = list(special[1])
            elif first_known in field.versions and field.name != "topic_id":
                field.versions = field.versions + added
        for (owner, name), (kind, versions) in change["fields"].items():
            if owner == struct.name and name not in struct.fields and name == "topic_name":
                struct.fields = {name: FieldPlan(name, kind, None, list(versions)), **struct.fields}


# --- writing


def range_text(versions: list[int], of: list[int]) -> str:
    """Write a contiguous range; open when it reaches the newest version of the message."""
    if not versions:
        return ""
    first, last = min(versions), max(versions)
    assert sorted(set(versions)) == list(range(first, last + 1)), versions
    if last == max(of):
        return f"{first}+"
    return str(first) if first == last else f"{first}-{last}"


def python_type(field: FieldPlan, names: dict[str, str]) -> str:
    """Return the annotation's first half."""
    kind = field.kind.removeprefix("[]")
    base = names[field.struct] if field.struct else PYTHON_TYPES.get(kind, "int")
    if field.is_array:
        base = f"list[{base}]"
    return f"{base} | None" if field.nullable else base


def default_text(field: FieldPlan, names: dict[str, str]) -> str:
    """Return the default's source."""
    if field.default is not None:
        return field.default
    if field.is_array:
        return "[]"
    if field.struct:
        return f"{names[field.struct]}()"
    if field.kind == "records" and field.nullable:
        return "None"
    return IMPLICIT_DEFAULTS.get(field.kind, "0")


def struct_source(struct: StructPlan, plan: MessagePlan, names: dict[str, str]) -> str:
    """Write one class."""
    lines = [f"class {names[struct.name]}(msgspec.Struct, frozen=True, kw_only=True, gc=False):"]
    if struct.name == plan.name:
        lines.append(
            f'    LAYOUT: ClassVar = Layout(key={plan.key}, kind="{plan.kind}", '
            f'versions="{min(plan.versions)}-{max(plan.versions)}", '
            f'flexible="{range_text(plan.flexible, plan.versions)}")'
        )
    for field in struct.fields.values():
        wire = f'"{field.kind}", "{range_text(field.versions, plan.versions)}"'
        if field.nullable:
            wire += f', nullable="{range_text(field.nullable, plan.versions)}"'
        if field.tag >= 0:
            wire += f', tag={field.tag}, tagged="{range_text(field.tagged, plan.versions)}"'
        lines.append(
            f"    {field.name}: Annotated[{python_type(field, names)}, Wire({wire})] = {default_text(field, names)}"
        )
    if len(lines) == 1:
        lines.append("    pass")
    return "\n".join(lines)


def in_order(plan: MessagePlan) -> list[StructPlan]:
    """Return a message's structs, innermost first."""
    done: dict[str, StructPlan] = {}

    def visit(name: str) -> None:
        for field in plan.structs[name].fields.values():
            if field.struct:
                visit(field.struct)
        done.setdefault(name, plan.structs[name])

    visit(plan.name)
    return list(done.values())


def class_names(plans: list[MessagePlan]) -> list[dict[str, str]]:
    """Map kio's struct names to ours, message by message: prefixed where two messages of a module share one."""
    counts: dict[str, int] = {}
    for plan in plans:
        for name in plan.structs:
            counts[name] = counts.get(name, 0) + 1
    return [{name: f"{plan.name}{name}" if counts[name] > 1 else name for name in plan.structs} for plan in plans]


def header(body: str) -> str:
    """Return the imports that a module's body needs."""
    lines = ["from typing import Annotated, ClassVar"]
    if "UUID" in body.replace("ZERO_UUID", ""):
        lines.append("from uuid import UUID")
    lines += ["", "import msgspec", ""]
    if "Error" in re.sub(r"\w+Error|Error\w+", "", body):
        lines.append("from replog.errors import Error")
    if "ZERO_UUID" in body:
        lines.append("from replog.types import ZERO_UUID")
    lines.append("from replog.wire.apis import Api")
    lines.append("from replog.wire.exchange import Exchange")
    lines.append("from replog.wire.layout import Layout, Wire")
    return "\n".join(lines)


def module_source(title: str, plans: list[MessagePlan]) -> str:
    """Write a module of one API: its request, its response and the exchange of the two."""
    parts = []
    for plan, names in zip(plans, class_names(plans), strict=True):
        parts += [struct_source(struct, plan, names) for struct in in_order(plan)]
    body = "\n\n\n".join(parts)
    request, response = plans
    tail = f"EXCHANGE = Exchange(Api.{Api(request.key).name}, {request.name}, {response.name})"
    return f'"""{title}"""\n\n{header(body)}\n\n\n{body}\n\n\n{tail}\n'


def generate(target: Path) -> list[Path]:
    """Write all modules into a folder and format them."""
    written = []
    for key, api in sorted((key, api) for key, api in api_key_map.items() if key in KNOWN_APIS):
        plans = [message_plan(api, "request"), message_plan(api, "response")]
        for plan in plans:
            widen(api, plan)
        versions = f"{min(plans[0].versions)}-{max(plans[0].versions)}"
        title = (
            f"{plans[0].name.removesuffix('Request')} (api key {key}), versions {versions}.\n\n"
            "Generated by tools/generate_messages.py; do not edit.\n"
        )
        path = target / f"{api}.py"
        path.write_text(module_source(title, plans))
        written.append(path)
    settings = Path(__file__).parent.parent / "pyproject.toml"
    format_all = [sys.executable, "-m", "ruff", "format", "-q", "--config", str(settings), *map(str, written)]
    subprocess.run(format_all, check=True)
    return written


def main() -> None:
    """Write all modules to where they belong."""
    print(f"{len(generate(TARGET))} modules in {TARGET}")


if __name__ == "__main__":
    main()
