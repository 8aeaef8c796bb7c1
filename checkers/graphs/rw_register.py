"""Read/write registers: every key holds one value; transactions read and write it (Elle, section 5).

A register shows one version, not its history, so the order of versions must be inferred: the initial nil comes first;
a transaction's own writes of a key follow each other and what it read of it before (`writes_follow_reads`, and always
within the transaction's own writes); on request versions follow the order of each process (`sequential_keys`) or of real
time (`linearizable_keys`). Contradictory version orders are cyclic-versions, and such a key orders nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

import networkx as nx

from tribunal.checkers.graphs.columns import Transactions
from tribunal.checkers.graphs.cycles import Edge, Graph, search
from tribunal.checkers.graphs.findings import Findings
from tribunal.checkers.graphs.list_append import add_time, edges_of
from tribunal.checkers.graphs.models import forbidden, implied_by, suffixes_of
from tribunal.checkers.graphs.operations import OPEN_END, Operation

NIL: Final = None
Key = Hashable
Value = Hashable


class Version(NamedTuple):
    """A version of a key: what it holds first, or a value that was written or read."""

    is_initial: bool
    value: Value


INITIAL: Final = Version(True, NIL)  # noqa: FBT003 - the field says it


class RegisterHistory:
    """Who wrote which value, who read it; first reads and last writes of each transaction by key."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.writer: dict[tuple[Key, Value], int] = {}
        self.intermediate: set[tuple[Key, Value]] = set()
        self.reads: dict[Key, list[tuple[int, Value]]] = {}  # what a transaction saw before it wrote the key itself
        self.writes: dict[Key, list[tuple[int, Value]]] = {}  # the last value that a transaction wrote
        for number, operation in enumerate(operations):
            self._take(number, operation)

    def _take(self, number: int, operation: Operation) -> None:
        written: dict[Key, Value] = {}
        seen: set[Key] = set()
        for function, key, value in operation.steps:
            if function == "w":
                if key in written:
                    self.intermediate.add((key, written[key]))
                written[key] = value
                self.writer[key, value] = number
            elif operation.outcome == "ok" and key not in written and key not in seen:
                seen.add(key)
                self.reads.setdefault(key, []).append((number, value))
        if operation.outcome != "fail":
            for key, value in written.items():
                self.writes.setdefault(key, []).append((number, value))


def check(
    operations: Sequence[Operation],
    model: str = "strict-serializable",
    *,
    writes_follow_reads: bool = False,
    sequential_keys: bool = False,
    linearizable_keys: bool = False,
) -> Findings:
    """Return the anomalies of a register history that the model forbids.

    operations: paired; steps ("w", key, value) and ("r", key, value or None). Values are unique within a key.
    """
    history = RegisterHistory(operations)
    found = Findings()
    for operation in operations:
        if operation.outcome == "ok":
            _internal(found, operation)
    _dirty_reads(found, history)
    graph = Graph(len(operations))
    for key in dict.fromkeys([*history.writes, *history.reads]):
        versions = _versions(history, key, writes_follow_reads=writes_follow_reads)
        if linearizable_keys or sequential_keys:
            _timed(versions, history, key, in_real_time=linearizable_keys)
        _lost_updates(found, history, key)
        if _cyclic(found, history, key, versions):
            continue
        _edges(graph, history, key, versions)
    _read_edges(graph, history)
    suffixes = suffixes_of(model)
    transactions = Transactions.of(operations)
    add_time(graph, transactions, suffixes)
    result = search(graph, suffixes, implied_by)
    for cycle in result.cycles:
        found.add_circle(cycle.anomaly, edges_of(cycle, transactions.index))
    found.undecided += result.undecided
    return forbidden(found, model)


def _internal(found: Findings, operation: Operation) -> None:
    """A read must be what the transaction's own reads and writes make it, and shows nothing that it writes only later."""
    known: dict[Key, Value] = {}
    touched: dict[tuple[Key, Value], str] = {}  # by what at first
    for function, key, value in operation.steps:
        if function == "r" and key in known and known[key] != value:
            found.add("internal", (operation.index,), f"expected {known[key]!r} of {key}, read {value!r}")
        if touched.setdefault((key, value), function) == "r" and function == "w":
            found.add("future-read", (operation.index,), f"{value!r} of {key} was read before it was written")
        known[key] = value


def _dirty_reads(found: Findings, history: RegisterHistory) -> None:
    """Report reads of versions that never stood; every read counts, not only a transaction's first one of a key."""
    reads = [
        (number, key, value)
        for number, operation in enumerate(history.operations)
        if operation.outcome == "ok"
        for key, value in dict.fromkeys((key, value) for function, key, value in operation.steps if function == "r")
        if value is not NIL
    ]
    for number, key, value in reads:
        writer = history.writer.get((key, value))
        reader = history.operations[number]
        if writer is None:
            found.add("phantom", (reader.index,), f"{value!r} of {key} was read, and nobody wrote it")
        elif writer == number:
            continue
        elif history.operations[writer].outcome == "fail":
            places = (history.operations[writer].index, reader.index)
            found.add("G1a", places, f"{value!r} of {key} was read although its transaction failed")
        elif (key, value) in history.intermediate:
            places = (history.operations[writer].index, reader.index)
            found.add("G1b", places, f"{value!r} of {key} was not its transaction's last write")


