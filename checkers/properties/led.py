"""A partition whose ISR (or, that being empty, ELR) has a member that could lead is not left without leader.

An election stands in the very batch of metadata that makes it possible (SPEC 2.6), so what is judged is the committed metadata: from the last heal
on, a member is registered, neither fenced nor in controlled shutdown, its log directories online and its process running, and the
partition stays without leader although the controllers go on to commit, to the end or until somebody leads after all. In ZooKeeper mode a controller may
first have to be replaced: a session's time-out and five seconds more. Where a fault was never healed nothing is claimed, but that of a
broker that is no controller: it keeps no other one from being elected. Without ELR (KRaft) who lost the whole log to its own disk stays in the ISR and is
not elected as if it were whole: nothing is claimed of that member. Nor is anything of one whose disk was replaced, also where nothing was on it: metadata
said when it was unfenced that its replica lay in a directory that was gone, and until a broker with a replica is unfenced after it has said where it lies
now nobody is elected.
"""

from typing import Final

from tribunal.checkers.api import Anomaly, Context, Found, Kind, Meaning, PartitionRows, Property, anomalies, nothing
from tribunal.checkers.judge.presence import leaderless

KINDS: Final = {
    "leaderless": Kind(
        Meaning.VIOLATION,
        "a partition stays without leader although a member of its ISR or ELR, or of the ELR that a change of min ISR cleared, could lead (liveness: docs/spec.md, section 2.6)",
    ),
}


def kernel(rows: PartitionRows, context: Context) -> Found:
    """Look at the committed history after the last heal.

    returns:  one row: node could lead, from invoke_ns to at_ns.
    source:   SPEC 2.6; docs/verdicts.md, "Lost or unread?".
    """
    found = leaderless(context.history, context.settings, context.of_run, context.place)
    if found is None:
        return Found(nothing())
    return Found(
        anomalies(
            "leaderless",
            node=[found.node],
            invoke_ns=[found.since_ns],
            at_ns=[found.until_ns],
            leader_epoch=[found.leader_epoch],
        )
    )


def detail(anomaly: Anomaly) -> str:
    """Say who could have led, and for how long."""
    waited = ((anomaly.at_ns or 0) - (anomaly.invoke_ns or 0)) / 1e9
    return f"broker {anomaly.node} could lead for {waited:.1f} s, and nobody was elected"


SQL: Final = """
SELECT run_id, topic, partition, 'leaderless' AS kind, node, since_ns AS invoke_ns, until_ns AS at_ns, leader_epoch,
       CAST(NULL AS BIGINT) AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks,
       CAST(NULL AS BIGINT) AS other_offset
FROM leaderless
"""


PROPERTY: Final = Property(
    tables=("watermarks",),
    kinds=KINDS,
    kernel=kernel,
    detail=detail,
    sql=SQL,
)
