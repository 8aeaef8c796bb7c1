"""Transactions as columns: what graph checkers need of ten million of them without an object for each.

A history comes as `Operation`s (imported, small) or straight from a recording's table `txns`; both become the same arrays.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tribunal.checkers.graphs.operations import OPEN_END, Operation, Outcome
from tribunal.checkers.judge import steps as flat_steps

Integers = NDArray[np.int64]
OK, FAIL, INFO = 0, 1, 2
OUTCOMES: Final[dict[Outcome, int]] = {"ok": OK, "fail": FAIL, "info": INFO}
WORDS: Final[tuple[Outcome, ...]] = ("ok", "fail", "info")
LARGE: Final = 1 << 60


class Transactions(msgspec.Struct):
    """One row a transaction, in order of invocation. `index` is how it is named in witnesses."""

    index: Integers
    process: Integers
    outcome: NDArray[np.int8]
    invoked: Integers
    completed: Integers  # OPEN_END: nobody saw it complete

    def __len__(self) -> int:
        return int(self.index.size)

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> "Transactions":
        """Take operations apart."""
        rows = [(o.index, o.process, OUTCOMES[o.outcome], o.invoked, o.completed) for o in operations]
        table = np.array(rows, np.int64).reshape(-1, 5)
        index, process, outcome, invoked, completed = (np.ascontiguousarray(table[:, column]) for column in range(5))
        return cls(index, process, outcome.astype(np.int8), invoked, completed)

    @classmethod
    def recorded(cls, txns: pa.Table, rows: Integers) -> "Transactions":
        """Take some rows of the table `txns`; they are named by their row."""
        chosen = txns.drop_columns(["operations"]).take(rows)
        outcome = flat_steps.codes(chosen["outcome"], flat_steps.OUTCOMES).to_numpy().astype(np.int8)
        end = chosen["end_ns"].fill_null(OPEN_END).to_numpy()
        end = np.where(outcome == INFO, OPEN_END, end)
        return cls(rows, chosen["process"].to_numpy().astype(np.int64), outcome, chosen["begin_ns"].to_numpy(), end)

    def word(self, number: int) -> Outcome:
        """Return a transaction's outcome as a word."""
        return WORDS[int(self.outcome[number])]


class Numbering:
    """Numbers values by first sight: whole numbers from 0 on stand for themselves, everything else gets one below."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._values: list[Hashable] = []

    def number(self, value: Hashable) -> int:
        """Return the value's number."""
        if type(value) is int and 0 <= value < LARGE:
            return value
        if value not in self._numbers:
            self._numbers[value] = -2 - len(self._values)
            self._values.append(value)
        return self._numbers[value]

    def value(self, number: int) -> Hashable:
        """Return what a number stands for."""
        place = -2 - number
        return self._values[place] if 0 <= place < len(self._values) else number