def _lost_updates(found: Findings, history: RegisterHistory, key: Key) -> None:
    writes = {number for number, _ in history.writes.get(key, []) if history.operations[number].outcome == "ok"}
    by_version: dict[Value, list[int]] = {}
    for number, value in history.reads.get(key, []):
        if number in writes:
            by_version.setdefault(value, []).append(number)
    for value, numbers in by_version.items():
        if len(numbers) > 1:
            places = tuple(history.operations[number].index for number in numbers)
            found.add("lost-update", places, f"each read {value!r} of {key} and wrote it")


def _versions(history: RegisterHistory, key: Key, *, writes_follow_reads: bool) -> "nx.DiGraph[Version]":
    versions: nx.DiGraph[Version] = nx.DiGraph()
    present = [value for _, value in history.writes.get(key, [])]
    present += [value for _, value in history.reads.get(key, []) if value is not NIL]
    for value in present:
        versions.add_edge(INITIAL, _version(value))
    if writes_follow_reads:
        read = dict(history.reads.get(key, []))
        for number, value in history.writes.get(key, []):
            if number in read and read[number] is not NIL and read[number] != value:
                versions.add_edge(_version(read[number]), _version(value))
    return versions


def _timed(versions: "nx.DiGraph[Version]", history: RegisterHistory, key: Key, *, in_real_time: bool) -> None:
    """Add version edges from whoever touched a version to whoever touched another one later: any later one, or one of its own process."""
    touched: list[_Touched] = []
    read = dict(history.reads.get(key, []))
    wrote = dict(history.writes.get(key, []))
    for number in sorted({*read, *wrote}):
        operation = history.operations[number]
        if operation.outcome != "ok":
            continue
        first = _version(read[number]) if number in read else _version(wrote[number])
        last = _version(wrote[number]) if number in wrote else first
        touched.append(_Touched(operation, first, last))
    touched.sort(key=lambda entry: entry.operation.invoked)
    by_process: dict[int | None, list[_Touched]] = {}
    for entry in touched:
        by_process.setdefault(None if in_real_time else entry.operation.process, []).append(entry)
    for own in by_process.values():
        own.sort(key=lambda entry: entry.operation.completed)
    for late in touched:
        own = by_process[None if in_real_time else late.operation.process]
        for early in _nearest(own, late.operation, in_real_time=in_real_time):
            if early.operation.completed != OPEN_END and early.last != late.first:
                versions.add_edge(early.last, late.first)


class _Touched(NamedTuple):
    """What an operation saw of a key at first, and left of it."""

    operation: Operation
    first: Version
    last: Version


def _nearest(by_end: Sequence[_Touched], late: Operation, *, in_real_time: bool) -> Iterator[_Touched]:
    """Yield the nearest predecessors of an operation: what came before them follows by way of them.

    by_end:  by when they were completed; of one process each is over before the next one begins.
    """
    side = bisect_left if in_real_time else bisect_right
    latest_start = -1
    for place in range(side(by_end, late.invoked, key=lambda entry: entry.operation.completed) - 1, -1, -1):
        early = by_end[place]
        if early.operation.completed < latest_start:
            return
        if early.operation.invoked < late.invoked:
            yield early
            latest_start = max(latest_start, early.operation.invoked)


def _version(value: Value) -> Version:
    return INITIAL if value is NIL else Version(False, value)  # noqa: FBT003 - the field says it


def _cyclic(found: Findings, history: RegisterHistory, key: Key, versions: "nx.DiGraph[Version]") -> bool:
    for component in nx.strongly_connected_components(versions):
        if len(component) > 1:
            values = sorted(("nil" if version.is_initial else version.value for version in component), key=repr)
            writers = [history.writer.get((key, value)) for value in values]
            places = tuple(history.operations[number].index for number in writers if number is not None)
            found.add("cyclic-versions", places, f"the versions {values} of {key} each come before the other")
            return True
    return False


def _edges(graph: Graph, history: RegisterHistory, key: Key, versions: "nx.DiGraph[Version]") -> None:
    readers: dict[Version, list[int]] = {}
    for number, value in history.reads.get(key, []):
        readers.setdefault(_version(value), []).append(number)
    for earlier, later in nx.transitive_reduction(versions).edges:
        writer = history.writer.get((key, later.value))
        if writer is None or history.operations[writer].outcome == "fail":
            continue
        previous = None if earlier.is_initial else history.writer.get((key, earlier.value))
        if previous is not None and history.operations[previous].outcome != "fail":
            graph.add(Edge.WW, [previous], [writer])
        for reader in readers.get(earlier, []):
            graph.add(Edge.RW, [reader], [writer])


def _read_edges(graph: Graph, history: RegisterHistory) -> None:
    for key, reads in history.reads.items():
        for number, value in reads:
            writer = history.writer.get((key, value))
            if value is not NIL and writer is not None and history.operations[writer].outcome != "fail":
                graph.add(Edge.WR, [writer], [number])
