"""Which properties could be judged in which partitions: each needs its tables there, as far as a run of that kind records them.

A *cell* is a property in a partition. A cell lacks an input that its run promised: every kind of cluster hands over the committed metadata, the starts and ends of
its nodes, the logs of its replicas and who was told which watermarks, and every workload sends to each of its partitions and
reads them to the end. What was sent in a transaction promises that this transaction is written down (`txns`), and what a group's
members do with a topic they do with each of its partitions (`commits`). Such a cell says nothing, whatever its property found elsewhere: the run is INCONCLUSIVE, and the input is named. A recording
that names no kind of cluster was made by hand: of it nothing is promised but the metadata of the partitions that were sent to.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import FINAL, Array, Columns, Excuse, Meaning, PartitionRows, Property, is_among, properties
from tribunal.checkers.judge.dumps import dumped
from tribunal.checkers.judge.partition import history_of
from tribunal.checkers.judge.run_steps import RunSteps
from tribunal.checkers.properties.lost_writes import READ_COMMITTED, complete_readers
from tribunal.results.metadata import NO_LEADER
from tribunal.results.recording import TABLES, WORDS
from tribunal.results.rows import Phase, typed
from tribunal.results.store import Recording, partition_order, row_count
from tribunal.results.verdict import Coverage, MissingInput, PhaseLoad, acks_word

NAMED: Final = 4  # partitions and properties in a reason; all are in verdict.json
LOADED_PHASES: Final = ("faults",)
ALL_OR_NOTHING: Final = -1  # a call on an object is acknowledged, or it is not
FINAL_READ: Final = "final read"
COMPARED: Final = "replicas"  # the property that looks at the log of each member of the final ISR and ELR
COMMITTED_READ: Final = "final read of what is committed"
WHOLE: Final = (
    "atomicity",
)  # looks at what a final read with isolation read_committed returned, and is silent without one
OUTCOMES: Final = WORDS["sends", "outcome"]
POLLS: Final = (
    *("process", "phase", "isolation", "position", "log_start_offset", "outcome", "record_count", "high_watermark"),
)
Place = tuple[str, int]


def is_promised(recording: Recording) -> bool:
    """Whether a run has to have recorded what runs record: what was made by hand promises nothing."""
    return recording.manifest is not None and recording.manifest.cluster is not None


def created(recording: Recording) -> list[Place]:
    """Return the partitions that a run promised to send to, if it names a topic of them."""
    return history_of(recording).partitions() if is_promised(recording) else []


def passing(recording: Recording) -> list[Place]:
    """Return the partitions that operators created or deleted while the run went on: nobody promised to send to them at any moment."""
    begins = [phase.start_ns for phase in typed(recording.table("phases"), Phase) if phase.start_ns is not None]
    history = history_of(recording)
    return [
        place
        for place in history.partitions()
        if history.orders_of(*place).is_deleted
        or (begins and any(entry.at_ns > min(begins) for entry in history.timeline(*place).entries[:1]))
    ]


def coverage(recording: Recording, hanging: Collection[Place] = ()) -> Coverage:
    """Return how many cells a run has, and which inputs some of them lack.

    hanging:  partitions of which it was found that a transaction holds readers of what is committed back for ever: none of them gets to the end.
    """
    places = [partition_order(name) for name in recording.partitions("sends", "reads", "polls")]
    places = [place for place in places if not place[0].startswith("__")]
    places = sorted({*places, *_unseen(recording, {topic for topic, _ in places})})
    chosen = list(properties().values())
    missing = list(_missing(recording, places, chosen, hanging))
    everywhere = {name for one in missing if one.topic is None for name in one.properties}
    lacking = {(name, one.topic, one.partition) for one in missing if one.topic is not None for name in one.properties}
    lacking |= {(name, topic, partition) for name in everywhere for topic, partition in places}
    return Coverage(
        cells=len(places) * len(chosen), judged=len(places) * len(chosen) - len(lacking), missing=tuple(missing)
    )


def _unseen(recording: Recording, topics: Collection[str]) -> set[Place]:
    """Return the partitions of these topics that were there all the time, as far as the metadata say: each of them was promised to be used."""
    return {place for place in created(recording) if place[0] in topics} - {*passing(recording)}


def _missing(
    recording: Recording, places: Sequence[Place], chosen: Sequence[Property], hanging: Collection[Place]
) -> Iterator[MissingInput]:
    promised = is_promised(recording)
    history = history_of(recording)
    known = {*history.partitions()}
    if promised:
        yield from _of_run(recording, chosen)
    for topic, partition in places:
        if (topic, partition) not in known:
            yield _lacks("metadata", topic, partition, [one.name for one in chosen if _needs_metadata(one)])
        if not promised or history.orders_of(topic, partition).is_deleted:
            continue
        name = f"{topic}-{partition}"
        changes = [entry.state for entry in history.timeline(topic, partition).entries[-1:]]
        read = dumped(recording.table, topic, partition)
        for table in ("watermarks", "logs"):
            if not (table == "logs" and read) and not row_count(table, recording.files[table].get(name, ())):
                yield _lacks(table, topic, partition, _of_table(chosen, table))
        for node in changes[0].members if read and changes else ():
            if node not in read:  # the other members' logs say nothing about this one
                yield _lacks("logs", topic, partition, [COMPARED], node)
        is_led = not changes or changes[-1].leader != NO_LEADER
        polls = PartitionRows({"polls": recording.table("polls", name, POLLS)}).columns("polls")
        if is_led and not complete_readers(polls).size:
            yield _lacks(FINAL_READ, topic, partition, _of_table(chosen, "reads"))
        elif _gave_up(polls) and (topic, partition) not in hanging:
            yield _lacks(COMMITTED_READ, topic, partition, WHOLE)
    if promised:
        yield from _of_groups(recording, chosen, places)
        yield from _of_transactions(recording, chosen, places)


def _of_run(recording: Recording, chosen: Sequence[Property]) -> Iterator[MissingInput]:
    """Yield tables that the run lacks as a whole."""
    of_workloads = () if recording.manifest is None else recording.manifest.promised
    for table in ("nodes", "phases", *of_workloads):
        if table not in TABLES:  # whoever wrote the manifest promised what no recording has
            found: Sequence[str] | int = 0
        else:
            found = recording.partitions(table) if TABLES[table].by_partition else recording.table(table).num_rows
        if not found:
            yield MissingInput(input=table, properties=_of_table(chosen, table))


def _of_groups(recording: Recording, chosen: Sequence[Property], places: Sequence[Place]) -> Iterator[MissingInput]:
    """Yield the partitions without any commit of a topic that groups consume."""
    committed = {partition_order(name) for name in recording.partitions("commits")}
    if not committed:
        return
    topics, new = {topic for topic, _ in committed}, {*passing(recording)}
    for topic, partition in places:
        if topic in topics and (topic, partition) not in new and (topic, partition) not in committed:
            yield _lacks("commits", topic, partition, _of_table(chosen, "commits"))


def _of_transactions(
    recording: Recording, chosen: Sequence[Property], places: Sequence[Place]
) -> Iterator[MissingInput]:
    """Yield the partitions to which something was sent in a transaction that is not written down: nobody knows how it ended."""
    needed = {one.name for one in chosen for kind in one.kinds.values() if Excuse.END_LOST in kind.excused_by}
    needed |= {*_of_table(chosen, "txns"), *_of_table(chosen, "sends")}
    listed: Array | None = None
    for topic, partition in places:
        name = f"{topic}-{partition}"
        inside = pc.is_valid(recording.table("sends", name, ("txn_id",))["txn_id"])
        if not pc.any(inside).as_py():
            continue
        listed = RunSteps(recording).sent() if listed is None else listed
        values = recording.table("sends", name, ("value",))["value"].filter(inside).to_numpy()
        if not is_among(values, listed).all():
            yield _lacks("txns", topic, partition, [one.name for one in chosen if one.name in needed])


def _lacks(what: str, topic: str, partition: int, names: Iterable[str], node: int | None = None) -> MissingInput:
    return MissingInput(input=what, topic=topic, partition=partition, properties=tuple(names), node=node)


def _of_table(chosen: Sequence[Property], table: str) -> tuple[str, ...]:
    return tuple(one.name for one in chosen if table in one.tables)


def _needs_metadata(one: Property) -> bool:
    """Whether a property looks at the committed history, or what it finds may be excused by that."""
    excused = any(kind.meaning is Meaning.PROMISED or kind.excused_by for kind in one.kinds.values())
    return excused or one.timeline_kernel is not None or bool({"metadata", "logs", "watermarks"} & {*one.tables})


def _gave_up(polls: Columns) -> bool:
    """Whether somebody began to read all that is committed, and only readers of everything came to the end."""
    wanted = (polls["phase"] == FINAL) & (polls["isolation"] == READ_COMMITTED)
    return bool(wanted.any()) and complete_readers(polls).size > 0 and not complete_readers(polls, committed=True).size


def reasons(found: Coverage) -> Iterator[str]:
    """Yield a line for each input that is missing, with where and for whom."""
    by_input: dict[str, list[MissingInput]] = {}
    for one in found.missing:
        by_input.setdefault(one.input, []).append(one)
    for name, own in by_input.items():
        places = [_place(one) for one in own if one.topic is not None]
        where = f" of {_few(places)}" if places else ""
        needed = [*dict.fromkeys(name for one in own for name in one.properties)]
        what = f"there is no complete {name}" if name in (FINAL_READ, COMMITTED_READ) else f"no {name} were recorded"
        yield f"{what}{where}: not judged there: {_few(needed) or 'the load'}"


def _place(one: MissingInput) -> str:
    return f"{one.topic}-{one.partition}" + ("" if one.node is None else f" on broker {one.node}")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


# Load: how much was completed while faults were injected.


class Load(msgspec.Struct, frozen=True):
    """How many sends were completed, by partition, phase and acks; and how many calls on objects, by phase."""

    by_place: Mapping[Place, Sequence[PhaseLoad]]
    acknowledged: int
    calls: Sequence[PhaseLoad] = ()

    @property
    def of_run(self) -> list[PhaseLoad]:
        """All partitions added up."""
        sums: dict[tuple[str, int], PhaseLoad] = {}
        for own in (*self.by_place.values(), self.calls):
            for row in own:
                former = sums.get((row.phase, row.acks))
                sums[row.phase, row.acks] = row if former is None else _sum(former, row)
        return list(sums.values())


def _sum(one: PhaseLoad, other: PhaseLoad) -> PhaseLoad:
    counts = {word: getattr(one, word) + getattr(other, word) for word in OUTCOMES}
    return PhaseLoad(phase=one.phase, acks=one.acks, **counts)


def load(recording: Recording) -> Load:
    """Count what was completed; a partition at a time, for all of them together may be too large."""
    phases = [one for one in typed(recording.table("phases"), Phase) if one.start_ns is not None and not one.cut_off]
    by_place: dict[Place, list[PhaseLoad]] = {}
    acknowledged = 0
    for name in recording.partitions("sends"):
        sends = PartitionRows({"sends": recording.table("sends", name, ("acks", "outcome", "complete_ns"))})
        columns = sends.columns("sends")
        acks, outcome = columns["acks"], columns["outcome"]
        acknowledged += int((outcome == OUTCOMES.index("ok")).sum())
        by_place[partition_order(name)] = list(_of_phases(phases, acks, outcome, columns["complete_ns"]))
    calls = PartitionRows({"operations": recording.table("operations")}).columns("operations")
    outcome = calls["outcome"]
    acknowledged += int((outcome == OUTCOMES.index("ok")).sum())
    levels = np.full(outcome.size, ALL_OR_NOTHING)
    return Load(by_place, acknowledged, list(_of_phases(phases, levels, outcome, calls["complete_ns"])))


def _of_phases(phases: Sequence[Phase], acks: Array, outcome: Array, done: Array) -> Iterator[PhaseLoad]:
    levels = sorted(pc.unique(pa.array(acks)).to_pylist())
    for phase in phases:
        end = phase.end_ns if phase.end_ns is not None else np.iinfo(np.int64).max
        within = (done >= phase.start_ns) & (done < end)
        for level in levels:
            counted = np.bincount(outcome[within & (acks == level)], minlength=len(OUTCOMES)).tolist()
            yield PhaseLoad(phase=phase.name, acks=level, **dict(zip(OUTCOMES, counted, strict=True)))


def load_doubts(
    found: Load, least: int, created: Iterable[Place] = (), passing: Collection[Place] = ()
) -> Iterator[str]:
    """Yield what was too little for a test.

    The run as a whole has to have so much acknowledged of each level of acks (acks=0: sent), and so has each partition that was sent to with
    it: what nobody acknowledged could not be lost. A partition of such a topic that was never sent to is a doubt.

    created:  partitions that there were.
    passing:  those that were not there all the time: each of them is owed nothing.
    """
    if not found.acknowledged:
        yield "nothing was acknowledged: there was nothing that could be lost"
        return
    said: set[tuple[str, int]] = set()
    for row in found.of_run:
        if row.phase in LOADED_PHASES and row.completed < least:
            said.add((row.phase, row.acks))
            yield f"phase {row.phase} acks={acks_word(row.acks)}: {row.completed} acknowledged (need {least})"
    short: dict[tuple[str, int], list[str]] = {}
    lasting = [item for item in found.by_place.items() if item[0] not in passing]
    for (topic, partition), own in lasting:
        for row in own:
            if row.phase in LOADED_PHASES and row.completed < least and (row.phase, row.acks) not in said:
                short.setdefault((row.phase, row.acks), []).append(f"{row.completed} in {topic}-{partition}")
    for (phase, level), places in short.items():
        yield f"phase {phase} acks={acks_word(level)}: {_few(places)} acknowledged (need {least} in each partition)"
    topics = {topic for topic, _ in found.by_place}
    owed = [place for place in created if place[0] in topics and place not in passing]
    unsent = [f"{topic}-{partition}" for topic, partition in owed if (topic, partition) not in found.by_place]
    if unsent:
        yield f"never sent to: {_few(unsent)}"
