"""The metadata log on disk: batches, snapshots, and the outline of both for the quorum's core.

`__cluster_metadata-0` in the metadata log directory holds the log's segments, snapshots named
`<end offset>-<epoch>.checkpoint` (SPEC 1.1.7) and the quorum-state file. A snapshot is made of record batches like the
log's, with a header and a footer record around it (KIP-630), so that a cut-off one differs from a whole one.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from replog.config import Endpoint, NodeConfig
from replog.config.setting import INT_MAX, LONG_MAX
from replog.errors import Error
from replog.log.batch import (
    BatchHeader,
    ControlType,
    CorruptBatch,
    NewRecord,
    batches,
    build,
    control_batch,
    control_batch_of,
    control_type,
    has_valid_crc,
    records,
)
from replog.log.log import Log
from replog.log.segment import LOG_SUFFIX, offsets_named
from replog.log.settings import LogSettings
from replog.log.validation import Origin
from replog.metadata.features import KRAFT_VERSION, SUPPORTED
from replog.node.quorum.metadata_damage import DamagedMetadata, SyncedEnd, check_beginning, check_synced, reading
from replog.ports import Disk, World
from replog.quorum.events import AppendFetched, AppendLeaderChange, AppendRecords, AppendVoters
from replog.quorum.log_shape import LogShape
from replog.quorum.messages import BatchSpan, OffsetAndEpoch
from replog.quorum.state_file import FILE_NAME, StoredQuorumState, decode, encode
from replog.quorum.translate import spans
from replog.quorum.voters import ReplicaKey
from replog.types import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, NodeId
from replog.wire.codec import encode_struct
from replog.wire.records.control import Endpoint as VoterEndpoint
from replog.wire.records.control import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)

SUFFIX: Final = ".checkpoint"
SNAPSHOT_NAME: Final = re.compile(rf"([0-9]{{20}})-([0-9]{{10}}){re.escape(SUFFIX)}")
PART_SUFFIX: Final = ".checkpoint.part"
READ_BYTES: Final = 1 << 20
SNAPSHOT_BATCH_RECORDS: Final = 1000
LISTENER: Final = "CONTROLLER"
# Version 1 adds directory ids, which the voters' record has anyway; Kafka's own dumper reads version 0 only.
LEADER_CHANGE_VERSION: Final = 0
SUPPORTED_VERSIONS: Final = KRaftVersionFeature(
    min_supported_version=SUPPORTED[KRAFT_VERSION].lowest, max_supported_version=SUPPORTED[KRAFT_VERSION].highest
)
VERSION_WITH_VOTERS: Final = encode_struct(KRaftVersionRecord(kraft_version=1), 0)  # voters are in the log from 1 on


class CommittedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one committed batch; none for a control batch."""

    base_offset: int
    next_offset: int
    epoch: int
    records: list[tuple[int, bytes]]
    size_bytes: int


def metadata_directory(config: NodeConfig) -> str:
    """Return where the metadata log lies."""
    return f"{config.metadata_log_dir}/{METADATA_TOPIC}-0"


def open_metadata_log(world: World, config: NodeConfig) -> Log:
    """Open the metadata log, or create an empty one; what the last process may have torn is cut off.

    Raises `DamagedMetadata`, before anything is changed, when more is missing than a crash can take.

    The scan begins at the latest snapshot: everything below it was durable before the snapshot was.
    """
    directory = metadata_directory(config)
    world.disk.make_directory(directory)
    # Else a power failure takes the directory with everything that is synced in it.
    world.disk.sync_directory(config.metadata_log_dir)
    known = snapshot_ids(world.disk, directory)
    snapshot_end = known[-1].offset if known else 0
    bases = offsets_named(world.disk, directory, LOG_SUFFIX)
    check_beginning(directory, min(bases, default=0), snapshot_end)
    check_synced(world.disk, directory, start=snapshot_end, end=SyncedEnd(world.disk, directory).offset)
    settings = msgspec.structs.replace(LogSettings.of(config.log), deletes=False, compacts=False)
    log = Log.open(
        world.disk,
        directory,
        settings,
        recover=True,
        recovery_point=snapshot_end,
        # The log starts behind the oldest of several snapshots; a single one may lie above the start.
        log_start_offset=known[0].offset if len(known) > 1 else 0,
        now_ms=world.clock.wall_ms(),
    )
    if known and _is_of_the_past(log, known[-1]):
        # Died between taking the snapshot in and emptying the log.
        SyncedEnd(world.disk, directory).lower_to(known[-1].offset)
        log.restart_at(known[-1].offset)
    _remove_leftovers(world.disk, directory, log.log_start_offset)
    if log.cut is not None:
        world.journal.log("warning", f"metadata log: cut at {log.cut.offset} in recovery: {log.cut.reason}")
    if log.topic_id is None:
        log.assign_topic_id(METADATA_TOPIC_ID)
    return log


