"""What a decoder raises on a file that somebody else wrote, whatever is in it, and how a person is told.

msgspec's own errors are not all: text that is not UTF-8 and lists within lists within lists end in Python's. Who reads what others
wrote catches `UNREADABLE`, and says which file it is; `tests/tidy/test_unreadable.py` finds who names only a part of it.

`in_words` is for files that people write (a night, a scenario, a campaign, hosts): a decoder speaks of objects, arrays and `$.a[0]`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import inspect

from tribunal.results.near_words import hint

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
PLACE: Final = re.compile(r" - at (`key` in )?`\$\.?([^`]*)`$")
STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
SORTS: Final[Mapping[str, str]] = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "names with values",
    "null": "nothing",
}
SENTENCES: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"Object missing required field `(.+)`"), lambda found: f"`{found[1]}` is missing"),
    (re.compile(r"Object contains unknown field `(.+)`"), lambda found: f"unknown field `{found[1]}`"),
    (re.compile(r"Invalid enum value (.+)"), lambda found: f"{found[1]} is none of the words that may stand here"),
    (
        re.compile(r"Expected `(\w+)` of length (.+), got (\d+)"),
        lambda found: f"{_needed(found[1], f' of length {found[2]}')}; its length is {found[3]}",
    ),
    (
        re.compile(r"Expected `([^`]+)`, got `(.+)`"),
        lambda found: f"{_needed(found[1])}, not {_sorts(found[2])}",
    ),
    (re.compile(r"Expected `([^`]+)`( .+)?"), lambda found: _needed(found[1], found[2] or "")),
)


def in_words(problem: Exception, wanted: type | None = None) -> str:
    """Say in one line what is wrong with a file that a person wrote, the place first, as it is called in the file.

    wanted:  what the file was to be: then it is said as well which names or words may stand there.
    """
    text = " ".join(str(problem).split())
    place = PLACE.search(text)
    bare = text if place is None else text[: place.start()]
    known = (
        ()
        if wanted is None
        else _known(wanted, "" if place is None else place[2], bare, is_name=bool(place and place[1]))
    )
    sentence = _sentence(bare) + _hint(bare, known)
    if place is None:
        return sentence
    inside = place[2].replace("[...]", ": one of its values")
    where = f"a name in {inside or 'the file'}" if place[1] else inside or "the file"
    return f"{where}: {sentence}"


def _sentence(text: str) -> str:
    for pattern, words in SENTENCES:
        if (found := pattern.fullmatch(text)) is not None:
            return words(found)
    return text


def _known(wanted: type, place: str, text: str, *, is_name: bool) -> tuple[str, ...]:
    """Return what may stand in a place of a file instead of what does; nothing where that is no matter of names."""
    is_field = text.startswith("Object contains unknown field")
    if not is_field and not text.startswith("Invalid enum value"):
        return ()
    kinds = [inspect.type_info(wanted)]
    for step in STEP.finditer(place):
        kinds = [inner for kind in kinds for inner in _inside(kind, step[1])]
    if is_name:
        kinds = [kind.key_type for outer in kinds for kind in _plain(outer) if isinstance(kind, inspect.DictType)]
    names = (name for outer in kinds for kind in _plain(outer) for name in _names(kind, is_field=is_field))
    return tuple(dict.fromkeys(names))


def _plain(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield what a type is, or may be."""
    if isinstance(kind, inspect.Metadata):
        yield from _plain(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _plain(one)
    else:
        yield kind


def _inside(outer: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """Yield of what type something in a value is: of this name, or (None) an element."""
    for kind in _plain(outer):
        if isinstance(kind, inspect.StructType):
            yield from (field.type for field in kind.fields if field.encode_name == name)
        elif isinstance(kind, inspect.DictType):
            yield kind.value_type
        elif isinstance(kind, inspect.TupleType):
            yield from kind.item_types
        elif isinstance(kind, inspect.CollectionType):
            yield kind.item_type


def _names(kind: inspect.Type, *, is_field: bool) -> Iterator[str]:
    if is_field and isinstance(kind, inspect.StructType):
        yield from (field.encode_name for field in kind.fields)
    elif not is_field and isinstance(kind, inspect.EnumType):
        yield from (str(one.value) for one in kind.cls)
    elif not is_field and isinstance(kind, inspect.LiteralType):
        yield from map(str, kind.values)


def _hint(text: str, known: tuple[str, ...]) -> str:
    """Say which names are near, or all that there are."""
    if not known:
        return ""
    stands = re.sub(r"^[^`']*[`'](.*)[`']$", r"\1", text)
    return f"; {hint(stands, known)}"


def _needed(names: str, more: str = "") -> str:
    return f"{_sorts(names)}{more} {'are' if names == 'object' else 'is'} needed"


def _sorts(names: str) -> str:
    """Return what a decoder's name of a sort of value, or of several, is called in a file."""
    return " or ".join(SORTS.get(name, name) for name in names.split(" | ") if name != "null" or names == "null")
