"""From a run's folder to what its report shows; no geometry, no markup."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tribunal.results.confirmation import Rate, confirmed_rates
from tribunal.results.history import is_history
from tribunal.results.history import load as load_history
from tribunal.results.manifest import PROMISED, Manifest
from tribunal.results.recording import DamagedRecording
from tribunal.results.report.cycle import Cycle, cycle, cycle_of_history
from tribunal.results.report.holds import HOLDS
from tribunal.results.report.imported import Imported, imported_of
from tribunal.results.report.matrix import Matrix, matrix
from tribunal.results.report.minimal import Minimal, minimal_of
from tribunal.results.report.moments import Change, changes_of, min_isrs
from tribunal.results.report.operations import Operations, operations, operations_of_read
from tribunal.results.report.participants import Participants, participants
from tribunal.results.report.promises import OUTCOMES, Account, Array, Availability, Promise, Silence, account
from tribunal.results.report.simulation import Simulation, rare_states, simulation_of
from tribunal.results.report.story import Story, located, protagonist, story_of
from tribunal.results.report.unread import unread
from tribunal.results.report.window import BadWindow, Window
from tribunal.results.report.wrong_read import WrongRead, wrong_read
from tribunal.results.rows import Fault, Phase, typed
from tribunal.results.store import Recording, partition_order
from tribunal.results.verdict import Finding, RunVerdict, load

MOST_PARTITIONS: Final = 8
MOST_DRAWN_IN_FULL: Final = 3
BINS: Final = 240
BINS_OF_A_WINDOW: Final = 1_200
COMPLAINT: Final = re.compile(r"\b(?:Traceback|\w*Error|ERROR|CRITICAL|FATAL)\b")
COMPLAINTS: Final = 3
COMPLAINT_WIDTH: Final = 240
LOG_BYTES: Final = 2_000_000


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the recording as the manifest knows it; `size_bytes` are those of its files that are there."""

    name: str
    rows: int
    files: int
    size_bytes: int
    sha256: str
    holds: str = ""


class Series(msgspec.Struct, frozen=True):
    """One observer's high watermark or log end over time; `back` are the positions where a high watermark went back.

    alone:  the positions behind which nobody knows of it until the next one.
    """

    name: str
    at_ns: list[int]
    offsets: list[int]
    back: list[int]
    is_log_end: bool = False
    alone: list[int] = []


class Rates(msgspec.Struct, frozen=True):
    """Completed sends per bin of time, by outcome; latencies (ns) of the acknowledged by p50, p99, max.

    unread:    at the end of each bin: acknowledged records that no consumer had received yet
    start_ns:  where the first bin begins
    """

    bin_ns: int
    counts: dict[str, list[int]]
    latencies: dict[str, list[int | None]] = msgspec.field(default_factory=dict)
    unread: list[int] = msgspec.field(default_factory=list)
    start_ns: int = 0


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """All that the report needs.

    window:           what the timeline is drawn of; None: the whole run
    rates_of_window:  as `rates`, of the window only and in finer bins
    """

    run_dir: Path
    verdict: RunVerdict
    manifest: Manifest | None
    damage: str | None
    imported: Imported | None = None
    end_ns: int = 1
    brokers: list[int] = msgspec.field(default_factory=list)
    nodes: list[int] = msgspec.field(default_factory=list)
    controllers: list[int] = msgspec.field(default_factory=list)
    phases: list[Phase] = msgspec.field(default_factory=list)
    faults: list[Fault] = msgspec.field(default_factory=list)
    partitions: dict[str, list[Change]] = msgspec.field(default_factory=dict)
    in_full: list[str] = msgspec.field(default_factory=list)
    min_isrs: dict[str, list[str]] = msgspec.field(default_factory=dict)
    watermarks: dict[str, list[Series]] = msgspec.field(default_factory=dict)
    rates: Rates | None = None
    window: Window | None = None
    rates_of_window: Rates | None = None
    participants: Participants = Participants()
    partition_count: int = 0
    files: list[File] = msgspec.field(default_factory=list)
    story: Story | None = None
    matrix: Matrix | None = None
    operations: Operations | None = None
    minimal: Minimal | None = None
    wrong_read: WrongRead | None = None
    operations_of_read: Operations | None = None
    cycle: Cycle | None = None
    promises: list[Promise] = msgspec.field(default_factory=list)
    silences: list[Silence] = msgspec.field(default_factory=list)
    availability: list[Availability] = msgspec.field(default_factory=list)
    complaints: list[tuple[str, list[str]]] = msgspec.field(default_factory=list)
    simulation: Simulation | None = None
    rare_states: dict[str, int] = msgspec.field(default_factory=dict)
    confirmed: list[Rate] = msgspec.field(default_factory=list)

    @property
    def is_of_a_system(self) -> bool:
        """Whether it ran a system that a command starts (docs/your-system.md) and that is no log: nodes, calls, and nothing of a log's."""
        if self.manifest is None or not self.manifest.runs_described_system:
            return False
        return all(name.startswith(PROMISED) for name in self.manifest.settings or {})

    @property
    def bosses(self) -> str:
        """What controls the cluster, as the first screen counts it."""
        is_zookeeper = self.manifest is not None and self.manifest.mode == "zookeeper"
        return "ZooKeeper servers" if is_zookeeper else "controllers"


