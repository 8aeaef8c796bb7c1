"""`docs/kips.md` names code and tests that exist, every test of `tests/kips`, and every decision."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "kips.md").read_text()
HERE = re.compile(r"^Tests without a path are in `([^`]+)`\.$")
QUOTED = re.compile(r"`([^`\s]+)`")


@cache
def names_in(path: str) -> frozenset[str]:
    """Top-level and class-level names of a Python file, members with a dot."""
    found: dict[str, None] = {}

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.ClassDef():
                    found[prefix + node.name] = None
                    collect(node.body, f"{prefix}{node.name}.")
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    found[prefix + node.name] = None
                case ast.Assign(targets=targets):
                    found.update(
                        dict.fromkeys(prefix + target.id for target in targets if isinstance(target, ast.Name))
                    )
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found[prefix + name] = None

    collect(ast.parse((ROOT / path).read_text()).body, "")
    return frozenset(found)


def references() -> list[tuple[str, str, str]]:
    """(file, name, where in the page) of every quoted symbol and test."""
    found = []
    default = ""
    for number, line in enumerate(TEXT.splitlines(), 1):
        heading = HERE.match(line)
        default = heading[1] if heading else default
        for word in QUOTED.findall(line) if line.startswith("| ") else ():
            file, colon, name = word.partition(".py:")
            if colon:
                found.append((f"{file}.py", name.removeprefix(":").replace("::", "."), f"line {number}"))
            elif "::" in word:
                found.append((default, word.replace("::", "."), f"line {number}"))
    return found


REFERENCES = references()


@pytest.mark.parametrize("file", sorted({file for file, _, _ in REFERENCES}))
def test_what_the_table_names_exists(file: str) -> None:
    named = [(name, where) for path, name, where in REFERENCES if path == file]

    assert [(name, where) for name, where in named if name not in names_in(file)] == []


@pytest.mark.parametrize("file", sorted(path.name for path in Path(__file__).parent.glob("test_kip_*.py")))
def test_every_sentence_tested_is_in_the_table(file: str) -> None:
    path = f"tests/kips/{file}"
    tests = {name for name in names_in(path) if ".test_" in name}

    assert tests - {name for each, name, _ in REFERENCES if each == path} == set()


def test_every_decision_has_its_line() -> None:
    lines = [line for line in TEXT.splitlines() if re.match(r"\| D\d+ \|", line)]

    assert [line.split("|")[1].strip() for line in lines] == [f"D{number}" for number in range(1, 22)]


def test_every_sentence_has_code_and_a_test() -> None:
    rows = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| ") and ".py" in line]

    bare = [cells[0] for cells in rows if ".py:" not in cells[-2] or "::" not in cells[-1]]

    assert bare == []
