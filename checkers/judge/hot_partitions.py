"""One hot partition in many tasks: ranges of offsets are sieved, what looks wrong is read again and judged as ever.

A partition with many rows is cut into ranges of offsets. The *sieve* of a range says in one pass over its columns whether
anything can be wrong in it, and returns a small summary (for the order in real time: the least completion and the greatest invocation; for
producers' order: each process's least and greatest value; for gaps: the first and the last offset). The *fold* over
neighbouring ranges finds what crosses them. Ranges that are not clean, and those they have to be compared with, are then read
together and judged by the ordinary kernels: counts and witnesses are exact. Nothing that is collected grows with the partition.

The sieve may suspect a range in which nothing is wrong, and never passes one in which something is. It relies on recordings being written in order of time: where
offsets are scattered over all row groups every range reads all of them. Tail readers are followed through ranges (`tails`). What looks at
watermarks and groups is small and is judged in an item of its own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tribunal.checkers.api import FAIL, FINAL, OK, TAIL, UNKNOWN, Array, Columns, PartitionRows, distinct, is_among
from tribunal.checkers.judge.led import Leaders
from tribunal.checkers.judge.steps import COMMITTED, OPEN
from tribunal.checkers.judge.suspicions import Suspicions
from tribunal.checkers.judge.tails import COLUMNS as POLL_COLUMNS
from tribunal.checkers.judge.tails import POLL_OFFSETS, RECEIVED, Followed, Tails, follow, places_of_suspects
from tribunal.results.mirror import footers_here
from tribunal.results.recording import TABLES
from tribunal.results.store import Recording, readable

HOT_ROWS: Final = 12_000_000  # rows of a partition in all tables, from which on it is cut
RANGE_OFFSETS: Final = 1 << 19
TOGETHER: Final = 16  # unclean ranges that are held at once, but where more depend on each other
LISTED: Final = 10_000
SPARSE: Final = 1_000  # so many offsets to a row at most are cut into ranges
BIG: Final = ("sends", "reads", "logs")
BIG_BYTES: Final = 400_000  # where rows differ by little a byte holds twenty; smaller ones are not even asked
COLUMNS: Final = {
    "sends": ("process", "value", "acks", "txn_id", "invoke_ns", "complete_ns", "outcome", "log_offset"),
    "reads": ("process", "log_offset", "value", "leader_epoch", "phase", "content"),
    "logs": ("node", "log_offset", "leader_epoch", "value", "is_control", "content"),
}
SIEVED: Final = frozenset({"lost_writes", "log_order", "replicas", "whole_records"})
READERS: Final = -1  # beside nodes: what readers were given
HOLES: Final = frozenset({"gap", "replicas_lack"})  # which end before their `other_offset`
STEPS: Final = frozenset({"epoch_back", "read_epoch_back"})  # of which `other_offset` is the record before
NEVER: Final = np.iinfo(np.int64).max
IN_FINAL: Final = "records in final logs"
ANYTHING: Final = (-NEVER, NEVER, 0)  # first, last, unknown


class Range(msgspec.Struct, frozen=True):
    """Offsets from `first` on and before `end`."""

    first: int
    end: int


class Sieved(msgspec.Struct, kw_only=True):
    """What the sieve says of one range. Times NEVER and offsets -1: there was none.

    clean:  nothing inside of the range is suspect.
    whole:  that is so because too much would have to be listed: nothing less than the whole partition says what is wrong.
    agreed: the members of the ISR and ELR that hold anything here hold the same.
    holed:  offsets hold nothing between others that do; which is suspect where the log of any leader was recorded. loose: some of
            these are not between what a final read received here.
    values: for each process its least and its greatest value that was sent to here or stands here.
    stands: for each process the greatest that stands here in the end.
    sent:   for each process the least and the greatest value of what was sent to here or was found here, and when the first and the last
            of it was sent.
    sent_elsewhere: values that were read here or stand in a replica's log, and whose sends are elsewhere; elsewhere: for each process
            the least and the greatest of them.
    epochs: for each replica its first and its last known leader epoch in log order, for all readers the least and the greatest that they saw;
            begins: the first offset that it holds.
    dumped: members of the ISR and ELR whose log was read, whether it holds anything or not.
    logged: members of the ISR and ELR that hold anything here; held: the first and the last offset that they hold.
    open_acknowledged, found_open:  values acknowledged without an offset, and those of them that were found here.
    tail:   of tail readers, where they are judged in ranges.
    """

    range: Range
    clean: bool
    whole: bool = False
    agreed: bool = True
    holed: bool = False
    loose: bool = False
    least_done: int = NEVER
    greatest_invoke: int = -1
    first_offset: int = -1
    last_offset: int = -1
    values: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    stands: dict[int, int] = msgspec.field(default_factory=dict)
    sent: dict[int, tuple[int, int, int, int]] = msgspec.field(default_factory=dict)
    elsewhere: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    epochs: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    begins: dict[int, int] = msgspec.field(default_factory=dict)
    dumped: list[int] = msgspec.field(default_factory=list)
    logged: list[int] = msgspec.field(default_factory=list)
    held: tuple[int, int] | None = None
    open_acknowledged: list[int] = msgspec.field(default_factory=list)
    found_open: list[int] = msgspec.field(default_factory=list)
    sent_elsewhere: list[int] = msgspec.field(default_factory=list)
    tail: Followed | None = None
    figures: dict[str, int] = msgspec.field(default_factory=dict)


class Known(msgspec.Struct, frozen=True):
    """What a hot partition's ranges need of what is small: looked up once for all of them.

    readers:   processes whose final read is complete.
    can_lead:  members of the final ISR and ELR; dumped: those nodes whose log was read.
    spared:    (node, from, end) of what their own disks are to blame for.
    leaders:   of every leader epoch in which somebody led, as committed; none where not each one was observed.
    tails:     of tail readers, where they are judged in ranges.
    members:   whose logs are compared in the end; compared: from which offset on and before which one.
    committed_readers:  processes that ever asked for what is committed alone.
    """

    readers: tuple[int, ...]
    can_lead: tuple[int, ...]
    dumped: tuple[int, ...]
    spared: tuple[tuple[int, int, int], ...] = ()
    leaders: Leaders = Leaders()
    tails: Tails | None = None
    members: tuple[int, ...] = ()
    compared: tuple[int, int] = (0, 0)
    committed_readers: tuple[int, ...] = ()


class Group(msgspec.Struct, frozen=True, array_like=True):
    """One row group of a file: which offsets it may hold."""

    path: str
    number: int
    first: int
    last: int
    unknown: int
    rows: int


Groups = Mapping[str, tuple[Group, ...]]  # by table


def cut(recording: Recording, topic_partition: str) -> list[tuple[Range, Groups]]:
    """Return a hot partition's ranges, each with the row groups that it has to read; none for one that a single task judges.

    The footers of all files are read here, once: of each range's own look at them there would be as many as ranges times files.
    """
    paths = {name: recording.files[name].get(topic_partition, []) for name in BIG}
    if sum(path.stat().st_size for own in paths.values() for path in own) < BIG_BYTES:
        return []
    found = {name: list(groups(name, own)) for name, own in paths.items()}
    every = [group for own in found.values() for group in own]
    # What stands before the beginning of the log is in no range: whoever judges the whole says so.
    rows = sum(group.rows for group in every)
    if rows < HOT_ROWS or any(group.first < 0 for group in every):
        return []
    end = 1 + max((group.last for group in every), default=0)
    if end > SPARSE * rows:  # a wrong offset would make more ranges than anybody can hold
        return []
    cut_into = ranges_of(found)
    near = {name: beside(own, cut_into) for name, own in found.items()}
    return [(own, {name: tuple(near[name][place]) for name in BIG}) for place, own in enumerate(cut_into)]


def ranges_of(found: Mapping[str, Sequence[Group]]) -> list[Range]:
    """Return the ranges of offsets that hold all that these row groups, by table, have a place for."""
    end = 1 + max((group.last for own in found.values() for group in own), default=-1)
    return [Range(first, min(first + RANGE_OFFSETS, end)) for first in range(0, end, RANGE_OFFSETS)]


def beside(found: Sequence[Group], cut_into: Sequence[Range]) -> list[list[Group]]:
    """Return for each range the groups that it has to read, without asking each range of each group."""
    near: list[list[Group]] = [[] for _ in cut_into]
    for group in found:
        margin = RANGE_OFFSETS if group.unknown else 0  # (`_is_beside` is exact)
        first = max(0, (group.first - margin) // RANGE_OFFSETS)
        last = min(len(cut_into) - 1, (group.last + margin) // RANGE_OFFSETS)
        for place in range(first, last + 1):
            if _is_beside(group, cut_into[place]):
                near[place].append(group)
    return near


def columns_of(name: str, known: Known) -> tuple[str, ...]:
    """Return the columns that the sieve reads of a table."""
    polled = name == "reads" and known.tails is not None
    return (*COLUMNS[name], "poll_index") if polled else COLUMNS[name]


def with_polls(
    recording: Recording, topic_partition: str, ranges: Sequence[tuple[Range, Groups]]
) -> list[tuple[Range, Groups]]:
    """Add the row groups of polls that may have brought what tail readers received in each range."""
    found = [*groups("polls", recording.files["polls"].get(topic_partition, []), by="position")]
    return [
        (own, {**beside, "polls": tuple(group for group in found if _may_have_brought(group, own))})
        for own, beside in ranges
    ]


def _may_have_brought(group: Group, own: Range) -> bool:
    return group.first < own.end and group.last >= own.first - POLL_OFFSETS


def polls_in(chosen: Iterable[Group], own: Range) -> pa.Table:
    """Return the polls of these row groups that may have brought what stands in a range."""
    found = [TABLES["polls"].arrow.empty_table().select(POLL_COLUMNS)]
    for rows in read_groups("polls", chosen, POLL_COLUMNS):
        position = rows["position"]
        beside = pc.and_(pc.less(position, own.end), pc.greater_equal(position, own.first - POLL_OFFSETS))
        found.append(rows.filter(pc.fill_null(beside, False)))  # noqa: FBT003 - pyarrow's signature
    return pa.concat_tables(found)


def groups(name: str, paths: Sequence[Path], by: str = "log_offset", *, only_footers: bool = False) -> Iterator[Group]:
    """Yield the row groups of some files of a table, as their footers say.

    by:            the column of offsets, or of times.
    only_footers:  no rows are read where they do not say it: then a group may hold anything.
    """
    footers_here(*paths)
    for path in paths:
        with readable(name, path, only_footer=True) as (file, stored):
            for number in range(file.metadata.num_row_groups):
                own = file.metadata.row_group(number)
                statistics = own.column(_place_of(own, stored.names[by])).statistics
                span: tuple[int, int, int] | None
                if statistics is None or not statistics.has_null_count:
                    span = None
                elif statistics.has_min_max:
                    span = (statistics.min, statistics.max, statistics.null_count)
                else:
                    span = (0, -1, own.num_rows) if statistics.null_count == own.num_rows else None
                # A file of somebody else's does not say it: its rows do.
                span = span or (ANYTHING if only_footers else _looked_up(name, path, number, by))
                yield Group(str(path), number, *span, own.num_rows)


def _place_of(group: pq.RowGroupMetaData, name: str) -> int:
    """Return which column of a row group has a name: one that is nested has several, each with a place of its own."""
    return next(place for place in range(group.num_columns) if group.column(place).path_in_schema == name)


def _looked_up(name: str, path: Path, number: int, by: str) -> tuple[int, int, int]:
    """Return the first and the last offset of a row group, and how many are unknown, by its rows."""
    with readable(name, path) as (file, stored):
        offsets = file.read_row_group(number, columns=[stored.names[by]]).column(0)
    ends = pc.min_max(offsets).as_py()
    return (0, -1, len(offsets)) if ends["min"] is None else (ends["min"], ends["max"], offsets.null_count)


def read_groups(name: str, wanted: Iterable[Group], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Read some row groups of a table, one after the other."""
    schema = pa.schema([TABLES[name].arrow.field(column) for column in columns])
    by_file: dict[str, list[int]] = {}
    for group in wanted:
        by_file.setdefault(group.path, []).append(group.number)
    for path, numbers in by_file.items():
        with readable(name, Path(path)) as (file, stored):
            for number in numbers:
                yield stored.as_today(file.read_row_group(number, columns=stored.stored(columns)), schema)