def _is_of_the_past(log: Log, snapshot: OffsetAndEpoch) -> bool:
    """Return whether a log is not the one that a snapshot was taken of: it ends before it, or goes on behind it with an older epoch.

    The latter is what a deposed leader has written alone. Cut back to where it parts from the next leader's, it would end below
    what the snapshot says is committed.
    """
    last_epoch = max((epoch for epoch, start in log.epochs if start < log.log_end_offset), default=snapshot.epoch)
    return log.log_end_offset < snapshot.offset or last_epoch < snapshot.epoch


def _remove_leftovers(disk: Disk, directory: str, log_start_offset: int) -> None:
    """Remove what a process that died left: snapshots that the log begins behind, and parts of others.

    The oldest snapshot says which epoch comes before the log's start: with one of before a follower there is never right.
    """
    for known in snapshot_ids(disk, directory):
        if known.offset < log_start_offset:
            disk.remove(snapshot_path(directory, known))
    for name in disk.list_directory(directory):
        if name.endswith(PART_SUFFIX):
            disk.remove(f"{directory}/{name}")


def directory_id_of(disk: Disk, directory: str) -> UUID:
    """Return the directory id in `meta.properties`; ZERO_UUID when there is none."""
    path = f"{directory}/meta.properties"
    if not disk.exists(path):
        return ZERO_UUID
    for line in disk.read_file(path).decode().splitlines():
        name, _, text = line.partition("=")
        if name.strip() == "directory.id":
            return _uuid(text.strip())
    return ZERO_UUID


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def snapshot_ids(disk: Disk, directory: str) -> list[OffsetAndEpoch]:
    """Return the snapshots in a directory, the furthest last."""
    found = (SNAPSHOT_NAME.fullmatch(name) for name in disk.list_directory(directory))
    ids = (OffsetAndEpoch(int(named[1]), int(named[2])) for named in found if named)
    return sorted(one for one in ids if one.offset <= LONG_MAX and one.epoch <= INT_MAX)


def snapshot_path(directory: str, snapshot: OffsetAndEpoch, suffix: str = SUFFIX) -> str:
    """Return where a snapshot's file is, by its name."""
    return f"{directory}/{snapshot.offset:020d}-{snapshot.epoch:010d}{suffix}"


