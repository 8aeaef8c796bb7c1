"""Cycles in a dependency graph: which anomalies of Adya's family it proves, with an example each.

Vertices are transactions; an edge says that one must come before the other:

    ww  it wrote the version that the other replaced         process   one client issued it before
    wr  it wrote the version that the other read             realtime  it completed before the other began
    rw  it read the version that the other replaced

A cycle means that no order explains the history. How bad it is depends on the edges it needs:
only ww is G0; ww and wr is G1c; exactly one rw is G-single; several rw that never touch each other is
G-nonadjacent; any others with rw are G2. If it also needs a process or realtime edge, the class has that
suffix: a database may show it and still be serializable, but not session or strictly so.

Every component is searched by itself, from the worst class to the mildest, and a class that one already found
implies is not listed again (Adya, "Weak Consistency", 1999; Alvaro and Kingsbury, "Elle", 2020).

Real-time edges would be quadratic; `realtime_barriers` puts one vertex between each run of completions and the
invocation after it, so that they are linear. Barriers are left out of the cycles that are reported.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntFlag
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from tribunal.checkers.graphs.operations import OPEN_END

SHORTEST: Final = 2  # edges: no transaction comes before itself alone
SHORTER: Final = 50_000  # edge visits that are spent on a shorter example than the first one

Vertices = NDArray[np.int64] | NDArray[np.int32]


class Edge(IntFlag):
    """Why one transaction comes before another."""

    WW = 1
    WR = 2
    RW = 4
    PROCESS = 8
    REALTIME = 16


NAMES: Final = {Edge.WW: "ww", Edge.WR: "wr", Edge.RW: "rw", Edge.PROCESS: "process", Edge.REALTIME: "realtime"}


class Step(msgspec.Struct, frozen=True):
    """One edge of a reported cycle: transaction numbers and why."""

    source: int
    target: int
    kind: Edge


class Cycle(msgspec.Struct, frozen=True):
    """An example: the class it proves and its edges, the last one leading back to the first."""

    anomaly: str
    steps: tuple[Step, ...]


class Graph:
    """Edges as arrays; vertices 0..count-1 are transactions, those above are barriers."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.size = count
        self._sources: list[Vertices] = []
        self._targets: list[Vertices] = []
        self._kinds: list[NDArray[np.uint8]] = []

    def add(self, kind: Edge, sources: Sequence[int] | Vertices, targets: Sequence[int] | Vertices) -> None:
        """Add edges of one kind; edges from a vertex to itself say nothing and are left out."""
        # Half the size, and what the search for components wants: a graph of fifty million edges is mostly these.
        source = np.asarray(sources).astype(np.int32)
        target = np.asarray(targets).astype(np.int32)
        keep = source != target
        self._sources.append(source[keep])
        self._targets.append(target[keep])
        self._kinds.append(np.full(self._sources[-1].size, int(kind), dtype=np.uint8))

    def grow(self, vertices: int) -> int:
        """Add vertices that stand for no transaction; return the first one's number."""
        first = self.size
        self.size += vertices
        return first

    def arrays(self) -> tuple[Vertices, Vertices, NDArray[np.uint8]]:
        """Return sources, targets and kinds of all edges."""
        self._sources = [np.concatenate([*self._sources, np.empty(0, np.int32)], dtype=np.int32)]
        self._targets = [np.concatenate([*self._targets, np.empty(0, np.int32)], dtype=np.int32)]
        self._kinds = [np.concatenate([*self._kinds, np.empty(0, np.uint8)], dtype=np.uint8)]
        return self._sources[0], self._targets[0], self._kinds[0]


def realtime_barriers(graph: Graph, invoked: Vertices, completed: Vertices, sources: NDArray[np.bool_]) -> None:
    """Add: whatever completed before another began comes before it. O(n log n) time, O(n) edges.

    invoked, completed: positions in the history, one a transaction; OPEN_END for never.
    sources:            transactions whose completion is known to follow their effect (`ok`).
    """
    ends = np.flatnonzero(sources & (completed < OPEN_END))
    if len(ends) == 0:
        return
    order = ends[np.argsort(completed[ends], kind="stable")]
    finish = completed[order]
    # Transaction v begins after the first `before[v]` completions; equal counts share one barrier.
    before = np.searchsorted(finish, invoked, side="left")
    levels = np.sort(before[before > 0])
    levels = levels[np.append(True, levels[1:] != levels[:-1])] if len(levels) else levels
    if len(levels) == 0:
        return
    first = graph.grow(len(levels))
    place = np.searchsorted(levels, np.arange(1, len(order) + 1), side="left")
    ranks = np.arange(len(order))
    reached = place < len(levels)
    graph.add(Edge.REALTIME, order[ranks[reached]], first + place[reached])
    graph.add(Edge.REALTIME, first + np.arange(len(levels) - 1), first + np.arange(1, len(levels)))
    later = np.flatnonzero(before > 0)
    graph.add(Edge.REALTIME, first + np.searchsorted(levels, before[later]), later)


