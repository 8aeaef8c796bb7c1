"""What the nodes say, put into the recording while the run goes on and when it is over."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
import pyarrow as pa

from replog.metadata.records import RemoveTopicRecord, TopicRecord
from replog.types import METADATA_TOPIC
from tribunal.clusters.api import Cluster, DumpedLog, LogEntry, MetadataEntry, NodeEvent, RequestSeen
from tribunal.clusters.endings import put_down
from tribunal.clusters.orders import admin_row, named
from tribunal.results.recording import TABLES, WORDS
from tribunal.results.store import Recorder
from tribunal.results.topic_names import TopicNames
from tribunal.workloads.sent import SentRecords

COLLECT_MS: Final = 250
SEGMENT_MS: Final = 5_000
LOG_ROWS: Final = 100_000
CONFIG_OF_TOPIC: Final = 2  # Kafka's type of the resource
NODE_EVENTS: Final = frozenset(WORDS["nodes", "event"])


class SettingsOfTopics:
    """Which topic of a name a setting in the committed metadata is of: the newest, or the next one where that has been removed.

    With KRaft a topic's settings are written behind it, in ZooKeeper mode before it.
    """

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._now: dict[str, str] = {}  # recorded names, by name

    def named(self, entry: MetadataEntry) -> Mapping[str, object]:
        """Return what the next record of the metadata says, a topic that it sets something of by its recorded name."""
        if entry.topic is not None and entry.record_type == TopicRecord.__name__:
            self._now[entry.topic] = self._names.of(entry.topic, entry.topic_id)
        if entry.topic is not None and entry.record_type == RemoveTopicRecord.__name__:
            self._now[entry.topic] = self._names.behind(entry.topic, entry.topic_id)
        name = entry.body.get("resource_name")
        if isinstance(name, str) and entry.body.get("resource_type") == CONFIG_OF_TOPIC:
            return {**entry.body, "resource_name": self._now.get(name, name)}
        return entry.body


class Collector:
    """Moves events and metadata from the cluster into the recording, and closes segments now and then."""

    def __init__(self, cluster: Cluster, recorder: Recorder, names: TopicNames, *, in_segments: bool) -> None:
        """Collect from a cluster; `in_segments`: close segments while the run goes on, so that they survive this process."""
        self._cluster = cluster
        self._names = names
        self._settings = SettingsOfTopics(names)
        self._recorder = recorder
        self._in_segments = in_segments
        self._task: asyncio.Task[None] | None = None
        self._by_event: dict[str, Callable[[NodeEvent], None]] = {
            "high_watermark": self._watermark,
            "follows": self._log_end,
            "truncated": self._truncated,
            "probe": self._probe,
            **dict.fromkeys(NODE_EVENTS, self._node_event),
        }

    def start(self) -> None:
        """Collect from now on."""
        self._task = asyncio.create_task(self._collect_always(), name="collector")

    async def stop(self) -> None:
        """Stop; what is there by now is collected."""
        task, self._task = self._task, None
        if task is not None:
            await put_down(task)
        self.collect()

    async def _collect_always(self) -> None:
        loop = asyncio.get_running_loop()
        segment_due = loop.time() + SEGMENT_MS / 1000
        while True:
            self.collect()
            if self._in_segments and loop.time() >= segment_due:
                segment_due = loop.time() + SEGMENT_MS / 1000
                # A full disk: the rows are kept, and the run's end says it if it stays so.
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self._recorder.close_segment)
            await asyncio.sleep(COLLECT_MS / 1000)

    def collect(self) -> None:
        """Record what came since the last time."""
        for event in self._cluster.drain_events():
            record = self._by_event.get(event.name)
            if record is not None:
                record(event)
        for entry in self._cluster.drain_metadata():
            self._metadata(entry)
        for seen in self._cluster.drain_requests():
            self._request(seen)
        for ordered in self._cluster.drain_orders():
            self._recorder.row("admin", **admin_row(named(ordered, self._names)))

    def _node_event(self, event: NodeEvent) -> None:
        fields = event.fields
        self._recorder.row(
            "nodes",
            node=event.node,
            role=self._cluster.spec.role(event.node),
            event=event.name,
            broker_epoch=fields.get("broker_epoch"),
            previous_broker_epoch=fields.get("previous_broker_epoch"),
            incarnation=_text(fields.get("incarnation")),
            pid=fields.get("pid"),
            node_ns=event.node_ns,
            at_ns=event.at_ns,
            clock_offset_ns=self._cluster.clock_offset_ns(event.node),
        )

    def _watermark(self, event: NodeEvent) -> None:
        wanted = TABLES["watermarks"].fields
        columns = {name: _known(value) for name, value in event.fields.items() if name in wanted}
        columns["topic"] = self._topic_of(event)
        self._recorder.row("watermarks", observer=f"node-{event.node}", source="node", at_ns=event.at_ns, **columns)

    def _log_end(self, event: NodeEvent) -> None:
        """Record where a follower's log ends as it begins to follow."""
        self._log_end_at(event, event.fields.get("log_end_offset"))

    def _truncated(self, event: NodeEvent) -> None:
        """Record where a log ended before and behind a cut: two rows of one instant."""
        self._log_end_at(event, event.fields.get("from_offset"))
        self._log_end_at(event, event.fields.get("to_offset"))

    def _log_end_at(self, event: NodeEvent, offset: object) -> None:
        topic, partition, leader_epoch = (self._topic_of(event), *map(event.fields.get, ("partition", "leader_epoch")))
        if isinstance(topic, str) and topic != METADATA_TOPIC:
            self._recorder.row(
                "watermarks", observer=f"node-{event.node}", source="node", topic=topic, partition=partition,
                leader_epoch=_known(leader_epoch), log_end_offset=offset, at_ns=event.at_ns,
            )  # fmt: skip

    def _topic_of(self, event: NodeEvent) -> object:
        """Return the recorded name of the topic that an event is about."""
        topic, topic_id = event.fields.get("topic"), event.fields.get("topic_id")
        return self._names.of(topic, _text(topic_id)) if isinstance(topic, str) else topic

    def _probe(self, event: NodeEvent) -> None:
        name, count = event.fields.get("name"), event.fields.get("count")
        if isinstance(name, str) and isinstance(count, int):
            self._recorder.row("probes", name=name, node=event.node, at_ns=event.at_ns, count=count)

    def _request(self, seen: RequestSeen) -> None:
        columns = msgspec.structs.asdict(seen)
        columns["from"], columns["to"] = columns.pop("source"), columns.pop("target")
        self._recorder.row("requests", **columns)

    def _metadata(self, entry: MetadataEntry) -> None:
        topic = None if entry.topic is None else self._names.of(entry.topic, entry.topic_id)
        self._recorder.row(
            "metadata",
            metadata_offset=entry.metadata_offset,
            quorum_epoch=entry.quorum_epoch,
            at_ns=entry.at_ns,
            stamped_ns=entry.stamped_ns,
            record_type=entry.record_type,
            topic=topic,
            topic_id=entry.topic_id,
            partition=entry.partition,
            body=msgspec.json.encode(self._settings.named(entry)).decode(),
        )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _known(value: object) -> object:
    """Return null for the protocol's -1: a recording writes unknown as null."""
    return None if isinstance(value, int) and value < 0 else value


