"""What `tribunal new` writes works as written: found by its name, and its test passes, in an empty folder of a user's."""

import os
import subprocess
import sys

import pytest

from tribunal.harness.cli.main import exit_code

TRIBUNAL = [sys.executable, "-m", "tribunal.harness.cli.main"]


def called(folder, *arguments):
    return subprocess.run([*TRIBUNAL, *arguments], cwd=folder, capture_output=True, text=True, check=False)


AT_NIGHT = pytest.mark.nightly  # what is run there is a simulation of its own


@pytest.mark.parametrize(
    "kind", ["fault", pytest.param("workload", marks=AT_NIGHT), "checker", pytest.param("scenario", marks=AT_NIGHT)]
)
def test_a_new_thing_works_as_written(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    assert exit_code(["new", kind, "my-own", "--about", "Something of mine."]) == 0
    listed = called(tmp_path, "list", f"{kind}s")
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tribunal_plugins/tests"]
    tried = subprocess.run(tests, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ)

    assert "my-own" in listed.stdout
    assert "Something of mine" in listed.stdout
    assert tried.returncode == 0, tried.stdout
    (written,) = (path for path in tmp_path.rglob("my*own.*") if path.suffix in (".py", ".yaml"))
    assert len(written.read_text().splitlines()) <= 60


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["fault", "kill"], "already"),
        (["fault", "Kill"], "small letters"),
        (["fault", "../x"], "small letters"),
        (["fault", "class"], "no word of Python"),
        (["falt", "x"], "did you mean fault"),
    ],
)
def test_what_cannot_be_is_one_line_and_64(tmp_path, monkeypatch, capsys, arguments, line):
    monkeypatch.chdir(tmp_path)

    assert exit_code(["new", *arguments]) == 64
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["scenario", "fault"])
def test_whatever_it_is_said_to_be(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    abouts = {"silent": "", "quoting": 'yes: it\'s "quoted" \\ {and} [more] #1', "long": "two\nlines"}
    for name, about in abouts.items():
        assert exit_code(["new", kind, name, "--about", about]) == 0
    listed = called(tmp_path, "list", f"{kind}s")
    run = next(iter(abouts)) if kind == "scenario" else "produce-consume"
    tried = called(tmp_path, "run", run, "--seed", "1", "--cluster", "nope")

    assert listed.returncode == 0, listed.stderr
    assert all(name in listed.stdout for name in abouts)
    assert "unknown cluster" in tried.stderr


def test_never_over_what_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert exit_code(["new", "scenario", "mine"]) == 0

    assert exit_code(["new", "scenario", "mine"]) == 64
    assert "already" in capsys.readouterr().err
