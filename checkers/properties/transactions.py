"""Transactions that no order explains: aborted reads, cycles, lists that contradict each other (Adya, Elle).

Looks at the table txns as a dependency graph. `append` and `read` are list-append transactions and must be strictly serializable.
`send` and `poll` are Kafka's, whose messages have offsets; polls are taken to be read_committed. Kafka promises no order between
transactions that only send (G0), and a subscriber's positions may move when partitions change hands: those are facts, not
violations. What was lost for everybody is `lost_writes`' business.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from tribunal.checkers.api import (
    Excuse,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    anomalies,
    nothing,
)
from tribunal.checkers.graphs import list_append, send_poll
from tribunal.checkers.graphs.columns import ListSteps
from tribunal.checkers.graphs.findings import AbortedMessage, Contradiction, Findings
from tribunal.checkers.graphs.models import RULES_OUT, ruled_out
from tribunal.checkers.graphs.send_poll import ABORTED, LogHistory
from tribunal.checkers.judge.fenced import Fenced, fenced_commits
from tribunal.checkers.judge.lost_orders import is_of_order, permitted_orders
from tribunal.checkers.judge.timeline import History, Judgement
from tribunal.results.store import partition_order
from tribunal.results.verdict import Detail

NOTES: Final = {
    "G0": "transactions' writes interleave, which Kafka allows",
    "G0-realtime": "transactions' writes stand in another order than they were made in, which Kafka allows",
    "lost-write": "the transactions' own polls passed a committed record over",
    "poll-skip": "a consumer's position skipped records between two transactions",
    "nonmonotonic-poll": "a consumer's position went back between two transactions",
    "int-poll-skip": "a consumer's position skipped records within a transaction",
    "int-nonmonotonic-poll": "a consumer's position went back within a transaction",
    "undecided": "the search for a cycle took more than its budget",
}
CONTRADICTED: Final = "inconsistent-offsets"
FENCED: Final = "fenced_commit"
LISTS: Final = {"G0": "list-G0"}  # of lists an anomaly means more than of messages
MADE: Final = ["begin_ns", "process"]
SENTENCES: Final = {
    "G1a": "a transaction read what an aborted one wrote",
    "G1b": "a transaction read what another one had not finished writing",
    "duplicate": "a transaction's record stands at two offsets",
    "precommitted-read": "a transaction read what it had not committed yet",
    "duplicate-elements": "an element stands twice in a list",
    "incompatible-order": "two reads of a list contradict each other",
    "dirty-update": "a committed append stands behind an aborted one",
    "lost-update": "two transactions read the same version and both appended to it",
    "phantom": "a transaction read an element that nobody appended",
    "internal": "a transaction's read contradicts its own steps",
    "future-read": "a transaction read what it wrote itself only later",
}


def _excuses(kind: str) -> tuple[Excuse, ...]:
    of_order = (Excuse.ORDER_LOST,) if is_of_order(kind) else ()
    return (*of_order, Excuse.END_LOST) if kind == ABORTED else of_order


KINDS: Final = {
    **{name: Kind(Meaning.VIOLATION, SENTENCES.get(name, f"transactions depend on each other in a circle ({name})"), _excuses(name))
       for name in (*SENTENCES, *RULES_OUT) if name not in ("cyclic-versions", "inconsistent-offsets")},
    **{name: Kind(Meaning.NOTE, sentence, _excuses(name)) for name, sentence in NOTES.items()},
    CONTRADICTED: Kind(Meaning.PROMISED, "two values were seen at one offset"),
    FENCED: Kind(
        Meaning.VIOLATION,
        "a transaction began and was committed under a producer epoch that a later one had replaced (KIP-98)",
        (Excuse.END_LOST,),
    ),
    "list-G0": Kind(Meaning.VIOLATION, "transactions overwrite each other in a circle (G0)", _excuses("list-G0")),
}  # fmt: skip
# Who sends and polls outside of transactions is not in the table: what such messages lack here is no fact.
UNSURE: Final = frozenset({"phantom", "unseen", "nonmonotonic-send", "int-send-skip", "int-nonmonotonic-send"})


def run_kernel(run: PartitionRows, history: History) -> Found:
    """Judge a run's transactions: those with lists and those with messages apart.

    returns:  one row per example; its detail names the transactions by row (T12), and the models that are ruled out.
    source:   Adya 1999; Alvaro and Kingsbury 2020; KIP-98, "Guarantees".
    """
    txns = run.table("txns")
    if txns.num_rows == 0:
        return Found(nothing(), {"transactions": 0})
    lists, messages = ListSteps.recorded(txns), LogHistory.recorded(txns)
    gathered = Gathered(lambda rows: txns.select(MADE).take(pa.array(rows, pa.int64())))
    if lists.txn.size:
        checked = list_append.check(lists)
        excused = permitted_orders(lists, checked, history)
        gathered.add(checked if excused is None else excused.kept, LISTS)
        if excused is not None:
            gathered.add(excused.permitted, LISTS, excused.judgement)
    if messages.sends.operation.size or messages.reads.operation.size:
        gathered.add_messages(send_poll.check(messages, ww=False))
    gathered.add_fenced(list(fenced_commits(txns, history)))
    return gathered.found(txns.num_rows)


class Gathered:
    """What is found of a run's transactions, some after the other."""

    def __init__(self, made: Callable[[Sequence[int]], pa.Table]) -> None:
        """Gather it.

        made:  returns columns MADE of some rows of `txns`, in their order.
        """
        self._made = made
        self._tables = [nothing()]
        self._rows = 0
        self._judgements: dict[int, Judgement] = {}
        self._details: dict[int, Detail] = {}
        self._contradictions: dict[int, Contradiction | AbortedMessage] = {}

    def found(self, count: int) -> Found:
        """Return all of it; `count`: how many transactions there are."""
        return Found(
            pa.concat_tables(self._tables), {"transactions": count}, judgements=self._judgements, details=self._details,
            contradictions=self._contradictions,
        )  # fmt: skip

    def add(self, found: Findings, renamed: Mapping[str, str], judgement: Judgement | None = None) -> None:
        """Add the examples and their facts; `judgement`: of each of them."""
        before = self._rows
        for name, witnesses in found.witnesses.items():
            kind = renamed.get(name, name)
            if (name in (*UNSURE, ABORTED) and not renamed) or kind not in KINDS or kind == CONTRADICTED:
                continue
            weakest, model = _models(name)
            more = found.counts[name] - len(witnesses)
            words = [witness.words + model for witness in witnesses]
            words[0] += f" ({more} more like these)" if more else ""
            for row, witness in enumerate(witnesses, self._rows):
                self._details[row] = Detail(edges=witness.edges or None, rules_out=tuple(weakest) or None)
            self._take(kind, words, [witness.operations[0] if witness.operations else None for witness in witnesses])
        if found.undecided:
            self._put(anomalies("undecided", detail=[", ".join(sorted(set(found.undecided)))]))
        if judgement is not None:
            self._judgements |= dict.fromkeys(range(before, self._rows), judgement)

    def add_messages(self, found: Findings) -> None:
        """Add what is found of messages; what stands at one offset, and what was aborted, is judged where its partition is."""
        self._contradictions |= dict(enumerate(found.contradictions, self._rows))
        writers = [one.writers[0] if one.writers else None for one in found.contradictions]
        self._take(CONTRADICTED, [one.words for one in found.contradictions], writers)
        self._add_aborted(found)
        self.add(found, {})

    def _add_aborted(self, found: Findings) -> None:
        polled = sorted(found.aborted.values(), key=lambda one: (*partition_order(one.key), one.log_offset, one.value))
        weakest, model = _models(ABORTED)
        self._contradictions |= dict(enumerate(polled, self._rows))
        self._details |= {row: Detail(rules_out=tuple(weakest)) for row in range(self._rows, self._rows + len(polled))}
        counts = [f" (polled {one.count} times)" if one.count > 1 else "" for one in polled]
        words = [f"{one.words}{model}{count}" for one, count in zip(polled, counts, strict=True)]
        self._take(ABORTED, words, [one.writer for one in polled])

    def add_fenced(self, found: Sequence[Fenced]) -> None:
        """Add what was to be refused."""
        own = {row: one.judgement for row, one in enumerate(found, self._rows) if one.judgement is not None}
        self._judgements |= own
        words = [f"T{one.row} began after T{one.by}, of a later epoch" for one in found]
        self._take(FENCED, words, [one.row for one in found])

    def _take(self, kind: str, words: list[str], transactions: Sequence[int | None]) -> None:
        """Put anomalies of a kind to the others, each with a transaction, by its row, or none."""
        rows = self._made([row for row in transactions if row is not None])
        made = zip(rows["begin_ns"].to_pylist(), rows["process"].to_pylist(), strict=True)
        known = [(-1, -1) if row is None else next(made) for row in transactions]
        self._put(anomalies(kind, detail=words, at_ns=[at for at, _ in known], process=[own for _, own in known]))

    def _put(self, rows: pa.Table) -> None:
        self._tables.append(rows)
        self._rows += rows.num_rows


def _models(anomaly: str) -> tuple[Sequence[str], str]:
    """Return the weakest models that an anomaly rules out, and how a finding says so."""
    weakest, _ = ruled_out([anomaly])
    return weakest, f"; rules out {', '.join(weakest)}" if weakest else ""


PROPERTY: Final = Property(
    tables=("txns",),
    kinds=KINDS,
    run_kernel=run_kernel,
)
