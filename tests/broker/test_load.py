"""What the benchmarks of issue 5 have to show: bad company does no harm, idle partitions cost nothing.

`bench/load.py` runs for seconds here and for ten minutes at night, `bench/partitions.py` at night only.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [pytest.mark.e2e]
SHORT = ["--seconds", "5", "--connections", "150", "--slow", "20", "--half-open", "30", "--garbage", "4"]
LONG = ["--seconds", "600"]


def bench(name: str) -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
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
def test_bad_company_does_no_harm(tmp_path: Path, options: list[str]) -> None:
    result = bench("load").measured([*options, "--dir", str(tmp_path), "--latency-ms", "3000"])

    assert result["holds"], result
    assert result["rounds"][-1]["asked"] > 100
    assert result["rounds"][-1]["slow_bytes"] > 10_000
    assert result["rounds"][-1]["garbage_bytes"] > 10_000_000
    assert result["descriptors_during"] > result["descriptors_before"] + 150


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_two_thousand_partitions_cost_little_and_linearly(tmp_path: Path) -> None:
    rows = bench("partitions").measured(["--dir", str(tmp_path)])

    few, most = rows[0], rows[-1]
    assert most["partitions"] == 2000
    assert most["idle_cpu_percent"] < 5
    assert most["fenced"] == 0
    middle = next(row for row in rows if row["partitions"] == 1000)
    grown_mib = [later["memory_mib"] - few["memory_mib"] for later in (middle, most)]
    assert grown_mib[1] < 3 * max(grown_mib[0], 5)
    assert most["start_s"] < 3 * max(middle["start_s"], 2)
