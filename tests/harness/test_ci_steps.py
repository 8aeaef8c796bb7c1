"""The workflows that users copy, and our own night, do what their pages say: their steps are run as they stand.

Each job runs in an empty folder with the wheel of this checkout; only the budget is made smaller. Two nights follow each other: the first
is green, the second finds a bug that had been fixed, and continues what the first one left in the cache.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from tests.harness.ci_runner import Ended, Server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "ci"
OWN = ROOT / ".github" / "workflows" / "nightly.yml"
NIGHT = """nightly: my-log
findings: findings
canaries: {mutants: [M01], share: 20}
sweeps: {last-replica-standing: 1}
bound: 97
"""
KNOWN = ROOT / "tests" / "findings" / "stale-join-in-zookeeper-mode.json"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as the README says."""
    folder = tmp_path_factory.mktemp("wheel")
    words = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *words], check=True, capture_output=True)
    return folder / "dist"


def came_back(repository: Path) -> None:
    """Call a bug fixed that is known and still there."""
    finding = json.loads(KNOWN.read_bytes()) | {"state": "fixed", "name": "came-back"}
    (repository / "findings" / "came-back.json").write_text(json.dumps(finding))


def rows(folder: Path) -> list[tuple[str, str, str]]:
    """Return night, figure and shard of each row of a night's trend."""
    table = parquet.read_table(folder / "tables" / "trend").to_pylist()
    return [(row["began"], row["figure"], row["shard"]) for row in table]


def reds(ended: list[Ended]) -> list[tuple[str, int]]:
    return [(one.job, one.red) for one in ended]


def said(ended: list[Ended]) -> str:
    return "\n".join(one.said[-3000:] for one in ended)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("example", ["github-nightly.yml", "gitlab-nightly.yml"])
def test_an_example_is_green_then_red_as_its_page_promises(example: str, wheel: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    (repository / "findings").mkdir(parents=True)
    (repository / "findings" / "README").write_text("bugs that were found\n")
    (repository / "nightly.yaml").write_text(NIGHT)
    shutil.copytree(wheel, repository / "dist")
    server = Server(tmp_path / "server", repository, budget="12s")
    shards = "artefacts/shards/{}" if "gitlab" in example else "artefacts/chaos-{}"
    whole = tmp_path / "server" / ("artefacts/whole" if "gitlab" in example else "artefacts/chaos")

    def night() -> list[Ended]:
        if "gitlab" in example:
            return server.gitlab(EXAMPLES / example)
        return server.github(EXAMPLES / example, "chaos", "whole")

    green = night()

    assert reds(green) == [*[("chaos", 0)] * 4, ("whole", 0)], said(green)
    assert " green" in (whole / "summary.md").read_text().splitlines()[0]
    first = [rows(tmp_path / "server" / shards.format(index)) for index in range(1, 5)]
    came_back(repository)

    red = night()

    assert sorted(one.red for one in red if one.job == "chaos") == [0, 0, 0, 1], said(
        red
    )  # one shard has the past finding
    assert reds(red)[-1] == ("whole", 1), said(red)
    assert "RED" in (whole / "summary.md").read_text().splitlines()[0]
    assert (whole / "junit.xml").is_file()
    assert (whole / "index.html").is_file()
    if "github" in example:
        assert server.page.read_text().count("## my-log: ") == 5
    for index, before in enumerate(first, 1):
        out = tmp_path / "server" / shards.format(index)
        both = rows(out)
        assert len({began for began, _, _ in both}) == 2
        assert set(before) < set(both)
        assert len(set(both)) == len(both)
        assert len(json.loads((out / "nightly.json").read_bytes())["before"]) == 1


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_our_own_night_runs_in_a_checkout_and_continues_the_last_one(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, repository / name, follow_symlinks=False)
    (repository / "nightly.yaml").write_text(NIGHT)
    (repository / "findings").mkdir()
    shutil.copy2(repository / "LICENSE", repository / "findings" / "README")
    server = Server(tmp_path / "server", repository, budget="12s")

    green = server.github(OWN, "night")

    assert reds(green) == [("night", 0)], said(green)
    came_back(repository)
    red = server.github(OWN, "night")
    assert reds(red) == [("night", 1)], said(red)
    out = server.artefacts / "night"
    assert len({began for began, _, _ in rows(out)}) == 2
    assert len(json.loads((out / "nightly.json").read_bytes())["before"]) == 1