def page(run_dir: Path, window: Window | None = None) -> Page:
    """Read a judged run; one whose recording is damaged still has its verdict to show.

    window:  what the timeline shall be drawn of; `BadWindow` where the run was over before it.
    """
    verdict = load(run_dir / "verdict.json")
    try:
        if is_history(run_dir):
            if window is not None:
                raise BadWindow(f"{window.name}: {run_dir} is a history of another tool, which has no timeline")
            return _page_of_history(run_dir, verdict)
        recording = Recording.open(run_dir, compare=False)
        return _page_of(run_dir, verdict, recording, window)
    except DamagedRecording as damage:
        if window is not None:
            raise
        return Page(run_dir=run_dir, verdict=verdict, manifest=None, damage=str(damage))


def _page_of_history(run_dir: Path, verdict: RunVerdict) -> Page:
    events, origin = load_history(run_dir)
    return Page(
        run_dir=run_dir,
        verdict=verdict,
        manifest=None,
        damage=None,
        imported=imported_of(events, origin, verdict.findings),
        cycle=cycle_of_history(events, verdict.findings),
    )


def _page_of(run_dir: Path, verdict: RunVerdict, recording: Recording, window: Window | None) -> Page:
    names = recording.partitions("sends", "reads", "logs")
    shown = _shown(names, verdict)
    partitions = {name: list(changes_of(recording, name)) for name in shown}
    nodes = recording.table("nodes", columns=["node", "role"])
    phases = typed(recording.table("phases"), Phase)
    sends = account(recording, recording.partitions("sends"))
    last_ns = _last_ns(sends)
    rates = _rates(recording, sends, Window(start_ns=0, end_ns=last_ns), BINS)
    end_ns = max([1, last_ns, *(row.end_ns or 0 for row in phases)])
    if window is not None:
        window = _within(window, end_ns)
    hero = protagonist(verdict.findings)
    hero = hero and located(recording, hero)
    wrong = None if hero is None else wrong_read(recording, hero)
    return Page(
        run_dir=run_dir,
        verdict=verdict,
        manifest=recording.manifest,
        damage=None,
        end_ns=end_ns,
        brokers=_brokers(nodes, partitions),
        nodes=sorted(set(nodes["node"].to_pylist())),
        controllers=sorted({row["node"] for row in nodes.to_pylist() if row["role"] == "controller"}),
        phases=phases,
        faults=sorted(typed(recording.table("faults"), Fault), key=lambda row: row.index),
        partitions=partitions,
        in_full=shown[:MOST_DRAWN_IN_FULL],
        min_isrs={name: _min_isrs(recording, name, partitions[name]) for name in shown[:MOST_DRAWN_IN_FULL]},
        watermarks={name: list(_watermarks(recording, name)) for name in shown[:MOST_DRAWN_IN_FULL]},
        rates=rates,
        window=window,
        rates_of_window=None if window is None else _rates(recording, sends, window, BINS_OF_A_WINDOW),
        participants=participants(recording, end_ns, None if window is None else window.end_ns - window.start_ns),
        partition_count=len(names),
        files=_files(recording),
        story=None if hero is None else story_of(recording, hero, _own_changes(recording, hero, partitions), end_ns),
        matrix=None if hero is None else matrix(recording, hero, verdict.findings),
        operations=None if hero is None else operations(recording, hero),
        minimal=minimal_of(run_dir),
        wrong_read=wrong,
        operations_of_read=None if hero is None or wrong is None else operations_of_read(recording, hero, wrong),
        cycle=cycle(recording, verdict.findings),
        promises=sends.promises(verdict.findings),
        silences=sends.worst_silences(),
        availability=sends.availability(),
        complaints=list(_complaints(run_dir)),
        simulation=simulation_of(run_dir),
        rare_states=rare_states(recording),
        confirmed=confirmed_rates(run_dir),
    )


def _min_isrs(recording: Recording, name: str, changes: Sequence[Change]) -> list[str]:
    return min_isrs(recording, partition_order(name)[0], changes[0].at_ns) if changes else []


def _own_changes(recording: Recording, hero: Finding, known: Mapping[str, list[Change]]) -> list[Change]:
    if hero.topic is None:
        return []
    name = f"{hero.topic}-{hero.partition}"
    return known[name] if name in known else list(changes_of(recording, name))


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


