"""One work item, judged: a partition of a run, or what concerns the run as a whole (stages 1 to 3 of docs/contract.md).

The same function runs in the process (`--engine inline`) and in Spark's tasks. It reads its own columns with
pyarrow, refuses what contradicts itself, runs the kernels, asks `guarantees` about losses, and returns few rows:
capped witnesses with counts, figures, damages.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Final, assert_never

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import (
    UNKNOWN,
    Array,
    EncodedSummary,
    Excuse,
    Found,
    Meaning,
    PartitionRows,
    Property,
    Rule,
    nothing,
    properties,
)
from tribunal.checkers.graphs.circles import stretches
from tribunal.checkers.graphs.findings import AbortedMessage, OfPart
from tribunal.checkers.graphs.findings import joined as joined_parts
from tribunal.checkers.judge import dealt_transactions, files
from tribunal.checkers.judge import hot_partitions as ranges
from tribunal.checkers.judge.ends import Ends
from tribunal.checkers.judge.fenced import fenced_among, going_back, transactions_of
from tribunal.checkers.judge.histories import judge_history
from tribunal.checkers.judge.items import (
    Beside,
    Circles,
    Files,
    FollowAgain,
    ImportedHistory,
    Lists,
    Messages,
    Offsets,
    OfRun,
    OfTransactions,
    Ordered,
    Producers,
    Rest,
    Sent,
    SieveRange,
    Suspects,
    Transactions,
    WholePartition,
    WholeRun,
    WorkItem,
)
from tribunal.checkers.judge.large import RowsOfLarge
from tribunal.checkers.judge.offsets_in_groups import OffsetsIn
from tribunal.checkers.judge.outcomes import outcomes_of
from tribunal.checkers.judge.partition import PartitionJudge, Weighed, history_of, joined
from tribunal.checkers.judge.read_steps import TABLE as TXNS
from tribunal.checkers.judge.remembered import Remembered
from tribunal.checkers.judge.run_steps import RunSteps
from tribunal.checkers.judge.tables import (
    Damage,
    Failed,
    Figures,
    ListsSeen,
    MessagesSeen,
    OffsetsSeen,
    Place,
    ProducersSeen,
    SievedRange,
    StretchSeen,
    TableRow,
    Tables,
    place_of,
)
from tribunal.checkers.judge.tails import FOLLOWING
from tribunal.checkers.judge.timeline import History, Judgement
from tribunal.checkers.judge.witnesses import answers
from tribunal.checkers.properties.bank import WORKER_CLASS
from tribunal.checkers.properties.lost_writes import all_logged, complete_readers
from tribunal.checkers.properties.transactions import Gathered
from tribunal.results.recording import NO_PARTITION, TABLES, DamagedRecording
from tribunal.results.storage import NoStorage
from tribunal.results.store import MANIFEST, Recording, file_facts
from tribunal.results.validation import all_different, contradiction, time_goes_back, value_sent_twice

RUN_TABLES: Final = tuple(name for name, table in TABLES.items() if not table.by_partition)
PARTITION_TABLES: Final = tuple(name for name, table in TABLES.items() if table.by_partition)
TRANSACTIONS: Final = "transactions"  # the property whose rows are dealt out
OF_TRANSACTIONS: Final = frozenset({"aborted_reads", "atomicity"})
OF_GROUPS: Final = frozenset({"exactly_once", "group_ends", "group_members"})
OF_ENDS: Final = frozenset(
    {"group_ends", "shown_end"}
)  # which ask of sends, reads and logs how far they go, and nothing else


class Histories:
    """The history of the run whose items are judged now, and the steps of its transactions: they are the same for each of its partitions."""

    def __init__(self) -> None:
        self._run_dir: Path | None = None
        self._history: History | None = None
        self._steps: RunSteps | None = None

    def of(self, recording: Recording) -> History:
        """Return the history of a recording's run; it is read once while items of one run follow each other."""
        self._see(recording)
        if self._history is None:
            self._history = history_of(recording)
        return self._history

    def steps_of(self, recording: Recording) -> RunSteps:
        """Return the steps of its transactions, likewise."""
        self._see(recording)
        if self._steps is None:
            self._steps = RunSteps(recording)
        return self._steps

    def _see(self, recording: Recording) -> None:
        if self._run_dir != recording.run_dir:
            self._run_dir, self._history, self._steps = recording.run_dir, None, None


def judge_item(
    item: WorkItem, *, without: frozenset[str] = frozenset(), histories: Histories | None = None
) -> list[TableRow]:
    """Judge one work item.

    without:    properties of whole runs that somebody else judges.
    histories:  of runs of which items were judged in this very job.
    """
    partition = NO_PARTITION if isinstance(item, OfRun) else item.partition
    try:
        return list(_judged(item, without, Histories() if histories is None else histories))
    except DamagedRecording as damage:
        return [Damage(place_of(item.run_dir, partition), damage.table, str(damage))]


