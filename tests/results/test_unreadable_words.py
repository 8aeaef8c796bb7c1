"""What is wrong with a file that a person wrote is said in a file's words: the place, what is needed, what stands there."""

from enum import StrEnum
from typing import Annotated

import msgspec
import pytest

from tribunal.results.unreadable import in_words


class Colour(StrEnum):
    RED = "red"


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """What a file may have inside."""

    rate: float = 1.0
    pair: tuple[int, int] = (1, 2)
    colour: Colour = Colour.RED
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    several: int | str | None = None


class File(msgspec.Struct, forbid_unknown_fields=True):
    """A file of this test."""

    name: str
    parts: tuple[Part, ...] = ()
    weights: dict[str, int] = {}
    by_colour: dict[Colour, int] = {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param({}, "`name` is missing", id="missing"),
        pytest.param({"name": "a", "nmae": "b"}, "unknown field `nmae`", id="unknown"),
        pytest.param({"name": 1}, "name: a text is needed, not a whole number", id="sort"),
        pytest.param({"name": None}, "name: a text is needed, not nothing", id="nothing"),
        pytest.param([], "names with values are needed, not a list", id="the whole file"),
        pytest.param({"name": "a", "parts": [{}, {"rate": "x"}]}, "parts[1].rate: a number is needed, not a text", id="inside"),
        pytest.param({"name": "a", "parts": [{"pair": [1]}]}, "parts[0].pair: a list of length 2 is needed; its length is 1", id="length"),
        pytest.param({"name": "a", "parts": [{"colour": "rde"}]}, "parts[0].colour: 'rde' is none of the words that may stand here", id="word"),
        pytest.param({"name": "a", "parts": [{"count": 0}]}, "parts[0].count: a whole number >= 1 is needed", id="bound"),
        pytest.param({"name": "a", "parts": [{"several": []}]}, "parts[0].several: a whole number or a text is needed, not a list", id="one of two"),
        pytest.param({"name": "a", "weights": {"x": True}}, "weights: one of its values: a whole number is needed, not true or false", id="of a mapping"),
        pytest.param({"name": "a", "by_colour": {"rde": 1}}, "a name in by_colour: 'rde' is none of the words that may stand here", id="name"),
    ],
)  # fmt: skip
def test_a_person_reads_where_and_what(content: object, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as problem:
        msgspec.convert(content, File)

    assert in_words(problem.value) == words


def test_what_another_library_says_stays_as_it_is_in_one_line() -> None:
    assert in_words(ValueError("Expected a month\n  (at line 3)")) == "Expected a month (at line 3)"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param({"name": "a", "nmae": "b"}, "unknown field `nmae`; did you mean name?", id="a name that is near"),
        pytest.param({"name": "a", "zz": "b"}, "unknown field `zz`; known: by_colour, name, parts, weights", id="none is near"),
        pytest.param({"name": "a", "parts": [{}, {"coluor": "red"}]}, "parts[1]: unknown field `coluor`; did you mean colour?", id="inside"),
        pytest.param({"name": "a", "parts": [{"colour": "rde"}]}, "parts[0].colour: 'rde' is none of the words that may stand here; did you mean red?", id="word"),
        pytest.param({"name": "a", "by_colour": {"green": 1}}, "a name in by_colour: 'green' is none of the words that may stand here; known: red", id="name"),
        pytest.param({"name": 1}, "name: a text is needed, not a whole number", id="no matter of names"),
    ],
)  # fmt: skip
def test_a_person_reads_what_may_stand_there(content: object, words: str) -> None:
    """It was said that a word is none of those that may stand there, and not which they are."""
    with pytest.raises(msgspec.ValidationError) as problem:
        msgspec.convert(content, File)

    assert in_words(problem.value, File) == words