def process_chain(graph: Graph, processes: Vertices, invoked: Vertices) -> None:
    """Add: a client's transactions come in the order in which it issued them."""
    order = np.lexsort((invoked, processes))
    same = processes[order][1:] == processes[order][:-1]
    graph.add(Edge.PROCESS, order[:-1][same], order[1:][same])


def components(graph: Graph) -> Iterator["Component"]:
    """Yield the strongly connected components that hold more than one transaction."""
    source, target, kind = graph.arrays()
    if len(source) == 0:
        return
    matrix = coo_matrix((np.ones(len(source), dtype=np.int8), (source, target)), shape=(graph.size, graph.size))
    found, label = connected_components(matrix.tocsr(), directed=True, connection="strong")
    transactions = np.bincount(label[: graph.count], minlength=found)
    inside = (label[source] == label[target]) & (transactions[label[source]] > 1)
    source, target, kind, home = source[inside], target[inside], kind[inside], label[source[inside]]
    order = np.argsort(home, kind="stable")
    source, target, kind, home = source[order], target[order], kind[order], home[order]
    borders = np.flatnonzero(np.diff(home)) + 1
    for low, high in zip([0, *borders], [*borders, len(home)], strict=True):
        if high > low:
            yield Component(graph.count, source[low:high], target[low:high], kind[low:high])


class Component:
    """One strongly connected component, its vertices renumbered densely."""

    def __init__(self, transactions: int, source: Vertices, target: Vertices, kind: NDArray[np.uint8]) -> None:
        self.vertices, ends = np.unique(np.concatenate([source, target]), return_inverse=True)
        self.transactions = transactions
        self.size = len(self.vertices)
        self.is_transaction: list[bool] = (self.vertices < transactions).tolist()
        self.source: list[int] = ends[: len(source)].tolist()
        self.target: list[int] = ends[len(source) :].tolist()
        self.kind: list[int] = kind.tolist()
        self.successors: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        for start, end, why in zip(self.source, self.target, self.kind, strict=True):
            self.successors[start].append((end, why))

    def labels(self, allowed: int) -> NDArray[np.int32]:
        """Return the strongly connected component of each vertex when only these kinds of edge exist."""
        kind = np.asarray(self.kind)
        keep = (kind & allowed) != 0
        ends = (np.asarray(self.source)[keep], np.asarray(self.target)[keep])
        matrix = coo_matrix((np.ones(int(keep.sum()), dtype=np.int8), ends), shape=(self.size, self.size))
        return np.asarray(connected_components(matrix.tocsr(), directed=True, connection="strong")[1])


class Walk(msgspec.Struct, frozen=True):
    """A kind of cycle: which edge starts it, how each further edge changes the state, when it may close.

    The state counts rw edges (0, 1, 2 = more), whether the last edge was rw, and whether a wr, a process and
    a realtime edge have been met.
    """

    allowed: int
    start: Edge
    max_rw: int
    adjacent: bool
    need: int


class State(msgspec.Struct, frozen=True):
    """How far a walk is."""

    rw: int
    last_rw: bool
    met: int


SUFFIXES: Final[tuple[tuple[str, int, int], ...]] = (
    ("", 0, 0),
    ("-process", int(Edge.PROCESS), int(Edge.PROCESS)),
    ("-realtime", int(Edge.PROCESS | Edge.REALTIME), int(Edge.REALTIME)),
)


def walks(suffix: str) -> dict[str, Walk]:
    """Return the classes with this suffix ("", "-process", "-realtime"), worst first."""
    extra, need = next((allowed, need) for name, allowed, need in SUFFIXES if name == suffix)
    ww, wr, rw = int(Edge.WW), int(Edge.WR), int(Edge.RW)
    return {
        "G0" + suffix: Walk(ww | extra, Edge.WW, 0, adjacent=False, need=need | ww),
        "G1c" + suffix: Walk(ww | wr | extra, Edge.WR, 0, adjacent=False, need=need | wr),
        "G-single-item" + suffix: Walk(ww | wr | rw | extra, Edge.RW, 1, adjacent=False, need=need),
        "G-nonadjacent-item" + suffix: Walk(ww | wr | rw | extra, Edge.RW, 99, adjacent=False, need=need),
        "G2-item" + suffix: Walk(ww | wr | rw | extra, Edge.RW, 99, adjacent=True, need=need),
    }


def find(component: Component, name: str, walk: Walk, budget: int = 2_000_000) -> Cycle | None:
    """Return a cycle of this class in the component, None when there is none: a shortest one, as far as `SHORTER` further edge visits show.

    errors: SearchBudgetExceeded when the answer would take more than `budget` edge visits.
    """
    label = component.labels(walk.allowed)
    starts = [
        number
        for number, kind in enumerate(component.kind)
        if kind & walk.start and label[component.source[number]] == label[component.target[number]]
    ]
    if not starts or not _kinds_present(component, label, walk, starts):
        return None
    spent, best = 0, None
    for number in starts:
        steps, visits = _close(component, label, walk, number, None if best is None else len(best))
        spent += visits
        if steps is not None:
            spent = spent if best is not None else 0
            best = _reported(component, steps)
        if best is None and spent > budget:
            raise SearchBudgetExceeded(name, component.size)
        if best is not None and (len(best) <= SHORTEST or spent > SHORTER):
            break
    return None if best is None else Cycle(name, best)


