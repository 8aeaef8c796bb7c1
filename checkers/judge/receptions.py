"""When records were received, and when the last stable offset had passed an offset: sorted once, for many findings may ask."""

import numpy as np

from tribunal.checkers.api import UNKNOWN, Array, PartitionRows
from tribunal.checkers.judge.evidence import ByEpoch


class Receptions:
    """One partition's reads by their values, and its polls by who made them."""

    def __init__(self, rows: PartitionRows) -> None:
        self._reads, polls = rows.columns("reads"), rows.columns("polls")
        self._by_value = np.argsort(self._reads["value"], kind="stable")
        self._values = self._reads["value"][self._by_value]
        keys = (polls["process"].astype(np.int64) << 40) + polls["poll_index"]
        self._by_key = np.argsort(keys, kind="stable")
        self._keys = keys[self._by_key]
        self._times = np.where(polls["complete_ns"] == UNKNOWN, polls["invoke_ns"], polls["complete_ns"])

    def rows(self, value: int, log_offset: int) -> Array:
        """Return the reads of a value at an offset."""
        own = self._by_value[np.searchsorted(self._values, value) : np.searchsorted(self._values, value, "right")]
        return np.asarray(own[self._reads["log_offset"][own] == log_offset])

    def first_ns(self, reads: Array, among: Array | None = None) -> int | None:
        """Return when the first of the polls (among these; None: of all) was answered that received one of some reads; None: none did."""
        received = np.unique((self._reads["process"][reads].astype(np.int64) << 40) + self._reads["poll_index"][reads])
        first, end = np.searchsorted(self._keys, received), np.searchsorted(self._keys, received, "right")
        polls = np.concatenate([np.zeros(0, np.int64), *(self._by_key[a:b] for a, b in zip(first, end, strict=True))])
        if among is not None:
            polls = polls[among[polls]]
        return int(self._times[polls].min()) if polls.size else None


class StableEnds:
    """The last stable offsets that were seen of a partition, by leader epoch."""

    def __init__(self, rows: PartitionRows) -> None:
        seen = rows.columns("watermarks")
        known = np.flatnonzero(seen["last_stable_offset"] != UNKNOWN)
        order = known[np.argsort(seen["at_ns"][known], kind="stable")]
        self._at_ns, self._epochs = seen["at_ns"][order], seen["leader_epoch"][order]
        every = np.arange(order.size)
        self._by_epoch = ByEpoch(every, self._at_ns, seen["last_stable_offset"][order], self._epochs)

    def first_ns(self, log_offset: int, since_ns: int, least_epoch: int) -> int | None:
        """Return when one beyond an offset was first seen since a moment, in this leader epoch or a later one; None: none was."""
        beyond = self._by_epoch.first_beyond(log_offset, since_ns)
        beyond = beyond[self._epochs[beyond] >= least_epoch]
        return int(self._at_ns[beyond].min()) if beyond.size else None
