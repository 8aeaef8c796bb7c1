"""Words that are this house's dialect stay out: the right term stands beside each (docs/style.md, section 3).

Identifiers are checked as the words that they are made of, documents as prose, without code spans and code blocks.
"""

import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIALECT = {
    "told": "answered, sent, reported, notified: whichever it is",
    "tell": "answer, send, report, notify",
    "tells": "answers, sends, reports",
    "heard": "received, known",
    "hear": "receive",
    "hears": "receives, is notified of",
    "settle": "what it does: commit, complete, reconcile, wait until in sync",
    "unsettled": "not committed, not stable",
    "settled": "what is so: committed, completed, up to date",
    "life": "incarnation (of a broker), registration (in ZooKeeper mode), process",
    "lives": "incarnations, registrations, processes",
    "reign": "controller epoch, term, leader epoch",
    "seat": "voter, member, coordinated partition",
    "patience": "timeout",
    "heir": "successor, the next coordinator",
    "doomed": "deleted, to be stopped",
    "stranger": "another implementation, an unknown client, a replica that is not assigned",
    "gossip": "messages between nodes",
    "obituary": "exit reason",
    "mourn": "on exit",
    "parted": "partitioned",
}
CODE = ("replog", "clusters", "checkers", "harness", "nemesis", "workloads", "tools")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs")
# Names that are part of what is compared or stored: coroutines that run as tasks (and their classes) of a simulated run's
# trace, an exception and a violation of findings' signatures. A bank has tellers.
ALLOWED = {
    "Unsettled": "",
    "NeverTold": "",
    "ControllerSeat": "replog/node/zookeeper/",
    "_tell": ("replog/node/", "workloads/kinds/bank.py"),
    "told": "harness/evidence/explain.py",
}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`[^`\n]*`|\]\([^)]*\)|https?://\S+")


def dialect_in_code(text: str, path: str = "a.py") -> list[str]:
    """Return the identifiers with a word of the dialect, each once."""
    names = [
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.NAME
    ]
    return [
        name
        for name in dict.fromkeys(names)
        if any(word.lower() in DIALECT for word in WORD.findall(name))
        if not (name in ALLOWED and path.startswith(ALLOWED[name]))
    ]


def dialect_in_prose(text: str) -> list[str]:
    """Return the words of the dialect in a document, outside of code."""
    prose = SPAN.sub(" ", FENCED.sub(" ", text))
    return [word for word in re.findall(r"[A-Za-z]+", prose) if word.lower() in DIALECT]


def tracked(*paths: str) -> list[str]:
    """Return the repository's files under these paths."""
    listed = subprocess.run(["git", "ls-files", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def test_no_identifier_is_of_the_dialect() -> None:
    found = {
        path: names
        for path in tracked(*CODE)
        if path.endswith(".py") and "wire/messages" not in path
        if (names := dialect_in_code((ROOT / path).read_text(), path))
    }

    assert found == {}, DIALECT


def test_no_document_is_in_the_dialect() -> None:
    found = {
        path: words
        for path in tracked(*DOCUMENTS)
        if path.endswith(".md") and "published" not in path
        if (words := dialect_in_prose((ROOT / path).read_text()))
    }

    assert found == {}, DIALECT


@pytest.mark.parametrize(
    ("code", "found"),
    [
        pytest.param("def on_told(x): pass", ["on_told"], id="a part of a name"),
        pytest.param("class ControllerSeat: pass", ["ControllerSeat"], id="a part of a class's name"),
        pytest.param("PATIENCE_MS = 3", ["PATIENCE_MS"], id="a constant"),
        pytest.param("lifecycle = heartbeat = foretold = 1", [], id="other words that begin or end so"),
        pytest.param("x = 'told'  # told", [], id="strings and comments"),
    ],
)
def test_an_identifier_is_found_by_its_words(code: str, found: list[str]) -> None:
    assert dialect_in_code(code) == found


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        pytest.param("The broker is told of it.", ["told"], id="a word"),
        pytest.param("Its former Life.", ["Life"], id="a capital"),
        pytest.param("Call `tell`, or [this](told.md).", [], id="a code span and a link"),
        pytest.param("Before.\n```\ntold\n```\nThe lifecycle.", [], id="a code block"),
    ],
)
def test_a_document_is_read_without_its_code(prose: str, found: list[str]) -> None:
    assert dialect_in_prose(prose) == found
