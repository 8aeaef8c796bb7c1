"""One work item, judged: a partition of a run, or what concerns the run as a whole (stages 1 to 3 of CONTRACT.md).

The same function runs in the process (`--engine inline`) and in Spark's tasks. It reads its own columns with
pyarrow, refuses what contradicts itself, runs the kernels, asks `guarantees` about losses, and returns few rows:
capped witnesses with counts, figures, damages.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import (
    ANOMALY,
    UNKNOWN,
    Context,
    Excuse,
    Found,
    Kind,
    Meaning,
    PartitionRows,
    Property,
    properties,
    sends_by_value,
)
from tribunal.checkers.graphs.findings import Contradiction
from tribunal.checkers.guarantees import OF_MEMORY, RULES, VIOLATIONS
from tribunal.checkers.judge import hot_partitions as ranges
from tribunal.checkers.judge.evidence import Evidence
from tribunal.checkers.judge.histories import judge_history
from tribunal.checkers.judge.steps import committed_values, of_partition
from tribunal.checkers.judge.timeline import CONFIG_OF_TOPIC, History, Judgement, Record, Timeline
from tribunal.results.history import is_history
from tribunal.results.recording import NO_PARTITION, TABLES, DamagedRecording
from tribunal.results.store import Recording, partition_order
from tribunal.results.validation import all_different, contradiction, value_sent_twice

WITNESSES: Final = 20
WITNESS_ORDER: Final = ("log_offset", "value", "at_ns", "other_offset", "node", "detail")
PART_BYTES: Final = 16 << 20
FACT_TABLES: Final = ("metadata", "nodes", "faults", "admin")
RUN_TABLES: Final = tuple(name for name, table in TABLES.items() if not table.by_partition)
PARTITION_TABLES: Final = tuple(name for name, table in TABLES.items() if table.by_partition)
FIGURES: Final = "figures"
SUMMARY: Final = "summary"
FOLDED: Final = "folded"
SIEVED: Final = "sieved"
DAMAGED: Final = "damaged"
FAILED: Final = "failed"

ROW: Final = pa.schema(
    [
        ("run_dir", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("property", pa.string()),
        ("kind", pa.string()),
        ("severity", pa.string()),
        ("rule", pa.string()),
        ("log_offset", pa.int64()),
        ("value", pa.int64()),
        ("acks", pa.int32()),
        ("at_ns", pa.int64()),
        ("node", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("other_offset", pa.int64()),
        ("count", pa.int64()),
        ("detail", pa.string()),
    ]
)
Row = dict[str, Any]


def work_items(run_dir: Path) -> list[tuple[str, str]]:
    """Return a run's work items: every partition that any table names, and the run as a whole."""
    if is_history(Path(run_dir)):
        return [(str(run_dir), NO_PARTITION)]
    folder = Path(run_dir) / "recording"
    names = {path.name.removeprefix("tp=") for table in TABLES for path in (folder / table).glob("tp=*")}
    ordered = sorted(names - {NO_PARTITION}, key=partition_order)
    parts = (part for name in ordered for part in _parts(Path(run_dir), name))
    return [(str(run_dir), name) for name in [NO_PARTITION, *parts]]


