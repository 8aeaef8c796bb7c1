"""One place says which word was meant: a command, a scenario and the file of a system answer a mistyped word alike."""

import pytest

from tribunal.clusters.systems.description import _known_placeholders
from tribunal.harness.catalog import nearest
from tribunal.results.near_words import MOST_NAMED, hint
from tribunal.results.unreadable import _hint

FAR = [f"number-{number}" for number in range(MOST_NAMED + 1)]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        pytest.param("prot", "did you mean port?", id="near"),
        pytest.param("PORT", "did you mean port?", id="other letters"),
        pytest.param("hose", "did you mean host?", id="another one"),
        pytest.param("zzz", "known: host, port", id="none is near"),
    ],
)
def test_all_places_answer_alike(word, said):
    known = ["port", "host"]

    assert hint(word, known) == said
    assert str(nearest("word", word, known)).endswith(f"; {said}")
    assert _hint(f"Object contains unknown field `{word}`", tuple(known)) == f"; {said}"
    if said.startswith("did"):
        assert _known_placeholders(f"{{{word}}}", (), ()).replace("{", "").replace("}", "") == said


def test_of_many_words_not_all_are_named():
    assert hint("zzz", FAR).endswith(", ...")
    assert hint("zzz", FAR[:-1]).count("number") == MOST_NAMED
    assert hint("zzz", []) == "known: none"
    assert str(nearest("fault", "zzz", FAR)) == "unknown fault 'zzz'; `tribunal list faults` names all of them"
