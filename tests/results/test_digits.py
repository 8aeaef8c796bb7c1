"""Figures of pages are digits: whoever reads `1e+02 %` has to calculate."""

import pytest

from tests.results.test_night import night
from tests.results.test_night_store import night as night_of_day
from tribunal.results import night_store
from tribunal.results.digits import significant
from tribunal.results.night_files import save, summary
from tribunal.results.report.figures_of import figure_tables
from tribunal.results.report.index import index, render
from tribunal.results.report.layout import _latency
from tribunal.results.report.trends import render as render_trends
from tribunal.results.trends import trends


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        pytest.param(97.5, 2, "98", id="rounded"),
        pytest.param(99.97, 2, "100", id="rounded up to one more digit"),
        pytest.param(100.0, 2, "100", id="more digits than asked for"),
        pytest.param(28_812.4, 4, "28,812", id="as many as it has"),
        pytest.param(0.0263, 2, "0.026", id="small"),
        pytest.param(0.0000263, 2, "0.000026", id="very small"),
        pytest.param(-28_812.4, 4, "-28,812", id="below zero"),
        pytest.param(0.0, 4, "0", id="nothing"),
    ],
)
def test_a_number_has_no_exponent(value, digits, shown):
    assert significant(value, digits) == shown


def test_nights_over_time_say_hundred_per_cent_and_how_many_seconds_a_long_part_took(tmp_path):
    """A night whose only run was a violation had an interval of `2.5 to 1e+02 %`, and parts of eight hours took 2.881e+04 seconds."""
    store = str(tmp_path / "nights")
    one = night_of_day(1, runs=4, violations=1)
    one.part_seconds = {"sweeps": 28_812.4}
    night_store.add(store, one)

    page = render_trends(trends(store))

    assert "2.5 to 100 %" in page
    assert "28,812" in page
    assert "e+0" not in page


def test_a_nights_files_say_figures_in_digits(tmp_path):
    for day in (1, 2):
        tonight = night(
            began=f"2026-11-2{day}T02:00:00Z", trend={"new states per minute of search": [12_345.0, 23_456.0]}
        )
        tonight.swept[0].simulated_ms = 54_000_000 * 900
        save(tonight, tmp_path / str(day))

    assert "| 12,345 | 23,456 |" in summary(tonight)
    assert "e+0" not in render(index(tmp_path))


@pytest.mark.parametrize(
    ("latency_ns", "shown"),
    [
        pytest.param(999_700_000, "1,000 ms", id="nearly a second"),
        pytest.param(1_234_000_000_000, "1,234 s", id="twenty minutes"),
        pytest.param(1_234_000, "1.23 ms", id="a millisecond"),
    ],
)
def test_a_latency_has_no_exponent(latency_ns, shown):
    assert _latency(latency_ns) == shown


def test_a_propertys_figure_has_no_exponent():
    (table,) = figure_tables({"p": {"rate": 23_456.7}})

    assert table.rows == [["rate", "23,457"]]
