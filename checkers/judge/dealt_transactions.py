"""The lists of a run's transactions in many tasks: their keys are dealt out, then the time in which they may lead in a circle.

A list has nothing to do with another one but for circles. So a task looks at the lists with some partitions' numbers: it reads the row
groups of `txns` that may hold their steps, says whether they are *sound* (nothing but a circle can be wrong with them), and hands the
edges on (`circles`). If all are sound, other tasks look at stretches of time for a circle. What is not sound, and what leads in a circle, is
judged as ever, by one task that has all of it: counts, examples and what permitted losses excuse are those of the whole history.

A history of which the last is never needed takes no more memory in any task than its share of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import Array
from tribunal.checkers.graphs.borders import Border
from tribunal.checkers.graphs.borders import border as border_of
from tribunal.checkers.graphs.borders import over_borders as over_borders_of
from tribunal.checkers.graphs.circles import BEGINNING, Margin, Reported, Stretch, has_circle, reported
from tribunal.checkers.graphs.columns import INFO, Integers, ListSteps, Numbering, Transactions
from tribunal.checkers.graphs.findings import Findings, OfPart
from tribunal.checkers.graphs.list_append import edges_if_sound
from tribunal.checkers.graphs.operations import OPEN_END
from tribunal.checkers.graphs.send_poll import LogHistory, OfKeys, by_name, of_keys
from tribunal.checkers.graphs.send_poll import Messages as Columns
from tribunal.checkers.judge import hot_partitions
from tribunal.checkers.judge import steps as flat_steps
from tribunal.checkers.judge.fenced import EPOCHS, Producer, producers
from tribunal.checkers.judge.hot_partitions import Group, read_groups
from tribunal.checkers.judge.offsets_in_groups import Extent, OffsetsIn, filled, offsets_in
from tribunal.checkers.judge.offsets_in_groups import by_offsets as cut_by_offsets
from tribunal.checkers.judge.read_steps import OPERATIONS, TABLE, leaf, operations_in
from tribunal.checkers.properties.transactions import MADE
from tribunal.results.mirror import footers_here
from tribunal.results.recording import NO_PARTITION, TABLES, DamagedRecording
from tribunal.results.store import Recording, readable
from tribunal.results.validation import contradiction

BIG_BYTES: Final = (
    1 << 18
)  # where steps differ by little a byte holds many; of smaller tables the footers are not even read
PART_STEPS: Final = (
    1 << 22
)  # steps of some lists' transactions that one task looks at, an element that was read being one
STRETCH_TRANSACTIONS: Final = 1 << 20
MARGIN_TRANSACTIONS: Final = 1 << 12
MADE_TRANSACTIONS: Final = 1 << 20  # of which one task asks who made them
COLUMNS: Final = ("process", "outcome", "begin_ns", "end_ns")
STEP: Final = (np.int64, np.bool_, np.bool_, np.int64, np.int32, np.int64, np.bool_)
TRANSACTION: Final = (np.int64, np.int64, np.int8, np.int64, np.int64, np.int64)
MESSAGE: Final = (np.int64, np.bool_, np.int64, np.int64, np.int32, np.int64, np.int64)


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lists and messages with partitions' numbers from `first` on and before `end`, and the row groups that may hold their steps (by rows).

    extents:  messages with these offsets instead; `first` and `end` only tell such parts apart.
    """

    first: int
    end: int
    groups: tuple[Group, ...]
    extents: tuple[Extent, ...] = ()


