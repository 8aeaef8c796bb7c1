"""Which partitions of an internal topic this broker coordinates, and since which leader epoch (SPEC 4.2.11)."""

from typing import Generic, TypeVar

from replog.errors import Error

Core = TypeVar("Core")


class Seat(Generic[Core]):
    """A partition led here; its core answers once the log has been read."""

    def __init__(self, partition: int, leader_epoch: int, core: Core) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.core = core
        self.is_loaded = False


class Seats(Generic[Core]):
    """The seats of one topic, by partition."""

    def __init__(self) -> None:
        self.taken: dict[int, Seat[Core]] = {}

    def take(self, seat: Seat[Core]) -> None:
        """Coordinate this partition; an earlier leader epoch's seat is gone."""
        self.taken[seat.partition] = seat

    def leave(self, partition: int) -> Seat[Core] | None:
        """Coordinate it no more."""
        return self.taken.pop(partition, None)

    def find(self, partition: int) -> Seat[Core] | Error:
        """Return who coordinates a partition here, or the error that sends a client on."""
        seat = self.taken.get(partition)
        if seat is None:
            return Error.NOT_COORDINATOR
        return seat if seat.is_loaded else Error.COORDINATOR_LOAD_IN_PROGRESS

    def loaded(self) -> list[Seat[Core]]:
        """Return the seats that answer, by partition."""
        return [seat for _, seat in sorted(self.taken.items()) if seat.is_loaded]
