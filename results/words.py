"""The words of facts: where violated invariants and circles of transactions become English, and nowhere else.

Nothing reads these sentences again, so they may be worded better at any time.
"""

from typing import assert_never

from tribunal.results.verdict import EdgeKind, TransactionEdge
from tribunal.results.violation import (
    BadState,
    Batch,
    CleanShutdownFile,
    ClosedUnsynced,
    CommittedPartition,
    Differs,
    DoesNotStart,
    EligibleBesideFullIsr,
    ExposedBeyondLog,
    FencedJoined,
    GrantedBesideLeader,
    GrantedToShorterLog,
    HostedLogGone,
    LogEndsEarly,
    MovedBelowMinIsr,
    NeverInformed,
    NodeFailed,
    NoProgress,
    OutOfSequence,
    ProposedShort,
    RecoveryForgotten,
    RemovedBelowMinIsr,
    Role,
    StableBeyondOpen,
    StaleRequestCarriedOut,
    StoppedUnasked,
    TakenWhileRecovering,
    TransactionLeftOpen,
    TwoBatches,
    TwoLeaders,
    UnfencedEarly,
    Violation,
    VoteNotKept,
    WentBack,
)

ROLES = {Role.LEADER: "leads", Role.IN_ISR: "is in the ISR", Role.IN_ELR: "is in the ELR"}


EDGES = {
    EdgeKind.WW: "T{source} wrote a version that T{target} replaced",
    EdgeKind.WR: "T{source} wrote a version that T{target} read",
    EdgeKind.RW: "T{source} read a version that T{target} replaced",
    EdgeKind.PROCESS: "T{source} was issued before T{target} by the same process",
    EdgeKind.REALTIME: "T{source} completed before T{target} was invoked",
}


def of_edge(edge: TransactionEdge) -> str:
    """Say why one transaction has to come before another."""
    return EDGES[edge.kind].format(source=edge.source, target=edge.target)


def of_violation(violation: Violation) -> str:
    """Say what is wrong, the place first."""
    place = "" if violation.topic is None else f"{violation.topic}-{violation.partition}: "
    return place + _sentence(violation)


def _sentence(violation: Violation) -> str:  # noqa: C901, PLR0912 - one case a kind of fact, each a line
    node, epoch, offset = violation.node, violation.epoch, violation.log_offset
    match violation.facts:
        case TwoLeaders(first=first, second=second, according_to=other):
            what = "quorum epoch" if violation.topic is None else "leader epoch"
            return f"{what} {epoch} is led by {first} and by {second}" + (
                f", says {other}" if other is not None else ""
            )
        case Differs(committed=committed, found=found):
            return f"committed is {_batch(committed)}; {node} has {'nothing there' if found is None else _batch(found)}"
        case TwoBatches(other=other):
            return f"epoch {epoch}, offset {offset} is one batch on {other} and another on {node}"
        case WentBack() as facts:
            return _went_back(facts, violation)
        case BadState(state=state):
            return _state(state)
        case EligibleBesideFullIsr(min_isr=min_isr, state=state):
            return f"an ELR beside an ISR of min ISR {min_isr}: {_state(state)}"
        case FencedJoined(before=before, now=now):
            return f"{node} enters the ISR, and is fenced: {_state(before)} to {_state(now)}"
        case RemovedBelowMinIsr(min_isr=min_isr, before=before, now=now):
            return f"a replica is taken away below min ISR {min_isr}: {_state(before)} to {_state(now)}"
        case RecoveryForgotten(before=before, now=now):
            return f"the recovery ends without its leader: {_state(before)} to {_state(now)}"
        case UnfencedEarly(broker_epoch=broker_epoch, metadata_offset=known):
            return f"broker {node} of epoch {broker_epoch} is unfenced, and has replayed the metadata up to {known}"
        case ExposedBeyondLog(high_watermark=high_watermark, log_end_offset=end):
            return f"{node} exposes {high_watermark}, its log ends at {end}"
        case LogEndsEarly(role=role, log_end_offset=end, committed_end=committed_end):
            return (
                f"{node} {ROLES[role]} in leader epoch {epoch}, and its log ends at {end}; committed is {committed_end}"
            )
        case TakenWhileRecovering(batch=batch):
            return f"{node} recovers in epoch {epoch} and has taken {_batch(batch)}"
        case TransactionLeftOpen(producer_id=producer_id):
            return f"{node} has recovered in epoch {epoch}, and the transaction of producer {producer_id} that begins at {offset} is open still"
        case MovedBelowMinIsr(before=before, high_watermark=now, metadata_offset=known):
            return (
                f"{node} moves the high watermark of epoch {epoch} from {before} to {now}, and has known no ISR of min "
                f"ISR members since metadata offset {known}"
            )
        case OutOfSequence() as facts:
            return (
                f"on {node} producer {facts.producer_id} epoch {facts.producer_epoch} has sequence {facts.sequence} at "
                f"{offset}, expected {facts.expected} of epoch {facts.expected_epoch}"
            )
        case CleanShutdownFile():
            return f"broker {node} runs, and its log directory has a clean-shutdown file"
        case ClosedUnsynced(file=file):
            return f"broker {node} has ended, its clean-shutdown file says in order, and {file} is not all on the disk"
        case StableBeyondOpen(last_stable_offset=stable, first_offset=first, high_watermark=committed):
            return (
                f"{node} shows readers of committed transactions {stable} in epoch {epoch}; at {first} one begins whose end is not among the records below "
                f"the high watermark {committed}"
            )
        case GrantedBesideLeader(candidate=candidate, leader=leader):
            return f"{node} grants {candidate} a pre-vote in epoch {epoch}, and {_of_leader(node, leader)} at the same time"
        case GrantedToShorterLog() as facts:
            return (
                f"{node} grants {facts.candidate} a {'pre-vote' if facts.pre_vote else 'vote'} in epoch {epoch}; the candidate's log ends at "
                f"{facts.candidate_log_end_offset} of epoch {facts.candidate_last_epoch}, its own at {facts.log_end_offset} of epoch {facts.last_epoch}"
            )
        case VoteNotKept(candidate=candidate, stored_epoch=stored_epoch, stored_vote=stored_vote):
            said = "is not there" if stored_epoch is None else f"says epoch {stored_epoch}, vote {stored_vote}"
            return f"{node} grants {candidate} its vote in epoch {epoch}, and its quorum-state file {said}"
        case ProposedShort(leader=leader, epoch_start_offset=start, log_end_offset=end):
            return f"{leader} proposes {node} for the ISR in epoch {epoch}, which begins at {start}; the log of {node} ends at {end}"
        case StaleRequestCarriedOut(api=api, broker_epoch=stale, registered_epoch=registered):
            return f"broker {node} of epoch {registered} carries out a {api} of broker epoch {stale}"
        case StoppedUnasked(controller=controller, broker_epoch=broker_epoch):
            return f"controller {controller} stops the replicas of broker {node}, which did not ask to leave with broker epoch {broker_epoch}"
        case HostedLogGone():
            return f"{node} hosts it, and its log with its checkpoints is gone"
        case NeverInformed(broker_epoch=broker_epoch):
            return (
                f"broker {node} runs with broker epoch {broker_epoch} and was never sent the partitions that it hosts"
            )
        case NoProgress() as facts:
            return _no_progress(facts)
        case NodeFailed(exception=exception, words=words, function=function, line=line):
            return f"{node} ended by an error of its own: {exception}({words}) in {function}, line {line}"
        case DoesNotStart() as facts:
            return _does_not_start(node, facts)
        case other_facts:
            assert_never(other_facts)