def rows_of(
    recording: Recording,
    topic_partition: str,
    name: str,
    wanted: Sequence[Range],
    columns: Sequence[str],
    needed: Array | None = None,
) -> pa.Table:
    """Return the rows of a table in some ranges.

    needed:  values of which the sends without an offset are returned too, wherever they stand, and no others of those;
             None: all that stand beside the ranges.
    """
    chosen = [
        group
        for group in groups(name, recording.files[name].get(topic_partition, []))
        if any(_is_beside(group, own) for own in wanted) or (needed is not None and group.unknown)
    ]
    return rows_in(name, chosen, wanted, columns, needed)


def rows_in(
    name: str, chosen: Iterable[Group], wanted: Sequence[Range], columns: Sequence[str], needed: Array | None = None
) -> pa.Table:
    """Return the rows of some ranges of these row groups, which are all that may hold any; `needed` as in `rows_of`."""
    parts = []
    for rows in read_groups(name, chosen, columns):
        offset = rows["log_offset"]
        inside = pc.is_null(offset)
        if needed is not None:
            inside = pc.and_(inside, pc.is_in(rows["value"], value_set=pa.array(needed)))
        for own in wanted:
            within = pc.and_(pc.greater_equal(offset, own.first), pc.less(offset, own.end))
            inside = pc.or_(inside, pc.fill_null(within, False))  # noqa: FBT003 - pyarrow's signature
        parts.append(rows.filter(inside))
    schema = pa.schema([TABLES[name].arrow.field(column) for column in columns])
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _is_beside(group: Group, own: Range) -> bool:
    """Whether a group overlaps a range; a send without an offset may stand in the group before or behind its record's."""
    if group.last == -1:  # no row of it has a place: the first range asks for all of them
        return own.first == 0
    margin = (own.end - own.first) // 8 if group.unknown else 0
    return group.first < own.end + margin and group.last >= own.first - margin


