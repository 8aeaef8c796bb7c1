"""The walks of docs/contributing through replog: the files that they list are those in which an example is named."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {path.relative_to(ROOT): path.read_text() for path in sorted((ROOT / "replog").rglob("*.py"))}


def listed(page: str, section: str = "") -> list[str]:
    """The files of a page's table, or of the one under a heading, with the names in <> taken for real."""
    text = (ROOT / "docs" / "contributing" / page).read_text()
    rows = text[text.index(section) :].partition("\n\n## ")[0] if section else text
    return [re.sub(r"[<>]", "", path) for path in re.findall(r"^\| `([\w/.<>-]+)` \|", rows, re.MULTILINE)]


def naming(pattern: str) -> list[str]:
    return [str(path) for path, source in SOURCES.items() if re.search(pattern, source)]


def api(name: str) -> str:
    """A pattern for a file that names an API by its key or by its messages."""
    module = name.lower()
    messages = rf"replog\.wire\.messages(\.{module}\b| import ([^()\n]*|\([^)]*)\b{module}\b)"
    return rf"\bApi\.{name}\b|{messages}"


@pytest.mark.parametrize(
    ("section", "name"),
    [
        pytest.param("## One that brokers answer", "DELETE_RECORDS", id="brokers"),
        pytest.param("## One that the active controller decides", "UPDATE_FEATURES", id="controllers"),
    ],
)
def test_a_new_api(section: str, name: str) -> None:
    files = listed("a-new-api.md", section)

    assert sorted(files) == naming(api(name))
    assert len(files) == 3
