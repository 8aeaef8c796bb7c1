"""Decoding: one flat function per (type, version), generated from the field descriptions and compiled once.

The bytes come from unknown clients. Whatever they are, the outcome is a message or `MalformedMessage`, and the memory taken is
bounded by the frame's size: a length is checked against what is left of the buffer before anything is allocated,
an array's count against the smallest size its items can have, and all items of a message together against
`MAX_ITEMS`, because small items can cost a hundred times their bytes as objects. Records are views into the frame:
nothing is copied.

A generated function is `decode(b, p, end, left) -> (message, position)`; `left` is a one-element list, the number
of items that the message may still have.
"""

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final, TypeVar, cast
from uuid import UUID

import msgspec

from replog.errors import Error
from replog.ports import Buffer
from replog.types import ZERO_UUID
from replog.wire.encoder import FIXED, SHORT_ARRAY, STRING_BYTES_MAX
from replog.wire.layout import Field, fields_of, layout_of

T = TypeVar("T", bound=msgspec.Struct)
Decode = Callable[[Buffer, int, int, list[int]], tuple[msgspec.Struct, int]]

MAX_ITEMS: Final = 1 << 18


class Errors(dict[int, Error]):
    """Errors by code. As in Kafka's clients a code that we do not know yet is UNKNOWN_SERVER_ERROR."""

    def __missing__(self, code: int) -> Error:
        return Error.UNKNOWN_SERVER_ERROR


ERRORS: Final = Errors({int(error): error for error in Error})
MIN_SIZES: Final = {kind: struct.calcsize(">" + code) for kind, code in FIXED.items()}


class MalformedMessage(ValueError):
    """Bytes that are no message of the version they claim to be; the text says why."""


def decode(of: type[T], version: int, data: Buffer, position: int = 0, *, whole: bool = True) -> T:
    """Read a top-level message from `position` on; `whole`: it must reach to the end of the buffer."""
    end = len(data)
    function = decoder_for(of, version)
    try:
        message, position = function(data, position, end, [MAX_ITEMS])
    except MalformedMessage:
        raise
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise MalformedMessage(f"{of.__name__} v{version}: {problem}") from None
    if whole and position != end:
        raise MalformedMessage(f"{of.__name__} v{version}: {end - position} bytes left over")
    return cast(T, message)  # it was compiled for this type


@cache
def decoder_for(top: type[msgspec.Struct], version: int) -> Decode:
    """Return the function for a top-level type in one of its versions."""
    layout = layout_of(top)
    if version not in layout.versions:
        raise MalformedMessage(f"{top.__name__} has no version {version}")
    return compiled_decoder(top, version, version in layout.flexible)


@cache
def compiled_decoder(of: type[msgspec.Struct], version: int, flexible: bool) -> Decode:  # noqa: FBT001
    """Generate and compile the function for a struct."""
    return DecoderSource(of, version, flexible=flexible).compile()


# --- what generated functions call


def read_unsigned_varint(b: Buffer, p: int) -> tuple[int, int]:
    """Read a number of at most 31 bits and return it with the position behind it."""
    try:
        return _unsigned_varint(b, p)
    except IndexError:
        raise MalformedMessage("ends within a number") from None


def skip_tagged_fields(b: Buffer, p: int) -> int:
    """Skip a header's tagged fields and return the position behind them."""
    if p < len(b) and not b[p]:
        return p + 1  # none, as nearly always
    try:
        return _skip_tags(b, p, len(b))
    except IndexError:
        raise MalformedMessage("ends within tagged fields") from None


def _unsigned_varint(b: Buffer, p: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        byte = b[p]
        p += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0x7FFFFFFF:
                raise MalformedMessage("a length beyond 31 bits")
            return value, p
        shift += 7
    raise MalformedMessage("a varint without an end")


def _string_length(b: Buffer, p: int) -> tuple[int, int]:
    """Read a compact string's length, plus one: the varint would have room for more than a string may have."""
    length, p = _unsigned_varint(b, p)
    if length > STRING_BYTES_MAX + 1:
        raise MalformedMessage(f"a string of {length - 1} bytes")
    return length, p


@lru_cache(maxsize=1 << 14)
def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw) if any(raw) else ZERO_UUID


def _skip_tags(b: Buffer, p: int, end: int) -> int:
    """Skip all tagged fields of a struct that knows none."""
    count, p = _unsigned_varint(b, p)
    last = -1
    for _ in range(count):
        tag, p = _unsigned_varint(b, p)
        size, p = _unsigned_varint(b, p)
        if tag <= last or size > end - p:
            raise MalformedMessage("a tagged field out of order or beyond the end")
        last = tag
        p += size
    return p


def _refuse(what: str) -> None:
    raise MalformedMessage(what)


