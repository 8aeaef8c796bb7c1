"""List-append transactions: every key is a list that transactions append to and read whole (Elle, section 4).

A read shows the whole history of its key, so the longest read of a key is its version order, and a read is a
version number: its length. From that follow the edges: ww between writers of neighbouring elements, wr from the
writer of the last element read, rw from a read to the writer of the next element. An append that nobody read comes
after the last element that somebody read. Transactions that surely failed take no part; those of unknown
outcome do.

Besides cycles: G1a (an element of a failed transaction was read), G1b (a list that ends in another transaction's
non-final append was read), internal (a read contradicts the transaction's own earlier steps), duplicate-elements,
incompatible-order (two reads, neither a prefix of the other), dirty-update (a committed append behind an aborted one),
lost-update (two transactions read the same version and both appended), phantom (an element that nobody appended).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from checkers.graphs.cycles import Cycle, Edge, Graph, process_chain, realtime_barriers, search
from checkers.graphs.findings import Findings
from checkers.graphs.models import forbidden, implied_by, suffixes_of
from checkers.graphs.operations import Operation

Key = Any
Element = Any


class ListHistory:
    """Appends and reads of a history by key; transactions are numbered by their place in `operations`."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.writer: dict[tuple[Key, Element], int] = {}
        self.intermediate: set[tuple[Key, Element]] = set()
        self.appends: dict[Key, list[Element]] = {}
        self.reads: dict[Key, list[tuple[int, tuple[Element, ...]]]] = {}
        # Transactions that read a key and later appended to it, with what they read first.
        self.updates: dict[Key, list[tuple[int, tuple[Element, ...]]]] = {}
        for number, operation in enumerate(operations):
            self._take(number, operation)

    def _take(self, number: int, operation: Operation) -> None:
        last: dict[Key, Element] = {}
        first_read: dict[Key, tuple[Element, ...]] = {}
        for function, key, value in operation.steps:
            if function == "append":
                self.writer[key, value] = number
                if operation.outcome != "fail":
                    self.appends.setdefault(key, []).append(value)
                if key in last:
                    self.intermediate.add((key, last[key]))
                last[key] = value
                if key in first_read:
                    self.updates.setdefault(key, []).append((number, first_read[key]))
            elif operation.outcome == "ok":
                seen = tuple(value or ())
                self.reads.setdefault(key, []).append((number, seen))
                first_read.setdefault(key, seen)


def check(operations: Sequence[Operation], model: str = "strict-serializable") -> Findings:
    """Return the anomalies of a list-append history that the model forbids.

    operations: paired operations with steps ("append", key, element) and ("r", key, list or None).
    model:      a consistency model of `checkers.graphs.models`.
    """
    history = ListHistory(operations)
    found = Findings()
    for operation in operations:
        if operation.outcome == "ok":
            _internal(found, operation)
    graph = Graph(len(operations))
    orders = {key: _order(found, history, key) for key in _keys(history)}
    for key, order in orders.items():
        _dirty_updates(found, history, key, order)
        _lost_updates(found, history, key)
        _edges(graph, history, key, order)
    _reads_of_others(found, history, orders)
    add_time(graph, operations, suffixes_of(model))
    result = search(graph, suffixes_of(model), implied_by)
    for cycle in result.cycles:
        found.add(cycle.anomaly, tuple(operations[step.source].index for step in cycle.steps), words(cycle, operations))
    found.undecided += result.undecided
    return forbidden(found, model)


def add_time(graph: Graph, operations: Sequence[Operation], suffixes: Sequence[str]) -> None:
    """Add the edges of clients' own order and of real time that the model asks for."""
    taking_part = np.array([operation.outcome != "fail" for operation in operations], dtype=bool)
    invoked = np.array([operation.invoked for operation in operations], dtype=np.int64)
    ok = np.array([operation.outcome == "ok" for operation in operations], dtype=bool)
    if "-process" in suffixes:
        processes = np.array([operation.process for operation in operations], dtype=np.int64)
        chosen = np.flatnonzero(taking_part)
        chain = Graph(len(chosen))
        process_chain(chain, processes[chosen], invoked[chosen])
        sources, targets, _ = chain.arrays()
        graph.add(Edge.PROCESS, chosen[sources], chosen[targets])
    if "-realtime" in suffixes:
        completed = np.array([operation.completed for operation in operations], dtype=np.int64)
        realtime_barriers(graph, invoked, completed, ok)


def words(cycle: Cycle, operations: Sequence[Operation]) -> str:
    """Tell a cycle as one sentence an edge."""
    said = {
        Edge.WW: "wrote a version that {target} replaced",
        Edge.WR: "wrote a version that {target} read",
        Edge.RW: "read a version that {target} replaced",
        Edge.PROCESS: "was issued before {target} by the same process",
        Edge.REALTIME: "completed before {target} was invoked",
    }
    return "; ".join(
        f"T{operations[step.source].index} " + said[step.kind].format(target=f"T{operations[step.target].index}")
        for step in cycle.steps
    )


def _keys(history: ListHistory) -> list[Key]:
    return list(dict.fromkeys([*history.appends, *history.reads]))


def _internal(found: Findings, operation: Operation) -> None:
    """A read must be what the transaction's own reads and appends make it."""
    known: dict[Key, tuple[Element, ...]] = {}
    appended: dict[Key, tuple[Element, ...]] = {}
    for function, key, value in operation.steps:
        if function == "append":
            if key in known:
                known[key] = (*known[key], value)
            appended[key] = (*appended.get(key, ()), value)
            continue
        seen = tuple(value or ())
        own = appended.get(key, ())
        if key in known and known[key] != seen:
            found.add("internal", (operation.index,), f"expected {list(known[key])} of {key}, read {list(seen)}")
        elif key not in known and own and seen[-len(own) :] != own:
            found.add(
                "internal", (operation.index,), f"own appends {list(own)} to {key} are not the end of {list(seen)}"
            )
        known[key] = seen