def _judged(item: WorkItem, without: frozenset[str], histories: Histories) -> Iterator[TableRow]:
    match item:
        case ImportedHistory():
            return judge_history(Path(item.run_dir))
        case WholeRun():
            return _judge_run(item, without)
        case Files():
            return _seen(item)
        case Sent():
            return _sent_once(item)
        case Lists() | Offsets() | Messages() | Circles() | Producers() | Transactions() | Beside():
            return iter(_about_transactions(item))
        case WholePartition():
            return _judge_partition(Path(item.run_dir), item.partition, histories)
        case SieveRange():
            return _sieved(item)
        case Rest():
            return _judge_rest(item)
        case Suspects():
            return _judge_together(item)
        case FollowAgain():
            return _follow_again(item)
        case Ordered():
            return _ordered(item)
        case _:
            assert_never(item)


def _judge_run(item: WholeRun, without: frozenset[str]) -> Iterator[TableRow]:
    run_dir = Path(item.run_dir)
    recording = Recording.open(run_dir, compare=not item.files_apart)
    chosen = {name: one for name, one in properties().items() if name not in without}
    if item.transactions_apart:
        chosen.pop(TRANSACTIONS, None)
    in_steps = not item.transactions_apart or any(
        TXNS in one.tables for one in chosen.values() if one.run_kernel is not None
    )
    tables = {name: _sound(recording, name, NO_PARTITION) for name in RUN_TABLES if name != TXNS or in_steps}
    damage = None if in_steps else dealt_transactions.damage(recording)
    if damage is not None:
        raise DamagedRecording(TXNS, damage.row, damage.reason)
    if not item.files_apart:
        _check_values_unique(recording)
    run = PartitionRows(tables)
    history = history_of(recording, tables)
    for name, one in chosen.items():
        if one.run_kernel is not None:
            yield from _attempt(name, Place(str(run_dir)), partial(_judged_run, one, run, history, recording))
        if one.timeline_kernel is not None:
            yield from _attempt(name, Place(str(run_dir)), partial(_judged_timelines, one, history, str(run_dir)))


def _about_transactions(item: OfTransactions) -> list[TableRow]:
    """Look for what may be wrong with transactions, or judge them; where looking fails it may be anything, and judging fails as well."""
    place = Place(item.run_dir)
    match item:
        case Transactions():
            return _attempt(TRANSACTIONS, place, partial(_judged_transactions, item))
        case Beside():
            return _attempt(TRANSACTIONS, place, partial(_judged_beside, item))
        case _:
            found = _attempt(TRANSACTIONS, place, partial(_looked_for, item))
    if not any(isinstance(one, Failed) for one in found):
        return found
    match item:
        case Lists():
            return [ListsSeen(place, item.part.first)]
        case Messages():
            return [MessagesSeen(place, item.part.first, again=True)]
        case Offsets():
            return [OffsetsSeen(place, item.first)]
        case Producers():
            return [ProducersSeen(place, item.first)]
        case Circles():
            return [StretchSeen(place, item.stretch.from_ns, has_circle=True)]
        case _:
            assert_never(item)


def _looked_for(item: Lists | Offsets | Messages | Circles | Producers) -> list[TableRow]:
    place = Place(item.run_dir)
    match item:
        case Lists():
            lists, messages = dealt_transactions.said(item.part, item.margins)
            return [ListsSeen(place, item.part.first, lists), *_seen_messages(item, messages, again=False)]
        case Messages():
            _, messages = dealt_transactions.said(item.part, (), np.frombuffer(item.proven, np.int64))
            return _seen_messages(item, messages, again=True)
        case Offsets():
            return [OffsetsSeen(place, item.first, msgspec.msgpack.encode(dealt_transactions.offsets_of(item.groups)))]
        case Producers():
            return [ProducersSeen(place, item.first, dealt_transactions.made_by(item.groups))]
        case Circles():
            has_circle = dealt_transactions.leads_in_a_circle(item.groups, item.stretch)
            return [StretchSeen(place, item.stretch.from_ns, has_circle)]
        case _:
            assert_never(item)


def _seen_messages(item: Lists | Messages, found: dealt_transactions.Messages | None, *, again: bool) -> list[TableRow]:
    if found is None:
        return []
    return [MessagesSeen(Place(item.run_dir), item.part.first, msgspec.msgpack.encode(found), again)]


def _judged_transactions(item: Transactions) -> list[TableRow]:
    """Judge what a run's transactions say of each other, all of it."""
    recording = Recording.open(Path(item.run_dir), compare=False)
    run = PartitionRows({TXNS: _sound(recording, TXNS, NO_PARTITION)})
    return _judged_run(properties()[TRANSACTIONS], run, history_of(recording), recording)


