"""A Kafka-compatible cluster in KRaft mode that the user has already, as its cluster.toml says (docs/your-cluster.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from tribunal.clusters.api import ClusterError, Kind
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.clock import RunClock
from tribunal.clusters.endings import brought_up
from tribunal.clusters.existing.access import BadAccess, ExistingAccess
from tribunal.clusters.existing.acts import Acts, left
from tribunal.clusters.existing.cluster import ASK_S, CAPABILITIES, GONE, ExistingCluster, administrator
from tribunal.clusters.existing.description import BadCluster, Commands, read_cluster
from tribunal.clusters.existing.description import ExistingCluster as Description
from tribunal.clusters.existing.undoing import Said, acts_left, acts_undone, commands_of
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import ClusterSpec

# What gives each capability.
BY_COMMAND: Final[Mapping[Capability, str]] = {
    Capability.START: "start",
    Capability.STOP: "stop",
    Capability.KILL: "kill",
    Capability.PAUSE: "pause",
    Capability.CUT: "isolate",
}


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> ExistingCluster:
    """Look at the cluster; whatever goes wrong, nothing is left there."""
    path = Path(spec.file)
    try:
        given = read_cluster(path)
    except BadCluster as problem:
        raise ClusterError(str(problem)) from None
    run = RunContext(spec, directory, clock, cluster_id)
    return await brought_up(ExistingCluster(run, given, path, CAPABILITIES - _lacking(given).keys()))


def _described(spec: ClusterSpec) -> Description | None:
    return read_cluster(Path(spec.file)) if spec.file else None


def refused(spec: ClusterSpec) -> str:
    """Say why it cannot be what is asked for."""
    try:
        given = _described(spec)
        if given is not None:
            ExistingAccess(given.clients, given.controller_clients)
    except BadCluster as problem:
        return str(problem)
    except BadAccess as problem:
        return f"{spec.file}: {problem}"
    if given is None:
        return "it is what a file describes: --set cluster.file=cluster.toml (docs/your-cluster.md)"
    if spec.mutants:
        return f"mutants are bugs of replog: {', '.join(spec.mutants)} cannot be switched on in {given.name}"
    if spec.is_zookeeper_mode:
        return f"{given.name}: an existing cluster is observed by its metadata log, which ZooKeeper mode has not"
    if spec.broker_ids != given.broker_ids or spec.controller_ids != given.controller_ids:
        return f"{spec.file} names other nodes than the plan: brokers {list(given.broker_ids)}"
    return ""


def missing(spec: ClusterSpec) -> Mapping[Capability, str]:
    """Return which capabilities no command of the file gives, and why."""
    try:
        given = _described(spec)
    except BadCluster:
        return {}  # `refused` says it
    return {} if given is None else _lacking(given)


def not_given(commands: Commands, file: str) -> dict[Capability, str]:
    """Return which capabilities no command gives, and why; `file` says whose commands they are."""
    named = commands.named()
    return {
        capability: f"{file} has no command {command!r}"
        for capability, command in BY_COMMAND.items()
        if command not in named
    }


def _lacking(given: Description) -> dict[Capability, str]:
    return not_given(given.commands, f"{given.name}: its cluster.toml")


def leftovers(run_dir: Path) -> list[str]:
    """Return what a run of this folder has done and not undone."""
    done = left(run_dir)
    if done is None:
        return []
    return [*acts_left(done), *(f"topic {topic} of {done.cluster}" for topic in done.topics)]


def sweep(run_dir: Path) -> list[str]:
    """Undo what a run of this folder has done and not undone; return what was done."""
    done = left(run_dir)
    if done is None:
        return []
    path = Path(done.cluster)
    try:
        given = read_cluster(path)
        access = ExistingAccess(given.clients)
    except (BadCluster, BadAccess) as problem:
        return [f"nothing: {problem}"]
    acts = Acts(run_dir, path, done)
    said = acts_undone(given, path, acts)
    said += _deleted(given, access, acts) if done.topics else []
    acts.close()
    return [one.text for one in said]


def _deleted(given: Description, access: ExistingAccess, acts: Acts) -> list[Said]:
    admin = administrator(access, [node.address for node in given.brokers])
    said, topics = [], list(acts.done.topics)
    for topic, future in admin.delete_topics(topics, operation_timeout=ASK_S, request_timeout=ASK_S).items():
        try:
            future.result(ASK_S)
            said.append(Said(f"topic {topic}: deleted", is_done=True))
        except (KafkaException, TimeoutError) as problem:
            is_gone = isinstance(problem, KafkaException) and problem.args[0].name() == GONE
            said.append(Said(f"topic {topic}: {'is gone' if is_gone else f'not deleted: {problem}'}", is_done=is_gone))
        if said[-1].is_done:
            acts.deleted(topic)
    return said


KIND: Final = Kind(
    launch=launch,
    capabilities=CAPABILITIES,
    has_releases=True,
    is_there_already=True,
    of_whole_nodes=lambda _: frozenset({Capability.CUT}),
    refused=refused,
    missing=missing,
    leftovers=leftovers,
    sweep=sweep,
    commands_of=commands_of,
)
