"""Any system that a `system.toml` describes (docs/your-system.md): processes of this machine, on loopback or in namespaces, containers, or hosts."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.api import CLIENTS, ClusterError, Kind
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.endings import brought_up, to_its_end
from tribunal.clusters.existing.acts import Acts, left
from tribunal.clusters.existing.description import BadCluster, NodesThere, read_nodes
from tribunal.clusters.existing.undoing import acts_left, acts_undone, commands_of
from tribunal.clusters.kafka.node import property_text
from tribunal.clusters.kinds import containers
from tribunal.clusters.kinds.existing import not_given
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.nodes import hosts_of_run
from tribunal.clusters.nodes.hosts_of_run import lacking
from tribunal.clusters.nodes.leftovers import end_processes, own_processes
from tribunal.clusters.nodes.shared_memory import left_segments, remove_segments
from tribunal.clusters.nodes.ssh_hosts import read_hosts
from tribunal.clusters.objects import ObjectOperation
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems.already_there import There, ThereCluster
from tribunal.clusters.systems.clocks import lacking as no_clocks
from tribunal.clusters.systems.cluster import CAPABILITIES, OF_OBJECTS, LogCluster, SystemCluster
from tribunal.clusters.systems.commands import NoProgram
from tribunal.clusters.systems.container_links import lacking as no_cuts
from tribunal.clusters.systems.containers import InContainers
from tribunal.clusters.systems.description import Addresses, BadSystem, System, read_system
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.clusters.systems.host_links import lacking as no_rules_on_hosts
from tribunal.clusters.systems.kafka_view import KafkaView
from tribunal.clusters.systems.on_hosts import OnSshHosts
from tribunal.clusters.systems.own_settings import with_given
from tribunal.clusters.systems.places import NAMESPACES, InNamespaces, OnLoopback, Place
from tribunal.clusters.systems.views import ObjectView

OF_FORGETFUL_DISKS: Final = (
    Capability.POWER_FAIL, Capability.LOSE_PART, Capability.TROUBLE_DISK, Capability.FAIL_DISK,
)  # fmt: skip
OWN_KEYS: Final = "tribunal-"  # how keys begin in a system that others use too
MUTANTS_ARE_OURS: Final = "known bugs are replog's own"


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> SystemCluster:
    """Start the nodes; whatever goes wrong, nothing of it stays running."""
    run = RunContext(spec, directory, clock, cluster_id)
    system, folder = _taken(run)
    place = _place(spec, system, folder)
    try:
        return await _started(run, system, folder, place)
    except NoProgram as problem:
        if system.nodes.install is None:
            raise
        raise ClusterError(f"{problem}; its file says how to install it: tribunal install {spec.system}") from None


async def _started(run: RunContext, system: System, folder: Path, place: Place) -> SystemCluster:
    try:
        addresses = await place.open(run, system, folder)
        if system.log is None:
            addresses = msgspec.structs.replace(
                addresses, settings=with_given(system.nodes.settings, run.spec.settings)
            )
        cluster = await _composed(run, system, place, addresses)
    except BaseException:
        await to_its_end(place.close())
        raise
    return await brought_up(cluster)


async def _composed(run: RunContext, system: System, place: Place, addresses: Addresses) -> SystemCluster:
    """Return the cluster, not started yet: of objects, or of a log."""
    capabilities = CAPABILITIES - _lacking(run.spec, system).keys()
    if system.client is not None:
        begun_us = round(run.clock.wall_start_ms * 1_000)  # digits alone: systems make names of keys
        keys = f"{OWN_KEYS}{begun_us}-" if isinstance(place, There) else ""
        seen = ObjectView(run, system.name, system.client, addresses, place.prefix(CLIENTS), run.directory, keys=keys)
        if isinstance(place, There):
            return ThereCluster(run, system, place, addresses, capabilities, seen)
        return SystemCluster(run, system, place, addresses, capabilities, seen)
    assert system.log is not None
    ports = {node: addresses.ports[node][system.log.controllers] for node in addresses.hosts}
    where = {node: (addresses.hosts[node], port) for node, port in ports.items()}
    advertised = {node: await place.reached(node, addresses.endpoint(node), past_cuts=False) for node in where}
    view = KafkaView(
        run,
        advertised=advertised,
        brokers={node: await place.reached(node, addresses.endpoint(node), past_cuts=True) for node in where},
        controllers={node: await place.reached(node, where[node], past_cuts=True) for node in where},
        are_copied=system.nodes.may_forget or place.fetching is not None,
    )
    settings = [f"{name}={property_text(value)}" for name, value in run.spec.node_settings().items()]
    given = {"settings": "\n".join(settings), "cluster_id": run.cluster_id}
    addresses = msgspec.structs.replace(addresses, advertised=advertised, of_log=given)
    return LogCluster(run, system, place, addresses, capabilities, view)


def _place(spec: ClusterSpec, system: System, folder: Path) -> Place:
    if system.nodes.dockerfile is not None:
        return InContainers((folder / system.nodes.dockerfile).resolve())
    if system.nodes.image is not None:
        return InContainers(system.nodes.image)
    if system.nodes.hosts is not None:
        return OnSshHosts(folder / system.nodes.hosts)
    if system.nodes.existing is not None:
        return There(folder / system.nodes.existing, _nodes_there(folder / system.nodes.existing))
    return InNamespaces() if spec.isolation == NAMESPACES else OnLoopback()


def _nodes_there(file: Path) -> NodesThere:
    try:
        return read_nodes(file)
    except BadCluster as problem:
        raise ClusterError(str(problem)) from None


def _taken(run: RunContext) -> tuple[System, Path]:
    """Read what is to be run, and keep it with the run; return it with its folder."""
    path = Path(run.spec.system)
    try:
        system = read_system(path)
    except BadSystem as problem:
        raise ClusterError(str(problem)) from None
    shutil.copyfile(path, run.directory / "system.toml")
    return system, path.resolve().parent


def _described(spec: ClusterSpec) -> System | None:
    return read_system(Path(spec.system)) if spec.system else None


def refused(spec: ClusterSpec) -> str:
    """Say why there is no such cluster."""
    return _unfit(spec) or (MUTANTS_ARE_OURS if spec.mutants else "")


def _unfit(spec: ClusterSpec) -> str:
    try:
        system = _described(spec)
    except BadSystem as problem:
        return str(problem)
    if system is None:
        return "it runs what a file describes: cluster: {system: path/to/system.toml}"
    if spec.brokers != system.nodes.count:
        return f"{system.name} has {system.nodes.count} nodes, not {spec.brokers}"
    if system.log is None and (wrong := _wrong_setting(spec, system)):
        return wrong
    return _other_promises(spec, system) or _cannot_be_placed(spec, system) or _cannot_be_isolated(spec, system)


def _other_promises(spec: ClusterSpec, system: System) -> str:
    """Return what a plan would judge by that its file does not promise, or does beside it; empty: nothing."""
    planned, promised = dict(spec.promises), system.promises.flat
    for name in sorted(planned.keys() | promised.keys()):
        if planned.get(name) != promised.get(name):
            of_plan, of_file = (repr(one[name]) if name in one else "nothing" for one in (planned, promised))
            return f"{system.name}: promises: {name}: the plan says {of_plan}, the file {of_file}; draw the plan anew from its scenario"
    return ""


def _wrong_setting(spec: ClusterSpec, system: System) -> str:
    """Return which setting of a plan its file does not have, or has of another kind; empty: none."""
    try:
        with_given(system.nodes.settings, spec.settings)
    except ValueError as problem:
        return f"{system.name}: {problem}"
    return ""


def _cannot_be_placed(spec: ClusterSpec, system: System) -> str:
    """Return why its nodes cannot be where its file says; empty: they can."""
    nodes = system.nodes
    if nodes.in_containers and nodes.hosts is not None:
        return f"{system.name} runs in containers (image, dockerfile) or on hosts, not both"
    if nodes.image is not None and nodes.dockerfile is not None:
        return f"{system.name} runs in containers of an image or of a dockerfile, not both"
    if nodes.dockerfile is not None and (no_file := _no_dockerfile(Path(spec.system).parent, nodes.dockerfile)):
        return no_file
    if system.log is None and spec.version:
        return f"{system.name} is no log of Apache Kafka: it has no release {spec.version}"
    if nodes.existing is not None:
        return _not_there(Path(spec.system).parent / nodes.existing, spec)
    where = "in containers" if nodes.in_containers else "on hosts" if nodes.hosts is not None else ""
    if where and spec.isolation == NAMESPACES:
        return f"{system.name} runs {where}: no isolation {NAMESPACES}"
    if nodes.hosts is not None and nodes.may_forget:
        return f"{system.name} runs {where}: no forgetful disks"
    if nodes.hosts is not None:
        return _no_hosts(Path(spec.system).parent / nodes.hosts, spec)
    return ""


def _cannot_be_isolated(spec: ClusterSpec, system: System) -> str:
    """Return why processes of this machine cannot be parted, or have such disks; empty: they can."""
    if spec.isolation == NAMESPACES and isinstance(way_in(), str):
        return f"isolation {NAMESPACES}: {way_in()}"
    if not system.nodes.may_forget:
        return ""
    if spec.isolation != NAMESPACES and not system.nodes.in_containers:
        return f"forgetful disks of {system.name} are mounted in namespaces: --set cluster.isolation={NAMESPACES}"
    if no_disk := no_disks(in_containers=system.nodes.in_containers):
        return f"forgetful disks of {system.name}: {no_disk}"
    return ""


def _not_there(file: Path, spec: ClusterSpec) -> str:
    """Return why its nodes cannot be those of a file; empty: they can."""
    try:
        named = sorted(read_nodes(file).endpoints)
    except BadCluster as problem:
        return str(problem)
    if named != list(spec.broker_ids):
        return f"{file} names nodes {', '.join(map(str, named))}; its ids have to be 1 to {len(spec.broker_ids)}"
    return "its nodes run already: no isolation of ours" if spec.isolation == NAMESPACES else ""


def _no_dockerfile(folder: Path, name: str) -> str:
    """Return why an image cannot be built of a file; empty: it is there."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        return f"dockerfile {name}: it has to lie in the folder of system.toml, which is what is sent to the builder"
    if any(part.startswith(".") for part in path.relative_to(folder.resolve()).parts[:1]):
        return f"dockerfile {name}: hidden names are not sent to the builder: give it another one"
    return "" if path.is_file() else f"dockerfile {name}: there is no file {path}"


