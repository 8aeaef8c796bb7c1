"""Which partition of an internal topic a group or transactional id belongs to (SPEC 4.2.1, 4.3.1)."""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INT_MIN: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: clients and tools calculate with it."""
    number = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    return number - (1 << 32) if number & 0x80000000 else number


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition whose leader coordinates this group or transactional id."""
    number = java_hash(key)
    return (0 if number == INT_MIN else abs(number)) % partition_count
