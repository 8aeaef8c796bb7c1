"""What there is to run: scenarios, faults, workloads, clusters, checkers, mutants, by name.

The module's name is its name on the command line; plugins are found as `tribunal.results.plugins` says. Names with an
underscore may be written with a hyphen. Unknown names are answered with the nearest known ones.
"""

import pkgutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import replog.mutants
from tribunal import PACKAGE
from tribunal.checkers.api import PROPERTIES, Property
from tribunal.clusters.api import Kind
from tribunal.clusters.kafka.jars import held_versions
from tribunal.clusters.kafka.java import wheel_state
from tribunal.clusters.kafka.releases import KNOWN, VERSION, release
from tribunal.nemesis.api import AnyFault, Fault
from tribunal.results import plugins
from tribunal.results.near_words import MOST_NAMED, hint
from tribunal.results.plugins import FOLDER, BadPlugin, Plugin, Seam, first_line
from tribunal.workloads.api import AnyWorkload, Workload

SIMULATED: Final = "simulated"  # the kind that many seeds are run on
SCENARIOS: Final = PACKAGE / "scenarios"
KINDS: Final = ("scenarios", "faults", "workloads", "checkers", "mutants", "clusters", "versions")

FAULTS: Final = Seam(
    sort="fault", attributes=("FAULT",), package="tribunal.nemesis.faults", group="tribunal.faults", folder="nemesis"
)
WORKLOADS: Final = Seam(
    sort="workload",
    attributes=("WORKLOAD",),
    package="tribunal.workloads.kinds",
    group="tribunal.workloads",
    folder="workloads",
)
CLUSTERS: Final = Seam(
    sort="kind of cluster",
    attributes=("KIND",),
    package="tribunal.clusters.kinds",
    group="tribunal.clusters",
    folder="clusters",
)

Thing = TypeVar("Thing")


class Unknown(ValueError):
    """A name that nothing has; one clear line with near matches."""


def nearest(what: str, name: str, known: Iterable[str]) -> Unknown:
    """Say that a name is unknown and which ones are near; of more than a line takes, where all are listed."""
    names = list(known)
    is_listed = len(names) > MOST_NAMED and f"{what}s" in KINDS
    otherwise = f"`tribunal list {what}s` names all of them" if is_listed else None
    return Unknown(f"unknown {what} {name!r}; {hint(name, names, otherwise)}")


def faults() -> dict[str, AnyFault]:
    """Return the faults."""
    return {name: plugin.value for name, plugin in plugins.of_type(FAULTS, Fault).items()}


def all_workloads() -> dict[str, AnyWorkload]:
    """Return the workloads."""
    return {name: plugin.value for name, plugin in plugins.of_type(WORKLOADS, Workload).items()}


def is_simulated(cluster: str) -> bool:
    """Return whether this kind's nodes live in virtual time; `Unknown` for a kind that there is not."""
    return one_of("cluster", cluster, all_clusters()).is_simulated


def all_clusters() -> dict[str, Kind]:
    """Return the kinds of cluster."""
    return {name: plugin.value for name, plugin in plugins.of_type(CLUSTERS, Kind).items()}


def all_checkers() -> dict[str, str]:
    """Return the properties that are judged, and what each is."""
    return _abouts(plugins.of_type(PROPERTIES, Property))


def mutants() -> dict[str, str]:
    """Return the known bugs that can be switched back on: module name and its docstring, nothing imported."""
    found = {}
    for info in pkgutil.iter_modules(replog.mutants.__path__):
        source = Path(replog.mutants.__path__[0]) / f"{info.name}.py"
        found[info.name] = first_line(source.read_text().lstrip().removeprefix('"""'))
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
    shipped = {path.stem: path for path in sorted(SCENARIOS.glob("*.yaml"))}
    own = {path.stem: path for path in sorted((FOLDER / "scenarios").glob("*.yaml"))}
    for name in shipped.keys() & own.keys():
        raise BadPlugin(f"{own[name]}: there is a scenario {name!r} already, of tribunal itself: give it another name")
    return shipped | own


def scenario_file(name: str) -> Path:
    """Return a scenario's file from its name, or from a path to one."""
    known = scenarios()
    if name in known:
        return known[name]
    in_folder = SCENARIOS / f"{name}.yaml"  # `museum/cut-off-voter`: not among those that are listed and swept
    if "/" in name and in_folder.is_file():
        return in_folder
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if path.is_file():
            return path
        raise Unknown(f"scenario file {name!r} does not exist")
    raise nearest("scenario", name, known)


def one_of(what: str, name: str, known: Mapping[str, Thing]) -> Thing:
    """Return the thing of this name."""
    return known[known_name(what, name, known)]


def known_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return a name as it is known, with hyphens: plans, recordings and journals have no other."""
    hyphenated = name.replace("_", "-")
    if hyphenated not in known:
        raise nearest(what, name, known)
    return hyphenated


def listing(kind: str) -> dict[str, str]:
    """Return names and one-line descriptions of everything of one kind."""
    if kind == "scenarios":
        return {name: scenario_about(path) for name, path in scenarios().items()}
    if kind == "mutants":
        return mutants()
    if kind == "checkers":
        return all_checkers()
    if kind == "faults":
        return _abouts(plugins.of_type(FAULTS, Fault))
    if kind == "workloads":
        return _abouts(plugins.of_type(WORKLOADS, Workload))
    if kind == "clusters":
        return _abouts(plugins.of_type(CLUSTERS, Kind))
    if kind == "versions":
        return versions()
    raise nearest("kind of thing", kind, KINDS)


def versions() -> dict[str, str]:
    """Return the releases of Apache Kafka that can be asked for, and what is here of each."""
    held = held_versions()
    named = {**dict.fromkeys(KNOWN), **dict.fromkeys(version for version in held if VERSION.fullmatch(version))}
    chosen = sorted((release(version) for version in named), key=lambda one: one.numbers)
    here = dict.fromkeys(held, "its jars are here")
    states = {one.name: here.get(one.name, "its jars would be fetched by Maven at the first run") for one in chosen}
    javas = {one.name: "" if one.java_most is None else wheel_state() for one in chosen}
    parts = {one.name: (states[one.name], javas[one.name], one.lacks) for one in chosen}
    return {name: "; ".join(part for part in said if part) for name, said in parts.items()}


def _abouts(found: Mapping[str, Plugin[Thing]]) -> dict[str, str]:
    return {name: plugin.about for name, plugin in found.items()}


def scenario_about(path: Path) -> str:
    """Return a scenario's `about` line without judging the rest of the file."""
    for line in path.read_text().splitlines():
        if line.startswith("about:"):
            return line.partition(":")[2].strip().strip("\"'")
    return ""
