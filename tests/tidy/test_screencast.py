"""The screencast of the README: a drawing that moves without a script, of commands that exist."""

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tools.make_screencast import COLUMNS, COMMANDS, drawn, recorded
from tribunal.harness.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "images" / "screencast.svg"
SVG = "{http://www.w3.org/2000/svg}"


def harmless(content: bytes) -> ElementTree.Element:
    """Parse a drawing that asks nobody for anything and runs nothing; return its root."""
    root = ElementTree.fromstring(content)
    for element in root.iter():
        assert element.tag not in {f"{SVG}script", f"{SVG}foreignObject", f"{SVG}a"}
        for name, value in element.attrib.items():
            assert not name.startswith("on"), name
            assert "href" not in name or value.startswith(("data:image/svg+xml;base64,", "#")), value
    assert b"@import" not in content
    assert b"url(http" not in content
    return root


def test_it_is_a_small_drawing_that_runs_nothing_and_can_stand_still() -> None:
    content = FILE.read_bytes()
    root = harmless(content)

    assert len(content) < 300_000
    assert "@media (prefers-reduced-motion:reduce){*{animation:none!important}}" in content.decode()
    (picture,) = root.iter(f"{SVG}image")
    assert harmless(base64.b64decode(picture.attrib["href"].partition(",")[2])).tag == f"{SVG}svg"
    seconds = re.search(r"a real session, (\d+) seconds", content.decode())
    assert seconds is not None
    assert 60 <= int(seconds[1]) <= 130


def test_it_shows_the_commands_and_each_of_them_exists() -> None:
    lines = ["".join(line.itertext()) for line in ElementTree.parse(FILE).getroot().iter(f"{SVG}text")]

    assert [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] == list(COMMANDS)
    assert max(map(len, lines)) <= COLUMNS + 2
    assert any(line.startswith("VIOLATION") for line in lines)
    for command in COMMANDS:
        _, name, *words = command.split()
        offered = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "250", "NO_COLOR": "1"})
        assert offered.exit_code == 0, command
        assert [word for word in words if word.startswith("--") and word not in offered.output] == []


@pytest.mark.nightly
def test_the_session_can_be_recorded_again_and_is_always_the_same(tmp_path: Path) -> None:
    first, second = (recorded(folder) for folder in (tmp_path / "first", tmp_path / "second") if not folder.mkdir())

    assert first == second
    assert harmless(drawn(first).encode()).tag == f"{SVG}svg"
