"""A heal that did not come about, as it was seen: two looks at the partitions that are not in full service.

The first look is when the time to heal is over, the second one as long again behind it. What is concluded from them is the judge's
(docs/verdicts.md, "A heal that does not come about").
"""

import msgspec

from tribunal.results.violation import CommittedPartition


class PartitionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A partition without leader or without full ISR.

    log_ends:  by replica, where its log ended; None: its disk was read and has no log of it; a replica whose disk was not read is not named.
    emptied:   replicas whose own disk lost the whole log, by the proof of a fault; without ELR such a member of the ISR is not elected as if it were whole.
    """

    name: str
    state: CommittedPartition
    log_ends: dict[int, int | None]
    emptied: tuple[int, ...] = ()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment.

    answering:  nodes whose process exists and answered a request.
    unfenced:   brokers that are registered and not fenced.
    lacking:    the partitions that are not in full service.
    """

    at_ns: int
    answering: tuple[int, ...]
    unfenced: tuple[int, ...]
    lacking: tuple[PartitionSeen, ...]


class Unhealed(msgspec.Struct, frozen=True, kw_only=True):
    """Full service did not come about within the time to heal.

    not_undone:  faults, by index, of which no proof says that they are undone.
    on_disks:    faults, by index, that altered or refused bytes on disks: what a node does about these may need an operator.
    first, second:  None: nobody looked, because no claim could come of it.
    """

    timeout_ms: int
    nodes: tuple[int, ...]
    brokers: tuple[int, ...]
    not_undone: tuple[int, ...]
    on_disks: tuple[int, ...]
    first: Look | None = None
    second: Look | None = None
