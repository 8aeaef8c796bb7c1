"""How a field of a message lies on the wire, in Kafka's own words.

A message type is a `msgspec.Struct` with the union of all versions' fields, in wire order. Each field says its
wire type and the versions that have it (`Annotated[int, Wire("int32", "4+")]`), and a top-level type says its key
and versions (`LAYOUT`). `encoder.py` and `decoder.py` read these once per (type, version) and compile a function.

Version ranges are written as in Kafka's schemas: `"3"`, `"0-3"`, `"4+"`, `""` for none. Wire types are Kafka's
(`int8` ... `uuid`, `string`, `bytes`, `records`) plus `error` (an int16 that is an `Error`) and `struct`; `[]` in front
makes an array.
"""

import types
from typing import Annotated, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

UNBOUNDED: Final = 1 << 15


class VersionRange(NamedTuple):
    """The versions `first` to `last`, both included; `NO_VERSIONS` holds none."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS: Final = VersionRange(0, -1)


def version_range(text: str) -> VersionRange:
    """Parse `"3"`, `"0-3"`, `"4+"` or `""`."""
    if not text:
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), UNBOUNDED)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


class Wire:
    """One field's wire type, and in which versions it exists, may be null, and travels as a tagged field."""

    __slots__ = ("kind", "nullable", "tag", "tagged", "versions")

    def __init__(self, kind: str, versions: str, *, nullable: str = "", tag: int = -1, tagged: str = "") -> None:
        self.kind = kind
        self.versions = version_range(versions)
        self.nullable = version_range(nullable)
        self.tag = tag
        self.tagged = version_range(tagged)


class Layout:
    """What a top-level type is: its api or record key (-1: none), its versions, the flexible ones among them.

    levels:  of a metadata record with several versions: (from this metadata version on, this version is written), newest
             first. Versions beyond belong to metadata versions that this software does not know.
    """

    __slots__ = ("flexible", "key", "kind", "levels", "versions")

    def __init__(
        self, *, key: int, kind: str, versions: str, flexible: str, levels: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.key = key
        self.kind = kind
        self.versions = version_range(versions)
        self.flexible = version_range(flexible)
        self.levels = levels


class Field(NamedTuple):
    """A field as one version has it."""

    name: str
    kind: str  # wire type of the value, or of the items of an array
    is_array: bool
    nullable: bool
    tag: int  # -1: not a tagged field
    default: object
    struct: type[msgspec.Struct] | None


def fields_of(struct: type[msgspec.Struct], version: int) -> list[Field]:
    """Return the fields that this version of a struct has, in wire order, tagged ones last by tag."""
    hints = get_type_hints(struct, include_extras=True)
    found = [
        _field(member, hints[member.name], version)
        for member in msgspec.structs.fields(struct)
        if version in _wire(hints[member.name]).versions
    ]
    plain = [field for field in found if field.tag < 0]
    return plain + sorted((field for field in found if field.tag >= 0), key=lambda field: field.tag)


def layout_of(struct: type[msgspec.Struct]) -> Layout:
    """Return a top-level type's layout."""
    layout: Layout = struct.LAYOUT  # type: ignore[attr-defined]
    return layout


def _wire(hint: object) -> Wire:
    assert get_origin(hint) is Annotated, hint
    wire = get_args(hint)[1]
    assert isinstance(wire, Wire), hint
    return wire


def _field(member: msgspec.structs.FieldInfo, hint: object, version: int) -> Field:
    wire = _wire(hint)
    kind = wire.kind.removeprefix("[]")
    return Field(
        name=member.name,
        kind=kind,
        is_array=wire.kind.startswith("[]"),
        nullable=version in wire.nullable,
        tag=wire.tag if version in wire.tagged else -1,
        default=_default(member),
        struct=_struct_in(get_args(hint)[0]) if kind == "struct" else None,
    )


def _default(member: msgspec.structs.FieldInfo) -> object:
    if member.default is not msgspec.NODEFAULT:
        return member.default
    assert member.default_factory is not msgspec.NODEFAULT, member.name
    return member.default_factory()


def _struct_in(annotation: object) -> type[msgspec.Struct]:
    """Return the struct class inside `X`, `X | None`, `list[X]` or `list[X] | None`."""
    if get_origin(annotation) in (types.UnionType, Union):
        annotation = next(part for part in get_args(annotation) if part is not types.NoneType)
    if get_origin(annotation) is list:
        annotation = get_args(annotation)[0]
    assert isinstance(annotation, type), annotation
    assert issubclass(annotation, msgspec.Struct), annotation
    return annotation
