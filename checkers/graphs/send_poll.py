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

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from numpy.typing import NDArray

from tribunal.checkers.api import distinct, is_ascending
from tribunal.checkers.graphs.columns import FAIL, INFO, OK, Numbering, Transactions, key_numbers
from tribunal.checkers.graphs.cycles import Edge, Graph, search
from tribunal.checkers.graphs.findings import NOWHERE, AbortedMessage, Contradiction, Findings, Place
from tribunal.checkers.graphs.list_append import add_time, edges_of, pair_codes
from tribunal.checkers.graphs.models import implied_by
from tribunal.checkers.graphs.operations import Datum, Operation
from tribunal.checkers.judge import steps as flat_steps
from tribunal.results.store import partition_order

Integers = NDArray[np.int64]

PIECE: Final = 1 << 20
ABORTED: Final = "G1a"
FAILED: Final = "was read although its send failed"
SENDS_ALLOWED: Final = frozenset({"int-send-skip", "G0", "G0-process", "G0-realtime"})
SUBSCRIBE_ALLOWED: Final = frozenset({"poll-skip", "nonmonotonic-poll"})
WW_ALLOWED: Final = frozenset({"G1c", "G1c-process", "G1c-realtime"})


class Messages(msgspec.Struct):
    """Messages sent or read, one array a column, in the order of operations and of steps inside them."""

    operation: Integers
    key: Integers
    value: Integers
    offset: Integers  # -1 when unknown
    step: Integers | None = None  # a number that ascends within an operation; None: as they come


class LogHistory:
    """A send/poll history as columns. Values and offsets are whole numbers, keys are numbered by first use.

    extras:  what only imported histories have, by transaction: keys that were rebalanced meanwhile.
    resets:  when a process changed its partitions, and which it kept or got, by process.
    has_all_senders:  nobody sends but these operations, so a message without a writer is one of theirs, too.
    """

    def __init__(
        self,
        transactions: Transactions,
        sends: Messages,
        reads: Messages,
        names: Mapping[int, Hashable],
        numbering: Numbering | None = None,
        rebalanced: Mapping[int, frozenset[int]] = MappingProxyType({}),
        resets: Mapping[int, list[tuple[int, frozenset[int]]]] = MappingProxyType({}),
        *,
        has_all_senders: bool = True,
    ) -> None:
        self.transactions, self.sends, self.reads, self.names = transactions, sends, reads, names
        self.has_all_senders = has_all_senders
        self.outcome = transactions.outcome
        self.rebalanced, self.resets = rebalanced, resets
        self._numbering = numbering or Numbering()
        self._number_messages()

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> "LogHistory":
        """Take paired operations apart; assign and subscribe among them only say when a process changed its partitions."""
        chosen = [operation for operation in operations if operation.function in {"send", "poll", "txn"}]
        keys: dict[Hashable, int] = {}
        numbering = Numbering()
        sends: list[tuple[int, int, int, int]] = []
        reads: list[tuple[int, int, int, int]] = []
        for number, operation in enumerate(chosen):
            for step in operation.steps:
                if step[0] == "send":
                    value, offset = _sent(step[2])
                    sends.append((number, keys.setdefault(step[1], len(keys)), numbering.number(value), offset))
                elif step[0] == "poll" and len(step) > 1 and step[1]:
                    for key, messages in step[1].items():
                        place = keys.setdefault(key, len(keys))
                        reads += [
                            (number, place, numbering.number(value), -1 if offset is None else offset)
                            for offset, value in messages
                        ]
        rebalanced = {
            number: frozenset(keys[key] for entry in log for key in entry["keys"] if key in keys)
            for number, operation in enumerate(chosen)
            if (log := operation.extra.get("rebalance_log"))
        }
        names = {number: key for key, number in keys.items()}
        resets = _resets(operations, keys)
        return cls(
            Transactions.of(chosen), _columns(sends), _columns(reads), names, numbering, rebalanced, resets
        )  # fmt: skip

    @classmethod
    def recorded(cls, txns: pa.Table) -> "LogHistory":
        """Take the table `txns`."""
        steps = flat_steps.flat(txns)
        kind = steps["kind"].to_numpy()
        chosen = np.flatnonzero((kind == flat_steps.SEND) | (kind == flat_steps.POLL))
        steps, kind = steps.take(chosen), kind[chosen]
        keys, names = by_name(*key_numbers(steps))
        rows, txn = np.unique(steps["txn"].to_numpy(), return_inverse=True)
        value = steps["value"].fill_null(-1).to_numpy()
        offset = steps["log_offset"].fill_null(-1).to_numpy()
        columns = (txn.astype(np.int64), keys, value, offset)
        is_send = kind == flat_steps.SEND
        sends, reads = (Messages(*(column[side] for column in columns)) for side in (is_send, ~is_send))
        return cls(Transactions.recorded(txns, rows), sends, reads, names, has_all_senders=False)

    def _number_messages(self) -> None:
        """Give each (key, value) a number: columns `sent` and `seen` point at it."""
        sends, reads = self.sends, self.reads
        sent, seen = pair_codes((sends.key, sends.value), (reads.key, reads.value))
        messages = distinct(sent)
        # Hashing finds the few different ones among many far faster than sorting.
        number = pd.Index(messages).get_indexer(seen)
        unsent = np.flatnonzero(number < 0)
        if unsent.size:
            messages = distinct(np.concatenate([messages, seen[unsent]]))
            number = pd.Index(messages).get_indexer(seen)
        self.sent, self.seen = np.searchsorted(messages, sent).astype(np.int32), number.astype(np.int32)
        self.message_key, self.message_value = np.empty(messages.size, np.int64), np.empty(messages.size, np.int64)
        for rows, own, chosen in ((sends, self.sent, slice(None)), (reads, self.seen, unsent)):
            self.message_key[own[chosen]], self.message_value[own[chosen]] = rows.key[chosen], rows.value[chosen]
        self.writer = np.full(len(messages), -1, dtype=np.int64)
        self.writer[self.sent] = self.sends.operation

    def place(self, key: int, *, operation: int | None = None, number: int = -1) -> Place:
        """Return where an example with a key of a recording, or of an operation with it, comes among those of its kind."""
        if self.has_all_senders:
            return NOWHERE
        return (-1 if operation is None else self.index(operation), *partition_order(self.name(key)), number)

    def index(self, number: int) -> int:
        """Return how a transaction is named."""
        return int(self.transactions.index[number])

    def name(self, key: int) -> str:
        """Return a key as the history calls it."""
        return str(self.names[int(key)])

    def value(self, number: int) -> Hashable:
        """Return a value as the history has it."""
        return self._numbering.value(int(number))