class Deal(msgspec.Struct, frozen=True):
    """How a history is dealt out: by partitions, and the margins in which it may be cut; `timed`: all row groups with their moments.

    by_offsets:  it is one of messages, as far as its first row group with any step says, and is dealt out by their offsets if these fit.
    """

    parts: tuple[Part, ...]
    margins: tuple[Margin, ...]
    timed: tuple[tuple[Group, Margin], ...]
    by_offsets: bool

    @property
    def count(self) -> int:
        """How many transactions there are."""
        return sum(group.rows for group, _ in self.timed)

    def in_order(self) -> Iterator[tuple[Group, ...]]:
        """Yield row groups some after the others, of so many transactions each."""
        own: list[Group] = []
        for group, _ in self.timed:
            own.append(group)
            if sum(one.rows for one in own) >= MADE_TRANSACTIONS:
                yield tuple(own)
                own = []
        if own:
            yield tuple(own)

    def within(self, stretch: Stretch) -> tuple[Group, ...]:
        """Return the row groups that may hold transactions of a stretch."""
        return tuple(own for own, (first, end) in self.timed if first < stretch.until_ns and end > stretch.from_ns)


NO_ROWS: Final = np.zeros(0, np.int64)
Span = tuple[int, int, int]  # the first number, the one behind the last, and how much lies there


def is_small(run_dir: Path) -> bool:
    """Whether a run's transactions are so few that nothing of them is dealt out."""
    paths = (run_dir / "recording" / TABLE).glob("tp=*/part-*.parquet")
    return sum(path.stat().st_size for path in paths) < BIG_BYTES