def _judged_beside(item: Beside) -> list[TableRow]:
    """Judge what is left of them where nothing is wrong with their lists."""
    recording = Recording.open(Path(item.run_dir), compare=False)
    history = history_of(recording)
    gathered = Gathered(partial(dealt_transactions.made, recording))
    gathered.add_messages(joined_parts(item.messages))
    of_producers = transactions_of(item.going_back, dealt_transactions.without_steps(recording))
    gathered.add_fenced(list(fenced_among(of_producers, history)))
    return _judged_found(properties()[TRANSACTIONS], gathered.found(item.count), _Judges(recording), item.run_dir)


def _check_values_unique(recording: Recording) -> None:
    parts = [ranges.groups("sends", paths) for paths in recording.files["sends"].values()]
    pieces = (rows["value"].to_numpy() for own in parts for rows in ranges.read_groups("sends", own, ["value"]))
    if all_different(pieces):
        return
    values = recording.table("sends", columns=["value"])["value"].to_numpy()
    position = value_sent_twice(values)
    if position is not None:
        raise DamagedRecording("sends", position, f"value {values[position]} was sent twice")


def _seen(item: Files) -> Iterator[TableRow]:
    run_dir = Path(item.run_dir)
    to_compare = (run_dir / MANIFEST).exists()
    for path in item.paths:
        facts = file_facts(run_dir, item.table, Path(path)) if to_compare else None
        has_values = item.table == "sends" and (facts is None or facts.damage is None)
        values = list(_values([path])) if has_values else []
        yield files.FileSeen(item.run_dir, item.table, path, files.spans(values), not all_different(values), facts)


def _values(paths: Iterable[str]) -> Iterator[Array]:
    groups = ranges.groups("sends", [Path(path) for path in paths])
    return (rows["value"].to_numpy() for rows in ranges.read_groups("sends", groups, ["value"]))


def _sent_once(item: Sent) -> Iterator[TableRow]:
    if not files.differ(_values(item.window.paths), item.window.wanted):
        _check_values_unique(Recording.open(Path(item.run_dir), compare=False))  # says which one, as of any recording
    return iter(())


def _judge_partition(run_dir: Path, topic_partition: str, histories: Histories) -> Iterator[TableRow]:
    recording = Recording.open(run_dir, compare=False, only=topic_partition)
    chosen = {name: one for name, one in properties().items() if one.kernel is not None}
    needed = dict.fromkeys(table for one in chosen.values() for table in one.tables)
    rows = PartitionRows({name: _sound(recording, name, topic_partition) for name in needed})
    history, steps = histories.of(recording), histories.steps_of(recording)
    judge = PartitionJudge(recording, topic_partition, rows, history, run_steps=steps)
    for name, one in chosen.items():
        yield from _attempt(name, judge.place, partial(judge.judged, one))


def _sieved(item: SieveRange) -> Iterator[TableRow]:
    name, own = item.partition, item.range
    tables = {
        table: ranges.rows_in(table, item.groups[table], [own], ranges.columns_of(table, item.known))
        for table in ranges.BIG
    }
    for table, rows in tables.items():
        damage = contradiction(table, rows)
        if damage is not None:
            # (a row's number in a range says nothing of where it stands in the table)
            raise DamagedRecording(table, None, f"{damage.reason} (tp={name}, offsets {own.first} to {own.end})")
    if item.known.tails is not None:
        tables["polls"] = ranges.polls_in(item.groups["polls"], own)
    rows = PartitionRows(tables)
    sends = rows.columns("sends")
    outcomes = np.full(sends["value"].size, UNKNOWN, np.int8)
    sent = np.flatnonzero(sends["txn_id"] != UNKNOWN)
    outcomes[sent] = outcomes_of(Path(item.run_dir), item.groups["txns"], sends["value"][sent])
    yield SievedRange(place_of(item.run_dir, name), ranges.sieve(own, rows, item.known, outcomes))


