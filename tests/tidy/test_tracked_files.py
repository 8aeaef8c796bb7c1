"""Every file that is kept under version control is of a kind that somebody wrote on purpose: what a crash or a run leaves is not.

Once a crash dump of Erlang was committed with a change beside it. A new kind of file is added here by whoever means to keep it.
"""

import subprocess
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
ANYWHERE: Final = (
    ".c", ".conf", ".css", ".go", ".html", ".in", ".j2", ".java", ".js", ".json", ".lock", ".md", ".mod", ".png", ".py", ".sh", ".sum",
    ".svg", ".toml", ".tsv", ".typed", ".xsd", ".yaml", ".yml",
)  # fmt: skip
BELOW: Final = {
    "docs/published": (".zip",),
    "tests/corpus": (".gz", ".parquet"),
    "tests/results/data": (".gz",),
    "tests/scenarios/transcripts": (".txt",),
    "tests/wire": (".txt",),
    ".ci": ("",),
    ".githooks": ("",),
    "tribunal": ("",),  # links to the folders
}
NAMES: Final = (".gitignore", "Dockerfile", "Dockerfile.standing", "LICENSE", "Makefile")


def is_known(name: str) -> bool:
    """Whether a file of this name is one that may be kept."""
    path = PurePosixPath(name)
    if path.name in NAMES or path.suffix in ANYWHERE:
        return True
    return any(path.is_relative_to(folder) and path.suffix in kinds for folder, kinds in BELOW.items())


def test_each_file_that_is_kept_is_of_a_known_kind() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert [name for name in listed.split("\0") if name and not is_known(name)] == []


@pytest.mark.parametrize(
    "name",
    ["erl_crash.dump", "core", "systems/redis/dump.rdb", "runs/1/recording/sends.parquet", "bundle.zip", "a.log"],
)
def test_what_a_crash_or_a_run_leaves_is_none(name: str) -> None:
    assert not is_known(name)
