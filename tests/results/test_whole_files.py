"""A file that is written whole: readers have the former one or the new one, and what fails leaves nothing beside it."""

import errno
from pathlib import Path

import pytest

from tribunal.results.whole_files import put, put_json


def test_a_file_takes_the_former_ones_place(tmp_path: Path) -> None:
    path = put(tmp_path / "said.txt", b"before")

    assert put(path, b"after") == path
    assert path.read_bytes() == b"after"
    assert put_json(tmp_path / "said.json", {"runs": 2}).read_text() == '{\n  "runs": 2\n}\n'
    assert sorted(one.name for one in tmp_path.iterdir()) == ["said.json", "said.txt"]


def test_what_cannot_be_written_leaves_the_former_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "said.txt", b"before")

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:3])
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        put(path, b"after")

    assert [one.name for one in tmp_path.iterdir()] == ["said.txt"]
    assert path.read_bytes() == b"before"


def test_the_first_failure_is_the_one_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "said.txt.tmp").mkdir()

    with pytest.raises(IsADirectoryError):
        put(tmp_path / "said.txt", b"after")
