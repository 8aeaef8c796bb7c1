"""What all faults on single messages share: which messages are meant, the rule, its proof, its end.

Messages are named by Kafka's API and by the node that sends or gets them. That a rule is in force proves nothing:
the fault took effect when a message met it, and has healed when what it held has been let go and everybody is back.
"""

from collections.abc import Collection, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Final, Literal

import msgspec

from tribunal.clusters.capabilities import CanHinderMessages, Fate, FrameRule
from tribunal.clusters.links.requests import FLOWING
from tribunal.clusters.requested import OF_GROUPS, OF_GROUPS_IN_TRANSACTIONS, OF_PRODUCERS, OF_TRANSACTIONS
from tribunal.clusters.spec import KRAFT, ZOOKEEPER, ClusterSpec, Mode
from tribunal.nemesis.api import AsyncGenerator, ClusterError, Effect, Proof, all_back, came_true, joined

MEET_TIMEOUT_MS: Final = 10_000

# The APIs that control messages and replication are made of; the numbers are Kafka's.
APIS: Final = {
    "any": None,
    "produce": 0,
    "fetch": 1,
    "list-offsets": 2,
    "metadata": 3,
    "leader-and-isr": 4,
    "stop-replica": 5,
    "update-metadata": 6,
    "controlled-shutdown": 7,
    "offset-commit": 8,
    "offset-fetch": 9,
    "find-coordinator": 10,
    "join-group": 11,
    "heartbeat": 12,
    "leave-group": 13,
    "sync-group": 14,
    "init-producer-id": 22,
    "offset-for-leader-epoch": 23,
    "add-partitions-to-txn": 24,
    "add-offsets-to-txn": 25,
    "end-txn": 26,
    "write-txn-markers": 27,
    "txn-offset-commit": 28,
    "vote": 52,
    "begin-quorum-epoch": 53,
    "end-quorum-epoch": 54,
    "alter-partition": 56,
    "fetch-snapshot": 59,
    "broker-registration": 62,
    "broker-heartbeat": 63,
    "allocate-producer-ids": 67,
    "consumer-group-heartbeat": 68,
    "assign-replicas-to-dirs": 73,
}
# Those whose messages clusters count: the others flow all the time.
COUNTED: Final = {name: api for name, api in APIS.items() if api is not None and api not in FLOWING}
# How triggers and targets name a message: `vote answer`.
NAMED: Final = r"([a-z-]+) (request|answer)"

# In the other mode nobody sends them: a rule for them would meet no message.
ONLY_IN: Final[Mapping[str, Mode]] = {
    **dict.fromkeys(("leader-and-isr", "stop-replica", "update-metadata", "controlled-shutdown"), ZOOKEEPER),
    **dict.fromkeys(("vote", "begin-quorum-epoch", "end-quorum-epoch", "fetch-snapshot"), KRAFT),
    **dict.fromkeys(("broker-registration", "broker-heartbeat", "consumer-group-heartbeat"), KRAFT),
    "assign-replicas-to-dirs": KRAFT,
}


# Those that are sent only where clients do what they belong to.
OF_SOME_CLIENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(sorted(OF_GROUPS_IN_TRANSACTIONS), "transactions with groups"),
    **dict.fromkeys(sorted(OF_TRANSACTIONS), "transactions"),
    **dict.fromkeys(sorted(OF_GROUPS), "groups"),
    **dict.fromkeys(sorted(OF_PRODUCERS), "idempotent producers"),
}


def not_sent_in(mode: str, api: str) -> str:
    """Say that an API's messages are not sent in a mode; empty: they are."""
    only = ONLY_IN.get(api, mode)
    return "" if only == mode else f"nobody sends {api} in {mode} mode: --mode {only}"


def not_sent_by(sent: Collection[str] | None, api: str) -> str:
    """Say that no client sends such messages, for they belong to groups or transactions that nobody has; empty: somebody does, or it is not known.

    sent:  which of these the workloads' clients let be sent; None: not known.
    """
    if sent is None or api not in OF_SOME_CLIENTS or api in sent:
        return ""
    return f"nobody sends {api}: these workloads have no {OF_SOME_CLIENTS[api]}; take one that has, or wait for another message"


class Meant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages.

    api:        Kafka's API, `any` for all.
    direction:  requests or their answers.
    sent_by:    the node itself, or the others that call it.
    limit:      how many at most; 0: all.
    must_meet:  the fault goes on until a message met it, and had no effect if none does in time; else it ends when its time is over.
    """

    api: str = "fetch"
    direction: Literal["request", "response"] = "request"
    sent_by: Literal["node", "others"] = "node"
    limit: Annotated[int, msgspec.Meta(ge=0)] = 0
    must_meet: bool = True

    def __post_init__(self) -> None:
        """Refuse an API that nobody knows."""
        if self.api not in APIS:
            raise ValueError(f"api {self.api!r} is none of: {', '.join(APIS)}")


def rule(node: int, meant: Meant, fate: Fate, *, delay_ms: int = 0, overtaking: bool = False) -> FrameRule:
    """Return the rule for messages that the node (or for it, the others) sends."""
    return FrameRule(
        fate=fate,
        api=APIS[meant.api],
        direction=meant.direction,
        source=node if meant.sent_by == "node" else None,
        target=node if meant.sent_by == "others" else None,
        delay_ms=delay_ms,
        limit=meant.limit or None,
        overtaking=overtaking,
    )


def direction_of(word: str) -> Literal["request", "response"]:
    """Return what recordings call a `request` or an `answer`."""
    return "request" if word == "request" else "response"


def refused(meant: Meant, spec: ClusterSpec) -> str:
    """Say why there are no such messages in a cluster; empty: there are."""
    return not_sent_in(spec.mode, meant.api)


@asynccontextmanager
async def hindered(
    cluster: CanHinderMessages, node: int, wanted: FrameRule, *, must_meet: bool
) -> AsyncGenerator[Effect]:
    """Hold a rule in force for as long as the fault lasts, and until one message has met it where one must."""
    if node not in cluster.spec.node_ids:
        raise ClusterError(f"there is no node {node}")
    in_force = cluster.add_rule(wanted)
    effect = Effect(node, Proof(holds=True, facts={"rule": msgspec.to_builtins(wanted)}))
    yield effect
    met = Proof(holds=True, facts={})
    if must_meet:
        met = await came_true(
            lambda: in_force.hit_count > 0, timeout_ms=MEET_TIMEOUT_MS, what="a message met the rule", cluster=cluster
        )
    met.facts["messages"] = in_force.hit_count
    effect.add_proof("met", met)
    released = cluster.remove_rule(in_force)
    let_go = Proof(holds=in_force.held_count == 0, facts={"released": released})
    effect.heal = joined(let_go, "service", await all_back(cluster))