def sieve(own: Range, rows: PartitionRows, known: Known, outcomes: Array) -> Sieved:
    """Look for anything suspect in one range.

    rows:      sends, reads and logs of the range (sends without offset may be others').
    outcomes:  of the transaction of each send (`steps`); UNKNOWN: nobody knows, or there is none.
    """
    can_lead = known.can_lead
    sends, reads = rows.columns("sends"), rows.columns("reads")
    summary = Sieved(
        range=own,
        clean=True,
        figures=_figures(sends, reads, rows.columns("logs"), known),
        dumped=[node for node in can_lead if node in known.dumped],
    )
    placed = np.flatnonzero(sends["log_offset"] != UNKNOWN)
    chosen = np.flatnonzero((reads["phase"] == FINAL) & is_among(reads["process"], np.asarray(known.readers, np.int64)))
    uncommitted = (sends["txn_id"] != UNKNOWN) & (outcomes != COMMITTED)
    # Without a complete final read nothing is clean, nor where a corrupt record has to be judged.
    summary.clean = bool(chosen.size and (reads["value"] != UNKNOWN).all())
    final = np.full(own.end - own.first, UNKNOWN, np.int64)  # the value of each offset
    final[reads["log_offset"][chosen] - own.first] = reads["value"][chosen]
    sent = np.full(own.end - own.first, UNKNOWN, np.int64)  # the send of each offset
    sent[sends["log_offset"][placed] - own.first] = placed
    offsets = np.flatnonzero(final != UNKNOWN)
    summary.clean &= bool((sent[sends["log_offset"][placed] - own.first] == placed).all())
    _match_open(summary, sends, final, sent, offsets, uncommitted)
    there = (reads, rows.columns("logs"))
    elsewhere = distinct(np.concatenate([_sent_elsewhere(own, one, sends, sent) for one in there]))
    summary.elsewhere = {process: (int(own[0]), int(own[-1])) for process, own in _by_process(elsewhere)}
    summary.whole |= elsewhere.size > LISTED
    summary.sent_elsewhere = elsewhere[:LISTED].tolist()
    # Who was given a record of a transaction of unknown outcome, and reads what is committed, knows that it was.
    may_lack = (uncommitted, uncommitted & (outcomes != OPEN))
    summary.clean &= _is_kept(sends, placed, final, own, uncommitted)
    summary.clean &= _is_as_sent(own, reads, sends, sent, final, may_lack, known.committed_readers)
    summary.clean &= _logs_agree(own, rows.columns("logs"), final, can_lead)
    summary.clean &= _was_logged_as_sent(own, rows.columns("logs"), sends, final)
    summary.clean &= all(
        rows.table(name)["content"].null_count == rows.table(name).num_rows for name in ("reads", "logs")
    )
    summary.agreed = _replicas_agree(summary, rows.columns("logs"), known)
    summary.clean &= summary.agreed
    summary.clean &= _epochs_ascend(summary, reads)
    summary.clean &= not bool(known.leaders.of_nobody_in_any(reads["leader_epoch"]).any())
    _order(summary, sends, final, sent, offsets, uncommitted)
    held = distinct(reads["log_offset"][chosen]) - own.first
    _ends(summary, rows.columns("logs"), held, can_lead)
    summary.figures[IN_FINAL] = int(held.size)
    if known.tails is not None:
        final_there = np.zeros(own.end - own.first, bool)
        final_there[held] = True
        known_send = np.flatnonzero(sent != UNKNOWN)
        hidden = np.zeros(own.end - own.first, bool)
        hidden[known_send] = uncommitted[sent[known_send]] & (sends["value"][sent[known_send]] == final[known_send])
        summary.tail = follow(own.first, final_there, hidden, sent, rows, known.tails)
    summary.clean &= not summary.whole
    return summary


