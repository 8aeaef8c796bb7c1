"""Cutting a byte stream into frames: a 4-byte length and that many bytes, as often as the stream has them.

A frame that lies whole in one chunk is a view into it; one that spans chunks is joined once, when all of it is there.
Nothing is set aside for a length that was only announced.
"""

from struct import Struct
from typing import Final

from replog.ports import Buffer
from replog.wire.decoder import MalformedMessage

LENGTH: Final = Struct(">i")
NOTHING: Final = memoryview(b"")


class Frames:
    """The unread end of one stream."""

    def __init__(self, largest_bytes: int) -> None:
        self.held_bytes = 0
        self._largest_bytes = largest_bytes
        self._view = NOTHING
        self._at = 0
        self._later: list[Buffer] = []  # chunks behind the view
        self._wanted = LENGTH.size  # as long as less is held there is no use in looking

    def permit(self, largest_bytes: int) -> None:
        """Take longer frames, or no longer ones, from now on."""
        self._largest_bytes = largest_bytes

    def feed(self, chunk: Buffer) -> None:
        """Take the stream's next bytes; they must not change any more."""
        self.held_bytes += len(chunk)
        if self._at == len(self._view) and not self._later:
            self._view, self._at = memoryview(chunk), 0
        else:
            self._later.append(chunk)

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its length; `MalformedMessage` for a length that cannot be."""
        if self.held_bytes < self._wanted:
            return None
        length = self._announced()
        whole = LENGTH.size + length
        if self.held_bytes < whole:
            self._wanted = whole
            return None
        end = self._at + whole
        if end > len(self._view):
            self._gather(whole)
            end = self._at + whole
        frame = self._view[self._at + LENGTH.size : end]
        self._at = end
        self.held_bytes -= whole
        self._wanted = LENGTH.size
        return frame

    def beginning(self, size: int) -> memoryview | None:
        """Return the first bytes of a frame that is not whole yet, without its length, when they are there."""
        if self.held_bytes < LENGTH.size + size:
            return None
        if len(self._view) - self._at < LENGTH.size + size:
            self._gather(LENGTH.size + size)
        begin = self._at + LENGTH.size
        return self._view[begin : begin + size]

    def _announced(self) -> int:
        if len(self._view) - self._at < LENGTH.size:
            self._gather(LENGTH.size)
        length: int = LENGTH.unpack_from(self._view, self._at)[0]
        if not 0 <= length <= self._largest_bytes:
            raise MalformedMessage(f"a frame of {length} bytes; at most {self._largest_bytes} are taken")
        return length

    def _gather(self, size: int) -> None:
        """Make the first `size` bytes, which do not, lie side by side."""
        if self._at == len(self._view) and len(self._later[0]) >= size:
            self._view, self._at = memoryview(self._later.pop(0)), 0
            return
        self._view = memoryview(b"".join((self._view[self._at :], *self._later)))
        self._at = 0
        self._later = []
