"""The rare states that nodes count (probes): which ones there are, so that a report can say which of them a run did not reach.

The list is read out of the nodes' code, as that of the guards is (`guards`): it cannot go stale. What a name is made of while a node runs (a fault
injection point, how the voters changed) is no state of which it is known beforehand that it can be reached, and not among them.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import replog
from replog.quorum.messages import VoterChange

ROOT: Final = Path(replog.__file__).parent
# Whose code runs in one mode only, as folders and files of the package.
OF_MODE: Final = {
    "zookeeper": ("zookeeper", "node/zookeeper"),
    "kraft": ("controller", "quorum", "node/controller.py", "node/quorum"),
}
SAID_BY: Final = ("probe", "Probe")
LISTED_BY: Final = "rare_states"  # a function that makes a list of names
STRUCK_BY: Final = ("strikes", "linger")  # functions of a world and the name of a fault injection point


@cache
def known_rare_states(mode: str) -> tuple[str, ...]:
    """Return the names that nodes of a mode (`kraft`, `zookeeper`) can count, sorted."""
    return tuple(sorted({name for tree in _trees(mode) for name in _named(tree)}))


@cache
def countable(mode: str) -> frozenset[str]:
    """Return all names that nodes of a mode can count: rare states, strikes of fault injection points, and how the voters of a quorum changed."""
    points = (f"point {name}" for tree in _trees(mode) for name in _points(tree))
    voters = (f"quorum_voter_{change.value}" for change in VoterChange) if mode == "kraft" else ()
    return frozenset((*known_rare_states(mode), *points, *voters))


@cache
def _trees(mode: str) -> tuple[ast.Module, ...]:
    """Return the modules of a mode that can count something."""
    others = [part for other, parts in OF_MODE.items() if other != mode for part in parts]
    found: list[ast.Module] = []
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if any(place == part or place.startswith(f"{part}/") for part in others):
            continue
        text = path.read_text(encoding="utf-8")
        if any(f"{name}(" in text for name in (*SAID_BY, LISTED_BY, *STRUCK_BY)):
            found.append(ast.parse(text, str(path)))
    return tuple(found)


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in SAID_BY:
            for given in (*node.args[:1], *(one.value for one in node.keywords if one.arg == "name")):
                yield from _constants(given)
        elif isinstance(node, ast.FunctionDef) and node.name == LISTED_BY:
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and _name(call.func) == "append":
                    yield from _constants(call.args[0])


def _points(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in STRUCK_BY and len(node.args) > 1:
            yield from _constants(node.args[1])


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _constants(given: ast.expr) -> Iterator[str]:
    match given:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from _constants(one)
            yield from _constants(other)
        case _:
            pass  # made while a node runs