def _figures(sends: Columns, reads: Columns, logs: Columns, known: Known) -> dict[str, int]:
    """Count what the properties count that the sieve stands for; of sends those with an offset (`other_figures` has the rest)."""
    mine = sends["log_offset"] != UNKNOWN
    acknowledged = mine & (sends["outcome"] == OK)
    compared = _is_compared(logs, known)
    received = {RECEIVED: 0} if (reads["phase"] == TAIL).any() else {}  # (what `tails` counts comes on top)
    in_replicas = {"records in replicas compared": int(compared.sum())} if compared.size else {}
    return {
        **received,
        **in_replicas,
        "records compared whole": int(reads["value"].size + logs["value"].size),
        "acknowledged, acks=all": int((acknowledged & (sends["acks"] == -1)).sum()),
        "acknowledged, acks=1": int((acknowledged & (sends["acks"] == 1)).sum()),
        "sent, acks=0": int((mine & (sends["acks"] == 0)).sum()),
        "records read": int(reads["value"].size),
    }


def _is_compared(logs: Columns, known: Known) -> Array:
    """Return which rows of replicas' logs `replicas` compares."""
    first, end = known.compared
    compared = (logs["log_offset"] >= first) & (logs["log_offset"] < end)
    compared &= is_among(logs["node"], np.asarray(sorted(known.members), np.int64))
    for node, from_offset, end_offset in known.spared:
        compared &= (logs["node"] != node) | (logs["log_offset"] < from_offset) | (logs["log_offset"] >= end_offset)
    return np.asarray(compared)


def _match_open(summary: Sieved, sends: Columns, final: Array, sent: Array, offsets: Array, uncommitted: Array) -> None:
    """Give sends of unknown offset the place at which their value was read."""
    open_ = np.flatnonzero(sends["log_offset"] == UNKNOWN)
    lacking = offsets[sent[offsets] == UNKNOWN]
    if open_.size and lacking.size:
        order = open_[np.argsort(sends["value"][open_])]
        values = sends["value"][order]
        at = np.minimum(np.searchsorted(values, final[lacking]), values.size - 1)
        hit = values[at] == final[lacking]
        sent[lacking[hit]] = order[at[hit]]
        summary.found_open = sends["value"][order[at[hit]]][sends["outcome"][order[at[hit]]] == OK].tolist()
    summary.open_acknowledged = sends["value"][open_[(sends["outcome"][open_] == OK) & ~uncommitted[open_]]].tolist()
    summary.whole |= max(len(summary.found_open), len(summary.open_acknowledged)) > LISTED
    summary.found_open, summary.open_acknowledged = summary.found_open[:LISTED], summary.open_acknowledged[:LISTED]


def _sent_elsewhere(own: Range, there: Columns, sends: Columns, sent: Array) -> Array:
    """Return the values that somebody read here, or that a replica has here, and that were not sent to here."""
    send = sent[there["log_offset"] - own.first]
    elsewhere = send == UNKNOWN
    if sends["value"].size:
        elsewhere |= sends["value"][send] != there["value"]
    return np.asarray(there["value"][elsewhere & (there["value"] != UNKNOWN)])


def _is_kept(sends: Columns, placed: Array, final: Array, own: Range, uncommitted: Array) -> bool:
    """Whether every acknowledged record stands where it was acknowledged, and none that was refused has a place."""
    outcome = sends["outcome"][placed]
    there = final[sends["log_offset"][placed] - own.first] == sends["value"][placed]
    return bool(there[(outcome == OK) & ~uncommitted[placed]].all() and not (outcome == FAIL).any())


def _is_as_sent(
    own: Range,
    reads: Columns,
    sends: Columns,
    sent: Array,
    final: Array,
    may_lack: tuple[Array, Array],
    committed_readers: Sequence[int],
) -> bool:
    """Whether everything that anybody read is what the final log holds there, and was sent and not refused.

    may_lack:  which sends the final log may hold nothing of, although somebody read them: whoever it was, or a reader of what is committed.
    """
    place = reads["log_offset"] - own.first
    send = sent[place]
    if (send == UNKNOWN).any():
        return False
    same = reads["value"] == final[place]
    if not same.all() and may_lack[0].any():
        committed = is_among(reads["process"], np.asarray(sorted(committed_readers), np.int64))
        same |= (final[place] == UNKNOWN) & np.where(committed, may_lack[1][send], may_lack[0][send])
    same &= reads["value"] == sends["value"][send]
    return bool((same & (sends["outcome"][send] != FAIL)).all())


def _logs_agree(own: Range, logs: Columns, final: Array, can_lead: Sequence[int]) -> bool:
    chosen = is_among(logs["node"], np.asarray(sorted(can_lead), np.int64)) & (logs["is_control"] != 1)
    there = final[logs["log_offset"] - own.first]
    return not bool((chosen & (there != UNKNOWN) & (logs["value"] != there)).any())


