"""Bank, counter, set, long fork: each with a violation and a neighbour that is fine."""

import pytest

from tribunal.checkers.graphs.operations import paired
from tribunal.checkers.registers.folds import FOLDS


def sequential(*rows):
    events = []
    for function, argument, result in rows:
        events += [
            {"process": 0, "type": "invoke", "f": function, "value": argument},
            {"process": 0, "type": "ok", "f": function, "value": result},
        ]
    return paired(events)


@pytest.mark.parametrize(
    ("model", "rows", "anomalies"),
    [
        pytest.param("bank", [("read", None, {"a": 5, "b": 5}), ("read", None, {"a": 9, "b": 1})], set(), id="moved"),
        pytest.param(
            "bank", [("read", None, {"a": 5, "b": 5}), ("read", None, {"a": 9, "b": 2})], {"wrong-total"}, id="made"
        ),
        pytest.param("counter", [("add", 2, 2), ("read", None, 2)], set(), id="counted"),
        pytest.param("counter", [("add", 2, 2), ("read", None, 1)], {"out-of-bounds"}, id="miscounted"),
        pytest.param("set", [("add", 1, 1), ("read", None, [1])], set(), id="kept"),
        pytest.param("set", [("add", 1, 1), ("read", None, [])], {"lost"}, id="lost"),
        pytest.param("set", [("add", 1, 1), ("read", None, [1, 2])], {"unexpected"}, id="invented"),
        pytest.param(
            "set", [("add", 1, 1), ("add", 2, 2), ("add", 1, 1), ("read", None, [2])], {"lost"}, id="added twice"
        ),
        pytest.param(
            "long-fork",
            [("read", None, [["r", 1, 1], ["r", 2, None]]), ("read", None, [["r", 1, 1], ["r", 2, 2]])],
            set(),
            id="one after the other",
        ),
        pytest.param(
            "long-fork",
            [("read", None, [["r", 1, 1], ["r", 2, None]]), ("read", None, [["r", 1, None], ["r", 2, 2]])],
            {"long-fork"},
            id="fork",
        ),
    ],
)
def test_an_object_is_judged(model, rows, anomalies):
    assert FOLDS[model](sequential(*rows)).anomalies == anomalies


def test_an_element_that_was_added_is_not_forgiven_by_an_unanswered_second_try():
    events = [
        {"process": 0, "type": "invoke", "f": "add", "value": 1},
        {"process": 0, "type": "ok", "f": "add", "value": 1},
        {"process": 1, "type": "invoke", "f": "add", "value": 1},
        {"process": 1, "type": "info", "f": "add", "value": 1},
        {"process": 0, "type": "invoke", "f": "read"},
        {"process": 0, "type": "ok", "f": "read", "value": []},
    ]

    assert FOLDS["set"](paired(events)).anomalies == {"lost"}
