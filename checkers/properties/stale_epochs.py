"""Requests from a broker's former life are refused: by brokers (KIP-380) and by the controller (KIP-903).

Looks at the table `requests`. A request whose broker epoch, or that of a replica it wants in the ISR, is older than what the metadata
log had registered before it arrived must be answered with an error. What the observer of the links writes into `summary` is
JSON: of a request `broker_id`, `broker_epoch`, `members` ([[broker, epoch], ...] of an AlterPartition's new ISR), of an answer
`error` (a name, NONE for none). Requests without a recorded answer accuse nobody.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from tribunal.checkers.api import (
    ANOMALY,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
)
from tribunal.checkers.judge.timeline import History

# LeaderAndIsr, StopReplica, UpdateMetadata go to a broker; AlterPartition, BrokerHeartbeat come from one.
TO_BROKERS: Final = frozenset({4, 5, 6})
FROM_BROKERS: Final = frozenset({56, 63})
KINDS: Final = {
    "stale_request_accepted": Kind(
        Meaning.VIOLATION, "a request of a broker's former life was carried out (KIP-380, KIP-631)"
    ),
    "stale_member_accepted": Kind(Meaning.VIOLATION, "a replica of a former life was let into the ISR (KIP-903)"),
}
CONTROL: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("source", pa.int32()),
        ("target", pa.int32()),
        ("api_key", pa.int32()),
        ("at_ns", pa.int64()),
        ("role", pa.string()),
        ("node", pa.int32()),
        ("broker_epoch", pa.int64()),
        ("error", pa.string()),
    ]
)
REGISTERED: Final = pa.schema([("node", pa.int32()), ("broker_epoch", pa.int64()), ("at_ns", pa.int64())])


def run_kernel(run: PartitionRows, history: History) -> Found:
    """Compare the epochs in answered requests with those registered before they arrived.

    returns:  one row per request and broker; node is the broker whose epoch is stale.
    source:   KIP-380, "Public Interfaces"; KIP-903, "Proposed Changes".
    """
    asked = answered(run.table("requests")).to_pylist()
    known = registered(run.table("metadata")).to_pylist() if asked else []
    rows = []
    for request in asked:
        before = [row["broker_epoch"] for row in known
                  if row["node"] == request["node"] and row["at_ns"] < request["at_ns"]]  # fmt: skip
        if before and request["broker_epoch"] < max(before) and request["error"] == "NONE":
            kind = "stale_member_accepted" if request["role"] == "member" else "stale_request_accepted"
            rows.append(dict.fromkeys(ANOMALY.names) | {
                "kind": kind, "at_ns": request["at_ns"], "node": request["node"], "detail": _told(request, max(before)),
            })  # fmt: skip
    return Found(pa.Table.from_pylist(rows, schema=ANOMALY), {"answered requests with broker epochs": len(asked)})


def _told(request: Mapping[str, Any], newest: int) -> str:
    return (
        f"request {request['api_key']} from {request['source']} to {request['target']} "
        f"names broker epoch {request['broker_epoch']}, registered was {newest}"
    )


def answered(requests: pa.Table) -> pa.Table:
    """Return answered control requests, a row for each broker epoch that they name: CONTROL."""
    waiting: dict[tuple[int, int, int, int], list[dict[str, Any]]] = {}
    rows = []
    for number, row in enumerate(requests.sort_by("at_ns").to_pylist()):
        summary = _summary(row["summary"])
        if row["api_key"] not in TO_BROKERS | FROM_BROKERS or row["correlation_id"] is None:
            continue
        if row["direction"].startswith("req"):
            place = (row["from"], row["to"], row["api_key"], row["correlation_id"])
            waiting.setdefault(place, []).append(row | {"number": number, "summary": summary})
            continue
        # Each end of the link sees the answer's ends the other way round.
        place = (row["to"], row["from"], row["api_key"], row["correlation_id"])
        open_ = waiting.pop(place, [])
        if "error" in summary:
            rows += [named for request in open_[-1:] for named in _named(request, str(summary["error"]))]
    return pa.Table.from_pylist(rows, schema=CONTROL)


def _summary(text: str | None) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {}
    return told if isinstance(told, dict) else {}


def _named(request: Mapping[str, Any], error: str) -> Iterator[dict[str, Any]]:
    place = {"number": request["number"], "source": request["from"], "target": request["to"], "error": error}
    place |= {"api_key": request["api_key"], "at_ns": request["at_ns"]}
    summary = request["summary"]
    if summary.get("broker_epoch", -1) >= 0:
        own = request["to"] if request["api_key"] in TO_BROKERS else summary.get("broker_id", request["from"])
        yield place | {"role": "request", "node": own, "broker_epoch": summary["broker_epoch"]}
    for node, epoch in summary.get("members") or ():
        if epoch >= 0:
            yield place | {"role": "member", "node": node, "broker_epoch": epoch}


def registered(metadata: pa.Table) -> pa.Table:
    """Return the brokers' registrations as the metadata log was observed to hold them: REGISTERED."""
    rows = [row for row in metadata.to_pylist() if row["record_type"] == "RegisterBrokerRecord"]
    bodies = [msgspec.json.decode(row["body"]) for row in rows]
    return pa.Table.from_pylist(
        [
            {"node": body["broker_id"], "broker_epoch": body["broker_epoch"], "at_ns": row["at_ns"]}
            for row, body in zip(rows, bodies, strict=True)
            if row["at_ns"] is not None
        ],
        schema=REGISTERED,
    )


SQL: Final = """
WITH stale AS (
  SELECT c.run_id, c.number, c.role, c.node, c.api_key, c.source, c.target, c.at_ns, c.broker_epoch,
         MAX(r.broker_epoch) AS newest_epoch
  FROM control_requests c JOIN registered r ON c.run_id = r.run_id AND c.node = r.node AND r.at_ns < c.at_ns
  WHERE c.error = 'NONE'
  GROUP BY c.run_id, c.number, c.role, c.node, c.api_key, c.source, c.target, c.at_ns, c.broker_epoch
  HAVING c.broker_epoch < MAX(r.broker_epoch)
)
SELECT run_id, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
       CASE WHEN role = 'member' THEN 'stale_member_accepted' ELSE 'stale_request_accepted' END AS kind,
       CAST(NULL AS BIGINT) AS log_offset, CAST(NULL AS BIGINT) AS value, CAST(NULL AS INT) AS acks,
       CAST(NULL AS BIGINT) AS invoke_ns, at_ns, CAST(NULL AS INT) AS leader_epoch, CAST(NULL AS BIGINT) AS other_offset, node,
       CONCAT('request ', CAST(api_key AS STRING), ' from ', CAST(source AS STRING), ' to ', CAST(target AS STRING),
              ' names broker epoch ', CAST(broker_epoch AS STRING), ', registered was ', CAST(newest_epoch AS STRING)) AS detail
FROM stale
"""


PROPERTY: Final = Property(
    tables=("requests", "metadata"),
    kinds=KINDS,
    run_kernel=run_kernel,
    sql=SQL,
)
