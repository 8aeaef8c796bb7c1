"""Units of judging: what one task does, as values. They are put into bytes once, where Spark carries them to its tasks."""

from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.api import Context, PartitionRows, distinct
from tribunal.checkers.graphs.circles import Margin, Stretch
from tribunal.checkers.graphs.findings import OfPart
from tribunal.checkers.judge import hot_partitions as ranges
from tribunal.checkers.judge.dealt_transactions import Part, deal, is_small
from tribunal.checkers.judge.dumps import dumped
from tribunal.checkers.judge.endings import ending
from tribunal.checkers.judge.fenced import Name
from tribunal.checkers.judge.files import Window, dealt
from tribunal.checkers.judge.led import Leaders
from tribunal.checkers.judge.outcomes import with_transactions
from tribunal.checkers.judge.partition import history_of, settings_of
from tribunal.checkers.judge.tails import by_range, tails
from tribunal.checkers.properties.lost_writes import READ_COMMITTED, complete_readers, log_start
from tribunal.checkers.properties.replicas import shown_high_watermark
from tribunal.results.history import is_history
from tribunal.results.manifest import KRAFT
from tribunal.results.metadata import PartitionRecord
from tribunal.results.recording import NO_PARTITION, TABLES, DamagedRecording
from tribunal.results.store import Recording, partition_in, partition_order

PART_BYTES: Final = 16 << 20
SHOWN: Final = ("source", "leader_epoch", "at_ns", "high_watermark", "log_start_offset")
HASHED_AT_COST_OF_ONE: Final = 8  # bytes are hashed while one is judged, about


class WholeRun(msgspec.Struct, frozen=True, tag="run", omit_defaults=True):
    """What concerns a run as a whole.

    files_apart:    but its files, which others look at; transactions_apart: but what its transactions say of each other.
    """

    run_dir: str
    files_apart: bool = False
    transactions_apart: bool = False


class Files(msgspec.Struct, frozen=True, tag="files"):
    """Some files of a table of a large recording."""

    run_dir: str
    table: str
    paths: tuple[str, ...]


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """Values that several files may hold, of which is asked whether one was sent twice."""

    run_dir: str
    window: Window


class Lists(msgspec.Struct, frozen=True, tag="lists"):
    """Some lists of a run's transactions, of which is asked whether anything but a circle may be wrong with them."""

    run_dir: str
    part: Part
    margins: tuple[Margin, ...]


class Offsets(msgspec.Struct, frozen=True, tag="offsets"):
    """Some row groups of a run's transactions, of which is asked which offsets of which partitions they have; `first`: which of these items it is."""

    run_dir: str
    first: int
    groups: tuple[ranges.Group, ...]


class Messages(msgspec.Struct, frozen=True, tag="messages"):
    """The messages in some partitions, of which is asked again what they say; now it is known of which transactions somebody read others.

    proven:  rows of transactions of unknown outcome, as numbers in bytes.
    """

    run_dir: str
    part: Part
    proven: bytes


class Circles(msgspec.Struct, frozen=True, tag="circles"):
    """A stretch of time, of which is asked whether transactions depend on each other in a circle; `groups`: those that may hold any of it."""

    run_dir: str
    groups: tuple[ranges.Group, ...]
    stretch: Stretch


class Producers(msgspec.Struct, frozen=True, tag="producers"):
    """Some row groups of a run's transactions, of which is asked who made them, with which epochs; `first`: which of these items it is."""

    run_dir: str
    first: int
    groups: tuple[ranges.Group, ...]


class Transactions(msgspec.Struct, frozen=True, tag="transactions"):
    """What a run's transactions say of each other, all of it."""

    run_dir: str


class Beside(msgspec.Struct, frozen=True, tag="beside"):
    """What a run's transactions say of each other but their lists, with which nothing is wrong.

    count:       how many there are.
    going_back:  the producers whose epoch may go back.
    messages:    what is found of messages, in parts.
    """

    run_dir: str
    count: int
    going_back: tuple[Name, ...]
    messages: tuple[OfPart, ...] = ()


