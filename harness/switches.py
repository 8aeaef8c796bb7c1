"""Switches known bugs on for one run in this process, and off again: the next run here is one of the correct build.

A mutant's `install` replaces attributes of the product's classes and modules (docs/decisions/0004-mutants-replace-methods.md). What it replaced is seen by
comparing before and after, so that mutants need no way back of their own.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import FunctionType, ModuleType
from typing import Final

PRODUCT: Final = "replog."
MUTANTS: Final = "replog.mutants"

Owner = type | ModuleType
Attributes = Mapping[int, tuple[Owner, dict[str, object]]]


class Entered:
    """Whether a function that a known bug put in place was called; where it replaced anything else it has to be taken as called."""

    def __init__(self, replaced: Sequence[tuple[Owner, str]]) -> None:
        functions = [(owner, name, vars(owner)[name]) for owner, name in replaced]
        watched = [(owner, name, one) for owner, name, one in functions if isinstance(one, FunctionType)]
        self.at_all = len(watched) < len(functions) or not functions
        for owner, name, function in watched:
            self._watch(owner, name, function)

    def _watch(self, owner: Owner, name: str, function: FunctionType) -> None:
        """Take note of the first call. Later ones cost nothing: the function itself is back in its place."""

        @wraps(function)
        def first(*arguments: object, **named: object) -> object:
            self.at_all = True
            if vars(owner).get(name) is first:
                setattr(owner, name, function)
            return function(*arguments, **named)

        setattr(owner, name, first)


@contextmanager
def switched_on(mutants: Sequence[str]) -> Iterator[Entered]:
    """Let these mutants (module names) be installed inside, and only there."""
    if not mutants:
        yield Entered(())
        return
    modules = [importlib.import_module(f"{MUTANTS}.{mutant}") for mutant in mutants]
    before = _attributes()
    for module in modules:
        module.install()
    replaced = list(_differences(before, _attributes()))
    try:
        yield Entered([(owner, name) for owner, name, _, _ in replaced])
    finally:
        for owner, name, was_there, old in replaced:
            if was_there:
                setattr(owner, name, old)
            else:
                delattr(owner, name)


def _attributes() -> Attributes:
    """Return the attributes of the product's modules and classes, by the owner's identity."""
    found: dict[int, tuple[Owner, dict[str, object]]] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith(PRODUCT) or name.startswith(MUTANTS):
            continue
        found[id(module)] = (module, dict(vars(module)))
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__.startswith(PRODUCT):
                found[id(value)] = (value, dict(vars(value)))
    return found


def _differences(before: Attributes, after: Attributes) -> Iterator[tuple[Owner, str, bool, object]]:
    for key, (owner, now) in after.items():
        _, was = before.get(key, (owner, now))
        for name in now:
            if name not in was:
                yield owner, name, False, None
            elif now[name] is not was[name]:
                yield owner, name, True, was[name]
