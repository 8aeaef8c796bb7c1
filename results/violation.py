"""An invariant that did not hold in a simulation, as data: which one, where, and the facts that show it.

Whoever finds it fills in facts; nobody reads them out of a sentence. `tribunal.results.words` makes the sentence, for people alone, so it may
be worded better at any time: the identity of a violation is its kind, the tag of its facts (`tribunal.results.signature`).
"""

from enum import StrEnum

import msgspec


class Invariant(StrEnum):
    """The invariants that a simulation watches (SPEC 7); Z of ZooKeeper mode.

    Liveness is progress after the last fault; assertion: a node never ends by an error of its own.
    """

    I1 = "I1"
    I2 = "I2"
    I3 = "I3"
    I4 = "I4"
    I7 = "I7"
    I8 = "I8"
    I9 = "I9"
    I10 = "I10"
    I11 = "I11"
    I12 = "I12"
    I13 = "I13"
    I14 = "I14"
    I17 = "I17"
    I18 = "I18"
    I20 = "I20"
    I21 = "I21"
    I22 = "I22"
    I23 = "I23"
    I24 = "I24"
    Z1 = "Z1"
    Z2 = "Z2"
    Z3 = "Z3"
    Z4 = "Z4"
    LIVENESS = "liveness"
    ASSERTION = "assertion"


class Role(StrEnum):
    """What a replica is whose log ends too early."""

    LEADER = "leader"
    IN_ISR = "isr"
    IN_ELR = "elr"


class Grows(StrEnum):
    """What never goes back."""

    BROKER_EPOCH = "broker epoch"
    LEADER_EPOCH = "leader epoch"
    PARTITION_EPOCH = "partition epoch"
    METADATA_HIGH_WATERMARK = "metadata high watermark"
    LAST_STABLE_OFFSET = "last stable offset"


class Expected(StrEnum):
    """What progress was asked for."""

    CORE_PROGRESS = "progress with a quorum alone"
    FULL_ISR = "every ISR full after everything was mended"
    SERVED_READERS = "every member of an ISR serving the readers of its rack"


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in a log, by what identifies it."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    producer_id: int = -1
    producer_epoch: int = -1
    first_sequence: int = -1
    is_control: bool = False


class CommittedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's committed state."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    recovering: bool = False


class TwoLeaders(msgspec.Struct, frozen=True, kw_only=True, tag="two_leaders"):
    """Two nodes lead in one epoch, of a partition or of the quorum; `according_to` is who says so, if it is a third one."""

    first: int
    second: int
    according_to: int | None = None


class Differs(msgspec.Struct, frozen=True, kw_only=True, tag="differs"):
    """A log holds another batch, or none, where this one is committed."""

    committed: Batch
    found: Batch | None


class TwoBatches(msgspec.Struct, frozen=True, kw_only=True, tag="two_batches"):
    """One offset of one epoch is another batch on another node."""

    other: int


class WentBack(msgspec.Struct, frozen=True, kw_only=True, tag="went_back"):
    """Something that only grows is smaller than it was; `since_epoch` is the leader epoch in which it was more."""

    what: Grows
    before: int
    now: int
    since_epoch: int | None = None


class BadState(msgspec.Struct, frozen=True, kw_only=True, tag="bad_state"):
    """A partition's committed state contradicts itself."""

    state: CommittedPartition


class EligibleBesideFullIsr(msgspec.Struct, frozen=True, kw_only=True, tag="elr_beside_full_isr"):
    """There is an ELR although the ISR has min ISR members."""

    min_isr: int
    state: CommittedPartition


class FencedJoined(msgspec.Struct, frozen=True, kw_only=True, tag="fenced_joined"):
    """A fenced broker enters the ISR."""

    before: CommittedPartition | None
    now: CommittedPartition


class RemovedBelowMinIsr(msgspec.Struct, frozen=True, kw_only=True, tag="removed_below_min_isr"):
    """A replica is taken away although fewer than min ISR of those that stay are in sync."""

    min_isr: int
    before: CommittedPartition
    now: CommittedPartition


