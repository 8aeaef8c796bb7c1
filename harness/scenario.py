"""Scenario files: what a scenario says, in YAML, checked before anything starts.

    scenario: produce-consume
    about: one line
    cluster: {brokers: 3, controllers: 3, min_insync_replicas: 2, profile: ci}
    workload: {name: produce-consume, rate: 400}
    beside: [operator]              # workloads that run at the same time
    modes: [kraft]                  # where its faults bite: the other mode is refused; without it, both
    time: 40s
    order: shuffled                 # or: fixed
    swarm: true                     # cluster and load are drawn from the seed
    steps:
      - {kill: leader(p*), for: 1.2..1.6x session}
      - {isolate: leader(p*), from: nodes, for: 2.5s}

A step's first word is the fault, its value the target; `for` is how long it lasts, `after` how long the cluster is
left alone before; `when` is what it waits for instead of full service and a time, `until` what ends it before `for` is over, both triggers
(`tribunal.nemesis.triggers`: `when: isr(p0) = {leader} and |elr(p0)| >= 1`, `until: alter-partition answer x2`); `meanwhile: true` begins while the step before still lasts, so that a sequence can be written down as
a timeline (`after` then counts from that step's beginning); the rest are the fault's own options. Durations are `300ms`, `2.5s`, `1.1x session` (a multiple
of a time-out: session, lag, election, fetch), or a range of one unit, `1..2s`, from which the seed draws.
"""

import re
from collections.abc import Mapping, Sequence, Set
from datetime import date
from pathlib import Path
from random import Random
from typing import Final, TypeAlias, TypeVar

import msgspec
import yaml
from msgspec.inspect import StructType, type_info

from replog.config import DEFINITIONS, ConfigError
from tribunal.checkers.graphs.models import weaker
from tribunal.clusters.capabilities import STARTS
from tribunal.clusters.existing.description import read_cluster
from tribunal.clusters.kafka.releases import KAFKA_ALONE, release
from tribunal.clusters.secured.run_security import OF_SECURITY
from tribunal.clusters.spec import KRAFT, MODES, PROFILES, ClusterSpec, Settings
from tribunal.clusters.systems.description import Log, read_system
from tribunal.clusters.systems.own_settings import with_given
from tribunal.harness.catalog import all_workloads, faults, known_name, mutant_named, nearest
from tribunal.nemesis.messages import not_sent_by, not_sent_in
from tribunal.nemesis.targets import OF_MESSAGE, BadTarget, parse
from tribunal.nemesis.triggers import Sent, Trigger, never_met, parse_trigger
from tribunal.results.unreadable import UNREADABLE, in_words
from tribunal.workloads.api import LoadOptions

LINES_MAX: Final = 10_000  # of any YAML that somebody writes
DEPTH_MAX: Final = 100  # of brackets
TIMEOUTS: Final[Mapping[str, str]] = {
    "session": "broker.session.timeout.ms",
    "lag": "replica.lag.time.max.ms",
    "election": "controller.quorum.election.timeout.ms",
    "fetch": "controller.quorum.fetch.timeout.ms",
}
NUMBER: Final = r"\d+(?:\.\d*)?|\.\d+"
DURATION: Final = re.compile(rf"({NUMBER})(?:\.\.({NUMBER}))?\s*(ms|s|m|h|x\s+\w+)")
LONGEST_MS: Final = 100 * 365 * 86_400_000  # nobody waits for longer, and clocks can count it
LASTS_OF_SYSTEMS: Final = "1s"  # a step of a described system that does not say how long it lasts
NAME_BYTES: Final = 100  # it becomes part of folders' names
WORDS: Final = ("for", "after", "meanwhile", "when", "until")  # of a step, beside its fault's own options
NAMED: Final = re.compile(r"p\d+|\{.*?\}|leader\(.*?\) ?= ?\d+")  # what of a trigger names partitions and nodes
UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"  # what YAML text means
# What `yaml.safe_load` returns.
Parsed: TypeAlias = (
    "bool | int | float | str | bytes | date | Sequence[Parsed] | Set[Parsed] | Mapping[Parsed, Parsed] | None"
)
Options = TypeVar("Options")


