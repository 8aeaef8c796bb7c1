"""A node of a described system that did not start again after a fault, as it was seen: tried twice, the second time when nothing else was in effect.

What is concluded from it is the judge's (docs/verdicts.md, "A node that does not start again").
"""

from typing import Literal

import msgspec


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a node that did not come to serve.

    started_ns, seen_ns:  when it was started, or began to be waited for again; and when it was known that it does not serve.
    how:        its process ended by itself, or it was silent all the time.
    exit_code:  of one that ended; negative: by this signal. None: it has not ended.
    """

    started_ns: int
    seen_ns: int
    how: Literal["ended", "silent"]
    exit_code: int | None = None


class NotStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was started when its fault was undone, and did not come to serve.

    fault:      the index of that fault; touched: of others on this node that touched its disk, or that it did not start after either.
    not_undone: the faults of which no proof said then that they are undone, but for those of nodes that did not start.
    within_ms:  how long a start may take, by the system's file.
    second:     None: it was not tried again, or came to serve then.
    not_ready:  the nodes that were not ready at the end of the second attempt.
    """

    node: int
    fault: int
    touched: tuple[int, ...] = ()
    within_ms: int
    first: Attempt
    second: Attempt | None = None
    not_ready: tuple[int, ...] = ()
    not_undone: tuple[int, ...] = ()