def record_final_logs(logs: Iterable[DumpedLog], recorder: Recorder, sent: SentRecords, names: TopicNames) -> int:
    """Write the replicas' final logs, compared with what was sent, and that they were read; return how many records there were.

    A log that does not say whose it is, of a name that several topics had, is nobody's: it counts as one that was not read.
    """
    schema = pa.schema(list(TABLES["logs"].fields.items()))
    count = 0
    entries = (entry for log in logs if _is_known(log, names) for entry in _dumped(log, recorder, names))
    while rows := list(islice(entries, LOG_ROWS)):
        count += len(rows)
        columns = dict(zip(LogEntry._fields, zip(*rows, strict=True), strict=True))
        columns["topic"] = tuple(names.of(row.topic, row.topic_id) for row in rows)
        columns["content"] = tuple(None if row.is_control else sent.difference(row.value, row) for row in rows)
        arrays = [_array(columns[name], schema.field(name).type) for name in schema.names]
        recorder.write("logs", pa.Table.from_arrays(arrays, schema=schema))
    return count


def _is_known(log: DumpedLog, names: TopicNames) -> bool:
    return log.topic_id is not None or not names.is_shared(log.topic)


def _dumped(log: DumpedLog, recorder: Recorder, names: TopicNames) -> Iterator[LogEntry]:
    """Yield a log's records, and write down that all of it was read."""
    count, end = 0, log.log_end_offset
    for entry in log.entries:
        count, end = count + 1, max(end, entry.log_offset + 1)
        yield entry
    recorder.row(
        "dumps", node=log.node, topic=names.of(log.topic, log.topic_id), partition=log.partition,
        log_start_offset=log.log_start_offset, log_end_offset=end, record_count=count,
    )  # fmt: skip


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)
