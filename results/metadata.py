"""Committed metadata records as values, and a partition's state as they make it: shared by the judge and the report.

A recording holds each record's body as JSON with Kafka's field names in snake_case; only the fields that somebody here looks at are read.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.recording import DamagedRecording
from tribunal.results.topic_names import MARK
from tribunal.results.unreadable import UNREADABLE

NO_LEADER: Final = -1
NO_CHANGE: Final = -2
RECOVERING: Final = 1
CONFIG_OF_TOPIC: Final = 2
CONFIG_OF_BROKER: Final = 4


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A partition is created: everything about it."""

    replicas: tuple[int, ...] | None = None
    isr: tuple[int, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    leader_recovery_state: int | None = None
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    directories: tuple[str, ...] | None = None


class PartitionChangeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A partition changes: what is absent stays as it is."""

    replicas: tuple[int, ...] | None = None
    isr: tuple[int, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    leader: int = NO_CHANGE
    leader_recovery_state: int = -1
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    directories: tuple[str, ...] | None = None


class RegisterBrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A broker process registers."""

    broker_id: int
    broker_epoch: int
    incarnation_id: str | None = None
    fenced: bool = True
    log_dirs: list[str] | None = None


class BrokerRegistrationChangeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A registered broker is fenced (1) or unfenced (-1), or has lost log directories: `log_dirs` are those that are left."""

    broker_id: int
    fenced: int = 0
    log_dirs: list[str] | None = None


class ConfigRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A setting is given to a resource, or taken from it (no value)."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None = None


class RemoveTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A topic is deleted, with all of its partitions."""


class ClearElrRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The ELR and the last known ELR of all partitions of a topic are emptied; without a name, of all topics.

    Released Kafka writes it when `min.insync.replicas` changes. It names no id: it means the topic that has the name.
    """

    topic_name: str = ""

    def names(self, topic: str) -> bool:
        """Return whether it concerns a topic, by its name in the recording."""
        return not self.topic_name or self.topic_name == topic.partition(MARK)[0]


EMPTIED: Final = PartitionChangeRecord(eligible_leader_replicas=(), last_known_elr=())
"""What a ClearElrRecord does to each partition."""

MetadataRecord = (
    PartitionRecord
    | PartitionChangeRecord
    | RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | ClearElrRecord
)
_DECODERS: Final[dict[str, msgspec.json.Decoder[MetadataRecord]]] = {
    kind.__name__: msgspec.json.Decoder(kind)
    for kind in (
        PartitionRecord,
        PartitionChangeRecord,
        RegisterBrokerRecord,
        BrokerRegistrationChangeRecord,
        ConfigRecord,
        RemoveTopicRecord,
        ClearElrRecord,
    )
}


def decoded(record_type: str, body: str) -> MetadataRecord | None:
    """Return a record's body as a value; None for a type of record that nobody here looks at. Raises DamagedRecording."""
    decoder = _DECODERS.get(record_type)
    if decoder is None:
        return None
    try:
        return decoder.decode(body)
    except UNREADABLE as problem:
        raise DamagedRecording("metadata", None, f"a {record_type} cannot be read: {problem}") from problem


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A committed registration of a broker, and when it was observed."""

    record: RegisterBrokerRecord
    metadata_offset: int
    at_ns: int | None


def registrations(metadata: pa.Table) -> Iterator[Registered]:
    """Yield the registrations in a table `metadata`, in its order. Raises DamagedRecording."""
    kinds = metadata["record_type"].cast(pa.string())
    own = metadata.filter(pc.equal(kinds, RegisterBrokerRecord.__name__))
    columns = (own[name].to_pylist() for name in ("record_type", "body", "metadata_offset", "at_ns"))
    for kind, body, metadata_offset, at_ns in zip(*columns, strict=True):
        record = decoded(kind, body)
        assert isinstance(record, RegisterBrokerRecord)
        yield Registered(record=record, metadata_offset=metadata_offset, at_ns=at_ns)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as the committed metadata has it."""

    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    recovery: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """Members of ISR and ELR, in order: each holds everything below the high watermark (I8, I9) and may lead."""
        return tuple(sorted({*self.isr, *self.elr}))

    @property
    def is_reassigned(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding or self.removing)

    def changed_by(self, record: PartitionChangeRecord) -> "State":
        """Merge a change record (SPEC 2.1.4): absent keeps; a leader other than -2 starts a leader epoch."""
        changes_leader = record.leader != NO_CHANGE
        recovery = record.leader_recovery_state
        return State(
            replicas=_ids(record.replicas, self.replicas),
            isr=_ids(record.isr, self.isr),
            elr=_ids(record.eligible_leader_replicas, self.elr),
            last_known=_ids(record.last_known_elr, self.last_known),
            leader=record.leader if changes_leader else self.leader,
            leader_epoch=self.leader_epoch + changes_leader,
            partition_epoch=self.partition_epoch + 1,
            recovery=self.recovery if recovery == -1 else recovery,
            adding=_ids(record.adding_replicas, self.adding),
            removing=_ids(record.removing_replicas, self.removing),
        )

    @classmethod
    def created_by(cls, record: PartitionRecord) -> "State":
        """Take a PartitionRecord, which holds everything."""
        return cls(
            replicas=record.replicas or (),
            isr=record.isr or (),
            elr=record.eligible_leader_replicas or (),
            last_known=record.last_known_elr or (),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            recovery=record.leader_recovery_state or 0,
            adding=record.adding_replicas or (),
            removing=record.removing_replicas or (),
        )


def _ids(ids: tuple[int, ...] | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    return otherwise if ids is None else ids
