"""List-append transactions: every key is a list that transactions append to and read whole (Elle, section 4).

A read shows the whole history of its key, so the longest read of a key is its version order, and a read is a
version number: its length. From that follow the edges: ww between writers of neighbouring elements, wr from the
writer of the last element read, rw from a read to the writer of the next element. An append that nobody read comes
after the last element that somebody read. Transactions that surely failed take no part; those of unknown
outcome do.

Besides cycles: G1a (an element of a failed transaction was read), G1b (a list that ends in another transaction's
non-final append was read), internal (a read contradicts the transaction's own earlier steps), future-read (it shows what the transaction
appends only later), duplicate-elements,
incompatible-order (two reads, neither a prefix of the other), dirty-update (a committed append behind an aborted one),
lost-update (two transactions read the same version and both appended), phantom (an element that nobody appended).

Everything is done on columns. A key is *regular* if all its reads are prefixes of the longest, whose elements differ and were
each appended once, by a transaction that did not fail; nothing but cycles can be wrong with it. The few keys that are not are looked
at read by read, and so are the transactions whose own steps may contradict each other.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tribunal.checkers.graphs.columns import FAIL, OK, Integers, ListSteps, Transactions
from tribunal.checkers.graphs.cycles import NAMES, Cycle, Edge, Graph, process_chain, realtime_barriers, search
from tribunal.checkers.graphs.findings import Findings
from tribunal.checkers.graphs.models import forbidden, implied_by, suffixes_of
from tribunal.checkers.graphs.operations import Operation
from tribunal.results.verdict import EdgeKind, TransactionEdge

Key = Hashable
Element = Hashable
CHUNK: Final = 1 << 22  # elements compared at once
AT_ONCE: Final = 1 << 22  # steps and elements of the keys that are looked at together
UNREAD: Final = -1


def check(history: Sequence[Operation] | ListSteps, model: str = "strict-serializable") -> Findings:
    """Return the anomalies of a list-append history that the model forbids.

    history:  paired operations with steps ("append", key, element) and ("r", key, list or None), or their columns.
    model:    a consistency model of `tribunal.checkers.graphs.models`.
    """
    steps = history if isinstance(history, ListSteps) else ListSteps.of(history)
    found = Findings()
    graph, doubtful = dependencies(steps, found)
    for number in doubtful.tolist():
        _internal(found, steps.operation(number))
    add_time(graph, steps.transactions, suffixes_of(model))
    result = search(graph, suffixes_of(model), implied_by)
    for cycle in result.cycles:
        found.add_circle(cycle.anomaly, edges_of(cycle, steps.transactions.index))
    found.undecided += result.undecided
    return forbidden(found, model)


def dependencies(steps: ListSteps, found: Findings, at_once: int = AT_ONCE) -> tuple[Graph, Integers]:
    """Return the graph of who wrote, read and replaced what, without time (as SQL: `sql_edges.LISTS`), and the transactions that may contradict themselves.

    A key has nothing to do with another one, so that keys are taken some after the others: what is known of them besides their edges is held for so many steps and
    elements at once.
    """
    graph = Graph(len(steps.transactions))
    irregular, doubtful = np.zeros(steps.key_count, bool), [np.zeros(0, np.int64)]
    for first, part in steps.in_parts(at_once):
        lists = Lists(part)
        lists.add_edges(graph)
        irregular[first : first + lists.count] = lists.irregular
        doubtful.append(lists.doubtful_transactions())
    _look_closely(found, graph, steps, irregular)
    return graph, np.unique(np.concatenate(doubtful))


def edges_if_sound(steps: ListSteps, at_once: int = AT_ONCE) -> tuple[Integers, Integers] | None:
    """Return sources and targets of all edges of a history in which nothing but a circle can be wrong; None: something else may be."""
    graph, doubtful = Graph(len(steps.transactions)), [np.zeros(0, np.int64)]
    for _, part in steps.in_parts(at_once):
        lists = Lists(part)
        if lists.irregular.any():
            return None
        lists.add_edges(graph)
        doubtful.append(lists.doubtful_transactions())
    found = Findings()
    for number in np.unique(np.concatenate(doubtful)).tolist():
        _internal(found, steps.operation(number))
        if found.counts:
            return None
    sources, targets, _ = graph.arrays()
    return sources.astype(np.int64), targets.astype(np.int64)


class Lists:
    """The version order of every key at once: its longest read, and which keys keep it up."""

    def __init__(self, steps: ListSteps) -> None:
        self.steps = steps
        self.count = steps.key_count
        outcome = steps.transactions.outcome
        self.reads = np.flatnonzero(steps.is_read & (outcome[steps.txn] == OK))
        self.appends = np.flatnonzero(~steps.is_read)
        self.live = self.appends[outcome[steps.txn[self.appends]] != FAIL]
        self._take_longest()
        self._find_writers()
        self.irregular = self._irregular()

    def _take_longest(self) -> None:
        """Lay the longest reads of all keys one behind the other; a key that was never read may have one append."""
        steps, reads = self.steps, self.reads
        key, length = steps.key[reads], steps.length[reads]
        # Of equally long reads the first counts.
        order = np.lexsort((-np.arange(reads.size), length, key))
        last = order[np.append(key[order][1:] != key[order][:-1], True)[: order.size]]
        self.longest = np.zeros(self.count, np.int64)
        source = np.zeros(self.count, np.int64)
        self.longest[key[last]] = length[last]
        source[key[last]] = steps.first[reads[last]]
        own = np.bincount(steps.key[self.live], minlength=self.count)
        single = self.live[((own == 1) & (self.longest == 0))[steps.key[self.live]]]
        self.size = self.longest.copy()
        self.size[steps.key[single]] = 1
        self.start = np.concatenate([[0], np.cumsum(self.size)])
        self.order = np.zeros(int(self.start[-1]), np.int64)
        read_keys = np.flatnonzero(self.longest)
        place = _ranges(self.longest[read_keys])
        owner = np.repeat(read_keys, self.longest[read_keys])
        self.order[self.start[owner] + place] = steps.elements[source[owner] + place]
        self.order[self.start[steps.key[single]]] = steps.value[single]

    def _find_writers(self) -> None:
        """Find for each place in the orders the append that filled it, and for each append its place."""
        steps = self.steps
        owner = np.repeat(np.arange(self.count), self.size)
        placed, asked = pair_codes((owner, self.order), (steps.key[self.appends], steps.value[self.appends]))
        by_place = np.argsort(placed, kind="stable")
        ordered = placed[by_place]
        at = np.minimum(np.searchsorted(ordered, asked), max(ordered.size - 1, 0))
        hit = ordered[at] == asked if ordered.size else np.zeros(asked.size, bool)
        self.place = np.full(steps.key.size, UNREAD, np.int64)  # of appends: where in all orders
        self.place[self.appends[hit]] = by_place[at[hit]]
        self.writer = np.full(self.order.size, -1, np.int64)
        self.writer[by_place[at[hit]]] = steps.txn[self.appends[hit]]
        self._owner, self._placed, self._ordered, self._asked = owner, placed, ordered, asked

    def _irregular(self) -> NDArray[np.bool_]:
        steps, outcome = self.steps, self.steps.transactions.outcome
        irregular = np.zeros(self.count, bool)
        irregular[self._owner[(self.writer < 0) | (outcome[self.writer] == FAIL)]] = True
        twice = np.unique(self._ordered[1:][self._ordered[1:] == self._ordered[:-1]])
        if twice.size:
            irregular[self._owner[np.isin(self._placed, twice)]] = True
        again = np.sort(self._asked)
        if (again[1:] == again[:-1]).any():
            doubled = np.unique(again[1:][again[1:] == again[:-1]])
            irregular[steps.key[self.appends][np.isin(self._asked, doubled)]] = True
        irregular[steps.key[self.reads[~self._are_prefixes()]]] = True
        irregular[self._intermediate_reads()] = True
        irregular[self._lost_updates()] = True
        return irregular

    def _are_prefixes(self) -> NDArray[np.bool_]:
        """Compare every read with the order of its key, a few million elements at a time."""
        steps, sound = self.steps, np.ones(self.reads.size, bool)
        lengths = steps.length[self.reads]
        ends = np.cumsum(lengths)
        low = 0
        while low < self.reads.size:
            before = int(ends[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(ends, before + CHUNK, "right")))
            rows, own = self.reads[low:high], lengths[low:high]
            place = _ranges(own)
            same = (
                steps.elements[np.repeat(steps.first[rows], own) + place]
                == self.order[np.repeat(self.start[steps.key[rows]], own) + place]
            )
            if not same.all():
                sound[low + np.unique(np.repeat(np.arange(own.size), own)[~same])] = False
            low = high
        return sound

    def _last_read(self) -> tuple[Integers, Integers]:
        """Return the reads that saw something, and the place in the orders of the last element that they saw."""
        rows = self.reads[self.steps.length[self.reads] > 0]
        return rows, np.minimum(
            self.start[self.steps.key[rows]] + self.steps.length[rows] - 1, max(self.order.size - 1, 0)
        )

    def _intermediate_reads(self) -> Integers:
        """Return keys with a read that ends in an append which its transaction followed by another one."""
        steps = self.steps
        txn, key = steps.txn[self.appends], steps.key[self.appends]
        order = np.lexsort((np.arange(txn.size), key, txn))
        followed = order[:-1][(txn[order][1:] == txn[order][:-1]) & (key[order][1:] == key[order][:-1])]
        places = self.place[self.appends[followed]]
        is_intermediate = np.zeros(self.order.size, bool)
        is_intermediate[places[places != UNREAD]] = True
        rows, last = self._last_read()
        if not is_intermediate.any() or rows.size == 0:
            return np.zeros(0, np.int64)
        return np.unique(steps.key[rows[is_intermediate[last] & (self.writer[last] != steps.txn[rows])]])

    def _lost_updates(self) -> Integers:
        """Return keys of which two transactions read the same version first and then appended."""
        steps = self.steps
        chosen = np.union1d(self.reads, self.appends[steps.transactions.outcome[steps.txn[self.appends]] == OK])
        order = chosen[np.lexsort((chosen, steps.key[chosen], steps.txn[chosen]))]
        txn, key = steps.txn[order], steps.key[order]
        head = np.append(True, (txn[1:] != txn[:-1]) | (key[1:] != key[:-1]))[: order.size]
        group = np.cumsum(head) - 1
        # The first read of a group, and whether an append comes behind it.
        is_read = steps.is_read[order]
        first = np.full(int(group[-1]) + 1 if order.size else 0, order.size, np.int64)
        np.minimum.at(first, group[is_read], np.flatnonzero(is_read))
        updates = np.unique(group[~is_read & (np.arange(order.size) > first[group])]) if order.size else group
        read = order[first[updates]]
        pairs = np.stack([steps.key[read], steps.length[read]], axis=1)
        same, counts = np.unique(pairs, axis=0, return_counts=True)
        return np.asarray(same[counts > 1, 0])

    def doubtful_transactions(self) -> Integers:
        """Return committed transactions that touch a key several times and may contradict themselves."""
        steps = self.steps
        rows = np.flatnonzero(steps.transactions.outcome[steps.txn] == OK)
        order = rows[np.lexsort((rows, steps.key[rows], steps.txn[rows]))]
        before, after = order[:-1], order[1:]
        same = (steps.txn[before] == steps.txn[after]) & (steps.key[before] == steps.key[after])
        before, after = before[same], after[same]
        # What the state's length is after each step, by what the key's order says; -1: cannot be said.
        length = np.where(steps.is_read, steps.length, self.place - self.start[steps.key] + 1)
        length = np.where(~steps.is_read & (self.place == UNREAD), -1, length)
        grows = (length[after] == length[before] + 1) & (length[before] >= 0) & (length[after] > 0)
        agrees = np.where(steps.is_read[after], length[after] == length[before], grows)
        # Appends alone need no order that anybody saw.
        unseen = ~steps.is_read[before] & ~steps.is_read[after] & (length[before] < 0) & (length[after] < 0)
        newest = ~steps.is_read[after] & (length[after] < 0)  # an append that nobody read says nothing by itself
        doubtful = ~(agrees | unseen | newest)
        doubtful |= self.irregular[steps.key[after]]
        return np.unique(steps.txn[after[doubtful]])

    def add_edges(self, graph: Graph) -> None:
        """Add the edges of all regular keys."""
        steps, regular = self.steps, ~self.irregular
        owner = self._owner
        next_ = np.flatnonzero((owner[1:] == owner[:-1]) & regular[owner[1:]])
        graph.add(Edge.WW, self.writer[next_], self.writer[next_ + 1])
        unread = self.live[(self.place[self.live] == UNREAD) & regular[steps.key[self.live]]]
        tail = unread[self.size[steps.key[unread]] > 0]
        graph.add(Edge.WW, self.writer[self.start[steps.key[tail] + 1] - 1], steps.txn[tail])
        rows, last = self._last_read()
        chosen = regular[steps.key[rows]]
        graph.add(Edge.WR, self.writer[last[chosen]], steps.txn[rows[chosen]])
        reads = self.reads[regular[steps.key[self.reads]]]
        following = self.start[steps.key[reads]] + steps.length[reads]
        behind = steps.length[reads] < self.size[steps.key[reads]]
        graph.add(Edge.RW, steps.txn[reads[behind]], self.writer[following[behind]])
        self._add_unread(graph, reads[~behind], unread)

    def _add_unread(self, graph: Graph, reads: Integers, unread: Integers) -> None:
        """Whoever read all there was to read comes before every append that nobody read."""
        steps = self.steps
        by_key = unread[np.argsort(steps.key[unread], kind="stable")]
        low = np.searchsorted(steps.key[by_key], steps.key[reads], "left")
        counts = np.searchsorted(steps.key[by_key], steps.key[reads], "right") - low
        targets = by_key[np.repeat(low, counts) + _ranges(counts)]
        graph.add(Edge.RW, np.repeat(steps.txn[reads], counts), steps.txn[targets])


def _ranges(lengths: Integers) -> Integers:
    """Return 0..n-1 for each length n, one behind the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - lengths, lengths)