def _was_logged_as_sent(own: Range, logs: Columns, sends: Columns, final: Array) -> bool:
    """Whether every record of every replica, in the ISR or not, is the final read's or was sent to here and not refused."""
    other = logs["value"][(logs["value"] != UNKNOWN) & (logs["value"] != final[logs["log_offset"] - own.first])]
    return bool(is_among(other, distinct(sends["value"][sends["outcome"] != FAIL])).all())


def _replicas_agree(summary: Sieved, logs: Columns, known: Known) -> bool:
    """Whether the members of the ISR hold the same here, and epochs go up along every replica's log; note their ends."""
    first: tuple[Array, ...] | None = None
    agree = True
    for node in np.flatnonzero(np.bincount(logs["node"])).tolist() if logs["node"].size else ():
        own = np.flatnonzero(logs["node"] == node)
        if not (logs["log_offset"][own][1:] > logs["log_offset"][own][:-1]).all():
            own = own[np.argsort(logs["log_offset"][own], kind="stable")]
        columns = tuple(logs[name][own] for name in ("log_offset", "value", "leader_epoch", "is_control"))
        summary.begins[node] = int(columns[0][0])
        epochs = _epochs(node, columns[0], columns[2], known.spared)
        if epochs.size:
            summary.epochs[node] = (int(epochs[0]), int(epochs[-1]))
        agree &= bool((epochs[1:] >= epochs[:-1]).all())
        if node in known.can_lead:
            summary.logged.append(node)
            offsets = columns[0]
            agree &= int(offsets[-1]) - int(offsets[0]) + 1 == offsets.size
            summary.held = summary.held or (int(offsets[0]), int(offsets[-1]))
            first = first or columns
            agree &= all(np.array_equal(one, other) for one, other in zip(first, columns, strict=True))
    return agree


def _epochs_ascend(summary: Sieved, reads: Columns) -> bool:
    """Whether whoever reads an offset sees one leader epoch there, and epochs go up along the log; note the least and the greatest."""
    known = reads["leader_epoch"] != UNKNOWN
    offsets, epochs = reads["log_offset"][known] - summary.range.first, reads["leader_epoch"][known]
    if epochs.size == 0:
        return True
    summary.epochs[READERS] = (int(epochs.min()), int(epochs.max()))
    there = np.full(summary.range.end - summary.range.first, UNKNOWN, np.int64)
    there[offsets] = epochs
    along = there[there != UNKNOWN]
    return bool((there[offsets] == epochs).all() and (along[1:] >= along[:-1]).all())


def _epochs(node: int, offsets: Array, epochs: Array, spared: Iterable[tuple[int, int, int]]) -> Array:
    """Return the known leader epochs along a replica's log, but for what its disk is to blame for."""
    chosen = epochs != UNKNOWN
    for own, first, end in spared:
        if own == node:
            chosen &= (offsets < first) | (offsets >= end)
    return epochs if chosen.all() else epochs[chosen]


def _order(summary: Sieved, sends: Columns, final: Array, sent: Array, offsets: Array, uncommitted: Array) -> None:
    """Look at the order in real time and of each producer."""
    # Of several that were acknowledged with one offset each was sent to here.
    unread = sends["log_offset"] != UNKNOWN
    unread[sent[sent != UNKNOWN]] = True
    known = offsets[sent[offsets] != UNKNOWN]
    if not unread.any():
        return
    send, values = sent[known], final[known]
    invoke = sends["invoke_ns"][send]
    # Only what stands where it was acknowledged was there when that was done.
    in_place = sends["value"][send] == values
    in_place &= (sends["log_offset"][send] == known + summary.range.first) & (sends["outcome"][send] == OK)
    done = np.where(in_place, sends["complete_ns"][send], NEVER)
    behind = np.append(np.minimum.accumulate(done[::-1])[::-1][1:], NEVER)
    summary.clean &= not bool((invoke > behind).any())
    summary.least_done, summary.greatest_invoke = int(done.min(initial=NEVER)), int(invoke.max(initial=-1))
    unread[send] = False
    summary.clean &= _ascends(summary, sends, values, send, np.flatnonzero(unread), uncommitted)


def _ascends(summary: Sieved, sends: Columns, standing: Array, send: Array, unread: Array, uncommitted: Array) -> bool:
    """Return whether each producer's values ascend; note their ends. Those that are sent and not read stand behind.

    standing, send:  values in log order, and the sends of their places; unread: other sends; uncommitted: of these nothing has to be there.
    """
    rows = np.append(send, unread)
    own = sends["value"][rows]
    values = np.append(standing, own[send.size :])
    order, first, names = _each_process(values)
    ordered = values[order]
    summary.values = _spans(names, np.minimum.reduceat(ordered, first), np.maximum.reduceat(ordered, first))
    stands = np.where(order < standing.size, ordered, UNKNOWN) if unread.size else ordered
    summary.stands = dict(zip(names, np.maximum.reduceat(stands, first).tolist(), strict=True))
    ascends = bool((ordered[1:] > ordered[:-1]).all())
    if not ascends and uncommitted[unread].any():
        there = np.append(standing, sends["value"][unread[~uncommitted[unread]]])
        along = there[_each_process(there)[0]] if there.size else there
        ascends = bool((along[1:] > along[:-1]).all())
    if not np.array_equal(own, values):
        order, first, names = _each_process(own)
        ordered = own[order]
    times = sends["invoke_ns"][rows][order]
    ends = [edge.reduceat(column, first) for column in (ordered, times) for edge in (np.minimum, np.maximum)]
    summary.sent = dict(zip(names, zip(*(end.tolist() for end in ends), strict=True), strict=True))
    return ascends


