"""The values of records: each says who sent it, as the how manieth. Needs nothing but Python: hosts import it, too."""

from typing import Final

SEQUENCE_BITS: Final = 40
VALUE_BYTES: Final = 8


def value_of(process: int, sequence: int) -> int:
    """Return the self-describing value of a process's n-th record."""
    assert 0 <= sequence < 1 << SEQUENCE_BITS
    return (process << SEQUENCE_BITS) | sequence


def value_in(content: bytes | None) -> int | None:
    """Return the value that a record carries, None where its bytes cannot be one of ours."""
    if content is None or len(content) != VALUE_BYTES or content[0] >> 7:  # no column holds more than 63 bits
        return None
    return int.from_bytes(content)


def number_of(value: int) -> int:
    """Return the how manieth of its process a record is."""
    return value & ((1 << SEQUENCE_BITS) - 1)


def record_name(value: int) -> str:
    """Return a record as a reader can distinguish it from others: process and number."""
    return f"record {number_of(value)} of process {value >> SEQUENCE_BITS}"
