"""Clients of a system that is no log: they call operations on objects, and say how each call ended.

An object is named by a key. What a workload may call is what the system's client has (`ObjectOperation`); a plan that needs more
is refused before anything starts. As with records, an outcome is never guessed: `fail` is for what surely had no effect.
"""

from enum import StrEnum
from typing import Final, Literal, Protocol

import msgspec

from tribunal.results.object_transactions import LISTS, REGISTERS, Steps
from tribunal.results.object_values import PlainValue

# What operations take and give: an element or a register's value, `[old, new]` of a compare-and-set, a set's elements; a transaction's steps.
ObjectValue = PlainValue | Steps


class ObjectOperation(StrEnum):
    """What clients may be able to do to an object."""

    READ = "read"  # of a register: returns its value, None while nobody wrote
    WRITE = "write"  # of a register
    CAS = "cas"  # of a register, [old, new]: sets the new value if the old one stands there, and fails otherwise
    ADD = "add"  # to a set: an element
    READ_ALL = "read-all"  # of a set: returns all elements
    ENQUEUE = "enqueue"  # to a queue: an element
    DEQUEUE = (
        "dequeue"  # of a queue: returns an element and keeps it until it is acknowledged, None where there is none
    )
    ACKNOWLEDGE = "acknowledge"  # of a queue: an element that was given out is done with
    REDELIVER = "redeliver"  # of a queue: all that was given out and not acknowledged may be given out again
    INCREMENT = "increment"  # of a counter: by a positive integer
    READ_COUNTER = "read-counter"  # of a counter: returns what was added to it, None for 0
    ACQUIRE = "acquire"  # of a lock, for a holder, an integer: fails where another one holds it; may return a fencing token that grows
    RELEASE = "release"  # of a lock, by its holder: fails where that one does not hold it
    PUBLISH = "publish"  # an element to the end of a stream; acknowledged by all that the system promises; may return its offset
    PUBLISH_ONE = "publish-one"  # the same, acknowledged by one node alone
    PUBLISH_NONE = "publish-none"  # the same, acknowledged by nobody: it was sent
    READ_STREAM = (
        "read-stream"  # of a stream, from an offset on: returns entries, [offset, element], none where it ends
    )
    TXN_LISTS = LISTS  # a transaction that reads lists and appends to them; its key names all that it touches
    TXN_REGISTERS = REGISTERS  # a transaction that reads and writes registers


TRANSACTIONS: Final = frozenset({ObjectOperation.TXN_LISTS, ObjectOperation.TXN_REGISTERS})


class ObjectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended: `ok`, `fail` (surely without effect), `info` (nobody knows). `node`: who answered; None: that was not said."""

    outcome: Literal["ok", "fail", "info"]
    value: ObjectValue = None
    error: str | None = None
    node: int | None = None


class ObjectClient(Protocol):
    """Calls operations, one at a time."""

    async def call(self, operation: ObjectOperation, key: str, value: ObjectValue) -> ObjectAnswer:
        """Call an operation and wait for its end, at most as long as the system's client is given."""

    async def close(self) -> None:
        """Release everything."""
