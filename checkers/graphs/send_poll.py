"""Send and poll transactions over a partitioned log: what clients of a Kafka-like system saw, judged.

Every message has an offset, so the version order of a key (one topic-partition) is given, not inferred: the offsets
that sends returned and polls showed. An operation `must have committed` if it is ok, or if its outcome is unknown and
somebody read one of its messages. Offsets are squeezed to an index per key (gaps are transaction markers, not loss).

Columns instead of objects: a history of 1.5 million messages read is five integer arrays. Anomalies, by name:

    inconsistent-offsets  one offset, two values          lost-write      committed, its offset was passed, never read
    duplicate             one value, two offsets          unseen          acknowledged, nobody has read it so far
    G1a                   read of a failed send           phantom         read of a value that nobody sent
    precommitted-read     an operation reads its own send (int-)poll-skip, (int-)nonmonotonic-poll: a reader jumps or goes back
    (int-)nonmonotonic-send, int-send-skip: a sender's messages out of order
    G0, G1c and their realtime variants: cycles of ww (next offset) and wr (read) edges; G-single, G-nonadjacent and G2 once
    anti-dependencies are asked for (a read is overwritten by the next message): jepsen.tests.kafka draws none.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from checkers.graphs.cycles import Edge, Graph, search
from checkers.graphs.findings import Findings
from checkers.graphs.list_append import add_time, words
from checkers.graphs.models import implied_by
from checkers.graphs.operations import Operation

Integers = NDArray[np.int64]

SENDS_ALLOWED: Final = frozenset({"int-send-skip", "G0", "G0-process", "G0-realtime"})
SUBSCRIBE_ALLOWED: Final = frozenset({"poll-skip", "nonmonotonic-poll"})
WW_ALLOWED: Final = frozenset({"G1c", "G1c-process", "G1c-realtime"})
OK, FAIL, INFO = 0, 1, 2
OUTCOMES: Final = {"ok": OK, "fail": FAIL, "info": INFO}


class Messages(msgspec.Struct):
    """Messages sent or read, one array a column, in the order of operations and of steps inside them."""

    operation: Integers
    key: Integers
    value: Integers
    offset: Integers  # -1 when unknown


class LogHistory:
    """A send/poll history as columns. Values and offsets are whole numbers, keys are numbered by first use."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.keys: dict[Any, int] = {}
        self._words: dict[Any, int] = {}  # values that are not whole numbers, numbered downwards from -2
        sends: list[tuple[int, int, int, int]] = []
        reads: list[tuple[int, int, int, int]] = []
        for number, operation in enumerate(operations):
            for step in operation.steps:
                if step[0] == "send":
                    value, offset = _sent(step[2])
                    sends.append((number, self._key(step[1]), self._value(value), offset))
                elif step[0] == "poll" and len(step) > 1 and step[1]:
                    for key, messages in step[1].items():
                        place = self._key(key)
                        reads += [
                            (number, place, self._value(value), -1 if offset is None else offset)
                            for offset, value in messages
                        ]
        self.sends, self.reads = _columns(sends), _columns(reads)
        self.outcome = np.array([OUTCOMES[operation.outcome] for operation in operations], dtype=np.int8)
        self._number_messages()

    def _key(self, key: Any) -> int:
        return self.keys.setdefault(key, len(self.keys))

    def _value(self, value: Any) -> int:
        if type(value) is int:
            return value
        return self._words.setdefault(value, -2 - len(self._words))

    def _number_messages(self) -> None:
        """Give each (key, value) a number: columns `sent` and `seen` point at it."""
        key = np.concatenate([self.sends.key, self.reads.key])
        value = np.concatenate([self.sends.value, self.reads.value])
        _, first, number = np.unique(packed(key, value), return_index=True, return_inverse=True)
        self.message_key, self.message_value = key[first], value[first]
        self.sent, self.seen = number[: len(self.sends.key)], number[len(self.sends.key) :]
        self.writer = np.full(len(first), -1, dtype=np.int64)
        self.writer[self.sent] = self.sends.operation

    def name(self, key: int) -> str:
        """Return a key as the history calls it."""
        return str(list(self.keys)[key])