def _judge_rest(item: Rest) -> Iterator[TableRow]:
    """Judge what is small in a hot partition, and what looks at consumers if there are any besides the final read."""
    name = item.partition
    recording = Recording.open(Path(item.run_dir), compare=False, only=name)
    polls = _sound(recording, "polls", name)
    tail = pc.any(pc.equal(polls["phase"].cast(pa.string()), "tail")).as_py()
    paths = recording.files["sends"].get(name, [])
    in_transactions = of_bank = False
    for rows in ranges.read_groups("sends", ranges.groups("sends", paths), ["txn_id", "worker_class"]):
        in_transactions |= rows["txn_id"].null_count < rows.num_rows
        of_bank |= bool(pc.any(pc.equal(rows["worker_class"].cast(pa.string()), WORKER_CLASS)).as_py())
    in_group = bool(recording.files["commits"].get(name))
    # Of those that say nothing of a partition without what they are about its rows are not read.
    says = {
        **dict.fromkeys(ranges.SIEVED, False),
        **dict.fromkeys(OF_TRANSACTIONS, in_transactions),
        **dict.fromkeys(OF_GROUPS, in_group),
        **dict.fromkeys(FOLLOWING, tail and not item.tails_apart),
        "bank": of_bank,
    }
    chosen = {own: one for own, one in properties().items() if one.kernel is not None and says.get(own, True)}
    whole = {own: one for own, one in chosen.items() if _needs_all(one) and own not in OF_ENDS}
    small = {table: None for one in chosen.values() for table in one.tables if table not in ranges.BIG}
    needed = dict.fromkeys(table for one in whole.values() for table in one.tables)
    tables = {table: _sound(recording, table, name) for table in small | needed}
    judge = _RestJudge(recording, name, PartitionRows(tables))
    committed = _committed(recording, name) if in_transactions else None
    judge.context = msgspec.structs.replace(judge.context, committed=committed)
    of_ends = {table for own in OF_ENDS & {*chosen} for table in chosen[own].tables} & {*ranges.BIG} | {"logs"}
    ends = {table: ranges.ends(recording, name, table) for table in of_ends}
    with_ends = PartitionRows({table: rows for table, rows in tables.items() if table in small} | ends)
    for own, one in chosen.items():
        first = PartitionRows({table: tables[table] for table in one.tables if table in small})
        if one.kernel_in_ranges is not None:
            large = RowsOfLarge(recording, name, first)
            yield from _attempt(own, judge.place, partial(judge.found_in_ranges, one, large))
        elif one.kernel_in_pieces is not None:
            pieces = chain((first,), ranges.pieces(recording, name, one.columns_in_pieces))
            yield from _attempt(own, judge.place, partial(judge.found_in_pieces, one, pieces))
        else:
            rows = with_ends if own in OF_ENDS else judge.rows
            yield from _attempt(own, judge.place, partial(judge.found_in, one, rows))
    is_known = complete_readers(with_ends.columns("polls")).size or all_logged(with_ends.columns("logs"), judge.context)
    counts = ranges.other_figures(recording, name, committed) | {"partitions with a final log": int(bool(is_known))}
    yield Figures(judge.place, "lost_writes", counts)


def _committed(recording: Recording, name: str) -> Array:
    """Return which values that were sent to a partition in transactions were committed."""
    sent = ranges.groups("sends", recording.files["sends"].get(name, []))
    inside = (
        rows["value"].filter(pc.is_valid(rows["txn_id"])).to_numpy()
        for rows in ranges.read_groups("sends", sent, ["txn_id", "value"])
    )
    return RunSteps(recording).committed(np.concatenate([np.zeros(0, np.int64), *inside]))


class _RestJudge:
    """Judges what is small in a hot partition; a violation that it finds there is explained from all rows."""

    def __init__(self, recording: Recording, name: str, rows: PartitionRows) -> None:
        self._recording, self._name = recording, name
        self.rows = rows
        self._judge = PartitionJudge(recording, name, rows)
        self.place, self.context = self._judge.place, self._judge.context

    def know_committed(self, rows: PartitionRows) -> None:
        """Look up what was committed, if anything in these rows was sent in a transaction."""
        if self.context.committed is None and (rows.columns("sends")["txn_id"] != UNKNOWN).any():
            committed = _committed(self._recording, self._name)
            self.context = msgspec.structs.replace(self.context, committed=committed)

    def found_in(self, chosen: Property, rows: PartitionRows) -> list[TableRow]:
        """Run a property's kernel on some rows, and explain what it found."""
        assert chosen.kernel is not None
        return self.explained(chosen, chosen.kernel(rows, self.context))

    def found_there(self, chosen: Property, rows: PartitionRows, into: list[pa.Table]) -> list[TableRow]:
        """Put what a property's kernel finds in some rows to what it found in others; there is no answer before all are known."""
        assert chosen.kernel is not None
        into.append(chosen.kernel(rows, self.context).anomalies)
        return []

    def found_in_pieces(self, chosen: Property, pieces: Iterable[PartitionRows]) -> list[TableRow]:
        """Run a property's kernel on one piece after the other, and explain what it found."""
        assert chosen.kernel_in_pieces is not None
        return self.explained(chosen, chosen.kernel_in_pieces(pieces, self.context))

    def found_in_ranges(self, chosen: Property, large: RowsOfLarge) -> list[TableRow]:
        """Run a property's kernel on one range after the other, and explain what it found."""
        assert chosen.kernel_in_ranges is not None
        return self.explained(chosen, chosen.kernel_in_ranges(large, self.context))

    def explained(self, chosen: Property, found: Found) -> list[TableRow]:
        """Explain what a property found, from all rows where these may say what excuses it."""
        kinds, other = found.anomalies["kind"].to_pylist(), found.anomalies["other_offset"].is_null().to_pylist()
        asks = any(_needs_records(chosen, kind, is_step=not one) for kind, one in {*zip(kinds, other, strict=True)})
        return (self._whole if asks else self._judge).explained(chosen, found)

    @cached_property
    def _whole(self) -> "PartitionJudge":
        needed = dict.fromkeys(table for one in properties().values() if one.kernel is not None for table in one.tables)
        rows = {table: _sound(self._recording, table, self._name) for table in needed}
        return PartitionJudge(self._recording, self._name, PartitionRows(rows))


