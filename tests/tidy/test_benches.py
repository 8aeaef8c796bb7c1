"""Benches are run by hand, months apart: each has to find what it imports."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHES = sorted((Path(__file__).resolve().parents[2] / "bench").glob("*.py"))


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_a_bench_finds_what_it_imports(path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)

    spec.loader.exec_module(module)

    assert module.__doc__