def by_name(keys: Integers, names: Mapping[int, str]) -> tuple[Integers, dict[int, str]]:
    """Number keys by topic and partition: examples do not depend on which stands first in a file."""
    order = sorted(names, key=lambda number: partition_order(names[number]))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order))
    return numbers[keys], {place: names[number] for place, number in enumerate(order)}


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
            code *= width
            code += column
            code -= low
        span *= width
    return code


def _sent(value: Datum) -> tuple[Hashable, int]:
    if isinstance(value, list | tuple):
        offset, number = value
        return number, -1 if offset is None else offset
    return value, -1


def _columns(rows: list[tuple[int, int, int, int]]) -> Messages:
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Messages(*(np.ascontiguousarray(table[:, column]) for column in range(4)))


def _different(*placed: tuple[NDArray[np.int32], Integers], span: int) -> Integers:
    """Return one number for each message at an offset: it is read there again and again, and hashing leaves few of many."""
    pieces = [
        pd.unique(message[first : first + PIECE].astype(np.int64) * span + offset[first : first + PIECE])
        for message, offset in placed
        for first in range(0, message.size, PIECE)
    ]
    return np.asarray(pd.unique(np.concatenate([*pieces, np.empty(0, np.int64)])))


class Order:
    """The version order of every key: messages by index, and where they contradict each other."""

    def __init__(self, history: LogHistory, committed: NDArray[np.bool_], found: Findings) -> None:
        sends, reads = history.sends, history.reads
        known = committed[sends.operation] & (sends.offset >= 0)
        placed = reads.offset >= 0
        span = int(max(sends.offset.max(initial=0), reads.offset.max(initial=0))) + 1
        seen = _different(
            (history.sent[known], sends.offset[known]), (history.seen[placed], reads.offset[placed]), span=span
        )
        message, offset = seen // span, seen % span
        key = history.message_key[message]
        order = np.lexsort((message, offset, key))
        key, offset, message = key[order], offset[order], message[order]
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
        starts = np.append(np.flatnonzero(new), new.size)  # of what stands at one offset, one behind the other
        for number in np.flatnonzero(np.diff(starts) > 1).tolist():
            place, same = starts[number], slice(starts[number], starts[number + 1])
            numbers = tuple(history.message_value[message[same]].tolist())
            values = [history.value(number) for number in numbers]
            writers = tuple(history.index(w) for w in history.writer[message[same]] if w >= 0)
            name, words = history.name(key[place]), f"{history.name(key[place])}@{offset[place]} holds {values}"
            found.add("inconsistent-offsets", writers, words)
            found.contradictions.append(Contradiction(name, int(offset[place]), numbers, writers, words))
        order = np.lexsort((offset, message))
        ordered = message[order]
        for number in np.unique(ordered[1:][ordered[1:] == ordered[:-1]]):
            first, end = np.searchsorted(ordered, number, "left"), np.searchsorted(ordered, number, "right")
            places = offset[order[first:end]].tolist()
            writer = history.writer[number]
            if writer < 0 and not history.has_all_senders:
                continue  # whoever sent it outside of transactions is judged by what its producer promised
            words = f"{history.value(history.message_value[number])} of {history.name(history.message_key[number])} stands at {places}"
            place = history.place(int(history.message_key[number]), number=int(history.message_value[number]))
            found.add("duplicate", (history.index(writer),) if writer >= 0 else (), words, place=place)