class ListSteps(msgspec.Struct):
    """The steps of list-append transactions, in their order: one row a step.

    value:   the element appended; of a read unused.
    first, length:  the elements that a read returned: elements[first:first + length].
    """

    transactions: Transactions
    txn: NDArray[np.int64]
    is_read: NDArray[np.bool_]
    key: Integers
    value: Integers
    first: Integers
    length: Integers
    elements: Integers
    names: Mapping[int, Hashable]  # keys by number
    numbering: Numbering

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> "ListSteps":
        """Take operations with steps ("append", key, element) and ("r", key, list or None) apart."""
        keys: dict[Hashable, int] = {}
        numbering = Numbering()
        rows: list[tuple[int, int, int, int, int, int]] = []
        elements: list[int] = []
        for number, operation in enumerate(operations):
            for function, key, value in operation.steps:
                place = keys.setdefault(key, len(keys))
                if function == "append":
                    rows.append((number, 0, place, numbering.number(value), 0, 0))
                else:
                    seen = value or ()
                    rows.append((number, 1, place, 0, len(elements), len(seen)))
                    elements += map(numbering.number, seen)
        table = np.array(rows, np.int64).reshape(-1, 6)
        txn, is_read, key, value, first, length = (np.ascontiguousarray(table[:, column]) for column in range(6))
        names = {number: name for name, number in keys.items()}
        flat = np.array(elements, np.int64)
        return cls(Transactions.of(operations), txn, is_read == 1, key, value, first, length, flat, names, numbering)

    @classmethod
    def recorded(cls, txns: pa.Table) -> "ListSteps":
        """Take the table `txns`: neighbouring `read` rows of one partition are one read, one without value is empty."""
        steps = flat_steps.flat(txns)
        kind = steps["kind"].to_numpy()
        chosen = np.flatnonzero((kind == flat_steps.APPEND) | (kind == flat_steps.READ))
        steps, kind = steps.take(chosen), kind[chosen]
        keys, names = key_numbers(steps)
        rows, txn = np.unique(steps["txn"].to_numpy(), return_inverse=True)
        is_read = kind == flat_steps.READ
        known = steps["value"].is_valid().to_numpy()
        values = steps["value"].fill_null(0).to_numpy()
        head = np.ones(kind.size, bool)
        head[1:] = ~(is_read[1:] & is_read[:-1] & (keys[1:] == keys[:-1]) & (txn[1:] == txn[:-1]))
        heads = np.flatnonzero(head)
        element = is_read & known
        ends = np.concatenate([[0], np.cumsum(element)])
        first = ends[heads]
        length = ends[np.append(heads[1:], kind.size)] - first
        return cls(
            Transactions.recorded(txns, rows), txn[heads], is_read[heads], keys[heads], values[heads], first, length,
            values[element], names, Numbering(),
        )  # fmt: skip

    @property
    def key_count(self) -> int:
        """How many keys there are, by the greatest number."""
        return int(self.key.max(initial=-1)) + 1

    def in_parts(self, at_once: int) -> "Iterator[tuple[int, ListSteps]]":
        """Yield the steps on some keys after the others, those counted from the first of them: of so many steps and elements together, or of one key."""
        cost = np.bincount(self.key, weights=1 + self.length, minlength=self.key_count)
        parts = (np.cumsum(cost) - cost) // at_once  # of which part each key is
        firsts = np.flatnonzero(np.append(True, np.diff(parts) > 0)[: parts.size])
        if firsts.size < 2:
            yield 0, self
            return
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), parts.size], strict=True):
            yield first, self._on_keys(first, end)

    def _on_keys(self, first: int, end: int) -> "ListSteps":
        rows = np.flatnonzero((self.key >= first) & (self.key < end))
        length = self.length[rows]
        begins = np.cumsum(length) - length
        places = np.repeat(self.first[rows] - begins, length) + np.arange(int(length.sum()))
        return ListSteps(
            self.transactions, self.txn[rows], self.is_read[rows], self.key[rows] - first, self.value[rows], begins, length,
            self.elements[places], self.names, self.numbering,
        )  # fmt: skip

    def without(self, dropped: Mapping[int, Sequence[int]]) -> "ListSteps":
        """Return the steps as if some elements had never been appended to a key, nor read there."""
        owner = np.repeat(self.key, self.length)  # of every element that was read, step by step
        before = np.repeat(np.cumsum(self.length) - self.length, self.length)
        places = np.repeat(self.first, self.length) + np.arange(owner.size) - before
        gone_read, gone_append = np.zeros(owner.size, bool), np.zeros(self.key.size, bool)
        for key, elements in dropped.items():
            gone_read |= (owner == key) & np.isin(self.elements[places], elements)
            gone_append |= ~self.is_read & (self.key == key) & np.isin(self.value, elements)
        step = np.repeat(np.arange(self.key.size), self.length)[~gone_read]
        length = np.bincount(step, minlength=self.key.size)
        first = np.concatenate([[0], np.cumsum(length)[:-1]]).astype(np.int64)
        kept = ~gone_append
        return ListSteps(
            self.transactions, self.txn[kept], self.is_read[kept], self.key[kept], self.value[kept], first[kept], length[kept],
            self.elements[places[~gone_read]], self.names, self.numbering,
        )  # fmt: skip

    def operation(self, number: int) -> Operation:
        """Return one transaction as an operation."""
        own = np.arange(*np.searchsorted(self.txn, [number, number + 1]))
        transactions = self.transactions
        steps = tuple(
            ("r", self.names[int(self.key[row])], self.read(row))
            if self.is_read[row]
            else ("append", self.names[int(self.key[row])], self.numbering.value(int(self.value[row])))
            for row in own.tolist()
        )
        return Operation(
            index=int(transactions.index[number]),
            process=int(transactions.process[number]),
            outcome=transactions.word(number),
            function="txn",
            invoked=int(transactions.invoked[number]),
            completed=int(transactions.completed[number]),
            steps=steps,
        )

    def read(self, row: int) -> list[Hashable]:
        """Return the elements that the read in this row returned."""
        first, length = int(self.first[row]), int(self.length[row])
        return [self.numbering.value(number) for number in self.elements[first : first + length].tolist()]


def key_numbers(steps: pa.Table) -> tuple[Integers, dict[int, str]]:
    """Return for each row the number of its partition, and the partitions' names."""
    topics = steps["topic"].combine_chunks().dictionary_encode()
    topics = topics.combine_chunks() if isinstance(topics, pa.ChunkedArray) else topics
    partition = steps["partition"].to_numpy().astype(np.int64)
    pairs = (topics.indices.to_numpy().astype(np.int64) << 32) + partition
    distinct, number = np.unique(pairs, return_inverse=True)
    words = topics.dictionary.to_pylist()
    names = {place: f"{words[pair >> 32]}-{pair & 0xFFFFFFFF}" for place, pair in enumerate(distinct.tolist())}
    return number.astype(np.int64), names
