"""The trace of a run: what happened in which order, as one hash and, when asked for, as lines.

Two runs of a seed are the same run if their hashes agree. The hash covers, per event, the virtual time
and the process that ran, and per message its bytes (as CRC-32): enough to notice any difference in
behaviour at its first effect. Numbers are collected in a list and hashed in blocks, because a call of the hash
function per event would cost more than the event.

Lines cost formatting, so they exist only while a sink is set. `checkpoints` holds the hash after every block:
two recorded runs can be compared block by block to find where they part before any line was printed. The numbers
themselves are kept too (`content`): compared with them a run that is repeated names the very event that differs.
"""

import hashlib
import zlib
from array import array
from collections.abc import Callable, Iterable
from typing import Final

BLOCK_NUMBERS: Final = 8192
Sink = Callable[[str], None]


def numbers_of(block: bytes) -> "array[int]":
    """Return the numbers of a compressed block."""
    return array("q", zlib.decompress(block))


class Trace:
    """Collects numbers into one running hash; prints lines while somebody listens."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.checkpoints: list[str] = []
        self.sink: Sink | None = None
        self._blocks: list[bytes] = []
        self._flushed_count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def flush(self) -> None:
        """Move the collected numbers into the hash. The list stays the same object."""
        block = array("q", self.numbers).tobytes()
        self._hash.update(block)
        self._blocks.append(zlib.compress(block, 1))
        self._flushed_count += len(self.numbers)
        self.numbers.clear()
        self.checkpoints.append(self._hash.hexdigest()[:16])

    @property
    def number_count(self) -> int:
        """How many numbers there are up to now."""
        return self._flushed_count + len(self.numbers)

    def content(self) -> list[bytes]:
        """Return all blocks up to now, compressed one by one; `numbers_of` reads them."""
        self.digest()
        return list(self._blocks)

    def digest(self) -> str:
        """Return the hash over everything up to now, 32 hexadecimal digits."""
        if self.numbers:
            self.flush()
        return self._hash.hexdigest()

    def line(self, text: str) -> None:
        """Print a line; callers ask `sink is not None` first where the text costs something."""
        if self.sink is not None:
            self.sink(text)


def hashes_of(blocks: Iterable[bytes]) -> tuple[list[str], str]:
    """Return the checkpoints and the digest of a trace that was kept (`Trace.content`). Raises ValueError for what is none."""
    running, checkpoints = hashlib.blake2b(digest_size=16), []
    for block in blocks:
        try:
            running.update(zlib.decompress(block))
        except zlib.error as problem:
            raise ValueError(f"not a trace: {problem}") from None
        checkpoints.append(running.hexdigest()[:16])
    return checkpoints, running.hexdigest()
