"""The workflows that users copy are sound YAML and call commands that exist with options that exist."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tribunal.harness.campaign.night_file import read_config
from tribunal.harness.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r"tribunal ([a-z]+)((?: +[^\n]+)?)")


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "ci").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_calls_what_there_is(path):
    text = path.read_text()
    yaml.safe_load(text)
    calls = CALL.findall(text)

    assert calls
    for command, rest in calls:
        offered = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
        assert offered.exit_code == 0, command
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in offered.output, f"{command} {option}"


def test_a_workflow_gives_all_its_shards_the_same_seeds_on_both_sides_of_midnight():
    for path in (ROOT / "docs" / "ci").glob("*.yml"):
        nights = [rest for command, rest in CALL.findall(path.read_text()) if command == "nightly"]
        assert nights
        assert all(re.search(r'--shard .* --first-seed "\$\{[A-Z_]+\}000000"', rest) for rest in nights), path.name


WORKFLOWS = [*(ROOT / ".github" / "workflows").glob("*.yml"), *(ROOT / "docs" / "ci").glob("*.yml")]
USED = [line.strip() for path in sorted(WORKFLOWS) for line in path.read_text().splitlines() if "uses:" in line]


@pytest.mark.parametrize("line", USED)
def test_an_action_is_named_by_its_commit_because_a_tag_can_be_moved(line):
    assert re.search(r"uses: [\w./-]+@[0-9a-f]{40}  # v[\d.]+$", line)


def test_our_own_night_is_sound():
    assert read_config(ROOT / "nightly.yaml").sweeps
