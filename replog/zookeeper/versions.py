"""Which versions of control requests brokers speak to one another: decided by `inter.broker.protocol.version`.

In ZooKeeper mode peers are not asked what they can; an operator promises it. So a cluster is upgraded in two rounds of
restarts (KIP-380, "Compatibility"): new software first, the new protocol version afterwards.
"""

from typing import Final, NamedTuple

import msgspec

from replog.wire.apis import Api

EPOCHS: Final = (2, 2)  # KIP-380: broker epochs in control requests
STOP_BY_STATE: Final = (2, 6)  # StopReplica with leader epochs and one deletion flag a partition
TOPIC_IDS: Final = (2, 8)
RECOVERY: Final = (3, 2)  # KIP-704: leader_recovery_state
NEWEST: Final = (3, 4)


class UnknownVersion(ValueError):
    """A protocol version that nobody speaks."""


class Versions(NamedTuple):
    """The versions of one protocol version."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int
    controlled_shutdown: int
    alter_partition: int


class ProtocolVersion(msgspec.Struct, frozen=True):
    """A value of `inter.broker.protocol.version`: 2.1, 3.2-IV0."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> "ProtocolVersion":
        """Read the setting; `UnknownVersion` when it is none."""
        number = text.partition("-")[0].split(".")
        if len(number) < 2 or not all(part.isdecimal() for part in number):
            raise UnknownVersion(f"{text!r} is no protocol version: write 2.1, 2.8 or 3.4")
        found = cls(int(number[0]), int(number[1]))
        if not (1, 0) <= (found.major, found.minor) <= (3, 9):
            raise UnknownVersion(f"{text!r}: ZooKeeper mode speaks 1.0 to 3.9")
        return found

    def has(self, feature: tuple[int, int]) -> bool:
        """Return whether something that came with a version is spoken."""
        return (self.major, self.minor) >= feature

    @property
    def versions(self) -> Versions:
        """The versions of control requests."""
        for least, versions in _TABLE:
            if self.has(least):
                return versions
        return _OLDEST

    def of(self, api: Api) -> int:
        """Return the version of one control request."""
        return int(getattr(self.versions, api.name.lower()))


# Below 2.7 leaders of the released software wrote ISRs into ZooKeeper themselves; ours always ask (AlterPartition 0).
_TABLE: Final = (
    (NEWEST, Versions(7, 8, 4, 3, 1)),
    (RECOVERY, Versions(6, 7, 3, 3, 1)),
    (TOPIC_IDS, Versions(5, 7, 3, 3, 0)),
    (STOP_BY_STATE, Versions(4, 6, 3, 3, 0)),
    ((2, 4), Versions(4, 6, 2, 3, 0)),
    (EPOCHS, Versions(2, 5, 1, 2, 0)),
)
_OLDEST: Final = Versions(1, 4, 0, 1, 0)