class ImportedHistory(msgspec.Struct, frozen=True, tag="history"):
    """A history that another tool recorded."""

    run_dir: str


class WholePartition(msgspec.Struct, frozen=True, tag="partition"):
    """One partition (`topic-p`), all of it."""

    run_dir: str
    partition: str


class SieveRange(msgspec.Struct, frozen=True, tag="sieve"):
    """One range of a hot partition's offsets, of which is asked whether anything in it is suspect.

    groups:  the row groups that may hold any of it, by table: all that is opened for it.
    """

    run_dir: str
    partition: str
    range: ranges.Range
    known: ranges.Known
    groups: dict[str, tuple[ranges.Group, ...]]


class Rest(msgspec.Struct, frozen=True, tag="rest", omit_defaults=True):
    """What is small in a hot partition; `tails_apart`: ranges are asked of its tail readers."""

    run_dir: str
    partition: str
    tails_apart: bool = False


class Suspects(msgspec.Struct, frozen=True, tag="suspects", omit_defaults=True):
    """Ranges of a hot partition that are not clean, in components that are judged one after the other.

    begins:   where each replica's log begins, in any range.
    whole:    they are all of the partition, and every send is read that has no offset.
    """

    run_dir: str
    partition: str
    components: tuple[ranges.Component, ...]
    begins: dict[int, int]
    whole: bool = False


class FollowAgain(msgspec.Struct, frozen=True, tag="followed", omit_defaults=True):
    """Ranges of a hot partition in which tail readers are followed again, in components that are judged one after the other.

    whole:  they are all of the partition, and every send is read that has no offset.
    """

    run_dir: str
    partition: str
    components: tuple[ranges.Component, ...]
    whole: bool = False


class Ordered(msgspec.Struct, frozen=True, tag="ordered"):
    """A hot partition of which is asked whether a process sent a later record earlier."""

    run_dir: str
    partition: str


WorkItem = (
    WholeRun
    | Files
    | Sent
    | Lists
    | Offsets
    | Messages
    | Circles
    | Producers
    | Transactions
    | Beside
    | ImportedHistory
    | WholePartition
    | SieveRange
    | Rest
    | Suspects
    | FollowAgain
    | Ordered
)
OfTransactions = Lists | Offsets | Messages | Circles | Producers | Transactions | Beside
OfRun = WholeRun | Files | Sent | OfTransactions | ImportedHistory


def work_items(run_dir: Path) -> list[WorkItem]:
    """Return a run's work items: every partition that any table or the committed metadata name, and the run as a whole."""
    if is_history(Path(run_dir)):
        return [ImportedHistory(str(run_dir))]
    folder = Path(run_dir) / "recording"
    names = {partition_in(path) for table in TABLES for path in (folder / table).glob("tp=*")}
    ordered = sorted({*names, *_created(Path(run_dir))} - {NO_PARTITION}, key=partition_order)
    parts = [part for name in ordered for part in _parts(Path(run_dir), name)]
    apart = [Files(str(run_dir), table, paths) for table, paths in dealt(Path(run_dir), TABLES)]
    transactions = _of_transactions(Path(run_dir))
    whole = WholeRun(str(run_dir), files_apart=bool(apart), transactions_apart=bool(transactions))
    return [whole, *apart, *transactions, *parts]


def _of_transactions(run_dir: Path) -> list[Lists | Offsets | Producers]:
    """Return the items of a run's transactions; none where these are few, which costs a small recording a look at its files' sizes."""
    if is_small(run_dir):
        return []
    try:
        dealt_out = deal(Recording.open(run_dir, compare=False))
    except DamagedRecording:
        return []  # whoever judges the run as a whole says what is wrong
    if dealt_out is None:
        return []
    made = [Producers(str(run_dir), number, groups) for number, groups in enumerate(dealt_out.in_order())]
    if dealt_out.by_offsets:
        return [*(Offsets(str(run_dir), one.first, one.groups) for one in made), *made]
    return [*(Lists(str(run_dir), part, dealt_out.margins) for part in dealt_out.parts), *made]


