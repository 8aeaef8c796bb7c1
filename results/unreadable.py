"""What a decoder raises on a file that somebody else wrote, whatever is in it, and how a person is told.

msgspec's own errors are not all: text that is not UTF-8 and lists within lists within lists end in Python's. Who reads what others
wrote catches `UNREADABLE`, and says which file it is; `tests/tidy/test_unreadable.py` finds who names only a part of it.

`in_words` is for files that people write (a night, a scenario, a campaign, hosts): a decoder speaks of objects, arrays and `$.a[0]`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
PLACE: Final = re.compile(r" - at (`key` in )?`\$\.?([^`]*)`$")
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


def in_words(problem: Exception) -> str:
    """Say in one line what is wrong with a file that a person wrote, the place first, as it is called in the file."""
    text = " ".join(str(problem).split())
    place = PLACE.search(text)
    sentence = _sentence(text if place is None else text[: place.start()])
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


def _needed(names: str, more: str = "") -> str:
    return f"{_sorts(names)}{more} {'are' if names == 'object' else 'is'} needed"


def _sorts(names: str) -> str:
    """Return what a decoder's name of a sort of value, or of several, is called in a file."""
    return " or ".join(SORTS.get(name, name) for name in names.split(" | ") if name != "null" or names == "null")
