"""Every choice of a run, made beforehand from its seed: the same scenario, seed and options give the same bytes.

What depends on the cluster's state (who leads when a fault strikes) cannot be chosen beforehand: the plan holds
the expression and the drawn fractions that choose among those who fit, the executed schedule holds who it was.
"""

import base64
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from replog.config.setting import INT_MAX, LONG_MAX
from replog.controller.describe import INTERNAL_TOPICS
from replog.controller.topics import LEGAL_NAME
from replog.types import METADATA_TOPIC
from tribunal.clusters.api import Kind
from tribunal.clusters.capabilities import Capability
from tribunal.clusters.kafka.releases import KAFKA_ALONE
from tribunal.clusters.objects import TRANSACTIONS
from tribunal.clusters.spec import KRAFT, ZOOKEEPER, ClusterSpec, Mode
from tribunal.harness.bounds import bounded
from tribunal.harness.catalog import (
    SIMULATED,
    all_clusters,
    all_workloads,
    faults,
    known_name,
    mutants,
    nearest,
    one_of,
)
from tribunal.harness.level_steps import level_problem
from tribunal.harness.scenario import (
    BadScenario,
    GivenWorkload,
    Scenario,
    Step,
    check_settings_of_fault,
    must_be_sound,
    usable,
)
from tribunal.harness.swarm import drawn_cluster, drawn_load, with_points, with_racks
from tribunal.nemesis.api import AnyFault
from tribunal.nemesis.targets import OF_MESSAGE, OF_PARTITION, BadTarget, Target, draw, parse
from tribunal.nemesis.triggers import Sent, Trigger, parse_trigger
from tribunal.results.described import SYSTEM_FOLDER
from tribunal.results.unreadable import UNREADABLE, in_words
from tribunal.workloads.api import AnyWorkload

