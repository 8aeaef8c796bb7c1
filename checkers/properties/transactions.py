"""Transactions that no order explains: aborted reads, cycles, lists that contradict each other (Adya, Elle).

Looks at the table txns as a dependency graph. `append` and `read` are list-append transactions and must be strictly serializable.
`send` and `poll` are Kafka's, whose messages have offsets; polls are taken to be read_committed. Kafka promises no order between
transactions that only send (G0), and a subscriber's positions may move when partitions change hands: those are facts, not
violations. What was lost for everybody is `lost_writes`' business.
"""

from collections.abc import Mapping
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
from tribunal.checkers.graphs.findings import Contradiction, Findings
from tribunal.checkers.graphs.models import RULES_OUT, ruled_out
from tribunal.checkers.graphs.send_poll import LogHistory
from tribunal.checkers.judge.fenced import fenced_commits
from tribunal.checkers.judge.lost_orders import is_of_order, permitted_orders
from tribunal.checkers.judge.timeline import History, Judgement
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
    return (Excuse.ORDER_LOST,) if is_of_order(kind) else ()


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
    found: list[pa.Table] = [nothing()]
    judgements: dict[int, Judgement] = {}
    contradictions: dict[int, Contradiction] = {}
    details: dict[int, Detail] = {}
    if lists.txn.size:
        checked = list_append.check(lists)
        excused = permitted_orders(lists, checked, history)
        kept, first = (checked, Findings()) if excused is None else (excused.kept, excused.permitted)
        for part in (kept, first):
            own, more = _anomalies(part, txns, {"G0": "list-G0"})
            before = sum(table.num_rows for table in found)
            if part is first and excused is not None:
                judgements |= dict.fromkeys(range(before, before + own.num_rows), excused.judgement)
            details |= {before + row: detail for row, detail in more.items()}
            found.append(own)
    if messages.sends.operation.size or messages.reads.operation.size:
        result = send_poll.check(messages, ww=False)
        first = sum(table.num_rows for table in found)
        contradictions = dict(enumerate(result.contradictions, first))
        found.append(_contradictions(result.contradictions, txns))
        first = sum(table.num_rows for table in found)
        own, more = _anomalies(result, txns, {})
        found.append(own)
        details |= {first + row: detail for row, detail in more.items()}
    fenced = list(fenced_commits(txns, history))
    first = sum(table.num_rows for table in found)
    judgements |= {first + row: one.judgement for row, one in enumerate(fenced) if one.judgement is not None}
    found.append(
        anomalies(
            FENCED,
            detail=[f"T{one.row} began after T{one.by}, of a later epoch" for one in fenced],
            at_ns=[txns["begin_ns"][one.row].as_py() for one in fenced],
            process=[txns["process"][one.row].as_py() for one in fenced],
        )
    )
    figures = {"transactions": txns.num_rows}
    return Found(
        pa.concat_tables(found), figures, judgements=judgements, details=details, contradictions=contradictions
    )


def _contradictions(found: list[Contradiction], txns: pa.Table) -> pa.Table:
    first = [one.writers[0] if one.writers else None for one in found]
    return anomalies(
        CONTRADICTED,
        detail=[one.words for one in found],
        at_ns=[-1 if row is None else txns["begin_ns"][row].as_py() for row in first],
        process=[-1 if row is None else txns["process"][row].as_py() for row in first],
    )


def _anomalies(found: Findings, txns: pa.Table, renamed: Mapping[str, str]) -> tuple[pa.Table, dict[int, Detail]]:
    """Return the examples and their facts."""
    tables, facts = [nothing()], {}
    for name, witnesses in found.witnesses.items():
        kind = renamed.get(name, name)
        if (name in UNSURE and not renamed) or kind not in KINDS or kind == CONTRADICTED:
            continue
        weakest, _ = ruled_out([name])
        model = f"; rules out {', '.join(weakest)}" if weakest else ""
        more = found.counts[name] - len(witnesses)
        details = [witness.words + model for witness in witnesses]
        details[0] += f" ({more} more like these)" if more else ""
        first = [witness.operations[0] if witness.operations else None for witness in witnesses]
        for row, witness in enumerate(witnesses, sum(table.num_rows for table in tables)):
            facts[row] = Detail(edges=witness.edges or None, rules_out=tuple(weakest) or None)
        tables.append(
            anomalies(
                kind,
                detail=details,
                at_ns=[-1 if row is None else txns["begin_ns"][row].as_py() for row in first],
                process=[-1 if row is None else txns["process"][row].as_py() for row in first],
            )
        )
    if found.undecided:
        tables.append(anomalies("undecided", detail=[", ".join(sorted(set(found.undecided)))]))
    return pa.concat_tables(tables), facts


PROPERTY: Final = Property(
    tables=("txns",),
    kinds=KINDS,
    run_kernel=run_kernel,
)