def _needs_all(chosen: Property) -> bool:
    return chosen.kernel_in_pieces is None and chosen.kernel_in_ranges is None


def _needs_records(chosen: Property, name: str, *, is_step: bool) -> bool:
    """Whether sends, reads or logs may say what excuses an anomaly.

    Watermarks alone say what permitted a step back over offsets (`is_step`), and commits what took a group's positions. A rule of the
    property's own looks at the property's tables.
    """
    kind = chosen.kinds[name]
    if kind.meaning is Meaning.PROMISED and not is_step:
        return True
    if kind.meaning not in (Meaning.PROMISED, Meaning.VIOLATION):
        return False
    of_records = not {*ranges.BIG}.isdisjoint(chosen.tables)
    return any(of_records if isinstance(one, Rule) else one is not Excuse.POSITIONS_LOST for one in kind.excused_by)


def _follow_again(item: FollowAgain) -> Iterator[TableRow]:
    """Follow tail readers through ranges that are not clean, some after the others; what they received is counted already."""
    name = item.partition
    recording = Recording.open(Path(item.run_dir), compare=False, only=name)
    small = {table: _sound(recording, table, name) for table in ("polls", "watermarks")}
    none = {table: TABLES[table].arrow.empty_table() for table in ("sends", "reads")}
    judge = _RestJudge(recording, name, PartitionRows(small | none))
    found: dict[str, list[pa.Table]] = {own: [nothing()] for own in sorted(FOLLOWING)}
    for held in ranges.together(item.components):
        rows = PartitionRows(small | _rows_of(recording, name, held, ("reads",), whole=item.whole))
        judge.know_committed(rows)
        for own in [*found]:
            failed = _attempt(own, judge.place, partial(judge.found_there, properties()[own], rows, found[own]))
            if failed:  # (said once, however many components there are)
                yield from failed
                del found[own]
    for own, tables in found.items():
        yield from _attempt(
            own, judge.place, partial(judge.explained, properties()[own], Found(pa.concat_tables(tables)))
        )


def _judge_together(item: Suspects) -> Iterator[TableRow]:
    """Judge ranges that are not clean by the ordinary kernels: some after the others, and what is found as if it had been at once."""
    recording = Recording.open(Path(item.run_dir), compare=False, only=item.partition)
    history = history_of(recording)
    small = {table: _sound(recording, table, item.partition) for table in ("polls", "watermarks")}
    found: dict[str, list[Weighed]] = {name: [] for name in sorted(ranges.SIEVED)}
    for held in ranges.together(item.components):
        judge = PartitionJudge(
            recording,
            item.partition,
            PartitionRows(_rows_of(recording, item.partition, held, ("reads", "logs"), whole=item.whole) | small),
            history,
            held.ranges,
        )
        judge.context = msgspec.structs.replace(judge.context, begins=item.begins)
        for name in [*found]:
            failed = _attempt(name, judge.place, partial(_weigh, judge, properties()[name], held, found[name]))
            if failed:  # (said once, however many components there are)
                yield from failed
                del found[name]
    place = place_of(item.run_dir, item.partition)
    for name, own in found.items():
        rows = _attempt(name, place, partial(_answers, properties()[name], own, place))
        yield from (one for one in rows if not isinstance(one, Figures))


def _rows_of(
    recording: Recording, name: str, held: ranges.Component, there_in: Sequence[str], *, whole: bool
) -> dict[str, pa.Table]:
    """Return what is sent to some ranges and stands there in these tables, and the sends without an offset of what is there or missing."""
    tables = {
        table: ranges.rows_of(recording, name, table, held.ranges, list(TABLES[table].fields)) for table in there_in
    }
    there = [rows["value"].drop_null().to_numpy() for rows in tables.values()]
    values = None if whole else np.unique(np.concatenate([*there, np.array(held.missing, np.int64)]))
    sends = ranges.rows_of(recording, name, "sends", held.ranges, list(TABLES["sends"].fields), values)
    return {"sends": sends, **tables}


def _answers(chosen: Property, parts: Sequence[Weighed], place: Place) -> list[TableRow]:
    return list(answers(chosen, *joined(parts), place))


