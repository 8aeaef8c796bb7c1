"""Each system of the repository says which release of it is on trial."""

from pathlib import Path

import pytest

from tribunal.clusters.systems.description import read_system

ROOT = Path(__file__).parents[2]
FILES = [file for file in sorted((ROOT / "systems").glob("*/*.toml")) if file.name not in ("page.toml", "bugs.toml")]


@pytest.mark.parametrize("file", [pytest.param(file, id=f"{file.parent.name}/{file.stem}") for file in FILES])
def test_a_system_of_the_repository_says_how_to_ask_for_its_version(file: Path) -> None:
    assert read_system(file).nodes.version
