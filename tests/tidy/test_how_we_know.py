"""docs/how-we-know.md is what its script makes of the measurements: whoever brings one of them up to date makes the page anew."""

from pathlib import Path

import msgspec
import pytest

from tools import generate_how_we_know
from tools.generate_how_we_know import KeptNight, content, kept
from tribunal.results.night import Canary, Night, NightState, Swept
from tribunal.results.sensitivity import measured, total

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_its_script_makes_of_the_measurements() -> None:
    page = (ROOT / "docs" / "how-we-know.md").read_text()
    assert page == content(), "measurements have changed: python tools/generate_how_we_know.py"
    assert f"{total(measured().figures.values()).injected:,} anomalies" in page


@pytest.mark.parametrize(
    ("state", "word"),
    [
        pytest.param(NightState.RUNNING, "did not end", id="killed"),
        pytest.param(NightState.ENDED, "not enough seeds", id="too-few"),
    ],
)
def test_a_night_is_called_what_it_calls_itself(
    state: NightState, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night = Night(
        name="n", began="2026-11-24T02:00:00Z", commit="0123456789", lock_sha256="", shard="1/1", budget_s=60, first_seed=1,
        state=state, least_runs=29, seconds=61.4, swept=[Swept(scenario="s", runs=3, verdicts={"PASS": 2, "INCONCLUSIVE": 1})],
        canaries=[Canary(mutant="m", scenario="s", found=True, seen_by=["x"], seeds=1, seconds=9, note="")],
    )  # fmt: skip
    (tmp_path / "night.json").write_bytes(msgspec.json.encode(kept(night, "two cores")))
    monkeypatch.setattr(generate_how_we_know, "NIGHT", tmp_path / "night.json")

    page = content()

    assert msgspec.json.decode((tmp_path / "night.json").read_bytes(), type=KeptNight).word == word
    assert f"commit 01234567, two cores. It calls itself **{word}**." in page
    assert "| simulated runs | 3 (1 INCONCLUSIVE, 2 PASS)" in page
    assert "at most 77.6 % of such runs have a violation" in page  # a run without an answer counts for nothing
    assert "| canaries: known bugs switched on | 1 of 1 found |" in page
