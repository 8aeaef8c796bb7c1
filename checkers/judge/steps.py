"""The steps of transactions as columns: one row a step, with its transaction's process, outcome and times.

The table `txns` nests them; everything vectorised and every SQL definition (view `txn_steps`) wants them flat. A
transaction is known by its row. Its outcome counts for all of its steps: what a committed one sent was acknowledged.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import Array, distinct

COMMITTED, ABORTED, OPEN = 0, 1, 2
OUTCOMES: Final = ("committed", "aborted", "info")
SEND, POLL, APPEND, READ = 0, 1, 2, 3
KINDS: Final = ("send", "poll", "append", "read")
OF_MESSAGES: Final = np.array([SEND, POLL], np.int8)
WRITES: Final = np.array([SEND, APPEND], np.int8)  # an append is a send to a log that is read as a list
WRITE_KINDS: Final = (KINDS[SEND], KINDS[APPEND])


def flat(txns: pa.Table) -> pa.Table:
    """Return all steps in order: STEPS' columns and topic, partition.

    txns:  the table `txns`; its `operations` may be null.
    """
    operations = txns["operations"].combine_chunks()
    operations = operations.chunk(0) if isinstance(operations, pa.ChunkedArray) else operations
    txn = pc.list_parent_indices(operations)
    steps = pc.list_flatten(operations)
    rows = txns.drop_columns(["operations"]).take(txn)
    return pa.table(
        {
            "txn": txn.cast(pa.int64()),
            "process": rows["process"],
            "outcome": codes(rows["outcome"], OUTCOMES),
            "begin_ns": rows["begin_ns"],
            "end_ns": rows["end_ns"],
            "timeout_ms": rows["timeout_ms"],
            "kind": codes(pc.struct_field(steps, "kind"), KINDS),
            "log_offset": pc.struct_field(steps, "log_offset"),
            "value": pc.struct_field(steps, "value"),
            "topic": pc.struct_field(steps, "topic"),
            "partition": pc.struct_field(steps, "partition"),
        }
    )


def codes(words: pa.Array | pa.ChunkedArray, known: tuple[str, ...]) -> pa.Array:
    """Return each word's place among the known ones."""
    if isinstance(words, pa.DictionaryArray):  # a few words instead of one a row
        return codes(words.dictionary, known).take(words.indices)
    return pc.index_in(words.cast(pa.string()), value_set=pa.array(known)).cast(pa.int8())


def committed_values(txns: pa.Table) -> Array:
    """Return the values that committed transactions sent or appended, distinct and ascending."""
    if txns.num_rows == 0:
        return np.zeros(0, np.int64)
    steps = flat(txns)
    chosen = pc.and_(pc.equal(steps["outcome"], COMMITTED), pc.is_in(steps["kind"], value_set=pa.array(WRITES)))
    return distinct(pc.drop_null(steps["value"].filter(chosen)).to_numpy())


def spans(txns: pa.Table) -> pa.Table:
    """Return process, begin_ns, end_ns, outcome of every transaction, and its row.

    One whose end nobody saw ends where its process begins the next one: a producer has one transaction at a time.
    """
    rows = pc.sort_indices(txns, sort_keys=[("process", "ascending"), ("begin_ns", "ascending")])
    txns = txns.select(["process", "begin_ns", "end_ns", "outcome"]).take(rows)
    process, begin = txns["process"].to_numpy(), txns["begin_ns"].to_numpy()
    is_unseen = pc.is_null(txns["end_ns"]).to_numpy()
    is_followed = np.zeros(txns.num_rows, bool)
    is_followed[:-1] = process[1:] == process[:-1]
    end = np.array(txns["end_ns"].fill_null(0).to_numpy(), np.int64)
    ended = np.flatnonzero(is_unseen & is_followed)
    end[ended] = begin[ended + 1] - 1
    whole = pa.array(end, pa.int64(), mask=is_unseen & ~is_followed)
    return txns.set_column(2, "end_ns", whole).append_column("txn", rows.cast(pa.int64()))


def ends(txns: pa.Table) -> Array:
    """Return when each transaction was over at the latest (`spans`), by its row; -1 where nobody knows."""
    ended = spans(txns)
    found = np.full(ended.num_rows, -1, np.int64)
    found[ended["txn"].to_numpy()] = ended["end_ns"].fill_null(-1).to_numpy()
    return found
