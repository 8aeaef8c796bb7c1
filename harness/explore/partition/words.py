"""Steps and states of the world of one partition, for readers."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from replog.metadata import records as r
from replog.types import NO_NODE, LeaderRecoveryState, NodeId
from tribunal.harness.explore.partition import events as e
from tribunal.harness.explore.partition.broker import Proposed, Seen, Stored
from tribunal.harness.explore.partition.controller import Batch, Known


def log_words(stored: Stored) -> str:
    """Describe a log: value@epoch of each record."""
    return "[" + " ".join(f"{value}@{epoch}" for epoch, value in stored) + "]"


PLAIN: Final[Mapping[type[msgspec.Struct], str]] = {
    e.Lag: "leader {node} finds that members of its ISR lag",
    e.Retry: "leader {node} sends its proposal again",
    e.Take: "the late answer to its fetch reaches broker {node}",
    e.Beat: "a heartbeat of broker {node} reaches the controller",
    e.Expire: "the session of broker {node} ends: the controller fences it",
    e.Crash: "broker {node} is killed (kill -9)",
    e.Restart: "broker {node} starts again and registers",
}


def controller_words(known: Known) -> str:
    """Describe what the controller knows."""
    partition = known.partition
    fenced = [broker.node for broker in known.brokers if broker.fenced]
    leader = "no leader" if partition.leader == NO_NODE else f"leader {partition.leader}"
    recovering = ", RECOVERING" if partition.leader_recovery_state is LeaderRecoveryState.RECOVERING else ""
    return (
        f"{leader}, epoch {partition.leader_epoch}, ISR {list(partition.isr)}, ELR {list(partition.elr)}, "
        f"min ISR {known.min_isr}, fenced {fenced}{recovering}"
    )


def broker_words(node: NodeId, seen: Seen, waiting: int) -> str:
    """Describe a broker; `waiting` batches of metadata have not reached it."""
    log = log_words(seen.stored)
    if not seen.alive:
        return f"down, log {log}"
    role = f"leads, ISR {list(seen.isr)}" if seen.leads else f"follows {seen.source}" if seen.source else "idle"
    unread = f", {waiting} batch(es) of metadata not replayed" if waiting else ""
    pending = f", proposes ISR {[member for member, _ in seen.pending.isr]}" if seen.pending else ""
    return (
        f"{role}, epoch {seen.leader_epoch}, log {log}, high watermark {seen.high_watermark}, "
        f"min ISR {seen.min_isr}{pending}{unread}"
    )


def message_words(message: e.Message) -> str:
    """Describe a message under way."""
    if isinstance(message, Proposed):
        isr = [node for node, _ in message.isr]
        return f"leader {message.sender}'s proposal of ISR {isr} (leader epoch {message.leader_epoch})"
    return f"the controller's answer {message.answer.error.name} to leader {message.proposed.sender}"


def record_words(record: r.MetadataRecord) -> str:
    """Describe a record of the metadata log."""
    match record:
        case r.PartitionChangeRecord():
            said = []
            if record.leader != -2:
                said.append("no leader" if record.leader == NO_NODE else f"leader {record.leader}")
            if record.isr is not None:
                said.append(f"ISR {list(record.isr)}")
            if record.eligible_leader_replicas is not None:
                said.append(f"ELR {list(record.eligible_leader_replicas)}")
            return ", ".join(said) or "partition changed"
        case r.BrokerRegistrationChangeRecord():
            return f"broker {record.broker_id} {'fenced' if record.fenced == r.FENCE else 'unfenced'}"
        case r.RegisterBrokerRecord():
            return f"broker {record.broker_id} registered"
        case r.ConfigRecord():
            return f"{record.name} = {record.value}"
        case _:
            return type(record).__name__


def step_words(step: e.Step, messages: Sequence[e.Message], batches: Sequence[Batch]) -> str:
    """Describe a step; messages and batches of metadata by their numbers."""
    match step:
        case e.Replay():
            records = ", ".join(record_words(record) for _, record in batches[step.batch])
            return f"broker {step.node} replays metadata: {records}"
        case e.Deliver():
            return f"delivered: {message_words(messages[step.message])}"
        case e.Raise():
            return f"the operator raises min.insync.replicas to {step.value}"
        case e.Produce():
            return f"a producer's acks=all record {step.value} reaches broker {step.node}"
        case e.Ask():
            return f"broker {step.node} fetches" + ("" if step.at_once else "; the answer is under way")
        case e.Crash(loses_tail=True):
            return f"broker {step.node} loses power: what it had not synced is gone"
        case _:
            return PLAIN[type(step)].format(node=step.node)