def _no_rules(file: Path, spec: ClusterSpec) -> str:
    """Return why links between the hosts of a file are not cut; empty: they may be."""
    try:
        return no_rules_on_hosts(read_hosts(file), spec.broker_ids)
    except ClusterError as problem:
        return str(problem)  # `refused` says it too


def _no_hosts(file: Path, spec: ClusterSpec) -> str:
    """Return why its nodes cannot be on the hosts of a file; empty: they can."""
    if missing := lacking():
        return f"{missing[0].reason}: {missing[0].remedy}"
    try:
        hosts = read_hosts(file)
        for node in spec.broker_ids:
            hosts.entry(node)
    except ClusterError as problem:
        return str(problem)
    return ""


def _lacking(spec: ClusterSpec, system: System) -> dict[Capability, str]:
    """Return which of the kind's capabilities a system does not give, and why."""
    found: dict[Capability, str] = {}
    if system.nodes.existing is not None:
        found |= _not_by_command(Path(spec.system).parent / system.nodes.existing, system)
    elif system.nodes.in_containers:
        if no_cuts():
            found[Capability.CUT] = f"nobody stops packets between its containers: {no_cuts()}"
    elif system.nodes.hosts is not None:
        if no_rules := _no_rules(Path(spec.system).parent / system.nodes.hosts, spec):
            found[Capability.CUT] = no_rules
    elif spec.isolation != NAMESPACES:
        found[Capability.CUT] = f"its nodes share this machine's network: cluster.isolation={NAMESPACES} parts them"
    if no_clock := _no_clock(system):
        found[Capability.SET_CLOCK] = no_clock
    if no_damage := _no_damage(system):
        found[Capability.DAMAGE_FILES] = no_damage
    if not system.nodes.may_forget:
        no_disk = f'{system.name} has no disk = "forgetful"'
        found[Capability.POWER_FAIL] = f"nobody knows what was not synced: {no_disk}"
        found[Capability.LOSE_PART] = found[Capability.POWER_FAIL]
        found[Capability.TROUBLE_DISK] = f"the machine's own disk refuses nothing: {no_disk}"
        found[Capability.FAIL_DISK] = found[Capability.TROUBLE_DISK]
    if system.log is None:
        found |= dict.fromkeys(CAPABILITIES - OF_OBJECTS, f"{system.name} has no records")
    if not system.has_data:
        found[Capability.WIPE] = f"no command of {system.name} names {{data}}"
    return found | dict.fromkeys(sorted(system.withheld), f"{system.name} withholds it")