PLAN_VERSION: Final = 1
IDENTIFIER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_SHOWN: Final = 80
HEALING_MS: Final = 2_500  # what a fault's heal takes about, to know how many rounds fit the time
ROUNDS_MAX: Final = 1_000
ISOLATE: Final = "isolate"
CONSISTENCY: Final = "consistency"
MODE_NAMES: Final[dict[Mode, str]] = {KRAFT: "KRaft", ZOOKEEPER: "ZooKeeper"}
ANY_COUNT: Final = 1 << 31  # of partitions: which there are was checked when the scenario was read


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault to come.

    not_before_ms:  of the fault phase; None: as soon as the cluster is in full service again and `after_ms` have passed.
    meanwhile:      the fault before goes on while this one begins.
    when:           what it waits for before `after_ms`; until: what ends it, if that comes before `lasts_ms` are over.
    wait_ms:        how long it waits for `when`, then it comes all the same (None: as long as there is time for faults, and then not at all);
                    and for somebody whom its target means.
    must:           the run is no test without it (the scenario's first round).
    origin:         in a plan that was made smaller: its index in the plan that this one was made of.
    """

    index: int
    kind: str
    target: Target
    options: Mapping[str, object]
    lasts_ms: int
    after_ms: int
    not_before_ms: int | None = None
    meanwhile: bool = False
    when: Trigger | None = None
    until: Trigger | None = None
    wait_ms: int | None = None
    must: bool = True
    origin: int | msgspec.UnsetType = msgspec.UNSET


class PlannedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with every choice made."""

    workload: str
    workload_plan: Mapping[str, object]


class DrawnAnew(msgspec.Struct, frozen=True, kw_only=True):
    """From a moment of virtual time on, what network, disks and nodes draw comes from another seed (simulated runs only)."""

    at_ns: int
    seed: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run with every choice made.

    beside:  workloads that run beside the first one, whose topic the targets of faults mean.
    drawn_anew:  how it differs from another run in chance alone; None: all of it is drawn by the seed.
    """

    plan_version: int = PLAN_VERSION
    scenario: str
    seed: int
    cluster: str
    cluster_id: str
    mode: str = "kraft"
    spec: ClusterSpec
    workload: str
    workload_plan: Mapping[str, object]
    beside: tuple[PlannedWorkload, ...] = ()
    time_ms: int
    warm_up_ms: int
    final_read_ms: int
    faults: tuple[PlannedFault, ...]
    drawn_anew: DrawnAnew | None = None


class _Version(msgspec.Struct, frozen=True):
    """What every version of a plan says of itself."""

    plan_version: int | str | None = None


def chance(seed: int, purpose: str) -> Random:
    """Return the stream of chance for one purpose: a new draw in one place shifts no other."""
    return Random(f"{seed}/{purpose}")


def made(scenario: Scenario, *, seed: int, cluster: str, time_ms: int | None, mutants: tuple[str, ...]) -> Plan:
    """Make all choices."""
    cluster = known_name("cluster", cluster, all_clusters())
    kind = all_clusters()[cluster]
    must_be_possible((step.kind for step in scenario.steps), _with_mutants(scenario.spec, mutants), cluster)
    for step in scenario.steps:
        if reason := faults()[step.kind].refused_by(scenario.spec, step.options):
            raise BadScenario(f"fault {step.kind}: {reason}")
        must_see_messages(step.kind, step.target, (step.when, step.until), cluster)
        partly = step.options.get("from", "all") != "all" or step.options.get("direction", "both") != "both"
        if kind.of_whole_nodes(scenario.spec) and step.kind == ISOLATE and partly:
            raise BadScenario(
                f"fault {ISOLATE}: cluster {cluster} cuts a node off from all, both ways: leave out from and direction"
            )
    if not scenario.shuffled and (
        problem := level_problem([(step.kind, step.options) for step in scenario.steps], scenario.spec)
    ):
        raise BadScenario(problem)
    workload = one_of("workload", scenario.workload, all_workloads())
    spec, load = scenario.spec, scenario.workload_options
    if scenario.swarm and not (spec.system or spec.file):  # of these the cluster is as their files say
        spec = bounded(drawn_cluster(spec, chance(seed, "swarm")), scenario.spec, kind)
    if scenario.swarm:
        load = drawn_load(load, chance(seed, "swarm load"))
        if kind.is_simulated:
            spec = with_racks(with_points(spec, chance(seed, "points")), chance(seed, "racks"))
    options = msgspec.convert(load, workload.options)
    spec = _sized(scenario, spec, kind)
    _must_be_granted(scenario.workload, workload, load, spec, kind)
    time_ms = scenario.time_ms if time_ms is None else time_ms
    return Plan(
        scenario=scenario.name,
        seed=seed,
        cluster=cluster,
        cluster_id=base64.urlsafe_b64encode(chance(seed, "cluster id").randbytes(16)).decode().rstrip("="),
        mode=scenario.spec.mode,
        spec=_with_mutants(spec, mutants),
        workload=scenario.workload,
        workload_plan=workload.drawn(load, chance(seed, "workload")),
        beside=tuple(_beside(one, scenario, seed, spec, kind) for one in scenario.beside),
        time_ms=time_ms,
        warm_up_ms=scenario.warm_up_ms,
        final_read_ms=scenario.final_read_ms,
        faults=_rounds(scenario, seed, time_ms, partitions=options.partitions),
    )


def must_see_messages(fault: str, target: str, triggers: Iterable[Trigger | None], cluster: str) -> None:
    """Raise `BadScenario` for a fault that waits for a message, or for whoever sent one, where nobody sees messages: it would wait in vain."""
    conditions = (one for trigger in triggers if trigger is not None for one in trigger.conditions)
    is_of_message = OF_MESSAGE.fullmatch(target) is not None or any(isinstance(one, Sent) for one in conditions)
    if is_of_message and Capability.ADD_RULE not in one_of("cluster", cluster, all_clusters()).capabilities:
        raise BadScenario(
            f"fault {fault}: cluster {cluster} does not see its nodes' messages: wait for a state, or for a time"
        )


def _must_be_granted(
    name: str, workload: AnyWorkload, options: Mapping[str, object], spec: ClusterSpec, kind: Kind
) -> None:
    called = workload.called(options)
    if called is None and not kind.has_log(spec):
        raise BadScenario(f"workload {name} sends and reads records, which this system does not have")
    if called is not None and (missing := sorted(called - kind.operations(spec))):
        raise BadScenario(f"workload {name} calls {', '.join(missing)}, which clients of this cluster do not have")
    if called is not None and called & TRANSACTIONS and CONSISTENCY not in spec.promises:
        raise BadScenario(
            f'workload {name}: {spec.system} does not say what is promised: [promises] {CONSISTENCY} = "serializable"'
        )
    if reason := workload.refused_by(options, spec.node_settings()):
        raise BadScenario(f"workload {name}: {reason}")


def _beside(given: GivenWorkload, scenario: Scenario, seed: int, spec: ClusterSpec, kind: Kind) -> PlannedWorkload:
    options = given.options
    if scenario.swarm:
        options = drawn_load(options, chance(seed, f"swarm load of {given.workload}"))
    workload = one_of("workload", given.workload, all_workloads())
    _must_be_granted(given.workload, workload, options, spec, kind)
    return _drawn_beside(given.workload, workload, options, seed)


def planned_beside(
    name: str, options: Mapping[str, object], seed: int, spec: ClusterSpec, cluster: str
) -> PlannedWorkload:
    """Return a workload that may come beside those of a plan; `BadScenario` where the cluster does not grant what it needs."""
    workload = one_of("workload", name, all_workloads())
    _must_be_granted(name, workload, options, spec, all_clusters()[cluster])
    return _drawn_beside(name, workload, options, seed)


def _drawn_beside(name: str, workload: AnyWorkload, options: Mapping[str, object], seed: int) -> PlannedWorkload:
    return PlannedWorkload(workload=name, workload_plan=workload.drawn(options, chance(seed, f"workload {name}")))


def _with_mutants(spec: ClusterSpec, mutants: tuple[str, ...]) -> ClusterSpec:
    return msgspec.structs.replace(spec, mutants=(*spec.mutants, *mutants))


def _sized(scenario: Scenario, spec: ClusterSpec, kind: Kind) -> ClusterSpec:
    """Return the cluster that can be had: in the simulator one model stands for an ensemble of ZooKeeper servers."""
    if not (spec.is_zookeeper_mode and kind.is_simulated):
        return spec
    sized = spec.in_simulator
    for number, step in enumerate(scenario.steps, start=1):
        try:
            parse(step.target, sized, partition_count=ANY_COUNT)
        except BadTarget as problem:
            message = f"step {number} ({step.kind}): {problem}: in ZooKeeper mode the simulator has one server for all"
            raise BadScenario(message) from None
    return sized


def must_be_possible(wanted: Iterable[str], spec: ClusterSpec, cluster: str) -> None:
    """Raise `BadScenario` unless this kind of cluster can be what the spec asks for, and can do all of these faults."""
    kind, wanted = one_of("cluster", cluster, all_clusters()), list(wanted)
    _must_fit(spec, kind, cluster)
    for name in wanted:
        fault = one_of("fault", name, faults())
        if spec.mode not in fault.modes:
            raise BadScenario(
                f"fault {name} strikes what only {MODE_NAMES[fault.modes[0]]} mode has: --mode {fault.modes[0]}"
            )
        if refused := refusal(fault, kind):
            raise BadScenario(f"fault {name}: cluster {cluster} cannot {refused}")
    missing, of_whole_nodes = kind.missing(spec), kind.of_whole_nodes(spec)
    for name in wanted:
        for need in sorted(one_of("fault", name, faults()).needs & missing.keys()):
            raise BadScenario(f"fault {name}: cluster {cluster} cannot {need} ({missing[need]})")
        if name != ISOLATE and one_of("fault", name, faults()).needs & of_whole_nodes:
            raise BadScenario(f"fault {name}: cluster {cluster} cannot cut single links, it can {ISOLATE} whole nodes")


def _must_fit(spec: ClusterSpec, kind: Kind, cluster: str) -> None:
    """Raise `BadScenario` unless this kind of cluster can be what the spec asks for."""
    _must_be_granted_by_kind(spec, kind, cluster)
    if reason := kind.refused(spec):
        raise BadScenario(f"cluster {cluster}: {reason}")
    if spec.file and not kind.is_there_already:
        raise BadScenario(f"cluster {cluster} starts its own nodes; {spec.file} is for --cluster existing")
    if spec.system and kind.is_simulated:
        raise BadScenario(
            f"the simulator runs replog alone, not {spec.system}: tribunal run ... --cluster system, or a nightly"
        )
    if spec.system and not kind.runs_systems:
        raise BadScenario(f"cluster {cluster} runs logs; {spec.system} is for --cluster system")


def _must_be_granted_by_kind(spec: ClusterSpec, kind: Kind, cluster: str) -> None:
    """Raise `BadScenario` for what a spec says that is for other kinds of cluster, or does not say that this one needs."""
    if not kind.has_releases and (foreign := sorted(KAFKA_ALONE & spec.settings.keys())):
        raise BadScenario(f"cluster {cluster} has no setting {foreign[0]}: it is for --cluster apache-kafka")
    if spec.version and not kind.has_releases:
        raise BadScenario(
            f"cluster {cluster} runs this project's own software; release {spec.version} is for --cluster apache-kafka"
        )
    if spec.kafka and not kind.is_mixed:
        raise BadScenario(f"cluster {cluster} is of one system; nodes that are Apache Kafka are for --cluster mixed")
    if kind.is_mixed and not spec.kafka:
        raise BadScenario(f"cluster {cluster}: say which of its nodes are Apache Kafka: --set cluster.kafka=2,3")
    if spec.log_directories > 1 and not kind.is_simulated:
        raise BadScenario(f"cluster {cluster}: brokers have one log directory; several are for --cluster simulated")
    if spec.security and not kind.can_be_secured:
        raise BadScenario(f"cluster {cluster} cannot have security {spec.security}: it is for --cluster processes")


def refusal(fault: AnyFault, kind: Kind, lacking: Mapping[Capability, str] | None = None) -> str:
    """Return what a fault needs and this kind of cluster cannot do, at all or on this machine; empty: nothing.

    lacking:  what the kind answers to `lacking`, where it was asked already.
    """
    if never := sorted(fault.needs - kind.capabilities):
        return ", ".join(never)
    here = kind.lacking() if lacking is None else lacking
    return ", ".join(f"{need} ({here[need]})" for need in sorted(fault.needs & here.keys()))


def _rounds(scenario: Scenario, seed: int, time_ms: int, partitions: int) -> tuple[PlannedFault, ...]:
    """Draw rounds of the scenario's steps until the time is surely filled."""
    random = chance(seed, "faults")
    planned: list[PlannedFault] = []
    filled_ms = 0
    for number in range(ROUNDS_MAX):
        steps = list(scenario.steps)
        if scenario.shuffled:
            random.shuffle(steps)
        for step in steps:
            index = len(planned)
            options = _with_seed(step, chance(seed, f"options of fault {index}"))
            planned.append(_fault(index, step, options, random, partitions, must=number == 0))
            filled_ms += planned[-1].lasts_ms + planned[-1].after_ms + HEALING_MS
        if not steps or filled_ms >= time_ms:
            break
    return tuple(planned)


def _with_seed(step: Step, random: Random) -> Mapping[str, object]:
    """Return a step's options, with a seed drawn for a fault that has chances of its own and was given none."""
    options = faults()[step.kind].options
    wanted = "seed" in options.__struct_fields__ and "seed" not in step.options
    return {**step.options, "seed": random.randrange(1 << 31)} if wanted else step.options


def _fault(
    index: int, step: Step, options: Mapping[str, object], random: Random, partitions: int, *, must: bool
) -> PlannedFault:
    target = draw(step.target, partitions, random.random(), random.random())
    partition = target.partition or 0
    return PlannedFault(
        index=index,
        kind=step.kind,
        target=target,
        options=options,
        lasts_ms=step.lasts.draw(random),
        after_ms=step.after.draw(random),
        meanwhile=step.meanwhile,
        when=None if step.when is None else step.when.bound(partition),
        until=None if step.until is None else step.until.bound(partition),
        must=must,
    )


class ExecutedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One line of schedule.jsonl: what was really done, and when within the fault phase.

    when, until:  what it waited for; who runs the schedule again waits for the times at which that came.
    broken_off:   its time was not over, or it was not even injected whole, when the run or the fault itself failed or was interrupted.
    """

    index: int
    kind: str
    planned_target: str
    resolved: int
    role: str  # broker or controller; node of a described system
    options: Mapping[str, object]
    started_ms: int
    lasted_ms: int
    meanwhile: bool = False
    when: str = ""
    until: str = ""
    broken_off: bool = False


def releases(plan: Plan) -> list[str]:
    """Return the releases that a plan's faults have nodes run, each once, in the order of the faults."""
    return list(dict.fromkeys(one for fault in plan.faults for one in faults()[fault.kind].releases_by(fault.options)))


def expression(planned: PlannedFault) -> str:
    """Return whom a fault is planned for, as the recording names it."""
    chosen = "" if planned.target.partition is None else f" with p{planned.target.partition}"
    return f"{planned.target.text}{chosen}"


def encoded(plan: Plan) -> bytes:
    """Return plan.json."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def read_plan(path: Path) -> Plan:
    """Read plan.json; `BadScenario` in one line when it is none."""
    try:
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=_Version).plan_version
        if version != PLAN_VERSION:
            # Before its other fields: a plan of another version may have any.
            raise BadScenario(f"{path}: unknown plan version {version} (this is {PLAN_VERSION})")
        plan = msgspec.json.decode(content, type=Plan)
    except OSError as problem:
        raise BadScenario(f"{path}: {problem.strerror}") from None
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: not a plan: {problem}") from None
    must_be_runnable(plan, path)
    return with_own_system(plan, path.parent)


def with_own_system(plan: Plan, run_dir: Path) -> Plan:
    """Return a plan of a described system as one of the files that were kept with its run, where those that were run are not here.

    They are not on another machine than the run's, and an archive's plan names none of its places (`for_readers`).
    """
    named = Path(plan.spec.system)
    kept = (run_dir / SYSTEM_FOLDER / named.name).resolve()
    if not plan.spec.system or (named.is_absolute() and named.exists()) or not kept.is_file():
        return plan
    return with_system(plan, str(kept))


def with_system(plan: Plan, file: str) -> Plan:
    """Return a plan of a described system with another path to its file."""
    return msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, system=file))


def for_readers(plan: Plan) -> Plan:
    """Return a plan that names files as whoever unpacks its archive finds them, and no places of the machine that made it."""
    spec = plan.spec
    if Path(spec.system).is_absolute():
        spec = msgspec.structs.replace(spec, system=f"{SYSTEM_FOLDER}/{Path(spec.system).name}")
    if Path(spec.file).is_absolute():
        spec = msgspec.structs.replace(spec, file=Path(spec.file).name)
    if Path(spec.hosts).is_absolute():
        spec = msgspec.structs.replace(spec, hosts=Path(spec.hosts).name)
    return msgspec.structs.replace(plan, spec=spec)


def in_simulator(path: Path) -> Plan:
    """Read plan.json of a run on any kind of cluster, as one for the simulator.

    Raises `BadScenario` for a described system: the simulator would run replog in its place, and speak of that.
    """
    plan = read_plan(path)
    if plan.spec.system:
        again = f"tribunal confirm {path.parent} --cluster system -n 8"
        raise BadScenario(
            f"{path} is of the system {plan.spec.system}, which the simulator cannot run; how often it shows is said by: {again}"
        )
    return msgspec.structs.replace(plan, cluster=SIMULATED)


def must_be_runnable(plan: Plan, path: Path) -> None:
    """Raise `BadScenario` in one line for what nobody can run, of a plan that was read from a file."""
    usable(plan.scenario)
    try:
        _must_be_sound(plan)
    except ValueError as problem:
        raise BadScenario(f"{path}: {problem}") from None


def _must_be_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise nearest(what, name, known)


def _must_be_sound(plan: Plan) -> None:
    """Raise ValueError in one line for what cannot be planned: whoever wrote the file, it is checked before anything is made."""
    _must_be_known("cluster", [plan.cluster], all_clusters())
    _must_be_known("workload", [plan.workload, *(one.workload for one in plan.beside)], all_workloads())
    _must_be_known("fault", [fault.kind for fault in plan.faults], faults())
    _must_be_known("mutant", plan.spec.mutants, mutants())
    if not IDENTIFIER.fullmatch(plan.cluster_id):
        raise ValueError(f"cluster_id {plan.cluster_id[:MOST_SHOWN]!r}: 1 to 64 letters, digits, - and _")
    if plan.mode != plan.spec.mode:
        raise ValueError(f"mode {plan.mode[:MOST_SHOWN]!r}: the cluster's is {plan.spec.mode[:MOST_SHOWN]!r}")
    must_be_sound(plan.spec)
    for name, load in (
        (plan.workload, plan.workload_plan),
        *((one.workload, one.workload_plan) for one in plan.beside),
    ):
        _must_be_a_load(name, load)
    _must_have_own_indexes(plan.faults)
    for fault in plan.faults:
        _must_be_a_fault(fault, plan.spec)
        _must_say_what_it_waits_for(fault.when, plan.spec, is_timed=fault.not_before_ms is not None)
        _must_say_what_it_waits_for(fault.until, plan.spec, is_timed=False)


def _must_have_own_indexes(planned: Iterable[PlannedFault]) -> None:
    """Raise ValueError for an index that no column holds, or that two faults have: the recording would not say whose proof is whose."""
    found: set[int] = set()
    for fault in planned:
        if not 0 <= fault.index <= INT_MAX:
            raise ValueError(f"fault {f'{fault.index}'[:MOST_SHOWN]} ({fault.kind}): indexes are 0 to {INT_MAX}")
        if fault.index in found:
            raise ValueError(f"fault {fault.index} ({fault.kind}): another one has this index")
        found.add(fault.index)


def _must_be_a_fault(fault: PlannedFault, spec: ClusterSpec) -> None:
    """Raise ValueError for options that are none of its kind, or a target that names nobody: a run would end in its midst."""
    try:
        msgspec.convert(fault.options, faults()[fault.kind].options)
    except UNREADABLE as problem:
        raise ValueError(
            f"fault {fault.index} ({fault.kind}): options: {in_words(problem, faults()[fault.kind].options)}"
        ) from None
    check_settings_of_fault(f"fault {fault.index} ({fault.kind})", fault.options)
    target = fault.target
    # A drawn cluster may be smaller than the scenario's: then a target fits nobody.
    parse(target.text, _largest(spec), ANY_COUNT)
    if target.partition is None and OF_PARTITION.fullmatch(target.text):
        raise ValueError(
            f"fault {fault.index} ({fault.kind}): target {target.text!r} without the partition that is meant"
        )
    if not 0 <= target.pick < 1:
        raise ValueError(f"fault {fault.index} ({fault.kind}): pick is {target.pick}, not a share from 0 up to 1")


def _largest(spec: ClusterSpec) -> ClusterSpec:
    return msgspec.structs.replace(spec, brokers=99, controllers=99, replication_factor=99)


def _must_be_a_load(workload: str, load: Mapping[str, object]) -> None:
    """Raise ValueError for what is no plan of this workload, or could not be recorded."""
    try:
        all_workloads()[workload].load(load)
    except UNREADABLE as problem:
        raise ValueError(f"workload_plan: no plan of {workload}: {problem}") from None
    _must_have_columns("workload_plan", "", load)
    _must_be_a_topic_of_users(load.get("topic"))


def _must_be_a_topic_of_users(topic: object) -> None:
    """Raise ValueError for a topic that no producer may write to: what brokers refuse there would be taken for losses."""
    if not isinstance(topic, str):
        return  # the workload names its topics itself
    named = f"workload_plan.topic: {topic[:MOST_SHOWN]!r}"
    if topic in (*INTERNAL_TOPICS, METADATA_TOPIC):
        raise ValueError(f"{named}: brokers keep it for themselves, nobody produces to it; name another topic")
    if not LEGAL_NAME.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(f"{named}: no topic's name; 1 to 249 letters, digits, '.', '_' and '-'")


def _must_have_columns(place: str, name: str, value: object) -> None:
    """Raise ValueError for a number that no column of a recording holds."""
    match value:
        case dict():
            for key, inner in value.items():
                _must_have_columns(f"{place}.{key}"[:MOST_SHOWN], str(key), inner)
        case list() | tuple():
            for inner in value:
                _must_have_columns(place, name, inner)
        case bool():
            return
        case int():
            first, last = (0, INT_MAX) if name in ("partition", "partitions") else (-LONG_MAX, LONG_MAX)
            if not first <= value <= last:
                raise ValueError(f"{place}: {f'{value}'[:MOST_SHOWN]}, but {first} to {last} can be")
        case _:
            return  # of no size


def _must_say_what_it_waits_for(trigger: Trigger | None, spec: ClusterSpec, *, is_timed: bool) -> None:
    """Raise ValueError where a trigger's words are others than its conditions; those of a repeated schedule have a time instead."""
    if trigger is None or (is_timed and not trigger.conditions):
        return
    # A drawn cluster may be smaller than the scenario's: then a trigger may wait in vain.
    largest = _largest(spec)
    said = parse_trigger(trigger.text, largest, ANY_COUNT).conditions
    if said != trigger.conditions or any(not isinstance(one, Sent) and one.partition is None for one in said):
        raise ValueError(f"trigger {trigger.text[:MOST_SHOWN]!r}: its conditions say something else")


def read_schedule(path: Path) -> Plan:
    """Return the plan beside an executed schedule, with its faults as they were: same nodes, same times."""
    try:
        lines = [msgspec.json.decode(line, type=ExecutedFault) for line in path.read_bytes().splitlines() if line]
    except OSError as problem:
        raise BadScenario(f"{path}: {problem.strerror}") from None
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: not an executed schedule: {problem}") from None
    plan = read_plan(path.with_name("plan.json"))
    again = tuple(
        PlannedFault(
            index=index,
            kind=line.kind,
            target=Target(text=f"{line.role} {line.resolved}", partition=None, pick=0.0),
            options=line.options,
            lasts_ms=_lasts_ms(line, plan),
            after_ms=0,
            not_before_ms=line.started_ms,
            meanwhile=line.meanwhile,
            when=_at_its_time(line),
        )
        for index, line in enumerate(sorted(lines, key=lambda line: line.started_ms))
    )
    repeated = msgspec.structs.replace(plan, faults=again)
    must_be_runnable(repeated, path)
    return repeated


def _lasts_ms(line: ExecutedFault, plan: Plan) -> int:
    """Return how long a fault lasts once it is injected: as planned, where no trigger ended it before; its injection takes its time again.

    One that was broken off may have done what broke the run off only at its end, so it gets all of its time.
    """
    planned = next((one for one in plan.faults if (one.index, one.kind) == (line.index, line.kind)), None)
    if planned is not None and line.broken_off:
        return planned.lasts_ms
    return line.lasted_ms if planned is None or planned.until is not None else min(line.lasted_ms, planned.lasts_ms)


def _at_its_time(line: ExecutedFault) -> Trigger | None:
    """Return what lets a fault come at the time at which its trigger came: like that, it does not wait for full service."""
    return Trigger(text=line.when, conditions=()) if line.when else None