class MetadataLog:
    """A `Log` with what only the quorum needs."""

    def __init__(self, world: World, log: Log) -> None:
        self.log = log
        self._world = world
        self._disk = world.disk
        self._synced_end = SyncedEnd(world.disk, log.directory)

    # the core's view

    def outline(self) -> LogShape:
        """Return the outline of what is on disk."""
        log = self.log
        # An epoch may be noted before its first batch (KAFKA-7415); for the quorum only batches count.
        epochs = [(epoch, start) for epoch, start in log.epochs.entries if start < log.log_end_offset]
        sizes = [(known, self._size(known)) for known in snapshot_ids(self._disk, log.directory)]
        written = self._voters()
        return LogShape(
            start_offset=log.log_start_offset,
            end_offset=log.log_end_offset,
            synced_offset=min(log.flushed_offset, log.log_end_offset),
            epochs=epochs,
            snapshots=sizes,
            voters=[(offset, span.voters) for offset, span in written if span.voters is not None],
            endpoints={node: endpoint for _, span in written for node, endpoint in span.endpoints},
        )

    def _voters(self) -> list[tuple[int, BatchSpan]]:
        found = [
            (snapshot.offset - 1, span)
            for snapshot in snapshot_ids(self._disk, self.log.directory)[-1:]
            for span in [self.snapshot_voters(snapshot)]
            if span is not None
        ]
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            content = self.read(offset, self.log.log_end_offset)
            with reading(self.log.directory):
                outline = spans(content)
            for span in outline:
                offset = span.end_offset
                if span.voters is not None:
                    found.append((span.base_offset, span))
        return sorted(found, key=lambda entry: entry[0])

    def stored_state(self) -> StoredQuorumState | None:
        """Return what the quorum-state file says, None when there is none; `DamagedMetadata` when it says nothing.

        The released software takes one that it cannot read for missing (SPEC 1.1.4). It holds this member's vote: who
        forgets that may vote twice in an epoch, so a file that was written and cannot be read stops the node.
        """
        path = f"{self.log.directory}/{FILE_NAME}"
        if not self._disk.exists(path):
            return None
        content = self._disk.read_file(path)
        state = decode(content)
        if state is None:
            raise DamagedMetadata(path, 0, f"not a quorum state: {content[:80]!r}")
        return state

    def store_state(self, state: StoredQuorumState) -> None:
        """Write the quorum-state file durably."""
        self._disk.replace_file(f"{self.log.directory}/{FILE_NAME}", encode(state))

    # appending

    def append_records(self, effect: AppendRecords) -> None:
        """Write one batch of the leader's records."""
        assert isinstance(effect.records, tuple)
        now_ms = self._world.clock.wall_ms()
        batch = build([NewRecord(None, record) for record in effect.records], timestamp_ms=now_ms)
        self._append(batch, effect.base_offset, effect.epoch)

    def append_leader_change(self, effect: AppendLeaderChange) -> None:
        """Write the control batch that opens an epoch."""
        voters = {key.node_id: LeaderChangeMessageVoter(voter_id=key.node_id) for key in effect.voters}
        message = LeaderChangeMessage(
            version=LEADER_CHANGE_VERSION,
            leader_id=effect.leader_id,
            voters=list(voters.values()),
            granting_voters=[voters[voter] for voter in effect.granting if voter in voters],
        )
        value = encode_struct(message, LEADER_CHANGE_VERSION)
        self._append_control(ControlType.LEADER_CHANGE, value, effect.base_offset, effect.epoch)

    def append_voters(self, effect: AppendVoters) -> None:
        """Write the control batch that fixes the voters' directories (KIP-853)."""
        entries = [(ControlType.KRAFT_VOTERS, voters_record(effect.voters, effect.endpoints))]
        if effect.with_version:
            entries.append((ControlType.KRAFT_VERSION, VERSION_WITH_VOTERS))
        batch = control_batch_of(entries, timestamp_ms=self._world.clock.wall_ms())
        self._append(batch, effect.base_offset, effect.epoch)

    def _append_control(self, kind: ControlType, value: bytes, base_offset: int, epoch: int) -> None:
        self._append(control_batch(kind, value, timestamp_ms=self._world.clock.wall_ms()), base_offset, epoch)

    def _append(self, batch: bytes, base_offset: int, epoch: int) -> None:
        now_ms = self._world.clock.wall_ms()
        appended = self.log.append_as_leader(batch, leader_epoch=epoch, now_ms=now_ms, origin=Origin.QUORUM)
        assert not isinstance(appended, Error), f"our own batch was refused: {appended!r}"
        assert appended.base_offset == base_offset, f"{appended} is not at {base_offset}"

    def append_fetched(self, effect: AppendFetched) -> None:
        """Write a leader's batches as they are."""
        appended = self.log.append_as_follower(effect.records, now_ms=self._world.clock.wall_ms())
        assert appended.base_offset == effect.base_offset, f"{appended} is not at {effect.base_offset}"

    # reading

    def read(self, offset: int, end_offset: int, max_bytes: int = READ_BYTES) -> bytes:
        """Return whole batches from an offset on, at least one."""
        return self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset, at_least_one=True)

    def committed(self, offset: int, high_watermark: int) -> Iterator[CommittedBatch]:
        """Yield a piece of what is committed from an offset on."""
        content = memoryview(self.read(offset, high_watermark, READ_BYTES))
        for header in batches(content, self.log.directory):
            yield _committed(content, header)

    def note_synced(self) -> None:
        """Write down how far the log is durable, for the next process to compare it with."""
        self._synced_end.raise_to(min(self.log.flushed_offset, self.log.log_end_offset))

    # truncating

    def truncate(self, end_offset: int) -> int:
        """Cut the log; return where it ended before."""
        self._synced_end.lower_to(end_offset)
        before = self.log.log_end_offset
        self.log.truncate_to(end_offset)
        assert self.log.log_end_offset == end_offset, f"cut to {self.log.log_end_offset}, not {end_offset}"
        return before

    # snapshots

    def _path(self, snapshot: OffsetAndEpoch, suffix: str = SUFFIX) -> str:
        return snapshot_path(self.log.directory, snapshot, suffix)

    def _size(self, snapshot: OffsetAndEpoch) -> int:
        file = self._disk.open(self._path(snapshot))
        try:
            return file.size()
        finally:
            file.close()

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, length: int) -> bytes:
        """Return a piece of a snapshot's file."""
        file = self._disk.open(self._path(snapshot))
        try:
            return file.read_at(position, length)
        finally:
            file.close()

    def store_chunk(self, snapshot: OffsetAndEpoch, position: int, content: bytes | memoryview) -> None:
        """Write a piece of a snapshot that is being fetched."""
        file = self._disk.open(self._path(snapshot, PART_SUFFIX), create=True)
        try:
            if position == 0:
                file.truncate(0)
            file.write_at(position, content)
        finally:
            file.close()

    def install(self, snapshot: OffsetAndEpoch) -> None:
        """Let a fetched snapshot take the log's place. Raises `CorruptBatch` when it is not whole."""
        content = self._disk.read_file(self._path(snapshot, PART_SUFFIX))
        list(snapshot_records(content))
        self._freeze(snapshot)
        self._synced_end.lower_to(snapshot.offset)
        self.log.restart_at(snapshot.offset)
        self._remove_snapshots_below(snapshot.offset)

    def write_snapshot(
        self,
        snapshot: OffsetAndEpoch,
        values: Iterable[bytes],
        voters: tuple[ReplicaKey, ...] | None = None,
        endpoints: Mapping[NodeId, Endpoint] | None = None,
    ) -> int:
        """Write a snapshot of committed state durably; return its size."""
        now_ms = self._world.clock.wall_ms()
        file = self._disk.open(self._path(snapshot, PART_SUFFIX), create=True)
        try:
            file.truncate(0)
            members = None if voters is None else voters_record(voters, sorted((endpoints or {}).items()))
            for batch in snapshot_batches(values, snapshot.epoch, now_ms, members):
                file.append(batch)
            size = file.size()
        finally:
            file.close()
        self._freeze(snapshot)
        return size

    def _freeze(self, snapshot: OffsetAndEpoch) -> None:
        part = self._path(snapshot, PART_SUFFIX)
        file = self._disk.open(part)
        try:
            file.sync()
        finally:
            file.close()
        self._disk.rename(part, self._path(snapshot))
        self._disk.sync_directory(self.log.directory)

    def move_start(self, offset: int, high_watermark: int) -> None:
        """Drop the log below a snapshot, and the snapshots before it."""
        self.log.move_log_start(offset)
        self.log.delete_old_segments(self._world.clock.wall_ms(), high_watermark)
        self._remove_snapshots_below(offset)

    def _remove_snapshots_below(self, offset: int) -> None:
        for known in snapshot_ids(self._disk, self.log.directory):
            if known.offset < offset:
                self._disk.remove(self._path(known))

    def snapshot_voters(self, snapshot: OffsetAndEpoch) -> BatchSpan | None:
        """Return the batch with the voter set that a snapshot names, None when it names none (KIP-853)."""
        path = self._path(snapshot)
        with reading(path):
            return next((span for span in spans(self._disk.read_file(path)) if span.voters is not None), None)

    def snapshot_values(self, snapshot: OffsetAndEpoch) -> Iterator[bytes]:
        """Yield the record values of a snapshot. Raises `DamagedMetadata` when it is not whole."""
        path = self._path(snapshot)
        with reading(path):
            yield from snapshot_records(self._disk.read_file(path))


