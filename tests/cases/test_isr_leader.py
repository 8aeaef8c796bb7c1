"""Family isr_leader: `LeaderState` between followers and the controller (SPEC 3.2.4, 3.6).

Node n has broker epoch 100 + n unless the case says otherwise; members of the ISR stand at the high watermark.
"""

from typing import Any

import pytest

from replog.broker.isr import (
    AlterPartitionAnswer,
    BrokerView,
    Effect,
    LeaderState,
    PartitionState,
    Proposal,
    Propose,
    Refuse,
)
from replog.errors import Error
from replog.types import NO_BROKER_EPOCH, LeaderRecoveryState
from tests.cases.cases import load, only
from tests.identities import an_identity

NOW_MS = 1_000_000
GIVEN = {
    "leader",
    "leader_epoch",
    "partition_epoch",
    "replicas",
    "isr",
    "hwm",
    "leo",
    "epoch_start",
    "inflight",
    "lag_max_ms",
    "brokers",
    "recovery",
    "never_fetched",
    "min_isr",
}
INFLIGHT = {"kind", "add", "remove", "sent_isr", "maximal_isr", "committed_isr"}
BROKER = {"epoch", "fenced", "shutting_down"}
THEN = {
    "alter_partition",
    "answer",
    "fetch_state_updated",
    "isr",
    "maximal_isr",
    "inflight",
    "retry",
    "retry_after_ms",
    "partition_epoch",
    "last_caught_up_ms",
    "hwm",
}
EVENTS = {
    "follower_fetch": {"replica", "fetch_offset", "broker_epoch", "with_leader_epoch"},
    "isr_check": {"replica", "last_caught_up_ms_ago", "replica_leo"},
    "fetch_history": {"replica", "fetches", "now_ms"},
    "alter_partition_response": {"error", "level", "isr", "leader_epoch", "partition_epoch", "recovery", "leader"},
    "metadata": {"leader", "leader_epoch", "partition_epoch", "isr", "recovery", "replicas"},
}


@pytest.mark.parametrize("case", load("isr_leader"))
def test_isr_leader(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], {"event"} | EVENTS[case["when"]["event"]], "when")
    then = only(case["then"], THEN, "then")
    history = when["event"] == "fetch_history"
    leader = leader_of(given, started_ms=0 if history else NOW_MS)
    pending = leader.pending
    before = {replica: (f.log_end_offset, f.broker_epoch) for replica, f in leader.followers.items()}

    effects = HAPPENS[when["event"]](leader, when)

    after = {replica: (f.log_end_offset, f.broker_epoch) for replica, f in leader.followers.items()}
    proposed = [effect.proposal for effect in effects if isinstance(effect, Propose)]
    retried = [effect for effect in effects if isinstance(effect, Propose) and effect.proposal is pending]
    fresh = [proposal for proposal in proposed if proposal is not pending]
    found = {
        "alter_partition": sorted(list(member) for member in fresh[0].isr) if fresh else None,
        "answer": next((effect.error.name for effect in effects if isinstance(effect, Refuse)), "NONE"),
        "fetch_state_updated": before != after,
        "isr": sorted(leader.isr),
        "maximal_isr": sorted(leader.maximal_isr),
        "inflight": "kept" if leader.pending is pending and pending is not None else leader.pending,
        "retry": bool(retried),
        "retry_after_ms": retried[0].after_ms if retried else None,
        "partition_epoch": leader.state.partition_epoch,
        "last_caught_up_ms": leader.followers[when["replica"]].last_caught_up_ms if history else None,
        "hwm": leader.high_watermark,
    }
    assert {key: found[key] for key in then} == {
        key: sorted(v) if isinstance(v, list) else v for key, v in then.items()
    }