def check(operations: Sequence[Operation] | LogHistory, *, ww: bool = True, rw: bool = False) -> Findings:
    """Return every anomaly of a send/poll history, allowed or not (see `invalid`).

    operations: paired; steps ("send", key, [offset, value] or value) and ("poll", {key: [[offset, value], ...]}); or columns.
    ww:         draw edges between the senders of neighbouring messages.
    rw:         draw anti-dependencies too: a transaction that read up to a message comes before the next one's sender.
    """
    history = operations if isinstance(operations, LogHistory) else LogHistory.of(operations)
    found = Findings()
    order = _looked_at(found, history, *_proven(history))
    _cycles(found, history, order, ww=ww, rw=rw)
    return found


class OfKeys(msgspec.Struct, frozen=True):
    """What is to be said of some keys by themselves.

    sources, targets:  edges of reads, by transactions.
    proven:   rows of transactions of unknown outcome of which somebody read a message here; open: of those that sent here, and of which nobody did.
    order, committed, read_by_ok:  by what it is said: how messages stand, which transactions must have committed, and which messages one that is
              known to be read.
    """

    found: Findings
    sources: Integers
    targets: Integers
    proven: Integers
    open: Integers
    order: Order
    committed: NDArray[np.bool_]
    read_by_ok: NDArray[np.bool_]


def of_keys(history: LogHistory, proven: Integers) -> OfKeys:
    """Look at the messages of some keys of a recording: for all but circles no other key matters.

    proven:  rows of transactions of unknown outcome of which somebody read a message of another key.
    """
    found = Findings()
    read_by_ok, committed = _proven(history)
    is_open, rows = history.outcome == INFO, history.transactions.index
    here = committed & is_open
    sent = np.zeros(is_open.size, bool)
    sent[history.sends.operation] = True
    committed |= is_open & np.isin(rows, proven)
    order = _looked_at(found, history, read_by_ok, committed)
    sources, targets, _ = dependencies(history, order, ww=False, rw=False).arrays()
    return OfKeys(
        found, sources.astype(np.int64), targets.astype(np.int64), rows[here], rows[is_open & sent & ~here], order, committed, read_by_ok
    )  # fmt: skip


def _looked_at(
    found: Findings, history: LogHistory, read_by_ok: NDArray[np.bool_], committed: NDArray[np.bool_]
) -> Order:
    """Look for all but circles. Where others send, too, what lacks a writer or a reader is no fact, nor is where a sender's messages stand."""
    order = Order(history, committed, found)
    _dirty_reads(found, history)
    _lost(found, history, order, committed, read_by_ok)
    if history.has_all_senders:
        _unseen(found, history, read_by_ok)
    _positions(found, history, order)
    return order


