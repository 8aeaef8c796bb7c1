"""Crossings: messages of each API over events in the lives of those whom they concern, all pairs of a table, one after the other.

What a careful reader tries on a protocol is systematic: hold this message, let its sender, its receiver or its subject end and come
back, let it arrive at this moment of what follows, then hurt who leads. A row of the table is one value of each factor; rows are
chosen so that each has as many pairs of values as can be that were not crossed before (pairwise covering). A pair counts only when the run's own
events say that the message waited over the event (`hold-over`); pairs that did not come about are tried again in other company.
No row is written down: the table is the crossing of its factors.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from tribunal.clusters.spec import RACK_AWARE, SELECTOR, ClusterSpec, SettingValue
from tribunal.harness.campaign.pairs import Pairs, Row, Value
from tribunal.harness.campaign.variations import BESIDE, OF_BESIDE, SEEDS, UNNOTICED, Chosen, with_faults
from tribunal.harness.catalog import SIMULATED
from tribunal.harness.plan import Plan, PlannedFault, made, planned_beside
from tribunal.harness.scenario import Scenario
from tribunal.nemesis.messages import not_sent_in
from tribunal.nemesis.targets import draw
from tribunal.nemesis.triggers import Trigger, parse_trigger

HOLD_OVER: Final = "hold-over"
ROWS: Final = 3  # in one run: its start is paid once
REPLICAS_LEAST: Final = 3
ROW_MS: Final = 9_000
ELR: Final = "eligible.leader.replicas.enable"
THIN: Final = {
    "partitions": 1,
    "rate": 60,
}  # the load, where the workload has such options: what it costs is not what finds anything
AFTERMATH_MS: Final = (0, 100, 400)
WAIT_MS: Final = 2_500  # for a message
STATE_WAIT_MS: Final = 4_000  # a follower is missed after 2.5 s

AT_BROKERS: Final = ("leader(p*)", "follower(p*)")
NOTHING: Final = "nothing"
PLAIN: Final = ""
TRANSACTIONS: Final = "transactions"
GROUP: Final = "consumer-group"


class Said(NamedTuple):
    """Messages of an API: who sends or gets them, what makes them come, which load does."""

    api: str
    holders: Sequence[str]
    provoked: Sequence[str]
    load: str = PLAIN
    between_nodes: bool = True


# Provocations: what lets the messages be sent, as kinds of fault with their targets; and from which state on they are held.
class Step(NamedTuple):
    """A fault before the messages are held."""

    kind: str
    target: str
    options: Mapping[str, object]
    lasts_ms: int
    when: str = ""
    until: str = ""
    pick: float | None = None  # which of several that fit, None: drawn


NODES: Final = {**UNNOTICED, "from": "nodes"}
BROKERS: Final = {**UNNOTICED, "from": "brokers"}
SHRUNK: Final = "|isr(p*)| < {replicas}"
PROVOCATIONS: Final[Mapping[str, tuple[Sequence[Step], str]]] = {
    "nothing": ((), ""),
    "follower away": ((Step("isolate", "follower(p*)", NODES, 4_000),), ""),
    "follower back": ((Step("isolate", "follower(p*)", NODES, 6_000, until=SHRUNK),), SHRUNK),
    "leader killed": ((Step("kill", "leader(p*)", {}, 2_500),), ""),
    "leader back": ((Step("stop", "leader(p*)", {}, 400),), ""),
    "controller killed": ((Step("kill", "active controller", {}, 2_000),), ""),
    "itself killed": ((Step("kill", "{holder}", {}, 200),), ""),
    "unclean": (
        (
            Step("isolate", "follower(p*)", BROKERS, 5_000, pick=0.0),
            Step("isolate", "follower(p*)", BROKERS, 5_000, pick=0.99),
            Step("kill", "leader(p*)", {}, 4_000, when="|isr(p*)| = 1"),
        ),
        "recovering(p*)",
    ),
}
ELECTED: Final = ("leader killed", "leader back", "unclean")
SAID: Final = (
    Said("alter-partition", ("leader(p*)",), ("follower away", "follower back", "unclean")),
    Said("fetch", (*AT_BROKERS, "random controller"), ("nothing", "leader back", "controller killed")),
    Said("broker-heartbeat", AT_BROKERS, ("nothing", "controller killed")),
    Said("broker-registration", ("random broker",), ("itself killed",)),
    Said("vote", ("random controller",), ("controller killed",)),
    Said("begin-quorum-epoch", ("random controller",), ("controller killed",)),
    Said("offset-for-leader-epoch", ("follower(p*)",), ELECTED),
    Said("leader-and-isr", AT_BROKERS, ("follower away", "leader killed", "leader back", "itself killed")),
    Said("update-metadata", AT_BROKERS, ("follower away", "leader killed")),
    Said("stop-replica", AT_BROKERS, ("nothing", "leader back")),
    Said("controlled-shutdown", AT_BROKERS, ("nothing",)),
    Said("produce", ("leader(p*)",), ("nothing", "follower away"), between_nodes=False),
    Said("init-producer-id", ("random broker",), ("nothing",), TRANSACTIONS, between_nodes=False),
    Said("add-partitions-to-txn", ("random broker",), ("nothing",), TRANSACTIONS),
    Said("end-txn", ("random broker",), ("nothing",), TRANSACTIONS, between_nodes=False),
    Said("write-txn-markers", ("random broker",), ("nothing", "unclean"), TRANSACTIONS),
    Said("offset-commit", ("random broker",), ("nothing",), GROUP, between_nodes=False),
    Said("join-group", ("random broker",), ("leader killed",), GROUP, between_nodes=False),
    Said("heartbeat", ("random broker",), ("nothing",), GROUP, between_nodes=False),
)
# Requests and answers, of who sends the request and of who gets it.
WAYS: Final[Mapping[str, Mapping[str, object]]] = {
    "its request": {"direction": "request", "sent_by": "node"},
    "request to it": {"direction": "request", "sent_by": "others"},
    "its answer": {"direction": "response", "sent_by": "node"},
    "answer to it": {"direction": "response", "sent_by": "others"},
}
TO_BROKERS: Final = ("leader-and-isr", "update-metadata", "stop-replica")
UNCLEAN: Final[Mapping[str, SettingValue]] = {"unclean.leader.election.enable": True, ELR: False}
ONE_REPLICA_LESS: Final[Mapping[str, object]] = {"replication_factor": 2, "min_insync_replicas": 1}
SETTINGS: Final[Mapping[str, tuple[Mapping[str, object], Mapping[str, SettingValue]]]] = {
    "as it is": ({}, {}),
    "no elr": ({}, {ELR: False}),
    "unclean": ({}, UNCLEAN),
    "unclean, two replicas": (ONE_REPLICA_LESS, UNCLEAN),
    "unclean, racks": ({}, {**UNCLEAN, SELECTOR: RACK_AWARE}),
    "min isr 1": ({"min_insync_replicas": 1}, {}),
    "two replicas": (ONE_REPLICA_LESS, {}),
    "two replicas, both needed": ({"replication_factor": 2, "min_insync_replicas": 2}, {}),
    "min isr above replicas": ({"replication_factor": 2, "min_insync_replicas": 3}, {}),
    "four brokers": ({"brokers": 4}, {}),
    "flushed": ({}, {"log.flush.interval.messages": 1}),
}
OF_KRAFT: Final = ("no elr", "unclean, racks")
AFTERMATH: Final[Mapping[str, Step | None]] = {
    NOTHING: None,
    "leader killed": Step("kill", "leader(p*)", {}, 2_500),
    "leader without power": Step("power-loss", "leader(p*)", {}, 2_500),
    "leader stopped": Step("stop", "leader(p*)", {}, 600),
    "leader cut off": Step("isolate", "leader(p*)", NODES, 2_500),
    "controller killed": Step("kill", "active controller", {}, 1_500),
}


class Table(Pairs):
    """The factors that there are in a mode.

    tries:    how often each pair of values was tried, by its words; crossed: those that came about.
    """

    def __init__(self, mode: str, tries: dict[str, int], crossed: dict[str, None]) -> None:
        self.said = {
            f"{way} {one.api}, {provoked}, {holder}": (one, way, provoked, holder)
            for one in SAID
            if not not_sent_in(mode, one.api)
            for way in WAYS
            if _is_sent(one, way)
            for provoked in one.provoked
            for holder in one.holders
            if mode == KRAFT_MODE or "controller" not in f"{holder}{provoked}"
        }
        self._load: str | None = None  # of the run whose rows are chosen
        factors: dict[str, Sequence[str]] = {
            "said": list(self.said),
            "over": ["kill", "stop", "power-loss", "wipe", "pause", "isolate"],
            "of": ["node", "leader", "follower", "controller"],
            "until": ["ended", "started", "registered", "in-sync"],
            "unfetched": ["fetches", "fetches nothing"],
            "after": list(AFTERMATH),
            "setting": [name for name in SETTINGS if mode == KRAFT_MODE or name not in OF_KRAFT],
        }
        super().__init__(factors, tries, crossed)

    def rows(self, random: Random) -> list[Row]:
        """Choose the rows of a run; they share the cluster's settings and its load. The last one is left as it came about: what it broke shows at the end."""
        self._load = None
        chosen = [self.row(random, {})]
        self._load = self.said[chosen[0]["said"]][0].load
        while len(chosen) < ROWS:
            last = {"after": NOTHING} if len(chosen) == ROWS - 1 else {}
            chosen.append(self.row(random, {"setting": chosen[0]["setting"], **last}))
        return chosen

    def is_apart(self, one: Value, other: Value) -> bool:
        """Return whether two values cannot go together."""
        return _is_apart((one, other), self.said)

    def _fits(self, row: Row) -> bool:
        said, _, provoked, _ = self.said[row["said"]]
        return (
            (self._load is None or said.load == self._load)
            and super()._fits(row)
            and (provoked != "unclean" or row["setting"].startswith("unclean"))
        )


