"""Requests with a stale broker epoch are refused: by brokers (KIP-380) and by the controller (KIP-903).

Looks at the table `requests`. A request whose broker epoch, or that of a replica it wants in the ISR, is older than what the metadata
log had registered before it arrived must be answered with an error. What the observer of the links writes into `summary` is
JSON: of a request `broker_id`, `broker_epoch`, `members` ([[broker, epoch], ...] of an AlterPartition's new ISR), of an answer
`error` (a name, NONE for none). Requests without a recorded answer are not judged.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import (
    Anomaly,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    table_of,
)
from tribunal.checkers.judge.timeline import History
from tribunal.results.metadata import registrations
from tribunal.results.rows import Request, typed
from tribunal.results.unreadable import UNREADABLE

# LeaderAndIsr, StopReplica, UpdateMetadata go to a broker; AlterPartition, BrokerHeartbeat come from one.
TO_BROKERS: Final = frozenset({4, 5, 6})
FROM_BROKERS: Final = frozenset({56, 63})
KINDS: Final = {
    "stale_request_accepted": Kind(
        Meaning.VIOLATION, "a request with a stale broker epoch was carried out (KIP-380, KIP-631)"
    ),
    "stale_member_accepted": Kind(
        Meaning.VIOLATION, "a replica with a stale broker epoch was added to the ISR (KIP-903)"
    ),
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


class Summary(msgspec.Struct, frozen=True):
    """What the observer of the links wrote of a request, or of an answer."""

    broker_id: int | None = None
    broker_epoch: int = -1
    members: tuple[tuple[int, int], ...] = ()
    error: str | None = None


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A broker epoch in an answered control request: a row of CONTROL."""

    number: int
    source: int
    target: int
    api_key: int
    at_ns: int
    role: Literal["request", "member"]
    node: int
    broker_epoch: int
    error: str


def run_kernel(run: PartitionRows, history: History) -> Found:
    """Compare the epochs in answered requests with those registered before they arrived.

    returns:  one row per request and broker; node is the broker whose epoch is stale.
    source:   KIP-380, "Public Interfaces"; KIP-903, "Proposed Changes".
    """
    asked = answered(run.table("requests"))
    known = _newest(run.table("metadata")) if asked else {}
    rows = []
    for request in asked:
        times, newest = known.get(request.node, ([], []))
        before = bisect_left(times, request.at_ns)
        if before and request.broker_epoch < newest[before - 1] and request.error == "NONE":
            kind = "stale_member_accepted" if request.role == "member" else "stale_request_accepted"
            detail = _described(request, newest[before - 1])
            rows.append(Anomaly(kind=kind, at_ns=request.at_ns, node=request.node, detail=detail))
    return Found(table_of(rows), {"answered requests with broker epochs": len(asked)})


def _newest(metadata: pa.Table) -> dict[int, tuple[list[int], list[int]]]:
    """Return for each broker when registrations of it were observed, ascending, and the newest broker epoch that there had been then."""
    found: dict[int, list[tuple[int, int]]] = {}
    for one in registrations(metadata):
        if one.at_ns is not None:
            found.setdefault(one.record.broker_id, []).append((one.at_ns, one.record.broker_epoch))
    columns = {node: list(zip(*sorted(own), strict=True)) for node, own in found.items()}
    return {node: (list(times), list(accumulate(epochs, max))) for node, (times, epochs) in columns.items()}


def _described(request: ControlRequest, newest: int) -> str:
    return (
        f"request {request.api_key} from {request.source} to {request.target} "
        f"names broker epoch {request.broker_epoch}, registered was {newest}"
    )


def answered(requests: pa.Table) -> list[ControlRequest]:
    """Return answered control requests, one for each broker epoch that they name."""
    in_order = requests.sort_by("at_ns")
    control = pc.is_in(in_order["api_key"], value_set=pa.array(sorted(TO_BROKERS | FROM_BROKERS), pa.int32()))
    chosen = np.flatnonzero(pc.and_(control, pc.is_valid(in_order["correlation_id"])).to_numpy())
    waiting: dict[tuple[int, int, int, int | None], tuple[int, Request, Summary]] = {}
    found: list[ControlRequest] = []
    for number, row in zip(chosen.tolist(), typed(in_order.take(chosen), Request), strict=True):
        summary = _summary(row.summary)
        if row.direction.startswith("req"):
            waiting[row.source, row.target, row.api_key, row.correlation_id] = (number, row, summary)
            continue
        # Each end of the link sees the answer's ends the other way round.
        request = waiting.pop((row.target, row.source, row.api_key, row.correlation_id), None)
        if request is not None and summary.error is not None:
            found += _named(*request, summary.error)
    return found


def _summary(text: str | None) -> Summary:
    """Return what the observer wrote; what is of another form says nothing."""
    try:
        return msgspec.json.decode(text or "{}", type=Summary)
    except UNREADABLE:
        return Summary()


def _named(number: int, request: Request, summary: Summary, error: str) -> Iterator[ControlRequest]:
    named: list[tuple[Literal["request", "member"], int, int]] = []
    if summary.broker_epoch >= 0:
        sender = request.source if summary.broker_id is None else summary.broker_id
        own = request.target if request.api_key in TO_BROKERS else sender
        named.append(("request", own, summary.broker_epoch))
    named += [("member", node, epoch) for node, epoch in summary.members if epoch >= 0]
    for role, node, epoch in named:
        yield ControlRequest(
            number=number, source=request.source, target=request.target, api_key=request.api_key, at_ns=request.at_ns,
            role=role, node=node, broker_epoch=epoch, error=error,
        )  # fmt: skip


def control_requests(requests: pa.Table) -> pa.Table:
    """Return answered control requests as a table: CONTROL."""
    return pa.Table.from_pylist([msgspec.structs.asdict(one) for one in answered(requests)], schema=CONTROL)


def registered(metadata: pa.Table) -> pa.Table:
    """Return the brokers' registrations as the metadata log was observed to hold them: REGISTERED."""
    rows = [
        {"node": one.record.broker_id, "broker_epoch": one.record.broker_epoch, "at_ns": one.at_ns}
        for one in registrations(metadata)
        if one.at_ns is not None
    ]
    return pa.Table.from_pylist(rows, schema=REGISTERED)


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
