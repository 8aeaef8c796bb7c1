"""The list of signatures reads what is kept of past failures, and survives what is no finding."""

import json
from pathlib import Path

import pytest

from tribunal.results.report.index import index


@pytest.mark.parametrize("state", ["open", "", None, 5])
def test_a_kept_finding_with_a_state_that_there_is_not_is_named_and_left_out(tmp_path: Path, state: object) -> None:
    """It ended the page of all runs in a KeyError."""
    (tmp_path / "kept").mkdir()
    finding = {"name": "mine", "signature": "lost_writes/lost", "state": state}
    (tmp_path / "kept" / "mine.json").write_text(json.dumps(finding))
    (tmp_path / "kept" / "good.json").write_text(json.dumps(finding | {"name": "good", "state": "fixed"}))

    found = index(tmp_path, tmp_path / "kept")

    assert found.unreadable == ["mine.json: not a finding"]
    assert [(one.known_as, one.state) for one in found.signatures] == [("good", "fixed")]
