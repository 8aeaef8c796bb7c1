"""Transactions that no order explains: aborted reads, cycles, lists that contradict each other (Adya, Elle).

Looks at the table txns as a dependency graph. `append` and `read` are list-append transactions and must be strictly serializable.
`send` and `poll` are Kafka's, whose messages have offsets; polls are taken to be read_committed. Kafka promises no order between
transactions that only send (G0), and a subscriber's positions may move when partitions change hands: those are facts, not
violations. What was lost for everybody is `lost_writes`' business.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from checkers.api import Found, Kind, Meaning, PartitionRows, anomalies, nothing
from checkers.graphs import list_append, send_poll
from checkers.graphs.findings import Findings
from checkers.graphs.models import RULES_OUT, ruled_out
from checkers.graphs.operations import OPEN_END, Operation, Outcome
from checkers.timeline import History

TABLES: Final = ("txns",)
OUTCOMES: Final[Mapping[str, Outcome]] = {"committed": "ok", "aborted": "fail", "info": "info"}
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
SENTENCES: Final = {
    "G1a": "a transaction read what an aborted one wrote",
    "G1b": "a transaction read what another one had not finished writing",
    "duplicate": "a transaction's record stands at two offsets",
    "inconsistent-offsets": "two values were seen at one offset",
    "precommitted-read": "a transaction read what it had not committed yet",
    "duplicate-elements": "an element stands twice in a list",
    "incompatible-order": "two reads of a list contradict each other",
    "dirty-update": "a committed append stands behind an aborted one",
    "lost-update": "two transactions read the same version and both appended to it",
    "phantom": "a transaction read an element that nobody appended",
    "internal": "a transaction's read contradicts its own steps",
}
KINDS: Final = {
    **{name: Kind(Meaning.VIOLATION, SENTENCES.get(name, f"transactions depend on each other in a circle ({name})"))
       for name in (*SENTENCES, *RULES_OUT) if name not in ("cyclic-versions", "future-read")},
    **{name: Kind(Meaning.NOTE, sentence) for name, sentence in NOTES.items()},
    "list-G0": Kind(Meaning.VIOLATION, "transactions overwrite each other in a circle (G0)"),
}  # fmt: skip
# Who sends and polls outside of transactions is not in the table: what such messages lack here is no fact.
UNSURE: Final = frozenset({"phantom", "unseen", "nonmonotonic-send", "int-send-skip", "int-nonmonotonic-send"})


def run_kernel(run: PartitionRows, history: History) -> Found:
    """Judge a run's transactions: those with lists and those with messages apart.

    returns:  one row per example; its detail names the transactions by row (T12), and the models that are ruled out.
    source:   Adya 1999; Alvaro and Kingsbury 2020; KIP-98, "Guarantees".
    """
    rows = run.table("txns").to_pylist()
    lists = list(operations(rows, ("append", "read")))
    messages = list(operations(rows, ("send", "poll")))
    found = []
    if lists:
        listed = list_append.check(lists)
        found.append(_anomalies(listed, rows, {"G0": "list-G0"}))
    if messages:
        found.append(_anomalies(send_poll.check(messages, ww=False), rows, {}))
    return Found(pa.concat_tables(found) if found else nothing(), {"transactions": len(rows)})


def operations(rows: Sequence[Mapping[str, Any]], kinds: tuple[str, str]) -> Iterator[Operation]:
    """Return the transactions with steps of these kinds; their index is their row."""
    for number, row in enumerate(rows):
        steps = [step for step in row["operations"] or () if step["kind"] in kinds]
        if steps:
            outcome = OUTCOMES[row["outcome"]]
            ended = OPEN_END if outcome == "info" or row["end_ns"] is None else row["end_ns"]
            yield Operation(
                index=number,
                process=row["process"],
                outcome=outcome,
                function="txn",
                invoked=row["begin_ns"],
                completed=ended,
                steps=tuple(_steps(steps)),
            )


def _steps(steps: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Consecutive rows of one poll, or of one list that was read, are one step."""
    for (kind, key), group in groupby(steps, _what):
        members = list(group)
        if kind == "poll":
            polled: dict[str, list[list[int | None]]] = {}
            for step in members:
                polled.setdefault(_key(step), []).append([step["log_offset"], step["value"]])
            yield "poll", polled
        elif kind == "read":
            yield "r", key, [step["value"] for step in members if step["value"] is not None]
        elif kind == "append":
            yield from (("append", key, step["value"]) for step in members)
        else:
            yield from (("send", key, [step["log_offset"], step["value"]]) for step in members)


def _what(step: Mapping[str, Any]) -> tuple[str, str]:
    return step["kind"], "" if step["kind"] == "poll" else _key(step)


def _key(step: Mapping[str, Any]) -> str:
    return f"{step['topic']}-{step['partition']}"


def _anomalies(found: Findings, rows: Sequence[Mapping[str, Any]], renamed: Mapping[str, str]) -> pa.Table:
    tables = []
    for name, witnesses in found.witnesses.items():
        kind = renamed.get(name, name)
        if (name in UNSURE and not renamed) or kind not in KINDS:
            continue
        weakest, _ = ruled_out([name])
        model = f"; rules out {', '.join(weakest)}" if weakest else ""
        more = found.counts[name] - len(witnesses)
        details = [witness.words + model for witness in witnesses]
        details[0] += f" ({more} more like these)" if more else ""
        first = [witness.operations[0] if witness.operations else None for witness in witnesses]
        tables.append(
            anomalies(
                kind,
                detail=details,
                at_ns=[-1 if row is None else rows[row]["begin_ns"] for row in first],
                process=[-1 if row is None else rows[row]["process"] for row in first],
            )
        )
    if found.undecided:
        tables.append(anomalies("undecided", detail=[", ".join(sorted(set(found.undecided)))]))
    return pa.concat_tables(tables) if tables else nothing()