def _not_by_command(file: Path, system: System) -> dict[Capability, str]:
    """Return what no command of its nodes' file does, and what nobody could prove."""
    try:
        found = not_given(read_nodes(file).commands, f"{system.name}: {file.name}")
    except BadCluster:
        return {}  # `refused` says it
    if system.nodes.ready.is_port:
        found.setdefault(
            Capability.PAUSE,
            f"{system.name}: ready has no http and no command: a port accepts connections for a process that is stopped, too",
        )
    return found


def _no_clock(system: System) -> str:
    """Return why its nodes' clocks are right; empty: they can be wrong."""
    if system.nodes.clock == "plain":
        return f'the machine has one clock: {system.name} has no clock = "shim"'
    if not system.nodes.has_own_clock:
        return "its nodes are no processes of this machine, which alone are given a clock of their own"
    return no_clocks()


def _no_damage(system: System) -> str:
    """Return why nobody damages its files; empty: somebody can."""
    if system.log is not None:
        return f"{system.name} is a log: nobody knows which of its records lie in a damaged file"
    if system.nodes.hosts is not None:
        return "its files are on other machines"
    return "" if system.has_data else f"no command of {system.name} names {{data}}"


def lacking_here() -> Mapping[Capability, str]:
    """Return what no system can have on this machine, whatever its file says.

    Forgetful disks are mounted in namespaces, or by root; clocks of their own are built by a compiler.
    """
    inside = way_in()
    why = no_disks() or (inside if isinstance(inside, str) and no_disks(in_containers=True) else "")
    of_clocks = {Capability.SET_CLOCK: no_clocks()} if no_clocks() else {}
    return of_clocks | (dict.fromkeys(OF_FORGETFUL_DISKS, why) if why else {})


