"""What is under way over one direction of one relayed connection: a queue that keeps the order of a byte stream.

A piece of a message leaves when its time has come, its gate is open and everything before it has left. What a rule
wants to be overtaken waits aside, complete, and joins the queue's end between two messages once its gate opens.
"""

from collections import deque
from collections.abc import Callable

from tribunal.clusters.capabilities import Fate
from tribunal.clusters.links.frames import Head, Piece


class Item:
    """Bytes that wait."""

    __slots__ = ("data", "due_s", "head", "is_last")

    def __init__(self, head: Head, data: bytes, due_s: float, *, is_last: bool) -> None:
        self.head = head
        self.data = data
        self.due_s = due_s
        self.is_last = is_last


class SendQueue:
    """The queue of one direction."""

    def __init__(self, due_s: Callable[[Head, int], float]) -> None:
        self._due_s = due_s  # when bytes of this message, so many, may leave
        self._queue: deque[Item] = deque()
        self._aside: list[Head] = []
        self._between = True  # the last piece put was a message's end
        self.byte_count = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._queue and not self._aside

    def put(self, piece: Piece) -> None:
        """Take a piece of a message whose fate is decided."""
        head = piece.head
        rule = head.rule.rule if head.rule is not None else None
        if head.swallowed or (rule is not None and rule.fate is Fate.DROPPED):
            return
        if rule is not None and rule.fate is Fate.HELD and rule.overtaking:
            head.parts.append(piece.data)
            self.byte_count += len(piece.data)
            if piece.is_last:
                self._aside.append(head)
        elif rule is not None and rule.fate is Fate.DUPLICATED:
            head.parts.append(piece.data)
            if piece.is_last:
                content, head.parts = b"".join(head.parts), []
                self._append(head, content + content, is_last=True)
        else:
            self._append(head, piece.data, is_last=piece.is_last)

    def _append(self, head: Head, data: bytes, *, is_last: bool) -> None:
        self._queue.append(Item(head, data, self._due_s(head, len(data)), is_last=is_last))
        self.byte_count += len(data)
        self._between = is_last

    def leaving(self, now_s: float) -> list[bytes]:
        """Take off the queue what may leave now."""
        self._join_queue()
        leaving: list[bytes] = []
        queue = self._queue
        while queue:
            item = queue[0]
            if item.due_s > now_s or (item.head.gate is not None and not item.head.gate.is_open):
                break
            queue.popleft()
            self.byte_count -= len(item.data)
            leaving.append(item.data)
        return leaving

    def _join_queue(self) -> None:
        """Let what was aside and is free now go behind the rest, unless a message is half under way there."""
        if not self._aside or not self._between:
            return
        free = [head for head in self._aside if head.gate is None or head.gate.is_open]
        for head in free:
            self._aside.remove(head)
            content, head.parts = b"".join(head.parts), []
            self.byte_count -= len(content)
            self._append(head, content, is_last=True)

    def next_due_s(self) -> float | None:
        """Return when the first in the queue may leave; None when it waits for a gate, or there is none."""
        if not self._queue:
            return None
        first = self._queue[0]
        return None if first.head.gate is not None and not first.head.gate.is_open else first.due_s

    def clear(self) -> int:
        """Lose everything; return how many bytes."""
        lost, self.byte_count = self.byte_count, 0
        self._queue.clear()
        self._aside.clear()
        self._between = True
        return lost