def _weigh(judge: PartitionJudge, chosen: Property, held: ranges.Component, into: list[Weighed]) -> list[TableRow]:
    """Put what a property finds in some ranges to what it found in others; there is no answer before all are judged."""
    assert chosen.kernel is not None
    anomalies = ranges.without_seams(chosen.kernel(judge.rows, judge.context).anomalies, held.ranges)
    into.append(judge.weighed(chosen, Found(anomalies)))
    return []


def _ordered(item: Ordered) -> Iterator[TableRow]:
    """Say of all sends of a hot partition what is contradictory in each range already, if anything is among them."""
    paths = Recording.open(Path(item.run_dir), compare=False, only=item.partition).files["sends"][item.partition]
    columns = ("value", "invoke_ns")
    rows = pa.concat_tables(ranges.read_groups("sends", ranges.groups("sends", paths), columns))
    damage = time_goes_back("sends", rows)
    if damage is not None:
        raise DamagedRecording("sends", damage.row, f"{damage.reason} (tp={item.partition})")
    return iter(())


def second_look(tables: Tables) -> list[WorkItem]:
    """Fold what was seen of files, of ranges and of lists, and return what has to be judged now; there may be something to fold again then."""
    return [
        *_look_at_offsets(tables),
        *_look_at_lists(tables),
        *_look_at_stretches(tables),
        *_look_at_files(tables),
        *_look_at_ranges(tables),
    ]


def _look_at_offsets(tables: Tables) -> Iterator[Lists | Transactions]:
    """Deal messages out by offsets, where it is known now which row groups have which of them."""
    known = {row.place for row in tables.lists} | {row.place for row in tables.messages}
    for place in dict.fromkeys(row.place for row in tables.offsets if row.place not in known):
        if any(row.place == place for row in tables.damages):
            tables.forget_transactions(place)
            continue
        parts = _parts_by_offsets(tables, place)
        if parts is None:
            yield from _by_partitions(tables, place)
            continue
        margins = _dealt(place).margins
        yield from (Lists(place.run_dir, part, margins) for part in parts)


def _parts_by_offsets(tables: Tables, place: Place) -> list[dealt_transactions.Part] | None:
    """Return the ranges of a run's messages; None where nobody could say which offsets some transactions have, or where all are in one range."""
    seen = sorted((row for row in tables.offsets if row.place == place), key=lambda row: row.first)
    known = [row.groups for row in seen if row.groups is not None]
    if not seen or len(known) < len(seen):
        return None
    decoder = msgspec.msgpack.Decoder(list[OffsetsIn])
    parts = dealt_transactions.parts_by_offsets([one for own in known for one in decoder.decode(own)])
    return parts if len(parts) > 1 else None


def _by_partitions(tables: Tables, place: Place) -> Iterator[Lists | Transactions]:
    """Deal a run's messages out by partitions: what their ranges say does not fit together."""
    tables.forget_messages(place)
    dealt_out = _dealt(place)
    if len(dealt_out.parts) > 1:
        yield from (Lists(place.run_dir, part, dealt_out.margins) for part in dealt_out.parts)
    else:
        tables.forget_transactions(place)
        yield Transactions(place.run_dir)


def _dealt(place: Place) -> dealt_transactions.Deal:
    dealt_out = dealt_transactions.deal(Recording.open(Path(place.run_dir), compare=False))
    assert dealt_out is not None, "it was dealt out before"
    return dealt_out


def _look_at_lists(tables: Tables) -> Iterator[WorkItem]:
    """Put together what lists and messages say of circles; where something else may be wrong with some lists, all transactions are judged at once."""
    by_run: dict[Place, list[ListsSeen]] = {}
    for row in tables.lists:
        by_run.setdefault(row.place, []).append(row)
    tables.lists = []
    for place, every in by_run.items():
        sound = [one.reported for one in every if one.reported is not None]
        if any(row.place == place for row in tables.damages):
            tables.forget_transactions(
                place
            )  # whoever looked at the run as a whole, or at its lists, could not believe them
            continue
        if len(sound) < len(every):
            tables.forget_transactions(place)
            yield Transactions(place.run_dir)
            continue
        messages = _messages(tables, place)
        assert messages is not None
        if dealt_transactions.over_borders(messages.values()) is None:
            yield from _by_partitions(tables, place)
            continue
        dealt_out = _dealt(place)
        proven = dealt_transactions.proven_elsewhere(list(messages.values()))
        for part in _parts_by_offsets(tables, place) or dealt_out.parts:
            if part.first in messages and dealt_transactions.depends_on(messages[part.first], proven):
                yield Messages(place.run_dir, part, proven.tobytes())
        for stretch in stretches([*sound, *(one.reported for one in messages.values())], dealt_out.margins):
            yield Circles(place.run_dir, dealt_out.within(stretch), stretch)