def _each_process(values: Array) -> tuple[Array, Array, list[int]]:
    """Return an order that keeps each process's values together as they are, where each one's begin in it, and the processes."""
    process = values >> 40
    narrow = process.astype(np.int16) if process.max() < 1 << 15 else process
    order = np.argsort(narrow, kind="stable")
    first = np.flatnonzero(np.append(True, narrow[order][1:] != narrow[order][:-1]))
    return order, first, process[order][first].tolist()


def _spans(names: Sequence[int], least: Array, greatest: Array) -> dict[int, tuple[int, int]]:
    return dict(zip(names, zip(least.tolist(), greatest.tolist(), strict=True), strict=True))


def _by_process(values: Array) -> Iterator[tuple[int, Array]]:
    """Yield the values of each process; all of them ascend."""
    borders = [0, *(1 + np.flatnonzero(np.diff(values >> 40))).tolist(), values.size]
    for first, end in pairwise(borders):
        if end > first:
            yield int(values[first]) >> 40, values[first:end]


def _ends(summary: Sieved, logs: Columns, offsets: Array, can_lead: Sequence[int]) -> None:
    """Look for holes."""
    leaders = is_among(logs["node"], np.asarray(sorted(can_lead), np.int64))
    if offsets.size == 0 and not leaders.any():
        return
    present = np.zeros(summary.range.end - summary.range.first, bool)
    present[offsets] = True
    present[logs["log_offset"][leaders] - summary.range.first] = True
    there = np.flatnonzero(present)
    summary.first_offset = summary.range.first + int(there[0])
    summary.last_offset = summary.range.first + int(there[-1])
    holes = there[-1] - there[0] + 1 - there.size
    read = present[offsets[0] : offsets[-1] + 1] if offsets.size else present[:0]
    summary.holed, summary.loose = bool(holes), bool(holes > read.size - np.count_nonzero(read))


def other_figures(recording: Recording, topic_partition: str, committed: Array | None) -> dict[str, int]:
    """Return the figures of sends whose offset nobody knows: they belong to no range.

    committed:  values of committed transactions, None where nothing was sent in any: whatever else was sent in one was not acknowledged,
                so what ranges counted of it is taken away.
    """
    counts: dict[str, int] = {}
    paths = recording.files["sends"].get(topic_partition, [])
    columns = ("log_offset", "acks", "outcome", *(() if committed is None else ("txn_id", "value")))
    for rows in read_groups(
        "sends", (one for one in groups("sends", paths) if one.unknown or committed is not None), columns
    ):
        sends = PartitionRows({"sends": rows}).columns("sends")
        ok, open_ = sends["outcome"] == OK, sends["log_offset"] == UNKNOWN
        change = np.where(open_ & ok, 1, 0)
        if committed is not None:
            change -= ok & (sends["txn_id"] != UNKNOWN) & ~is_among(sends["value"], committed)
        counts = added([counts, {
            "acknowledged, acks=all": int(change[sends["acks"] == -1].sum()),
            "acknowledged, acks=1": int(change[sends["acks"] == 1].sum()),
            "sent, acks=0": int((open_ & (sends["acks"] == 0)).sum()),
        }])  # fmt: skip
    return counts


def pieces(recording: Recording, topic_partition: str, columns: Mapping[str, Sequence[str]]) -> Iterator[PartitionRows]:
    """Yield a partition's rows, table by table, a row group at a time; `columns`: by table."""
    for name, own in columns.items():
        found = groups(name, recording.files[name].get(topic_partition, []))
        for rows in read_groups(name, found, own):
            yield PartitionRows({name: rows})


def ends(recording: Recording, topic_partition: str, name: str) -> pa.Table:
    """Return the last row of `sends`, of `reads`, or of each replica's log, which says how far they go."""
    if name == "logs":
        return ends_of_logs(recording, topic_partition)
    last = max((group.last for group in groups(name, recording.files[name].get(topic_partition, []))), default=-1)
    schema = pa.schema([TABLES[name].arrow.field("log_offset")])
    return pa.Table.from_pydict({"log_offset": [last] if last >= 0 else []}, schema=schema)


def ends_of_logs(recording: Recording, topic_partition: str) -> pa.Table:
    """Return the last row of each replica's log, which says where it ends; read only where a row group's statistics do not say it."""
    columns = ("node", "log_offset")
    last: dict[int, int] = {}
    unsaid: list[Group] = []
    paths = recording.files["logs"].get(topic_partition, [])
    for group in groups("logs", paths):
        node = _only_node(group)
        if node is None:
            unsaid.append(group)
        else:
            last[node] = max(last.get(node, -1), group.last)
    for rows in read_groups("logs", unsaid, columns):
        for own in rows.group_by("node").aggregate([("log_offset", "max")]).to_pylist():
            last[own["node"]] = max(last.get(own["node"], -1), own["log_offset_max"])
    schema = pa.schema([TABLES["logs"].arrow.field(column) for column in columns])
    return pa.Table.from_pydict({"node": list(last), "log_offset": list(last.values())}, schema=schema)


def _only_node(group: Group) -> int | None:
    """Return whose log a row group is of, by its statistics; None: of several, or nobody says it."""
    if group.last == -1:
        return None
    with readable("logs", Path(group.path), only_footer=True) as (file, stored):
        column = file.schema_arrow.names.index(stored.names["node"])
        statistics = file.metadata.row_group(group.number).column(column).statistics
    known = statistics is not None and statistics.has_min_max and statistics.min == statistics.max
    return int(statistics.min) if known else None


class Component(msgspec.Struct, frozen=True):
    """Unclean ranges that have to be judged together, with those that they depend on; ascending.

    missing:  values that were acknowledged without an offset, of which the final log of no range holds anything.
    """

    ranges: tuple[Range, ...]
    missing: tuple[int, ...] = ()


