"""The demonstration: a known bug found, shrunk, explained and reported in under a minute."""

import msgspec
import pytest

from tribunal.harness.campaign.demo import demonstrate
from tribunal.results.verdict import Verdict, load


@pytest.mark.nightly
def test_a_known_bug_is_found_shrunk_explained_and_reported_within_a_minute(tmp_path):
    said = []

    shown = demonstrate(tmp_path / "runs", tmp_path / "scratch", 2, said.append)

    assert shown.seconds < 60
    assert load(shown.run_dir / "verdict.json").verdict is Verdict.VIOLATION
    assert (shown.run_dir / "report.html").stat().st_size > 10_000
    assert shown.story[0].startswith("VIOLATION")
    assert [line.split()[0] for line in said] == ["looking", "found", "shrunk", "to"]
    assert msgspec.json.decode((shown.run_dir / "plan.json").read_bytes())["faults"]