class SearchBudgetExceeded(Exception):
    """A class could neither be shown nor excluded within its budget of edge visits."""

    def __init__(self, anomaly: str, size: int) -> None:
        super().__init__(f"{anomaly}: undecided in a component of {size} vertices")
        self.anomaly = anomaly


def _kinds_present(component: Component, label: NDArray[np.int32], walk: Walk, starts: list[int]) -> bool:
    """Return whether a component that holds a possible start also holds every kind of edge the class needs."""
    homes = {int(label[component.source[number]]) for number in starts}
    present: dict[int, int] = dict.fromkeys(homes, 0)
    for start, end, kind in zip(component.source, component.target, component.kind, strict=True):
        home = int(label[start])
        if home in present and label[end] == home and kind & walk.allowed:
            present[home] |= kind
    return any(kinds & walk.need == walk.need for kinds in present.values())


def _close(
    component: Component, label: NDArray[np.int32], walk: Walk, number: int, below: int | None
) -> tuple[list[tuple[int, int, int]] | None, int]:
    """Return the shortest closed walk that begins with this edge, as (source, target, kind), and the visits it took.

    below:  with fewer edges between transactions than this; what leads to a barrier is not counted, for it is not shown.
    """
    source, target = component.source[number], component.target[number]
    starts_rw = walk.start is Edge.RW
    first = State(int(starts_rw), last_rw=starts_rw and not walk.adjacent, met=int(walk.start) & walk.need)
    home = label[source]
    origin: dict[tuple[int, State], tuple[tuple[int, State], int] | None] = {(target, first): None}
    length = {
        (target, first): 1
    }  # a vertex costs the same from everywhere: who comes to it first comes by a shortest way
    queue = deque([(target, first)])
    visits = 0
    while queue:
        place = queue.popleft()
        vertex, state = place
        if below is not None and length[place] >= below:
            return None, visits
        if vertex == source and _complete(walk, state):
            return _path(origin, place, (source, target, int(walk.start))), visits
        for end, kind in component.successors[vertex]:
            visits += 1
            if label[end] != home or not kind & walk.allowed:
                continue
            following = _next(walk, state, kind)
            if following is None or (end, following) in origin:
                continue
            origin[end, following] = (place, kind)
            length[end, following] = length[place] + component.is_transaction[end]
            if component.is_transaction[end]:
                queue.append((end, following))
            else:
                queue.appendleft((end, following))
    return None, visits


def _next(walk: Walk, state: State, kind: int) -> State | None:
    is_rw = kind == Edge.RW
    if is_rw and (state.rw >= walk.max_rw or (state.last_rw and not walk.adjacent)):
        return None
    return State(min(2, state.rw + is_rw), last_rw=is_rw and not walk.adjacent, met=(state.met | kind) & walk.need)


def _complete(walk: Walk, state: State) -> bool:
    if state.met & walk.need != walk.need:
        return False
    if walk.start is not Edge.RW:
        return True
    if walk.max_rw == 1:
        return state.rw == 1
    return state.rw >= 2 and (walk.adjacent or not state.last_rw)


def _path(
    origin: Mapping[tuple[int, State], tuple[tuple[int, State], int] | None],
    place: tuple[int, State],
    first: tuple[int, int, int],
) -> list[tuple[int, int, int]]:
    steps: list[tuple[int, int, int]] = []
    while (came := origin[place]) is not None:
        before, kind = came
        steps.append((before[0], place[0], kind))
        place = before
    return [first, *reversed(steps)]


def _reported(component: Component, steps: Iterable[tuple[int, int, int]]) -> tuple[Step, ...]:
    """Return the steps between transactions; a way through barriers is one realtime step."""
    reported: list[Step] = []
    begun: int | None = None
    for source, target, kind in steps:
        start, end = int(component.vertices[source]), int(component.vertices[target])
        begun = start if begun is None else begun
        if end < component.transactions:
            reported.append(Step(begun, end, Edge(kind)))
            begun = None
    return tuple(reported)


class Search(msgspec.Struct):
    """What a search found: one example a class and component, and what it could not decide."""

    cycles: list[Cycle]
    undecided: list[str]


def search(graph: Graph, suffixes: Sequence[str], implied: Callable[[str, set[str]], bool]) -> Search:
    """Look for every class in every component.

    suffixes: of "", "-process", "-realtime": what the model in question forbids.
    implied:  tells whether a class need not be listed next to those already found in the component.
    """
    result = Search([], [])
    for component in components(graph):
        found: set[str] = set()
        for suffix in suffixes:
            for name, walk in walks(suffix).items():
                if implied(name, found):
                    continue
                try:
                    cycle = find(component, name, walk)
                except SearchBudgetExceeded as problem:
                    result.undecided.append(problem.anomaly)
                    continue
                if cycle is not None:
                    found.add(name)
                    result.cycles.append(cycle)
    result.cycles.sort(key=lambda cycle: len(cycle.steps))  # of a class's examples the shortest is shown first
    return result