def _parts(run_dir: Path, name: str) -> list[str]:
    """Return a partition's work items: one, or many for a hot one."""
    if item_bytes(str(run_dir), name) < ranges.BIG_BYTES:
        return [name]
    try:
        cut = ranges.cut(Recording.open(run_dir, compare=False, only=name), name)
    except DamagedRecording:
        return [name]  # whoever judges it says what is wrong
    if not cut:
        return [name]
    return [_marked(name, _Part(rest=True)), *(_marked(name, _Part(sieve=own)) for own in cut)]


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to do with a part of a hot partition: sieve a range, judge some together, or judge what is small."""

    rest: bool = False
    sieve: ranges.Range | None = None
    judge: tuple[ranges.Range, ...] = ()
    missing: tuple[int, ...] = ()
    beyond: int = 0


def _marked(name: str, part: _Part) -> str:
    return f"{name}{ranges.MARK}{msgspec.json.encode(part).decode()}"


def item_bytes(run_dir: str, topic_partition: str) -> int:
    """Return how much a work item has to read, as far as files tell."""
    folder = Path(run_dir) / "recording"
    topic_partition, _, part = topic_partition.partition(ranges.MARK)
    if part:
        return PART_BYTES
    name = quote(topic_partition, safe="")
    return sum(path.stat().st_size for table in TABLES for path in (folder / table / f"tp={name}").glob("part-*"))


def judge_item(run_dir: str, topic_partition: str, *, without: frozenset[str] = frozenset()) -> list[Row]:
    """Judge one work item; every row names its run.

    without:  properties of whole runs that somebody else judges.
    """
    where = _place(run_dir, topic_partition)
    try:
        if is_history(Path(run_dir)):
            return [where | row for row in judge_history(Path(run_dir))]
        if topic_partition == NO_PARTITION:
            return [where | row for row in _judge_run(Path(run_dir), without)]
        name, _, part = topic_partition.partition(ranges.MARK)
        if part:
            return [where | row for row in _judge_part(Path(run_dir), name, msgspec.json.decode(part, type=_Part))]
        return [where | row for row in _judge_partition(Path(run_dir), topic_partition)]
    except DamagedRecording as damage:
        row = {"property": damage.table, "kind": DAMAGED, "severity": DAMAGED, "detail": str(damage), "count": 1}
        return [where | row]


def _place(run_dir: str, topic_partition: str) -> Row:
    name = topic_partition.partition(ranges.MARK)[0]
    topic, partition = (None, None) if name == NO_PARTITION else partition_order(name)
    return dict.fromkeys(ROW.names) | {"run_dir": run_dir, "topic": topic, "partition": partition}


def _judge_run(run_dir: Path, without: frozenset[str]) -> Iterator[Row]:
    recording = Recording.open(run_dir)
    tables = {name: _sound(recording, name, NO_PARTITION) for name in RUN_TABLES}
    _check_values_unique(recording)
    run = PartitionRows(tables)
    history = history_of(recording, tables)
    for name, chosen in properties().items():
        if name in without:
            continue
        if chosen.run_kernel is not None:
            yield from _attempt(name, partial(_judged_run, chosen, run, history, recording))
        if chosen.timeline_kernel is not None:
            yield from _attempt(name, partial(_judged_timelines, chosen, history))


def _check_values_unique(recording: Recording) -> None:
    parts = [ranges.groups("sends", paths) for paths in recording.files["sends"].values()]
    pieces = (rows["value"].to_numpy() for own in parts for rows in ranges.read_groups("sends", own, ["value"]))
    if all_different(pieces):
        return
    values = recording.table("sends", columns=["value"])["value"].to_numpy()
    position = value_sent_twice(values)
    if position is not None:
        raise DamagedRecording("sends", position, f"value {values[position]} was sent twice")


def _judge_partition(run_dir: Path, topic_partition: str) -> Iterator[Row]:
    recording = Recording.open(run_dir, compare=False, only=topic_partition)
    chosen = {name: one for name, one in properties().items() if one.kernel is not None}
    needed = dict.fromkeys(table for one in chosen.values() for table in one.tables)
    rows = PartitionRows({name: _sound(recording, name, topic_partition) for name in needed})
    judge = PartitionJudge(recording, topic_partition, rows)
    for name, one in chosen.items():
        yield from _attempt(name, partial(judge.judged, one))


def _judge_part(run_dir: Path, name: str, part: _Part) -> Iterator[Row]:
    recording = Recording.open(run_dir, compare=False, only=name)
    if part.sieve is not None:
        yield from _sieved(recording, name, part.sieve)
    elif part.rest:
        yield from _judge_rest(recording, name)
    else:
        yield from _judge_together(recording, name, part)


def _sieved(recording: Recording, name: str, own: ranges.Range) -> Iterator[Row]:
    tables = {
        table: ranges.rows_of(recording, name, table, [own], columns) for table, columns in ranges.COLUMNS.items()
    }
    for table, rows in tables.items():
        damage = contradiction(table, rows)
        if damage is not None:
            place = f" (tp={name}, offsets {own.first} to {own.end})"
            raise DamagedRecording(table, damage.row, damage.reason + place)
    tables["polls"] = recording.table("polls", name)
    can_lead = history_of(recording).timeline(*partition_order(name)).can_lead
    told = ranges.sieve(own, PartitionRows(tables), can_lead)
    detail = msgspec.json.encode(told).decode()
    yield {"property": SIEVED, "kind": SIEVED, "severity": FIGURES, "detail": detail, "count": 1}


def _judge_rest(recording: Recording, name: str) -> Iterator[Row]:
    """Judge what is small in a hot partition, and what looks at consumers if there are any besides the final read."""
    polls = _sound(recording, "polls", name)
    tail = pc.any(pc.equal(polls["phase"].cast(pa.string()), "tail")).as_py()
    paths = recording.files["sends"].get(name, [])
    in_transactions = any(
        rows["txn_id"].null_count < rows.num_rows
        for rows in ranges.read_groups("sends", ranges.groups("sends", paths), ["txn_id"])
    )
    big = bool(tail or in_transactions)
    in_pieces = {own: one for own, one in properties().items() if one.kernel_in_pieces is not None}
    chosen = {
        own: one
        for own, one in properties().items()
        if one.kernel is not None and own not in ranges.SIEVED and own not in in_pieces
        and (big or not {"sends", "reads", "logs"} & {*one.tables})
    }  # fmt: skip
    needed = dict.fromkeys(table for one in chosen.values() for table in one.tables)
    judge = PartitionJudge(
        recording, name, PartitionRows({table: _sound(recording, table, name) for table in needed})
    )  # fmt: skip
    for own, one in chosen.items():
        yield from _attempt(own, partial(judge.judged, one))
    for own, one in in_pieces.items():
        columns = ["acks", "outcome", "invoke_ns", "complete_ns"]
        groups = ranges.groups("sends", paths)
        pieces = (PartitionRows({"sends": rows}) for rows in ranges.read_groups("sends", groups, columns))
        yield from _attempt(own, partial(_of_pieces, judge, one, pieces))
    figures = msgspec.json.encode(ranges.without_offset(recording, name)).decode()
    yield {"property": "lost_writes", "kind": FIGURES, "severity": FIGURES, "detail": figures, "count": 1}


def _of_pieces(judge: "PartitionJudge", chosen: Property, pieces: Iterable[PartitionRows]) -> list[Row]:
    assert chosen.kernel_in_pieces is not None
    return judge.explained(chosen, chosen.kernel_in_pieces(pieces, judge.context))


def _judge_together(recording: Recording, name: str, part: _Part) -> Iterator[Row]:
    """Judge ranges that are not clean by the ordinary kernels."""
    tables = {
        table: ranges.rows_of(recording, name, table, part.judge, list(TABLES[table].fields))
        for table in ("reads", "logs")
    }
    values = np.unique(
        np.concatenate([tables["reads"]["value"].drop_null().to_numpy(), np.array(part.missing, np.int64)])
    )
    tables["sends"] = ranges.rows_of(recording, name, "sends", part.judge, list(TABLES["sends"].fields), values)
    tables |= {table: _sound(recording, table, name) for table in ("polls", "watermarks")}
    judge = PartitionJudge(recording, name, PartitionRows(tables))
    for own in sorted(ranges.SIEVED):
        yield from _attempt(own, partial(_of_ranges, judge, properties()[own], part))
    if part.beyond:
        told = {"sentence": f"{part.beyond} more ranges of offsets are not clean and were not judged record by record"}
        detail = msgspec.json.encode(told).decode()
        yield {"property": "lost_writes", "kind": "unjudged", "severity": "unjudged", "detail": detail, "count": 1}


def _of_ranges(judge: "PartitionJudge", chosen: Property, part: _Part) -> list[Row]:
    assert chosen.kernel is not None
    found = chosen.kernel(judge.rows, judge.context)
    anomalies = ranges.gaps_between(found.anomalies, part.judge)
    return [row for row in judge.explained(chosen, Found(anomalies)) if row["kind"] != FIGURES]


def second_look(rows: Sequence[Row]) -> tuple[list[Row], list[tuple[str, str]]]:
    """Fold what the sieve said: return the rows with its figures in its place, and what has to be judged now."""
    told: dict[tuple[str, str, int], list[ranges.Sieved]] = {}
    for row in rows:
        if row["kind"] == SIEVED:
            place = (row["run_dir"], row["topic"], row["partition"])
            told.setdefault(place, []).append(msgspec.json.decode(row["detail"], type=ranges.Sieved))
    kept = [row for row in rows if row["kind"] != SIEVED]
    items = []
    for (run_dir, topic, partition), sieved in told.items():
        sieved.sort(key=lambda own: own.range.first)
        name = f"{topic}-{partition}"
        figures = ranges.added(own.figures for own in sieved) | {"partitions with a final log": 1}
        figure = {"property": "lost_writes", "kind": FIGURES, "severity": FIGURES, "count": 1}
        kept.append(_place(run_dir, name) | figure | {"detail": msgspec.json.encode(figures).decode()})
        suspects = ranges.fold(sieved)
        if suspects:
            found = {value for own in sieved for value in own.found_open}
            missing = {value for own in sieved for value in own.open_acknowledged} - found
            part = _Part(
                judge=tuple(suspects[: ranges.TOGETHER]),
                missing=tuple(sorted(missing)),
                beyond=max(0, len(suspects) - ranges.TOGETHER),
            )
            items.append((run_dir, _marked(name, part)))
    return kept, items


def _judged_run(chosen: Property, run: PartitionRows, history: History, recording: Recording) -> list[Row]:
    assert chosen.run_kernel is not None
    found = chosen.run_kernel(run, history)
    judges: dict[str, PartitionJudge] = {}
    judgements = dict(found.judgements)
    for row, one in found.contradictions.items():
        if one.key not in judges:
            tables = {name: recording.table(name, one.key) for name in PARTITION_TABLES}
            judges[one.key] = PartitionJudge(recording, one.key, PartitionRows(tables))
        judgements[row] = judges[one.key].of_contradiction(one)
    return list(_rows(chosen, found, judgements))


def _judged_timelines(chosen: Property, history: History) -> list[Row]:
    assert chosen.timeline_kernel is not None
    rows = []
    for topic, partition in history.partitions():
        found = chosen.timeline_kernel(history.timeline(topic, partition))
        rows += [row | {"topic": topic, "partition": partition} for row in _rows(chosen, found, {})]
    return rows


def _attempt(name: str, work: Callable[[], list[Row]]) -> list[Row]:
    """Run one property; a checker that fails spoils its own verdict, not its neighbours'."""
    try:
        return [{"property": name} | row for row in work()]
    except DamagedRecording:
        raise
    except Exception as error:  # noqa: BLE001 - a task's top: the row says what happened, the run becomes an ERROR
        text = f"{type(error).__name__}: {error}"
        return [{"property": name, "kind": FAILED, "severity": FAILED, "detail": text, "count": 1}]