def pair_codes(*pairs: tuple[Integers, Integers]) -> list[Integers]:
    """Return one number a (key, value) pair, comparable across all given columns."""
    low = min((int(value.min()) for _, value in pairs if value.size), default=0)
    high = max((int(value.max()) for _, value in pairs if value.size), default=0)
    keys = max((int(key.max()) for key, _ in pairs if key.size), default=0) + 1
    if keys * (high - low + 1) < 1 << 62:
        return [key * (high - low + 1) + (value - low) for key, value in pairs]
    ranks = np.unique(np.concatenate([value for _, value in pairs]), return_inverse=True)[1]
    width, place, codes = int(ranks.max()) + 1, 0, []
    for key, value in pairs:
        codes.append(key * width + ranks[place : place + value.size])
        place += value.size
    return codes


def _look_closely(found: Findings, graph: Graph, steps: ListSteps, irregular: NDArray[np.bool_]) -> None:
    """Judge the irregular keys read by read."""
    if not irregular.any():
        return
    rows = np.flatnonzero(irregular[steps.key])
    numbers = np.unique(steps.txn[rows]).tolist()
    keys = dict.fromkeys(steps.names[int(key)] for key in steps.key[rows])
    history = ListHistory({number: steps.operation(number) for number in numbers}, keys)
    orders = {key: _order(found, history, key) for key in keys}
    for key, order in orders.items():
        _dirty_updates(found, history, key, order)
        _lost_updates(found, history, key)
        _edges(graph, history, key, order)
    _reads_of_others(found, history, orders)


