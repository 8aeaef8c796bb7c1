"""What there is to run: scenarios, faults, workloads, clusters, checkers, mutants, by name.

The module's name is its name on the command line: what lies in the folder is what there is. Names with an
underscore may be written with a hyphen. Unknown names are answered with the nearest known ones.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

import replog.mutants
import tribunal.checkers.properties
import tribunal.clusters.kinds
import tribunal.nemesis.faults
import tribunal.workloads.kinds
from tribunal import PACKAGE
from tribunal.results.plugins import FOLDER

SCENARIOS: Final = PACKAGE / "scenarios"
KINDS: Final = ("scenarios", "faults", "workloads", "checkers", "mutants", "clusters")


class Unknown(ValueError):
    """A name that nothing has; one clear line with near matches."""


def nearest(what: str, name: str, known: Iterable[str]) -> Unknown:
    """Say that a name is unknown and which ones are near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
    return Unknown(f"unknown {what} {name!r}; {hint}")


def _modules(package: ModuleType, attribute: str) -> dict[str, ModuleType]:
    """Return a package's plugins: its modules that define this attribute themselves."""
    found = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if hasattr(module, attribute):
            found[info.name.replace("_", "-")] = module
    return found


def faults() -> dict[str, ModuleType]:
    """Return the faults."""
    return _modules(tribunal.nemesis.faults, "NEEDS")


def all_workloads() -> dict[str, ModuleType]:
    """Return the workloads."""
    return _modules(tribunal.workloads.kinds, "prepare")


def all_clusters() -> dict[str, ModuleType]:
    """Return the kinds of cluster."""
    return _modules(tribunal.clusters.kinds, "launch")


def all_checkers() -> dict[str, ModuleType]:
    """Return the properties that are judged."""
    return _modules(tribunal.checkers.properties, "PROPERTY")


def mutants() -> dict[str, str]:
    """Return the known bugs that can be switched back on: module name and its docstring, nothing imported."""
    found = {}
    for info in pkgutil.iter_modules(replog.mutants.__path__):
        source = Path(replog.mutants.__path__[0]) / f"{info.name}.py"
        found[info.name] = first_sentence(source.read_text().lstrip().removeprefix('"""'))
    return found


def mutant_named(name: str) -> str:
    """Return a mutant's module name from `m44_acks_local` or `M44`."""
    known = mutants()
    wanted = name.lower().replace("-", "_")
    for module in known:
        if wanted in (module, module.partition("_")[0]):
            return module
    raise nearest("mutant", name, [*known, *(module.partition("_")[0].upper() for module in known)])


def scenarios() -> dict[str, Path]:
    """Return the scenario files that ship with the project, and the user's own."""
    folders = (SCENARIOS, FOLDER / "scenarios")
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def scenario_file(name: str) -> Path:
    """Return a scenario's file from its name, or from a path to one."""
    known = scenarios()
    if name in known:
        return known[name]
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if path.is_file():
            return path
        raise Unknown(f"scenario file {name!r} does not exist")
    raise nearest("scenario", name, known)


def one_of(what: str, name: str, known: dict[str, ModuleType]) -> ModuleType:
    """Return the plugin of this name."""
    found = known.get(name.replace("_", "-"))
    if found is None:
        raise nearest(what, name, known)
    return found


def listing(kind: str) -> dict[str, str]:
    """Return names and one-line descriptions of everything of one kind."""
    if kind == "scenarios":
        return {name: scenario_about(path) for name, path in scenarios().items()}
    if kind == "mutants":
        return mutants()
    plugins = {
        "faults": faults,
        "workloads": all_workloads,
        "checkers": all_checkers,
        "clusters": all_clusters,
    }
    if kind not in plugins:
        raise nearest("kind of thing", kind, KINDS)
    return {name: first_sentence(module.__doc__ or "") for name, module in plugins[kind]().items()}


def scenario_about(path: Path) -> str:
    """Return a scenario's `about` line without judging the rest of the file."""
    for line in path.read_text().splitlines():
        if line.startswith("about:"):
            return line.partition(":")[2].strip().strip("\"'")
    return ""


def first_sentence(text: str) -> str:
    """Return a docstring's first line."""
    lines = text.strip().splitlines()
    return lines[0].strip().strip('"') if lines else ""
