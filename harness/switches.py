"""Switches known bugs on for one run in this process, and off again: the next run here is one of the correct build.

A mutant's `install` replaces attributes of the product's classes and modules (docs/decisions/0004-mutants-replace-methods.md). What it replaced is seen by
comparing before and after, so that mutants need no way back of their own.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Final

PRODUCT: Final = "replog."
MUTANTS: Final = "replog.mutants"

Owner = type | ModuleType
Attributes = Mapping[int, tuple[Owner, dict[str, object]]]


@contextmanager
def switched_on(mutants: Sequence[str]) -> Iterator[None]:
    """Let these mutants (module names) be installed inside, and only there."""
    if not mutants:
        yield
        return
    modules = [importlib.import_module(f"{MUTANTS}.{mutant}") for mutant in mutants]
    before = _attributes()
    for module in modules:
        module.install()
    replaced = list(_differences(before, _attributes()))
    try:
        yield
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
