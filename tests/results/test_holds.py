"""A report's list of files says of every table what it holds."""

from tribunal.results.recording import TABLES
from tribunal.results.report.holds import HOLDS


def test_every_table_of_a_recording_has_words() -> None:
    assert set(HOLDS) == set(TABLES)
