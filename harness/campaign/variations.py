"""Plans made of plans: the moves of a guided search.

A fault is moved to the events that matter (triggers at messages that the run before sent, at sizes of ISR and ELR), added, taken away, aimed at
another node, given other values; a setting of the cluster or the seed of the run is drawn anew, and other clients come beside those that are there. A new plan from
a scenario has its cluster and load, and either its faults or a few drawn ones. All chance comes from the `random` that is handed in.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from tribunal.clusters.spec import KRAFT, RACK_AWARE, SELECTOR, ZOOKEEPER, Mode, SettingValue
from tribunal.harness.catalog import SIMULATED, all_clusters, faults
from tribunal.harness.plan import Plan, PlannedFault, made, planned_beside, refusal
from tribunal.harness.scenario import Scenario
from tribunal.nemesis.messages import COUNTED, not_sent_in
from tribunal.nemesis.targets import BY_ID, OF_MESSAGE, Target, draw
from tribunal.nemesis.triggers import Sent, Trigger, parse_trigger

Options = Mapping[str, object]
SEEDS: Final = 1 << 31
TIME_MS: Final = 9_000  # for faults that are drawn one by one
FAULTS_MAX: Final = 8
LASTS_MS: Final = (50, 150, 400, 900, 1_800, 3_500, 6_000)
AFTER_MS: Final = (0, 0, 0, 1, 5, 20, 100, 400, 1_000)
WAITS_MS: Final = (200, 500, 1_000, 2_000)  # for trigger and target: who waits longer keeps those behind it from coming
PAUSES_MS: Final = (0, 100, 300, 900, 2_000)
TARGETS: Final = (
    *("leader(p*)", "leader(p*)", "follower(p*)", "follower(p*)", "isr_member(p*)", "elr_member(p*)"),
    *("outsider(p*)", "last_isr_member(p*)", "random broker", "active controller", "random controller"),
)
BROKERS: Final = tuple(one for one in TARGETS if "controller" not in one)
QUORUM_LEAST: Final = 3  # members of a quorum that outlives the loss of one disk
WIPE: Final = "wipe"
STATES: Final = (
    *(
        "|isr(p*)| < {replicas}",
        "|isr(p*)| = 1",
        "|isr(p*)| = 2",
        "|elr(p*)| >= 1",
        "leader(p*) = none",
        "recovering(p*)",
    ),
    *("isr(p*) = {leader}", "|isr(p*)| = 1 and |elr(p*)| >= 1", "|isr(p*)| = {replicas}"),
)
# Where nothing is known of what a run sends.
USUAL: Final[Mapping[str, int]] = {
    "alter-partition": 6,
    "broker-registration": 3,
    "offset-for-leader-epoch": 3,
    "vote": 2,
}
STEERING: Final = (
    *("alter-partition", "alter-partition", "broker-heartbeat", "fetch", "fetch", "vote", "broker-registration"),
    *("begin-quorum-epoch", "offset-for-leader-epoch", "produce"),
    *("leader-and-isr", "leader-and-isr", "update-metadata", "stop-replica"),
)
OF_LOADS: Final = (
    *(
        "end-txn",
        "write-txn-markers",
        "add-partitions-to-txn",
        "txn-offset-commit",
        "init-producer-id",
        "offset-commit",
    ),
    *("join-group", "sync-group", "heartbeat", "controlled-shutdown"),
)


class Kind(NamedTuple):
    """A kind of fault that may be added: how often, at whom, and how its options are drawn."""

    weight: int
    targets: Sequence[str]
    options: Callable[[Random, Plan, Mapping[str, int]], Options]


def _none(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {}


# Whoever would take notice may be away as well, or already have lost the node: no doubt of a run whose faults are drawn.
UNNOTICED: Final[Options] = {"must_be_noticed": False}


def _links(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"from": random.choice(("nodes", "nodes", "brokers", "controllers", "all"))}


def _cut(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {**_links(random, plan, sent), **UNNOTICED}


def _slow(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {
        **_links(random, plan, sent),
        "delay_ms": random.choice((30, 100, 300)),
        "jitter_ms": random.choice((0, 30)),
    }


def _messages(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    steering = [one for one in STEERING if not not_sent_in(_mode(plan), one)]
    of_load = [one for one in OF_LOADS if one in sent]
    return {
        "api": random.choice((*steering, *of_load)),
        "direction": random.choice(("request", "response")),
        "sent_by": random.choice(("node", "others")),
        "must_meet": False,  # nobody knows whether one will be sent: waiting for it 10 s is dear and proves nothing
    }


def _few_messages(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {**_messages(random, plan, sent), "limit": random.choice((1, 2, 5, 0))}


def _delayed(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {**_messages(random, plan, sent), "delay_ms": random.choice((70, 100, 300, 900))}


def _min_isr(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"to": random.randint(1, plan.spec.replication_factor)}


def _late_kill(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"after_ms": random.choice((0, 2, 5, 20))}


def _bounces(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"how": random.choice(("stop", "kill")), "times": random.choice((1, 2, 3))}


def _jump(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"offset_ms": random.choice((60_000, -60_000))}


def _fsync(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"delay_ms": random.choice((30, 100, 400))}


def _elsewhere(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"elsewhere": random.random() < 0.5}


def _one_link(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"direction": random.choice(("both", "in", "out"))}


def _ended_at_last(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"how": random.choice(("stop", "kill")), "must_be_noticed": False}


def _copied(random: Random, plan: Plan, sent: Mapping[str, int]) -> Options:
    return {"how": random.choice(("stop", "stop", "kill")), "age_ms": random.choice((0, 300, 1_000, 3_000))}


KINDS: Final[Mapping[str, Kind]] = {
    "kill": Kind(14, TARGETS, _none),
    "stop": Kind(8, TARGETS, _none),
    "power-loss": Kind(12, TARGETS, _none),
    "pause": Kind(6, TARGETS, _none),
    "isolate": Kind(14, TARGETS, _cut),
    "single-link": Kind(6, TARGETS, _one_link),
    "hold-messages": Kind(16, TARGETS, _messages),
    "delay-messages": Kind(5, TARGETS, _delayed),
    "drop-messages": Kind(6, TARGETS, _few_messages),
    "duplicate-messages": Kind(3, TARGETS, _few_messages),
    "slow": Kind(3, TARGETS, _slow),
    "slow-fsync": Kind(3, TARGETS, _fsync),
    "kill-in-shutdown": Kind(3, TARGETS, _late_kill),
    "fast-bounce": Kind(3, TARGETS, _bounces),
    "change-min-isr": Kind(4, ("active controller",), _min_isr),
    "elect-leaders": Kind(2, BROKERS, _none),
    WIPE: Kind(2, TARGETS, _none),
    "restored-disk": Kind(3, BROKERS, _copied),
    "torn-tail": Kind(3, BROKERS, _none),
    "truncate-segment": Kind(1, BROKERS, _none),
    "full-disk": Kind(3, BROKERS, _none),
    "read-only-disk": Kind(1, BROKERS, _none),
    "failing-directory": Kind(8, BROKERS, _ended_at_last),  # where there are several
    "reassign": Kind(4, BROKERS, _elsewhere),
    "clock-jump": Kind(2, TARGETS, _jump),
}
# What may strike all brokers or all controllers at one moment: a power cut, an overloaded store of all their disks. No law outlives
# that all disks lose what they had synced, so faults that take such bytes are not among them.
SHARED: Final = ("kill", "stop", "power-loss", "pause", "slow-fsync", "slow", "fast-bounce")
# What may strike who sent or received the message that it waited for: whatever that node is, the cluster outlives it.
AT_MESSAGES: Final = frozenset(
    {"kill", "stop", "power-loss", "pause", "isolate", "hold-messages", "slow-fsync", "kill-in-shutdown", "fast-bounce"}
)
AT_MESSAGES_SHARE: Final = 0.3
DIRECTORIES_SHARE: Final = 0.2  # of composed plans have brokers with two log directories
BETWEEN_ALIKE: Final = ("single-link",)  # needs another node of the same kind, whoever its target is
# Settings that are drawn anew by themselves, whatever the scenario says of them.
SETTINGS: Final[Mapping[str, Sequence[SettingValue]]] = {
    "log.segment.bytes": (2_048, 65_536, 1 << 30),
    "log.flush.interval.messages": (1, 10),
    "unclean.leader.election.enable": (False, True),
}
SETTINGS_IN_KRAFT_MODE: Final[Mapping[str, Sequence[SettingValue]]] = {
    "eligible.leader.replicas.enable": (False, True),
    SELECTOR: ("", RACK_AWARE),
    "metadata.log.max.record.bytes.between.snapshots": (1_000, 4_000),
}
# Segments go while the faults are there: records of a lone leader, of an ISR that is too small, of a follower's past.
RETENTION: Final[Mapping[str, SettingValue]] = {
    "log.segment.bytes": 2_048,
    "log.retention.check.interval.ms": 300,
}
RETAINED_MS: Final = (2_000, 4_000)
# Where records go before somebody's transaction has read them, a load of transactions stands still: retention is due in this one only.
RETAINABLE: Final = "produce-consume"
RESETTLED_SHARE: Final = 0.5  # of the composed plans
ACCOMPANIED_SHARE: Final = 0.25
SPREAD_SHARE: Final = 0.35
# Clients beside those of the scenario, few of each, and what they need of the nodes to end in a short run.
BESIDE: Final[Mapping[str, Options]] = {
    "transactions": {"partitions": 1, "processes": 2},
    "consumer-group": {"partitions": 2, "rate": 30, "members": 2},
    "operator": {"pause_ms": 250},
}
OF_BESIDE: Final[Mapping[str, SettingValue]] = {
    "transaction.max.timeout.ms": 6_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}


class Chosen(NamedTuple):
    """A plan, and how it was made: words for people."""

    plan: Plan
    how: str


def fresh(scenario: Scenario, random: Random, mutants: tuple[str, ...], *, composed: bool) -> Chosen:
    """Return a plan of the scenario; `composed`: with faults that are drawn one by one."""
    plan = made(scenario, seed=random.randrange(SEEDS), cluster=SIMULATED, time_ms=None, mutants=mutants)
    plan = msgspec.structs.replace(plan, time_ms=min(plan.time_ms, TIME_MS))
    if not composed:
        return Chosen(_without_reserve(plan), "as the scenario says")
    plan = msgspec.structs.replace(plan, faults=())
    if _mode(plan) == KRAFT and random.random() < DIRECTORIES_SHARE:
        plan = msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, log_directories=2))
    for _ in range(random.randint(2, 5)):
        plan = _added(plan, random, USUAL)
    if random.random() < RESETTLED_SHARE:
        plan = _resettled(plan, random, USUAL)
    if random.random() < ACCOMPANIED_SHARE:
        plan = _accompanied(plan, random, USUAL)
    for _ in range(2):  # what slows all disks, and what then cuts all power, are two faults
        if random.random() < SPREAD_SHARE:
            plan = _spread(plan, random, USUAL)
    return Chosen(plan, "composed")


def varied(parent: Plan, random: Random, sent: Mapping[str, int]) -> Chosen:
    """Return a variation of a plan.

    sent:  how many requests of each API its run sent, by the API's name with hyphens.
    """
    plan, words = parent, []
    for _ in range(random.choice((1, 1, 2, 3))):
        move = random.choice(MOVES) if plan.faults else _added
        plan = move(plan, random, sent)
        words.append(move.__name__.strip("_"))
    if msgspec.structs.replace(plan, time_ms=parent.time_ms) == parent:
        plan = _reseeded(plan, random, sent)
        words.append("reseeded")
    return Chosen(plan, ", ".join(words))


def _without_reserve(plan: Plan) -> Plan:
    """Return the plan with its first round alone, none of it longer than the plan's time: many short runs reach more than few long ones."""
    first = (fault for fault in plan.faults if fault.must)
    short = (msgspec.structs.replace(fault, lasts_ms=min(fault.lasts_ms, plan.time_ms)) for fault in first)
    return msgspec.structs.replace(plan, faults=tuple(short))