def _of_leader(node: int | None, leader: int) -> str:
    return "leads" if node == leader else f"fetches from {leader}"


def _does_not_start(node: int | None, facts: DoesNotStart) -> str:
    how = f"is silent for longer than {facts.within_ms} ms"
    if facts.exit_code is not None:
        how = f"ends with {f'signal {-facts.exit_code}' if facts.exit_code < 0 else f'exit code {facts.exit_code}'}"
    times = f"at {facts.first_ns / 1e9:.1f} s, and again at {facts.second_ns / 1e9:.1f} s with nothing else in effect"
    return f"node {node} does not start again after {', '.join(facts.faults)}: started {times}, it {how}"


def _no_progress(facts: NoProgress) -> str:
    listed = "".join(f"\n{name}: {_state(state)}{_ends(facts, name)}" for name, state in facts.states.items())
    still = ""
    if facts.first_ns is not None and facts.second_ns is not None:
        still = f", and nothing moved from {facts.first_ns / 1e9:.1f} s to {facts.second_ns / 1e9:.1f} s"
    return f"no {facts.expected.value} within {facts.timeout_ms} ms{still}{listed}"


def _ends(facts: NoProgress, name: str) -> str:
    if name not in facts.log_ends:
        return ""
    first, second = facts.log_ends[name]
    return "; logs end at " + ", ".join(
        f"{_end(first.get(node))} and {_end(second.get(node))} on {node}" for node in sorted(first)
    )


def _end(log_end_offset: int | None) -> str:
    return "no log" if log_end_offset is None else str(log_end_offset)


def _went_back(facts: WentBack, violation: Violation) -> str:
    of_whom = "" if violation.node is None else f" of {violation.node}"
    since = "" if facts.since_epoch is None else f" in leader epoch {facts.since_epoch}"
    until = "" if violation.epoch is None or facts.since_epoch is None else f" in {violation.epoch}"
    return f"{facts.what.value}{of_whom} went back from {facts.before}{since} to {facts.now}{until}"


def _batch(batch: Batch) -> str:
    producer = f", producer {batch.producer_id}" if batch.producer_id >= 0 else ""
    control = ", control" if batch.is_control else ""
    return f"{batch.base_offset} to {batch.last_offset} of epoch {batch.epoch} (CRC {batch.crc:08x}{producer}{control})"


def _state(state: CommittedPartition | None) -> str:
    if state is None:
        return "nothing"
    elr = f", ELR {list(state.elr)}" if state.elr else ""
    recovering = ", recovering" if state.recovering else ""
    return (
        f"leader {state.leader} epoch {state.leader_epoch}, partition epoch {state.partition_epoch}, "
        f"ISR {list(state.isr)}{elr} of {list(state.replicas)}{recovering}"
    )
