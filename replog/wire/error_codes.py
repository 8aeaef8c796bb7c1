"""The error codes of a message, wherever in it they stand."""

from collections.abc import Iterator

import msgspec

from replog.errors import Error


def errors_in(message: msgspec.Struct) -> Iterator[Error]:
    """Yield all error codes of a message, at any depth."""
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, Error):
            yield value
        for item in value if isinstance(value, list) else ():
            if isinstance(item, msgspec.Struct):
                yield from errors_in(item)
