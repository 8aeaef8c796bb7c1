"""The leader epoch cache: at which offset each leader epoch began (KIP-101, KIP-279, SPEC 3.8).

A pure value: the log decides when it must be durable. Entries rise strictly in epoch and in start offset. An
entry may exist before any record of its epoch does: a new leader notes where it starts (KAFKA-7415,
KAFKA-10706).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from replog.log.checkpoints import parsed_lines, rendered

UNDEFINED: Final = (-1, -1)


class EpochCache:
    """Epochs and their start offsets, ascending in both."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) pairs, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self._epochs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochCache) and self.entries == other.entries

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"EpochCache({self.entries})"

    @property
    def latest(self) -> int:
        """The latest epoch, -1 when none is known."""
        return self._epochs[-1] if self._epochs else -1

    @property
    def latest_start(self) -> int:
        """Start offset of the latest epoch, -1 when none is known."""
        return self._starts[-1] if self._starts else -1

    def assign(self, epoch: int, start: int) -> bool:
        """Note that `epoch` begins at `start`; return whether anything changed (then it must be made durable)."""
        assert epoch >= 0
        assert start >= 0
        if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, offset behind its last record); (-1, -1) when it cannot be known.

        An epoch below all known ones answers (itself, start of the first): everything of it is gone (SPEC 3.8.2).
        """
        if not self._epochs or epoch < 0 or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return epoch, self._starts[0]
        return self._epochs[index - 1], self._starts[index]

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that an offset below the log end belongs to, -1 when it is not known."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else -1

    def truncate_from_end(self, offset: int) -> bool:
        """Drop epochs that start at or behind `offset`; return whether anything changed."""
        index = bisect_left(self._starts, offset)
        changed = index < len(self._starts)
        del self._epochs[index:]
        del self._starts[index:]
        return changed

    def truncate_from_start(self, offset: int) -> bool:
        """Drop epochs that end at or before `offset`; the first one left starts there. Return whether it changed."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or (index == 0 and self._starts[0] == offset):
            return False
        del self._epochs[:index]
        del self._starts[:index]
        self._starts[0] = offset
        return True

    @property
    def earliest(self) -> int:
        """Return the first epoch, -1 without epochs."""
        return self._epochs[0] if self._epochs else -1

    @property
    def earliest_start(self) -> int:
        """Return where the first epoch begins, -1 without epochs."""
        return self._starts[0] if self._starts else -1

    def clear(self) -> None:
        """Forget all epochs."""
        self._epochs.clear()
        self._starts.clear()

    def to_checkpoint(self) -> bytes:
        """Return the content of a `leader-epoch-checkpoint` file: version, count, `epoch start` lines."""
        return rendered(f"{epoch} {start}" for epoch, start in self.entries)

    @classmethod
    def from_checkpoint(cls, content: bytes) -> "EpochCache":
        """Parse a `leader-epoch-checkpoint` file; `CorruptCheckpoint` on anything else."""
        return cls((int(epoch), int(start)) for epoch, start in parsed_lines(content, fields=2, numbers=(0, 1)))