class ListHistory:
    """Appends and reads of some keys, as objects; transactions by their number."""

    def __init__(self, operations: Mapping[int, Operation], keys: Mapping[Hashable, None]) -> None:
        self.operations = operations
        self.writer: dict[tuple[Key, Element], int] = {}
        self.intermediate: set[tuple[Key, Element]] = set()
        self.appends: dict[Key, list[Element]] = {}
        self.reads: dict[Key, list[tuple[int, tuple[Element, ...]]]] = {}
        # Transactions that read a key and later appended to it, with what they read first.
        self.updates: dict[Key, list[tuple[int, tuple[Element, ...]]]] = {}
        for number, operation in operations.items():
            self._take(number, operation, keys)

    def _take(self, number: int, operation: Operation, keys: Mapping[Hashable, None]) -> None:
        last: dict[Key, Element] = {}
        first_read: dict[Key, tuple[Element, ...]] = {}
        for function, key, value in operation.steps:
            if key not in keys:
                continue
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


def add_time(graph: Graph, transactions: Transactions, suffixes: Sequence[str]) -> None:
    """Add the edges of clients' own order and of real time that the model asks for."""
    if "-process" in suffixes:
        chosen = np.flatnonzero(transactions.outcome != FAIL)
        chain = Graph(len(chosen))
        process_chain(chain, transactions.process[chosen], transactions.invoked[chosen])
        sources, targets, _ = chain.arrays()
        graph.add(Edge.PROCESS, chosen[sources], chosen[targets])
    if "-realtime" in suffixes:
        realtime_barriers(graph, transactions.invoked, transactions.completed, transactions.outcome == OK)


def edges_of(cycle: Cycle, index: Integers) -> tuple[TransactionEdge, ...]:
    """Return a cycle's edges between the operations that its transactions are, by their places."""
    return tuple(
        TransactionEdge(source=int(index[step.source]), target=int(index[step.target]), kind=EdgeKind(NAMES[step.kind]))
        for step in cycle.steps
    )


def _internal(found: Findings, operation: Operation) -> None:
    """A read must be what the transaction's own reads and appends make it, and shows nothing that it appends only later."""
    known: dict[Key, tuple[Element, ...]] = {}
    appended: dict[Key, tuple[Element, ...]] = {}
    for function, key, value in operation.steps:
        own = appended.get(key, ())
        if function == "append":
            if value in known.get(key, ()) and value not in own:
                found.add("future-read", (operation.index,), f"{value!r} of {key} was read before it was appended")
            if key in known:
                known[key] = (*known[key], value)
            appended[key] = (*own, value)
            continue
        seen = tuple(value or ())
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
