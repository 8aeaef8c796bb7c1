"""The rules that permit a loss, in words for who has never seen a log of records: what an abstract says that may be quoted.

docs/verdicts.md says exactly when each permits what; its own short words stand with every finding (`Detail.promise`).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tribunal.results.verdict import Finding

IN_PLAIN_WORDS: Final = {
    "R1": "more brokers that held them had crashed than the settings survive (min.insync.replicas), none was left that is sure to have every record, and the disk of the last leader had provably lost them",
    "R2": "every one of the last brokers that were sure to have them had provably lost them from its disk, and the best log that was left was chosen",
    "R3": "without eligible leader replicas a broker may lead again after a crash, and its disk had provably lost them",
    "R4": "a broker that was not up to date may lead where the settings or an operator's order allow it, and one without them was elected",
    "R5": "only one broker had confirmed them (acks=1), and another one took its place or its disk had lost them",
    "R6": "their sender had asked for no confirmation (acks=0)",
    "R7": "a fault damaged the leader's files while it ran, which nothing sees before it starts again",
    "R8": "with records that may be lost, or after a silence as long as they have to remember a sender, brokers forgot what it had sent already, and took it a second time",
    "R9": "the entry that ends a transaction was among the records that may be lost",
    "R10": "transactions had read or built on records that may be lost",
    "R11": "the positions of groups of consumers were among the records that may be lost",
    "R12": "consumers had read on behind records that may be lost, and what was written in their place lies before their positions",
    "R13": "the system's own file says that what was confirmed shortly before its only node is killed may be lost",
    "R14": "before release 2.2 a new leader of Apache Kafka may answer with an older end of the log than was known",
    "R15": "the system's own file says that a node need not start again after such a fault",
    "R16": "the system's own file says that what one node alone had confirmed may be lost when such a fault strikes it",
    "gone_by_order": "an order took them (a deletion, the limits of what is kept, a newer record under their key, the end of their topic, or a position that was set)",
}  # fmt: skip


class RuleInWords(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that permitted something; `plain` is for everybody, `own` the judge's words for it, `count` how often it did."""

    name: str
    plain: str
    own: str
    count: int


def rules_of(findings: Iterable[Finding]) -> list[RuleInWords]:
    """Return the rules that permitted these findings, the one that permitted most first."""
    counts: dict[str, int] = {}
    own: dict[str, str] = {}
    for one in findings:
        counts[one.rule] = counts.get(one.rule, 0) + one.count
        if one.detail.promise:
            own.setdefault(one.rule, one.detail.promise)
    return [
        RuleInWords(name=name, plain=IN_PLAIN_WORDS.get(name, own.get(name, "")), own=own.get(name, ""), count=count)
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
