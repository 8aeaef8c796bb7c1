"""The walks of docs/contributing through the harness's rooms: the files that they list are those in which an example is named."""

import re
from pathlib import Path

import pytest

from tribunal.harness.catalog import all_clusters, all_workloads
from tribunal.harness.scenario import load

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("checkers", "clusters", "harness", "nemesis", "results", "workloads")


def listed(page: str) -> list[str]:
    """The files of a page's table, with the names in <> taken for real."""
    text = (ROOT / "docs" / "contributing" / page).read_text()
    return [re.sub(r"[<>]", "", path) for path in re.findall(r"^\| `([\w/.<>-]+)` \|", text, re.MULTILINE)]


def naming(pattern: str) -> list[str]:
    """The modules in which something is named."""
    modules = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    return [str(path.relative_to(ROOT)) for path in modules if re.search(pattern, path.read_text())]


@pytest.mark.parametrize("page", ["a-new-workload.md", "a-new-cluster-kind.md"])
def test_a_walk_is_short_and_its_files_are_there(page: str) -> None:
    files = listed(page)

    assert 3 <= len(files) <= 4
    assert [path for path in files if not (ROOT / path).is_file()] == []


def test_a_new_workload() -> None:
    module, scenario, test = listed("a-new-workload.md")

    assert naming(r"\bidempotent[-_]retries\b") == [module]
    assert load(ROOT / scenario, {}).workload == "idempotent-retries"
    assert '"idempotent-retries"' in (ROOT / test).read_text()
    assert "idempotent-retries" in all_workloads()


def test_a_new_kind_of_cluster() -> None:
    module, *others = listed("a-new-cluster-kind.md")

    assert naming(r"[\"']ssh[\"']|\bkinds(\.ssh| import ([^()\n]*|\([^)]*)\bssh)\b") == [module]
    assert all(re.search(r"\bssh\b", (ROOT / path).read_text()) for path in others)
    assert "ssh" in all_clusters()