class RecoveryForgotten(msgspec.Struct, frozen=True, kw_only=True, tag="recovery_forgotten"):
    """A partition is not RECOVERING any more, and not by the word of the leader that recovered."""

    before: CommittedPartition
    now: CommittedPartition


class UnfencedEarly(msgspec.Struct, frozen=True, kw_only=True, tag="unfenced_early"):
    """A broker is unfenced that has replayed the metadata only up to an offset before its own registration."""

    broker_epoch: int
    metadata_offset: int


class ExposedBeyondLog(msgspec.Struct, frozen=True, kw_only=True, tag="exposed_beyond_log"):
    """A leader shows a high watermark beyond the end of its own log."""

    high_watermark: int
    log_end_offset: int


class LogEndsEarly(msgspec.Struct, frozen=True, kw_only=True, tag="log_ends_early"):
    """A replica that has to hold what is committed has a log that ends before."""

    role: Role
    log_end_offset: int
    committed_end: int


class TakenWhileRecovering(msgspec.Struct, frozen=True, kw_only=True, tag="taken_while_recovering"):
    """A leader that recovers has taken a batch from a client."""

    batch: Batch


class TransactionLeftOpen(msgspec.Struct, frozen=True, kw_only=True, tag="transaction_left_open"):
    """A leader that was elected uncleanly has ended its recovery, and not a transaction that it had found open."""

    producer_id: int


class MovedBelowMinIsr(msgspec.Struct, frozen=True, kw_only=True, tag="moved_below_min_isr"):
    """A leader moves its high watermark, and has known no ISR of min ISR members since a metadata offset."""

    before: int
    high_watermark: int
    metadata_offset: int


class OutOfSequence(msgspec.Struct, frozen=True, kw_only=True, tag="out_of_sequence"):
    """A batch of an idempotent producer does not continue its last one."""

    producer_id: int
    producer_epoch: int
    sequence: int
    expected: int
    expected_epoch: int


class CleanShutdownFile(msgspec.Struct, frozen=True, kw_only=True, tag="clean_shutdown_file"):
    """A broker runs, and its log directory says that it was shut down cleanly."""


class ClosedUnsynced(msgspec.Struct, frozen=True, kw_only=True, tag="closed_unsynced"):
    """A broker has ended, and its log directory says cleanly; this file of a log in it is not all on the disk."""

    file: str


class StableBeyondOpen(msgspec.Struct, frozen=True, kw_only=True, tag="stable_beyond_open"):
    """A last stable offset is behind the first record of a transaction whose end is not committed."""

    last_stable_offset: int
    first_offset: int
    high_watermark: int


class GrantedBesideLeader(msgspec.Struct, frozen=True, kw_only=True, tag="granted_beside_leader"):
    """A voter that leads, or fetches from its leader, grants a pre-vote."""

    candidate: int
    leader: int


class GrantedToShorterLog(msgspec.Struct, frozen=True, kw_only=True, tag="granted_to_shorter_log"):
    """A voter grants a vote or a pre-vote to a candidate whose log ends before its own."""

    candidate: int
    candidate_last_epoch: int
    candidate_log_end_offset: int
    last_epoch: int
    log_end_offset: int
    pre_vote: bool


class VoteNotKept(msgspec.Struct, frozen=True, kw_only=True, tag="vote_not_kept"):
    """A voter grants a vote, and its quorum-state file does not say so.

    stored_epoch, stored_vote:  what the file says; None: nothing.
    """

    candidate: int
    stored_epoch: int | None
    stored_vote: int | None


class ProposedShort(msgspec.Struct, frozen=True, kw_only=True, tag="proposed_short"):
    """A leader proposes a broker for the ISR whose log ends before the leader epoch begins."""

    leader: int
    epoch_start_offset: int
    log_end_offset: int


class StaleRequestCarriedOut(msgspec.Struct, frozen=True, kw_only=True, tag="stale_request_carried_out"):
    """A broker carries out a control request that names the broker epoch of an earlier registration."""

    api: str
    broker_epoch: int
    registered_epoch: int


