"""Successions: what happens one after the other while records, metadata or votes do not travel as ever, all pairs of a table.

A row says how things stand (whose answers are late, who is behind, who receives no metadata, how disks sync), then up to three acts, each at a moment
of what the one before led to: who leads is lost in some way, a follower is, all are at once, an operator orders something that is still under way when
the next act comes. One table is of brokers and their partitions, one of the controllers' quorum. No row is written down: each table is the crossing of its factors.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from tribunal.clusters.spec import RACK_AWARE, SELECTOR, ZOOKEEPER, ClusterSpec, SettingValue
from tribunal.harness.campaign.crossings import ELR, ONE_REPLICA_LESS, THIN, TRANSACTIONS, UNCLEAN, trigger
from tribunal.harness.campaign.pairs import Pairs, Row, Value
from tribunal.harness.campaign.variations import BESIDE, OF_BESIDE, SEEDS, UNNOTICED, Chosen, with_faults
from tribunal.harness.catalog import SIMULATED
from tribunal.harness.plan import PlannedFault, made, planned_beside
from tribunal.harness.scenario import Scenario
from tribunal.nemesis.targets import STANDBY, draw

NONE: Final = "none"
AS_EVER: Final = "as ever"
PLAIN: Final = "produce-consume"
OPERATOR: Final = "operator"
IDLE: Final = "idle"
TICKING: Final = "ticking"
FORGOTTEN: Final = "producers forgotten"
WAIT_MS: Final = 5_000  # for a moment or a target: a follower is missed after 2.5 to 4.5 s
ROWS: Final = 2  # in one run
ROW_MS: Final = 11_000
LOADED_MS: Final = (400, 1_000)  # before a row: who is away from the first record on holds nothing that could be wrong
BROKERS: Final = "all brokers"
CONTROLLERS: Final = "all controllers"
LEADER: Final = "leader(p*)"
FOLLOWER: Final = "follower(p*)"
OUTSIDER: Final = "outsider(p*)"
ACTIVE: Final = "active controller"
FIRST: Final = "first"
THIRD: Final = "third"
ACTS: Final = (FIRST, "second", THIRD)
LEADER_LOST: Final = "leader lost"
FOLLOWER_LOST: Final = "follower lost"
ALL_LOST: Final = "all lost"


class Step(NamedTuple):
    """A fault, aimed at one node or at all of a kind.

    lasts_ms:  one of these; nodes that are hurt together come back in an order of their own.
    options:   each may be a value or a choice among several.
    pick:      which of several that fit, None: drawn, the same one for all steps of an act.
    when:      what it waits for, besides the act's moment; until: what ends it, if that comes sooner.
    after_ms:  a pause before it, of the second and later steps of an act.
    """

    kind: str
    target: str
    lasts_ms: Sequence[int]
    options: Mapping[str, object] = {}
    pick: float | None = None
    when: str = ""
    until: str = ""
    after_ms: Sequence[int] = (0,)


LeadsTo = Mapping[str, Mapping[str, Sequence[str]]]  # values by a value and a factor
Way = Sequence[Step]  # in which an act comes about, one step after the other


class Moment(NamedTuple):
    """When an act comes after the one before: at a state or message, where there is one; then after one of these pauses."""

    after_ms: Sequence[int]
    when: str = ""


class Standing(NamedTuple):
    """How things stand before anything happens: what makes them so, and the state by which one knows that they are.

    Factors come to stand one after the other: what makes the second so begins when the first one stands.

    hastens:  what makes the next one so does not wait for this one's state.
    adds:     its state has to hold beside those of the factors before, not instead of them.
    """

    steps: Sequence[Step] = ()
    when: str = ""
    hastens: bool = False
    adds: bool = False


class Realm(NamedTuple):
    """What a table is made of.

    standing:  how things stand, by factors; acts: what happens then, each in one of several ways; often: values of any factor that come more often.
    first, third:  acts that come more often at these places.
    moments:   of acts; of the first one those without a state.
    settings:  shapes and settings of the cluster; loads: of workloads.
    leads_to:  what a value brings in question: values of other factors in which it would show, by factor; of an act also `NEXT` and its moment.
    """

    standing: Mapping[str, Mapping[str, Standing]]
    acts: Mapping[str, Sequence[Way]]
    often: Sequence[str]
    first: Sequence[str]
    third: Sequence[str]
    moments: Mapping[str, Moment]
    settings: Mapping[str, tuple[Mapping[str, object], Mapping[str, SettingValue]]]
    loads: Sequence[str]
    leads_to: LeadsTo


LONG: Final = (4_000, 7_000)
SHORT: Final = (400, 1_500, 3_000, 6_000)
# Who is cut off for less is never missed, and for more it is: between these there is little to find.
CUT_FOR: Final = (1_500, 6_000, 6_000)
MESSAGES: Final[Mapping[str, object]] = {"must_meet": False}
LATE_ANSWERS: Final = {**MESSAGES, "api": "fetch", "direction": "response", "delay_ms": (100, 250)}
LATE_REQUESTS: Final = {**MESSAGES, "api": "fetch", "delay_ms": (70, 300, 600)}
PROPOSAL: Final = "alter-partition request"
LATE_PROPOSALS: Final = {
    **MESSAGES,
    "api": "alter-partition",
    "sent_by": "others",
    "delay_ms": (300, 1_200, 2_500),  # up to where who was proposed is another incarnation by then
}
LATE_GRANTS: Final = {**LATE_PROPOSALS, "sent_by": "node", "direction": "response"}
NO_FETCHES: Final = {**MESSAGES, "api": "fetch"}
NO_HEARTBEATS: Final = {**MESSAGES, "api": "broker-heartbeat"}
FROM: Final = {**UNNOTICED, "from": ("nodes", "brokers")}
FROM_BROKERS: Final = {**UNNOTICED, "from": "brokers"}
ORDERED: Final[Mapping[str, object]] = {"under_way": True, "must_be_granted": False}


def _ways(*steps: Step) -> Sequence[Way]:
    """Return ways of one step each."""
    return tuple((step,) for step in steps)


BOUNCED: Final = {"how": ("stop", "kill"), "times": (1, 2)}
ANOTHER: Final = Step("elect-leaders", FOLLOWER, (100,), {**ORDERED, "as_first": True})
# What a lost replica lacks counts only until it is replicated again: for a while it replicates nothing.
NOT_MENDED: Final = Step("isolate", OUTSIDER, (3_000, 6_000), FROM_BROKERS)
TURN_MS: Final = (3_600, 4_200)
RECOVERING: Final = "recovering(p*)"
OUTSIDER_LOST: Final = "who is behind lost"
LEADER_MOVED: Final = "leader moved"
BY_TURNS: Final = "by turns"
ANOTHER_LEADS: Final = "another leads"
TWO_DIRECTORIES: Final = "two directories"
DIRECTORY_LOST: Final = "directory lost"
FAILING: Final[Mapping[str, object]] = {"how": ("stop", "kill"), "must_be_noticed": False}
DISK_RESTORED: Final = "old disk restored"
AN_OLD_DISK: Final[Mapping[str, object]] = {"how": ("stop", "stop", "kill"), "age_ms": (0, 300, 1_000)}
# Behind two ends and a start: the heals of others wait for a full ISR meanwhile.
RESTORED_MS: Final = (400, 1_500, 3_000)
CHANGE_OUTLIVED: Final = "isr change outlived"
# A proposal waits while who is to enter the ISR ends and comes back: it is another one by then, and may hold less (KIP-903).
OUTLIVED: Final = {
    **MESSAGES,
    "api": "alter-partition",
    "over": ("power-loss", "power-loss", "power-loss", "kill"),  # what it has just copied is not on its disk yet
    "of": "follower",
    "until": ("registered", "registered", "in-sync"),
    "unfetched": (True, True, False),
    "wait_ms": 4_500,
}
LEADER_UNINFORMED: Final = "leader uninformed"
COORDINATOR_LOST: Final = "coordinator lost"
MARKERS: Final = "write-txn-markers request"
COORDINATOR: Final = f"sender({MARKERS})"  # the last one that had a transaction to end
RAISED: Final = "min isr raised"
LOWERED: Final = "min isr lowered"
ORDERS: Final = (ANOTHER_LEADS, LEADER_MOVED, RAISED, LOWERED)  # nothing that a change of the ISR would be about
# Ways to be lost; an act is one of them.
OF_LEADERS: Final[Mapping[str, Sequence[Way]]] = {
    NONE: (),
    LEADER_LOST: _ways(
        Step("kill", LEADER, SHORT),
        Step("kill", LEADER, SHORT),
        Step("stop", LEADER, SHORT),
        Step("power-loss", LEADER, SHORT),
        Step("isolate", LEADER, SHORT, FROM),
        Step("fast-bounce", LEADER, (100,), BOUNCED),
    ),
    FOLLOWER_LOST: _ways(
        Step("kill", FOLLOWER, SHORT),
        Step("power-loss", FOLLOWER, SHORT),
        Step("isolate", FOLLOWER, CUT_FOR, FROM),
        Step("isolate", FOLLOWER, CUT_FOR, FROM_BROKERS),
        Step("isolate", FOLLOWER, CUT_FOR, FROM_BROKERS),
        Step("fast-bounce", FOLLOWER, (100,), BOUNCED),
    ),
    OUTSIDER_LOST: (
        (Step("stop", OUTSIDER, (100, 300, 1_500)),),
        (Step("fast-bounce", OUTSIDER, (100,), BOUNCED),),
        (Step("kill", OUTSIDER, (100, 300)), NOT_MENDED),
        (Step("power-loss", OUTSIDER, (100, 300)), NOT_MENDED),
        (Step("power-loss", OUTSIDER, (100, 300)), NOT_MENDED),
    ),
    ANOTHER_LEADS: ((ANOTHER,), (ANOTHER, ANOTHER._replace(after_ms=(100, 300, 900)))),
    LEADER_MOVED: _ways(Step("reassign", LEADER, (4_000, 6_000), {**ORDERED, "elsewhere": (True, False)})),
    ALL_LOST: _ways(
        Step("stop", BROKERS, SHORT),
        Step("power-loss", BROKERS, (300, 900, 2_500)),
        Step("kill", BROKERS, SHORT),
    ),
    "controller lost": _ways(Step("kill", ACTIVE, (400, 2_000)), Step("power-loss", ACTIVE, (400, 2_000))),
    # Whoever comes back leads alone, because the other one goes just then.
    BY_TURNS: tuple(
        tuple(Step(lost, LEADER, TURN_MS, options, when=RECOVERING, after_ms=(500, 900, 1_200)) for _ in range(2))
        for lost, options in (("kill", {}), ("isolate", {**UNNOTICED, "from": "nodes"}))
    ),
}
OF_KRAFT: Final[Mapping[str, Sequence[Way]]] = {
    CHANGE_OUTLIVED: _ways(Step("hold-over", LEADER, (700, 3_000), OUTLIVED)),
    # What was ordered before it may know, and nothing of what becomes of it.
    LEADER_UNINFORMED: _ways(Step("hold-messages", LEADER, (6_000,), NO_FETCHES)),
    COORDINATOR_LOST: _ways(
        Step("kill", COORDINATOR, SHORT),
        Step("power-loss", COORDINATOR, SHORT),
        Step("fast-bounce", COORDINATOR, (100,), BOUNCED),
    ),
    DIRECTORY_LOST: _ways(
        Step("failing-directory", LEADER, SHORT, FAILING), Step("failing-directory", FOLLOWER, SHORT, FAILING)
    ),
    # Who comes back so lacks records only until they are replicated again.
    DISK_RESTORED: (
        (Step("restored-disk", FOLLOWER, RESTORED_MS, AN_OLD_DISK),),
        (Step("restored-disk", FOLLOWER, RESTORED_MS, AN_OLD_DISK), Step("isolate", LEADER, LONG, FROM_BROKERS)),
        (Step("restored-disk", LEADER, RESTORED_MS, AN_OLD_DISK), Step("isolate", LEADER, LONG, FROM_BROKERS)),
    ),
    RAISED: _ways(Step("change-min-isr", ACTIVE, LONG, {"to": "{replicas}"})),
    LOWERED: _ways(Step("change-min-isr", ACTIVE, LONG, {"to": 1})),
}
TWO_REPLICAS: Final = "two replicas"
BOTH_NEEDED: Final = "two replicas, both needed"
UNCLEAN_TWO_REPLICAS: Final = "unclean, two replicas"
UNCLEAN_RACKS: Final = "unclean, racks"
# Of a small cluster each part is the last one sooner: few things have to coincide.
OFTEN: Final = (LEADER_LOST, LEADER_LOST, TWO_REPLICAS, UNCLEAN_TWO_REPLICAS)
# What a state and the acts before have broken shows once another has to lead: such a row is chosen before one with a few more pairs.
ENDS_WITHOUT_LEADER: Final = 1.6
MOSTLY_LAST: Final = (LEADER_LOST,) * 9
# Among so many drawn rows the one with most new pairs is chosen: of more, those that are named often would come as seldom as others.
OF_SUCCESSIONS: Final = 4
# Of the rows ask what their values bring in question: whoever is concerned by what does not travel is hurt, then who leads.
ASKED_SHARE: Final = 0.7
ASKED_TRIES: Final = 20  # a question may not go with what is given
# Of the acts hurt the follower that is behind.
SAME_SHARE: Final = 0.6
NEXT: Final = "next"
NEXT_COMES: Final = "next comes"
# Of the last rows of runs: nothing comes behind the first act, so that what it broke is there at the end.
LEFT_ALONE_SHARE: Final = 0.4
LATE_MARKERS: Final = {
    **MESSAGES,
    "api": "write-txn-markers",
    "direction": ("request", "response"),
    "delay_ms": (150, 500),
}
ENDS_LATE: Final = "ends late"
END_REPEATED: Final = "an end repeated"
ONE_PRODUCER: Final = "one producer's transactions"
# A transaction is decided, and its partitions learn of it later than of anything else.
LATE_END: Final = {**MESSAGES, "api": "end-txn", "sent_by": "others", "limit": 1}
ENDING: Final[Mapping[str, Standing]] = {
    AS_EVER: Standing(),
    ENDS_LATE: Standing((Step("delay-messages", BROKERS, (7_000,), LATE_MARKERS),)),
    # What its producer sends again arrives first, and it arrives when the next transaction is about to end.
    END_REPEATED: Standing(
        (
            Step("hold-messages", BROKERS, (4_000,), LATE_END, until="end-txn request x3"),
            Step("hold-messages", BROKERS, (4_000,), LATE_END, when="end-txn request x5", until="end-txn request x3"),
            Step("hold-messages", BROKERS, (4_000,), LATE_END, when="end-txn request x5", until="end-txn request x3"),
            Step("delay-messages", BROKERS, (4_000,), {**LATE_END, "limit": 0, "delay_ms": 100}),
        ),
        "end-txn request x5",
    ),
}
LATE_ANSWERED: Final = "answers late"
REQUESTS_LATE: Final = "requests late"
TRAVELLING: Final[Mapping[str, Standing]] = {
    AS_EVER: Standing(),
    LATE_ANSWERED: Standing((Step("delay-messages", BROKERS, (7_000,), LATE_ANSWERS),)),
    # What leaders know of their followers' logs is of a while ago, of one of them longer than of the others.
    REQUESTS_LATE: Standing(
        (
            Step("delay-messages", FOLLOWER, (7_000,), {**LATE_REQUESTS, "delay_ms": (600, 900)}),
            Step("delay-messages", BROKERS, (7_000,), {**LATE_REQUESTS, "delay_ms": (100, 200, 300)}),
        )
    ),
    "one's requests late": Standing((Step("delay-messages", FOLLOWER, LONG, LATE_REQUESTS),)),
    "one later than all": Standing(
        (
            Step("delay-messages", BROKERS, (7_000,), LATE_ANSWERS),
            Step("delay-messages", FOLLOWER, (7_000,), LATE_REQUESTS),
        )
    ),
    "leader alone": Standing((Step("isolate", LEADER, LONG, FROM_BROKERS),)),
}
SHRUNK: Final = "|isr(p*)| < {replicas}"
ALONE: Final = "|isr(p*)| = 1"
UNCLEANLY: Final = "elected uncleanly"
FOLLOWER_GONE: Final = "follower gone"
FOLLOWERS_GONE: Final = "followers gone"
FOLLOWER_BACK: Final = "follower back"
BEHIND: Final[Mapping[str, Standing]] = {
    "nobody": Standing(),
    "follower going": Standing((Step("isolate", FOLLOWER, LONG, FROM),)),
    FOLLOWER_GONE: Standing((Step("isolate", FOLLOWER, LONG, FROM),), SHRUNK),
    # It is missed, and on its way back then: behind a longer cut its connections rest for as long as that had lasted.
    FOLLOWER_BACK: Standing((Step("isolate", FOLLOWER, LONG, FROM_BROKERS, until=SHRUNK),), SHRUNK),
    FOLLOWERS_GONE: Standing(
        (Step("isolate", FOLLOWER, LONG, FROM, 0.0), Step("isolate", FOLLOWER, LONG, FROM, 0.99)), ALONE
    ),
}
FENCED: Final = {"follower fenced": Standing((Step("hold-messages", FOLLOWER, (2_500, 4_000), NO_HEARTBEATS),), SHRUNK)}
# Those who may lead then are alive, and are short of records.
UNCLEAN_ELECTION: Final = {
    UNCLEANLY: Standing(
        (
            Step("isolate", FOLLOWER, (6_000, 8_000), FROM_BROKERS, 0.0),
            Step("isolate", FOLLOWER, (6_000, 8_000), FROM_BROKERS, 0.99),
            Step("kill", LEADER, (5_000, 7_000), when=ALONE),
        ),
        RECOVERING,
        hastens=True,  # the moment is over before anything else could begin in it
    )
}
NO_METADATA: Final = "leader receives none"
ANSWERED_NOTHING: Final = "leader is answered nothing"
LATE_CHANGES: Final = "isr changes late"
LATE_ANSWERS_TO_CHANGES: Final = "isr changes answered late"
WHOLE: Final = "|isr(p*)| = {replicas}"
TO_LEADER: Final = {**MESSAGES, "direction": "response", "sent_by": "others"}
METADATA: Final[Mapping[str, Standing]] = {
    AS_EVER: Standing(),
    NO_METADATA: Standing((Step("hold-messages", LEADER, (5_000, 8_000), NO_FETCHES),)),
    # What it asks for is granted, and it never learns so: who has been away is back in the ISR by then.
    ANSWERED_NOTHING: Standing(
        (
            Step("hold-messages", LEADER, LONG, {**TO_LEADER, "api": "alter-partition"}, when=SHRUNK),
            Step("hold-messages", LEADER, LONG, {**TO_LEADER, "api": "fetch"}),
        ),
        WHOLE,
    ),
    # What a leader hopes for is not committed yet, or it does not know so, for a while each time.
    LATE_CHANGES: Standing((Step("delay-messages", ACTIVE, (7_000,), LATE_PROPOSALS),), PROPOSAL, adds=True),
    LATE_ANSWERS_TO_CHANGES: Standing((Step("delay-messages", ACTIVE, (7_000,), LATE_GRANTS),), PROPOSAL, adds=True),
}
LATE_WATCHES: Final[Mapping[str, Standing]] = {
    AS_EVER: Standing(),
    "controller notified late": Standing((Step("slow-zookeeper", ACTIVE, (7_000,)),)),
}
MOMENTS: Final[Mapping[str, Moment]] = {
    "at once": Moment((0, 5, 30)),
    "soon": Moment((100, 250, 500)),
    "later": Moment((900, 1_500)),
    "missed": Moment((2_100, 2_700, 3_200)),
    "shrunk": Moment((0, 50, 400), SHRUNK),
    "alone": Moment((0, 50, 400), ALONE),
    "leaderless": Moment((0, 50, 300), "leader(p*) = none"),
    "recovering": Moment((0, 1, 20), RECOVERING),
}
# Who is the first of its replicas leads again as soon as it may.
GO_BACK: Final[Mapping[str, SettingValue]] = {"leader.imbalance.check.interval.seconds": 1}
# Of KRaft mode: in the other one leaders write to ZooKeeper what they propose here.
PROPOSED: Final[Mapping[str, Moment]] = {"proposed": Moment((0, 1, 20), PROPOSAL)}
MARKED: Final = "marked"  # a transaction is decided, and its partitions are being notified
SETTINGS: Final[Mapping[str, tuple[Mapping[str, object], Mapping[str, SettingValue]]]] = {
    "as it is": ({}, {}),
    "no elr": ({}, {ELR: False}),
    "unclean": ({}, UNCLEAN),
    UNCLEAN_TWO_REPLICAS: (ONE_REPLICA_LESS, UNCLEAN),
    UNCLEAN_RACKS: ({}, {**UNCLEAN, SELECTOR: RACK_AWARE}),
    TWO_REPLICAS: (ONE_REPLICA_LESS, {}),
    "min isr 1": ({"min_insync_replicas": 1}, {}),
    TWO_DIRECTORIES: ({"log_directories": 2}, {}),
    BOTH_NEEDED: ({"replication_factor": 2, "min_insync_replicas": 2}, {}),
    "more needed than there are": ({"replication_factor": 2, "min_insync_replicas": 3}, {}),
    "leaders go back": ({}, GO_BACK),
    # For transactions alone: who only repeats a batch may be forgotten between its tries.
    FORGOTTEN: ({}, {"producer.id.expiration.ms": 1_000, "producer.id.expiration.check.interval.ms": 200}),
}
SOON: Final = ("at once", "soon", "soon", "later")  # before anybody is missed
# A follower that is not what it was is found out when it leads, and a leader when another one does.
FOUND_OUT: Final[Mapping[str, Sequence[str]]] = {NEXT: (LEADER_LOST,), NEXT_COMES: SOON}
NOTICED: Final = (*SOON, "missed", "shrunk", "alone")  # or behind that
MOVED_ON: Final[Mapping[str, Sequence[str]]] = {
    NEXT: (NONE, LEADER_LOST, ALL_LOST),
    NEXT_COMES: ("soon", "later", "missed"),
}
LOST_NEXT: Final[Mapping[str, Sequence[str]]] = {"second": (LEADER_LOST,), "second comes": SOON}
# Brokers fetch metadata, too: who is to lead learns of it later than it is decided.
LOST_ONCE_KNOWN: Final[Mapping[str, Sequence[str]]] = {
    "second": (LEADER_LOST,),
    "second comes": ("soon", "later", "later", "later"),
}
UNHEARD: Final = (NO_METADATA, NO_METADATA, NO_METADATA, AS_EVER)
OF_LATE_RECORDS: Final[LeadsTo] = {
    LATE_ANSWERED: {FIRST: (LEADER_LOST, ANOTHER_LEADS), **LOST_NEXT},
    REQUESTS_LATE: {
        FIRST: (ANOTHER_LEADS, ANOTHER_LEADS, ANOTHER_LEADS, LEADER_LOST),
        f"{FIRST} comes": ("later", "later", "missed"),  # before, nobody is behind yet
        **LOST_ONCE_KNOWN,
    },
    "one's requests late": {FIRST: (ANOTHER_LEADS, LEADER_LOST), **LOST_NEXT},
    "one later than all": {FIRST: (LEADER_LOST, ANOTHER_LEADS), **LOST_NEXT},
    "leader alone": {FIRST: (ALL_LOST, LEADER_LOST, ANOTHER_LEADS)},
    "unclean": {"behind": (UNCLEANLY,)},
    UNCLEANLY: {"setting": ("unclean",), FIRST: (LEADER_LOST, "controller lost", FOLLOWER_LOST)},
    ANOTHER_LEADS: {
        f"{FIRST} comes": ("soon", "later", "later", "missed"),
        "travelling": (
            REQUESTS_LATE,
            REQUESTS_LATE,
            REQUESTS_LATE,
            "one's requests late",
            "one later than all",
            LATE_ANSWERED,
        ),
        NEXT: (LEADER_LOST,),
        NEXT_COMES: ("at once", "soon", "later", "later"),
    },
    ALL_LOST: {NEXT: (LEADER_LOST, "controller lost"), NEXT_COMES: ("leaderless", "at once", "soon")},
    LEADER_MOVED: {"behind": (FOLLOWER_GONE, FOLLOWERS_GONE), **MOVED_ON},
    FOLLOWER_LOST: {NEXT: (LEADER_LOST,), NEXT_COMES: NOTICED},
    OUTSIDER_LOST: {"behind": (FOLLOWER_GONE, FOLLOWERS_GONE), **FOUND_OUT},
}
UNDER_WAY: Final[Mapping[str, Sequence[str]]] = {
    "behind": (FOLLOWER_BACK, FOLLOWER_BACK, FOLLOWERS_GONE, UNCLEANLY),
    FIRST: (OUTSIDER_LOST, OUTSIDER_LOST, "controller lost", LEADER_LOST),
    f"{FIRST} comes": ("at once", "at once", "soon"),
}
OF_LATE_METADATA: Final[LeadsTo] = {
    NO_METADATA: {
        "behind": (FOLLOWER_GONE, FOLLOWER_GONE, "nobody"),
        FIRST: (LEADER_MOVED, RAISED, FOLLOWER_LOST, LOWERED, ANOTHER_LEADS),
    },
    ANSWERED_NOTHING: {"behind": (FOLLOWER_GONE,), FIRST: (FOLLOWER_LOST, FOLLOWER_LOST, LEADER_LOST)},
    LATE_CHANGES: UNDER_WAY,
    LATE_ANSWERS_TO_CHANGES: UNDER_WAY,
    CHANGE_OUTLIVED: {NEXT: (NONE, NONE, LEADER_LOST), NEXT_COMES: SOON},
    TWO_DIRECTORIES: {FIRST: (DIRECTORY_LOST,)},
    DIRECTORY_LOST: {"behind": ("nobody", FOLLOWER_GONE), NEXT: (NONE, LEADER_LOST, FOLLOWER_LOST)},
    "follower fenced": {"travelling": (LATE_ANSWERED, "one later than all"), FIRST: (LEADER_LOST,), **LOST_NEXT},
    UNCLEAN_TWO_REPLICAS: {"behind": (UNCLEANLY,)},
    UNCLEAN_RACKS: {"behind": (UNCLEANLY,)},
    UNCLEANLY: {
        "setting": ("unclean", UNCLEAN_TWO_REPLICAS, UNCLEAN_TWO_REPLICAS, UNCLEAN_RACKS),
        "load": (TRANSACTIONS, PLAIN),
        FIRST: (LEADER_LOST, BY_TURNS, "controller lost", FOLLOWER_LOST),
        "metadata": (LATE_CHANGES, AS_EVER),
    },
    ENDS_LATE: {FIRST: (LEADER_LOST, COORDINATOR_LOST)},
    END_REPEATED: {FIRST: (FOLLOWER_LOST, ANOTHER_LEADS)},
    FORGOTTEN: {"travelling": ("leader alone", AS_EVER, LATE_ANSWERED), FIRST: (LEADER_LOST,)},
    OUTSIDER_LOST: {
        "behind": (FOLLOWER_GONE, FOLLOWERS_GONE),
        "metadata": (LATE_CHANGES, LATE_CHANGES, AS_EVER),
        NEXT: (LEADER_LOST, LEADER_LOST, NONE),
        NEXT_COMES: SOON,
    },
    COORDINATOR_LOST: {NEXT: (LEADER_LOST, COORDINATOR_LOST)},
    DISK_RESTORED: {
        "setting": (TWO_REPLICAS, BOTH_NEEDED, BOTH_NEEDED, "as it is"),
        NEXT: (LEADER_LOST,),
        NEXT_COMES: ("soon", "later", "missed", "missed"),
    },
    ALL_LOST: {NEXT: (LOWERED, RAISED, LEADER_LOST, "controller lost"), NEXT_COMES: ("leaderless", "at once", "soon")},
    LEADER_MOVED: {
        "setting": (TWO_REPLICAS, TWO_REPLICAS, BOTH_NEEDED, BOTH_NEEDED, "as it is", "min isr 1"),
        "behind": (FOLLOWER_BACK, FOLLOWER_BACK, FOLLOWERS_GONE),
        NEXT: (LEADER_UNINFORMED, LEADER_UNINFORMED, NONE, LEADER_LOST, ALL_LOST),
        NEXT_COMES: ("at once", "soon", "soon", "later"),
    },
    RAISED: {
        "setting": (TWO_REPLICAS, TWO_REPLICAS, "min isr 1", "as it is"),
        "behind": ("nobody",),
        "metadata": UNHEARD,
        NEXT: (FOLLOWER_LOST,),
        NEXT_COMES: SOON,
    },
    LOWERED: {"metadata": UNHEARD, NEXT: (LEADER_LOST, ALL_LOST)},
}
OF_BROKERS: Final = Realm(
    standing={
        "transactions": ENDING,
        "travelling": TRAVELLING,
        "behind": {**BEHIND, **FENCED, **UNCLEAN_ELECTION},
        "metadata": METADATA,
    },
    acts={**OF_LEADERS, **OF_KRAFT},
    often=(*OFTEN, LATE_CHANGES, LATE_CHANGES, NO_METADATA, FOLLOWER_GONE, LATE_ANSWERED, UNCLEAN_RACKS),
    first=(OUTSIDER_LOST, OUTSIDER_LOST, LEADER_MOVED, BY_TURNS, BY_TURNS),
    third=MOSTLY_LAST,
    moments={**MOMENTS, **PROPOSED, MARKED: Moment((0, 1, 20), MARKERS)},
    settings=SETTINGS,
    loads=(PLAIN, PLAIN, TRANSACTIONS, TRANSACTIONS, ONE_PRODUCER),
    leads_to={**OF_LATE_RECORDS, **OF_LATE_METADATA},
)
IN_ZOOKEEPER_MODE: Final = Realm(
    standing={"travelling": TRAVELLING, "behind": {**BEHIND, **UNCLEAN_ELECTION}, "metadata": LATE_WATCHES},
    acts={name: ways for name, ways in OF_LEADERS.items() if name != BY_TURNS},
    often=(*OFTEN, FOLLOWER_LOST),
    first=(),
    third=MOSTLY_LAST,
    moments=MOMENTS,
    settings={name: SETTINGS[name] for name in ("as it is", "unclean", TWO_REPLICAS, "min isr 1")},
    loads=(PLAIN,),
    leads_to=OF_LATE_RECORDS,
)
VOTER_BOUNCED: Final = "voter bounced"
SLOW_VOTES: Final = {**MESSAGES, "api": "vote", "delay_ms": (50, 150, 300)}
ENDS: Final = (50, 400, 900, 2_500, 4_000)
LATE_VOTES: Final = (
    Step("delay-messages", CONTROLLERS, (6_000,), SLOW_VOTES),
    Step("delay-messages", CONTROLLERS, (6_000,), {**SLOW_VOTES, "api": "begin-quorum-epoch"}),
)
VOTED: Final = "sender(vote answer)"
CUT_LINK: Final = Step("single-link", "{one}", (6_000,), {"to": "{another}"})
# Each of them hears of whoever leads as long as that one is there, and of nobody else's election.
CUT_STANDBYS: Final = Step("single-link", STANDBY, (6_000,), {"to": "standby"})
OF_VOTERS: Final = Realm(
    standing={
        "syncing": {
            AS_EVER: Standing(),
            "slowly": Standing((Step("slow-fsync", CONTROLLERS, (6_000,), {"delay_ms": 200}),)),
        },
        "votes": {
            AS_EVER: Standing(),
            "late": Standing(LATE_VOTES),
            "a link cut": Standing((CUT_LINK,)),
            "late, a link cut": Standing((*LATE_VOTES, CUT_LINK)),
            "late, standbys apart": Standing((*LATE_VOTES, CUT_STANDBYS)),
        },
        "behind": {
            "nobody": Standing(),
            "one": Standing((Step("isolate", "{third}", (800, 1_500, 3_000), {"from": "controllers"}),)),
            "one, of the leader": Standing((Step("single-link", ACTIVE, (2_000, 4_000)),)),
        },
    },
    acts={
        NONE: (),
        LEADER_LOST: _ways(
            Step("kill", ACTIVE, ENDS),
            Step("kill", ACTIVE, ENDS),
            Step("stop", ACTIVE, ENDS),
            Step("power-loss", ACTIVE, ENDS),
            Step("isolate", ACTIVE, ENDS, {"from": "controllers", "direction": ("both", "in", "out")}),
            Step("pause", ACTIVE, ENDS),
        ),
        # Who has just given its word has to know of it when it is back.
        VOTER_BOUNCED: _ways(
            Step("fast-bounce", "{third}", (50,), {"how": "kill", "times": (1, 2)}),
            Step("fast-bounce", VOTED, (50,), {"how": "kill"}),
            Step("power-loss", VOTED, (20, 50)),
        ),
        "voter wiped": _ways(Step("wipe", "{one}", ENDS)),
        ALL_LOST: _ways(Step("kill", CONTROLLERS, ENDS), Step("power-loss", CONTROLLERS, (300, 800))),
    },
    often=(LEADER_LOST, VOTER_BOUNCED),
    first=(),
    third=MOSTLY_LAST,
    moments={
        "at once": Moment((0, 5, 30)),
        "soon": Moment((100, 250)),
        "an election": Moment((400, 700, 1_000)),
        "later": Moment((1_500, 2_000)),
        "asked": Moment((0, 2, 20), "vote request"),
        "answered": Moment((0, 2, 20), "vote answer"),
        # Behind the round of pre-votes: the first answers are of these.
        "voted": Moment((0, 2, 20, 100), "vote answer x3"),
        "voted for two": Moment((0, 2, 20, 100), "vote answer x5"),  # where two stand at once
        "begun": Moment((0, 2, 50), "begin-quorum-epoch request"),
    },
    settings={"three": ({}, {}), "five": ({"controllers": 5}, {})},
    loads=(OPERATOR, TICKING, TICKING, IDLE, IDLE),
    leads_to={
        "late": {FIRST: (LEADER_LOST,)},
        "a link cut": {FIRST: (LEADER_LOST,)},
        "late, a link cut": {FIRST: (LEADER_LOST,)},
        "late, standbys apart": {FIRST: (LEADER_LOST,)},
        "slowly": {FIRST: (LEADER_LOST, ALL_LOST)},
        LEADER_LOST: {
            NEXT: (VOTER_BOUNCED, VOTER_BOUNCED, ALL_LOST),
            NEXT_COMES: ("voted", "voted for two", "answered", "asked"),
        },
        VOTER_BOUNCED: {
            NEXT: (VOTER_BOUNCED, LEADER_LOST, LEADER_LOST),
            NEXT_COMES: ("at once", "voted", "voted for two", "soon"),
        },
    },
)
# Few clients, of which none is idle for long: what they cost is not what finds anything.
QUIET: Final[Mapping[str, object]] = {"partitions": 1, "rate": 20, "readers": 1}
OF_LOAD: Final[Mapping[str, Mapping[str, object]]] = {
    # At any moment some are open, and of some ids nobody ends what was left open.
    TRANSACTIONS: {
        "partitions": 1,
        "processes": 4,
        "rest_ms": 60,
        "open_ms": 80,
        "aborted_percent": 50,
        "id_transactions": 10,
    },
    ONE_PRODUCER: {"partitions": 1, "processes": 1, "rest_ms": 50, "open_ms": 80, "aborted_percent": 50},
    OPERATOR: QUIET,
    TICKING: QUIET,
    IDLE: QUIET,
}
IDLE_MS: Final = "metadata.max.idle.interval.ms"
OF_IDLE: Final[Mapping[str, Mapping[str, SettingValue]]] = {
    # Nothing is written to the quorum's log but what has to be: who is behind then is behind for long, and who is not stays so.
    IDLE: {IDLE_MS: 0},
    # Records that mean nothing are records to a quorum; an operator's topics cost four times as much.
    TICKING: {IDLE_MS: 50},
}


# What a value is never without.
NEEDS: Final[Mapping[str, Mapping[str, str]]] = {
    DIRECTORY_LOST: {"setting": TWO_DIRECTORIES},
    CHANGE_OUTLIVED: {"behind": FOLLOWER_BACK},
    BY_TURNS: {"setting": UNCLEAN_TWO_REPLICAS, "behind": UNCLEANLY},
    END_REPEATED: {"load": ONE_PRODUCER},
    **{value: {"load": TRANSACTIONS} for value in (ENDS_LATE, MARKED, COORDINATOR_LOST)},
}


class Table(Pairs):
    """The factors of a realm, and which of their values go together."""

    def __init__(self, name: str, realm: Realm, tries: dict[str, int], crossed: dict[str, None]) -> None:
        self.realm, self.name = realm, name
        factors: dict[str, Sequence[str]] = {f"{name} setting": self._weighted(realm.settings)}
        factors[f"{name} load"] = realm.loads
        for factor, values in realm.standing.items():
            factors[f"{name} {factor}"] = self._weighted(values)
        for act in ACTS:
            is_first, more = act == FIRST, {FIRST: realm.first, THIRD: realm.third}.get(act, ())
            acts = (*self._weighted(realm.acts), *more)
            factors[f"{name} {act}"] = [one for one in acts if one != (NONE if is_first else BY_TURNS)]
            moments = realm.moments.items()
            factors[f"{name} {act} comes"] = [one for one, moment in moments if not (is_first and moment.when)]
        later = [f"{name} {act}" for act in ACTS[1:]]  # of these nothing is asked: they follow
        self._questions = [
            (factor, value)
            for factor, values in factors.items()
            if factor not in later
            for value in dict.fromkeys(values)
            if value in realm.leads_to
        ]
        super().__init__(factors, tries, crossed, candidates=OF_SUCCESSIONS)

    def _weighted(self, values: Mapping[str, object]) -> list[str]:
        return [*values, *(one for one in self.realm.often if one in values)]

    def value(self, row: Row, factor: str) -> str:
        """Return a row's value of a factor."""
        return row[f"{self.name} {factor}"]

    def rows(self, random: Random) -> list[Row]:
        """Choose the rows of a run; they share the cluster's settings and its load. What the last one broke is often left as it is."""
        chosen = [self._chosen(random, {})]
        given = {f"{self.name} {one}": self.value(chosen[0], one) for one in ("setting", "load")}
        while len(chosen) < ROWS:
            if len(chosen) == ROWS - 1 and random.random() < LEFT_ALONE_SHARE:
                given |= {f"{self.name} {act}": NONE for act in ACTS if act != FIRST}
            chosen.append(self._chosen(random, given))
        for row in chosen:  # whether an act met what it waits for is not asked
            self.took(row)
        return chosen

    def _chosen(self, random: Random, given: Row) -> Row:
        """Choose a row that asks a question, or one with pairs that are left."""
        asked = self._asked(random, given) if random.random() < ASKED_SHARE else None
        return self.row(random, given) if asked is None else asked

    def _drawn(self, random: Random, given: Row) -> Row:
        """Draw a row, in which values that need others have these, unless something else is given."""
        return self._with_needed(super()._drawn(random, given), given)

    def _with_needed(self, row: Row, given: Row) -> dict[str, str]:
        whole = dict(row)
        for value in row.values():
            for factor, needed in NEEDS.get(value, {}).items():
                name = f"{self.name} {factor}"
                whole[name] = given.get(name, needed)
        return whole

    def _asked(self, random: Random, given: Row) -> Row | None:
        """Return a row in which one value and what it leads to are all that is not as ever, None where that goes with nothing that is given."""
        for _ in range(ASKED_TRIES):
            row = {**self._as_ever(random), **given}
            fixed = set(given)
            asked, led = [random.choice(self._questions)], set[str]()
            while asked:
                factor, value = asked.pop()
                if factor in led or (factor in fixed and row[factor] != value):
                    continue
                row[factor] = value
                fixed.add(factor)
                led.add(factor)
                asked += [(name, random.choice(values)) for name, values in self._led_to(factor, value)]
            row = self._with_needed(row, given)
            if self._fits(row):
                return row
        return None

    def _as_ever(self, random: Random) -> dict[str, str]:
        """Return a row in which nothing happens: the first value of each standing and act; cluster, load and moments are drawn."""
        ever = {*self.realm.standing, *ACTS}
        return {
            name: values[0] if name.removeprefix(f"{self.name} ") in ever else random.choice(values)
            for name, values in self._factors.items()
        }

    def _led_to(self, factor: str, value: str) -> list[tuple[str, Sequence[str]]]:
        """Return what a value of a factor leads to: values by the factors' names, what comes next last, so that it is fixed first."""
        act = factor.removeprefix(f"{self.name} ")
        later = ACTS[ACTS.index(act) + 1 :] if act in ACTS else ()
        found = []
        for other, values in self.realm.leads_to.get(value, {}).items():
            if NEXT not in other:
                found.append((f"{self.name} {other}", values))
            elif later:
                found.append((f"{self.name} {other.replace(NEXT, later[0])}", values))
        return found

    def _worth(self, row: Row) -> float:
        acts = [act for act in (self.value(row, name) for name in ACTS) if act != NONE]
        return super()._worth(row) * (ENDS_WITHOUT_LEADER if acts[1:] and acts[-1] == LEADER_LOST else 1)

    def is_apart(self, one: Value, other: Value) -> bool:
        """Return whether two values cannot go together."""
        values = {name.removeprefix(f"{self.name} "): value for name, value in (one, other)}
        needed: dict[str, str] = {}
        for need in (NEEDS.get(value, {}) for value in values.values()):
            for factor, value in need.items():
                if values.get(factor, value) != value or needed.setdefault(factor, value) != value:
                    return True
        values = {**needed, **values}
        setting, behind = values.get("setting"), values.get("behind")
        is_unclean = setting is not None and setting.startswith("unclean")
        acts = [value for name, value in values.items() if name in ACTS]
        return (
            (setting is not None and behind is not None and is_unclean != (behind == UNCLEANLY))
            or (
                "recovering" in values.values()
                and (setting or behind) is not None
                and not (is_unclean or behind == UNCLEANLY)
            )
            or (behind == UNCLEANLY and FORGOTTEN in values.values())
            or (behind == "nobody" and OUTSIDER_LOST in acts)  # nobody is yet
            or (values.get("metadata") == LATE_CHANGES and (behind == "nobody" or values.get(FIRST) in ORDERS))
            # Who receives none has to be there when something is decided about it.
            or (values.get("metadata") == NO_METADATA and values.get(FIRST) in {LEADER_LOST, OUTSIDER_LOST, BY_TURNS})
            or (setting == FORGOTTEN and values.get("load", TRANSACTIONS) != TRANSACTIONS)
            or (DIRECTORY_LOST in acts and not {UNCLEANLY, "recovering"}.isdisjoint(values.values()))
            or acts.count(LEADER_MOVED) > 1  # both would be given back: to different replicas
            or acts.count("voter wiped") > 1  # a majority of disks is what a quorum is
        )


