"""How many acknowledged records no consumer had received yet, over time: after the last heal it has to reach zero."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.results.store import Recording

Array = npt.NDArray[np.int64]
POLLS_BITS: Final = 40  # of a key (process, poll_index)


def unread(recording: Recording, names: Sequence[str], bin_ns: int, bins: int, start_ns: int = 0) -> list[int]:
    """Count, at the end of each bin, the records acknowledged (acks 1 or all) that nobody had received.

    start_ns:  where the first bin begins; what was before counts in it.
    """
    change = np.zeros(bins + 1, np.int64)
    for name in names:
        acknowledged, received = _moments(recording, name)
        change += np.bincount(np.clip((acknowledged - start_ns) // bin_ns, 0, bins), minlength=bins + 1)
        change -= np.bincount(np.clip((received - start_ns) // bin_ns, 0, bins), minlength=bins + 1)
    counts: list[int] = np.cumsum(change)[:bins].tolist()
    return counts


def _moments(recording: Recording, name: str) -> tuple[Array, Array]:
    """Return when each record was acknowledged, and when those received were: never before they were acknowledged."""
    sends = recording.table("sends", name, ["value", "complete_ns", "outcome"])
    sends = sends.filter(pc.and_(pc.equal(sends["outcome"].cast(pa.string()), "ok"), pc.is_valid(sends["complete_ns"])))
    values = sends["value"].to_numpy()
    order = np.argsort(values)
    values, acknowledged = values[order], sends["complete_ns"].to_numpy()[order]
    first = np.full(values.size, np.iinfo(np.int64).max)
    read, at_ns = _received(recording, name)
    if values.size and read.size:
        place = np.minimum(np.searchsorted(values, read), values.size - 1)
        known = values[place] == read
        np.minimum.at(first, place[known], at_ns[known])
    seen = first != np.iinfo(np.int64).max
    return acknowledged, np.maximum(first, acknowledged)[seen]


def _received(recording: Recording, name: str) -> tuple[Array, Array]:
    """Return the values that consumers received, each with when its poll was answered."""
    polls = recording.table("polls", name, ["process", "poll_index", "complete_ns"])
    polls = polls.filter(pc.is_valid(polls["complete_ns"]))
    reads = recording.table("reads", name, ["process", "poll_index", "value"])
    reads = reads.filter(pc.is_valid(reads["value"]))
    asked = _key(polls)
    order = np.argsort(asked)
    asked, done = asked[order], polls["complete_ns"].to_numpy()[order]
    if not asked.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    key = _key(reads)
    place = np.minimum(np.searchsorted(asked, key), asked.size - 1)
    known = asked[place] == key
    return reads["value"].to_numpy()[known], done[place[known]]


def _key(rows: pa.Table) -> Array:
    process = rows["process"].to_numpy().astype(np.int64)
    key: Array = (process << POLLS_BITS) | rows["poll_index"].to_numpy().astype(np.int64)
    return key
