"""Replicating the metadata log: followers fetch, the leader counts what they hold (SPEC 1.8, 1.10, 1.11).

A fetch at offset X says "my log agrees with yours up to X, durably": so a voter makes its log durable before it asks
for more, and the leader counts itself only as far as its own log is. What a majority holds is committed.
"""

from replog.errors import Error
from replog.quorum.election import Election, top_error
from replog.quorum.events import (
    Answered,
    AppendFetched,
    AppendRecords,
    Committed,
    InstallSnapshot,
    Leading,
    MoveLogStart,
    StoreSnapshotChunk,
    SyncLog,
    TruncateLog,
)
from replog.quorum.messages import (
    UNKNOWN_HIGH_WATERMARK,
    BatchSpan,
    FetchAnswer,
    FetchRequest,
    FetchSnapshotAnswer,
    FetchSnapshotRequest,
    OffsetAndEpoch,
)
from replog.quorum.quorum_state import QuorumState, SafetyViolation
from replog.quorum.roles import Download, Follower, Leader, Parked, Progress, Unattached
from replog.quorum.voters import ReplicaKey
from replog.types import ZERO_UUID, NodeId


class Replication:
    """One member's part in keeping the logs the same."""

    def __init__(self, state: QuorumState, election: Election) -> None:
        self._state = state
        self._election = election
        self._last_sync_id = 0
        self._sync_id: int | None = None  # on its way
        self._sync_end_offset = 0
        self._next_bootstrap = 0

    # --- the leader's side

    def on_append(self, count: int, records: bytes | memoryview | tuple[bytes, ...]) -> int:
        """Append a batch of the leader's own; return its base offset."""
        state = self._state
        assert isinstance(state.role, Leader), "only a leader appends"
        base_offset = state.log.end_offset
        state.log.append(BatchSpan(base_offset, base_offset + count, state.epoch))
        state.outbox.append(AppendRecords(base_offset=base_offset, epoch=state.epoch, records=records))
        return base_offset

    def on_fetch_request(self, token: int, request: FetchRequest, now_ms: int) -> None:
        """Answer a fetch, or keep it until there is something to send (SPEC 1.10.1 to 1.10.4)."""
        state = self._state
        refused = self._refused_fetch(request)
        if refused is not None:
            self._answer(token, refused)
            return
        role = state.role
        assert isinstance(role, Leader)
        position = state.log.position_of(request.fetch_offset, request.last_fetched_epoch)
        if not position.is_valid:
            # Neither what it holds nor that it is alive follows from a log that is not ours.
            self._answer(token, self._fetch_answer(role, diverging=position.diverging, snapshot=position.snapshot))
            return
        self._note_fetch(role, request, now_ms)
        if self._can_answer_now(role, request) or request.max_wait_ms == 0:
            self._answer(token, self._with_records(role, request))
        else:
            role.parked[token] = Parked(token=token, request=request, deadline_ms=now_ms + request.max_wait_ms)

    def _refused_fetch(self, request: FetchRequest) -> FetchAnswer | None:
        state = self._state
        refused = top_error(state.cluster_id, request)
        if refused is not Error.NONE:
            return FetchAnswer(top_error=refused)
        numbers = (request.max_wait_ms, request.fetch_offset, request.last_fetched_epoch)
        if min(numbers) < 0 or request.last_fetched_epoch > request.epoch:
            return state.refused_fetch(Error.INVALID_REQUEST)
        error = self._leader_only_error(request.epoch)
        return None if error is Error.NONE else state.refused_fetch(error)

    def _leader_only_error(self, epoch: int) -> Error:
        state = self._state
        if epoch < state.epoch:
            return Error.FENCED_LEADER_EPOCH
        if epoch > state.epoch:
            # Only votes, begins and ends unseat a leader (SPEC 1.8.8).
            return Error.UNKNOWN_LEADER_EPOCH
        if not isinstance(state.role, Leader):
            return Error.NOT_LEADER_OR_FOLLOWER
        if state.shutting_down:
            return Error.BROKER_NOT_AVAILABLE
        return Error.NONE

    def _note_fetch(self, role: Leader, request: FetchRequest, now_ms: int) -> None:
        """Take in what a valid fetch proves (SPEC 1.10.3)."""
        state = self._state
        progress = self._progress_of(role, request.replica)
        progress.fetched(request.fetch_offset, state.log.end_offset, now_ms)
        if progress.replica.node_id in role.progress and state.voters.contains(request.replica):
            self._satisfy_check_quorum(role, request.replica, now_ms)
            self._learn_directory(role, request.replica)
            self.update_leader_high_watermark()

    def _progress_of(self, role: Leader, replica: ReplicaKey) -> Progress:
        is_voter = self._state.voters.contains(replica) and replica.node_id in role.progress
        if is_voter and replica.node_id != self._state.me.node_id:
            return role.progress[replica.node_id]
        return role.remember_observer(replica)

    def _satisfy_check_quorum(self, role: Leader, replica: ReplicaKey, now_ms: int) -> None:
        """Restart the timer when a majority has fetched since it was last restarted (SPEC 1.8.5)."""
        state = self._state
        if replica.node_id == state.me.node_id:
            return
        role.fetched_voters[replica.node_id] = None
        if len(role.fetched_voters) + state.is_voter >= state.voters.majority:
            role.fetched_voters.clear()
            role.check_quorum_deadline_ms = now_ms + state.settings.check_quorum_timeout_ms

    def _learn_directory(self, role: Leader, replica: ReplicaKey) -> None:
        """Write a voter's directory into the voter set when it is first known.

        The configured set knows ids only. Once a set with directories is in the log, a voter that comes back with
        another one is not the voter of the set: it does not count, and its vote is not asked for (KIP-853; KIP-996,
        "Disk Loss Scenario").
        """
        state = self._state
        member = state.voters.find(replica.node_id)
        if member is None or member.directory_id != ZERO_UUID or replica.directory_id == ZERO_UUID:
            return
        voters = state.voters.with_directory(replica).with_directory(state.me).members
        for key in voters:
            role.progress[key.node_id].replica = key
        state.append_voters(voters)

    def update_leader_high_watermark(self) -> None:
        """Move the high watermark to what a majority holds; never back (SPEC 1.8.2)."""
        state = self._state
        role = state.role
        assert isinstance(role, Leader)
        if role.leader_id in role.progress:  # else it has removed itself: the others decide
            role.progress[role.leader_id].end_offset = state.log.synced_offset
        moved = role.majority_end_offset()
        if moved is None or moved == role.high_watermark:
            return
        is_first = role.high_watermark is None
        role.high_watermark = moved
        self._commit(moved)
        if is_first:
            state.outbox.append(Leading(epoch=role.epoch))

    def _commit(self, high_watermark: int) -> None:
        state = self._state
        if high_watermark > state.high_watermark:
            state.high_watermark = high_watermark
            state.outbox.append(Committed(high_watermark=high_watermark))

    def _can_answer_now(self, role: Leader, request: FetchRequest) -> bool:
        if request.fetch_offset < self._state.log.end_offset:
            return True
        known = UNKNOWN_HIGH_WATERMARK if role.high_watermark is None else role.high_watermark
        return request.high_watermark < known

    def _fetch_answer(
        self,
        role: Leader,
        *,
        diverging: OffsetAndEpoch | None = None,
        snapshot: OffsetAndEpoch | None = None,
        read_offset: int = -1,
    ) -> FetchAnswer:
        state = self._state
        return FetchAnswer(
            epoch=state.epoch,
            leader_id=role.leader_id,
            endpoint=state.announced_endpoint(role.leader_id),
            high_watermark=UNKNOWN_HIGH_WATERMARK if role.high_watermark is None else role.high_watermark,
            log_start_offset=state.log.start_offset,
            diverging=diverging,
            snapshot=snapshot,
            read_offset=read_offset,
            read_end=-1 if read_offset < 0 else state.log.end_offset,
        )

    def _with_records(self, role: Leader, request: FetchRequest) -> FetchAnswer:
        has_records = request.fetch_offset < self._state.log.end_offset
        return self._fetch_answer(role, read_offset=request.fetch_offset if has_records else -1)

    def _answer(self, token: int, answer: FetchAnswer | FetchSnapshotAnswer) -> None:
        self._state.outbox.append(Answered(token=token, answer=answer))

    def answer_parked(self, now_ms: int) -> None:
        """Answer the waiting fetches that there is something for, and those that waited long enough."""
        role = self._state.role
        if not isinstance(role, Leader):
            return
        due = [
            parked
            for parked in role.parked.values()
            if parked.deadline_ms <= now_ms or self._can_answer_now(role, parked.request)
        ]
        for parked in due:
            del role.parked[parked.token]
            self._answer(parked.token, self._with_records(role, parked.request))

    def on_fetch_snapshot_request(self, token: int, request: FetchSnapshotRequest, now_ms: int) -> None:
        """Answer with a piece of a snapshot (SPEC 1.11.2)."""
        state = self._state
        error = top_error(state.cluster_id, request)
        if error is not Error.NONE:
            self._answer(token, FetchSnapshotAnswer(top_error=error))
            return
        error = self._leader_only_error(request.epoch)
        size = state.log.snapshots.get(request.snapshot)
        if error is Error.NONE and size is None:
            error = Error.SNAPSHOT_NOT_FOUND
        elif error is Error.NONE and size is not None and not 0 <= request.position < size:
            error = Error.POSITION_OUT_OF_RANGE
        if error is Error.NONE and isinstance(state.role, Leader) and state.voters.contains(request.replica):
            self._satisfy_check_quorum(state.role, request.replica, now_ms)
        leader_id = state.leader_id
        length = (
            0 if error is not Error.NONE or size is None else min(max(request.max_bytes, 1), size - request.position)
        )
        answer = FetchSnapshotAnswer(
            error=error,
            epoch=state.epoch,
            leader_id=leader_id,
            endpoint=state.announced_endpoint(leader_id),
            snapshot=request.snapshot,
            size=size or 0,
            position=request.position,
            length=length,
        )
        self._answer(token, answer)

    # --- the follower's side

    def on_fetch_answer(self, peer: NodeId, answer: FetchAnswer, now_ms: int) -> None:
        """Take in what the leader sent; anything else is for the election."""
        state = self._state
        if self._election.handle_epoch_and_leader(peer, answer, now_ms):
            return
        role = state.role
        if not isinstance(role, Follower) or peer != role.leader_id:
            state.peers.failed(peer, now_ms)
            return
        if answer.diverging is not None:
            progressed = self._truncate(answer.diverging)
        elif answer.snapshot is not None:
            progressed = self._start_download(role, answer.snapshot)
        else:
            progressed = self._append_fetched(answer)
        if not progressed:
            state.peers.failed(peer, now_ms)
            return
        state.peers.succeeded(peer)
        self._extend_fetch_timeout(role, now_ms)

    def _extend_fetch_timeout(self, role: Follower, now_ms: int) -> None:
        role.has_fetched = True
        role.asks_anyone = False
        role.fetch_deadline_ms = now_ms + self._state.settings.fetch_timeout_ms

    def _append_fetched(self, answer: FetchAnswer) -> bool:
        """Append the leader's batches as they are; False when they do not fit on."""
        state = self._state
        if answer.batches and not self._fits(answer):
            state.note(f"fetched batches do not fit on at {state.log.end_offset}: {answer.batches[0]}")
            return False
        if answer.batches:
            base_offset = state.log.end_offset
            for span in answer.batches:
                state.log.append(span)
            state.outbox.append(AppendFetched(base_offset=base_offset, records=answer.records, batches=answer.batches))
        if answer.high_watermark != UNKNOWN_HIGH_WATERMARK:
            self._commit(min(answer.high_watermark, state.log.end_offset))
        return True

    def _fits(self, answer: FetchAnswer) -> bool:
        expected, epoch = self._state.log.end_offset, self._state.log.last_epoch
        for span in answer.batches:
            if span.base_offset != expected or span.end_offset <= expected or not epoch <= span.epoch <= answer.epoch:
                return False
            expected, epoch = span.end_offset, span.epoch
        return True

    def _truncate(self, diverging: OffsetAndEpoch) -> bool:
        """Cut what the leader does not have; False when nothing had to go."""
        state = self._state
        end_offset = state.log.truncation_point(diverging)
        if end_offset >= state.log.end_offset:
            state.note(f"the leader diverges at {diverging}, but the log ends at {state.log.end}")
            return False
        if end_offset < state.high_watermark:
            # KAFKA-12460: committed records never go.
            raise SafetyViolation(f"truncation to {end_offset} below high watermark {state.high_watermark}")
        state.note(f"truncating from {state.log.end_offset} to {end_offset} for epoch {state.epoch}")
        state.log.truncate(end_offset)
        self._sync_id = None  # what it was to make durable has changed
        state.outbox.append(TruncateLog(end_offset=end_offset))
        state.probe("quorum_truncated")
        return True

    # --- snapshots, the follower's side

    def _start_download(self, role: Follower, snapshot: OffsetAndEpoch) -> bool:
        if snapshot.offset < self._state.high_watermark or snapshot.offset < 0 or snapshot.epoch < 0:
            self._state.note(f"the leader offers snapshot {snapshot} below what is committed here")
            return False
        role.download = Download(snapshot)
        return True

    def on_fetch_snapshot_answer(self, peer: NodeId, answer: FetchSnapshotAnswer, now_ms: int) -> None:
        """Store a piece; with the last one the snapshot takes the log's place (SPEC 1.11)."""
        state = self._state
        if answer.error in (Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE) and answer.epoch == state.epoch:
            # The leader has a newer one by now: the next fetch answer names it.
            if isinstance(state.role, Follower):
                state.role.download = None
            state.peers.failed(peer, now_ms)
            return
        if self._election.handle_epoch_and_leader(peer, answer, now_ms):
            return
        role = state.role
        download = role.download if isinstance(role, Follower) and peer == role.leader_id else None
        if download is None or (answer.snapshot, answer.position) != (download.snapshot, download.position):
            state.peers.failed(peer, now_ms)
            return
        assert isinstance(role, Follower)
        state.peers.succeeded(peer)
        self._extend_fetch_timeout(role, now_ms)
        self._store_chunk(role, download, answer)

    def _store_chunk(self, role: Follower, download: Download, answer: FetchSnapshotAnswer) -> None:
        state = self._state
        chunk = StoreSnapshotChunk(snapshot=download.snapshot, position=download.position, content=answer.content)
        state.outbox.append(chunk)
        download.position += len(answer.content)
        if download.position < answer.size:
            return
        role.download = None
        state.log.restart_at(download.snapshot, answer.size)
        self._sync_id = None
        state.outbox.append(InstallSnapshot(snapshot=download.snapshot, size=answer.size))
        state.probe("quorum_snapshot_installed")
        self._commit(download.snapshot.offset)

    def on_snapshot_taken(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """Keep a snapshot of our own; drop the log below the one before it.

        One generation of records stays, so that a follower that is only a little behind needs no snapshot.
        """
        state = self._state
        assert snapshot.offset <= state.high_watermark, "only committed state is worth a snapshot"
        before = state.log.latest_snapshot
        if before is not None and snapshot <= before:
            return
        state.log.snapshots[snapshot] = size
        if before is not None and before.offset > state.log.start_offset:
            state.log.move_start(before)
            state.outbox.append(MoveLogStart(offset=before.offset))

    # --- durability

    def on_synced(self, sync_id: int) -> None:
        """Take in that the log up to where the sync began is durable."""
        if sync_id != self._sync_id:
            return
        state = self._state
        self._sync_id = None
        state.log.synced_offset = max(state.log.synced_offset, self._sync_end_offset)
        if isinstance(state.role, Leader):
            self.update_leader_high_watermark()

    def sync_due(self) -> None:
        """Make the log durable where this member's word counts for something: voters only (SPEC 1.10.5)."""
        state = self._state
        if self._sync_id is None and state.is_voter and state.log.synced_offset < state.log.end_offset:
            self._last_sync_id += 1
            self._sync_id, self._sync_end_offset = self._last_sync_id, state.log.end_offset
            state.outbox.append(SyncLog(sync_id=self._sync_id, end_offset=self._sync_end_offset))

    # --- asking

    def send_due(self, now_ms: int) -> None:
        """Fetch, from the leader or, to find it, from anybody who may know it."""
        state = self._state
        role = state.role
        if not isinstance(role, Follower | Unattached):
            return
        if state.is_voter and state.log.synced_offset < state.log.end_offset:
            return  # what the fetch claims must be durable first
        peer = self._whom_to_ask(role, now_ms)
        if peer is None:
            return
        if isinstance(role, Follower) and role.download is not None and peer == role.leader_id:
            state.send(peer, self._fetch_snapshot(role.download), now_ms)
            return
        state.send(peer, self._fetch(), now_ms)

    def _whom_to_ask(self, role: Follower | Unattached, now_ms: int) -> NodeId | None:
        state = self._state
        follows = isinstance(role, Follower) and not role.asks_anyone
        # Who was asked because the leader had failed may be silent. Were it awaited until its time is over, one lost
        # request would take a leader the majority that fetches from it; so the leader is asked as well.
        if follows and state.peers.is_ready(role.leader_id, now_ms):
            return role.leader_id
        if state.peers.any_in_flight:
            return None
        others = [voter for voter in state.bootstrap if not (follows and voter == role.leader_id)]
        ready = [voter for voter in others if state.peers.is_ready(voter, now_ms)]
        if not ready:
            return None
        self._next_bootstrap += 1
        return ready[self._next_bootstrap % len(ready)]

    def _fetch(self) -> FetchRequest:
        state = self._state
        return FetchRequest(
            cluster_id=state.cluster_id,
            replica=state.me,
            epoch=state.epoch,
            fetch_offset=state.log.end_offset,
            last_fetched_epoch=state.log.last_epoch,
            max_wait_ms=state.settings.fetch_wait_ms,
            high_watermark=state.high_watermark,
        )

    def _fetch_snapshot(self, download: Download) -> FetchSnapshotRequest:
        state = self._state
        return FetchSnapshotRequest(
            cluster_id=state.cluster_id,
            replica=state.me,
            epoch=state.epoch,
            snapshot=download.snapshot,
            position=download.position,
            max_bytes=state.settings.snapshot_chunk_bytes,
        )