def tables(mode: str, tries: dict[str, int], crossed: dict[str, None]) -> list[Table]:
    """Return the tables that there are in a mode."""
    if mode == ZOOKEEPER:
        return [Table("brokers", IN_ZOOKEEPER_MODE, tries, crossed)]
    return [Table("brokers", OF_BROKERS, tries, crossed), Table("voters", OF_VOTERS, tries, crossed)]


def planned(scenario: Scenario, rows: Sequence[Row], table: Table, random: Random, mutants: tuple[str, ...]) -> Chosen:
    """Return a plan of a scenario's cluster, in which these rows come one after the other."""
    shape, settings = table.realm.settings[table.value(rows[0], "setting")]
    load = table.value(rows[0], "load")
    workload = TRANSACTIONS if load in {TRANSACTIONS, ONE_PRODUCER} else PLAIN
    options = OF_LOAD.get(load) or {**THIN, "readers": 1}
    shape = {"brokers": random.choice((3, 4, 4)), **shape}
    if scenario.spec.mode == ZOOKEEPER:
        options = {**options, "partitions": 3}  # a control request may name one partition of several
    settings = {**settings, **OF_IDLE.get(load, {})}
    spec = msgspec.structs.replace(scenario.spec, settings={**scenario.spec.settings, **OF_BESIDE, **settings}, **shape)
    if spec.is_zookeeper_mode:
        spec.settings.pop(ELR, None)
    bare = msgspec.structs.replace(
        scenario, spec=spec, steps=(), beside=(), swarm=False, workload=workload, workload_options=options
    )
    plan = made(bare, seed=random.randrange(SEEDS), cluster=SIMULATED, time_ms=None, mutants=mutants)
    plan = msgspec.structs.replace(plan, time_ms=ROW_MS * len(rows))
    if load == OPERATOR:
        beside = planned_beside(OPERATOR, {**BESIDE[OPERATOR], "pause_ms": 150}, plan.seed, plan.spec, SIMULATED)
        plan = msgspec.structs.replace(plan, beside=(beside,))
    faults = [fault for row in rows for fault in _faults(row, table, plan.spec, random)]
    return Chosen(with_faults(plan, faults), "; ".join(_words(row, table) for row in rows))