def deal(recording: Recording) -> Deal | None:
    """Deal a run's lists out; None: one task looks at all of them."""
    paths = [path for own in recording.files[TABLE].values() for path in own]
    found = list(_steps_in(paths))
    stepped = [(own, span) for own, span in found if span is not None]
    if len(stepped) < len(found):
        return None  # in which part they belong nobody knows
    spans = [span for _, span in stepped if span[2]]
    parts = -(-sum(span[2] for span in spans) // PART_STEPS)
    bounds = cuts(spans, parts)
    by_offsets = parts > 1 and _has_messages(next(own for own, span in stepped if span[2]))
    if len(bounds) < 3 and not by_offsets:
        return None
    parts_of = tuple(
        Part(first, end, tuple(own for own, span in stepped if span[2] and span[0] < end and span[1] > first))
        for first, end in pairwise(bounds)
    )
    timed = [(own, *_moments(began, ended)) for (own, _), began, ended in zip(stepped, *_times(paths), strict=True)]
    return Deal(
        parts_of,
        _margins([(first, end, own.rows) for own, first, end in timed]),
        tuple((own, (first, end)) for own, first, end in timed),
        by_offsets,
    )


def _has_messages(group: Group) -> bool:
    """Whether all steps of a row group send or poll."""
    kind = flat_steps.codes(pc.struct_field(_fields(group, ["kind"]), "kind"), flat_steps.KINDS)
    return bool(pc.all(pc.is_in(kind, value_set=pa.array(flat_steps.OF_MESSAGES))).as_py())


def offsets_of(groups: Sequence[Group]) -> list[OffsetsIn]:
    """Say which offsets of which partitions some row groups have."""
    return [offsets_in(group, _fields(group, ["kind", "topic", "partition", "log_offset"])) for group in groups]


def parts_by_offsets(groups: Sequence[OffsetsIn]) -> list[Part]:
    """Deal messages out by their offsets; `groups`: all row groups, in the order of their rows."""
    cut = cut_by_offsets(groups, PART_STEPS)
    return [Part(number, number + 1, own, extents) for number, (extents, own) in enumerate(cut)]


def _times(paths: Sequence[Path]) -> tuple[Iterator[Group], Iterator[Group]]:
    return hot_partitions.groups(TABLE, paths, by="begin_ns"), hot_partitions.groups(TABLE, paths, by="end_ns")


def _moments(began: Group, ended: Group) -> Margin:
    """Return the first moment of a row group and the first point behind its last one: who has no end has a begin."""
    return began.first, 1 + max(began.last, ended.last)


def _margins(spans: Sequence[Span]) -> tuple[Margin, ...]:
    count = sum(rows for *_, rows in spans)
    bounds = cuts(spans, -(-count // STRETCH_TRANSACTIONS))
    if len(bounds) < 3:
        return ()
    width = max(1, (bounds[-1] - bounds[0]) * MARGIN_TRANSACTIONS // count)
    return tuple((first, min(first + width, behind)) for first, behind in pairwise(bounds[1:]))


def cuts(spans: Sequence[Span], count: int) -> list[int]:
    """Return where to cut what lies evenly in these spans into so many parts of the same size at most, with both ends."""
    with_any = np.array([span for span in spans if span[2]], np.int64).reshape(-1, 3)
    if not len(with_any):
        return []
    points, before = filled(*with_any.T)
    inner = np.interp(before[-1] * np.arange(1, count) / max(count, 1), before, (points - points[0]).astype(np.float64))
    bounds: list[int] = np.unique(np.append(points[[0, -1]], points[0] + np.rint(inner).astype(np.int64))).tolist()
    return bounds


def _steps_in(paths: Sequence[Path]) -> Iterator[tuple[Group, Span | None]]:
    """Yield the row groups of transactions by their rows, and which partitions' numbers their steps have: as footers say, or else the steps; None: no step names one."""
    footers_here(*paths)
    row = 0
    for path in paths:
        with readable(TABLE, path, only_footer=True) as (file, _):
            for number in range(file.metadata.num_row_groups):
                own = file.metadata.row_group(number)
                place = leaf(own, "partition")
                statistics = own.column(place).statistics
                known = statistics is not None and statistics.has_min_max
                ends = (statistics.min, statistics.max) if known else _looked_up(path, number)
                group = Group(str(path), number, row, row + own.num_rows - 1, 0, own.num_rows)
                yield group, None if ends is None else _span(ends[0], ends[1], own.column(place).num_values)
                row += own.num_rows


def _span(first: int, last: int, count: int) -> Span:
    return (first, last + 1, count) if first <= last else (0, 0, 0)  # (transactions without a step count as well)


def _looked_up(path: Path, number: int) -> tuple[int, int] | None:
    """Return the ends of the partitions' numbers in a row group, those of nothing where there is no step; None: no step names one."""
    numbers = pc.struct_field(_fields(Group(str(path), number, 0, 0, 0, 0), ["partition"]), "partition")
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None:
        return None if len(numbers) else (0, -1)
    return ends["min"], ends["max"]


def _fields(group: Group, names: Sequence[str]) -> pa.StructArray:
    """Read some fields of all steps of a row group."""
    return pc.list_flatten(operations_in(group, names))


def damage(recording: Recording) -> DamagedRecording | None:
    """Return the first contradiction of the table, but for its steps, a row group at a time."""
    names = [name for name in TABLES[TABLE].fields if name != OPERATIONS]
    if all(contradiction(TABLE, rows) is None for _, rows in without_steps(recording)):
        return None
    return contradiction(TABLE, recording.table(TABLE, NO_PARTITION, names))  # which is the first of all of them


# One task


class Messages(msgspec.Struct, frozen=True):
    """What the messages of some partitions say.

    reported:  of circles.
    found:     all else that is wrong with them, or worth showing.
    proven, open:  rows of transactions of unknown outcome, as numbers in bytes (`send_poll.OfKeys`).
    border:    of ranges of partitions' offsets; None: they are those of whole partitions.
    """

    reported: Reported
    found: OfPart
    proven: bytes
    open: bytes
    border: Border | None = None


def said(part: Part, margins: Sequence[Margin], proven: Integers = NO_ROWS) -> tuple[Reported | None, Messages | None]:
    """Say what some lists say of circles, None if something else may be wrong with them; and what the messages of these partitions say, None where there are none.

    proven:  rows of transactions of unknown outcome of which somebody read a message elsewhere.
    """
    found = _Steps(part)
    for group, rows in zip(part.groups, _read(part.groups, COLUMNS), strict=True):
        found.take(group, rows, operations_in(group))
    if found.in_no_partition:
        return None, None
    messages = _of_messages(found, margins, proven) if found.has_messages or part.extents else None
    steps, moments = found.lists()
    edges = edges_if_sound(steps)
    return None if edges is None else reported(steps.transactions, moments, *edges, margins), messages


def _of_messages(steps: "_Steps", margins: Sequence[Margin], proven: Integers) -> Messages:
    history, moments = steps.messages()
    own = of_keys(history, proven)
    of_circles = reported(history.transactions, moments, own.sources, own.targets, margins)
    seen = steps.border(history, own)
    return Messages(of_circles, OfPart.of(own.found), own.proven.tobytes(), own.open.tobytes(), seen)


def proven_elsewhere(every: Sequence[Messages]) -> Integers:
    """Return the rows of transactions of unknown outcome of which somebody read a message, as any partitions say."""
    return np.unique(np.concatenate([NO_ROWS, *(np.frombuffer(one.proven, np.int64) for one in every)]))


def depends_on(own: Messages, proven: Integers) -> bool:
    """Whether what these messages say changes with what others have proven."""
    return bool(np.isin(np.frombuffer(own.open, np.int64), proven).any())


def over_borders(every: Iterable[Messages]) -> Findings | None:
    """Return what is found of messages from one range of offsets to another; None: they have to be looked at by partitions.

    every:  what they say, in the order of ranges; nothing is found where they are looked at by partitions.
    """
    borders = [one.border for one in every if one.border is not None]
    return over_borders_of(borders) if borders else Findings()


def made_by(groups: Sequence[Group]) -> list[Producer]:
    """Return who made the transactions of some row groups."""
    return producers(pa.concat_tables(_read(groups, EPOCHS)))


def made(recording: Recording, rows: Sequence[int]) -> pa.Table:
    """Return when some transactions, by their rows, began, and whose they are, in their order: columns MADE; no other row groups are read."""
    wanted = np.unique(np.array(rows, np.int64))
    found = [TABLES[TABLE].arrow.empty_table().select(MADE)]
    for first, group in _by_rows(recording):
        inside = wanted[(wanted >= first) & (wanted < first + group.rows)] - first
        if inside.size:
            found.extend(own.take(pa.array(inside)) for own in read_groups(TABLE, [group], MADE))
    return pa.concat_tables(found).take(pa.array(np.searchsorted(wanted, np.array(rows, np.int64))))


def without_steps(recording: Recording) -> Iterator[tuple[int, pa.Table]]:
    """Yield the table without its steps, a row group at a time, each with its first row."""
    names = [name for name in TABLES[TABLE].fields if name != OPERATIONS]
    for first, group in _by_rows(recording):
        for rows in read_groups(TABLE, [group], names):
            yield first, rows


def _by_rows(recording: Recording) -> Iterator[tuple[int, Group]]:
    paths = [path for own in recording.files[TABLE].values() for path in own]
    first = 0
    for group in hot_partitions.groups(TABLE, paths, by="begin_ns", only_footers=True):
        yield first, group
        first += group.rows


def leads_in_a_circle(groups: Sequence[Group], stretch: Stretch) -> bool:
    """Whether transactions of a stretch depend on each other in a circle; `groups`: those that may hold any."""
    pieces = [
        (*piece, moments)
        for group, rows in zip(groups, _read(groups, COLUMNS), strict=True)
        for *piece, moments in [_transactions(rows, np.arange(group.first, group.last + 1))]
    ]
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    inside = (columns[-1] >= stretch.from_ns) & (columns[-1] < stretch.until_ns)
    return has_circle(Transactions(*(column[inside] for column in columns[:-1])), stretch.edges)


def _read(groups: Sequence[Group], columns: Sequence[str]) -> Iterator[pa.Table]:
    return (rows for group in groups for rows in read_groups(TABLE, [group], columns))


def _transactions(rows: pa.Table, index: Integers) -> tuple[Integers, Integers, Array, Integers, Integers, Integers]:
    """Return index, process, outcome, invocation, completion and moment of transactions."""
    process = rows["process"].to_numpy().astype(np.int64)
    outcome = flat_steps.codes(rows["outcome"], flat_steps.OUTCOMES).to_numpy(zero_copy_only=False).astype(np.int8)
    begin = rows["begin_ns"].to_numpy()
    moments = pc.coalesce(rows["end_ns"], rows["begin_ns"]).to_numpy()
    end = rows["end_ns"].fill_null(OPEN_END).to_numpy()
    return index, process, outcome, begin, np.where(outcome == INFO, OPEN_END, end), moments


class _Steps:
    """The steps on some partitions, row group by row group; topics are numbered by first sight."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._topics: dict[str, int] = {}
        self._ranges = _Ranges(part.extents, self._topics) if part.extents else None
        self.in_no_partition = False  # whether a step names no partition: in which part it belongs nobody knows
        self._lists = _Kept(STEP)
        self._messages = _Kept(MESSAGE)

    @property
    def has_messages(self) -> bool:
        """Whether any of them sent or polled."""
        return self._messages.count > 0

    def take(self, group: Group, rows: pa.Table, operations: pa.ListArray) -> None:
        """Take those of a row group: its rows without their steps, and the steps."""
        steps = pc.list_flatten(operations)
        kind = flat_steps.codes(pc.struct_field(steps, "kind"), flat_steps.KINDS).fill_null(-1).to_numpy()
        partition = pc.struct_field(steps, "partition").fill_null(-1).to_numpy()
        self.in_no_partition |= bool((partition[kind >= 0] < 0).any())
        topic = self._numbers(pc.struct_field(steps, "topic"))
        offset = pc.struct_field(steps, "log_offset").fill_null(-1).to_numpy()
        if self._ranges is None:
            inside = (partition >= self._part.first) & (partition < self._part.end)
        else:
            inside = self._ranges.inside(kind, topic, partition, offset)
        if not inside.any():
            return
        txn, value = pc.list_parent_indices(operations).to_numpy(), pc.struct_field(steps, "value")
        is_listed = (kind == flat_steps.APPEND) | (kind == flat_steps.READ)
        if is_listed.any():
            listed = np.flatnonzero(is_listed)
            is_read = kind[listed] == flat_steps.READ
            # A step of another list stands between two reads of one: what is the head of a read is seen before others are left out.
            head = np.ones(listed.size, bool)
            same = is_read[1:] & is_read[:-1]
            for column in (txn, topic, partition):
                same &= column[listed[1:]] == column[listed[:-1]]
            head[1:] = ~same
            own = inside[listed]
            one = listed[own]
            known, values = value.is_valid().to_numpy(zero_copy_only=False), value.fill_null(0).to_numpy()
            of_lists = (is_read[own], head[own], topic[one], partition[one], values[one], known[one])
            self._lists.take(group, rows, txn[one], of_lists)
        one = np.flatnonzero(inside & ((kind == flat_steps.SEND) | (kind == flat_steps.POLL)))
        messages = (topic[one], partition[one], offset[one], value.fill_null(-1).to_numpy()[one])
        self._messages.take(group, rows, txn[one], (kind[one] == flat_steps.SEND, one, *messages))

    def _numbers(self, topics: pa.Array) -> Integers:
        encoded = topics.dictionary_encode() if not pa.types.is_dictionary(topics.type) else topics
        numbers = [self._topics.setdefault(word, len(self._topics)) for word in encoded.dictionary.to_pylist()]
        return np.asarray(np.array([*numbers, -1], np.int64)[encoded.indices.fill_null(-1).to_numpy()])

    def lists(self) -> tuple[ListSteps, Integers]:
        """Return those on lists, and the moments of their transactions."""
        (txn, is_read, head, topic, partition, values, known), transactions, moments = self._lists.together()
        key, names = self._keys(topic, partition)
        element, heads = is_read & known, np.flatnonzero(head)
        ends = np.concatenate([[0], np.cumsum(element)])
        first = ends[heads]
        steps = ListSteps(
            transactions, txn[heads], is_read[heads], key[heads], values[heads], first,
            ends[np.append(heads[1:], txn.size)] - first, values[element], names, Numbering(),
        )  # fmt: skip
        return steps, moments

    def messages(self) -> tuple[LogHistory, Integers]:
        """Return those that sent and polled, and the moments of their transactions."""
        (txn, is_send, step, topic, partition, offset, value), transactions, moments = self._messages.together()
        key, names = by_name(*self._keys(topic, partition))
        columns = (txn, key, value, offset, step)
        sends, reads = (Columns(*(column[side] for column in columns)) for side in (is_send, ~is_send))
        return LogHistory(transactions, sends, reads, names, has_all_senders=False), moments

    def border(self, history: LogHistory, own: OfKeys) -> Border | None:
        """Return how these steps look at the ends of their ranges; None: they are those of whole partitions."""
        if self._ranges is None:
            return None
        are_sent = {f"{one.topic}-{one.partition}": one.are_sent for one in self._part.extents}
        return border_of(history, own, are_sent, is_odd=self._ranges.is_odd)

    def _keys(self, topic: Integers, partition: Integers) -> tuple[Integers, dict[int, str]]:
        number, found = pd.factorize((topic << 32) + partition)
        pairs, place = np.unique(found, return_inverse=True)
        key = place.astype(np.int64)[number]
        words = list(self._topics)
        return key, {number: f"{words[pair >> 32]}-{pair & 0xFFFFFFFF}" for number, pair in enumerate(pairs.tolist())}


class _Ranges:
    """Ranges of partitions' offsets, of which is asked whether steps are in them."""

    def __init__(self, extents: Sequence[Extent], topics: dict[str, int]) -> None:
        """Number the topics, too."""
        pairs = [(topics.setdefault(one.topic, len(topics)) << 32) + one.partition for one in extents]
        order = np.argsort(pairs)
        self._pairs = np.array(pairs, np.int64)[order]
        self._first, self._end = (
            np.array([getattr(one, side) for one in extents], np.int64)[order] for side in ("first", "end")
        )
        self.is_odd = False  # whether a step is of no message, or a poll in no range

    def inside(self, kind: Array, topic: Integers, partition: Array, offset: Array) -> Array:
        """Return which steps are in them; those without an offset are in all of them."""
        number, found = pd.factorize((topic << 32) + partition)
        place = np.minimum(np.searchsorted(self._pairs, found), self._pairs.size - 1)
        end = np.where(self._pairs[place] == found, self._end[place], BEGINNING)
        inside = (offset >= self._first[place][number]) & (offset < end[number])
        is_unplaced = (offset < 0) & (kind == flat_steps.SEND)
        is_poll = (offset >= 0) & (kind == flat_steps.POLL)
        self.is_odd |= not (is_unplaced | is_poll | (kind == flat_steps.SEND) | (kind < 0)).all()
        return np.asarray((inside & (offset >= 0)) | is_unplaced)


class _Kept:
    """Some steps by columns, of which the first is their transaction's number, and the transactions that have any."""

    def __init__(self, kinds: Sequence[type]) -> None:
        self._steps: list[tuple[Array, ...]] = [tuple(np.zeros(0, kind) for kind in kinds)]
        self._transactions: list[tuple[Array, ...]] = [tuple(np.zeros(0, kind) for kind in TRANSACTION)]
        self.count = self._made = 0

    def take(self, group: Group, rows: pa.Table, txn: Integers, columns: tuple[Array, ...]) -> None:
        """Take steps of a row group, with the rows in it that their transactions have."""
        if not txn.size:
            return
        is_first = np.append(True, txn[1:] != txn[:-1])
        of = txn[is_first]
        self._steps.append((self._made - 1 + np.cumsum(is_first), *columns))
        self._transactions.append(_transactions(rows.take(pa.array(of)), group.first + of))
        self.count += txn.size
        self._made += of.size

    def together(self) -> tuple[list[Array], Transactions, Integers]:
        """Return their columns, their transactions, and the moments of these; nothing is kept any more."""
        steps = [np.concatenate(column) for column in zip(*self._steps, strict=True)]
        *columns, moments = (np.concatenate(column) for column in zip(*self._transactions, strict=True))
        self._steps.clear()
        self._transactions.clear()
        return steps, Transactions(*columns), moments