def _sound(recording: Recording, name: str, topic_partition: str) -> pa.Table:
    rows = recording.table(name, topic_partition, list(TABLES[name].fields))
    damage = contradiction(name, rows)
    if damage is not None:
        place = "" if topic_partition == NO_PARTITION else f" (tp={topic_partition})"
        raise DamagedRecording(name, damage.row, damage.reason + place)
    return rows


def history_of(recording: Recording, tables: Mapping[str, pa.Table] | None = None) -> History:
    """Return what a run's timelines are made of."""
    tables = tables or {name: recording.table(name) for name in FACT_TABLES}
    settings = None
    if recording.manifest is not None and isinstance(recording.manifest.get("settings"), dict):
        settings = {"mode": recording.manifest.get("mode", "kraft"), **recording.manifest["settings"]}
    return History(tables["metadata"], tables["nodes"], tables["faults"], tables["admin"], settings)


class PartitionJudge:
    """Tells violations from permitted losses in one partition."""

    def __init__(self, recording: Recording, topic_partition: str, rows: PartitionRows) -> None:
        topic, partition = partition_order(topic_partition)
        self._name = (topic, partition)
        self._history = history_of(recording)
        self.timeline: Timeline = self._history.timeline(topic, partition)
        self.rows = rows
        self._log_start_may_move = _log_start_may_move(recording, topic)
        self._is_compacted = _is_compacted(recording, topic)
        self._evidence: Evidence | None = None
        of_run = cache(recording.table)
        in_transactions = bool((rows.columns("sends")["txn_id"] >= 0).any())
        self.context = Context(
            complete=recording.complete,
            can_lead=self.timeline.can_lead,
            committed=committed_values(of_run("txns")) if in_transactions else None,
            leaders=self.timeline.leaders,
            settings=(recording.manifest or {}).get("settings") or {},
            of_run=of_run,
            steps=cache(lambda: of_partition(of_run("txns"), topic, partition)),
        )

        # Where several excuse an anomaly the last one's words count.
        self._excuses = {
            Excuse.END_LOST: self._of_ends,
            Excuse.POSITIONS_LOST: self._of_positions,
            Excuse.TAIL_LOST: self._of_rewinds,
            Excuse.MEMORY_LOST: self._of_memory,
        }

    def judged(self, chosen: Property) -> list[Row]:
        """Run a property's kernel; return capped witnesses with severity and rule, and the figures."""
        assert chosen.kernel is not None
        return self.explained(chosen, chosen.kernel(self.rows, self.context))

    def explained(self, chosen: Property, found: Found) -> list[Row]:
        """Tell violations from permitted losses among what a property found."""
        if self._is_compacted:
            kept = [
                Excuse.COMPACTED not in chosen.kinds[kind].excused_by for kind in found.anomalies["kind"].to_pylist()
            ]
            found = msgspec.structs.replace(found, anomalies=found.anomalies.filter(pa.array(kept, pa.bool_())))
        return list(_rows(chosen, found, self._judgements(chosen, found)))

    def _judgements(self, chosen: Property, found: Found) -> dict[int, Judgement]:
        kinds = [chosen.kinds[kind] for kind in found.anomalies["kind"].to_pylist()]
        promised = [row for row, kind in enumerate(kinds) if kind.meaning is Meaning.PROMISED]
        anomalies = found.anomalies.take(pa.array(promised, pa.int64())).to_pylist()
        judgements = {row: self._judge(anomaly) for row, anomaly in zip(promised, anomalies, strict=True)}
        for excuse, judge in self._excuses.items():
            if rows := [row for row, kind in enumerate(kinds) if excuse in kind.excused_by]:
                judgements |= judge(found, rows)
        return judgements

    def _of_ends(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        """Excuse what is out of sight or never ends, where its transaction's end was permitted to be lost."""
        sends, words = self.rows.columns("sends"), self.rows.words("sends", "txn_id")
        values = found.anomalies["value"].take(pa.array(chosen)).fill_null(UNKNOWN).to_numpy()
        places = self.rows.derived(sends_by_value).rows(values)
        judgements = {}
        for row, value, send in zip(chosen, values.tolist(), places.tolist(), strict=True):
            name, since_ns = None, 0  # of an anomaly that is about no record any transaction may be to blame
            if value != UNKNOWN:
                if send == UNKNOWN or sends["txn_id"][send] == UNKNOWN:
                    continue
                name, since_ns = words[sends["txn_id"][send]], int(sends["invoke_ns"][send])
            if (judgement := self._history.ends_lost(name, [self._name], since_ns)) is not None:
                judgements[row] = judgement
        return judgements

    def _of_positions(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        """Excuse what groups went through after their positions were permitted to be lost."""
        lost = self._history.positions_lost()
        if lost is None or lost.at_ns is None:
            return {}
        at_ns = found.anomalies["at_ns"].fill_null(UNKNOWN).to_pylist()
        return {row: lost for row in chosen if at_ns[row] >= lost.at_ns}

    def _of_rewinds(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        return self._not_ended_before(self.timeline.ends_lost(0, Excuse.TAIL_LOST), found, chosen)

    def _of_memory(self, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        return self._not_ended_before(self._history.memory_lost(), found, chosen)

    def _not_ended_before(self, lost: Judgement | None, found: Found, chosen: list[int]) -> dict[int, Judgement]:
        """Excuse records that were still under way, or not sent yet, when a leader was elected that was permitted to know less."""
        if lost is None or lost.at_ns is None:
            return {}
        values = found.anomalies["value"].take(pa.array(chosen)).to_numpy()
        sends = self.rows.derived(sends_by_value).rows(values)
        ended = np.append(self.rows.columns("sends")["complete_ns"], UNKNOWN)[sends]
        return {
            row: lost for row, end in zip(chosen, ended.tolist(), strict=True) if end == UNKNOWN or end >= lost.at_ns
        }

    def _judge(self, anomaly: Row) -> Judgement:
        if self._evidence is None:
            self._evidence = Evidence(
                self.rows,
                can_lead=self.timeline.can_lead,
                log_start_may_move=self._log_start_may_move,
                is_compacted=self._is_compacted,
            )
        judgements = [self.timeline.judge(record) for record in self._records(self._evidence, anomaly)]
        # A step back over several stretches needs an excuse for each of them.
        return next((judgement for judgement in judgements if judgement.promise.must_survive), judgements[0])

    def of_contradiction(self, found: Contradiction) -> Judgement:
        """Say whether all values at an offset but one were permitted to be lost: then the log went on from there anew."""
        missing = dict.fromkeys(ANOMALY.names) | {"kind": "offset_conflict", "log_offset": found.log_offset}
        judgements = [self._judge(missing | {"value": value}) for value in found.values]
        kept = [judgement for judgement in judgements if judgement.promise.must_survive]
        return kept[0] if len(kept) > 1 else next(one for one in judgements if one not in kept)

    def _records(self, evidence: Evidence, anomaly: Row) -> Sequence[Record]:
        if anomaly["other_offset"] is not None:
            return evidence.records_between(anomaly, self.timeline)
        return [evidence.record(anomaly)]


def _log_start_may_move(recording: Recording, topic: str) -> bool:
    """Whether anything was ordered that deletes old records: nothing else makes them gone by order."""
    admin = recording.table("admin").to_pylist()
    if any(row["api"] == "delete_records" and _names(row["arguments"], topic) for row in admin):
        return True
    if any("retention" in name for name, _ in _configured(recording, topic)):
        return True
    settings = (recording.manifest or {}).get("settings") or {}
    texts = [
        *map(str, settings),
        *(row["arguments"] or "" for row in admin if "config" in row["api"] or "create" in row["api"]),
    ]
    return any("retention" in text or "cleanup.policy" in text for text in texts)


def _is_compacted(recording: Recording, topic: str) -> bool:
    """Whether older records of a key may go: by the nodes' settings, by what was ordered, or by the committed metadata."""
    settings = (recording.manifest or {}).get("settings") or {}
    if any(name.endswith("cleanup.policy") and "compact" in str(value) for name, value in settings.items()):
        return True
    rows = recording.table("admin", columns=["api", "arguments"]).to_pylist()
    ordered = [row["arguments"] or "" for row in rows if "config" in row["api"] or "create" in row["api"]]
    if any("cleanup.policy" in text and "compact" in text and _names(text, topic) for text in ordered):
        return True
    return any(name == "cleanup.policy" and "compact" in value for name, value in _configured(recording, topic))


def _configured(recording: Recording, topic: str) -> list[tuple[str, str]]:
    """Return the settings (name, value) that the committed metadata gave the topic at any time."""
    metadata = recording.table("metadata", columns=["record_type", "body"])
    changes = metadata.filter(pc.equal(metadata["record_type"].cast(pa.string()), "ConfigRecord"))
    bodies = [msgspec.json.decode(body) for body in changes["body"].to_pylist()]
    own = [body for body in bodies if body.get("resource_type") == CONFIG_OF_TOPIC and body["resource_name"] == topic]
    return [(body["name"], str(body.get("value"))) for body in own]


def _names(text: str | None, topic: str) -> bool:
    """Whether a text names the topic, and not another one of which its name is a part; `topic-0` does."""
    return re.search(rf"(?<![\w.-]){re.escape(topic)}(?![\w.]|-\D)", text or "") is not None


def _rows(chosen: Property, found: Found, judgements: Mapping[int, Judgement]) -> Iterator[Row]:
    """Group anomalies that are alike, keep the lowest offsets as witnesses; counts of a group add up to all of it."""
    groups: dict[tuple[str, str, str, int | None], list[int]] = {}
    kinds, acks = found.anomalies["kind"].to_pylist(), found.anomalies["acks"].to_pylist()
    for row, kind in enumerate(kinds):
        severity, rule = _severity(chosen.kinds[kind], judgements.get(row))
        groups.setdefault((kind, severity, rule, acks[row]), []).append(row)
    for (_, severity, rule, _), members in sorted(groups.items(), key=lambda item: (item[0][:3], item[0][3] or 0)):
        witnesses = _lowest(found.anomalies, members)
        for place, row in enumerate(witnesses):
            count = 1 if place else len(members) - len(witnesses) + 1
            anomaly = found.anomalies.slice(row, 1).to_pylist()[0]
            yield _row(chosen, anomaly, judgements.get(row)) | {
                "severity": severity,
                "rule": rule,
                "count": count,
            }
    yield from _self_evident(judgements)
    figures = msgspec.json.encode(found.figures).decode()
    yield {"kind": FIGURES, "severity": FIGURES, "detail": figures, "count": 1}
    if found.summary is not None:
        summary = msgspec.json.encode(found.summary).decode()
        yield {"kind": SUMMARY, "severity": FIGURES, "detail": summary, "count": 1}


def folded(rows: Sequence[Row]) -> list[Row]:
    """Stage 4: put the partitions' summaries together, property by property; other rows stay as they are.

    rows:  findings in order; those of one run's partition stand in the order of partitions.
    """
    summaries: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["kind"] == SUMMARY:
            place = {"topic": row["topic"], "partition": row["partition"]}
            summaries.setdefault((row["run_dir"], row["property"]), []).append(
                msgspec.json.decode(row["detail"]) | place
            )
    kept = [row for row in rows if row["kind"] != SUMMARY]
    for (run_dir, name), parts in summaries.items():
        place = _place(run_dir, NO_PARTITION)
        kept += [place | row for row in _attempt(name, partial(_folded, name, Path(run_dir), parts))]
    return kept


def _folded(name: str, run_dir: Path, summaries: Sequence[dict[str, Any]]) -> list[Row]:
    fold = properties()[name].fold
    assert fold is not None
    told = fold(summaries, Context(complete=True))
    figures = msgspec.json.encode(told.figures).decode()
    rows = judged_of_run(name, run_dir, Found(told.anomalies))
    if told.figures:
        rows.append({"kind": FOLDED, "severity": FIGURES, "detail": figures, "count": 1})
    return rows


def judged_of_run(name: str, run_dir: Path, found: Found) -> list[Row]:
    """Return rows of a property's anomalies that concern a run as a whole, or its committed metadata."""
    chosen = properties()[name]
    judgements = _of_transactions(chosen, run_dir, found.anomalies)
    return [row for row in _rows(chosen, found, judgements) if row["kind"] != FIGURES]


def _of_transactions(chosen: Property, run_dir: Path, anomalies: pa.Table) -> dict[int, Judgement]:
    """Excuse what is wrong with transactions as wholes, where ends of those were permitted to be lost.

    An anomaly's `at_ns` is the begin of its transaction; without one it is about all of them.
    """
    kinds = enumerate(anomalies["kind"].to_pylist())
    ended = [row for row, kind in kinds if Excuse.END_LOST in chosen.kinds[kind].excused_by]
    if not ended:
        return {}
    recording = Recording.open(run_dir, compare=False)
    history, txns = history_of(recording), recording.table("txns").to_pylist()
    judgements = {}
    for row in ended:
        begin_ns = anomalies["at_ns"][row].as_py()
        own = [txn for txn in txns if begin_ns is None or txn["begin_ns"] == begin_ns]
        sends = [step for txn in own for step in txn["operations"] or () if step["kind"] == "send"]
        places = dict.fromkeys((step["topic"], step["partition"]) for step in sends)
        name = own[0]["txn_id"] if begin_ns is not None and len(own) == 1 else None
        if (judgement := history.ends_lost(name, places, begin_ns or 0)) is not None:
            judgements[row] = judgement
    return judgements


def _lowest(anomalies: pa.Table, members: list[int]) -> list[int]:
    """Choose witnesses, the same in whatever order an engine found them: by offset, then by whatever tells them apart."""
    own = anomalies.select(WITNESS_ORDER).take(pa.array(members))
    known = own.set_column(0, "log_offset", own["log_offset"].fill_null(UNKNOWN))
    order = pc.select_k_unstable(known, WITNESSES, [(name, "ascending") for name in WITNESS_ORDER])
    return [members[place] for place in order.to_pylist()]


def _severity(kind: Kind, judgement: Judgement | None) -> tuple[str, str]:
    if judgement is not None and judgement.promise.rule is not None:
        return "permitted", judgement.promise.rule
    if kind.meaning is not Meaning.PROMISED:
        return kind.meaning.value, ""
    return "violation", ""


def _row(chosen: Property, anomaly: Row, judgement: Judgement | None) -> Row:
    detail: dict[str, Any] = {"sentence": chosen.kinds[anomaly["kind"]].sentence}
    if anomaly["detail"]:
        detail["detail"] = anomaly["detail"]
    elif chosen.detail is not None:
        detail["detail"] = chosen.detail(anomaly)
    if judgement is not None:
        detail |= _explained(judgement)
    kept = {name: anomaly[name] for name in ("kind", "log_offset", "value", "acks", "at_ns", "node", "leader_epoch")}
    return kept | {"other_offset": anomaly["other_offset"], "detail": msgspec.json.encode(detail).decode()}


def _explained(judgement: Judgement) -> dict[str, Any]:
    rule = judgement.promise.rule
    explained: dict[str, Any] = {"promise": (RULES | OF_MEMORY)[rule] if rule is not None else _must_survive(judgement)}
    if judgement.election is not None:
        explained["election"] = {
            "leader": judgement.election.leader,
            "how": judgement.election.how.value,
            "leader_epoch": judgement.leader_epoch,
            "at_ns": judgement.at_ns,
        }
    return explained


def _must_survive(judgement: Judgement) -> str:
    if judgement.at_ns is None:
        return "must survive: nothing recorded of this partition's elections excuses it"
    if judgement.election is None:
        return "must survive: no leader was elected meanwhile, and no disk provably lost it"
    election = judgement.election
    return f"must survive: no rule permits its loss at the {election.how.value} election of {election.leader}"


def _self_evident(judgements: Mapping[int, Judgement]) -> Iterator[Row]:
    """Elections that are violations by themselves, seen while judging records."""
    seen: dict[tuple[str, int], Judgement] = {}
    for judgement in judgements.values():
        for violation in judgement.promise.violations:
            seen.setdefault((violation, judgement.leader_epoch), judgement)
    for (violation, _), judgement in seen.items():
        leader = judgement.election.leader if judgement.election is not None else None
        detail = {"sentence": VIOLATIONS[violation]} | _explained(judgement)
        yield {
            "property": "guarantees",
            "kind": violation,
            "severity": "violation",
            "rule": "",
            "node": leader,
            "leader_epoch": judgement.leader_epoch,
            "at_ns": judgement.at_ns,
            "count": 1,
            "detail": msgspec.json.encode(detail).decode(),
        }
