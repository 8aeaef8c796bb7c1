"""The six roles of a member and what each of them keeps in mind (SPEC 1.2).

Values with deadlines, no behaviour beyond their own bookkeeping: transitions are in `quorum_state.py`. A role object exists
exactly as long as the role; so an answer that belongs to an earlier round finds nobody to count it.
"""

import msgspec

from replog.quorum.messages import FetchRequest, OffsetAndEpoch, VoterChangeRequest
from replog.quorum.voters import ReplicaKey, VoterSet, high_watermark
from replog.types import NO_NODE, NO_OFFSET, NodeId, QuorumEpoch

MAX_OBSERVERS = 1000  # how many non-voters a leader remembers for DescribeQuorum


class Unattached:
    """Knows its epoch, follows nobody; may know a leader it cannot reach, may have voted."""

    def __init__(self, *, leader_id: NodeId, election_deadline_ms: int) -> None:
        self.leader_id = leader_id
        self.election_deadline_ms = election_deadline_ms


class Follower:
    """Fetches from the leader of its epoch."""

    def __init__(self, *, leader_id: NodeId, fetch_deadline_ms: int) -> None:
        self.leader_id = leader_id
        self.fetch_deadline_ms = fetch_deadline_ms
        self.has_fetched = (
            False  # from this leader, within the fetch timeout: then the leader is not in doubt (KIP-996)
        )
        self.asks_anyone = False  # an observer whose leader fell silent
        self.download: Download | None = None


class Download:
    """A snapshot on its way to us."""

    def __init__(self, snapshot: OffsetAndEpoch) -> None:
        self.snapshot = snapshot
        self.position = 0


class Ballot:
    """The answers of one round, pre-vote or vote: each voter counts once, the asker for itself if it is one."""

    def __init__(self, voters: VoterSet, own_id: NodeId, *, counts_own: bool = True) -> None:
        self._voters = voters
        self.granted: dict[NodeId, None] = {own_id: None} if counts_own else {}
        self.refused: dict[NodeId, None] = {}
        self._waived = False

    def count(self, voter_id: NodeId, *, granted: bool) -> None:
        """Take a voter's first answer; later ones change nothing."""
        if voter_id in self._voters.ids and voter_id not in self.granted and voter_id not in self.refused:
            (self.granted if granted else self.refused)[voter_id] = None

    @property
    def unanswered(self) -> list[NodeId]:
        """Voters that have not answered."""
        return [voter for voter in self._voters.ids if voter not in self.granted and voter not in self.refused]

    def waive(self) -> None:
        """Pass without a majority: a voter cannot be asked (pre-votes only, SPEC 1.7)."""
        self._waived = True

    @property
    def is_won(self) -> bool:
        """A majority said yes."""
        return self._waived or len(self.granted) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        """A majority cannot say yes any more."""
        return len(self.granted) + len(self.unanswered) < self._voters.majority


class Prospective:
    """Asks whether it would be elected, in its old epoch (KIP-996, "Pre-Vote")."""

    def __init__(self, *, leader_id: NodeId, election_deadline_ms: int, ballot: Ballot) -> None:
        self.leader_id = leader_id
        self.election_deadline_ms = election_deadline_ms
        self.ballot = ballot


class Candidate:
    """Asks for votes in a new epoch, having voted for itself."""

    leader_id = NO_NODE

    def __init__(self, *, election_deadline_ms: int, ballot: Ballot) -> None:
        self.election_deadline_ms = election_deadline_ms
        self.ballot = ballot


class Progress(msgspec.Struct):
    """What a leader knows of one replica; times are of the leader's clock, -1 for never."""

    replica: ReplicaKey
    end_offset: int = NO_OFFSET
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    # For "caught up": what the log's end was at the replica's previous fetch, and when that was.
    end_offset_at_last_fetch: int = NO_OFFSET
    needs_begin: bool = True

    def fetched(self, fetch_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Take a valid fetch in."""
        if fetch_offset >= log_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.end_offset_at_last_fetch != NO_OFFSET and fetch_offset >= self.end_offset_at_last_fetch:
            self.last_caught_up_ms = self.last_fetch_ms
        self.end_offset = fetch_offset
        self.end_offset_at_last_fetch = log_end_offset
        self.last_fetch_ms = now_ms
        self.needs_begin = False


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A fetch that waits for something to send."""

    token: int
    request: FetchRequest
    deadline_ms: int


class PendingChange(msgspec.Struct):
    """A change of the voter set that somebody waits for; the offset of its record once it is written."""

    token: int
    request: VoterChangeRequest
    deadline_ms: int
    offset: int | None = None


class Leader:
    """Leads its epoch: replicates, counts what voters hold, and steps down when they fall silent (SPEC 1.8)."""

    def __init__(
        self,
        *,
        own_id: NodeId,
        epoch: QuorumEpoch,
        voters: VoterSet,
        epoch_start_offset: int,
        check_quorum_deadline_ms: int,
        begin_deadline_ms: int,
    ) -> None:
        self.leader_id = own_id
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark: int | None = None  # unknown until a record of this epoch is committed
        self.progress = {member.node_id: Progress(member) for member in voters.members}
        self.observers: dict[ReplicaKey, Progress] = {}
        self.fetched_voters: dict[NodeId, None] = {}  # since check quorum was last satisfied
        self.check_quorum_deadline_ms = check_quorum_deadline_ms
        self.begin_deadline_ms = begin_deadline_ms
        self.parked: dict[int, Parked] = {}
        self.voter_change: PendingChange | None = None

    def remember_observer(self, replica: ReplicaKey) -> Progress:
        """Return the entry of a replica that is no voter; the longest silent ones are forgotten."""
        progress = self.observers.pop(replica, None) or Progress(replica)
        self.observers[replica] = progress
        while len(self.observers) > MAX_OBSERVERS:
            del self.observers[next(iter(self.observers))]
        return progress

    def majority_end_offset(self) -> int | None:
        """Return the high watermark that follows from what the voters hold."""
        ends = [progress.end_offset for progress in self.progress.values()]
        return high_watermark(ends, self.epoch_start_offset, self.high_watermark)

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters, most caught-up first."""
        others = [progress for voter, progress in self.progress.items() if voter != self.leader_id]
        return tuple(one.replica for one in sorted(others, key=lambda one: (-one.end_offset, one.replica)))


class ResignedLeader:
    """Led this epoch and must never do so again; says goodbye and waits."""

    def __init__(
        self,
        *,
        own_id: NodeId,
        election_deadline_ms: int,
        successors: tuple[ReplicaKey, ...],
        unacknowledged: list[NodeId],
    ) -> None:
        self.leader_id = own_id
        self.election_deadline_ms = election_deadline_ms
        self.successors = successors
        self.unacknowledged = dict.fromkeys(unacknowledged)


Role = Unattached | Follower | Prospective | Candidate | Leader | ResignedLeader
