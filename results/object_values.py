"""What an operation on an object takes, and what it may be answered with: a client that answers with another shape is at fault, not its system."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]  # tables have 64 bits for it
Entry = tuple[Whole, Whole]  # of a stream: an offset, and the element that stands there
Entries = tuple[Entry, ...]
PlainValue = int | tuple[int | None, ...] | Entries | None
_ANY_OTHER: Final = Whole | tuple[Whole | None, ...] | None
_OF_AN_ELEMENT: Final = ("write", "add", "enqueue", "acknowledge", "increment", "acquire", "release")
_PUBLISHING: Final = ("publish", "publish-one", "publish-none")
# What is asked for; of the others nobody looks at it.
ASKED: Final[Mapping[str, object]] = {
    **dict.fromkeys((*_OF_AN_ELEMENT, *_PUBLISHING), Whole),
    "cas": tuple[Whole | None, Whole],
    "read-stream": Whole | None,
}
# Of the others nobody looks at what an acknowledgement carries. A set that is null is empty: so some languages write an empty list.
SHAPES: Final[Mapping[str, object]] = {
    **dict.fromkeys(("read", "dequeue", "read-counter", "acquire", "publish", "publish-one"), Whole | None),
    "read-stream": Entries | None,
    "read-all": tuple[Whole, ...] | None,
}


def argument_of(function: str, encoded: str | None) -> PlainValue:
    """Read what a call asked for. Raises msgspec.DecodeError (which is a ValueError) where it is nothing that the operation takes."""
    value: PlainValue = msgspec.json.decode(encoded or "null", type=ASKED.get(function, _ANY_OTHER))
    return value


def answer_of(function: str, encoded: bytes | str | msgspec.Raw) -> PlainValue:
    """Read what a call was answered with. Raises msgspec.DecodeError (which is a ValueError) where it is none of the operation's."""
    value: PlainValue = msgspec.json.decode(encoded, type=SHAPES.get(function, _ANY_OTHER))
    return value