def _messages(tables: Tables, place: Place) -> dict[int, dealt_transactions.Messages] | None:
    """Return what a run's messages say, by their parts' numbers, ascending; None: nobody could say it of some."""
    decoder = msgspec.msgpack.Decoder(dealt_transactions.Messages)
    own = sorted((row for row in tables.messages if row.place == place), key=lambda row: (row.first, row.again))
    said = {row.first: row.messages for row in own}
    if None in said.values():
        return None
    return {first: decoder.decode(content) for first, content in said.items() if content is not None}


def _look_at_stretches(tables: Tables) -> Iterator[Lists | Transactions | Beside]:
    """Judge what is left of a run's transactions where no stretch has a circle, and else all at once."""
    by_run: dict[Place, bool] = {}
    for row in tables.stretches:
        by_run[row.place] = by_run.get(row.place, False) or row.has_circle
    tables.stretches = []
    for place, has_circle in by_run.items():
        own = sorted((row for row in tables.producers if row.place == place), key=lambda row: row.first)
        made = [row.producers for row in own]  # tasks answer in any order; an epoch goes back in time alone
        known = [one for found in made if found is not None for one in found]
        messages = _messages(tables, place)
        if has_circle or None in made or messages is None:
            tables.forget_transactions(place)
            yield Transactions(place.run_dir)
            continue
        crossing = dealt_transactions.over_borders(messages.values())
        if crossing is None:
            # What others had proven makes a difference at the end of a range.
            yield from _by_partitions(tables, place)
            continue
        tables.forget_transactions(place)
        found = (*(one.found for one in messages.values()), *([OfPart.of(crossing)] if crossing.counts else []))
        yield Beside(place.run_dir, _dealt(place).count, going_back(known), found)


def _look_at_files(tables: Tables) -> Iterator[Sent]:
    """Compare what was seen of files with their manifests; where they are as stated, ask for the values that several may hold."""
    by_run: dict[str, list[files.FileSeen]] = {}
    for file in tables.files:
        by_run.setdefault(file.run_dir, []).append(file)
    tables.files = []
    for run_dir, seen in by_run.items():
        place = Place(run_dir)
        try:
            manifest = Recording.open(Path(run_dir), compare=False).manifest
        except DamagedRecording:
            continue  # whoever judged the run as a whole has said it
        damage = None if manifest is None else files.wrong(manifest, seen)
        if damage is not None:
            # As if nobody had looked further: of a recording that is not as it was, this is the reason.
            tables.damages = [row for row in tables.damages if row.place != place]
            tables.damages.append(Damage(place, damage.table, str(damage)))
        elif all(row.place != place for row in tables.damages):
            yield from (Sent(run_dir, window) for window in files.windows(seen))


def _look_at_ranges(tables: Tables) -> list[WorkItem]:
    """Put the sieve's figures in its place, and return the ranges that are not clean."""
    by_place: dict[Place, list[ranges.Sieved]] = {}
    for row in tables.sieved:
        by_place.setdefault(row.place, []).append(row.sieved)
    tables.sieved = []
    items: list[WorkItem] = []
    for place, sieved in by_place.items():
        sieved.sort(key=lambda own: own.range.first)
        tables.figures.append(Figures(place, "lost_writes", ranges.added(own.figures for own in sieved)))
        if received := ranges.figures_of_tails(sieved):
            tables.figures.append(Figures(place, "consumers", received))
        name = f"{place.topic}-{place.partition}"
        to_follow, everywhere = ranges.fold_tails(sieved)
        if to_follow:
            items.append(FollowAgain(place.run_dir, name, tuple(to_follow), whole=everywhere))
        if ranges.may_go_back(sieved):
            items.append(Ordered(place.run_dir, name))
        components = tuple(ranges.fold(sieved))
        if components:
            whole = any(own.whole for own in sieved)
            items.append(Suspects(place.run_dir, name, components, begins=ranges.begins(sieved), whole=whole))
    return items


def _judged_run(chosen: Property, run: PartitionRows, history: History, recording: Recording) -> list[TableRow]:
    assert chosen.run_kernel is not None
    judges = _Judges(recording)
    history.written_anew = lambda key, value: judges.of(key).of_place(value)
    history.lost_value = lambda key, value, absent_ns: judges.of(key).of_value(value, absent_ns)
    return _judged_found(chosen, chosen.run_kernel(run, history), judges, str(recording.run_dir))


def _judged_found(chosen: Property, found: Found, judges: "_Judges", run_dir: str) -> list[TableRow]:
    judgements = dict(found.judgements)
    for row, one in found.contradictions.items():
        judge = judges.of(one.key)
        found_of = judge.of_aborted(one) if isinstance(one, AbortedMessage) else judge.of_contradiction(one)
        if found_of is not None:
            judgements[row] = found_of
    return list(answers(chosen, found, judgements, Place(run_dir)))


