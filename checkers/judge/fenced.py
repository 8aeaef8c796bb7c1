"""Transactions that began and were committed under a producer epoch that a later one had replaced (KIP-98: zombies are fenced).

Who begins under a transactional id fences everybody who had it before: what these still send or commit is refused. A transaction that was
committed proves that its epoch had been in force since it began at the latest. A coordinator forgets that only with the tail of its
partition of `__transaction_state`, and only where that was permitted to be lost (R9).
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tribunal.checkers.api import Array
from tribunal.checkers.guarantees import Excuse, Promise
from tribunal.checkers.judge.timeline import TRANSACTION_LOG, History, Judgement
from tribunal.results.rows import Transaction, typed

COMMITTED = "committed"


class Fenced(msgspec.Struct, frozen=True):
    """A transaction, by its row, that was to be refused; the last one that fenced it; what permitted that to be forgotten, if it all was."""

    row: int
    by: int
    judgement: Judgement | None


def fenced_commits(txns: pa.Table, history: History) -> Iterator[Fenced]:
    """Yield what was committed though its producer epoch had been replaced before it began.

    txns:  the table `txns`.
    """
    known: dict[tuple[str, int], list[tuple[int, Transaction]]] = {}
    columns = [name for name in txns.column_names if name != "operations"]
    numbers = _of_producers_that_go_back(txns)
    for number, row in zip(
        numbers.tolist(), typed(txns.select(columns).take(pa.array(numbers)), Transaction), strict=True
    ):
        assert row.producer_id is not None
        known.setdefault((row.txn_id, row.producer_id), []).append((number, row))
    for (txn_id, _), own in known.items():
        own.sort(key=lambda one: one[1].begin_ns)
        greatest = -1
        for place, (number, row) in enumerate(own):
            epoch = -1 if row.producer_epoch is None else row.producer_epoch
            if epoch < greatest:
                by = [
                    one
                    for one in own[:place]
                    if (one[1].producer_epoch or 0) > epoch and one[1].begin_ns < row.begin_ns
                ]
                if by:
                    lost = [_forgotten(history, txn_id, one, row) for _, one in by]
                    yield Fenced(number, by[-1][0], None if None in lost else lost[-1])
            greatest = max(greatest, epoch)


def _of_producers_that_go_back(txns: pa.Table) -> Array:
    """Return the rows of committed transactions of producers whose epoch ever goes back: of ten million there are no objects to be made."""
    wanted = pc.equal(txns["outcome"].cast(pa.string()), COMMITTED)
    for name in ("producer_id", "producer_epoch", "end_ns"):
        wanted = pc.and_(wanted, pc.is_valid(txns[name]))
    rows = np.flatnonzero(wanted.to_numpy())
    own = txns.select(["txn_id", "producer_id", "producer_epoch", "begin_ns"]).take(pa.array(rows))
    ids = own["txn_id"].cast(pa.string()).combine_chunks().dictionary_encode()
    ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    txn_id, producer, epoch = ids.indices.to_numpy(), own["producer_id"].to_numpy(), own["producer_epoch"].to_numpy()
    order = np.lexsort((own["begin_ns"].to_numpy(), producer, txn_id))
    is_next = (txn_id[order][1:] == txn_id[order][:-1]) & (producer[order][1:] == producer[order][:-1])
    of = np.cumsum(np.append(True, ~is_next)[: rows.size])
    back = of[1:][is_next & (epoch[order][1:] < epoch[order][:-1])]
    return np.sort(rows[order[np.isin(of, back)]])


def _forgotten(history: History, txn_id: str, one: Transaction, later: Transaction) -> Judgement | None:
    """Return what permitted the loss of a committed transaction's epoch, which its decision says, before a later one had ended."""
    home = history.home(TRANSACTION_LOG, txn_id)
    if home is None:
        return None
    found = history.timeline(*home).permitting(one.begin_ns, later.end_ns, done_ns=one.end_ns)
    if found is None or found.promise.must_survive:
        return None
    return replace(found, promise=Promise(rule=Excuse.END_LOST, violations=()), by=found.promise.rule)