class BadScenario(ValueError):
    """A scenario that cannot be run; one line that says where and what is possible."""


class Duration(msgspec.Struct, frozen=True):
    """A range of ms from which the seed draws; a single value has both ends alike."""

    least_ms: int
    most_ms: int

    def draw(self, random: Random) -> int:
        """Draw one."""
        return random.randint(self.least_ms, self.most_ms)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One fault as the scenario wants it."""

    kind: str
    target: str
    lasts: Duration
    after: Duration
    meanwhile: bool = False
    when: Trigger | None = None
    until: Trigger | None = None
    options: Mapping[str, object]


class GivenWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload and what the scenario says of it."""

    workload: str
    options: Mapping[str, object]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario, checked."""

    name: str
    about: str
    spec: ClusterSpec
    workload: str
    workload_options: Mapping[str, object]
    beside: tuple[GivenWorkload, ...] = ()
    time_ms: int
    warm_up_ms: int
    final_read_ms: int
    shuffled: bool
    swarm: bool = False
    steps: tuple[Step, ...]


KNOWN: Final = (
    "scenario",
    "about",
    "cluster",
    "kafka",
    "modes",
    "workload",
    "beside",
    "time",
    "warm_up",
    "final_read",
    "order",
    "swarm",
    "steps",
)


LOG_DIRECTORIES_MAX: Final = 9
# Of settings that a scenario, or a plan of anybody, must not have: nodes may run as root, and write where these say.
OF_THE_RUN: Final = frozenset(
    {
        "node.id",
        "cluster.id",
        "process.roles",
        "log.dirs",
        "metadata.log.dir",
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "zookeeper.connect",
        "tribunal.bind.host",
        "tribunal.events.file",
        "tribunal.undo.journal",
        "tribunal.control.page",
        "tribunal.mutants",
    }
)


def load(path: Path, overrides: Mapping[str, str]) -> Scenario:
    """Read a scenario file and check all of it; `overrides` are `--set` values by dotted name."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise BadScenario(f"{path.name}: a scenario is a mapping")
    try:
        return scenario(overridden(_beside_file(content, path.parent), overrides))
    except (ValueError, TypeError) as problem:
        raise BadScenario(f"{path.name}: {problem}") from None


def _beside_file(content: dict[str, Plain], folder: Path) -> dict[str, Plain]:
    """Return a scenario whose system or cluster is named from its own folder on, as files name what lies beside them."""
    cluster = content.get("cluster")
    if not isinstance(cluster, dict):
        return content
    named = {name: str(folder / path) for name in ("system", "file") if isinstance(path := cluster.get(name), str)}
    return {**content, "cluster": {**cluster, **named}}