class _Judges:
    """A run's partitions' judges, made when they are asked for."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._judges: dict[str, PartitionJudge] = {}

    def of(self, key: str) -> PartitionJudge:
        """Return the judge of `topic-p`."""
        if key not in self._judges:
            tables = {name: self._recording.table(name, key) for name in PARTITION_TABLES}
            self._judges[key] = PartitionJudge(self._recording, key, PartitionRows(tables))
        return self._judges[key]


def _judged_timelines(chosen: Property, history: History, run_dir: str) -> list[TableRow]:
    assert chosen.timeline_kernel is not None
    rows: list[TableRow] = []
    for topic, partition in history.partitions():
        found = chosen.timeline_kernel(history.timeline(topic, partition))
        rows += answers(chosen, found, {}, Place(run_dir, topic, partition))
    return rows


def _attempt(name: str, place: Place, work: Callable[[], list[TableRow]]) -> list[TableRow]:
    """Run one property; a checker that fails makes the run an ERROR, and the other properties are judged all the same."""
    try:
        return work()
    except (DamagedRecording, NoStorage):
        raise
    except Exception as error:  # noqa: BLE001 - a task's top: the row says what happened, the run becomes an ERROR
        return [Failed(place, name, f"{type(error).__name__}: {error}")]


def _sound(recording: Recording, name: str, topic_partition: str) -> pa.Table:
    return _without_damage(name, recording.table(name, topic_partition, list(TABLES[name].fields)), topic_partition)


def _without_damage(name: str, rows: pa.Table, topic_partition: str = NO_PARTITION) -> pa.Table:
    damage = contradiction(name, rows)
    if damage is not None:
        place = "" if topic_partition == NO_PARTITION else f" (tp={topic_partition})"
        raise DamagedRecording(name, damage.row, damage.reason + place)
    return rows


def fold(tables: Tables) -> None:
    """Stage 4: put the partitions' summaries together, property by property.

    tables:  in order; the summaries of one run's property stand in the order of partitions.
    """
    parts: dict[tuple[str, str], list[EncodedSummary]] = {}
    # Of a damaged partition nothing is told: one that is cut into ranges may be known to be damaged when its sends were summed up.
    damaged = {row.place for row in tables.damages}
    of_partitions = {name for name, one in properties().items() if one.kernel is not None}
    tables.figures = [
        row for row in tables.figures if not (row.place in damaged and row.property_name in of_partitions)
    ]
    for row in tables.summaries:
        if row.place in damaged:
            continue
        topic, partition = row.place.topic, row.place.partition
        assert topic is not None
        assert partition is not None
        own = parts.setdefault((row.place.run_dir, row.property_name), [])
        own.append(EncodedSummary(topic, partition, row.content))
    tables.summaries = []
    for (run_dir, name), summaries in parts.items():
        tables.add(_attempt(name, Place(run_dir), partial(_folded, tables, name, Path(run_dir), summaries)))


def _folded(tables: Tables, name: str, run_dir: Path, summaries: Sequence[EncodedSummary]) -> list[TableRow]:
    own = properties()[name].fold
    assert own is not None
    folded = own.folded(summaries)
    found = judged_of_run(name, run_dir, Found(folded.anomalies))
    if folded.figures is not None:
        tables.folded.setdefault(str(run_dir), {})[name] = folded.figures
    return found


def judged_of_run(name: str, run_dir: Path, found: Found, topic_partition: str = NO_PARTITION) -> list[TableRow]:
    """Return the findings among a property's anomalies that concern a run as a whole, or its committed metadata."""
    chosen = properties()[name]
    judgements = _of_transactions(chosen, run_dir, found.anomalies)
    return [
        one
        for one in answers(chosen, found, judgements, place_of(str(run_dir), topic_partition))
        if not isinstance(one, Figures)
    ]


def _of_transactions(chosen: Property, run_dir: Path, anomalies: pa.Table) -> dict[int, Judgement]:
    """Excuse what is wrong with transactions as wholes, where ends of those were permitted to be lost.

    An anomaly's `at_ns` is the begin of its transaction; without one it is about all of them.
    """
    kinds = enumerate(anomalies["kind"].to_pylist())
    ended = [row for row, kind in kinds if Excuse.END_LOST in chosen.kinds[kind].excused_by]
    if not ended:
        return {}
    recording = Recording.open(run_dir, compare=False)
    judges = _Judges(recording)

    def compacted(place: tuple[str, int], value: int, log_offset: int) -> Judgement | None:
        topic, partition = place
        return judges.of(f"{topic}-{partition}").compacted(value, log_offset)

    ends = Ends(recording, Remembered(run_dir, history_of(recording)), compacted)
    judged = ((row, ends.excuse(anomalies["at_ns"][row].as_py())) for row in ended)
    return {row: judgement for row, judgement in judged if judgement is not None}
