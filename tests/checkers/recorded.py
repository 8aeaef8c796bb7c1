"""Builds small recordings for checker tests: a cluster's metadata, some sends, what was read in the end."""

import json
from pathlib import Path
from typing import Any

from tribunal.results.manifest import Made
from tribunal.results.store import Recorder
from tribunal.results.values import value_of

SETTINGS = {"min.insync.replicas": 2, "unclean.leader.election.enable": False}
MS = 1_000_000


class Run:
    """A run being recorded; one partition t-0 of replicas 1, 2, 3 led by 1 unless the test says otherwise."""

    def __init__(self, run_dir: Path, **settings: Any) -> None:
        self.recorder = Recorder(run_dir, run_dir.name)
        self.run_dir = run_dir
        self.settings = SETTINGS | settings
        self.metadata_offset = 0
        self.metadata_epoch = 1
        self.polls = 0
        for node in (1, 2, 3):
            self.registered(node, at=0, previous=-1, fenced=False)
        self.metadata("PartitionRecord", 0, partition_id=0, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leader_epoch=0)

    def metadata(self, record_type: str, at: int, *, topic: str = "t", stamped: int | None = None, **body: Any) -> None:
        named: dict[str, Any] = {"topic": topic, "partition": 0} if record_type.startswith("Partition") else {}
        if record_type == "RemoveTopicRecord":
            named = {"topic": topic}
        self.recorder.row(
            "metadata",
            metadata_offset=self.metadata_offset,
            quorum_epoch=self.metadata_epoch,
            at_ns=at * MS,
            stamped_ns=None if stamped is None else stamped * MS,
            record_type=record_type,
            body=json.dumps(body),
            **named,
        )
        self.metadata_offset += 1

    def change(self, at: int, **body: Any) -> None:
        self.metadata("PartitionChangeRecord", at, partition_id=0, **body)

    def registered(
        self, node: int, at: int, previous: int | None, *, fenced: bool = True, incarnation: str | None = None
    ) -> None:
        epoch = self.metadata_offset
        self.recorder.row(
            "nodes",
            node=node,
            role="broker",
            event="registered",
            broker_epoch=epoch,
            previous_broker_epoch=previous,
            incarnation=incarnation,
            at_ns=at * MS,
        )
        self.metadata("RegisterBrokerRecord", at, broker_id=node, broker_epoch=epoch, fenced=fenced)

    def node(self, node: int, event: str, at: int) -> None:
        self.recorder.row("nodes", node=node, role="broker", event=event, at_ns=at * MS)

    def send(self, sequence: int, at: int, *, acks: int = -1, offset: int | None = None, **changes: Any) -> int:
        value = value_of(7, sequence)
        row = {
            "process": 7,
            "worker_class": "idempotent",
            "topic": "t",
            "partition": 0,
            "value": value,
            "acks": acks,
            "invoke_ns": at * MS,
            "complete_ns": at * MS + MS,
            "outcome": "ok" if acks else "sent",
            "log_offset": sequence if offset is None and acks else offset,
        }
        self.recorder.row("sends", **(row | changes))
        return value

    def read(
        self,
        records: dict[int, int | None],
        at: int,
        *,
        phase: str = "tail",
        process: int = 90,
        epoch: int | None = None,
        isolation: str = "read_uncommitted",
        **more: Any,
    ) -> None:
        position = min(records, default=0) if phase == "tail" else 0
        end = max(records, default=-1) + 1
        self.poll(process, phase, position, len(records), at, high_watermark=end, isolation=isolation, **more)
        for offset, value in records.items():
            self.recorder.row(
                "reads",
                process=process,
                poll_index=self.polls - 1,
                topic="t",
                partition=0,
                log_offset=offset,
                value=value,
                leader_epoch=epoch,
                phase=phase,
            )

    def final_read(
        self,
        records: dict[int, int | None],
        at: int = 900,
        *,
        epoch: int | None = None,
        isolation: str = "read_uncommitted",
    ) -> None:
        self.read(records, at, phase="final", process=99, epoch=epoch, isolation=isolation)
        end = max(records, default=-1) + 1
        self.poll(99, "final", end, 0, at + 1, high_watermark=end, isolation=isolation)

    def poll(
        self,
        process: int,
        phase: str,
        position: int,
        count: int,
        at: int,
        *,
        high_watermark: int,
        isolation: str = "read_uncommitted",
        log_start_offset: int = 0,
        lasts: int = 0,
        **more: Any,
    ) -> None:
        self.recorder.row(
            "polls",
            process=process,
            poll_index=self.polls,
            topic="t",
            partition=0,
            isolation=isolation,
            phase=phase,
            position=position,
            invoke_ns=at * MS,
            complete_ns=(at + lasts) * MS,
            outcome="ok",
            record_count=count,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            **more,
        )
        self.polls += 1

    def watermark(
        self,
        high_watermark: int | None,
        at: int,
        *,
        epoch: int | None,
        observer: str = "node-1",
        source: str = "node",
        topic: str = "t",
        **more: Any,
    ) -> None:
        self.recorder.row(
            "watermarks",
            observer=observer,
            source=source,
            topic=topic,
            partition=0,
            leader_epoch=epoch,
            high_watermark=high_watermark,
            at_ns=at * MS,
            **more,
        )

    def fault(
        self,
        kind: str,
        at: int,
        *,
        node: int,
        lost_from: int | None = None,
        lost_end: int | None = None,
        unseen_end: int | None = None,
        took_effect: bool = True,
        healed: bool = True,
        undone: bool | None = None,
        target: str | None = None,
        index: int = 0,
        lasts: int | None = 10,
        proof: str = "{}",
    ) -> None:
        place = {"node": node, "topic": "t", "partition": 0, "unseen_end_offset": unseen_end}
        lost = [] if lost_from is None else [place | {"from_offset": lost_from, "end_offset": lost_end}]
        self.recorder.row(
            "faults",
            index=index,
            kind=kind,
            planned_target="leader",
            resolved_target=target or f"broker {node}",
            planned_ns=at * MS,
            injected_ns=at * MS,
            healed_ns=None if lasts is None else (at + lasts) * MS,  # None: nobody healed it
            proof=proof,
            took_effect=took_effect,
            heal_proof="{}",
            healed=healed,
            undone=undone,
            losses=lost,
        )

    def phase(self, name: str, start: int, end: int) -> None:
        self.recorder.row("phases", name=name, start_ns=start * MS, end_ns=end * MS)

    def log(self, node: int, records: dict[int, int], *, epoch: int = 0, turn: int | None = None) -> None:
        """Record a replica's final log; `turn`: the first offset of the next leader epoch."""
        for offset, value in records.items():
            self.recorder.row(
                "logs",
                node=node,
                topic="t",
                partition=0,
                log_offset=offset,
                leader_epoch=epoch + (turn is not None and offset >= turn),
                value=value,
                is_control=False,
            )

    def dump(self, node: int, *, start: int = 0, end: int = 0, count: int = 0) -> None:
        """Record that a replica's final log was read."""
        spans = {"log_start_offset": start, "log_end_offset": end, "record_count": count}
        self.recorder.row("dumps", node=node, topic="t", partition=0, **spans)

    def finish(self, **manifest: Any) -> Path:
        self.recorder.finish(Made(**{"seed": 1, "settings": self.settings, "mode": "kraft"} | manifest))
        return self.run_dir

    def cut_off(self) -> Path:
        self.recorder.close_segment()
        return self.run_dir
