"""A topic's name may have 249 characters, a folder's 255 bytes: what stands beside a log has room for its suffix too."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from replog.host.world import RealDisk
from replog.log.moving import beside
from replog.log.settings import LogSettings
from replog.node.directories.log_directories import LogDirectories
from replog.types import TopicPartition
from tests.log.batches import append

SETTINGS = LogSettings()
LONGEST = TopicPartition("x-1" * 83, 10)


def opened(*folders: Path) -> LogDirectories:
    for number, folder in enumerate(folders):
        folder.mkdir(exist_ok=True)
        (folder / "meta.properties").write_text(f"version=1\ndirectory.id={UUID(int=number + 1)}\n")
    journal = SimpleNamespace(log=lambda level, text: None, probe=lambda name: None)
    world: Any = SimpleNamespace(disk=RealDisk(), journal=journal, clock=SimpleNamespace(wall_ms=lambda: 1))
    directories = LogDirectories(world, [str(folder) for folder in folders], SETTINGS)
    directories.open()
    return directories


def written(folder: Path, *others: Path) -> LogDirectories:
    """Return directories with a log of three records in the first."""
    directories = opened(folder, *others)
    log = directories.create(LONGEST, SETTINGS).log
    log.begin_epoch(0)
    for _ in range(3):
        append(log, epoch=0)
    log.flush()
    return directories


def test_the_log_of_a_topic_with_the_longest_name_moves_to_another_directory(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    directories = written(a, b)
    first = directories.logs[LONGEST].directory
    second = str(b) if first == str(a) else str(a)

    copy = directories.begin_copy(LONGEST, second)
    copy.add(copy.next_batches(), 1)
    left = directories.take_copy(LONGEST, copy)

    assert left is not None
    assert Path(left).is_dir()
    stored = directories.logs[LONGEST]
    assert (stored.directory, stored.log.log_end_offset) == (second, 3)
    assert directories.offline == {}
    again = opened(a, b)
    assert not Path(left).exists()
    assert list(again.logs) == [LONGEST]
    assert again.unfinished == {}


def test_what_an_interrupted_move_leaves_of_it_is_cleared_up(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    directories = written(a, b)
    second = str(b) if directories.logs[LONGEST].directory == str(a) else str(a)
    copy = directories.begin_copy(LONGEST, second)
    assert Path(copy.path).is_dir()

    again = opened(a, b)

    assert not Path(copy.path).exists()
    assert list(again.logs) == [LONGEST]


def test_a_log_of_the_longest_name_that_nobody_claims_is_put_aside(tmp_path: Path) -> None:
    directories = written(tmp_path / "a")

    directories.put_aside(LONGEST)

    assert directories.offline == {}
    assert [path for path in (tmp_path / "a").iterdir() if path.name.endswith(".0-stray")]
    assert opened(tmp_path / "a").logs == {}


@pytest.mark.parametrize("suffix", ["-future", ".0-stray"])
def test_names_that_fit_are_as_ever(suffix: str) -> None:
    assert beside("/data/t-0", suffix) == f"/data/t-0{suffix}"
    for topic in ("x" * 249, "x" * 244, "x" * 243):
        found = beside(f"/data/{topic}-12", suffix).rpartition("/")[2]
        assert len(found) <= 255
        assert found.endswith(suffix)