CONVERSIONS: Final = {"uuid": "uuid({})", "error": "errors[{}]"}
RUNTIME: Final[dict[str, object]] = {
    "uv": _unsigned_varint,
    "string_length": _string_length,
    "uuid": _uuid,
    "errors": ERRORS,
    "skip_tags": _skip_tags,
    "refuse": _refuse,
    "unpack_from": struct.unpack_from,
    "view": memoryview,
    "h": struct.Struct(">h").unpack_from,
    "i": struct.Struct(">i").unpack_from,
}


class DecoderSource:
    """The source text of one decoding function, with the names it uses."""

    def __init__(self, of: type[msgspec.Struct], version: int, *, flexible: bool) -> None:
        self.of = of
        self.version = version
        self.flexible = flexible
        self.lines = ["def decode(b, p, end, left):"]
        self.names: dict[str, object] = dict(RUNTIME)
        self.run: list[tuple[str, str]] = []  # (wire type, variable) of fixed-size fields in a row

    def compile(self) -> Decode:
        """Write and compile it."""
        fields = fields_of(self.of, self.version)
        for field in fields:
            if field.tag < 0:
                self._field(field)
        self._end_run()
        if self.flexible:
            self._tagged_fields([field for field in fields if field.tag >= 0])
        made = self._name("made", self.of)
        arguments = ", ".join(f"{field.name}=f_{field.name}" for field in fields)
        self._line("    ", f"return {made}({arguments}), p")
        exec(compile("\n".join(self.lines), f"<decode {self.of.__name__} v{self.version}>", "exec"), self.names)  # noqa: S102
        return cast(Decode, self.names["decode"])

    def _name(self, stem: str, value: object) -> str:
        name = f"{stem}{len(self.names)}"
        self.names[name] = value
        return name

    def _line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)

    def _field(self, field: Field) -> None:
        if not field.is_array and field.kind in FIXED:
            self.run.append((field.kind, f"f_{field.name}"))
            return
        self._end_run()
        self._value(field, f"f_{field.name}", "    ")

    def _end_run(self, indent: str = "    ") -> None:
        if not self.run:
            return
        codes = "".join(FIXED[kind] for kind, _ in self.run)
        unpack = self._name("unpack", struct.Struct(">" + codes).unpack_from)
        self._line(indent, f"{', '.join(name for _, name in self.run)}, = {unpack}(b, p)")
        self._line(indent, f"p += {struct.calcsize('>' + codes)}")
        for kind, name in self.run:
            if kind in CONVERSIONS:
                self._line(indent, f"{name} = {CONVERSIONS[kind].format(name)}")
        self.run = []

    def _value(self, field: Field, name: str, indent: str) -> None:
        """Read a value into the variable `name`."""
        if field.is_array:
            self._array(field, name, indent)
        elif field.kind in FIXED:
            self.run.append((field.kind, name))
            self._end_run(indent)
        elif field.kind == "struct":
            self._struct(field, name, indent)
        else:
            self._length(field.kind, indent)
            self._sized(field, name, indent)

    def _length(self, kind: str, indent: str) -> None:
        """Read a length into `n`; null is -1."""
        if self.flexible:
            self._number("n", indent, "string_length" if kind == "string" else "uv")
            self._line(indent, "n -= 1")
        elif kind == "string":
            self._line(indent, "n, = h(b, p); p += 2")
        else:
            self._line(indent, "n, = i(b, p); p += 4")

    def _sized(self, field: Field, name: str, indent: str) -> None:
        what = f"{self.of.__name__}.{field.name}"
        self._line(indent, "q = p + n")
        self._line(indent, f"if q > end: refuse('{what}: length beyond the end')")
        taken = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "view(b)[p:q]"}[field.kind]
        self._line(indent, f"if n >= 0: {name} = {taken}; p = q")
        self._null(field, name, indent, what)

    def _null(self, field: Field, name: str, indent: str, what: str) -> None:
        if field.nullable:
            self._line(indent, f"elif n == -1: {name} = None")
        self._line(indent, f"else: refuse('{what}: negative length')")

    def _struct(self, field: Field, name: str, indent: str) -> None:
        assert field.struct is not None
        decode = self._name("decode", compiled_decoder(field.struct, self.version, self.flexible))
        if field.nullable:
            self._line(indent, f"{name} = None; p += 1")
            self._line(indent, f"if b[p - 1] < 128: {name}, p = {decode}(b, p, end, left)")
        else:
            self._line(indent, f"{name}, p = {decode}(b, p, end, left)")

    def _array(self, field: Field, name: str, indent: str) -> None:
        what = f"{self.of.__name__}.{field.name}"
        self._length("array", indent)
        self._line(indent, "if n > 0:")
        inner = indent + "    "
        if field.kind in MIN_SIZES and field.kind not in CONVERSIONS:
            # Short arrays of numbers are not counted: their owner is.
            unpacks = [struct.Struct(f">{n}{FIXED[field.kind]}").unpack_from for n in range(SHORT_ARRAY)]
            self._line(inner, f"if n < {SHORT_ARRAY}: {name} = list({self._name('unpacks', unpacks)}[n](b, p))")
            self._line(inner, "else:")
            self._count(field, what, inner + "    ")
            self._line(inner, f"    {name} = list(unpack_from('>%d{FIXED[field.kind]}' % n, b, p))")
            self._line(inner, f"p += n * {MIN_SIZES[field.kind]}")
        else:
            self._count(field, what, inner)
            self._items(field, name, inner)
        self._line(indent, f"elif n == 0: {name} = []")
        self._null(field, name, indent, what)

    def _count(self, field: Field, what: str, indent: str) -> None:
        smallest = self._smallest(field)
        self._line(
            indent, f"if n > left[0] or n * {smallest} > end - p: refuse('{what}: more items than there can be')"
        )
        self._line(indent, "left[0] -= n")

    def _items(self, field: Field, name: str, indent: str) -> None:
        if field.kind == "struct":
            assert field.struct is not None
            decode = self._name("decode", compiled_decoder(field.struct, self.version, self.flexible))
            self._line(indent, f"{name} = []; add = {name}.append")
            self._line(indent, "for _ in range(n):")
            self._line(indent, f"    item, p = {decode}(b, p, end, left); add(item)")
        elif field.kind in CONVERSIONS:
            code = FIXED[field.kind]
            converted = CONVERSIONS[field.kind].format("item")
            self._line(indent, f"{name} = [{converted} for item in unpack_from('>' + '{code}' * n, b, p)]")
            self._line(indent, f"p += n * {MIN_SIZES[field.kind]}")
        else:
            self._line(indent, f"{name} = []; add = {name}.append")
            self._line(indent, "for _ in range(n):")
            self._length(field.kind, indent + "    ")
            self._sized(field._replace(nullable=False), "item", indent + "    ")
            self._line(indent, "    add(item)")

    def _smallest(self, field: Field) -> int:
        """Return the fewest bytes that an item can take."""
        if field.kind in MIN_SIZES:
            return MIN_SIZES[field.kind]
        if field.struct is None:
            return 1 if self.flexible else 2 if field.kind == "string" else 4
        return max(1, smallest_size(field.struct, self.version, self.flexible))

    def _tagged_fields(self, fields: list[Field]) -> None:
        """Read known tagged fields, skip others; tags must ascend (KIP-482)."""
        if not fields:
            self._line("    ", "if b[p] == 0: p += 1")
            self._line("    ", "else: p = skip_tags(b, p, end)")
            return
        for field in fields:
            default = self._name("default", field.default)
            empty = field.is_array and field.default is not None
            self._line("    ", f"f_{field.name} = {'[]' if empty else default}")
        self._line("    ", "if b[p] == 0: p += 1")
        self._line("    ", "else:")
        self._known_tags(fields, "        ")

    def _known_tags(self, fields: list[Field], indent: str) -> None:
        inner = indent + "    "
        self._number("count", indent)
        self._line(indent, "last = -1; whole = end")
        self._line(indent, "for _ in range(count):")
        self._number("tag", inner)
        self._number("size", inner)
        self._line(inner, "if tag <= last or size > whole - p: refuse('a tagged field out of order or beyond the end')")
        self._line(inner, "last = tag; end = p + size")
        for number, field in enumerate(fields):
            self._line(inner, f"{'el' if number else ''}if tag == {field.tag}:")
            self._value(field, f"f_{field.name}", inner + "    ")
        self._line(inner, "else: p = end")
        self._line(inner, "if p != end: refuse('a tagged field of another length than it says')")
        self._line(indent, "end = whole")

    def _number(self, name: str, indent: str, longer: str = "uv") -> None:
        """Read a varint, which mostly is one byte."""
        self._line(indent, f"{name} = b[p]; p += 1")
        self._line(indent, f"if {name} > 127: {name}, p = {longer}(b, p - 1)")


@cache
def smallest_size(of: type[msgspec.Struct], version: int, flexible: bool) -> int:  # noqa: FBT001
    """Return the fewest bytes that a struct can take."""
    total = 1 if flexible else 0
    for field in fields_of(of, version):
        if field.tag >= 0:
            continue
        if field.is_array:
            total += 1 if flexible else 4
        elif field.kind in MIN_SIZES:
            total += MIN_SIZES[field.kind]
        elif field.struct is not None:
            total += 1 if field.nullable else smallest_size(field.struct, version, flexible)
        else:
            total += 1 if flexible else 2 if field.kind == "string" else 4
    return total
