"""What aborted transactions wrote is in the log, and no read_committed consumer may ever receive it.

Looks at polls with isolation read_committed and at the values that aborted transactions sent. Transactions' own polls are
`transactions`' business (G1a).
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import numpy as np

from tribunal.checkers.api import (
    UNKNOWN,
    Array,
    Context,
    Excuse,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
    distinct,
    is_among,
    nothing,
)
from tribunal.checkers.judge.steps import ABORTED, WRITES
from tribunal.results.recording import WORDS

READ_COMMITTED: Final = WORDS["polls", "isolation"].index("read_committed")
ABORTED_READ: Final = "aborted_read"
KINDS: Final = {
    ABORTED_READ: Kind(
        Meaning.VIOLATION,
        "a read_committed consumer received what an aborted transaction wrote",
        excused_by=(Excuse.END_LOST,),
    ),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look for aborted values among what read_committed polls returned.

    returns:  one row per offset and value.
    source:   KIP-98, "Guarantees"; I18 (docs/invariants.md).
    """
    return kernel_in_pieces((rows,), context)


def kernel_in_pieces(pieces: Iterable[PartitionRows], context: Context) -> Found:
    """Do the same piece by piece: what is wrong with a record does not depend on others."""
    parts = iter(pieces)
    small = next(parts)
    rest = _from_first_in_transaction(chain((small,), parts))
    first = next(rest, None)
    if first is None:
        return Found(nothing())
    steps, polls = context.steps(), small.columns("polls")
    aborted = distinct(steps["value"][is_among(steps["kind"], WRITES) & (steps["outcome"] == ABORTED)])
    committed = polls["isolation"] == READ_COMMITTED
    asked = distinct((polls["process"][committed].astype(np.int64) << 40) + polls["poll_index"][committed])
    found = [np.zeros((0, 2), np.int64), *(_received(rows, aborted, asked) for rows in chain((first,), rest))]
    pairs = np.unique(np.concatenate(found), axis=0)
    table = anomalies(ABORTED_READ, log_offset=pairs[:, 0], value=pairs[:, 1])
    return Found(table, {"records of aborted transactions": int(aborted.size)})


def _from_first_in_transaction(pieces: Iterable[PartitionRows]) -> Iterator[PartitionRows]:
    """Yield pieces from the first one with anything that was sent in a transaction: `sends` come before `reads`."""
    in_transactions = False
    for rows in pieces:
        in_transactions = in_transactions or bool((rows.columns("sends")["txn_id"] != UNKNOWN).any())
        if in_transactions:
            yield rows


def _received(rows: PartitionRows, aborted: Array, asked: Array) -> Array:
    """Return offset and value of what some polls received of aborted transactions, each once."""
    reads = rows.columns("reads")
    suspects = np.flatnonzero(is_among(reads["value"], aborted) & (reads["value"] != UNKNOWN))
    asking = (reads["process"][suspects].astype(np.int64) << 40) + reads["poll_index"][suspects]
    suspects = suspects[is_among(asking, asked)]
    return np.unique(np.stack([reads["log_offset"][suspects], reads["value"][suspects]], axis=1), axis=0)


SQL: Final = """
SELECT DISTINCT r.run_id, r.topic, r.partition, 'aborted_read' AS kind, r.log_offset, r.value, CAST(NULL AS INT) AS acks,
       CAST(NULL AS BIGINT) AS invoke_ns, CAST(NULL AS BIGINT) AS at_ns, CAST(NULL AS INT) AS leader_epoch,
       CAST(NULL AS BIGINT) AS other_offset
FROM reads r
JOIN polls p ON r.run_id = p.run_id AND r.topic = p.topic AND r.partition = p.partition AND r.process = p.process
            AND r.poll_index = p.poll_index AND p.isolation = 'read_committed'
JOIN txn_steps s ON r.run_id = s.run_id AND r.topic = s.topic AND r.partition = s.partition AND r.value = s.value
                AND s.kind IN ('send', 'append') AND s.outcome = 'aborted'
SEMI JOIN (SELECT DISTINCT run_id, topic, partition FROM sends WHERE txn_id IS NOT NULL) t
  ON r.run_id = t.run_id AND r.topic = t.topic AND r.partition = t.partition
"""


PROPERTY: Final = Property(
    tables=("polls", "reads", "sends"),
    kinds=KINDS,
    kernel=kernel,
    kernel_in_pieces=kernel_in_pieces,
    columns_in_pieces={"sends": ("txn_id",), "reads": ("process", "poll_index", "log_offset", "value")},
    sql=SQL,
)