def fold(sieved: Sequence[Sieved]) -> list[Component]:
    """Return what has to be judged: unclean ranges, what crosses borders, and what they depend on, in components that do not depend on each other."""
    if any(summary.whole for summary in sieved):
        return [Component(tuple(summary.range for summary in sieved))]
    # Without the logs a hole may be a transaction's marker.
    any_log = any(summary.logged for summary in sieved)
    suspects = Suspicions(not summary.clean or (any_log and summary.holed) for summary in sieved)
    logged = {node for summary in sieved for node in (*summary.logged, *summary.dumped)}
    lacking = [not summary.agreed or (bool(summary.logged) and {*summary.logged} != logged) for summary in sieved]
    for place, lacks in enumerate(lacking):
        suspects.suspect[place] |= lacks
    _cross_in_time(sieved, suspects)
    _cross_in_producers(sieved, suspects)
    _cross_in_offsets(sieved, suspects, any_log=any_log)
    _cross_in_replicas(sieved, suspects)
    unread = _unread(sieved)
    for place, summary in enumerate(sieved):
        # What nobody read may stand in a replica's log all the same: lost it is only where it does not.
        suspects.suspect[place] |= not unread.isdisjoint(summary.sent_elsewhere)
    _depend(sieved, suspects, lacking)
    missing = _missing(sieved, suspects, unread)
    by_place: dict[int | None, list[int]] = {}
    for value, at in missing.items():
        by_place.setdefault(at, []).append(value)
    found = [
        Component(
            tuple(sieved[place].range for place in places),
            tuple(value for place in places for value in by_place.get(place, ())),
        )
        for places in suspects.components()
    ]
    nowhere = tuple(by_place.get(None, ()))
    return [*found, Component((), nowhere)] if nowhere else found


def fold_tails(sieved: Sequence[Sieved]) -> tuple[list[Component], bool]:
    """Return where tail readers have to be followed again, and whether that is everywhere, since the ranges say nothing."""
    followed = _followed(sieved)
    places = places_of_suspects(followed, _with_the_same(sieved) if followed else ())
    if places is None or (followed and any(own.whole for own in sieved)):
        return [Component(tuple(own.range for own in sieved))], True
    return [Component(tuple(sieved[place].range for place in own)) for own in places], False


def _with_the_same(sieved: Sequence[Sieved]) -> Iterator[list[int]]:
    """Yield each range that holds what was sent elsewhere with all others that may hold any of it, or that it may have been sent to."""
    held_at: dict[int, int] = {}
    for place, own in enumerate(sieved):
        if own.sent_elsewhere:
            others = [at for at, one in enumerate(sieved) if any(_may_hold(one, value) for value in own.sent_elsewhere)]
            yield sorted({place, *others, *(held_at.setdefault(value, place) for value in own.sent_elsewhere)})


def _followed(sieved: Sequence[Sieved]) -> list[Followed]:
    """Return what each range says of its tail readers; nothing where whoever judges the rest follows them."""
    return [own.tail for own in sieved if own.tail is not None]


def figures_of_tails(sieved: Sequence[Sieved]) -> dict[str, int]:
    """Return what `consumers` counts, where tail readers are judged in ranges and any received something."""
    followed = _followed(sieved)
    is_read = any(own.is_read for own in followed)
    return {RECEIVED: sum(own.received for own in followed)} if is_read else {}


def together(components: Sequence[Component]) -> Iterator[Component]:
    """Put small components together, so that each is at most TOGETHER ranges to read; one that has more stays as it is."""
    held: list[Component] = []
    for own in components:
        if held and sum(len(one.ranges) for one in (*held, own)) > TOGETHER:
            yield _joined(held)
            held = []
        held.append(own)
    if held:
        yield _joined(held)


def _joined(components: Iterable[Component]) -> Component:
    own = list(components)
    return Component(
        tuple(sorted((one for each in own for one in each.ranges), key=lambda one: one.first)),
        tuple(value for each in own for value in each.missing),
    )


def may_go_back(sieved: Sequence[Sieved]) -> bool:
    """Whether a process may have sent a later record earlier, in another range; within each one that was looked at."""
    by_process: dict[int, list[tuple[int, int, int, int]]] = {}
    for summary in sieved:
        for process, span in summary.sent.items():
            by_process.setdefault(process, []).append(span)
    ordered = (pairwise(sorted(spans)) for spans in by_process.values())
    return any(
        low <= before or first_ns < last_ns for own in ordered for (_, before, _, last_ns), (low, _, first_ns, _) in own
    )


def begins(sieved: Iterable[Sieved]) -> dict[int, int]:
    """Return where each replica's log begins."""
    first: dict[int, int] = {}
    for summary in sieved:
        for node, offset in summary.begins.items():
            first[node] = min(first.get(node, offset), offset)
    return dict(sorted(first.items()))


def _cross_in_time(sieved: Sequence[Sieved], suspects: Suspicions) -> None:
    least, where = NEVER, -1
    for place in range(len(sieved) - 1, -1, -1):
        if sieved[place].greatest_invoke > least:
            suspects.join((place, where))
        if sieved[place].least_done < least:
            least, where = sieved[place].least_done, place


def _cross_in_producers(sieved: Sequence[Sieved], suspects: Suspicions) -> None:
    greatest: dict[int, int] = {}
    for place, summary in enumerate(sieved):
        suspects.suspect[place] |= any(low <= greatest.get(process, -1) for process, (low, _) in summary.values.items())
        for process, (_, high) in (*summary.values.items(), *summary.elsewhere.items()):
            greatest[process] = max(greatest.get(process, -1), high)