def _added(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    if len(plan.faults) >= FAULTS_MAX:
        return _removed(plan, random, sent)
    fault = _drawn(plan, random, sent)
    at = random.randint(0, len(plan.faults))
    return with_faults(plan, [*plan.faults[:at], fault, *plan.faults[at:]])


def _removed(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    at = random.randrange(len(plan.faults))
    return with_faults(plan, [*plan.faults[:at], *plan.faults[at + 1 :]]) if len(plan.faults) > 1 else plan


def _moved(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    """Let a fault come at another event, or at another time."""
    return _changed(plan, random, lambda fault: _timed(fault, plan, random, sent))


def _aimed(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    def aimed(fault: PlannedFault) -> PlannedFault:
        known = KINDS.get(fault.kind)
        if known is None:
            return fault
        target = draw(random.choice(known.targets), _partitions(plan), random.random(), random.random())
        return msgspec.structs.replace(fault, target=target)

    return _changed(plan, random, aimed)


def _redrawn(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    """Draw a fault's options anew, and how long it lasts."""

    def redrawn(fault: PlannedFault) -> PlannedFault:
        known = KINDS.get(fault.kind)
        options = fault.options if known is None else known.options(random, plan, sent)
        if "seed" in fault.options:
            options = {**fault.options, "seed": random.randrange(SEEDS)}
        return msgspec.structs.replace(fault, options=options, lasts_ms=random.choice(LASTS_MS))

    return _changed(plan, random, redrawn)


def _spread(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    """Let a fault strike all brokers or all controllers at one moment."""
    groups = [ids for ids in (plan.spec.broker_ids, plan.spec.controller_ids) if len(ids) > 1]
    places = [
        at for at, fault in enumerate(plan.faults) if fault.kind in SHARED and not BY_ID.fullmatch(fault.target.text)
    ]
    if not groups or not places:
        return plan
    at, ids = random.choice(places), random.choice(groups)
    if len(plan.faults) + len(ids) - 1 > FAULTS_MAX:
        return plan
    kind = "broker" if ids == plan.spec.broker_ids else "controller"
    first, *others = (
        msgspec.structs.replace(plan.faults[at], target=draw(f"{kind} {node}", _partitions(plan), 0.0, 0.0))
        for node in ids
    )
    # The first one waits for its event; the others come in the same moment.
    at_once = [msgspec.structs.replace(one, when=None, after_ms=0, meanwhile=True) for one in others]
    return with_faults(plan, [*plan.faults[:at], first, *at_once, *plan.faults[at + 1 :]])


def _swapped(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    """Let two faults come in the other order."""
    one, other = random.randrange(len(plan.faults)), random.randrange(len(plan.faults))
    order = list(plan.faults)
    order[one], order[other] = order[other], order[one]
    return with_faults(plan, order)


def _reseeded(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    """Let everything that is left to chance come out otherwise."""
    return msgspec.structs.replace(plan, seed=random.randrange(SEEDS))


def _resettled(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    """Draw a setting of the cluster anew, its min ISR, or let records become old enough to go."""
    what = random.choice(("one", "one", "min isr", "retention"))
    if what == "retention" and plan.workload == RETAINABLE and not plan.beside:
        return _with_settings(plan, {**RETENTION, "log.retention.ms": random.choice(RETAINED_MS)})
    if what == "min isr":
        count = random.randint(1, plan.spec.replication_factor)
        return msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, min_insync_replicas=count))
    drawable = {**SETTINGS, **(SETTINGS_IN_KRAFT_MODE if _mode(plan) == KRAFT else {})}
    name = random.choice(sorted(drawable))
    return _with_settings(plan, {name: random.choice(drawable[name])})


def _accompanied(plan: Plan, random: Random, sent: Mapping[str, int]) -> Plan:
    """Let other clients do something else at the same time, or those that came so go again."""
    name = random.choice(sorted(BESIDE))
    there = [one for one in plan.beside if one.workload != name]
    if len(there) < len(plan.beside):
        return msgspec.structs.replace(plan, beside=tuple(there))
    if name == plan.workload or plan.beside or "log.retention.ms" in plan.spec.settings:
        return plan
    plan = _with_settings(plan, OF_BESIDE)
    return msgspec.structs.replace(plan, beside=(planned_beside(name, BESIDE[name], plan.seed, plan.spec, SIMULATED),))


def _with_settings(plan: Plan, settings: Mapping[str, SettingValue]) -> Plan:
    spec = msgspec.structs.replace(plan.spec, settings={**plan.spec.settings, **settings})
    return msgspec.structs.replace(plan, spec=spec)


def _mode(plan: Plan) -> Mode:
    return ZOOKEEPER if plan.spec.is_zookeeper_mode else KRAFT


Move = Callable[[Plan, Random, Mapping[str, int]], Plan]
MOVES: Final[tuple[Move, ...]] = (
    _added,
    _added,
    _removed,
    _moved,
    _moved,
    _moved,
    _aimed,
    _redrawn,
    _swapped,
    _spread,
    _reseeded,
    _resettled,
    _accompanied,
)


def _drawn(plan: Plan, random: Random, sent: Mapping[str, int]) -> PlannedFault:
    kinds = _possible(plan)
    name = random.choices(list(kinds), [one.weight for one in kinds.values()])[0]
    kind = kinds[name]
    fault = PlannedFault(
        index=0,
        kind=name,
        target=draw(random.choice(kind.targets), _partitions(plan), random.random(), random.random()),
        options=kind.options(random, plan, sent),
        lasts_ms=random.choice(LASTS_MS),
        after_ms=0,
        must=False,
    )
    return _timed(fault, plan, random, sent)


def _possible(plan: Plan) -> dict[str, Kind]:
    known, simulated = faults(), all_clusters()[SIMULATED]
    return {
        name: kind
        for name, kind in KINDS.items()
        if _mode(plan) in known[name].modes
        and not known[name].refused_by(plan.spec, {})
        and not refusal(known[name], simulated)
        and (name not in BETWEEN_ALIKE or min(len(plan.spec.broker_ids), len(plan.spec.controller_ids)) > 1)
    }


def _timed(fault: PlannedFault, plan: Plan, random: Random, sent: Mapping[str, int]) -> PlannedFault:
    """Draw when a fault comes: at a message, at a state, or after a pause; and what ends it."""
    when = until = None
    after_ms, wait_ms = random.choice(PAUSES_MS), random.choice(WAITS_MS)
    if random.random() < 0.7:
        when, after_ms = _trigger(plan, fault, random, sent), random.choice(AFTER_MS)
    if random.random() < 0.25:
        until = _trigger(plan, fault, random, sent)
    aim, was_aimed = None, OF_MESSAGE.fullmatch(fault.target.text) is not None
    if when is not None and fault.kind in AT_MESSAGES and (was_aimed or random.random() < AT_MESSAGES_SHARE):
        aim = _end_of_message(when, random)
    if aim is None and was_aimed:  # it waits for that message no more
        aim = draw(random.choice(KINDS[fault.kind].targets), _partitions(plan), random.random(), random.random())
    # A run without it is one of its other faults, not an inconclusive one.
    return msgspec.structs.replace(
        fault, target=aim or fault.target, when=when, until=until, wait_ms=wait_ms, after_ms=after_ms,
        meanwhile=random.random() < 0.9, must=False,
    )  # fmt: skip


def _end_of_message(when: Trigger, random: Random) -> Target | None:
    """Return who sent or received the message that is waited for, None where none is."""
    for one in when.conditions:
        if isinstance(one, Sent):
            end, kind = random.choice(("sender", "receiver")), "request" if one.direction == "request" else "answer"
            return draw(f"{end}({one.api} {kind})", 1, 0.0, 0.0)
    return None


def _trigger(plan: Plan, fault: PlannedFault, random: Random, sent: Mapping[str, int]) -> Trigger:
    partition = fault.target.partition or 0
    counts = {api: count for api, count in sent.items() if api in COUNTED} or USUAL
    if random.random() < 0.5:
        api = random.choice(sorted(counts))
        number = random.choice((1, 1, 1, 2, 3, random.randint(1, max(1, min(counts[api], 40)))))
        text = f"{api} {random.choice(('request', 'answer'))} x{number}"
        if random.random() < 0.3:
            text += " and |isr(p*)| < {replicas}"
    else:
        text = random.choice(STATES)
    text = text.replace("{replicas}", str(plan.spec.replication_factor))
    if plan.spec.replication_factor < 2:
        text = "leader(p*) = none"
    return parse_trigger(text, plan.spec, _partitions(plan)).bound(partition)


class _Load(msgspec.Struct, frozen=True):
    """What of a workload's plan says how many partitions targets may name."""

    partitions: int = 1


def _partitions(plan: Plan) -> int:
    return msgspec.convert(plan.workload_plan, _Load).partitions


def _changed(plan: Plan, random: Random, change: Callable[[PlannedFault], PlannedFault]) -> Plan:
    at = random.randrange(len(plan.faults))
    return with_faults(plan, [*plan.faults[:at], change(plan.faults[at]), *plan.faults[at + 1 :]])


def with_faults(plan: Plan, wanted: Sequence[PlannedFault]) -> Plan:
    """Return the plan with these faults instead of its own, numbered, but for those that it would not outlive."""
    numbered = tuple(
        msgspec.structs.replace(fault, index=index, meanwhile=fault.meanwhile and index > 0)
        for index, fault in enumerate(outlived(plan, wanted))
    )
    return msgspec.structs.replace(plan, faults=numbered)


def outlived(plan: Plan, wanted: Sequence[PlannedFault]) -> list[PlannedFault]:
    """Return the faults without those that take the disk of a second controller, or of one of too few: a majority of disks is what a quorum is."""
    is_outlived = plan.spec.controllers >= QUORUM_LEAST and _mode(plan) == KRAFT
    kept: list[PlannedFault] = []
    for fault in wanted:
        if fault.kind == WIPE and "controller" in fault.target.text:
            if not is_outlived:
                continue
            is_outlived = False
        kept.append(fault)
    return kept
