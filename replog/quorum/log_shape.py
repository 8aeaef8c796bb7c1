"""The outline of the metadata log: offsets, epochs, snapshots, but no records.

The core decides by this outline alone; the shell's real log goes along, effect by effect. Words: `start_offset` is the
first offset that is still there, `end_offset` the next one to be written, `synced_offset` the end of what is durable
(the node's own claim to a majority), an epoch's end is where the next one starts.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from replog.config import Endpoint
from replog.quorum.messages import BatchSpan, OffsetAndEpoch
from replog.quorum.voters import ReplicaKey
from replog.types import NodeId

# The snapshot with the first voters that a directory is formatted with (KIP-853): it holds no record, and nobody has to fetch it.
FORMATTED_WITH: Final = OffsetAndEpoch(0, 0)


class LogShape:
    """One member's metadata log as far as consensus is concerned."""

    def __init__(
        self,
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        synced_offset: int | None = None,
        epochs: Iterable[tuple[int, int]] = (),
        snapshots: Iterable[tuple[OffsetAndEpoch, int]] = (),
        voters: Iterable[tuple[int, tuple[ReplicaKey, ...]]] = (),
        endpoints: Mapping[NodeId, Endpoint] | None = None,
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.synced_offset = end_offset if synced_offset is None else synced_offset
        self.epochs: list[tuple[int, int]] = list(epochs)  # (epoch, start offset), both ascending
        self.snapshots: dict[OffsetAndEpoch, int] = dict(sorted(snapshots, key=lambda pair: pair[0]))  # -> bytes
        self.voters: list[tuple[int, tuple[ReplicaKey, ...]]] = list(voters)  # (offset, voter set), ascending
        # Where voters were last said to listen. A hint on the way to a voter, so it may outlive a truncation.
        self.endpoints: dict[NodeId, Endpoint] = dict(endpoints or {})

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, of the snapshot the log starts after, or 0."""
        if self.epochs:
            return self.epochs[-1][0]
        return max((snapshot.epoch for snapshot in self.snapshots), default=0)

    @property
    def end(self) -> OffsetAndEpoch:
        """Where the log ends."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """The snapshot that reaches furthest."""
        return max(self.snapshots, default=None)

    @property
    def oldest_snapshot(self) -> OffsetAndEpoch | None:
        """The snapshot that the log starts after."""
        return min(self.snapshots, default=None)

    @property
    def latest_voters(self) -> tuple[ReplicaKey, ...] | None:
        """The voter set written last in the log, committed or not (KIP-853)."""
        return self.voters[-1][1] if self.voters else None

    @property
    def has_written_voters(self) -> bool:
        """Whether a record of the log, or of a snapshot of it, names the voters: those a directory is formatted with are in neither."""
        return bool(self.voters) and self.voters[-1][0] >= 0

    def voters_before(self, offset: int) -> tuple[ReplicaKey, ...] | None:
        """Return the voter set in force for records before an offset, None when the log names none."""
        return next((voters for at, voters in reversed(self.voters) if at < offset), None)

    def is_covered_by(self, last_epoch: int, last_offset: int) -> bool:
        """Return whether a log that ends there is at least as up to date as this one (SPEC 1.5.7)."""
        return (last_epoch, last_offset) >= (self.last_epoch, self.end_offset)

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest known epoch that is not above this one, with its end.

        Below all known epochs the answer is the asked epoch itself, ending where the log starts.
        """
        index = bisect_right(self.epochs, epoch, key=lambda entry: entry[0])
        if index == 0:
            start = self.epochs[0][1] if self.epochs else self.end_offset
            return OffsetAndEpoch(start, epoch)
        end = self.epochs[index][1] if index < len(self.epochs) else self.end_offset
        return OffsetAndEpoch(end, self.epochs[index - 1][0])

    def epoch_before(self, offset: int) -> int:
        """Return the epoch of the record before an offset; a snapshot's where the log starts after one, else 0."""
        index = bisect_right(self.epochs, offset - 1, key=lambda entry: entry[1])
        if index > 0:
            return self.epochs[index - 1][0]
        return max((known.epoch for known in self.snapshots if known.offset <= offset), default=0)

    def position_of(self, fetch_offset: int, last_fetched_epoch: int) -> "Position":
        """Return where a follower stands that has fetched up to an offset in an epoch (SPEC 1.10.2)."""
        if self._needs_snapshot(fetch_offset, last_fetched_epoch):
            return Position(snapshot=self.latest_snapshot)
        if fetch_offset == 0 and self.start_offset == 0:
            return Position()
        known = self.end_offset_for(last_fetched_epoch)
        if known.epoch != last_fetched_epoch or known.offset < fetch_offset:
            return Position(diverging=known)
        return Position()

    def _needs_snapshot(self, fetch_offset: int, last_fetched_epoch: int) -> bool:
        oldest = self.oldest_snapshot
        if oldest is None or self.latest_snapshot == FORMATTED_WITH:
            return False
        if fetch_offset == 0 or fetch_offset < self.start_offset or last_fetched_epoch < oldest.epoch:
            return True
        return fetch_offset == self.start_offset and last_fetched_epoch != oldest.epoch

    def truncation_point(self, diverging: OffsetAndEpoch) -> int:
        """Return where to cut after a leader said where its log parts from ours (SPEC 1.10.7, KIP-279)."""
        known = self.end_offset_for(diverging.epoch)
        if known.epoch == diverging.epoch:
            return min(known.offset, diverging.offset)
        return known.offset

    def append(self, span: BatchSpan) -> None:
        """Take a batch in at the end."""
        assert span.base_offset == self.end_offset, f"a gap at {self.end_offset}: {span}"
        assert span.end_offset > span.base_offset, f"an empty batch: {span}"
        assert span.epoch >= self.last_epoch, f"epochs go back at {span}"
        if not self.epochs or self.epochs[-1][0] < span.epoch:
            self.epochs.append((span.epoch, span.base_offset))
        if span.voters is not None:
            self.voters.append((span.base_offset, span.voters))
            self.endpoints.update(span.endpoints)
        self.end_offset = span.end_offset

    def note_voters(
        self, end_offset: int, voters: tuple[ReplicaKey, ...], endpoints: Iterable[tuple[NodeId, Endpoint]] = ()
    ) -> None:
        """Take the voter set that a snapshot ending there holds, unless the log's own is newer."""
        if not any(offset >= end_offset for offset, _ in self.voters):
            self.voters = [(end_offset - 1, voters)]
            self.endpoints.update(endpoints)

    def truncate(self, end_offset: int) -> None:
        """Cut everything from this offset on, and every epoch and voter set that began there."""
        self.end_offset = min(self.end_offset, end_offset)
        self.synced_offset = min(self.synced_offset, end_offset)
        # An epoch that starts at the cut has no record left: it goes too (KAFKA-10706).
        self.epochs = [entry for entry in self.epochs if entry[1] < end_offset]
        self.voters = [entry for entry in self.voters if entry[0] < end_offset]

    def restart_at(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """Forget all records: the log starts empty behind a snapshot."""
        self.start_offset = self.end_offset = self.synced_offset = snapshot.offset
        self.epochs = []
        self.voters = [entry for entry in self.voters if entry[0] < snapshot.offset]
        self.snapshots = {snapshot: size}

    def move_start(self, snapshot: OffsetAndEpoch) -> None:
        """Drop the records below a snapshot, and the snapshots before it."""
        assert self.start_offset <= snapshot.offset <= self.end_offset, f"{snapshot} is outside the log"
        self.start_offset = snapshot.offset
        index = bisect_right(self.epochs, snapshot.offset, key=lambda entry: entry[1])
        kept = self.epochs[index:]
        if index > 0 and snapshot.offset < self.end_offset and (not kept or kept[0][1] > snapshot.offset):
            kept = [(self.epochs[index - 1][0], snapshot.offset), *kept]
        self.epochs = kept
        self.snapshots = {known: size for known, size in self.snapshots.items() if known >= snapshot}


class Position:
    """Where a follower stands in the leader's log: in it, beside it, or before its start."""

    __slots__ = ("diverging", "snapshot")

    def __init__(self, *, diverging: OffsetAndEpoch | None = None, snapshot: OffsetAndEpoch | None = None) -> None:
        self.diverging = diverging
        self.snapshot = snapshot

    @property
    def is_valid(self) -> bool:
        """Return whether the follower's log is a prefix of the leader's."""
        return self.diverging is None and self.snapshot is None
