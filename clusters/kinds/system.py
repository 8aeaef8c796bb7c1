"""Any system that a `system.toml` describes, its nodes as processes of this machine (docs/your-system.md)."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tribunal.clusters.api import ClusterError, Kind
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.endings import brought_up
from tribunal.clusters.nodes.leftovers import end_processes, own_processes
from tribunal.clusters.objects import ObjectOperation
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems.cluster import CAPABILITIES, SystemCluster, addresses_of
from tribunal.clusters.systems.description import BadSystem, System, read_system


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> SystemCluster:
    """Start the nodes; whatever goes wrong, nothing of it stays running."""
    return await brought_up(_made(RunContext(spec, directory, clock, cluster_id)))


def _made(run: RunContext) -> SystemCluster:
    path = Path(run.spec.system)
    try:
        system = read_system(path)
    except BadSystem as problem:
        raise ClusterError(str(problem)) from None
    shutil.copyfile(path, run.directory / "system.toml")  # what was run
    return SystemCluster(
        run, system, addresses_of(run, system, path.resolve().parent), CAPABILITIES - _lacking(system).keys()
    )


def _described(spec: ClusterSpec) -> System | None:
    return read_system(Path(spec.system)) if spec.system else None


def refused(spec: ClusterSpec) -> str:
    """Say why there is no such cluster."""
    try:
        system = _described(spec)
    except BadSystem as problem:
        return str(problem)
    if system is None:
        return "it runs what a file describes: cluster: {system: path/to/system.toml}"
    if spec.brokers != system.nodes.count:
        return f"{system.name} has {system.nodes.count} nodes, not {spec.brokers}"
    return "known bugs are replog's own" if spec.mutants else ""


def _lacking(system: System) -> dict[Capability, str]:
    """Return which of the kind's capabilities a system does not give, and why."""
    found = dict.fromkeys(sorted(system.withheld), f"{system.name} withholds it")
    return found if system.has_data else {Capability.WIPE: f"no command of {system.name} names {{data}}", **found}


def missing(spec: ClusterSpec) -> Mapping[Capability, str]:
    """Return what this system does not give, and why."""
    try:
        system = _described(spec)
    except BadSystem:
        return {}  # `refused` says it
    return {} if system is None else _lacking(system)


def operations(spec: ClusterSpec) -> frozenset[ObjectOperation]:
    """Return what its client can call."""
    system = _described(spec)
    return frozenset() if system is None else frozenset(system.client.operations)


def leftovers(run_dir: Path) -> list[str]:
    """Return which processes a run of this folder has left."""
    return [f"process {pid}" for pid in own_processes(run_dir)]


def sweep(run_dir: Path) -> list[str]:
    """End what a run of this folder has left; return what was done."""
    return end_processes(own_processes(run_dir))


KIND: Final = Kind(
    launch=launch,
    capabilities=CAPABILITIES,
    has_log=False,
    refused=refused,
    missing=missing,
    operations=operations,
    leftovers=leftovers,
    sweep=sweep,
)