def _committed(content: memoryview, header: BatchHeader) -> CommittedBatch:
    values: list[tuple[int, bytes]] = []
    if not header.is_control:
        values = [(record.offset, record.value or b"") for record in records(content, header)]
    return CommittedBatch(
        base_offset=header.base_offset,
        next_offset=header.next_offset,
        epoch=header.leader_epoch,
        records=values,
        size_bytes=header.size,
    )


def snapshot_batches(values: Iterable[bytes], epoch: int, now_ms: int, voters: bytes | None) -> Iterator[bytes]:
    """Yield the batches of a whole snapshot: header, voters where they are known, the records' values, footer.

    now_ms:  what the header says of the last record's time, ms since 1970.
    voters:  their record (`voters_record`).
    """
    header = encode_struct(SnapshotHeaderRecord(last_contained_log_timestamp_ms=now_ms), 0)
    yield control_batch(ControlType.SNAPSHOT_HEADER, header, timestamp_ms=now_ms, base_offset=0, leader_epoch=epoch)
    offset = 1
    if voters is not None:
        # The set in force must outlive the records below the snapshot, or a removed voter would be one again.
        members = [(ControlType.KRAFT_VOTERS, voters), (ControlType.KRAFT_VERSION, VERSION_WITH_VOTERS)]
        yield control_batch_of(members, timestamp_ms=now_ms, base_offset=1, leader_epoch=epoch)
        offset = 3
    for chunk in _chunks(values):
        entries = [NewRecord(None, value) for value in chunk]
        yield build(entries, timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch)
        offset += len(chunk)
    footer = encode_struct(SnapshotFooterRecord(), 0)
    yield control_batch(
        ControlType.SNAPSHOT_FOOTER, footer, timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch
    )


