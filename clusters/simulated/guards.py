"""Guards: every place of the nodes' code that refuses, raises or catches something, and how often runs came there.

Rare bugs hide behind branches that no run reaches. The list is read out of the code itself, so it cannot go stale: an error code
that is answered (`Error.X` anywhere but in a comparison), an exception that is raised, and one that is caught. An assertion is none:
one that fails is a violation. Counting is done by code that `counted` puts into the functions of this process for as long as it
lasts, compiled from the same source with the same lines; nodes elsewhere run what is in the files, and pay nothing.
"""

import ast
import functools
import gc
import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final, TypeVar

import msgspec

import replog

T = TypeVar("T")

ROOT: Final = Path(replog.__file__).parent
# What a simulated node does not consist of: the real ports, the command line, and known bugs.
NOT_SIMULATED: Final = ("replog.host", "replog.mutants", "replog.__main__")
COUNTER: Final = "__guard_reached__"


class Guard(msgspec.Struct, frozen=True, order=True):
    """One place, by its module and function; `what` is numbered where a function has several alike."""

    module: str
    function: str
    what: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function}: {self.what}"


class Guards:
    """All guards, and how often each was reached."""

    def __init__(self) -> None:
        self.known: list[Guard] = []
        self._counts: list[int] = []

    def add(self, guard: Guard) -> int:
        """Take one; return the number that its code counts under."""
        self.known.append(guard)
        self._counts.append(0)
        return len(self.known) - 1

    def reached(self, number: int, value: T) -> T:
        """Count a guard, and return what stands there."""
        self._counts[number] += 1
        return value

    def counts(self) -> Counter[str]:
        """Return how often each was reached, those that were."""
        return Counter({str(guard): count for guard, count in zip(self.known, self._counts, strict=True) if count})


@contextmanager
def counted() -> Iterator[Guards]:
    """Count guards in this process until it is left."""
    guards = Guards()
    changed: list[tuple[FunctionType, CodeType]] = []
    modules = {module.__name__: module for module in _modules()}
    known, codes = _compiled()
    for guard in known:
        guards.add(guard)
    for function in [one for one in gc.get_objects() if isinstance(one, FunctionType)]:
        code = codes.get(function.__module__ or "", {}).get(_place(function.__code__))
        if code is not None and code.co_freevars == function.__code__.co_freevars:
            changed.append((function, function.__code__))
            function.__code__ = code
    for module in modules.values():
        vars(module)[COUNTER] = guards.reached
    try:
        yield guards
    finally:
        for function, code in changed:
            function.__code__ = code
        for module in modules.values():
            del vars(module)[COUNTER]


def known_guards() -> list[Guard]:
    """Return all there are."""
    return list(_compiled()[0])


@functools.cache  # two seconds, which a night needs for several of its parts
def _compiled() -> "tuple[tuple[Guard, ...], dict[str, dict[Place, CodeType]]]":
    """Return all guards in the order of their numbers, and by module the functions that count them."""
    guards = Guards()
    codes = {module.__name__: _codes(module, guards) for module in _modules()}
    return tuple(guards.known), codes


def _modules() -> Iterator[ModuleType]:
    names = ["replog", *(found.name for found in pkgutil.walk_packages([str(ROOT)], "replog."))]
    for name in sorted(names):
        if not name.startswith(NOT_SIMULATED):
            yield importlib.import_module(name)


Place = tuple[str, int]  # qualified name and first line


def _place(code: CodeType) -> Place:
    return code.co_qualname, code.co_firstlineno


def _codes(module: ModuleType, guards: Guards) -> dict[Place, CodeType]:
    """Return the module's functions with their guards counted, by where they stand."""
    file, before = str(module.__file__), len(guards.known)
    tree = _Finder(module.__name__, guards).visit(ast.parse(Path(file).read_bytes(), file))
    found: dict[Place, CodeType] = {}
    if len(guards.known) == before:
        return found
    waiting = [compile(tree, file, "exec", dont_inherit=True)]
    while waiting:
        inner = [constant for constant in waiting.pop().co_consts if isinstance(constant, CodeType)]
        found.update({_place(code): code for code in inner})
        waiting += inner
    return found


class _Finder(ast.NodeTransformer):
    """Puts a count at every guard of a module."""

    def __init__(self, module: str, guards: Guards) -> None:
        self._module = module
        self._guards = guards
        self._scopes: list[str] = []  # names of classes and functions around
        self._function_depth = 0
        self._alike: Counter[tuple[str, str]] = Counter()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Enter a function; defaults and decorators are no part of what it does."""
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Enter a function."""
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Enter a class."""
        self._scopes.append(node.name)
        node.body = [self.visit(one) for one in node.body]
        self._scopes.pop()
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Leave comparisons alone: what is asked for is not answered."""
        return node

    def visit_Set(self, node: ast.Set) -> ast.AST:
        """Leave sets of errors alone."""
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        """Leave patterns alone."""
        node.body = [self.visit(one) for one in node.body]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Count an error code that is answered."""
        is_error = isinstance(node.value, ast.Name) and node.value.id == "Error" and isinstance(node.ctx, ast.Load)
        if self._function_depth and is_error and node.attr.isupper() and node.attr != "NONE":
            return self._count(f"answers {node.attr}", node)
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Count an exception that is raised; one that is passed on was caught before."""
        self.generic_visit(node)
        if self._function_depth and node.exc is not None and not isinstance(node.exc, ast.Name | ast.Attribute):
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            node.exc = self._count(f"raises {ast.unparse(called)}", node.exc)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        """Count an exception that is caught."""
        self.generic_visit(node)
        if self._function_depth:
            what = "anything" if node.type is None else ast.unparse(node.type).strip("()")
            count = ast.Expr(self._count(f"catches {what}", ast.copy_location(ast.Constant(None), node.body[0])))
            node.body.insert(0, ast.copy_location(count, node.body[0]))
        return node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._scopes.append(node.name)
        self._function_depth += 1
        node.body = [self.visit(one) for one in node.body]
        self._function_depth -= 1
        self._scopes.pop()
        return node

    def _count(self, what: str, node: ast.expr) -> ast.Call:
        function = ".".join(self._scopes)
        self._alike[function, what] += 1
        nth = self._alike[function, what]
        number = self._guards.add(Guard(self._module, function, what if nth == 1 else f"{what} ({nth})"))
        name = ast.copy_location(ast.Name(COUNTER, ast.Load()), node)
        call = ast.Call(name, [ast.copy_location(ast.Constant(number), node), node], [])
        return ast.copy_location(call, node)