def read_yaml(path: Path) -> Plain:
    """Read a YAML file of at most `LINES_MAX` lines; `BadScenario` in one line when it is none."""
    try:
        text = path.read_text()
    except OSError as problem:
        raise BadScenario(f"{path}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise BadScenario(f"{path.name}: not text: {problem}") from None
    if len(text.splitlines()) > LINES_MAX:
        raise BadScenario(f"{path.name}: more than {LINES_MAX} lines")
    return parsed(text, path.name)


def parsed(text: str, where: str) -> Plain:
    """Return what YAML text means; `BadScenario` when it means nothing, also for a date that no calendar has."""
    if _is_too_deep(text):
        raise BadScenario(f"{where}: not YAML: brackets nested deeper than {DEPTH_MAX}")
    try:
        return _plain(yaml.safe_load(text), {})
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise BadScenario(f"{where}: not YAML: {' '.join(str(problem).split())}") from None


def _is_too_deep(text: str) -> bool:
    """Return whether more brackets are open than any file needs: the parser looks at all of them for each word, a second for 2,000."""
    depth = 0
    for letter in text:
        if letter in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif letter in "]}" and depth:
            depth -= 1
    return False


def _plain(given: Parsed, done: dict[int, Plain]) -> Plain:
    """Turn what YAML has beyond JSON into what JSON has: a date into text, a set into a list, every key into text.

    done:  collections by identity: what several aliases name stays one, or a few lines of YAML would become gigabytes.
    """
    if id(given) in done:
        return done[id(given)]
    plain: Plain
    match given:
        case None | bool() | int() | float() | str():
            return given
        case bytes() | date():
            plain = msgspec.to_builtins(given)
        case Mapping():
            plain = {str(key): _plain(value, done) for key, value in given.items()}
        case Set():
            plain = sorted((_plain(one, done) for one in given), key=str)
        case _:
            plain = [_plain(one, done) for one in given]
    done[id(given)] = plain
    return plain


def usable(name: str) -> str:
    """Return a scenario's name; `BadScenario` when no folder of a run could be called by it."""
    if not name.strip() or name.startswith(".") or set(name) & {"/", "\0"} or len(name.encode()) > NAME_BYTES:
        raise BadScenario(
            f"scenario {name[:NAME_BYTES]!r}: a name of at most {NAME_BYTES} bytes, without / and no dot first"
        )
    return name


def overridden(content: Mapping[str, Plain], overrides: Mapping[str, str]) -> dict[str, Plain]:
    """Return the scenario with `--set` values put in; a setting of nodes is `cluster.settings.NAME`."""
    result = dict(content)
    for name, text in overrides.items():
        value = parsed(text, f"--set {name}")
        head, _, rest = name.partition(".")
        if not rest:
            result[head] = value
            continue
        if isinstance(result.get(head), list):
            raise TypeError(f"{head!r} is a list: set all of it")
        inner = _part(head, result.get(head))
        group, _, setting = rest.partition(".")
        if head == "cluster" and group == "settings" and setting:
            inner["settings"] = {**_part("settings", inner.get("settings")), setting: value}
        else:
            inner[rest] = value
        result[head] = inner
    return result


def _part(name: str, given: Plain) -> dict[str, Plain]:
    """Return a part of a scenario as a mapping; a word alone is its name."""
    match given:
        case None:
            return {}
        case str():
            return {"name": given}
        case dict():
            return dict(given)
        case _:
            raise TypeError(f"{name!r} is a mapping")


def scenario(content: Mapping[str, Plain]) -> Scenario:
    """Check a scenario's content."""
    for name in content:
        if name not in KNOWN:
            raise nearest("word", name, KNOWN)
    for name in ("scenario", "workload", "steps"):
        if name not in content:
            raise ValueError(f"{name!r} is missing")
    spec = _of_release(cluster_spec(content.get("cluster") or {}), content.get("kafka"))
    _must_be_of_mode(spec, content.get("modes", [*MODES]))
    workload, options = workload_of(content["workload"])
    partitions = options.partitions
    order, steps = content.get("order", "fixed"), content["steps"]
    if order not in ("fixed", "shuffled"):
        raise ValueError(f"order is {order!r}: use fixed or shuffled")
    if not isinstance(steps, list):
        raise TypeError("'steps' is a list")
    if order == "shuffled" and any(isinstance(one, dict) and one.get("meanwhile") for one in steps):
        raise ValueError("steps that are shuffled have no meanwhile: use order fixed")
    beside = _workloads_beside(workload, content.get("beside", []))
    sent = _sent_by([workload, *(one.workload for one in beside)])
    return Scenario(
        name=usable(str(content["scenario"])),
        about=str(content.get("about", "")),
        spec=spec,
        workload=workload,
        workload_options=msgspec.to_builtins(options),
        beside=beside,
        time_ms=duration(content.get("time", "40s"), spec).most_ms,
        warm_up_ms=duration(content.get("warm_up", "2s"), spec).most_ms,
        final_read_ms=duration(content.get("final_read", "20s"), spec).most_ms,
        shuffled=order == "shuffled",
        swarm=_is_swarm(content.get("swarm", False), steps),
        steps=tuple(step(number, given, spec, partitions, sent) for number, given in enumerate(steps, start=1)),
    )


def _sent_by(workloads: Sequence[str]) -> frozenset[str] | None:
    """Return which messages that only some clients send are sent because of these workloads; None where one of them does not say."""
    known, sent = all_workloads(), frozenset[str]()
    for name in workloads:
        said = known[name].sends
        if said is None:
            return None
        sent |= said
    return sent


def _of_release(spec: ClusterSpec, given: Plain) -> ClusterSpec:
    """Take the short form of `cluster: {version: ...}`."""
    if given is None:
        return spec
    if spec.version and spec.version != str(given):
        raise ValueError(f"kafka is {given} and the cluster's version {spec.version}: say it once")
    try:
        return msgspec.structs.replace(spec, version=release(str(given)).name)
    except ValueError as problem:
        raise ValueError(f"kafka: {problem}") from None


def _must_be_of_mode(spec: ClusterSpec, given: Plain) -> None:
    """Refuse a mode in which the scenario's faults strike nothing: the run would end without an answer."""
    if not isinstance(given, list) or not given:
        raise TypeError(f"modes is {given!r}: list one or more of {', '.join(MODES)}")
    for mode in given:
        if mode not in MODES:
            raise nearest("mode", str(mode), MODES)
    if spec.mode not in given:
        raise ValueError(f"its faults do not bite in mode {spec.mode}: use --mode {given[0]}")


def _is_swarm(given: Plain, steps: Sequence[Plain]) -> bool:
    """Check `swarm`: the seed then draws cluster and load, and steps can't name nodes or partitions."""
    if not isinstance(given, bool):
        raise TypeError(f"swarm is {given!r}: use true or false")
    written = [one for one in steps if isinstance(one, dict)]
    targets = [str(next(iter(one.values()), "")) for one in written]
    targets += [name for one in written for word in ("when", "until") for name in NAMED.findall(str(one.get(word, "")))]
    named = [target for target in targets if re.search(r"\d", target)]
    if given and named:
        raise ValueError(f"swarm: a step names {named[0]!r}, which not every drawn cluster has")
    return given


def cluster_spec(given: Plain) -> ClusterSpec:
    """Check the `cluster` part."""
    settings = given.get("settings") if isinstance(given, dict) else None
    if isinstance(given, dict) and isinstance(settings, dict) and not given.get("system"):
        _check_settings(settings, "cluster")  # first: it names the setting that is wrong
    if isinstance(given, dict) and "kafka" in given:
        given = {**given, "kafka": _node_ids(given["kafka"])}
    spec = _converted("cluster", given, ClusterSpec)
    _must_not_say_what_files_say(spec)
    spec = _described(spec)
    must_be_sound(spec)
    return msgspec.structs.replace(spec, mutants=tuple(map(mutant_named, spec.mutants)))


def _must_not_say_what_files_say(spec: ClusterSpec) -> None:
    """Refuse what is read from the file of a system or of a cluster that is there: whatever a scenario says of it would not be so."""
    said: dict[str, object] = {
        "own_broker_ids": spec.own_broker_ids,
        "own_controller_ids": spec.own_controller_ids,
        "protocol": spec.protocol,
        "timeouts_ms": spec.timeouts_ms,
        "promises": spec.promises,
        "roles": spec.roles,
    }
    for name, value in said.items():
        if value:
            raise ValueError(f"cluster: {name} is said by the file of a system or of an existing cluster: leave it out")


def _node_ids(given: Plain) -> list[Plain]:
    """Return which nodes are named: one, a list of them, or what the command line has, 2,3."""
    named = given if isinstance(given, list) else str(given).split(",")
    try:
        return [*sorted({int(str(one)) for one in named})]
    except ValueError:
        raise ValueError(f"cluster: kafka is {given!r}: name nodes, like 2,3") from None


def _described(spec: ClusterSpec) -> ClusterSpec:
    """Take size and time-outs of a described system, or nodes and settings of an existing cluster, from its file."""
    if spec.file:
        return _existing(spec)
    if not spec.system:
        return spec
    system = read_system(Path(spec.system))
    if system.promises.consistency is not None:
        weaker(system.promises.consistency)  # who does not know it says which ones there are
    known = faults()
    for kind in system.promises.starts_after:
        if kind not in known or not known[kind].needs & STARTS:
            starting = ", ".join(sorted(name for name, fault in known.items() if fault.needs & STARTS))
            raise ValueError(
                f"{spec.system}: promises: starts_after: {kind!r} is no fault behind which a node is started: {starting}"
            )
    if unknown := sorted(system.promises.one_lost - known.keys()):
        raise ValueError(f"{spec.system}: promises: one_lost: {nearest('fault', unknown[0], known)}")
    spec = msgspec.structs.replace(
        spec, system=str(Path(spec.system).resolve()), brokers=system.nodes.count, controllers=0
    )
    spec = msgspec.structs.replace(spec, promises=system.promises.flat, roles=tuple(sorted(system.nodes.roles)))
    if system.log is not None:
        return _with_log(spec, system.log)
    try:
        with_given(system.nodes.settings, spec.settings)
    except ValueError as problem:
        raise ValueError(f"cluster: {problem}") from None
    return msgspec.structs.replace(
        spec,
        protocol="",
        replication_factor=1,
        min_insync_replicas=1,
        timeouts_ms=dict(system.timeouts_ms),
    )


def _with_log(spec: ClusterSpec, log: Log) -> ClusterSpec:
    """Take what a system says of its log; what the scenario says of replicas and settings goes before, for its nodes are started with it."""
    return msgspec.structs.replace(
        spec,
        protocol=log.protocol,
        replication_factor=min(spec.replication_factor, spec.brokers),
        min_insync_replicas=min(spec.min_insync_replicas, spec.replication_factor, spec.brokers),
        profile="kafka-defaults",
        settings={**log.settings, **spec.settings},
        version=log.version,
    )


def _existing(spec: ClusterSpec) -> ClusterSpec:
    """Take what a cluster.toml says; what the scenario wants otherwise cannot be had there."""
    if spec.system:
        raise ValueError("cluster: file and system name two clusters: leave one out")
    cluster = read_cluster(Path(spec.file))
    for name, value in spec.settings.items():
        if name in cluster.settings and cluster.settings[name] != value:
            raise ValueError(
                f"cluster: the scenario needs {name} = {value}, {cluster.name} has {cluster.settings[name]}"
            )
    brokers = len(cluster.brokers)
    return msgspec.structs.replace(
        spec,
        file=str(Path(spec.file).resolve()),
        brokers=brokers,
        controllers=len(cluster.controller_ids),
        own_broker_ids=cluster.broker_ids,
        own_controller_ids=cluster.controller_ids,
        replication_factor=min(spec.replication_factor, brokers),
        min_insync_replicas=min(spec.min_insync_replicas, spec.replication_factor, brokers),
        profile="kafka-defaults",
        settings={**spec.settings, **cluster.settings},
        version=cluster.version,
    )


def must_be_sound(spec: ClusterSpec) -> None:
    """Raise ValueError in one line where no cluster can be like this, or where its settings reach outside of the run."""
    _check_settings({} if spec.has_objects else spec.settings, "cluster")  # whose file knows its own
    try:
        release(spec.version)
    except ValueError as problem:
        raise ValueError(f"cluster: {problem}") from None
    if spec.profile not in PROFILES:
        raise nearest("profile", spec.profile, PROFILES)
    if not 1 <= spec.brokers <= 99:
        raise ValueError(f"cluster: 1 to 99 brokers, not {spec.brokers}")
    if not 1 <= spec.replication_factor <= spec.brokers:
        raise ValueError(f"cluster: {spec.replication_factor} replicas on {spec.brokers} brokers cannot be")
    if not (0 if spec.system or spec.file else 1) <= spec.controllers <= 99:
        raise ValueError(f"cluster: {spec.controllers} controllers cannot be")
    if spec.min_insync_replicas < 1:
        raise ValueError(f"cluster: min_insync_replicas is {spec.min_insync_replicas}: a number from 1 on")
    if foreign := [node for node in spec.kafka if node not in spec.node_ids]:
        controllers = f", controllers {spec.controller_ids[0]} to {spec.controller_ids[-1]}" if spec.controllers else ""
        raise ValueError(f"cluster: kafka names node {foreign[0]}; brokers are 1 to {spec.brokers}{controllers}")
    if spec.mode not in MODES:
        raise nearest("mode", spec.mode, MODES)
    if spec.security and spec.mode != KRAFT:
        raise ValueError(
            f"cluster: security {spec.security} is for KRaft mode: in ZooKeeper mode nodes have one plain listener"
        )
    if spec.security and (taken := sorted(spec.settings.keys() & OF_SECURITY)):
        raise ValueError(f"cluster: {taken[0]} is chosen by security {spec.security}")
    _check_log_directories(spec)
    if spec.base_port is not None and not 1 <= spec.base_port <= 65_535:
        raise ValueError(f"cluster: there is no port {spec.base_port}")


def _check_log_directories(spec: ClusterSpec) -> None:
    if not 1 <= spec.log_directories <= LOG_DIRECTORIES_MAX:
        raise ValueError(f"cluster: 1 to {LOG_DIRECTORIES_MAX} log_directories, not {spec.log_directories}")
    if spec.log_directories > 1 and spec.mode != KRAFT:
        raise ValueError("cluster: several log_directories are for KRaft mode")


def check_settings_of_fault(kind: str, options: Mapping[str, object]) -> None:
    """Raise ValueError in one line for settings that a fault must not give to nodes, as the cluster's own must not be."""
    settings = options.get("settings")
    if isinstance(settings, dict):
        _check_settings(settings, kind)


def _check_settings(settings: Mapping[str, Plain] | Settings, where: str) -> None:
    for setting, value in settings.items():
        if setting in KAFKA_ALONE:
            if not isinstance(value, bool):
                raise ValueError(f"{where}: {setting} is {value!r}: use true or false")
            continue
        if setting not in DEFINITIONS:
            raise nearest("setting", setting, DEFINITIONS)
        if setting in OF_THE_RUN:
            raise ValueError(f"{where}: {setting} is chosen by the run itself: who a node is, and where it writes")
        try:
            DEFINITIONS[setting].checked(value)
        except ConfigError as problem:
            raise ValueError(f"{where}: {problem}") from None


def workload_of(given: Plain) -> tuple[str, LoadOptions]:
    """Check the `workload` part: a name, or a mapping with `name` and its options."""
    options = _part("workload", given)
    known = all_workloads()
    name = known_name("workload", str(options.pop("name", "")), known)
    return name, _converted(f"workload {name}", options, known[name].options)


def _workloads_beside(first: str, given: Plain) -> tuple[GivenWorkload, ...]:
    """Check `beside`: a list of further workloads, each of another name."""
    if not isinstance(given, list):
        raise TypeError("'beside' is a list")
    found = [workload_of(one) for one in given]
    names = [first, *(name for name, _ in found)]
    if twice := [name for index, name in enumerate(names) if name in names[:index]]:
        raise ValueError(f"beside: workload {twice[0]} runs already")
    return tuple(GivenWorkload(workload=name, options=msgspec.to_builtins(options)) for name, options in found)


def step(number: int, given: Plain, spec: ClusterSpec, partitions: int, sent: frozenset[str] | None) -> Step:
    """Check one step.

    sent:  which messages that only some clients send are sent because of the workloads; None: not known.
    """
    if not isinstance(given, dict) or not given:
        raise ValueError(f"step {number}: write it as {{fault: target, for: duration}}")
    kind, target = next(iter(given.items()))
    rest = {key: value for key, value in given.items() if key not in (kind, *WORDS)}
    try:
        known = faults()
        name = known_name("fault", kind, known)
        meanwhile = given.get("meanwhile", False)
        if not isinstance(meanwhile, bool) or (meanwhile and number == 1):
            raise BadScenario("meanwhile is true or false, and the first step has none before it")
        _converted(name, rest, known[name].options)
        check_settings_of_fault(name, rest)
        return Step(
            kind=name,
            target=_target(str(target), spec, partitions, sent),
            lasts=duration(given.get("for", LASTS_OF_SYSTEMS if spec.has_objects else "1x session"), spec),
            after=duration(given.get("after", "300ms" if given.get("when") is None else "0ms"), spec),
            meanwhile=meanwhile,
            when=_trigger(given.get("when"), spec, partitions, sent),
            until=_trigger(given.get("until"), spec, partitions, sent),
            options=rest,
        )
    except (ValueError, BadTarget) as problem:
        raise ValueError(f"step {number}: {problem}") from None


def _target(given: str, spec: ClusterSpec, partitions: int, sent: frozenset[str] | None) -> str:
    words = parse(given, spec, partitions)
    match = OF_MESSAGE.fullmatch(words)
    _must_be_sent([] if match is None else [match[2]], spec, sent)
    return words


def _trigger(given: Plain, spec: ClusterSpec, partitions: int, sent: frozenset[str] | None) -> Trigger | None:
    if given is None:
        return None
    trigger = parse_trigger(str(given), spec, partitions)
    if reason := never_met(trigger, spec):
        raise BadScenario(reason)
    _must_be_sent([one.api for one in trigger.conditions if isinstance(one, Sent)], spec, sent)
    return trigger


def _must_be_sent(apis: Sequence[str], spec: ClusterSpec, sent: frozenset[str] | None) -> None:
    """Refuse to wait for messages that nobody sends in the cluster's mode, or under these workloads: the run would end without an answer."""
    for api in apis:
        if reason := not_sent_in(spec.mode, api) or not_sent_by(sent, api):
            raise BadScenario(reason)


def duration(given: Plain, spec: ClusterSpec) -> Duration:
    """Parse a duration or a range of them."""
    match = DURATION.fullmatch(str(given).strip())
    if match is None and re.fullmatch(NUMBER, str(given).strip()):
        raise BadScenario(
            f"duration {given} has no unit: write {given}s for seconds, {given}m for minutes, {given}h for hours"
        )
    if match is None:
        raise BadScenario(f"duration {given!r}: write 300ms, 2.5s, 1m, 8h, 1.2x session, or a range like 1..2s")
    least, most, unit = float(match[1]), float(match[2] or match[1]), match[3]
    if unit in UNITS_MS:
        unit_ms = UNITS_MS[unit]
    else:
        name = unit.removeprefix("x").strip()
        known = spec.timeouts_ms if spec.has_objects else TIMEOUTS
        if name not in known:
            raise nearest("time-out", name, known)
        unit_ms = spec.timeouts_ms[name] if spec.has_objects else spec.timeout_ms(TIMEOUTS[name])
    if not 0 <= least <= most:
        raise BadScenario(f"duration {given!r} goes backwards")
    if most * unit_ms > LONGEST_MS:
        raise BadScenario(f"duration {str(given)[:40]!r} is longer than a hundred years")
    return Duration(round(least * unit_ms), round(most * unit_ms))


def _converted(what: str, given: Plain, wanted: type[Options]) -> Options:
    try:
        return msgspec.convert(given, wanted)
    except UNREADABLE as problem:
        unknown = re.search(r"unknown field `(.+?)`", str(problem))
        known = type_info(wanted)
        if unknown and isinstance(known, StructType):
            names = [field.encode_name for field in known.fields]
            raise nearest(f"option of {what}:", unknown[1], names) from None
        raise ValueError(f"{what}: {in_words(problem, wanted)}") from None