def packed(*columns: Integers) -> Integers:
    """Return one number a row that sorts like the rows: sorting integers is ten times faster than sorting rows."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    span = 1
    for column in columns:
        low = int(column.min()) if len(column) else 0
        width = int(column.max()) - low + 1 if len(column) else 1
        if span * width >= 1 << 62:
            # Too wide to pack: ranks are as good as values.
            _, rank = np.unique(column, return_inverse=True)
            _, code = np.unique(code, return_inverse=True)
            low, width, span = 0, len(code) + 1, len(code) + 1
            code = code * width + rank
        else:
            code = code * width + (column - low)
        span *= width
    return code


def _sent(value: Any) -> tuple[Any, int]:
    if isinstance(value, list | tuple):
        offset, number = value
        return number, -1 if offset is None else offset
    return value, -1


def _columns(rows: list[tuple[int, int, int, int]]) -> Messages:
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Messages(*(np.ascontiguousarray(table[:, column]) for column in range(4)))


class Order:
    """The version order of every key: messages by index, and where they contradict each other."""

    def __init__(self, history: LogHistory, committed: NDArray[np.bool_], found: Findings) -> None:
        sends, reads = history.sends, history.reads
        known = committed[sends.operation] & (sends.offset >= 0)
        placed = reads.offset >= 0
        key = np.concatenate([sends.key[known], reads.key[placed]])
        offset = np.concatenate([sends.offset[known], reads.offset[placed]])
        message = np.concatenate([history.sent[known], history.seen[placed]])
        _, once = np.unique(packed(key, offset, message), return_index=True)
        key, offset, message = key[once], offset[once], message[once]
        new = np.ones(len(key), dtype=bool)
        new[1:] = (key[1:] != key[:-1]) | (offset[1:] != offset[:-1])
        self._contradictions(history, found, key, offset, message, new)
        # Of several values at one offset the smallest stands for it: a rule, where others draw lots.
        self.key, self.message = key[new], message[new]
        start = np.ones(len(self.key), dtype=bool)
        start[1:] = self.key[1:] != self.key[:-1]
        first = (
            np.maximum.accumulate(np.where(start, np.arange(len(self.key)), 0)) if len(self.key) else np.empty(0, int)
        )
        self.index = np.arange(len(self.key)) - first
        count = len(history.message_key)
        self.last = np.full(count, -1, dtype=np.int64)
        self.last[self.message] = self.index
        # Loss is judged for every value that an offset ever held, whichever of them stands for it.
        place = self.index[np.cumsum(new) - 1] if len(new) else self.index
        self.first_place = np.full(count, -1, dtype=np.int64)
        self.first_place[message[::-1]] = place[::-1]
        self.last_place = np.full(count, -1, dtype=np.int64)
        self.last_place[message] = place

    def _contradictions(
        self,
        history: LogHistory,
        found: Findings,
        key: Integers,
        offset: Integers,
        message: Integers,
        new: NDArray[np.bool_],
    ) -> None:
        for place in np.flatnonzero(new[:-1] & ~new[1:]) if len(new) else []:
            same = (key == key[place]) & (offset == offset[place])
            values = history.message_value[message[same]].tolist()
            writers = tuple(history.operations[w].index for w in history.writer[message[same]] if w >= 0)
            found.add("inconsistent-offsets", writers, f"{history.name(key[place])}@{offset[place]} holds {values}")
        order = np.lexsort((offset, message))
        again = np.flatnonzero(message[order][1:] == message[order][:-1])
        for number in np.unique(message[order][again]):
            places = offset[message == number].tolist()
            writer = history.writer[number]
            told = f"{history.message_value[number]} of {history.name(history.message_key[number])} stands at {places}"
            found.add("duplicate", (history.operations[writer].index,) if writer >= 0 else (), told)


def check(operations: Sequence[Operation], *, ww: bool = True, rw: bool = False) -> Findings:
    """Return every anomaly of a send/poll history, allowed or not (see `invalid`).

    operations: paired; steps ("send", key, [offset, value] or value) and ("poll", {key: [[offset, value], ...]}).
    ww:         draw edges between the senders of neighbouring messages.
    rw:         draw anti-dependencies too: a transaction that read up to a message comes before the next one's sender.
    """
    chosen = [operation for operation in operations if operation.function in {"send", "poll", "txn"}]
    history = LogHistory(chosen)
    found = Findings()
    read_by_ok = np.zeros(len(history.message_key), dtype=bool)
    read_by_ok[history.seen[history.outcome[history.reads.operation] == OK]] = True
    committed = history.outcome == OK
    proven = history.sends.operation[read_by_ok[history.sent]]
    committed[proven[history.outcome[proven] == INFO]] = True
    order = Order(history, committed, found)
    _dirty_reads(found, history)
    _lost(found, history, order, committed, read_by_ok)
    _unseen(found, history, read_by_ok)
    _positions(found, history, order, operations)
    _cycles(found, history, order, ww=ww, rw=rw)
    return found


def invalid(found: Findings, *, ww: bool, subscribe: bool) -> set[str]:
    """Return the anomalies that a log of Kafka's promises must not show.

    Sends interleave freely, a subscriber's rebalance may skip or rewind, and with ww edges a reader of uncommitted
    messages closes cycles that Kafka never excluded.
    """
    allowed = SENDS_ALLOWED | (SUBSCRIBE_ALLOWED if subscribe else frozenset()) | (WW_ALLOWED if ww else frozenset())
    return found.anomalies - allowed


def _dirty_reads(found: Findings, history: LogHistory) -> None:
    reads, outcome = history.reads, history.outcome
    writer = history.writer[history.seen]
    for place in np.flatnonzero(writer < 0):
        _tell(found, "phantom", history, int(place), "was read but never sent")
    aborted = (writer >= 0) & (outcome[writer] == FAIL) & (outcome[reads.operation] == OK)
    for place in np.flatnonzero(aborted):
        _tell(found, "G1a", history, int(place), "was read although its send failed")
    own = (writer >= 0) & (writer == reads.operation)
    for place in np.flatnonzero(own):
        _tell(found, "precommitted-read", history, int(place), "was read by the operation that sends it")


def _tell(found: Findings, anomaly: str, history: LogHistory, place: int, what: str) -> None:
    reads = history.reads
    writer = history.writer[history.seen[place]]
    places = [history.operations[writer].index] if writer >= 0 else []
    words_ = f"{reads.value[place]} of {history.name(reads.key[place])} at {reads.offset[place]} {what}"
    found.add(anomaly, (*places, history.operations[reads.operation[place]].index), words_)


def _lost(
    found: Findings, history: LogHistory, order: Order, committed: NDArray[np.bool_], read_by_ok: NDArray[np.bool_]
) -> None:
    """A committed message below the last one read of its key, which nobody read."""
    bound = np.full(len(history.keys), -1, dtype=np.int64)
    seen = read_by_ok & (order.first_place >= 0)
    np.maximum.at(bound, history.message_key[seen], order.first_place[seen])
    writer = history.writer
    passed = (order.last_place >= 0) & (order.last_place <= bound[history.message_key]) & ~read_by_ok
    lost = passed & (writer >= 0) & committed[writer]
    for number in np.flatnonzero(lost):
        told = f"{history.message_value[number]} of {history.name(history.message_key[number])} was passed over by all"
        found.add("lost-write", (history.operations[writer[number]].index,), told)


def _unseen(found: Findings, history: LogHistory, read_by_ok: NDArray[np.bool_]) -> None:
    sent_ok = history.outcome[history.sends.operation] == OK
    missing = sent_ok & ~read_by_ok[history.sent]
    if missing.any():
        first = int(np.flatnonzero(missing)[0])
        told = f"{int(missing.sum())} acknowledged messages nobody has read, {history.sends.value[first]} of "
        told += f"{history.name(history.sends.key[first])} the first"
        found.add("unseen", (history.operations[history.sends.operation[first]].index,), told)


def _positions(found: Findings, history: LogHistory, order: Order, operations: Sequence[Operation]) -> None:
    read_at, send_at = order.last[history.seen], order.last[history.sent]
    _inside(found, history, history.reads, read_at, "poll")
    _inside(found, history, history.sends, send_at, "send")
    resets = _resets(history, operations)
    _between(found, history, history.reads, read_at, "poll", resets)
    _between(found, history, history.sends, send_at, "send", resets)


def _inside(found: Findings, history: LogHistory, messages: Messages, index: Integers, verb: str) -> None:
    """Compare neighbouring messages of one key within one operation."""
    order = np.lexsort((np.arange(len(index)), messages.key, messages.operation))
    operation, key, at = messages.operation[order], messages.key[order], index[order]
    pair = (operation[1:] == operation[:-1]) & (key[1:] == key[:-1]) & (at[1:] >= 0) & (at[:-1] >= 0)
    delta = at[1:] - at[:-1]
    for place in np.flatnonzero(pair & ((delta > 1) | (delta <= 0))):
        number = int(operation[place])
        name = history.name(int(key[place]))
        if verb == "poll" and name in _rebalanced(history.operations[number]):
            continue
        anomaly = _name("int-", verb, int(delta[place]))
        found.add(anomaly, (history.operations[number].index,), f"{verb} of {name} moves by {int(delta[place])} inside")


def _name(prefix: str, verb: str, delta: int) -> str:
    return f"{prefix}{verb}-skip" if delta > 1 else f"{prefix}nonmonotonic-{verb}"


def _rebalanced(operation: Operation) -> set[str]:
    return {str(key) for entry in operation.extra.get("rebalance_log") or () for key in entry["keys"]}


def _resets(history: LogHistory, operations: Sequence[Operation]) -> dict[int, list[tuple[int, set[int]]]]:
    """Return, for each process, when it changed its partitions and which it kept or got."""
    changes: dict[int, list[tuple[int, set[int]]]] = {}
    for operation in operations:
        if operation.function in {"assign", "subscribe"} and operation.outcome != "fail":
            kept = {history.keys[key] for key in operation.extra.get("keys") or () if key in history.keys}
            changes.setdefault(operation.process, []).append((operation.invoked, kept))
    return changes


def _between(
    found: Findings,
    history: LogHistory,
    messages: Messages,
    index: Integers,
    verb: str,
    resets: Mapping[int, list[tuple[int, set[int]]]],
) -> None:
    """Compare an operation's first message of a key with the last one of the process' operation before."""
    order = np.lexsort((np.arange(len(index)), messages.key, messages.operation))
    operation, key, at = messages.operation[order], messages.key[order], index[order]
    if not len(operation):
        return
    head = np.ones(len(operation), dtype=bool)
    head[1:] = (operation[1:] != operation[:-1]) | (key[1:] != key[:-1])
    tail = np.append(head[1:], True)
    groups = zip(operation[head].tolist(), key[head].tolist(), at[head].tolist(), at[tail].tolist(), strict=True)
    # A poll of unknown outcome is compared but moves nothing; a send of unknown outcome counts like an ok one.
    moves = {OK} if verb == "poll" else {OK, INFO}
    position: dict[int, dict[int, tuple[int, int]]] = {}
    pending = {process: list(changes) for process, changes in resets.items()}
    for number, place, first, last in groups:
        told = history.operations[number]
        known = position.setdefault(told.process, {})
        changes = pending.get(told.process, [])
        while changes and changes[0][0] < told.invoked:
            _, kept = changes.pop(0)
            for forgotten in [k for k in known if k not in kept]:
                del known[forgotten]
        outcome = OUTCOMES[told.outcome]
        if verb == "send" and outcome == FAIL:
            continue
        if place in known:
            before, earlier = known[place]
            delta = first - before
            if first >= 0 and before >= 0 and (delta <= 0 or (delta > 1 and verb == "poll")):
                name = history.name(place)
                found.add(
                    _name("", verb, delta),
                    (history.operations[earlier].index, told.index),
                    f"{verb} of {name} moves by {delta}",
                )
        if outcome in moves:
            known[place] = (last, number)


def _cycles(found: Findings, history: LogHistory, order: Order, *, ww: bool, rw: bool) -> None:
    graph = Graph(len(history.operations))
    writer = history.writer
    following = np.flatnonzero(order.key[1:] == order.key[:-1]) if len(order.key) else np.empty(0, dtype=np.int64)
    # A message that stands twice orders nothing: nobody knows which of its places was meant.
    once = order.first_place == order.last_place
    following = following[once[order.message[following]] & once[order.message[following + 1]]]
    before, after = writer[order.message[following]], writer[order.message[following + 1]]
    if ww:
        known = (before >= 0) & (after >= 0)
        graph.add(Edge.WW, before[known], after[known])
    source = writer[history.seen]
    graph.add(Edge.WR, source[source >= 0], history.reads.operation[source >= 0])
    if rw:
        successor = np.full(len(writer), -1, dtype=np.int64)
        successor[order.message[following]] = after
        _overwritten(graph, history, order, successor)
    add_time(graph, history.operations, ("", "-realtime"))
    result = search(graph, ("", "-realtime"), implied_by)
    for cycle in result.cycles:
        places = tuple(history.operations[step.source].index for step in cycle.steps)
        found.add(cycle.anomaly, places, words(cycle, history.operations))
    found.undecided += result.undecided


def _overwritten(graph: Graph, history: LogHistory, order: Order, successor: Integers) -> None:
    """Add: whoever read a key up to a message comes before the sender of the next one."""
    reads = history.reads
    rank = np.lexsort((order.last[history.seen], reads.key, reads.operation))
    operation, key, message = reads.operation[rank], reads.key[rank], history.seen[rank]
    if not len(operation):
        return
    last = np.append((operation[1:] != operation[:-1]) | (key[1:] != key[:-1]), True)
    target = successor[message[last]]
    graph.add(Edge.RW, operation[last][target >= 0], target[target >= 0])