KRAFT_MODE: Final = "kraft"


def _is_sent(said: Said, way: str) -> bool:
    """Return whether a broker or controller is at this end of it."""
    if said.api in TO_BROKERS:
        return way in {"request to it", "its answer"}
    if not said.between_nodes or said.load:
        return way in {"request to it", "its answer"}
    return way in {"its request", "answer to it"}


def _is_apart(pair: tuple[tuple[str, str], tuple[str, str]], said: Mapping[str, tuple[Said, str, str, str]]) -> bool:
    """Return whether two values cannot go together: a message is let go on at its sender's end only where somebody ends, ..."""
    values = dict(pair)
    if values.get("over") == "wipe" and values.get("of") == "controller":
        return True  # a majority of disks is what a quorum is
    if values.get("over") in {"pause", "isolate"} and values.get("until") == "started":
        return True  # it is the same as ended
    if "said" in values and "over" in values:
        one, _, _, holder = said[values["said"]]
        if holder == "random controller" and values["over"] == "wipe":
            return True
        if one.api == "controlled-shutdown" and values["over"] != "stop":
            return True
    if "said" in values and "of" in values and said[values["said"]][0].api == "controlled-shutdown":
        return values["of"] != "node"  # who stops sends it
    if "said" in values and "setting" in values and said[values["said"]][2] == "unclean":
        return not values["setting"].startswith("unclean")
    return False


