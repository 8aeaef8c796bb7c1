"""Transactions that began and were committed under a producer epoch that a later one had replaced (KIP-98: zombies are fenced).

Who begins under a transactional id fences everybody who had it before: what these still send or commit is refused. A transaction that was
committed proves that its epoch had been in force since it began at the latest. A coordinator forgets that only with the tail of its
partition of `__transaction_state`, and only where that was permitted to be lost (R9).
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tribunal.checkers.api import Array
from tribunal.checkers.guarantees import Excuse, Promise
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, TRANSACTION_LOG, History, Judgement
from tribunal.results.rows import Transaction, typed

COMMITTED = "committed"


class Fenced(msgspec.Struct, frozen=True):
    """A transaction, by its row, that was to be refused; the last one that fenced it; what permitted that to be forgotten, if it all was."""

    row: int
    by: int
    judgement: Judgement | None


class Producer(msgspec.Struct, frozen=True):
    """Committed transactions of one producer in some rows of `txns`, which say with which epochs they were made: when the first and the last began.

    goes_back:  one of them began after another one of a later epoch.
    """

    txn_id: str
    producer_id: int
    first_ns: int
    last_ns: int
    least_epoch: int
    greatest_epoch: int
    goes_back: bool


Name = tuple[str, int]  # a producer's transactional and its own id
EPOCHS: Final = ("txn_id", "producer_id", "producer_epoch", "begin_ns", "end_ns", "outcome")


def producers(txns: pa.Table) -> list[Producer]:
    """Return the producers of some rows, by their first transaction.

    txns:  columns EPOCHS of the table `txns`.
    """
    rows = np.flatnonzero(_are_of_epochs(txns))
    own = txns.select(["txn_id", "producer_id", "producer_epoch", "begin_ns"]).take(pa.array(rows))
    ids = own["txn_id"].cast(pa.string()).combine_chunks().dictionary_encode()
    ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    txn_id, producer, epoch = ids.indices.to_numpy(), own["producer_id"].to_numpy(), own["producer_epoch"].to_numpy()
    begin = own["begin_ns"].to_numpy()
    order = np.lexsort((begin, producer, txn_id))
    is_next = (txn_id[order][1:] == txn_id[order][:-1]) & (producer[order][1:] == producer[order][:-1])
    head = np.flatnonzero(np.append(True, ~is_next)[: rows.size])
    if not head.size:
        return []
    back = np.append(False, is_next & (epoch[order][1:] < epoch[order][:-1]))
    first = order[head]
    found = [
        Producer(*one)
        for one in zip(
            ids.dictionary.take(pa.array(txn_id[first])).to_pylist(),
            producer[first].tolist(),
            begin[first].tolist(),
            begin[order[np.append(head[1:], rows.size) - 1]].tolist(),
            np.minimum.reduceat(epoch[order], head).tolist(),
            np.maximum.reduceat(epoch[order], head).tolist(),
            np.logical_or.reduceat(back, head).tolist(),
            strict=True,
        )
    ]
    place = np.minimum.reduceat(order, head)
    return [found[number] for number in np.argsort(place).tolist()]


def going_back(found: Iterable[Producer]) -> tuple[Name, ...]:
    """Return the producers whose epoch may go back, by their first transaction; never lacks one whose epoch does.

    found:  what some rows after the others say.
    """
    so_far: dict[Name, tuple[int, int, bool]] = {}
    for one in found:
        name = one.txn_id, one.producer_id
        last_ns, greatest, back = so_far.get(name, (one.first_ns, one.least_epoch, False))
        back |= one.goes_back or one.first_ns < last_ns or one.least_epoch < greatest
        so_far[name] = max(last_ns, one.last_ns), max(greatest, one.greatest_epoch), back
    return tuple(name for name, (*_, back) in so_far.items() if back)


def fenced_commits(txns: pa.Table, history: History) -> Iterator[Fenced]:
    """Yield what was committed though its producer epoch had been replaced before it began.

    txns:  the table `txns`.
    """
    return fenced_among(transactions_of(going_back(producers(txns)), [(0, txns)]), history)


def transactions_of(
    chosen: Sequence[Name], pieces: Iterable[tuple[int, pa.Table]]
) -> Iterator[tuple[int, Transaction]]:
    """Yield the committed transactions of some producers, by their rows.

    pieces:  the table `txns` but for its steps, in pieces, each with its first row.
    """
    if not chosen:
        return
    wanted = set(chosen)
    ids = pa.array([producer_id for _, producer_id in chosen], pa.int64())
    for first, txns in pieces:
        own = _are_of_epochs(txns) & pc.is_in(txns["producer_id"], value_set=ids).to_numpy()
        rows = np.flatnonzero(own)
        columns = [name for name in txns.column_names if name != "operations"]
        for number, row in zip(
            rows.tolist(), typed(txns.select(columns).take(pa.array(rows)), Transaction), strict=True
        ):
            if (row.txn_id, row.producer_id) in wanted:
                yield first + number, row


def fenced_among(rows: Iterable[tuple[int, Transaction]], history: History) -> Iterator[Fenced]:
    """Yield what was committed among these though its producer epoch had been replaced before it began.

    rows:  committed transactions of which the producer, its epoch and the end are known, by their rows in `txns`.
    """
    known: dict[Name, list[tuple[int, Transaction]]] = {}
    for number, row in rows:
        assert row.producer_id is not None
        known.setdefault((row.txn_id, row.producer_id), []).append((number, row))
    for (txn_id, _), own in known.items():
        own.sort(key=lambda one: one[1].begin_ns)
        yield from _fenced(own, history, history.home(TRANSACTION_LOG, txn_id))


class _Later(msgspec.Struct):
    """The transactions of later epochs than one, of those that began before some moment.

    seen:       how many of all of them were looked at.
    by:         the last of a later epoch, by its row.
    forgotten:  whether each of their epochs was permitted to be forgotten; judgement: what permitted it of the last one.
    """

    seen: int = 0
    by: int | None = None
    forgotten: bool = True
    judgement: Judgement | None = None


def _fenced(own: Sequence[tuple[int, Transaction]], history: History, home: tuple[str, int] | None) -> Iterator[Fenced]:
    """Yield what was fenced among one producer's transactions, which are in the order in which they began.

    A zombie may go on and on. So what is known of those that fenced it is kept from one to the next: for each epoch, and for each end that
    sees something else lost.
    """
    later: dict[Hashable, _Later] = {}
    greatest = -1
    for number, row in own:
        epoch = -1 if row.producer_epoch is None else row.producer_epoch
        if epoch < greatest:
            before = later.setdefault((epoch, _absence(history, home, row)), _Later())
            while own[before.seen][1].begin_ns < row.begin_ns:
                by, one = own[before.seen]
                before.seen += 1
                if (one.producer_epoch or 0) <= epoch:
                    continue
                before.by = by
                if before.forgotten:
                    before.judgement = _forgotten(history, home, one, row)
                    before.forgotten = before.judgement is not None
            if before.by is not None:
                yield Fenced(number, before.by, before.judgement)
        greatest = max(greatest, epoch)


def _absence(history: History, home: tuple[str, int] | None, later: Transaction) -> Hashable:
    """Return what it matters to `_forgotten` when the later transaction ended."""
    if home is None or later.end_ns is None:
        return None
    timeline = history.timeline(*home)
    return timeline.absence(later.end_ns), timeline.absence(later.end_ns - OBSERVATION_LAG_NS)


def _are_of_epochs(txns: pa.Table) -> Array:
    """Return which rows are committed transactions that say with which epoch of which producer they were made."""
    wanted = pc.equal(txns["outcome"].cast(pa.string()), COMMITTED)
    for name in ("producer_id", "producer_epoch", "end_ns"):
        wanted = pc.and_(wanted, pc.is_valid(txns[name]))
    return np.asarray(wanted.to_numpy())


def _forgotten(
    history: History, home: tuple[str, int] | None, one: Transaction, later: Transaction
) -> Judgement | None:
    """Return what permitted the loss of a committed transaction's epoch, which its decision says, before a later one had ended."""
    if home is None:
        return None
    found = history.timeline(*home).permitting(one.begin_ns, later.end_ns, done_ns=one.end_ns)
    if found is None or found.promise.must_survive:
        return None
    return replace(found, promise=Promise(rule=Excuse.END_LOST, violations=()), by=found.promise.rule)