def _order(found: Findings, history: ListHistory, key: Key) -> tuple[Element, ...]:
    """Return the version order of a key: its longest read; report reads that contradict it."""
    reads = history.reads.get(key, [])
    longest: tuple[Element, ...] = ()
    reader = -1
    for number, elements in reads:
        if len(elements) > len(longest):
            longest, reader = elements, number
        if len(set(elements)) != len(elements):
            twice = next(e for place, e in enumerate(elements) if e in elements[:place])
            found.add("duplicate-elements", (history.operations[number].index,), f"{twice!r} stands twice in {key}")
    different = dict.fromkeys(elements for _, elements in reads)
    for elements in different:
        if longest[: len(elements)] != elements:
            number = next(number for number, seen in reads if seen == elements)
            pair = (history.operations[number].index, history.operations[reader].index)
            found.add("incompatible-order", pair, f"{key} was read as {list(elements)} and as {list(longest)}")
    own = history.appends.get(key, [])
    if not longest and len(own) == 1:
        return tuple(own)  # a key with one single append needs no read
    return tuple(dict.fromkeys(longest))


def _dirty_updates(found: Findings, history: ListHistory, key: Key, order: tuple[Element, ...]) -> None:
    aborted: Element | None = None
    for element in order:
        writer = history.writer.get((key, element))
        if writer is None:
            continue
        operation = history.operations[writer]
        if operation.outcome == "fail":
            aborted = element
        elif aborted is not None and operation.outcome == "ok":
            first = history.operations[history.writer[key, aborted]]
            found.add(
                "dirty-update", (first.index, operation.index), f"{element!r} of {key} follows aborted {aborted!r}"
            )
            aborted = None


def _lost_updates(found: Findings, history: ListHistory, key: Key) -> None:
    """Report committed transactions that read the same version of a key first and then appended to it."""
    by_version: dict[tuple[Element, ...], dict[int, None]] = {}
    for number, elements in history.updates.get(key, []):
        by_version.setdefault(elements, {})[number] = None
    for elements, numbers in by_version.items():
        if len(numbers) > 1:
            places = tuple(history.operations[number].index for number in numbers)
            found.add("lost-update", places, f"each read {key} as {list(elements)} and appended to it")


def _reads_of_others(found: Findings, history: ListHistory, orders: dict[Key, tuple[Element, ...]]) -> None:
    for key, reads in history.reads.items():
        sound = _sound_beginning(history, key, orders[key])
        for number, elements in reads:
            if elements == sound[: len(elements)]:
                if elements:
                    _intermediate(found, history, number, key, elements[-1])
                continue
            reader = history.operations[number]
            for element in elements:
                writer = history.writer.get((key, element))
                if writer is None:
                    found.add("phantom", (reader.index,), f"{element!r} of {key} was read but never appended")
                elif history.operations[writer].outcome == "fail":
                    place = (history.operations[writer].index, reader.index)
                    found.add("G1a", place, f"{element!r} of {key} was read although its transaction failed")
            if elements:
                _intermediate(found, history, number, key, elements[-1])


def _sound_beginning(history: ListHistory, key: Key, order: tuple[Element, ...]) -> tuple[Element, ...]:
    """Return the order up to the first element that nobody appended or whose transaction failed."""
    for place, element in enumerate(order):
        writer = history.writer.get((key, element))
        if writer is None or history.operations[writer].outcome == "fail":
            return order[:place]
    return order


def _intermediate(found: Findings, history: ListHistory, number: int, key: Key, last: Element) -> None:
    writer = history.writer.get((key, last))
    if writer is not None and writer != number and (key, last) in history.intermediate:
        places = (history.operations[writer].index, history.operations[number].index)
        found.add("G1b", places, f"{last!r} was not the last that its transaction appended to {key}")


def _edges(graph: Graph, history: ListHistory, key: Key, order: tuple[Element, ...]) -> None:
    live = {
        element: writer
        for element in order
        if (writer := history.writer.get((key, element))) is not None and history.operations[writer].outcome != "fail"
    }
    writers = [live.get(element) for element in order]
    unread = [history.writer[key, e] for e in history.appends.get(key, []) if e not in live]
    pairs = [(a, b) for a, b in pairwise(writers) if a is not None and b is not None]
    if writers and writers[-1] is not None:
        pairs += [(writers[-1], late) for late in unread]
    _add(graph, Edge.WW, pairs)
    position = {element: place for place, element in enumerate(order)}
    read_from: list[tuple[int, int]] = []
    overwritten: list[tuple[int, int]] = []
    for number, elements in history.reads.get(key, []):
        writer = history.writer.get((key, elements[-1])) if elements else None
        if writer is not None and history.operations[writer].outcome != "fail":
            read_from.append((writer, number))
        place = position.get(elements[-1], -2) if elements else -1
        if place == -2:
            continue
        if place + 1 < len(order):
            following = writers[place + 1]
            if following is not None:
                overwritten.append((number, following))
        else:
            overwritten += [(number, late) for late in unread]
    _add(graph, Edge.WR, read_from)
    _add(graph, Edge.RW, overwritten)


def _add(graph: Graph, kind: Edge, pairs: list[tuple[int, int]]) -> None:
    if pairs:
        graph.add(kind, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
