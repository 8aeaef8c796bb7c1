"""From a run's folder to what its report shows; no geometry, no markup."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.metadata import State
from results.recording import DamagedRecording
from results.store import Recording, partition_order
from results.verdict import RunVerdict, load

MOST_PARTITIONS = 8
MOST_DRAWN_IN_FULL = 3

Row = dict[str, Any]


class Change(msgspec.Struct, frozen=True):
    """A partition's state from a moment on."""

    at_ns: int
    state: State


class Series(msgspec.Struct, frozen=True):
    """One observer's high watermark over time; `back` are the positions where it went back."""

    name: str
    at_ns: list[int]
    offsets: list[int]
    back: list[int]


class Rates(msgspec.Struct, frozen=True):
    """Completed sends per bin of time, by outcome."""

    bin_ns: int
    counts: dict[str, list[int]]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """All that the report needs."""

    run_dir: Path
    verdict: RunVerdict
    manifest: Mapping[str, Any]
    damage: str | None
    end_ns: int = 1
    brokers: list[int] = msgspec.field(default_factory=list)
    nodes: list[int] = msgspec.field(default_factory=list)
    phases: list[Row] = msgspec.field(default_factory=list)
    faults: list[Row] = msgspec.field(default_factory=list)
    partitions: dict[str, list[Change]] = msgspec.field(default_factory=dict)
    in_full: list[str] = msgspec.field(default_factory=list)
    watermarks: dict[str, list[Series]] = msgspec.field(default_factory=dict)
    rates: Rates | None = None
    partition_count: int = 0
    files: list[Row] = msgspec.field(default_factory=list)


def page(run_dir: Path) -> Page:
    """Read a judged run; one whose recording is damaged still has its verdict to show."""
    verdict = load(run_dir / "verdict.json")
    try:
        recording = Recording.open(run_dir, compare=False)
        return _whole(run_dir, verdict, recording)
    except DamagedRecording as damage:
        return Page(run_dir=run_dir, verdict=verdict, manifest={}, damage=str(damage))


def _whole(run_dir: Path, verdict: RunVerdict, recording: Recording) -> Page:
    names = recording.partitions("sends", "reads", "logs")
    shown = _shown(names, verdict)
    partitions = {name: list(_changes(recording, name)) for name in shown}
    nodes = recording.table("nodes", columns=["node", "role"])
    phases = recording.table("phases").to_pylist()
    rates, last_ns = _rates(recording)
    return Page(
        run_dir=run_dir,
        verdict=verdict,
        manifest=recording.manifest or {},
        damage=None,
        end_ns=max([1, last_ns, *(row["end_ns"] or 0 for row in phases)]),
        brokers=_brokers(nodes, partitions),
        nodes=sorted(set(nodes["node"].to_pylist())),
        phases=phases,
        faults=sorted(recording.table("faults").to_pylist(), key=lambda row: row["index"]),
        partitions=partitions,
        in_full=shown[:MOST_DRAWN_IN_FULL],
        watermarks={name: list(_watermarks(recording, name)) for name in shown[:MOST_DRAWN_IN_FULL]},
        rates=rates,
        partition_count=len(names),
        files=_files(recording),
    )


def _shown(names: list[str], verdict: RunVerdict) -> list[str]:
    """The partitions with findings first, the gravest before the others."""
    grave = {"violation": 0, "permitted": 1, "note": 2}
    rank: dict[str, int] = {}
    for finding in verdict.findings:
        name = f"{finding.topic}-{finding.partition}"
        rank[name] = min(rank.get(name, 9), grave.get(finding.severity, 8))
    return sorted(names, key=lambda name: (rank.get(name, 9), partition_order(name)))[:MOST_PARTITIONS]


def _brokers(nodes: pa.Table, partitions: Mapping[str, list[Change]]) -> list[int]:
    seen = {row["node"] for row in nodes.to_pylist() if row["role"] != "controller"}
    for changes in partitions.values():
        for change in changes:
            seen.update(change.state.replicas)
    return sorted(seen)


def _changes(recording: Recording, name: str) -> Iterator[Change]:
    topic, partition = partition_order(name)
    metadata = recording.table("metadata")
    own = pc.and_(pc.equal(metadata["topic"].cast(pa.string()), topic), pc.equal(metadata["partition"], partition))
    state: State | None = None
    for row in metadata.filter(own).sort_by("metadata_offset").to_pylist():
        body = msgspec.json.decode(row["body"], type=dict[str, Any])
        if row["record_type"] == "PartitionRecord":
            state = State.created_by(body)
        elif row["record_type"] == "PartitionChangeRecord" and state is not None:
            state = state.changed_by(body)
        if state is not None:
            yield Change(row["at_ns"] or 0, state)


def _watermarks(recording: Recording, name: str) -> Iterator[Series]:
    rows = recording.table("watermarks", name, ["observer", "source", "leader_epoch", "high_watermark", "at_ns"])
    known = rows.filter(pc.is_valid(rows["high_watermark"])).sort_by("at_ns")
    observers = np.asarray(known["observer"].cast(pa.string()).to_pylist(), dtype=object)
    sources = np.asarray(known["source"].cast(pa.string()).to_pylist(), dtype=object)
    for observer in sorted(set(observers[sources != "fetch"].tolist())):
        chosen = np.flatnonzero((observers == observer) & (sources != "fetch"))
        at_ns = known["at_ns"].to_numpy()[chosen]
        offsets = known["high_watermark"].to_numpy()[chosen]
        epochs = pc.fill_null(known["leader_epoch"], -1).to_numpy()[chosen]
        same = (epochs[1:] == epochs[:-1]) | (sources[chosen][1:] == "list_offsets")
        back = 1 + np.flatnonzero((offsets[1:] < offsets[:-1]) & same)
        yield Series(observer, at_ns.tolist(), offsets.tolist(), back.tolist())


def _rates(recording: Recording, bins: int = 200) -> tuple[Rates, int]:
    sends = recording.table("sends", columns=["complete_ns", "outcome"])
    done = pc.fill_null(sends["complete_ns"], -1).to_numpy()
    outcome = np.asarray(sends["outcome"].cast(pa.string()).to_pylist(), dtype=object)
    end_ns = int(done.max(initial=0)) + 1
    bin_ns = max(1, -(-end_ns // bins))
    counts = {
        word: np.bincount(done[(outcome == word) & (done >= 0)] // bin_ns, minlength=bins)[:bins].tolist()
        for word in ("ok", "sent", "fail", "info")
    }
    return Rates(bin_ns, counts), end_ns


def _files(recording: Recording) -> list[Row]:
    tables = (recording.manifest or {}).get("tables", {})
    return [{"name": f"recording/{name}", **facts} for name, facts in sorted(tables.items())]
