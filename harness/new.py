"""`tribunal new`: a file that works, with its test, to be changed into one's own.

Written where the harness finds it: into the project's packages when called from its checkout, else into
`tribunal_plugins/` beside where `tribunal` is called.
"""

import keyword
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

import jinja2

from tribunal.harness import catalog
from tribunal.harness.scenario import BadScenario
from tribunal.results.plugins import FOLDER

NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# What can be made: its folder in the project, that of a user's own, and what there is already.
KINDS: Final[Mapping[str, tuple[str, str, Callable[[], Mapping[str, object]]]]] = {
    "fault": ("nemesis/faults", "nemesis", catalog.faults),
    "workload": ("workloads/kinds", "workloads", catalog.all_workloads),
    "checker": ("checkers/properties", "checkers", catalog.all_checkers),
    "scenario": ("scenarios", "scenarios", catalog.scenarios),
}

SYSTEM: Final = "system"
# The files of a system, their templates, and when a change is written, before its answer or later: lossy.toml is the one with the weakness.
SYSTEM_FILES: Final = (
    ("scenario.yaml", "scenario.yaml", ""),
    ("system.toml", "system.toml", "first"),
    ("lossy.toml", "system.toml", "later"),
    ("client.py", "client.py", ""),
    ("server.py", "server.py", ""),
)


def made(kind: str, name: str, about: str, folder: Path) -> list[Path]:
    """Write the file of a new thing and its test below a folder; return both. `BadScenario` when it cannot be."""
    if kind not in KINDS:
        raise catalog.nearest("kind of thing", kind, (*KINDS, SYSTEM))
    shipped, package, known = KINDS[kind]
    module = name.replace("-", "_")
    if not NAME.fullmatch(name) or keyword.iskeyword(module):
        raise BadScenario(f"name {name!r}: small letters, digits and hyphens, a letter first, no word of Python's")
    if name in known():
        raise BadScenario(f"there is a {kind} {name!r} already")
    is_project = (folder / "tribunal" / package).is_dir() and (folder / shipped).is_dir()
    place = folder / shipped if is_project else folder / FOLDER / package
    tests = folder / "tests" / package if is_project else folder / FOLDER / "tests"
    suffix = "yaml" if kind == "scenario" else "py"
    target = place / f"{name if kind == 'scenario' else module}.{suffix}"
    test = tests / f"test_{module}.py"
    for path in (target, test):
        if path.exists():
            raise BadScenario(f"{path}: there already")
    imported_from = f"tribunal.{shipped.replace('/', '.')}" if is_project else f"{FOLDER}.{package}"
    words = {"name": name, "module": module, "about": _sentence(about, name), "imported_from": imported_from}
    for path, template in ((target, f"{kind}.{suffix}.j2"), (test, f"{kind}_test.py.j2")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_rendered(template, words), encoding="utf-8")
    return [target, test]


def made_system(name: str, folder: Path) -> list[Path]:
    """Write a folder with a small system on trial, to be replaced by one's own; return its files. `BadScenario` when it cannot be."""
    if not NAME.fullmatch(name):
        raise BadScenario(f"name {name!r}: small letters, digits and hyphens, a letter first")
    place = folder / name
    if place.exists():
        raise BadScenario(f"{place}: there already")
    place.mkdir(parents=True)
    for file, template, write in SYSTEM_FILES:
        text = _rendered(f"system/{template}.j2", {"name": name, "write": write})
        (place / file).write_text(text, encoding="utf-8")
    return [place / file for file, _, _ in SYSTEM_FILES]


def _sentence(about: str, name: str) -> str:
    """Return one line that can stand in a docstring and in YAML."""
    line = " ".join(about.replace("\\", "/").replace('"', "'").split())
    return line or f"What {name} is, in one sentence"


def _rendered(name: str, words: Mapping[str, str]) -> str:
    text = resources.files("tribunal.harness").joinpath("templates", "new", name).read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)  # noqa: S701 - Python
    return environment.from_string(text).render(words)