def voters_record(voters: Sequence[ReplicaKey], endpoints: Iterable[tuple[NodeId, Endpoint]]) -> bytes:
    """Return the record that says who votes, and where each listens (KIP-853)."""
    listeners = {
        node_id: [VoterEndpoint(name=LISTENER, host=endpoint.host, port=endpoint.port)]
        for node_id, endpoint in endpoints
    }
    members = [
        VotersRecordVoter(
            voter_id=key.node_id,
            voter_directory_id=key.directory_id,
            endpoints=listeners.get(key.node_id, []),
            kraft_version_feature=SUPPORTED_VERSIONS,
        )
        for key in voters
    ]
    return encode_struct(VotersRecord(voters=members), 0)


def _chunks(values: Iterable[bytes]) -> Iterator[Sequence[bytes]]:
    chunk: list[bytes] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == SNAPSHOT_BATCH_RECORDS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def snapshot_records(content: bytes) -> Iterator[bytes]:
    """Yield the values in a snapshot's bytes; `CorruptBatch` unless it is whole, from header to footer."""
    view = memoryview(content)
    last, next_offset = None, 0
    for header in batches(view, "snapshot"):
        if not has_valid_crc(view, header):
            raise CorruptBatch("snapshot", header.position, "checksum")
        if header.base_offset != next_offset:  # each batch is whole, but one is missing, or stands elsewhere
            reason = f"offset {header.base_offset} where {next_offset} has to follow"
            raise CorruptBatch("snapshot", header.position, reason)
        next_offset = header.next_offset
        last = control_type(view, header) if header.is_control else None
        if header.position == 0 and last != ControlType.SNAPSHOT_HEADER:
            raise CorruptBatch("snapshot", 0, "no header")
        if not header.is_control:
            for record in records(view, header):
                yield record.value or b""
    if last != ControlType.SNAPSHOT_FOOTER:
        raise CorruptBatch("snapshot", len(content), "no footer")
