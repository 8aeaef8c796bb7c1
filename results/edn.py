"""EDN, the notation of Clojure's data, as far as histories use it: read into plain values, and written.

Keywords become text without their colon, characters text, sets and lists become lists, tagged values (`#tag value`) their
value, `N` and `M` numbers plain ones. Text comes from others: whatever is not EDN raises `NotEdn` with line and column.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

# What EDN and JSON can say. Of a map the keys are text in JSON, and whatever can be hashed in EDN.
Key: TypeAlias = "bool | int | float | str | tuple[Key, ...] | None"
Value: TypeAlias = "bool | int | float | str | Sequence[Value] | Mapping[str, Value] | Mapping[Key, Value] | None"

DEPTH_MOST: Final = 200
TOKEN: Final = re.compile(
    r"""(?:[\s,]|;[^\n]*)+|(?P<open>\#?\{|[\[(])|(?P<close>[\])}])|(?P<text>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<discard>\#_)|(?P<char>\\(?:[a-z]+[0-9a-f]*|[^\s]))|(?P<tag>\#[^\s,()\[\]{}"]+)|(?P<word>[^\s,()\[\]{}";]+)""",
    re.DOTALL,
)
NUMBER: Final = re.compile(r"[+-]?\d{1,400}[NM]?|[+-]?\d{1,400}(?:\.\d*)?(?:[eE][+-]?\d{1,3})?M?")
CLOSING: Final = {"{": "}", "#{": "}", "[": "]", "(": ")"}
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]{1,40}")
CHARACTERS: Final = {"newline": "\n", "space": " ", "tab": "\t", "return": "\r"}
CONSTANTS: Final = {"nil": None, "true": True, "false": False}
KEYWORD: Final = re.compile(r"[A-Za-z*+!_?<>=$&%.-][\w*+!?<>=$&%.#:/'-]*")


class NotEdn(ValueError):
    """Text that is not EDN: where, and what is wrong."""


class _End:
    """A closing bracket or the end of the text, where a value could stand."""

    def __init__(self, bracket: str) -> None:
        self.bracket = bracket


def values(text: str) -> Iterator[Value]:
    """Yield the values that stand one after the other. Raises NotEdn."""
    reader = _Reader(text)
    while not isinstance(value := reader.value(0), _End):
        yield value
    if value.bracket:
        raise reader.wrong(f"`{value.bracket}` closes nothing")


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def wrong(self, what: str) -> NotEdn:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        return NotEdn(f"line {line}, column {column}: {what}")

    def value(self, depth: int) -> "Value | _End":
        """Return the next value, or an `_End`."""
        if depth > DEPTH_MOST:
            raise self.wrong(f"nested deeper than {DEPTH_MOST}")
        while self._at < len(self._text):
            found = TOKEN.match(self._text, self._at)
            if found is None:
                raise self.wrong("a text that does not end" if self._text[self._at] == '"' else "not EDN")
            if found.lastgroup is None:
                self._at = found.end()
                continue
            if found.lastgroup == "close":
                return _End(found[0])
            self._at = found.end()
            if found.lastgroup == "discard":
                self._needed(depth)
                continue
            return self._read(found, depth)
        return _End("")

    def _read(self, found: re.Match[str], depth: int) -> Value:
        token = found[0]
        match found.lastgroup:
            case "open":
                return self._collection(token, depth)
            case "text":
                return _without_halves(ESCAPE.sub(_unescaped, token[1:-1]))
            case "char":
                return CHARACTERS.get(token[1:], token[1:])
            case "tag":
                return self._needed(depth)
            case _:
                return self._word(token)

    def _needed(self, depth: int) -> Value:
        value = self.value(depth + 1)
        if isinstance(value, _End):
            raise self.wrong("a value is missing")
        return value

    def _collection(self, bracket: str, depth: int) -> Value:
        items: list[Value] = []
        while not isinstance(item := self.value(depth + 1), _End):
            items.append(item)
        if item.bracket != CLOSING[bracket]:
            raise self.wrong(
                f"`{bracket}` is closed by `{item.bracket}`" if item.bracket else f"`{bracket}` stays open"
            )
        self._at += 1
        if bracket != "{":
            return items
        if len(items) % 2:
            raise self.wrong("a map with a key that has no value")
        return {_as_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)}

    def _word(self, word: str) -> Value:
        if word in CONSTANTS:
            return CONSTANTS[word]
        if NUMBER.fullmatch(word):
            plain = word.rstrip("NM")
            return int(plain) if plain.lstrip("+-").isdecimal() else float(plain)
        if HEXADECIMAL.fullmatch(word):
            return int(word, 16)
        name = word.removeprefix(":")
        if KEYWORD.fullmatch(name) or (word != name and name):
            return name
        raise self.wrong(f"`{word[:40]}` is not EDN")


def _unescaped(escape: re.Match[str]) -> str:
    word = escape[1]
    return chr(int(word[1:], 16)) if len(word) == 5 else ESCAPES.get(word, word)


def _without_halves(text: str) -> str:
    """Put halves of a character beyond 16 bits together; a half alone becomes the replacement character."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _as_key(key: Value) -> Key:
    match key:
        case None | bool() | int() | float() | str():
            return key
        case Mapping():
            return str(key)
        case _:
            return tuple(map(_as_key, key))


class Keyword:
    """A word that is written with a colon."""

    def __init__(self, name: str) -> None:
        self.name = name


Written: TypeAlias = "Value | Keyword | Sequence[Written] | Mapping[Keyword, Written]"


def written(value: Written) -> str:
    """Return a value as EDN; words that are keywords there are given as `Keyword`."""
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        case Keyword():
            return f":{value.name}"
        case Mapping():
            return "{" + ", ".join(f"{written(key)} {written(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + " ".join(map(written, value)) + "]"
        case _:
            raise TypeError(f"no EDN for {type(value).__name__}")
