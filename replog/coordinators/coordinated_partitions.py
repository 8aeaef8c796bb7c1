"""Which partitions of an internal topic this broker coordinates, and since which leader epoch (SPEC 4.2.11)."""

from typing import Generic, TypeVar

from replog.errors import Error

Core = TypeVar("Core")


class CoordinatedPartition(Generic[Core]):
    """A partition led here; its core answers once the log has been read."""

    def __init__(self, partition: int, leader_epoch: int, core: Core) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.core = core
        self.is_loaded = False
        self.is_offline = False  # its log cannot be replayed


class CoordinatedPartitions(Generic[Core]):
    """The coordinated partitions of one topic."""

    def __init__(self) -> None:
        self.by_partition: dict[int, CoordinatedPartition[Core]] = {}

    def take(self, coordinated: CoordinatedPartition[Core]) -> None:
        """Coordinate this partition; an earlier leader epoch's entry is replaced."""
        self.by_partition[coordinated.partition] = coordinated

    def leave(self, partition: int) -> CoordinatedPartition[Core] | None:
        """Coordinate it no more."""
        return self.by_partition.pop(partition, None)

    def find(self, partition: int) -> CoordinatedPartition[Core] | Error:
        """Return who coordinates a partition here, or the error that sends a client on."""
        coordinated = self.by_partition.get(partition)
        if coordinated is None:
            return Error.NOT_COORDINATOR
        if coordinated.is_offline:
            return Error.COORDINATOR_NOT_AVAILABLE
        return coordinated if coordinated.is_loaded else Error.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def is_loading(self) -> bool:
        """Return whether more will answer in a moment; one whose log cannot be replayed never will."""
        return any(not one.is_loaded and not one.is_offline for one in self.by_partition.values())

    def loaded(self) -> list[CoordinatedPartition[Core]]:
        """Return those that answer, in the order of their numbers."""
        return [coordinated for _, coordinated in sorted(self.by_partition.items()) if coordinated.is_loaded]
