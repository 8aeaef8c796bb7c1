"""What strangers wrote is shown, and does nothing to the terminal of who reads it."""

import json
import subprocess
import sys

import pytest

from tribunal.harness.cli.main import exit_code
from tribunal.harness.progress import Plain
from tribunal.harness.terminal import as_json, echo, plain

CLEARS = "\x1b[2J\x1b[H"
TURNS = "\u202eSSAP"
SENDS_BACK = "\r"
OF_8_BITS = "\x9b31m"
HIDES = "\x7f\u200b\ufeff"
TAGS = "\U000e0041"
HOSTILE = [CLEARS, TURNS, SENDS_BACK, OF_8_BITS, HIDES, TAGS]


@pytest.fixture
def hostile_run(tmp_path):
    """The folder of an imported history: what was rolled back is read, of a key that is a stranger's words."""
    key = f'"k{CLEARS}{TURNS}{OF_8_BITS}"'
    (tmp_path / "history.edn").write_text(
        f"{{:type :invoke, :f :txn, :value [[:append {key} 1]], :process 0, :time 0, :index 0}}\n"
        f"{{:type :fail, :f :txn, :value [[:append {key} 1]], :process 0, :time 1, :index 1}}\n"
        f"{{:type :invoke, :f :txn, :value [[:r {key} nil]], :process 1, :time 2, :index 2}}\n"
        f"{{:type :ok, :f :txn, :value [[:r {key} [1]]], :process 1, :time 3, :index 3}}\n"
    )
    run = tmp_path / "imported"
    assert exit_code(["import", str(tmp_path / "history.edn"), "--format", "jepsen-edn", "--out", str(run)]) == 0
    return run


@pytest.mark.parametrize("command", [["check", "--engine", "inline"], ["check", "--engine", "inline", "--json"]])
def test_a_recording_draws_nothing(hostile_run, command, capsys):
    capsys.readouterr()

    assert exit_code([command[0], str(hostile_run), *command[1:]]) == 1

    said = capsys.readouterr().out
    assert "[2J" in said
    assert all(line.isprintable() for line in said.split("\n"))


@pytest.mark.parametrize("words", HOSTILE)
def test_what_is_no_printable_character_is_shown_as_its_code(words, capsys):
    echo(f"{words}a\nb{words}")
    echo(words, err=True)
    with Plain("title") as progress:
        progress.say(words)

    said = capsys.readouterr()
    assert all(line.isprintable() for line in (said.out + said.err).split("\n"))
    assert said.out == f"{plain(words)}a\nb{plain(words)}\n"
    assert said.err == f"{plain(words)}\ntitle\n{plain(words)}\n"


@pytest.mark.parametrize("words", HOSTILE)
def test_json_is_the_same_value_and_can_be_looked_at(words):
    assert as_json({"a": words}).isprintable()
    assert json.loads(as_json({"a": words})) == {"a": words}


@pytest.mark.parametrize("words", ["✓ took effect  … → ·  min.insync.replicas=2", "", "日本語 Grüße 😀", "a\n\n  b\n"])
def test_ordinary_words_go_out_as_they_are(words, capsys):
    echo(words)

    assert capsys.readouterr().out == f"{words}\n"
    assert as_json(words) == json.dumps(words, ensure_ascii=False)


def test_a_history_for_another_tool_is_as_it_was(hostile_run):
    command = [sys.executable, "-m", "tribunal", "export", str(hostile_run), "--format", "edn"]

    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert CLEARS in said or "\\u001b" in said