def _words(row: Row, table: Table) -> str:
    standing = (f"{factor} {table.value(row, factor)}" for factor in ("setting", "load", *table.realm.standing))
    acts = ((table.value(row, act), table.value(row, f"{act} comes")) for act in ACTS)
    return ", ".join((*standing, *(f"{act} {comes}" for act, comes in acts if act != NONE)))


def _faults(row: Row, table: Table, spec: ClusterSpec, random: Random) -> list[PlannedFault]:
    ids = random.sample(spec.controller_ids, min(3, len(spec.controller_ids)))
    names = {name: f"controller {node}" for name, node in zip(("{one}", "{another}", "{third}"), ids, strict=False)}
    found: list[PlannedFault] = []
    same = random.random()  # who is behind is often the one that is hurt afterwards
    stands = awaited = ""
    for factor, values in table.realm.standing.items():
        standing = values[table.value(row, factor)]
        for place, step in enumerate(standing.steps):
            when = step.when or ("" if place else awaited)
            found += _spread(step, Moment((0,), when), same, spec, names, random)
        stands = " and ".join(one for one in (stands if standing.adds else "", standing.when) if one) or stands
        awaited = "" if standing.hastens else stands
    for act in ACTS:
        moment = table.realm.moments[table.value(row, f"{act} comes")]
        if act == FIRST:
            moment = moment._replace(when=stands)
        ways = table.realm.acts[table.value(row, act)]
        pick = same if random.random() < SAME_SHARE else random.random()
        for place, step in enumerate(random.choice(ways) if ways else ()):
            at = Moment(step.after_ms, step.when) if place else moment
            found += _spread(step, at, pick, spec, names, random)
    found[0] = msgspec.structs.replace(found[0], after_ms=found[0].after_ms + random.choice(LOADED_MS))
    return [msgspec.structs.replace(one, meanwhile=place > 0) for place, one in enumerate(found)]


