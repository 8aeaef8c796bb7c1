"""What a system needs is installed when somebody asks for it, and by no run; a run that lacks it says so."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.systems.test_sample import planned
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.systems.description import BadSystem, read_system
from tribunal.harness.cli.main import exit_code
from tribunal.harness.new import made_system
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run, new_run_dir

NODES = "[nodes]\n"


def with_words(folder: Path, words: str) -> Path:
    """Make the sample system with more words about its nodes; return its file."""
    made_system("keeper", folder)
    file = folder / "keeper" / "system.toml"
    file.write_text(file.read_text().replace(NODES, f"{NODES}{words}\n"))
    return file


@pytest.mark.parametrize("code", [0, 4])
def test_it_is_installed_in_its_own_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str], code: int) -> None:
    file = with_words(tmp_path, f'install = ["sh", "-c", "echo got it; touch {{folder}}/there here; exit {code}"]')

    assert exit_code(["install", str(file)]) == (3 if code else 0)

    said = capfd.readouterr()
    assert "got it" in said.out
    assert "keeper: " in said.err
    assert ("exit code 4" in said.err) is bool(code)
    assert (file.parent / "there").exists()
    assert (file.parent / "here").exists()


def test_what_was_run_is_said_as_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = with_words(tmp_path, 'install = ["sh", "-c", "echo got it"]')

    assert exit_code(["install", str(file), "--json"]) == 0

    said = capfd.readouterr()
    (done,) = json.loads(said.out)
    assert done["command"][1:] == ["-c", "echo got it"]
    assert (done["node"], done["address"]) == (None, None)
    assert "got it" in said.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param("", "system.toml: .nodes. has no install: it does not say how keeper is installed", id="none"),
        pytest.param('install = ["sh", "{port}"]', "install: {port}: it is of no node; known: {folder}, {python}", id="of a node"),
        pytest.param('install = ["sh", "{set:write}"]', "install: {set:write}: it is of no node", id="of a run"),
        pytest.param('install = ["sh"]\nimage = "any"', "in containers it is the image that has what nodes need", id="image"),
        pytest.param('install = []', "install", id="empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_installed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, problem: str
) -> None:
    file = with_words(tmp_path, words)

    assert exit_code(["install", str(file)]) == 64
    assert problem.replace(".nodes.", "[nodes]") in capsys.readouterr().err


def test_a_program_that_is_missing_ends_with_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = with_words(tmp_path, 'install = ["no-such-program"]')

    assert exit_code(["install", str(file)]) == 3
    assert "there is no program no-such-program" in capsys.readouterr().err


@pytest.mark.parametrize("is_said", [True, False])
def test_a_run_installs_nothing_and_says_what_does(tmp_path: Path, is_said: bool) -> None:
    words = 'install = ["touch", "{folder}/there"]' if is_said else ""
    file = with_words(tmp_path, words)
    plan = planned(tmp_path, {})
    file.write_text(file.read_text().replace('start = ["{python}"', 'start = ["no-such-program"'))
    run_dir = new_run_dir(plan, tmp_path)

    ending = asyncio.run(Run(plan, run_dir, Silent()).execute())

    assert ending.failure is not None
    assert "there is no program no-such-program" in ending.failure
    assert (f"tribunal install {file.resolve()}" in ending.failure) is is_said
    assert not (file.parent / "there").exists()
    assert kind.leftovers(run_dir) == []


def test_nodes_that_run_already_are_not_installed(tmp_path: Path) -> None:
    file = with_words(tmp_path, 'install = ["sh"]\nexisting = "nodes.toml"')
    text = file.read_text()
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith(("start", "version"))))

    with pytest.raises(BadSystem, match="nodes that run already have no install"):
        read_system(file)
