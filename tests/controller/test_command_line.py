"""`python -m replog`: what it refuses, in one line and with which exit code."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replog.__main__ import Exit, install_mutants, main
from replog.config import NodeConfig
from replog.host.directory_locks import DirectoryLocks
from replog.host.world import RealDisk
from replog.node.directories.meta_properties import read
from replog.node.quorum.metadata_log import directory_id_of


def a_config(folder: Path, **changes: Any) -> Path:
    settings: dict[str, Any] = {
        "process.roles": "broker",
        "node.id": 1,
        "cluster.id": "c",
        "listeners": "127.0.0.1:0",
        "controller.quorum.voters": "101@127.0.0.1:9",
        "log.dirs": f"{folder}/a,{folder}/b",
    } | changes
    path = folder / "node.toml"
    path.write_text("".join(f"{name!r} = {value!r}\n" for name, value in settings.items()))
    return path


def test_format_writes_one_id_a_directory_and_never_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = a_config(tmp_path)

    first = main(["format", "--config", str(config)])
    ids = {read(RealDisk(), f"{tmp_path}/{name}")["directory.id"] for name in "ab"}  # type: ignore[index]
    second = main(["format", "--config", str(config)])
    third = main(["format", "--config", str(config), "--ignore-formatted"])

    assert (first, second, third) == (Exit.DONE, Exit.FOREIGN_DIRECTORY, Exit.DONE)
    assert len(ids) == 2
    assert "formatted already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "changes", "code", "word"),
    [
        pytest.param("broker", {}, Exit.FOREIGN_DIRECTORY, "not formatted", id="not formatted"),
        pytest.param("controller", {}, Exit.USAGE, "process.roles", id="another role"),
        pytest.param(
            "controller", {"process.roles": "controller"}, Exit.USAGE, "tribunal.controller.joins", id="no voter"
        ),
        pytest.param("broker", {"log.dir": "x"}, Exit.USAGE, "did you mean 'log.dirs'", id="mistyped setting"),
        pytest.param("broker", {"tribunal.mutants": ["M0"]}, Exit.USAGE, "no mutant 'M0'", id="unknown mutant"),
    ],
)
def test_what_cannot_run_says_why_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    changes: dict[str, Any],
    code: Exit,
    word: str,
) -> None:
    config = a_config(tmp_path, **changes)

    assert main([command, "--config", str(config)]) == code

    printed = capsys.readouterr().err
    assert word in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("changes", [{"node.id": 2}, {"cluster.id": "other"}])
def test_a_strangers_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    main(["format", "--config", str(a_config(tmp_path))])
    other = a_config(tmp_path, **changes)

    codes = [main([command, "--config", str(other)]) for command in ("broker", "format")]

    assert codes == [Exit.FOREIGN_DIRECTORY] * 2
    assert "belongs to" in capsys.readouterr().err


def test_mutants_go_by_name_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from replog.mutants import m44_acks_local

    installed = []
    monkeypatch.setattr(m44_acks_local, "install", lambda: installed.append(1))
    settings: dict[str, Any] = {
        "process.roles": "broker",
        "node.id": 1,
        "cluster.id": "c",
        "listeners": "h:1",
        "controller.quorum.voters": "101@h:9",
        "log.dirs": "d",
    }

    for name in ("M44", "m44_acks_local"):
        install_mutants(NodeConfig(settings | {"tribunal.mutants": [name]}))

    assert installed == [1, 1]


def test_a_log_directory_is_used_by_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes that write into one directory destroy it: the second says which, and touches nothing."""
    config = a_config(tmp_path)
    assert main(["format", "--config", str(config)]) == Exit.DONE
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(tmp_path / "b" / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"

        code = main(["broker", "--config", str(config)])
        other.communicate()

    assert code == Exit.FOREIGN_DIRECTORY
    assert f"{tmp_path}/b is in use by another process" in capsys.readouterr().err
    DirectoryLocks([str(tmp_path / "b")]).close()


def test_directory_ids_are_written_as_kafka_writes_them_and_read_in_both_forms(tmp_path: Path) -> None:
    assert main(["format", "--config", str(a_config(tmp_path))]) == Exit.DONE
    properties = tmp_path / "a" / "meta.properties"
    written = read(RealDisk(), f"{tmp_path}/a")["directory.id"]  # type: ignore[index]
    directory_id = directory_id_of(RealDisk(), str(tmp_path / "a"))

    assert len(written) == 22
    properties.write_text(properties.read_text().replace(written, str(directory_id)))
    assert directory_id_of(RealDisk(), str(tmp_path / "a")) == directory_id


def test_a_node_takes_as_many_descriptors_as_it_may() -> None:
    program = (
        "import resource as r; from replog.host.world import raise_descriptor_limit as f; "
        "r.setrlimit(r.RLIMIT_NOFILE, (256, 512)); f(); print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "(512, 512)\n"
