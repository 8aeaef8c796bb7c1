"""Figures of a checker of anybody: all of them are shown, as text."""

import pytest

from tribunal.results.report.figures_of import figure_tables


@pytest.mark.parametrize(("value", "shown"), [
    pytest.param(False, "no", id="no is an answer"),
    pytest.param(True, "yes", id="yes"),
    pytest.param([3, 4], "3, 4", id="a list of numbers"),
    pytest.param([{"a": 1}, 2], "a 1, 2", id="a list of this and that"),
    pytest.param({"b": 2}, "b 2", id="figures by name"),
])  # fmt: skip
def test_a_figure_is_shown_whatever_it_is(value: object, shown: str) -> None:
    """One that is no, and a list without rows, were left out without a word."""
    (table,) = figure_tables({"mine": {"steady": value}})

    assert table.rows == [["steady", shown]]


@pytest.mark.parametrize("value", [0, None, "", [], {}])
def test_what_is_nothing_is_left_out(value: object) -> None:
    assert [*figure_tables({"mine": {"steady": value}})] == []


def test_rows_are_a_table_of_their_own() -> None:
    (table,) = figure_tables({"mine": {"waits": [{"node": 1, "waited_ns": 2_000_000_000}, {"node": 2}]}})

    assert (table.title, table.columns) == ("mine: waits", ["node", "waited"])
    assert table.rows == [["1", "2.000 s"], ["2", ""]]