def missing(spec: ClusterSpec) -> Mapping[Capability, str]:
    """Return what this system does not give, and why."""
    try:
        system = _described(spec)
    except BadSystem:
        return {}  # `refused` says it
    return {} if system is None else _lacking(spec, system)


def of_whole_nodes(spec: ClusterSpec) -> frozenset[Capability]:
    """Return what commands do to whole nodes alone."""
    try:
        system = _described(spec)
    except BadSystem:
        return frozenset()  # `refused` says it
    is_there = system is not None and system.nodes.existing is not None
    return frozenset({Capability.CUT}) if is_there else frozenset()


def operations(spec: ClusterSpec) -> frozenset[ObjectOperation]:
    """Return what its client can call."""
    system = _described(spec)
    return frozenset() if system is None or system.client is None else frozenset(system.client.operations)


def has_log(spec: ClusterSpec) -> bool:
    """Whether it has records."""
    return bool(spec.protocol)


def _has_containers(run_dir: Path) -> bool:
    """Whether a run of this folder is one of containers: its system.toml was copied there first."""
    try:
        return read_system(run_dir / "system.toml").nodes.in_containers
    except BadSystem:
        return False


def leftovers(run_dir: Path) -> list[str]:
    """Return which processes, segments of memory and containers a run of this folder has left, here and on its hosts."""
    found = [f"process {pid}" for pid in own_processes(run_dir)] + left_segments(run_dir)
    found += hosts_of_run.leftovers(run_dir)
    done = left(run_dir)
    found += [] if done is None else acts_left(done)
    return found + (containers.leftovers(run_dir) if _has_containers(run_dir) else [])


def sweep(run_dir: Path) -> list[str]:
    """End what a run of this folder has left; return what was done."""
    done = end_own(run_dir) + hosts_of_run.sweep(run_dir) + _acts_undone(run_dir)
    return done + (containers.sweep(run_dir) if _has_containers(run_dir) else [])


def end_own(run_dir: Path) -> list[str]:
    """End the processes of this machine that a run of this folder has left, and remove their memory; return what was done."""
    return end_processes(own_processes(run_dir)) + remove_segments(run_dir)


def _acts_undone(run_dir: Path) -> list[str]:
    done = left(run_dir)
    if done is None:
        return []
    path = Path(done.cluster)
    try:
        given = read_nodes(path)
    except BadCluster as problem:
        return [f"nothing: {problem}"]
    acts = Acts(run_dir, path, done)
    said = acts_undone(given, path, acts)
    acts.close()
    return [one.text for one in said]


KIND: Final = Kind(
    launch=launch,
    capabilities=CAPABILITIES,
    lacking=lacking_here,
    runs_systems=True,
    has_releases=True,
    has_log=has_log,
    refused=refused,
    missing=missing,
    of_whole_nodes=of_whole_nodes,
    operations=operations,
    leftovers=leftovers,
    sweep=sweep,
    commands_of=commands_of,
    end_own=end_own,
)