def _spread(
    step: Step, moment: Moment, pick: float, spec: ClusterSpec, names: Mapping[str, str], random: Random
) -> list[PlannedFault]:
    """Return the fault of a step, one for each node that it is aimed at; the first one waits for its moment."""
    targets = [names.get(step.target, step.target)]
    if step.target in {BROKERS, CONTROLLERS}:
        kind, ids = ("broker", spec.broker_ids) if step.target == BROKERS else ("controller", spec.controller_ids)
        targets = [f"{kind} {node}" for node in ids]
    pick = pick if step.pick is None else step.pick
    return [
        PlannedFault(
            index=0, kind=step.kind, target=draw(target, 1, 0.0, pick),
            # Of each node by itself: messages that are all as late as each other come in the order in which they were sent.
            options={name: _option(value, spec, names, random) for name, value in step.options.items()},
            lasts_ms=random.choice(step.lasts_ms), after_ms=0 if place else random.choice(moment.after_ms),
            when=None if place else trigger(moment.when, spec), until=trigger(step.until, spec), wait_ms=WAIT_MS, must=False,
        )
        for place, target in enumerate(targets)
    ]  # fmt: skip


def _option(value: object, spec: ClusterSpec, names: Mapping[str, str], random: Random) -> object:
    if isinstance(value, tuple):
        return random.choice(value)
    if value == "{replicas}":
        return spec.replication_factor
    if isinstance(value, str) and value in names:
        return int(names[value].split()[1])
    return value
