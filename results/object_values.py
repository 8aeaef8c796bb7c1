"""What an operation on an object may be answered with: a client that answers with another shape is at fault, not its system."""

from collections.abc import Mapping
from typing import Final

import msgspec

Entry = tuple[int, int]  # of a stream: an offset, and the element that stands there
Entries = tuple[Entry, ...]
PlainValue = int | tuple[int | None, ...] | Entries | None
_ANY_OTHER: Final = int | tuple[int | None, ...] | None
# Of the others nobody looks at what an acknowledgement carries. A set that is null is empty: so some languages write an empty list.
SHAPES: Final[Mapping[str, object]] = {
    **dict.fromkeys(("read", "dequeue", "read-counter", "acquire", "publish", "publish-one"), int | None),
    "read-stream": Entries | None,
    "read-all": tuple[int, ...] | None,
}


def answer_of(function: str, encoded: bytes | str | msgspec.Raw) -> PlainValue:
    """Read what a call was answered with. Raises msgspec.DecodeError (which is a ValueError) where it is none of the operation's."""
    value: PlainValue = msgspec.json.decode(encoded, type=SHAPES.get(function, _ANY_OTHER))
    return value
