"""What stands beside the partitions in a timeline: transactions, groups, broker epochs, and the quorum that the metadata came from.

A lane is a transactional id, a partition in which a group commits, a broker, or the controllers. What follows so closely that nobody could
see the gap is one stretch, and says how many it is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tribunal.results.metadata import registrations
from tribunal.results.store import Recording

MOST_LANES: Final = 6
SEEN: Final = (
    600  # a stretch of the run is told apart from its neighbour if it is longer than such a part of what is drawn
)


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went on in a lane from one moment to another; `kind` is how it is drawn, `count` how many it stands for."""

    lane: str
    start_ns: int
    end_ns: int
    kind: str
    label: str
    words: str
    count: int = 1


class Lanes(msgspec.Struct, frozen=True):
    """The stretches of some lanes; `left_out`: how many further lanes are not shown."""

    stretches: list[Stretch]
    left_out: int


class Participants(msgspec.Struct, frozen=True, kw_only=True):
    """Each None where the run had none of it, of the quorum only one epoch, or of every broker only one epoch."""

    transactions: Lanes | None = None
    groups: Lanes | None = None
    quorum: Lanes | None = None
    broker_epochs: Lanes | None = None


def participants(recording: Recording, end_ns: int, shown_ns: int | None = None) -> Participants:
    """Read what is drawn of them; `shown_ns`: how much time the drawing shows, if not the whole run."""
    return Participants(
        transactions=_transactions(recording, end_ns, (end_ns if shown_ns is None else shown_ns) // SEEN),
        groups=_groups(recording, end_ns),
        quorum=_quorum(recording, end_ns),
        broker_epochs=_broker_epochs(recording, end_ns),
    )


def _transactions(recording: Recording, end_ns: int, gap_ns: int) -> Lanes | None:
    rows = recording.table("txns", columns=["txn_id", "begin_ns", "end_ns", "outcome"])
    if rows.num_rows == 0:
        return None
    ids = rows["txn_id"].cast(pa.string())
    rows = rows.set_column(0, "txn_id", ids)
    all_ids = Counter(ids.to_pylist())
    troubled = Counter(ids.filter(pc.not_equal(rows["outcome"].cast(pa.string()), "committed")).to_pylist())
    chosen = sorted(all_ids, key=lambda name: (-troubled[name], name))[:MOST_LANES]
    own = rows.filter(pc.is_in(ids, pa.array(chosen))).sort_by([("txn_id", "ascending"), ("begin_ns", "ascending")])
    found = (
        Stretch(
            lane=row["txn_id"],
            start_ns=row["begin_ns"],
            end_ns=end_ns if row["end_ns"] is None else row["end_ns"],
            kind={"committed": "committed", "aborted": "aborted"}.get(row["outcome"], "unknown"),
            label={"info": "unknown"}.get(row["outcome"], row["outcome"]),
            words={"info": "outcome unknown"}.get(row["outcome"], row["outcome"]),
        )
        for row in own.to_pylist()
    )
    return Lanes(list(_joined(found, gap_ns)), len(all_ids) - len(chosen))


def _groups(recording: Recording, end_ns: int) -> Lanes | None:
    names = recording.partitions("commits")
    found: list[Stretch] = []
    for name in names[:MOST_LANES]:
        columns = ["process", "group", "kind", "generation", "invoke_ns", "complete_ns", "outcome"]
        rows = recording.table("commits", name, columns)
        own = rows.filter(pc.equal(rows["kind"].cast(pa.string()), "commit")).sort_by("invoke_ns")
        found += _joined(_commits(name, own.to_pylist(), end_ns), end_ns)
    return Lanes(found, max(0, len(names) - MOST_LANES)) if found else None


def _commits(name: str, rows: Sequence[dict[str, int | str | None]], end_ns: int) -> Iterator[Stretch]:
    """One a commit: neighbours of one member and generation are joined, so its time in the partition is seen."""
    for row in rows:
        start, end, who = row["invoke_ns"], row["complete_ns"], row["process"]
        assert isinstance(start, int)
        generation = "" if row["generation"] is None else f", generation {row['generation']}"
        is_ok = row["outcome"] == "ok"
        yield Stretch(
            lane=name,
            start_ns=start,
            end_ns=end if isinstance(end, int) else end_ns if row["outcome"] == "info" else start,
            kind="member" if is_ok else "aborted" if row["outcome"] == "fail" else "unknown",
            label=f"{who}" if row["generation"] is None else f"{who} g{row['generation']}",
            words=f"group {row['group']}: process {who}{generation}, commits {'acknowledged' if is_ok else row['outcome']}",
        )


def _quorum(recording: Recording, end_ns: int) -> Lanes | None:
    rows = recording.table("metadata", columns=["quorum_epoch", "at_ns"])
    known = (
        rows.filter(pc.is_valid(rows["at_ns"])).group_by("quorum_epoch").aggregate([("at_ns", "min"), ("at_ns", "max")])
    )
    spans = sorted((row["quorum_epoch"], row["at_ns_min"], row["at_ns_max"]) for row in known.to_pylist())
    if len(spans) < 2:
        return None
    found = [
        Stretch(
            lane="controllers",
            start_ns=first,
            end_ns=end_ns if place == len(spans) - 1 else last,
            kind="quorum",
            label=f"epoch {epoch}",
            words=f"metadata is committed in epoch {epoch}",
        )
        for place, (epoch, first, last) in enumerate(spans)
    ]
    return Lanes(found, 0)


def _broker_epochs(recording: Recording, end_ns: int) -> Lanes | None:
    """Draw which broker epoch each broker had: each from its registration to the next one (KIP-380)."""
    metadata = recording.table("metadata", columns=["record_type", "body", "metadata_offset", "at_ns"])
    begun: dict[int, list[tuple[int, int]]] = {}
    for row in registrations(metadata.sort_by("metadata_offset")):
        epochs = begun.setdefault(row.record.broker_id, [])
        if row.at_ns is not None and all(epoch != row.record.broker_epoch for epoch, _ in epochs):
            epochs.append((row.record.broker_epoch, row.at_ns))
    if all(len(epochs) < 2 for epochs in begun.values()):
        return None
    chosen = sorted(sorted(begun, key=lambda node: (-len(begun[node]), node))[:MOST_LANES])
    found = [
        Stretch(
            lane=f"broker {node}",
            start_ns=start_ns,
            end_ns=begun[node][place + 1][1] if place + 1 < len(begun[node]) else end_ns,
            kind="quorum",
            label=f"epoch {epoch}",
            words=f"registered with broker epoch {epoch}",
        )
        for node in chosen
        for place, (epoch, start_ns) in enumerate(begun[node])
    ]
    return Lanes(found, len(begun) - len(chosen))


def _joined(stretches: Iterable[Stretch], gap_ns: int) -> Iterator[Stretch]:
    """Join neighbours that look alike and are not further apart than a gap."""
    last: Stretch | None = None
    for one in stretches:
        if last is not None and _alike(last, one) and one.start_ns - last.end_ns <= gap_ns:
            last = replace(last, end_ns=max(last.end_ns, one.end_ns), count=last.count + one.count)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _alike(one: Stretch, other: Stretch) -> bool:
    return (one.lane, one.kind, one.label, one.words) == (other.lane, other.kind, other.label, other.words)
