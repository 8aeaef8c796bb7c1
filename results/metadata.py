"""A partition's state as committed metadata records make it: shared by the judge and the report.

Only what a recording holds is needed here: bodies with Kafka's field names in snake_case.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

NO_LEADER: Final = -1
NO_CHANGE: Final = -2
RECOVERING: Final = 1


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

    def changed_by(self, body: Mapping[str, Any]) -> "State":
        """Merge a change record (SPEC 2.1.4): absent keeps; a leader other than -2 starts a leader epoch."""
        leader = body.get("leader", NO_CHANGE)
        recovery = body.get("leader_recovery_state", -1)
        return State(
            replicas=_ids(body.get("replicas"), self.replicas),
            isr=_ids(body.get("isr"), self.isr),
            elr=_ids(body.get("eligible_leader_replicas"), self.elr),
            last_known=_ids(body.get("last_known_elr"), self.last_known),
            leader=self.leader if leader == NO_CHANGE else leader,
            leader_epoch=self.leader_epoch + (leader != NO_CHANGE),
            partition_epoch=self.partition_epoch + 1,
            recovery=self.recovery if recovery == -1 else recovery,
        )

    @classmethod
    def created_by(cls, body: Mapping[str, Any]) -> "State":
        """Take a PartitionRecord, which holds everything."""
        return cls(
            replicas=_ids(body.get("replicas"), ()),
            isr=_ids(body.get("isr"), ()),
            elr=_ids(body.get("eligible_leader_replicas"), ()),
            last_known=_ids(body.get("last_known_elr"), ()),
            leader=body.get("leader", NO_LEADER),
            leader_epoch=body.get("leader_epoch", 0),
            partition_epoch=body.get("partition_epoch", 0),
            recovery=body.get("leader_recovery_state") or 0,
        )


def _ids(ids: Iterable[int] | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    return otherwise if ids is None else tuple(ids)
