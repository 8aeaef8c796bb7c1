"""What was sent besides the values, so that the whole record can be compared with what comes back: key, headers, timestamp and its type.

A workload's records have a key, no headers, and the timestamp that their client gave them; kept are some bytes a record, not the
records. What comes back equal is not written down; what differs is, as a digest of the record and in words.
"""

import zlib
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from tribunal.clusters.api import Content
from tribunal.results.values import SEQUENCE_BITS

UNKNOWN: Final = -1
SEQUENCES: Final = (1 << SEQUENCE_BITS) - 1
TYPES: Final = {False: "CreateTime", True: "LogAppendTime", None: "unknown"}


class SentRecords:
    """Keys and timestamps of all that was offered, by process and sequence.

    log_append_time:  brokers give records the time of their append (message.timestamp.type): what clients gave them is gone.
    """

    def __init__(self, *, log_append_time: bool = False) -> None:
        self._log_append_time = log_append_time
        self._keys: dict[int, array[int]] = {}  # checksums, by process
        self._timestamps: dict[int, array[int]] = {}

    def note(self, value: int, key: bytes | None, timestamp_ms: int | None) -> None:
        """Take note of a process's next record; `timestamp_ms` None: nobody knows what its client gave it."""
        process, sequence = value >> SEQUENCE_BITS, value & SEQUENCES
        keys = self._keys.setdefault(process, array("q"))
        assert sequence == len(keys), f"process {process} offers {sequence} behind {len(keys) - 1}"
        keys.append(_checksum(key))
        self._timestamps.setdefault(process, array("q")).append(UNKNOWN if timestamp_ms is None else timestamp_ms)

    def difference(self, value: int | None, received: Content) -> str | None:
        """Say what of a record is not as it was sent; None: nothing is."""
        process, sequence = (UNKNOWN, 0) if value is None else (value >> SEQUENCE_BITS, value & SEQUENCES)
        keys = self._keys.get(process)
        if keys is None or sequence >= len(keys):
            return _described(received, ["none of our values" if value is None else "never sent"])
        stamped_ms = UNKNOWN if self._log_append_time else self._timestamps[process][sequence]
        if (
            keys[sequence] == _checksum(received.key)
            and not received.headers
            and received.timestamp_ms in (stamped_ms, None)
            and received.log_append_time in (self._log_append_time, None)
        ):
            return None
        differing = list(self._differing(keys[sequence], stamped_ms, received))
        return _described(received, differing) if differing else None

    def _differing(self, key: int, stamped_ms: int, received: Content) -> Iterator[str]:
        if key != _checksum(received.key):
            yield f"key {received.key!r}"
        if received.headers:
            yield f"headers {list(received.headers)!r}"
        if received.timestamp_ms is not None and stamped_ms not in (UNKNOWN, received.timestamp_ms):
            yield f"timestamp {received.timestamp_ms} instead of {stamped_ms}"
        if received.log_append_time not in (self._log_append_time, None):
            yield f"timestamp type {TYPES[received.log_append_time]}"


def _checksum(key: bytes | None) -> int:
    return UNKNOWN if key is None else zlib.crc32(key)


def _described(received: Content, differing: list[str]) -> str:
    """Return a digest of the record and the words; equal texts are equal records."""
    whole: tuple[object, ...] = (received.key, tuple(received.headers), received.timestamp_ms, received.log_append_time)
    if received.foreign_value is not None:  # any other is compared as the column `value`
        whole += (received.foreign_value,)
    return f"{blake2b(repr(whole).encode(), digest_size=8).hexdigest()} {', '.join(differing)}"
