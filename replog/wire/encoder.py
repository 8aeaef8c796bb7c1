"""Encoding: one flat function per (type, version), generated from the field descriptions and compiled once.

kio's writer walks a message field by field at run time; a generated function has no decisions left but the data's,
packs runs of fixed-size fields with one `struct` call, and was measured 5 to 10 times faster with the same bytes.

A generated function takes a message and the list's `append`; big parts (records) go in uncopied and are joined once.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Final, cast

import msgspec

from replog.ports import Buffer
from replog.wire.layout import Field, fields_of, layout_of

Append = Callable[[Buffer], None]
Encode = Callable[[msgspec.Struct, Append], None]

FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
    "error": "h",
    "uuid": "16s",
}
SHORT_ARRAY: Final = 16
WORDS: Final = "error_message"  # the field's name in every answer
STRING_BYTES_MAX: Final = 32767  # of compact strings too: Kafka's readers take no longer ones
SMALL_VARINTS: Final = tuple(bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(1 << 14))


def unsigned_varint(value: int) -> bytes:
    """Return a number in groups of seven bits, least significant first."""
    if value < 1 << 14:
        return SMALL_VARINTS[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def cut_words(text: str) -> bytes:
    """Return words for people, which may quote what a client sent, as far as a string can hold them."""
    encoded = text.encode()
    if len(encoded) <= STRING_BYTES_MAX:
        return encoded
    return encoded[:STRING_BYTES_MAX].decode(errors="ignore").encode()


@cache
def encoder_for(top: type[msgspec.Struct], version: int) -> Encode:
    """Return the function for a top-level type in one of its versions."""
    layout = layout_of(top)
    assert version in layout.versions, f"{top.__name__} has no version {version}"
    return compiled_encoder(top, version, version in layout.flexible)


@cache
def compiled_encoder(of: type[msgspec.Struct], version: int, flexible: bool) -> Encode:  # noqa: FBT001
    """Generate and compile the function for a struct."""
    return EncoderSource(of, version, flexible=flexible).compile()


class EncoderSource:
    """The source text of one encoding function, with the names it uses."""

    def __init__(self, of: type[msgspec.Struct], version: int, *, flexible: bool) -> None:
        self.of = of
        self.version = version
        self.flexible = flexible
        self.lines = ["def encode(m, append):"]
        self.names: dict[str, object] = {
            "uv": unsigned_varint,
            "small": SMALL_VARINTS,
            "pack": struct.pack,
            "cut": cut_words,
        }
        self.run: list[tuple[str, str]] = []  # (struct format, expression) of fixed-size fields in a row

    def compile(self) -> Encode:
        """Write and compile it."""
        fields = fields_of(self.of, self.version)
        for field in fields:
            if field.tag < 0:
                self._field(field)
        if self.flexible:
            self._tagged_fields([field for field in fields if field.tag >= 0])
        self._end_run()
        if len(self.lines) == 1:
            self.lines.append("    pass")
        exec(compile("\n".join(self.lines), f"<encode {self.of.__name__} v{self.version}>", "exec"), self.names)  # noqa: S102
        return cast(Encode, self.names["encode"])

    def _name(self, stem: str, value: object) -> str:
        name = f"{stem}{len(self.names)}"
        self.names[name] = value
        return name

    def _field(self, field: Field) -> None:
        if not field.is_array and field.kind in FIXED:
            self.run.append((FIXED[field.kind], _fixed_expression(field.kind, f"m.{field.name}")))
            return
        self._end_run()
        self.lines.append(f"    v = m.{field.name}")
        self._value(field, "    ")

    def _end_run(self) -> None:
        if not self.run:
            return
        formats = "".join(code for code, _ in self.run)
        pack = self._name("pack", struct.Struct(">" + formats).pack)
        self.lines.append(f"    append({pack}({', '.join(expression for _, expression in self.run)}))")
        self.run = []

    def _value(self, field: Field, indent: str) -> None:
        """Write `v`, which is not of fixed size."""
        if field.is_array:
            self._array(field, indent)
        elif field.kind == "struct":
            encode = self._struct(field)
            if field.nullable:
                self._line(indent, r"if v is None: append(b'\xff')")
                self._line(indent, rf"else: append(b'\x01'); {encode}(v, append)")
            else:
                self._line(indent, f"{encode}(v, append)")
        else:
            self._sized(field.kind, indent, nullable=field.nullable, is_words=field.name == WORDS)

    def _struct(self, field: Field) -> str:
        assert field.struct is not None
        return self._name("encode", compiled_encoder(field.struct, self.version, self.flexible))

    def _sized(self, kind: str, indent: str, *, nullable: bool, is_words: bool = False) -> None:
        """Write a string, bytes or records in `v`, behind its length. is_words: too long a text is cut."""
        if nullable:
            self._line(indent, f"if v is None: append({self._null(kind)})")
            self._line(indent, "else:")
            indent += "    "
        if kind == "string":
            self._line(indent, "v = cut(v)" if is_words else "v = v.encode()")
        if self.flexible:
            self._line(indent, "n = len(v) + 1")
            self._line(indent, "append(small[n] if n < 16384 else uv(n)); append(v)")
            return
        length = self._name("length", struct.Struct(">h" if kind == "string" else ">i").pack)
        self._line(indent, f"append({length}(len(v))); append(v)")

    def _null(self, kind: str) -> str:
        if self.flexible:
            return r"b'\x00'"
        return r"b'\xff\xff'" if kind == "string" else r"b'\xff\xff\xff\xff'"

    def _array(self, field: Field, indent: str) -> None:
        if field.nullable:
            self._line(indent, f"if v is None: append({self._null('array')})")
            self._line(indent, "else:")
            indent += "    "
        if field.kind in FIXED and field.kind != "uuid":
            self._numbers(field.kind, indent)
            return
        self._count(indent)
        if field.kind == "struct":
            self._line(indent, f"for item in v: {self._struct(field)}(item, append)")
        elif field.kind == "uuid":
            self._line(indent, "for item in v: append(item.bytes)")
        else:
            self._line(indent, "for v in v:")
            self._sized(field.kind, indent + "    ", nullable=False)

    def _count(self, indent: str) -> None:
        if self.flexible:
            self._line(indent, "n = len(v) + 1")
            self._line(indent, "append(small[n] if n < 16384 else uv(n))")
        else:
            self._line(indent, f"append({self._name('length', struct.Struct('>i').pack)}(len(v)))")

    def _numbers(self, kind: str, indent: str) -> None:
        """Write an array of numbers: a short one, as replicas and ISRs are, with its count in one piece."""
        count_code = "B" if self.flexible else "i"
        packs = [struct.Struct(f">{count_code}{n}{FIXED[kind]}").pack for n in range(SHORT_ARRAY)]
        self._line(indent, "n = len(v)")
        count = "n + 1" if self.flexible else "n"
        self._line(indent, f"if n < {SHORT_ARRAY}: append({self._name('packs', packs)}[n]({count}, *v))")
        self._line(indent, "else:")
        self._count(indent + "    ")
        self._line(indent + "    ", f"append(pack('>%d{FIXED[kind]}' % len(v), *v))")

    def _tagged_fields(self, fields: list[Field]) -> None:
        """Write the tagged fields whose values differ from their defaults, in the order of their tags."""
        if not fields:
            self.run.append(("B", "0"))
            return
        self._end_run()
        self._line("    ", "tags = None")
        for field in fields:
            default = self._name("default", field.default)
            self._line("    ", f"v = m.{field.name}")
            self._line("    ", f"if v is not {default} and v != {default}:")
            self._line("        ", "outer = append; value = []; append = value.append")
            self._tagged_value(field)
            self._line("        ", "append = outer; value = b''.join(value)")
            self._line("        ", "if tags is None: tags = []")
            length = "small[n] if n < 16384 else uv(n)"
            self._line("        ", f"n = len(value); tags += ({unsigned_varint(field.tag)!r}, {length}, value)")
        self._line("    ", r"if tags is None: append(b'\x00')")
        self._line("    ", "else: append(small[len(tags) // 3]); append(b''.join(tags))")

    def _tagged_value(self, field: Field) -> None:
        indent = "        "
        if field.is_array or field.kind not in FIXED:
            self._value(field, indent)
        else:
            pack = self._name("pack", struct.Struct(">" + FIXED[field.kind]).pack)
            self._line(indent, f"append({pack}({_fixed_expression(field.kind, 'v')}))")

    def _line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)


def _fixed_expression(kind: str, value: str) -> str:
    return f"{value}.bytes" if kind == "uuid" else value
