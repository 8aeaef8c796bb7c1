"""The small views that the SQL definitions use besides the recording's tables: what needs more than SQL to make.

Each is a table of one run, with run_id. They are made by the same code that feeds the kernels, so the SQL checks what is
concluded from them, and tests of that code check what they hold.

    can_lead            topic, partition, node                    final ISR and ELR
    dumped              topic, partition, node, log_start_offset  whose final logs were read from their disks
    leaders             topic, partition, made_anew, leader_epoch, node, until_ns  as committed, of each topic of the name; until when it may lead it on
    topic_times         topic, partition, made_anew, since_ns, until_ns, is_only  when what was observed is surely of a topic, by how often it was made anew
    endings             topic, partition, leader, since_epoch, since_ns, anew_ns  how a partition's committed history ends
    hurt_disks          topic, partition, node, from_offset, end_offset  what members provably lost that are not whole again
    damaged_batches     topic, partition, node, from_offset, end_offset  batches that were damaged where no checksum sees it
    committed           value                                     sent in a committed transaction
    txn_steps           txn, step, process, outcome, begin_ns, end_ns, timeout_ms, kind, topic, partition, log_offset, value
    txn_spans           txn, process, begin_ns, end_ns, outcome   of transactions; one whose end nobody saw ends where its process begins the next one
    transaction_timeouts  timeout_ns, ended_ns, longest_ns        of runs with transactions
    complete_runs                                                 runs that came to their end
    kraft_runs                                                    runs of which the metadata log was recorded, record by record
    leaderless          topic, partition, node, since_ns, until_ns, leader_epoch  partitions left without leader for too long
    silent_quorums      since_ns, until_ns, words                 when the metadata quorum committed nothing for too long
    below_min_isr       topic, partition, since_ns, until_ns, said_by, of_epoch, is_only, needs_min_isr  when leaders knew of too small an ISR
    ever_led            topic, partition, node, until_ns          who led in the whole history, as far as it was observed
    forgotten           topic, partition, position, node          who left ISR and ELR although the ELR should have kept it
    entries, entry_facts, members                                 a partition's committed history, step by step
    metadata_epochs, registrations, registered, control_requests  the metadata log, brokers' registrations, requests between nodes
    doubled_produces    node, at_ns                               when a fault let a client's produce request arrive twice
    faults              fault_index, kind, resolved_target, planned_ns, injected_ns, healed_ns
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.guarantees import Elected, Fact, JoinedIsr, ShutDownUncleanly
from tribunal.checkers.judge.cuts import with_cuts
from tribunal.checkers.judge.endings import ending
from tribunal.checkers.judge.partition import history_of, settings_of
from tribunal.checkers.judge.presence import below_min_isr, ever_led, forgotten, leaderless
from tribunal.checkers.judge.quorum import silent
from tribunal.checkers.judge.steps import KINDS, OUTCOMES, committed_values, flat, spans
from tribunal.checkers.judge.timeline import Entry, Timeline
from tribunal.checkers.properties import lost_writes, stale_epochs
from tribunal.checkers.properties.control_plane import silence_words
from tribunal.checkers.properties.hanging_transactions import DEFAULT_TIMEOUT_MS, TIMEOUT, of_all
from tribunal.results.manifest import KRAFT, integer
from tribunal.results.metadata import State, registrations
from tribunal.results.recording import TABLES
from tribunal.results.store import Recording, partition_order

VIEWS: Final = ("sends", "polls", "reads", "watermarks", "logs", "commits")
PLACE: Final = [("run_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32())]
RUN: Final = PLACE[:1]
SCHEMAS: Final = {
    "can_lead": pa.schema([*PLACE, ("node", pa.int32())]),
    "leaders": pa.schema(
        [
            *PLACE,
            ("made_anew", pa.int32()),
            ("leader_epoch", pa.int32()),
            ("node", pa.int32()),
            ("until_ns", pa.int64()),
        ]
    ),
    "topic_times": pa.schema(
        [
            *PLACE,
            ("made_anew", pa.int32()),
            ("since_ns", pa.int64()),
            ("until_ns", pa.int64()),
            ("is_only", pa.int32()),
        ]
    ),
    "endings": pa.schema(
        [*PLACE, ("leader", pa.int32()), ("since_epoch", pa.int32()), ("since_ns", pa.int64()), ("anew_ns", pa.int64())]
    ),
    "hurt_disks": pa.schema([*PLACE, ("node", pa.int32()), ("from_offset", pa.int64()), ("end_offset", pa.int64())]),
    "damaged_batches": pa.schema(
        [*PLACE, ("node", pa.int32()), ("from_offset", pa.int64()), ("end_offset", pa.int64())]
    ),
    "leaderless": pa.schema(
        [
            *PLACE,
            ("node", pa.int32()),
            ("since_ns", pa.int64()),
            ("until_ns", pa.int64()),
            ("leader_epoch", pa.int32()),
        ]
    ),
    "ever_led": pa.schema([*PLACE, ("node", pa.int32()), ("until_ns", pa.int64())]),
    "forgotten": pa.schema([*PLACE, ("position", pa.int32()), ("node", pa.int32())]),
    "below_min_isr": pa.schema(
        [
            *PLACE,
            ("since_ns", pa.int64()),
            ("until_ns", pa.int64()),
            ("said_by", pa.int32()),
            ("of_epoch", pa.int32()),
            ("is_only", pa.int32()),
            ("needs_min_isr", pa.int32()),
        ]
    ),
    "entries": pa.schema(
        [
            *PLACE,
            ("position", pa.int32()),
            ("anew_position", pa.int32()),  # where its topic was made
            ("at_ns", pa.int64()),
            ("is_changed", pa.int32()),
            ("leader", pa.int32()),
            ("leader_epoch", pa.int32()),
            ("recovery", pa.int32()),
            ("isr_size", pa.int32()),
            ("elr_size", pa.int32()),
            ("min_isr", pa.int32()),
            ("elr_on", pa.int32()),
            ("unclean_on", pa.int32()),
            ("is_aggressive", pa.int32()),
            ("replicas", pa.string()),
            ("description", pa.string()),
        ]
    ),
    "members": pa.schema([*PLACE, ("position", pa.int32()), ("role", pa.string()), ("node", pa.int32())]),
    "entry_facts": pa.schema(
        [
            *PLACE,
            ("position", pa.int32()),
            ("fact", pa.string()),
            ("node", pa.int32()),
            ("how", pa.string()),
            ("is_ordered", pa.int32()),
            ("is_empty", pa.int32()),
        ]
    ),
    "deletions": pa.schema([*PLACE, ("ordered_ns", pa.int64())]),
    "registrations": pa.schema(
        [
            *RUN,
            ("metadata_offset", pa.int64()),
            ("at_ns", pa.int64()),
            ("node", pa.int32()),
            ("broker_epoch", pa.int64()),
            ("incarnation", pa.string()),
        ]
    ),
    "silent_quorums": pa.schema([*RUN, ("since_ns", pa.int64()), ("until_ns", pa.int64()), ("words", pa.string())]),
    "transaction_timeouts": pa.schema(
        [*RUN, ("timeout_ns", pa.int64()), ("ended_ns", pa.int64()), ("longest_ns", pa.int64())]
    ),
    "complete_runs": pa.schema(RUN),
    "kraft_runs": pa.schema(RUN),
}
Row = Mapping[str, str | int | None]


def small_views(run_dir: Path) -> dict[str, pa.Table]:
    """Return all small views of one run."""
    recording = Recording.open(run_dir, compare=False)
    run_id = recording.run_id
    rows = _rows(recording)
    views = {
        name: pa.Table.from_pylist([{"run_id": run_id, **row} for row in rows.get(name, ())], schema=schema)
        for name, schema in SCHEMAS.items()
    }
    for name, table in _tables(recording).items():
        views[name] = table.add_column(0, "run_id", pa.repeat(pa.scalar(run_id), table.num_rows))
    return views


def _rows(recording: Recording) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    history = history_of(recording)
    named = {partition_order(name): None for name in recording.partitions(*VIEWS)}
    for topic, partition in sorted({**named, **dict.fromkeys(history.partitions())}):
        timeline = history.timeline(topic, partition)
        for name, row in (*_of_timeline(timeline), *_of_presence(timeline, recording)):
            rows[name].append({"topic": topic, "partition": partition, **row})
        ordered_ns = history.deletion_ns(topic)
        if ordered_ns is not None:
            rows["deletions"].append({"topic": topic, "partition": partition, "ordered_ns": ordered_ns})
    txns = recording.table("txns")
    settings = recording.settings or {}
    if txns.num_rows:
        timeout_ms = integer(settings, TIMEOUT, DEFAULT_TIMEOUT_MS)
        ended_ns, longest_ns = of_all(txns, timeout_ms)
        timeouts = {"timeout_ns": timeout_ms * 1_000_000, "ended_ns": ended_ns, "longest_ns": longest_ns}
        rows["transaction_timeouts"].append(timeouts)
    rows["complete_runs"] += [{}] if recording.complete else []
    rows["kraft_runs"] += [{}] if settings_of(recording).get("mode") == KRAFT else []
    rows["registrations"] += _registrations(recording.table("metadata"))
    rows["silent_quorums"] += _silences(recording)
    return rows


def _silences(recording: Recording) -> Iterator[Row]:
    for silence in silent(recording.table, settings_of(recording)):
        span = {"since_ns": silence.since_ns, "until_ns": silence.until_ns}
        yield {**span, "words": silence_words(silence.voters, silence.waited_ns)}


def _registrations(metadata: pa.Table) -> Iterator[Row]:
    for row in registrations(metadata):
        yield {
            "metadata_offset": row.metadata_offset,
            "at_ns": row.at_ns,
            "node": row.record.broker_id,
            "broker_epoch": row.record.broker_epoch,
            "incarnation": str(row.record.incarnation_id),  # unknown is a word, too: SQL compares no null
        }


def _of_timeline(timeline: Timeline) -> Iterator[tuple[str, Row]]:
    yield from (("can_lead", {"node": node}) for node in timeline.can_lead)
    for one in timeline.leaders.led:
        own = {"leader_epoch": one.leader_epoch, "node": one.leader, "until_ns": one.until_ns}
        yield "leaders", {"made_anew": one.topic, **own}
    for topic, (since_ns, until_ns) in enumerate(timeline.leaders.spans):
        is_only = int(not timeline.leaders.anew_ns)
        yield "topic_times", {"made_anew": topic, "since_ns": since_ns, "until_ns": until_ns, "is_only": is_only}
    last = ending(timeline.entries)
    yield (
        "endings",
        {"leader": last.leader, "since_epoch": last.since_epoch, "since_ns": last.since_ns, "anew_ns": last.anew_ns},
    )
    for view, ranges in (("hurt_disks", last.hurt), ("damaged_batches", last.damaged)):
        yield from ((view, {"node": node, "from_offset": first, "end_offset": end}) for node, first, end in ranges)
    made: dict[int, int] = {}
    for position, entry in enumerate(timeline.entries):
        anew = made.setdefault(entry.made_anew, position)
        yield "entries", {"position": position, "anew_position": anew, **_entry(entry)}
        state = entry.state
        roles = {"isr": state.isr, "elr": state.elr, "replica": state.replicas, "fenced": entry.fenced}
        for role, nodes in roles.items():
            for node in dict.fromkeys(nodes):
                yield "members", {"position": position, "role": role, "node": node}
        for fact in entry.facts:
            for row in _fact(fact):
                yield "entry_facts", {"position": position, **row}


def _of_presence(timeline: Timeline, recording: Recording) -> Iterator[tuple[str, Row]]:
    history, settings = timeline.entries, settings_of(recording)
    for position, node in forgotten(timeline):
        yield "forgotten", {"position": position, "node": node}
    led = ever_led(history, settings, recording.table)
    if led is not None:
        yield from (("ever_led", {"node": node, "until_ns": led.until_ns}) for node in led.nodes)
    left = leaderless(history, settings, recording.table, timeline.place)
    if left is not None:
        span = {"since_ns": left.since_ns, "until_ns": left.until_ns}
        yield "leaderless", {"node": left.node, "leader_epoch": left.leader_epoch, **span}
    for time in below_min_isr(history, settings, recording.table):
        needs = int(history[-1].settings.high_watermark_needs_min_isr)
        span = {"since_ns": time.since_ns, "until_ns": time.until_ns}
        said = {"said_by": time.by, "of_epoch": time.of_epoch, "is_only": int(time.is_only)}
        yield "below_min_isr", {**span, **said, "needs_min_isr": needs}


def _entry(entry: Entry) -> Row:
    state, settings = entry.state, entry.settings
    return {
        "at_ns": entry.at_ns,
        "is_changed": int(entry.changed),
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "recovery": state.recovery,
        "isr_size": len(dict.fromkeys(state.isr)),
        "elr_size": len(dict.fromkeys(state.elr)),
        "min_isr": settings.effective_min_isr,
        "elr_on": int(settings.elr),
        "unclean_on": int(settings.unclean),
        "is_aggressive": int(settings.recovery == "aggressive"),
        "replicas": str(list(state.replicas)),
        "description": described(state),
    }


def described(state: State) -> str:
    """Return a state as the report shows it."""
    return f"ISR {list(state.isr)}, ELR {list(state.elr)}, leader {state.leader}"


def _fact(fact: Fact) -> Iterator[Row]:
    match fact:
        case ShutDownUncleanly(node=node):
            yield {"fact": "unclean_shutdown", "node": node}
        case JoinedIsr(node=node):
            yield {"fact": "joined_isr", "node": node}
        case Elected():
            ordered, empty = int(fact.ordered), int(fact.empty)
            yield {
                "fact": "elected",
                "node": fact.leader,
                "how": fact.how.value,
                "is_ordered": ordered,
                "is_empty": empty,
            }
        case _:
            pass  # not asked for


def _tables(recording: Recording) -> dict[str, pa.Table]:
    txns, metadata, faults, phases, requests = (
        recording.table(name) for name in ("txns", "metadata", "faults", "phases", "requests")
    )
    faults = with_cuts(faults, phases)
    return {
        "dumped": plain(recording.table("dumps").select(["topic", "partition", "node", "log_start_offset"])),
        "committed": pa.table({"value": pa.array(committed_values(txns), pa.int64())}),
        "txn_steps": txn_steps(txns),
        "txn_spans": plain(spans(txns)),
        "metadata_epochs": plain(metadata.select(["metadata_offset", "quorum_epoch", "at_ns"])),
        "faults": plain(
            faults.select(["index", "kind", "resolved_target", "planned_ns", "injected_ns", "healed_ns"])
        ).rename_columns(["fault_index", "kind", "resolved_target", "planned_ns", "injected_ns", "healed_ns"]),
        "waits": plain(recording.table("waits").select(list(TABLES["waits"].fields))),
        "registered": stale_epochs.registered(metadata),
        "control_requests": stale_epochs.control_requests(requests),
        "doubled_produces": lost_writes.doubled_produces(requests),
    }


def txn_steps(txns: pa.Table) -> pa.Table:
    """Return the view `txn_steps` of one run, without its name."""
    steps = flat(txns)
    for name, words in (("outcome", OUTCOMES), ("kind", KINDS)):
        spelt = pa.array(words).take(pc.cast(steps[name], pa.int32()))
        steps = steps.set_column(steps.schema.get_field_index(name), name, spelt)
    return steps.append_column("step", pa.array(range(steps.num_rows), pa.int64()))


def plain(rows: pa.Table) -> pa.Table:
    """Return rows with text in place of dictionaries; `group` and `index` are reserved words."""
    fields = [pa.field(field.name, plain_type(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return text for dictionaries of text, everything else as it is."""
    return pa.string() if pa.types.is_dictionary(kind) else kind


RENAMED: Final = {"group": "group_id"}


def view_schema(name: str) -> pa.Schema:
    """Return the schema of a table's view: text for dictionaries, no reserved word as a name."""
    return pa.schema([pa.field(RENAMED.get(f.name, f.name), plain_type(f.type)) for f in TABLES[name].arrow])