def leader_of(given: dict[str, Any], *, started_ms: int) -> LeaderState:
    brokers = {node: only(broker, BROKER, "broker") for node, broker in given["brokers"].items()}
    leader = LeaderState(
        state=PartitionState(
            leader=given["leader"],
            leader_epoch=given["leader_epoch"],
            partition_epoch=given["partition_epoch"],
            replicas=tuple(given["replicas"]),
            isr=tuple(given["isr"]),
            recovery=LeaderRecoveryState(given["recovery"]),
        ),
        identity=an_identity(100 + given["leader"], node_id=given["leader"]),
        brokers={
            node: BrokerView(
                epoch=broker["epoch"],
                fenced=broker.get("fenced", False),
                shutting_down=broker.get("shutting_down", False),
            )
            for node, broker in brokers.items()
        },
        min_insync_replicas=given.get("min_isr", 1),
        log_end_offset=given["leo"],
        high_watermark=given["hwm"],
        epoch_start_offset=given["epoch_start"],
        lag_ms_max=given["lag_max_ms"],
        now_ms=started_ms,
    )
    for member in given["isr"]:
        if member != given["leader"] and member not in given.get("never_fetched", []):
            follower = leader.followers[member]
            follower.log_end_offset = given["hwm"]
            follower.broker_epoch = brokers[member]["epoch"]
    inflight = given["inflight"]
    if inflight is not None:
        only(inflight, INFLIGHT, "inflight")
        assert list(leader.isr) == inflight["committed_isr"]
        leader.maximal_isr = tuple(inflight["maximal_isr"])
        leader.pending = Proposal(
            leader_epoch=given["leader_epoch"],
            partition_epoch=given["partition_epoch"],
            isr=tuple((node, epoch) for node, epoch in inflight["sent_isr"]),
            recovery=leader.state.recovery,
        )
    return leader


def follower_fetch(leader: LeaderState, when: dict[str, Any]) -> list[Effect]:
    stranger = leader.replica_error(when["replica"], with_leader_epoch=when.get("with_leader_epoch", True))
    if stranger is not Error.NONE:
        return [Refuse(stranger)]
    return list(
        leader.on_fetch(
            replica=when["replica"],
            fetch_offset=when["fetch_offset"],
            log_start_offset=0,
            broker_epoch=when.get("broker_epoch", NO_BROKER_EPOCH),
            now_ms=NOW_MS,
        )
    )


def isr_check(leader: LeaderState, when: dict[str, Any]) -> list[Effect]:
    follower = leader.followers[when["replica"]]
    follower.log_end_offset = when["replica_leo"]
    follower.last_caught_up_ms = NOW_MS - when["last_caught_up_ms_ago"]
    return list(leader.on_tick(NOW_MS))


def fetch_history(leader: LeaderState, when: dict[str, Any]) -> list[Effect]:
    epoch = leader.brokers[when["replica"]].epoch
    for fetch in when["fetches"]:
        leader.log_end_offset = fetch["leo"]
        leader.on_fetch(
            replica=when["replica"],
            fetch_offset=fetch["offset"],
            log_start_offset=0,
            broker_epoch=epoch,
            now_ms=fetch["at_ms"],
        )
    return list(leader.on_tick(when["now_ms"]))


def alter_partition_response(leader: LeaderState, when: dict[str, Any]) -> list[Effect]:
    assert leader.pending is not None
    answer = AlterPartitionAnswer(
        error=Error[when["error"]],
        top_level=when.get("level") == "top",
        leader=when.get("leader", leader.node_id),
        leader_epoch=when.get("leader_epoch", leader.state.leader_epoch),
        partition_epoch=when.get("partition_epoch", leader.state.partition_epoch + 1),
        isr=tuple(when.get("isr", leader.isr)),
        recovery=LeaderRecoveryState(when.get("recovery", 0)),
    )
    return list(leader.on_alter_partition_answer(leader.pending, answer, NOW_MS))


def metadata(leader: LeaderState, when: dict[str, Any]) -> list[Effect]:
    state = PartitionState(
        leader=when["leader"],
        leader_epoch=when["leader_epoch"],
        partition_epoch=when["partition_epoch"],
        replicas=tuple(when.get("replicas", leader.state.replicas)),
        isr=tuple(when["isr"]),
        recovery=LeaderRecoveryState(when.get("recovery", leader.state.recovery)),
    )
    return list(leader.on_metadata(state, NOW_MS))


HAPPENS = {
    "follower_fetch": follower_fetch,
    "isr_check": isr_check,
    "fetch_history": fetch_history,
    "alter_partition_response": alter_partition_response,
    "metadata": metadata,
}