def _proven(history: LogHistory) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which messages an ok operation read, and which operations must have committed."""
    read_by_ok = np.zeros(len(history.message_key), dtype=bool)
    read_by_ok[history.seen[history.outcome[history.reads.operation] == OK]] = True
    committed = history.outcome == OK
    proven = history.sends.operation[read_by_ok[history.sent]]
    committed[proven[history.outcome[proven] == INFO]] = True
    return read_by_ok, committed


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
    for place in np.flatnonzero(writer < 0) if history.has_all_senders else ():
        _report(found, "phantom", history, int(place), "was read but never sent")
    aborted = (writer >= 0) & (outcome[writer] == FAIL) & (outcome[reads.operation] == OK)
    for place in np.flatnonzero(aborted):
        _report(found, ABORTED, history, int(place), FAILED)
        found.add_aborted(_aborted_message(history, int(place)))
    own = (writer >= 0) & (writer == reads.operation)
    for place in np.flatnonzero(own):
        _report(found, "precommitted-read", history, int(place), "was read by the operation that sends it")


def _report(found: Findings, anomaly: str, history: LogHistory, place: int, what: str) -> None:
    reads = history.reads
    writer = history.writer[history.seen[place]]
    places = [history.index(writer)] if writer >= 0 else []
    row = history.index(reads.operation[place])
    found.add(anomaly, (*places, row), _words(history, place, what), place=(row, "", -1, _step(history, place)))


def _words(history: LogHistory, place: int, what: str) -> str:
    reads = history.reads
    return f"{history.value(reads.value[place])} of {history.name(reads.key[place])} at {reads.offset[place]} {what}"


def _step(history: LogHistory, place: int) -> int:
    return place if history.reads.step is None else int(history.reads.step[place])


def _aborted_message(history: LogHistory, place: int) -> AbortedMessage:
    reads, message = history.reads, history.seen[place]
    return AbortedMessage(
        key=history.name(reads.key[place]),
        log_offset=int(reads.offset[place]),
        value=int(history.message_value[message]),
        writer=history.index(history.writer[message]),
        reader=history.index(reads.operation[place]),
        step=_step(history, place),
        count=1,
        words=_words(history, place, FAILED),
    )


def _lost(
    found: Findings, history: LogHistory, order: Order, committed: NDArray[np.bool_], read_by_ok: NDArray[np.bool_]
) -> None:
    """A committed message below the last one read of its key, which nobody read."""
    writer = history.writer
    for number in np.flatnonzero(passed_over(history, order, committed, read_by_ok)[1]):
        words = f"{history.value(history.message_value[number])} of {history.name(history.message_key[number])} was passed over by all"
        key, value = int(history.message_key[number]), int(history.message_value[number])
        found.add("lost-write", (history.index(writer[number]),), words, place=history.place(key, number=value))


def passed_over(
    history: LogHistory, order: Order, committed: NDArray[np.bool_], read_by_ok: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return of which keys an ok operation read a message, and which committed messages nobody read: those below the last one read of their key, and those behind."""
    bound = np.full(len(history.names), -1, dtype=np.int64)
    seen = read_by_ok & (order.first_place >= 0)
    np.maximum.at(bound, history.message_key[seen], order.first_place[seen])
    writer = history.writer
    unread = (order.last_place >= 0) & ~read_by_ok & (writer >= 0) & committed[writer]
    below = order.last_place <= bound[history.message_key]
    return bound >= 0, unread & below, unread & ~below


def _unseen(found: Findings, history: LogHistory, read_by_ok: NDArray[np.bool_]) -> None:
    sent_ok = history.outcome[history.sends.operation] == OK
    missing = sent_ok & ~read_by_ok[history.sent]
    if missing.any():
        first = int(np.flatnonzero(missing)[0])
        words = f"{int(missing.sum())} acknowledged messages nobody has read, {history.value(history.sends.value[first])} of "
        words += f"{history.name(history.sends.key[first])} the first"
        found.add("unseen", (history.index(history.sends.operation[first]),), words)


def _positions(found: Findings, history: LogHistory, order: Order) -> None:
    read_at, send_at = order.last[history.seen], order.last[history.sent]
    both = [(history.reads, read_at, "poll"), (history.sends, send_at, "send")]
    chosen = both if history.has_all_senders else both[:1]
    for messages, at, verb in chosen:
        _inside(found, history, messages, at, verb)
    for messages, at, verb in chosen:
        _between(found, history, messages, at, verb)


def _inside(found: Findings, history: LogHistory, messages: Messages, index: Integers, verb: str) -> None:
    """Compare neighbouring messages of one key within one operation."""
    order = in_order(messages)
    operation, key, at = messages.operation[order], messages.key[order], index[order]
    step = np.arange(operation.size) if messages.step is None else messages.step[order]
    pair = (operation[1:] == operation[:-1]) & (key[1:] == key[:-1]) & (at[1:] >= 0) & (at[:-1] >= 0)
    delta = at[1:] - at[:-1]
    for place in np.flatnonzero(pair & ((delta > 1) | (delta <= 0))):
        number = int(operation[place])
        if verb == "poll" and int(key[place]) in history.rebalanced.get(number, ()):
            continue
        anomaly = _name("int-", verb, int(delta[place]))
        name, words = history.name(int(key[place])), f"moves by {int(delta[place])} inside"
        stands = history.place(int(key[place]), operation=number, number=int(step[place]))
        found.add(anomaly, (history.index(number),), f"{verb} of {name} {words}", place=stands)


def in_order(messages: Messages) -> Integers | slice:
    """Return the rows by operation and key; within those as they came."""
    code = packed(messages.operation, messages.key)
    return slice(None) if is_ascending(code) else np.argsort(code, kind="stable")