def _watermarks(recording: Recording, name: str) -> Iterator[Series]:
    columns = ["observer", "source", "leader_epoch", "high_watermark", "log_end_offset", "at_ns"]
    rows = recording.table("watermarks", name, columns)
    yield from _log_ends(rows)
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
        # A node reports its high watermark while it leads: in between others led, and it said nothing.
        over = (sources[chosen][:-1] == "node") & (epochs[1:] != epochs[:-1])
        yield Series(observer, at_ns.tolist(), offsets.tolist(), back.tolist(), alone=np.flatnonzero(over).tolist())


def _log_ends(rows: pa.Table) -> Iterator[Series]:
    """Yield how far each replica's own log went; that one is cut after an election is no regression.

    A leader reports all the time. A follower (it has no high watermark to report) does so only as it begins to follow, or cuts its log: it fetches on
    behind that, and nobody knows how much. So it is with a leader once somebody else leads.
    """
    own = pc.and_(pc.equal(rows["source"].cast(pa.string()), "node"), pc.is_valid(rows["log_end_offset"]))
    known = rows.filter(own)
    # Before and behind a cut have the same time: the cut is what comes second.
    known = known.sort_by([("at_ns", "ascending"), ("log_end_offset", "descending")])
    observers = np.asarray(known["observer"].cast(pa.string()).to_pylist(), dtype=object)
    for observer in sorted(set(observers.tolist())):
        chosen = known.filter(pa.array(observers == observer))
        leads = pc.is_valid(chosen["high_watermark"]).to_numpy()
        epochs = pc.fill_null(chosen["leader_epoch"], -1).to_numpy()
        goes_on = leads[:-1] & (epochs[:-1] == epochs[1:])
        yield Series(
            observer,
            chosen["at_ns"].to_pylist(),
            chosen["log_end_offset"].to_pylist(),
            [],
            is_log_end=True,
            alone=[*np.flatnonzero(~goes_on).tolist(), chosen.num_rows - 1],
        )


def _within(window: Window, end_ns: int) -> Window:
    """Return the window as far as the run goes; `BadWindow` where it does not reach it."""
    if window.start_ns >= end_ns:
        raise BadWindow(f"{window.name}: the run was over after {end_ns / 1e9:.3f} s")
    return replace(window, end_ns=min(window.end_ns, end_ns))


def _last_ns(sends: Account) -> int:
    return 1 + max((int(done.max(initial=0)) for done in sends.done), default=0)


def _rates(recording: Recording, sends: Account, window: Window, bins: int) -> Rates:
    """Count completed sends per bin, and take the latency of those that were answered; no spike vanishes: max is kept."""
    done = np.concatenate(sends.done) if sends.done else np.zeros(0, np.int64)
    inside = (done >= window.start_ns) & (done < window.end_ns)
    took = (np.concatenate(sends.took) if sends.took else done)[inside]
    outcome = (np.concatenate(sends.outcomes) if sends.outcomes else done)[inside]
    bin_ns = max(1, -(-(window.end_ns - window.start_ns) // bins))
    place = (done[inside] - window.start_ns) // bin_ns
    counts = {
        word: np.bincount(place[outcome == code], minlength=bins)[:bins].tolist() for code, word in enumerate(OUTCOMES)
    }
    answered = outcome == OUTCOMES.index("ok")
    latencies = _latencies(place[answered], took[answered], bins)
    waiting = unread(recording, recording.partitions("sends"), bin_ns, bins, window.start_ns)
    return Rates(bin_ns, counts, latencies, waiting, window.start_ns)


def _latencies(place: Array, took: Array, bins: int) -> dict[str, list[int | None]]:
    order = np.lexsort((took, place))
    ordered = took[order]
    ends = np.searchsorted(place[order], np.arange(bins), "right")
    starts = np.concatenate(([0], ends[:-1]))
    found: dict[str, list[int | None]] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        picks = starts + np.maximum(0, np.ceil((ends - starts) * share).astype(np.int64) - 1)
        found[name] = [
            int(ordered[pick]) if end > start else None
            for start, end, pick in zip(starts.tolist(), ends.tolist(), picks.tolist(), strict=True)
        ]
    return found


def _files(recording: Recording) -> list[File]:
    tables = recording.manifest.tables if recording.manifest is not None else {}
    return [
        File(
            name=f"recording/{name}",
            rows=known.rows,
            files=known.files,
            sha256=known.sha256,
            holds=HOLDS.get(name, ""),
            size_bytes=sum(path.stat().st_size for path in (recording.run_dir / "recording" / name).rglob("*.parquet")),
        )
        for name, known in sorted(tables.items())
    ]


def _complaints(run_dir: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each node's first error lines."""
    for path in sorted((run_dir / "logs").glob("*.log")):
        with path.open("rb") as file:
            lines = file.read(LOG_BYTES).decode("utf-8", "replace").splitlines()
        found = [line[:COMPLAINT_WIDTH] for line in lines if COMPLAINT.search(line)]
        if found:
            yield path.name, found[:COMPLAINTS]
