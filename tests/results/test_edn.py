"""EDN as histories use it: read, written, and refused with the place where it goes wrong."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribunal.results import edn

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("{:type :ok, :f :txn}", {"type": "ok", "f": "txn"}, id="keywords"),
        pytest.param("[[:append 1 2] [:r 1 nil]]", [["append", 1, 2], ["r", 1, None]], id="steps"),
        pytest.param('#jepsen.history.Op{:index 3, :time 12}', {"index": 3, "time": 12}, id="tagged record"),
        pytest.param("(1 2N -3 4.5M) ; end", [1, 2, -3, 4.5], id="numbers"),
        pytest.param("#{1} ", [1], id="set"),
        pytest.param("[#_ [1 2] 3]", [3], id="discarded"),
        pytest.param(r'["a\"b\n" \a \newline]', ['a"b\n', "a", "\n"], id="text and characters"),
        pytest.param("{:value {0 [[0 1]]}}", {"value": {0: [[0, 1]]}}, id="map with numbers as keys"),
    ],
)  # fmt: skip
def test_edn_is_read(text: str, value: Any) -> None:
    assert list(edn.values(text)) == [value]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("{:a", "stays open", id="open map"),
        pytest.param("[1}", r"`\[` is closed by `}`", id="wrong bracket"),
        pytest.param("]", "closes nothing", id="bracket alone"),
        pytest.param('["abc', "does not end", id="open text"),
        pytest.param("{:a}", "no value", id="half a pair"),
        pytest.param("#tag", "missing", id="tag of nothing"),
        pytest.param("[" * 5000, "nested deeper", id="deep"),
        pytest.param("\n  ^", "line 2, column", id="place"),
    ],
)
def test_what_is_not_edn_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(edn.NotEdn, match=reason):
        list(edn.values(text))


@given(VALUES)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert list(edn.values(edn.written(value))) == [value]


@given(st.text(alphabet='[]{}()#_:;"\\ 1a,\n', max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(edn.NotEdn):
        list(edn.values(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('"\\u00e9\\n"', "é\n", id="escapes"),
        pytest.param('#object[java.lang.Thread 0x3f "t"]', ["java.lang.Thread", 63, "t"], id="an object of Java's"),
        pytest.param("#jepsen.history.Op{:index 0}", {"index": 0}, id="a tag nobody registered"),
    ],
)
def test_what_jepsen_writes(text: str, value: object) -> None:
    assert list(edn.values(text)) == [value]


@pytest.mark.parametrize("text", ["##NaN", "1/2", "##Inf"])
def test_numbers_that_no_operation_holds(text: str) -> None:
    with pytest.raises(edn.NotEdn, match="line 1"):
        list(edn.values(text))
