"""Whether transactions depend on each other in a circle: asked of the keys apart, and then of stretches of time apart.

A history without a circle needs no search for the class of one. So whoever sees the steps on some keys says of the edges between
transactions only that they are there, and leaves out those that real time says anyway: what completed before another began comes before it.

A transaction has a *moment*: when it ended, or when it began if nobody saw an end. Real time never leads back from moment to moment. An
edge of a key may, for what ran at once may take effect in another order than it ends in. A circle leads back somewhere; where no edge
leads back over a point in time, none leads over it at all. At such points the history is *cut*: what lies between two cuts is
looked at by itself. They are looked for in *margins*, which are known before; where there is none in a margin, it is not cut there.

A transaction that nobody saw end and from which no edge leads is in no circle. So what leads to it does not forbid to cut; whether edges
lead from it is known only where the edges of all keys are.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from tribunal.checkers.graphs.columns import INFO, OK, Integers, Transactions
from tribunal.checkers.graphs.cycles import Edge, Graph, realtime_barriers

BEGINNING: Final = -(1 << 62)
END: Final = 1 << 62
Margin = tuple[int, int]  # the first point in time at which it may be cut, and the first one behind
NOTHING: Final = np.zeros((0, 2), np.int64)


class Reported(msgspec.Struct, frozen=True):
    """What the steps on some keys say of circles. Lists of numbers are bytes: there may be many.

    edges:      from one row of `txns` to another (`packed`); before the first margin, in it, between it and the second, and so on, by the
                moment of their sources.
    forbidden:  of each margin the points in time over which edges lead back: from the first of two numbers on and before the second.
    sinks:      of each transaction that nobody saw end and from which none of these edges leads: its row, and over which points edges to it
                lead back.
    sources:    rows of transactions that nobody saw end and from which edges lead.
    """

    edges: tuple[bytes, ...]
    forbidden: tuple[bytes, ...]
    sinks: bytes
    sources: bytes


class Stretch(msgspec.Struct, frozen=True):
    """Moments from one point in time on and before another one, and the edges that may lie between."""

    from_ns: int
    until_ns: int
    edges: tuple[bytes, ...]


def reported(
    transactions: Transactions, moments: Integers, sources: Integers, targets: Integers, margins: Sequence[Margin]
) -> Reported:
    """Say of the edges of some keys what has to be known of them.

    transactions:  those with steps on these keys; `index` is their row in `txns`. moments: theirs.
    sources, targets:  the edges, by places in `transactions`.
    """
    is_open = transactions.outcome == INFO
    leads = np.zeros(len(transactions), bool)
    leads[sources] = True
    is_sink = is_open & ~leads
    by_time = (transactions.outcome[sources] == OK) & (transactions.completed[sources] < transactions.invoked[targets])
    sources, targets = sources[~by_time], targets[~by_time]
    back = moments[sources] >= moments[targets]
    to_sink = is_sink[targets]
    plain = back & ~to_sink
    over = np.stack([moments[targets[plain]] + 1, moments[sources[plain]] + 1], axis=1)
    bounds = np.array([bound for margin in margins for bound in margin], np.int64)
    place = np.searchsorted(bounds, moments[sources], "right")
    rows = transactions.index
    edges = tuple(
        packed(rows[sources[place == number]], rows[targets[place == number]]) for number in range(bounds.size + 1)
    )
    return Reported(
        edges,
        tuple(joined(clipped(over, margin)).tobytes() for margin in margins),
        _sinks(transactions, moments, sources[back & to_sink], targets[back & to_sink]).tobytes(),
        rows[is_open & leads].astype(np.int64).tobytes(),
    )


def _sinks(transactions: Transactions, moments: Integers, sources: Integers, targets: Integers) -> Integers:
    order = np.lexsort((moments[sources], targets))
    last = order[np.append(targets[order][1:] != targets[order][:-1], True)[: order.size]]
    ends = moments[sources[last]] + 1
    return np.stack([transactions.index[targets[last]], moments[targets[last]] + 1, ends], axis=1).astype(np.int64)


def clipped(over: Integers, margin: Margin) -> Integers:
    """Return what of these spans lies in a margin."""
    inside = over[(over[:, 0] < margin[1]) & (over[:, 1] > margin[0])]
    return np.asarray(np.clip(inside, *margin))


def joined(spans: Integers) -> Integers:
    """Return spans as those that have a gap between them, ascending."""
    ordered = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1]) if ordered.size else ordered[:, 1]
    heads = np.flatnonzero(np.append(True, ordered[1:, 0] > reached[:-1])[: len(ordered)])
    tails = np.append(heads[1:] - 1, len(ordered) - 1)[: heads.size]
    return np.stack([ordered[heads, 0], reached[tails]], axis=1)


def packed(sources: Integers, targets: Integers) -> bytes:
    """Return edges as bytes, each of them once: the bytes of a Parquet file, in which a number is as long as the step from the one before."""
    if not sources.size:
        return b""
    order = np.lexsort((targets, sources))
    sources, targets = sources[order], targets[order]
    first = np.append(True, (sources[1:] != sources[:-1]) | (targets[1:] != targets[:-1]))
    sources, targets = sources[first], targets[first]
    table = pa.table({"source": sources, "step": targets - sources})
    stream = pa.BufferOutputStream()
    encoding = dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED")
    pq.write_table(
        table, stream, compression="zstd", use_dictionary=False, column_encoding=encoding, write_statistics=False
    )
    return bytes(stream.getvalue())


def unpacked(edges: Iterable[bytes]) -> tuple[Integers, Integers]:
    """Return the sources and the targets of edges that were packed."""
    tables = [pq.read_table(pa.BufferReader(own)) for own in edges if own]
    if not tables:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    table = pa.concat_tables(tables)
    sources = table["source"].to_numpy()
    return sources, sources + table["step"].to_numpy()


def stretches(every: Sequence[Reported], margins: Sequence[Margin]) -> list[Stretch]:
    """Cut the history where no edge leads back: what some keys say each, put together."""
    sources = np.unique(np.concatenate([_numbers(own.sources, 1) for own in every]).ravel())
    sinks = np.concatenate([_numbers(own.sinks, 3) for own in every])
    over = sinks[np.isin(sinks[:, 0], sources), 1:]  # an edge leads from it after all: that of another key
    cuts: list[tuple[int, int]] = [(BEGINNING, 0)]  # where, and the first edges behind
    for number, margin in enumerate(margins):
        forbidden = [_numbers(own.forbidden[number], 2) for own in every]
        at_ns = first_free(joined(np.concatenate([clipped(over, margin), *forbidden])), margin)
        if at_ns is not None:
            cuts.append((at_ns, 2 * number + 1))
    cuts.append((END, 2 * len(margins) + 1))
    return [
        Stretch(from_ns, until_ns, tuple(own.edges[place] for own in every for place in range(low, high)))
        for (from_ns, low), (until_ns, behind) in pairwise(cuts)
        for high in [min(behind + 1, 2 * len(margins) + 1)]  # the margin in which it ends is cut in two
    ]


def _numbers(content: bytes, width: int) -> Integers:
    return np.frombuffer(content, np.int64).reshape(-1, width)


def first_free(forbidden: Integers, margin: Margin) -> int | None:
    """Return the first point of a margin that is in none of these spans, which have gaps between them and ascend; None: there is none."""
    at_ns = margin[0]
    if len(forbidden) and forbidden[0, 0] <= at_ns:
        at_ns = int(forbidden[0, 1])
    return at_ns if at_ns < margin[1] else None


def has_circle(transactions: Transactions, edges: Iterable[bytes]) -> bool:
    """Whether these edges and real time lead in a circle.

    transactions:  of a stretch; edges that leave it are in no circle.
    """
    graph = Graph(len(transactions))
    sources, targets = unpacked(edges)
    (source, has_source), (target, has_target) = (_places(transactions.index, rows) for rows in (sources, targets))
    inside = has_source & has_target
    graph.add(Edge.WW, source[inside], target[inside])
    realtime_barriers(graph, transactions.invoked, transactions.completed, transactions.outcome == OK)
    if not inside.any():
        return False
    ends = graph.arrays()[:2]
    matrix = coo_matrix((np.ones(ends[0].size, np.int8), ends), shape=(graph.size, graph.size))
    found, label = connected_components(matrix.tocsr(), directed=True, connection="strong")
    return bool((np.bincount(label[: graph.count], minlength=found) > 1).any())


def _places(rows: Integers, wanted: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Return where these rows stand among others, which ascend, and which do."""
    place = np.minimum(np.searchsorted(rows, wanted), max(rows.size - 1, 0))
    return place, rows[place] == wanted if rows.size else np.zeros(wanted.size, bool)