def _created(run_dir: Path) -> list[str]:
    """Return the partitions that the committed metadata name: of one of which nothing else was recorded they still say whether it was led."""
    try:
        metadata = Recording.open(run_dir, compare=False).table(
            "metadata", columns=("record_type", "topic", "partition")
        )
    except DamagedRecording:
        return []  # whoever judges the run as a whole says what is wrong
    own = metadata.filter(pc.equal(metadata["record_type"].cast(pa.string()), PartitionRecord.__name__))
    places = zip(own["topic"].to_pylist(), own["partition"].to_pylist(), strict=True)
    return [f"{topic}-{partition}" for topic, partition in places if topic is not None and partition is not None]


def _parts(run_dir: Path, name: str) -> list[WorkItem]:
    """Return a partition's work items: one, or many for a hot one."""
    whole = WholePartition(str(run_dir), name)
    if item_bytes(whole) < ranges.BIG_BYTES:
        return [whole]
    try:
        recording = Recording.open(run_dir, compare=False, only=name)
        cut = ranges.cut(recording, name)
        if not cut:
            return [whole]
        known = _known(recording, name)
        followed = None if known.tails is None else by_range(known.tails, [(own.first, own.end) for own, _ in cut])
        if followed is not None:
            cut = ranges.with_polls(recording, name, cut)
        cut = with_transactions(recording, name, cut)
    except DamagedRecording:
        return [whole]  # whoever judges it says what is wrong
    sieves = (
        SieveRange(
            str(run_dir), name, own, msgspec.structs.replace(known, tails=followed and followed[place]), dict(groups)
        )
        for place, (own, groups) in enumerate(cut)
    )
    return [Rest(str(run_dir), name, tails_apart=followed is not None), *sieves]


def _known(recording: Recording, name: str) -> ranges.Known:
    """Look up what all ranges of a hot partition need."""
    watermarks = recording.table("watermarks", name, SHOWN)
    rows = PartitionRows({"polls": recording.table("polls", name), "watermarks": watermarks})
    polls = rows.columns("polls")
    context = Context(complete=recording.complete, of_run=lambda table: recording.table(table, columns=("process",)))
    timeline = history_of(recording).timeline(*partition_order(name))
    ended = ending(timeline.entries)
    return ranges.Known(
        readers=tuple(complete_readers(rows.columns("polls")).tolist()),
        can_lead=tuple(timeline.can_lead),
        dumped=tuple(dumped(recording.table, *partition_order(name))),
        spared=(*ended.hurt, *ended.damaged),
        leaders=timeline.leaders if settings_of(recording).get("mode") == KRAFT else Leaders(),
        tails=tails(rows, context),
        members=ended.members,
        compared=(log_start(rows), shown_high_watermark(rows, ended)),
        committed_readers=tuple(distinct(polls["process"][polls["isolation"] == READ_COMMITTED]).tolist()),
    )


def item_bytes(item: WorkItem) -> int:
    """Return how much a work item has to read, by the sizes of its files."""
    if isinstance(item, SieveRange | Rest | Suspects | FollowAgain | Ordered | Sent | OfTransactions):
        return PART_BYTES
    if isinstance(item, Files):
        return sum(Path(path).stat().st_size for path in item.paths) // HASHED_AT_COST_OF_ONE
    name = quote(item.partition if isinstance(item, WholePartition) else NO_PARTITION, safe="")
    folder = Path(item.run_dir) / "recording"
    return sum(path.stat().st_size for table in TABLES for path in (folder / table / f"tp={name}").glob("part-*"))