def is_crossable(scenario: Scenario) -> bool:
    """Return whether a scenario leaves its cluster to chance, and that is one in which others take over."""
    return scenario.swarm and min(scenario.spec.brokers, scenario.spec.replication_factor) >= REPLICAS_LEAST


def planned(scenario: Scenario, rows: Sequence[Row], table: Table, random: Random, mutants: tuple[str, ...]) -> Chosen:
    """Return a plan of a scenario's cluster and load in which these rows come one after the other."""
    thin = {name: THIN.get(name, value) for name, value in scenario.workload_options.items()}
    bare = msgspec.structs.replace(scenario, steps=(), beside=(), swarm=False, workload_options=thin)
    plan = made(bare, seed=random.randrange(SEEDS), cluster=SIMULATED, time_ms=None, mutants=mutants)
    shape, settings = SETTINGS[rows[0]["setting"]]
    nodes = {**plan.spec.settings, **settings}
    if plan.spec.is_zookeeper_mode:
        nodes.pop(ELR, None)
    load = table.said[rows[0]["said"]][0].load
    if load and load != plan.workload:
        nodes |= OF_BESIDE
    spec = msgspec.structs.replace(plan.spec, settings=nodes, **shape)
    plan = msgspec.structs.replace(plan, spec=spec, time_ms=ROW_MS * len(rows))
    if load and load != plan.workload:
        beside = planned_beside(load, BESIDE[load], plan.seed, spec, SIMULATED)
        plan = msgspec.structs.replace(plan, beside=(beside,))
    faults = [fault for row in rows for fault in _faults(row, table, plan, random)]
    return Chosen(with_faults(plan, faults), "; ".join(map(_words, rows)))


