"""One event's work: records take effect on the image at once, so that later steps of the event see them.

What leaves is ordered: all records as one atomic group first, then replies, facts and questions.
"""

import msgspec

from replog.controller.events import Append, AskLogInfo, Client, Effect, Emit, Probe, Reply
from replog.controller.policy import Policy
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.record_versions import as_read_back
from replog.metadata.state import Partition
from replog.types import NO_NODE, LeaderRecoveryState, NodeId


class Turn:
    """Collects the effects of handling one event."""

    def __init__(self, policy: Policy, *, now_ms: int, next_offset: int) -> None:
        self.policy = policy
        self.image: Image = policy.image
        self.now_ms = now_ms
        self.received_ms = now_ms  # of a request that waited: when it came
        self.client: Client | None = None  # whose request it is, where that is known
        self.first_offset = next_offset
        self.records: list[r.MetadataRecord] = []
        self._after: list[Effect] = []

    @property
    def next_offset(self) -> int:
        """Where the next record of this event will be written, were it the last one."""
        return self.first_offset + len(self.records)

    def append(self, records: r.Records) -> None:
        """Write records: effective in memory now, for others once committed (SPEC 2.1.6)."""
        for record in records:
            written = as_read_back(record, self.image.metadata_version)
            self._notice(written)
            self.image.replay(written, self.next_offset)
            self.records.append(written)

    def reply(self, token: int, body: msgspec.Struct) -> None:
        """Answer a request."""
        self._after.append(Reply(token, body))

    def emit(self, event: str, **fields: object) -> None:
        """Record a fact once it is committed."""
        self._after.append(Emit(event, fields))

    def probe(self, name: str) -> None:
        """Count a rare state."""
        self._after.append(Probe(name))

    def ask(self, question: AskLogInfo) -> None:
        """Ask a broker about its logs."""
        self._after.append(question)

    def effects(self) -> list[Effect]:
        """Return everything the event leads to, in order."""
        return [*(Append(batch) for batch in self._batches()), *self._after]

    def _batches(self) -> list[list[r.MetadataRecord]]:
        size = r.BATCH_RECORDS_MAX
        if not r.is_bracketed(len(self.records), self.image.metadata_version):
            return [self.records] if self.records else []
        # SPEC 2.1.6: a group too long for one batch is bracketed, so that nobody sees half of it.
        group = [r.BeginTransactionRecord(name="event"), *self.records, r.EndTransactionRecord()]
        self.image.seal(self.first_offset, self.first_offset + len(group) - 1)
        return [group[start : start + size] for start in range(0, len(group), size)]

    def _notice(self, record: r.MetadataRecord) -> None:
        match record:
            case r.BrokerRegistrationChangeRecord() if record.fenced:
                name = "fenced" if record.fenced == r.FENCE else "unfenced"
                self.emit(name, node=record.broker_id, broker_epoch=record.broker_epoch)
            case r.PartitionChangeRecord():
                before = self.image.partition(record.topic_id, record.partition_id)
                assert before is not None
                for name in rare_states(before, record):
                    self.probe(name)
            case _:
                pass


def rare_states(before: Partition, change: r.PartitionChangeRecord) -> list[str]:
    """Return the probes that a partition's change deserves."""
    names = []
    if change.isr is not None and len(change.isr) < len(before.isr):
        names.append("isr_shrunk" if change.isr else "isr_empty")
    if change.eligible_leader_replicas:
        names.append("elr_nonempty")
    if change.leader == NO_NODE:
        names.append("leaderless")
    elif change.leader_recovery_state == LeaderRecoveryState.RECOVERING:
        names.append("unclean_election")
        nobody_else = not before.isr and not before.elr
        if nobody_else and before.last_known_elr == (NodeId(change.leader),):
            names.append("last_known_leader_elected")
    elif change.leader in before.elr and change.leader not in before.isr:
        names.append("elr_member_elected")
    if change.replicas is not None and (
        before.is_reassigning and not (change.adding_replicas or change.removing_replicas)
    ):
        names.append("reassignment_completed")
    return names
