"""Plugins: what ships with the project, what an installed distribution brings, and what a user has beside where `tribunal` is called.

A plugin is one module that exports one value (`FAULT`, `WORKLOAD`, `PROPERTY`, `KIND`); the module's name is its name, its
docstring's first line says what it is. It is found

- in the package of what ships,
- by an entry point of an installed distribution: `[project.entry-points."tribunal.faults"] jam = "my_chaos.jam"`,
- in `tribunal_plugins/`: `tribunal_plugins/nemesis/jam.py` (or a package `jam`) is the fault `jam`. It is imported as
  `tribunal_plugins.nemesis.jam`, so what plugins share lies beside them, in a module whose name begins with an underscore.
  To the workers of a Spark cluster the folder travels with our code.

What cannot be loaded, or has the name of something else, is refused in one line that names the file and the reason: a plan
never means another fault than its author's because a file was passed over.
"""

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Final, Generic, TypeVar

import msgspec

from tribunal import PACKAGE
from tribunal.results.shipped_code import files_below, is_shipped, unpacked

FOLDER: Final = Path("tribunal_plugins")
SHIPPED: Final = "tribunal itself"

Value = TypeVar("Value")


class BadPlugin(ValueError):
    """A plugin that cannot be used; one line that names its file and the reason."""


class Seam(msgspec.Struct, frozen=True, kw_only=True):
    """Where one sort of plugin is found, and by what it is known.

    sort:        what one is called.
    attributes:  names of the value that it exports, the first that is there counts.
    package:     where those lie that ship.
    group:       of entry points.
    folder:      in `tribunal_plugins`.
    """

    sort: str
    attributes: tuple[str, ...]
    package: str
    group: str
    folder: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's module and the value that it exports."""

    name: str  # as in Python, with underscores
    module: ModuleType
    value: object
    origin: str

    @property
    def about(self) -> str:
        """What it is: the first line of its docstring."""
        return first_line(self.module.__doc__ or "")


class Plugin(msgspec.Struct, Generic[Value], frozen=True, kw_only=True):
    """A plugin whose value is what it has to be."""

    name: str  # as in Python, with underscores
    value: Value
    document: str  # its module's docstring

    @property
    def about(self) -> str:
        """What it is: the docstring's first line."""
        return first_line(self.document)


def of_type(seam: Seam, wanted: type[Value]) -> dict[str, Plugin[Value]]:
    """Return all plugins of a sort by their names on the command line; `BadPlugin` for one whose value is no such thing."""
    plugins = {}
    for one in found(seam):
        if not isinstance(one.value, wanted):
            kind = type(one.value).__name__
            raise BadPlugin(f"plugin {one.origin}: {seam.attributes[0]} is a {kind}, not a {wanted.__name__}")
        plugin = Plugin(name=one.name, value=one.value, document=one.module.__doc__ or "")
        plugins[one.name.replace("_", "-")] = plugin
    return plugins


def found(seam: Seam) -> tuple[Found, ...]:
    """Return all plugins of a sort: what ships, what is installed, what is the user's own; `BadPlugin` for one that cannot be used."""
    return _found(seam, _own_folder())


def own_files() -> list[tuple[Path, str]]:
    """Return the files of a user's own plugins, with their names in an archive of our code that travels."""
    return files_below(FOLDER, str(FOLDER)) if FOLDER.is_dir() else []


@cache
def _came_with_us() -> Path:
    """Return the folder of a user's own plugins on a Spark worker, whose working directory is none of the user's."""
    return unpacked() / FOLDER


def _own_folder() -> Path:
    return _came_with_us() if is_shipped() else FOLDER.resolve()


@cache
def _found(seam: Seam, own: Path) -> tuple[Found, ...]:
    known: dict[str, Found] = {}
    for one in (*_shipped(seam), *_installed(seam), *_own(seam, own)):
        if one.name in known:
            name = one.name.replace("_", "-")
            raise BadPlugin(
                f"plugin {one.origin}: there is a {seam.sort} {name!r} already, of {known[one.name].origin}: give it another name"
            )
        known[one.name] = one
    return tuple(known.values())


def _shipped(seam: Seam) -> Iterator[Found]:
    """Return what ships; a mistake in there is ours, and may look like one."""
    package = importlib.import_module(seam.package)
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{seam.package}.{info.name}")
        name = _exported(module, seam)
        if name is not None:
            yield Found(name=info.name, module=module, value=getattr(module, name), origin=SHIPPED)


def _installed(seam: Seam) -> Iterator[Found]:
    """Return what installed distributions bring."""
    for entry in sorted(entry_points(group=seam.group), key=lambda entry: (entry.name, entry.value)):
        origin = _words(entry)
        module = _imported(entry.module, origin)
        attribute = entry.attr or _exported(module, seam)
        if attribute is None or not hasattr(module, attribute):
            raise BadPlugin(f"plugin {origin}: it has no {attribute or seam.attributes[0]}")
        name = entry.name.replace("-", "_")
        yield Found(name=name, module=module, value=getattr(module, attribute), origin=origin)


def _words(entry: EntryPoint) -> str:
    distribution = "an installed package" if entry.dist is None else entry.dist.name
    return f"{entry.value} of {distribution} (entry point {entry.name!r} of {entry.group})"


def _own(seam: Seam, own: Path) -> Iterator[Found]:
    """Return what lies in the user's folder."""
    importable(own)
    folder = own / seam.folder
    packages = (file.parent for file in folder.glob("*/__init__.py"))
    for path in sorted((*folder.glob("*.py"), *packages)):
        if path.stem.startswith("_"):
            continue
        origin = str(FOLDER / seam.folder / path.name)
        module = _imported(f"{FOLDER}.{seam.folder}.{path.stem}", origin)
        attribute = _exported(module, seam)
        if attribute is None:
            raise BadPlugin(
                f"plugin {origin}: it exports no {seam.attributes[0]}; what plugins share begins with an underscore"
            )
        name = path.stem.replace("-", "_")  # the same name to who types it
        yield Found(name=name, module=module, value=getattr(module, attribute), origin=origin)


def importable(own: Path | None = None) -> None:
    """Let `import tribunal_plugins.nemesis.jam` find the folder, without giving the folder around it a say in any other import."""
    path, name = str(FOLDER.resolve() if own is None else own), str(FOLDER)
    present = sys.modules.get(name)
    if present is not None and path in list(getattr(present, "__path__", ())):
        return
    for stale in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
        del sys.modules[stale]  # of another working directory
    package = ModuleType(name, "A user's own plugins.")
    package.__path__ = [path]
    sys.modules[name] = package


def _imported(name: str, origin: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as problem:
        reason = " ".join(str(problem).split()) or "without a word"
        raise BadPlugin(f"plugin {origin}: {type(problem).__name__}: {reason}{_line(problem)}") from problem


def _line(problem: Exception) -> str:
    """Return where in foreign code it was raised; a syntax error says it itself."""
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if "importlib" not in frame.filename and not Path(frame.filename).is_relative_to(PACKAGE)
    ]
    if isinstance(problem, SyntaxError) or not frames:
        return ""
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _exported(module: ModuleType, seam: Seam) -> str | None:
    return next((name for name in seam.attributes if hasattr(module, name)), None)


def first_line(text: str) -> str:
    """Return a docstring's first line."""
    lines = text.strip().splitlines()
    return lines[0].strip().strip('"') if lines else ""
