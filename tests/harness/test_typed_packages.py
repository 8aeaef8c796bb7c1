"""Who installs us gets our types: every package that mypy checks says so to the type checkers of others (PEP 561)."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]


@pytest.mark.parametrize("package", CHECKED)
def test_a_checked_package_is_marked_as_typed(package):
    assert (ROOT / package / "py.typed").is_file()