def _name(prefix: str, verb: str, delta: int) -> str:
    return f"{prefix}{verb}-skip" if delta > 1 else f"{prefix}nonmonotonic-{verb}"


def _resets(
    operations: Sequence[Operation], keys: Mapping[Hashable, int]
) -> dict[int, list[tuple[int, frozenset[int]]]]:
    """Return, for each process, when it changed its partitions and which it kept or got."""
    changes: dict[int, list[tuple[int, frozenset[int]]]] = {}
    for operation in operations:
        if operation.function in {"assign", "subscribe"} and operation.outcome != "fail":
            kept = frozenset(keys[key] for key in operation.extra.get("keys") or () if key in keys)
            changes.setdefault(operation.process, []).append((operation.invoked, kept))
    return changes


def _between(found: Findings, history: LogHistory, messages: Messages, index: Integers, verb: str) -> None:
    """Compare an operation's first message of a key with the last one of the process' operation before."""
    order = in_order(messages)
    operation, key, at = messages.operation[order], messages.key[order], index[order]
    if not len(operation):
        return
    head = np.ones(len(operation), dtype=bool)
    head[1:] = (operation[1:] != operation[:-1]) | (key[1:] != key[:-1])
    tail = np.append(head[1:], True)
    operation, key, first, last = operation[head], key[head], at[head], at[tail]
    outcome = history.outcome[operation]
    process = history.transactions.process[operation]
    # A poll of unknown outcome is compared but moves nothing; a send of unknown outcome counts like an ok one.
    moves = outcome == OK if verb == "poll" else outcome != FAIL
    if verb == "send":
        chosen = np.flatnonzero(moves)
        operation, key, first, last = operation[chosen], key[chosen], first[chosen], last[chosen]
        process, moves = process[chosen], moves[chosen]
    revoked = _times_revoked(history, process, key, history.transactions.invoked[operation])
    line = packed(process, key, revoked)
    order = np.argsort(line, kind="stable")
    begins = np.ones(order.size, bool)
    begins[1:] = line[order][1:] != line[order][:-1]
    # The place, in that order, of the newest group before each one that moved the position.
    places = np.arange(order.size)
    newest = np.maximum.accumulate(np.where(moves[order], places, -1))
    before = np.concatenate([[-1], newest[:-1]])
    start = np.maximum.accumulate(np.where(begins, places, 0))
    known = np.flatnonzero((before >= start) & ~begins)
    early, late = order[before[known]], order[known]
    delta = first[late] - last[early]
    wrong = (first[late] >= 0) & (last[early] >= 0) & ((delta <= 0) | ((delta > 1) & (verb == "poll")))
    pairs = zip(early[wrong].tolist(), late[wrong].tolist(), delta[wrong].tolist(), strict=True)
    for one, other, moved in sorted(pairs, key=lambda pair: pair[1]):
        places_ = (history.index(operation[one]), history.index(operation[other]))
        stands = history.place(int(key[other]), operation=int(operation[other]))
        add_step(found, history.name(key[other]), verb, moved, places_, stands)


def add_step(found: Findings, key: str, verb: str, moved: int, rows: tuple[int, int], place: Place) -> None:
    """Count that a process went further than to the next message of a key, or back, from one operation to another."""
    found.add(_name("", verb, moved), rows, f"{verb} of {key} moves by {moved}", place=place)


def _times_revoked(history: LogHistory, process: Integers, key: Integers, invoked: Integers) -> Integers:
    """Return how often a key had been taken from a process by the time of each operation."""
    counts = np.zeros(process.size, np.int64)
    for number, changes in history.resets.items():
        own = np.flatnonzero(process == number)
        for place in np.unique(key[own]).tolist():
            rows = own[key[own] == place]
            forgotten = np.array([at for at, kept in changes if place not in kept], np.int64)
            counts[rows] = np.searchsorted(forgotten, invoked[rows], "left")
    return counts


def _cycles(found: Findings, history: LogHistory, order: Order, *, ww: bool, rw: bool) -> None:
    graph = dependencies(history, order, ww=ww, rw=rw)
    add_time(graph, history.transactions, ("", "-realtime"))
    result = search(graph, ("", "-realtime"), implied_by)
    for cycle in result.cycles:
        found.add_circle(cycle.anomaly, edges_of(cycle, history.transactions.index))
    found.undecided += result.undecided


def dependencies(history: LogHistory, order: Order, *, ww: bool, rw: bool) -> Graph:
    """Return the graph of who wrote, read and replaced what, without time (as SQL: `sql_edges.MESSAGES`)."""
    graph = Graph(len(history.transactions))
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
    return graph


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