def _cross_in_offsets(sieved: Sequence[Sieved], suspects: Suspicions, *, any_log: bool) -> None:
    """Join what lies around holes: they are holes between what final reads received, which may stand in ranges further off."""
    read = [place for place, own in enumerate(sieved) if own.figures.get(IN_FINAL, 0)]

    def around(before: int, after: int, first: int, last: int) -> range:
        """From the last of so many ranges that were read, or `first`, to the one behind as many, or `last`."""
        return range(read[before - 1] if before else first, (read[after] if after < len(read) else last) + 1)

    holding = [(place, own) for place, own in enumerate(sieved) if own.first_offset >= 0]
    for (one, before), (other, after) in pairwise(holding):
        if after.first_offset != before.last_offset + 1:
            suspects.join(around(bisect_right(read, one), bisect_left(read, other), one, other))
    for place, own in enumerate(sieved) if any_log else ():
        if own.loose:
            suspects.join(around(bisect_left(read, place), bisect_right(read, place), place, place))


def _cross_in_replicas(sieved: Sequence[Sieved], suspects: Suspicions) -> None:
    held = [(place, summary.held) for place, summary in enumerate(sieved) if summary.held is not None]
    for (one, before), (other, after) in pairwise(held):
        if after[0] != before[1] + 1:
            suspects.join(range(one, other + 1))
    # Per replica: the epoch that the range before that has any ended with, and which range that is.
    last: dict[int, tuple[int, int]] = {}
    for place, summary in enumerate(sieved):
        for node, (first_epoch, last_epoch) in summary.epochs.items():
            if node in last and first_epoch < last[node][0]:
                suspects.join(range(last[node][1], place + 1))
            last[node] = (last_epoch, place)


def _depend(sieved: Sequence[Sieved], suspects: Suspicions, lacking: Sequence[bool]) -> None:
    """Add what a suspect range is compared with: the same producers' values elsewhere, the least completion behind, the next range.

    lacking:  where replicas do not hold the same; what one of them lacks may cross a border.
    """
    first_suspects = [place for place, is_suspect in enumerate(suspects.suspect) if is_suspect]
    is_first = [*suspects.suspect]
    read_at: dict[int, int] = {}
    for place in first_suspects:
        own = sieved[place]
        for value in own.sent_elsewhere:
            suspects.join((read_at.setdefault(value, place), place))
        behind = range(place + 1, len(sieved))
        if behind and own.elsewhere:
            suspects.join((place, min(behind, key=lambda other: sieved[other].least_done)))
        if behind and (not is_first[place + 1] or (lacking[place] and lacking[place + 1])):
            suspects.join((place, place + 1))
        for process, (low, _) in own.elsewhere.items():
            before = max(range(place), key=lambda other: sieved[other].stands.get(process, -1), default=place)
            if sieved[before].stands.get(process, -1) >= low:
                suspects.join((before, place))
        for other, summary in enumerate(sieved):
            if other != place and _concerns(own, summary, is_before=other < place):
                suspects.join((place, other))


def _concerns(own: Sieved, other: Sieved, *, is_before: bool) -> bool:
    """Whether a suspect range may have to be compared with what producers have in another one, before or behind it."""
    if any(_may_hold(other, value) for value in own.sent_elsewhere):
        return True
    for process, (low, high) in own.values.items():
        # Of what stands before, all that is later is what this range is behind; of the rest what may stand twice.
        least, greatest = other.values.get(process, (NEVER, -1))
        if (is_before or least <= high) and greatest >= low:
            return True
    # What was sent elsewhere and stands here is later than what stands behind it, sent to there or elsewhere.
    return not is_before and any(
        min(one.get(process, (NEVER, -1))[0] for one in (other.values, other.elsewhere)) <= high
        for process, (_, high) in own.elsewhere.items()
    )


def _unread(sieved: Sequence[Sieved]) -> set[int]:
    """Return the values that were acknowledged without an offset and that the final log holds nowhere."""
    found = {value for summary in sieved for value in summary.found_open}
    return {value for summary in sieved for value in summary.open_acknowledged} - found


def _missing(sieved: Sequence[Sieved], suspects: Suspicions, unread: Iterable[int]) -> dict[int, int | None]:
    """Return which range has each of these values all the same."""
    there = {
        value: place
        for place, summary in enumerate(sieved)
        if suspects.suspect[place]
        for value in summary.sent_elsewhere
    }
    return {value: there.get(value) for value in sorted(unread)}


def _may_hold(summary: Sieved, value: int) -> bool:
    """Whether a value may have been sent to a range, or stand there: where another one stands in its place it is among the sent alone."""
    spans = (own.get(value >> 40, (0, -1)) for own in (summary.values, summary.sent))
    return any(span[0] <= value <= span[1] for span in spans)


def without_seams(anomalies: pa.Table, judged: Sequence[Range]) -> pa.Table:
    """Leave out holes and steps back that only come from ranges between these that were not read."""
    if anomalies.num_rows == 0:
        return anomalies
    ends = {own.end for own in judged} - {own.first for own in judged}
    kinds, first = anomalies["kind"].to_pylist(), anomalies["log_offset"].to_pylist()
    other = anomalies["other_offset"].to_pylist()
    kept = [
        not any(_crosses(end, kind, at, beside) for end in ends)
        for kind, at, beside in zip(kinds, first, other, strict=True)
    ]
    return anomalies.filter(pa.array(kept))


def _crosses(end: int, kind: str, offset: int | None, other: int | None) -> bool:
    """Whether a hole or a step back holds the end of a range of which the next one was not read."""
    if offset is None or other is None:
        return False
    return (kind in HOLES and offset <= end < other) or (kind in STEPS and other < end <= offset)


def added(figures: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add figures up."""
    total: dict[str, int] = {}
    for own in figures:
        for name, count in own.items():
            total[name] = total.get(name, 0) + count
    return total
