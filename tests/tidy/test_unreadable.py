"""Who reads what others wrote catches all that a decoder raises (`results/unreadable.py`), not a part of it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("checkers", "clusters", "harness", "nemesis", "results", "workloads")
HOME: Final = Path("results/unreadable.py")
PARTS: Final = ("msgspec.DecodeError", "msgspec.ValidationError", "msgspec.MsgspecError")
READS: Final = (
    "try:\n    found = msgspec.json.decode(text)\nexcept {}:\n    found = None\n",
    "try:\n    found = msgspec.json.decode(text)\nexcept (OSError, {}) as problem:\n    found = None\n",
    "with contextlib.suppress(OSError, {}):\n    found = msgspec.json.decode(text)\n",
)


def sources() -> Iterator[tuple[Path, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text()


def partly(source: str) -> list[int]:
    """The lines of handlers that name one of a decoder's errors by itself."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        for caught in handled(node)
        for name in ast.walk(caught)
        if isinstance(name, ast.expr) and ast.unparse(name) in PARTS
    ]


def handled(node: ast.AST) -> list[ast.expr]:
    """What an `except`, or a call of `suppress`, catches."""
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        return [node.type]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return node.args
    return []


def test_readers_catch_all_that_a_decoder_raises() -> None:
    found = [f"{path}:{line}" for path, source in sources() if path != HOME for line in partly(source)]

    assert found == [], "catch UNREADABLE of tribunal.results.unreadable"


def test_there_are_such_readers() -> None:
    assert sum("UNREADABLE" in source for _, source in sources()) > 40


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_found(read: str, part: str) -> None:
    assert partly(read.format(part))


@pytest.mark.parametrize(
    "whole", [READS[0].format("UNREADABLE"), READS[1].format("*UNREADABLE"), READS[2].format("*UNREADABLE")]
)
def test_the_whole_is_not(whole: str) -> None:
    assert partly(whole) == []