def _words(row: Row) -> str:
    return f"{row['said']} over {row['over']} of {row['of']} until {row['until']}, {row['after']}"


def _faults(row: Row, table: Table, plan: Plan, random: Random) -> list[PlannedFault]:
    said, way, provoked, holder = table.said[row["said"]]
    if holder in {"random broker", "random controller"}:
        ids = plan.spec.broker_ids if holder == "random broker" else plan.spec.controller_ids
        holder = f"{holder.removeprefix('random ')} {random.choice(ids)}"
    steps, when = PROVOCATIONS[provoked]
    planned = [_fault(one, plan, random, holder) for one in steps]
    options = {
        "api": said.api,
        **WAYS[way],
        "limit": random.choice((1, 1, 3)),
        "must_meet": False,
        "over": row["over"],
        "of": row["of"],
        "until": row["until"],
        "unfetched": row["unfetched"] == "fetches nothing",
        "wait_ms": WAIT_MS,
    }
    planned.append(_fault(Step(HOLD_OVER, holder, options, 700, when=when), plan, random, holder))
    if (after := AFTERMATH[row["after"]]) is not None:
        planned.append(_fault(after, plan, random, holder, after_ms=random.choice(AFTERMATH_MS)))
    return [msgspec.structs.replace(one, meanwhile=place > 0) for place, one in enumerate(planned)]


def _fault(step: Step, plan: Plan, random: Random, holder: str, after_ms: int = 0) -> PlannedFault:
    target = draw(step.target.replace("{holder}", holder), 1, 0.0, random.random() if step.pick is None else step.pick)
    when, until = (trigger(text, plan.spec) for text in (step.when, step.until))
    return PlannedFault(
        index=0, kind=step.kind, target=target, options=step.options, lasts_ms=step.lasts_ms, after_ms=after_ms,
        when=when, until=until, wait_ms=STATE_WAIT_MS, must=False,
    )  # fmt: skip


def trigger(text: str, spec: ClusterSpec) -> Trigger | None:
    """Return what a step waits for; none for no words."""
    if not text:
        return None
    return parse_trigger(text.replace("{replicas}", str(spec.replication_factor)), spec, 1).bound(0)


def crossed_rows(chosen: Plan, rows: Sequence[Row], indexes: Sequence[int]) -> list[Row]:
    """Return the rows of a plan that came about, by the indexes of the faults that did."""
    if not rows:  # a plan of another kind, varied from one of this
        return []
    holds = [fault.index for fault in chosen.faults if fault.kind == HOLD_OVER]
    return [row for row, index in zip(rows, holds, strict=True) if index in indexes]