class StoppedUnasked(msgspec.Struct, frozen=True, kw_only=True, tag="stopped_unasked"):
    """A controller stops the replicas of a registration that did not ask to shut down."""

    controller: int
    broker_epoch: int


class HostedLogGone(msgspec.Struct, frozen=True, kw_only=True, tag="hosted_log_gone"):
    """The log of a replica that a broker hosts is gone from its disk."""


class NeverInformed(msgspec.Struct, frozen=True, kw_only=True, tag="never_told"):
    """A registration of a broker was never sent the partitions that it hosts."""

    broker_epoch: int


class NoProgress(msgspec.Struct, frozen=True, kw_only=True, tag="no_progress"):
    """What was asked for after the last fault did not come about in time; how the partitions stood then.

    first_ns, second_ns:  when real nodes were looked at, twice; None: a simulation, which looks once.
    log_ends:             of the partitions that stood still: where each replica's log ended, at both looks; None: it had no log.
    """

    expected: Expected
    timeout_ms: int
    states: dict[str, CommittedPartition] = {}
    first_ns: int | None = None
    second_ns: int | None = None
    log_ends: dict[str, tuple[dict[int, int | None], dict[int, int | None]]] = {}


class NodeFailed(msgspec.Struct, frozen=True, kw_only=True, tag="node_failed"):
    """A node ended by an error of its own: an assertion that did not hold, or an exception that nobody foresaw.

    exception:  its type's name; words: what it says.
    function:   the innermost function of the node's code, `module.qualified_name`: stays when lines move; line: in its file.
    """

    exception: str
    words: str
    function: str
    line: int


class DoesNotStart(msgspec.Struct, frozen=True, kw_only=True, tag="does_not_start"):
    """A node of a described system did not come to serve after faults; it was started twice, the second time with nothing else in effect.

    faults:     kinds of the faults after which it has to, the one that put it down first.
    exit_code:  how its process ended, negative: by this signal; None: it ran, and was silent for longer than within_ms.
    """

    faults: tuple[str, ...]
    within_ms: int
    first_ns: int
    second_ns: int
    exit_code: int | None = None


Facts = (
    TwoLeaders
    | Differs
    | TwoBatches
    | WentBack
    | BadState
    | EligibleBesideFullIsr
    | FencedJoined
    | RemovedBelowMinIsr
    | RecoveryForgotten
    | UnfencedEarly
    | ExposedBeyondLog
    | LogEndsEarly
    | TakenWhileRecovering
    | TransactionLeftOpen
    | MovedBelowMinIsr
    | OutOfSequence
    | CleanShutdownFile
    | ClosedUnsynced
    | StableBeyondOpen
    | GrantedBesideLeader
    | GrantedToShorterLog
    | VoteNotKept
    | ProposedShort
    | StaleRequestCarriedOut
    | StoppedUnasked
    | HostedLogGone
    | NeverInformed
    | NoProgress
    | NodeFailed
    | DoesNotStart
)


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An invariant does not hold; what does not apply is None.

    log_offset:  the first one that is concerned: where the log ends too early, where a batch begins.
    node:        whose log, claim or registration it is.
    epoch:       the leader epoch, or without a partition the quorum's.
    """

    invariant: Invariant
    facts: Facts
    topic: str | None = None
    partition: int | None = None
    log_offset: int | None = None
    node: int | None = None
    epoch: int | None = None

    @property
    def kind(self) -> str:
        """What is wrong, in a word that stays: the facts' tag, and what distinguishes cases of one kind."""
        match self.facts:
            case LogEndsEarly(role=role):
                return f"log_of_{role.value}_ends_early"
            case WentBack(what=what):
                return f"{what.name.lower()}_went_back"
            case NoProgress(expected=expected):
                return f"no_{expected.name.lower()}"
            case NodeFailed(exception=exception, function=function):
                return f"{exception}_in_{function}"
            case _:
                return str(self.facts.__struct_config__.tag)
