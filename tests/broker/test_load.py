"""`bench/load.py` for seconds: bad company neither fills memory, nor starves others, nor leaves descriptors open."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [pytest.mark.e2e]
SHORT = ["--seconds", "5", "--connections", "150", "--slow", "20", "--half-open", "30", "--garbage", "4"]
LONG = ["--seconds", "600"]


@pytest.fixture(scope="module")
def load() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "bench" / "load.py"
    spec = importlib.util.spec_from_file_location("bench_load", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(SHORT, id="seconds", marks=pytest.mark.timeout(120)),
        pytest.param(LONG, id="ten minutes", marks=[pytest.mark.nightly, pytest.mark.timeout(800)]),
    ],
)
def test_bad_company_does_no_harm(load: ModuleType, tmp_path: Path, options: list[str]) -> None:
    result = load.measured([*options, "--dir", str(tmp_path), "--latency-ms", "3000"])

    assert result["holds"], result
    assert result["rounds"][-1]["asked"] > 100
    assert result["rounds"][-1]["slow_bytes"] > 10_000
    assert result["rounds"][-1]["garbage_bytes"] > 10_000_000
    assert result["descriptors_during"] > result["descriptors_before"] + 150
