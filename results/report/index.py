"""The page over many runs: what is new, what green is worth, and every run with its verdict.

Read from a folder as runs, nights and sweeps left it: `verdict.json` and `manifest.json` of each run, `nightly.json` of
each night, `power.json` as `tribunal power --json` prints it, `sensitivity.json` as `tribunal calibrate --out` keeps it. What cannot be read is named on the page and left out.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, Literal

import msgspec

from tribunal.results.digits import significant
from tribunal.results.night import WHOLE, Canary, FoundTonight, Night
from tribunal.results.night_files import load as load_night
from tribunal.results.night_merge import merged_findings
from tribunal.results.report import embedded, environment
from tribunal.results.report.simulation import simulation_of
from tribunal.results.sensitivity import Figure, Sensitivity, added, total
from tribunal.results.signature import renewed, texts
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import RunVerdict, Verdict, load
from tribunal.results.whole_files import put

MOST_RUNS: Final = 2_000
MOST_MARKS: Final = 40
DEPTH: Final = 4
UNKNOWN: Final = "unknown"
LETTERS: Final[Mapping[str, str]] = {
    "PASS": "P", "PERMITTED": "L", "INCONCLUSIVE": "?", "VIOLATION": "V", "ERROR": "E",
}  # fmt: skip


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run; `place` is the path of its folder below the page's own."""

    run_id: str
    place: str
    has_report: bool
    verdict: str
    claim: str
    scenario: str
    cluster: str
    seed: int | None
    began: str
    mutants: list[str]
    signatures: list[str]
    probes: dict[str, int]


class ScenarioRow(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario's verdicts by number, and the latest of them in order of time."""

    scenario: str
    runs: int
    counts: dict[str, int]
    latest: list[RunRow]


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A finding over all runs that showed it."""

    signature: str
    state: str
    known_as: str
    count: int
    first: str
    last: str
    scenarios: list[str]
    example: RunRow | None
    again: str = ""
    in_hand: str = ""


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over the nights; `points` and `dots` (x, y, what it is) in a drawing of 200 x 28."""

    name: str
    values: list[float]
    points: str
    dots: list[tuple[float, float, str]]

    @property
    def lowest(self) -> float:
        """The smallest of them."""
        return min(self.values)

    @property
    def highest(self) -> float:
        """The largest of them."""
        return max(self.values)


class PowerCell(msgspec.Struct, frozen=True, kw_only=True):
    """A known bug sought with a scenario; `shade` 0 (missed) to 5 (found within seconds)."""

    mutant: str
    scenario: str
    found: bool
    seconds: float
    seeds: int
    seen_by: str
    shade: int


class ColdGuards(msgspec.Struct, frozen=True):
    """Places of the nodes' code that refuse, raise or catch something and that no run reached, by part (`replog.broker`); `known`: how many there are.

    nights:  how many nights of this commit counted them.
    """

    commit: str
    nights: int
    known: int
    by_part: dict[str, list[str]]

    @property
    def count(self) -> int:
        """How many no run reached."""
        return sum(map(len, self.by_part.values()))


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page needs.

    counts:       how many of all runs got each verdict, worst first, those that are left out too.
    measured_in:  in copies of how many recordings sensitivity was measured.
    """

    title: str
    runs: list[RunRow]
    left_out: int
    counts: dict[str, int]
    scenarios: list[ScenarioRow]
    signatures: list[Signature]
    power: list[PowerCell]
    sensitivity: dict[str, Figure]
    measured_in: int
    probes: list[tuple[str, int]]
    cold: list[str]
    guards: ColdGuards | None
    nights: list[Night]
    unreadable: list[str]
    trends: list[Trend] = []

    @property
    def anomalies(self) -> Figure:
        """How many anomalies were put into recordings, and how many of them were seen."""
        return total(self.sensitivity.values())


def write(folder: Path, findings: Path | None = None) -> Path:
    """Write index.html into a folder of runs; return its path."""
    return put(folder / "index.html", render(index(folder, findings)).encode())


def render(content: Index) -> str:
    """Return the page's HTML."""
    shown = [name for name in (str(verdict) for verdict in Verdict) if content.counts.get(name)]
    template = environment().get_template("index.html.j2")
    return template.render(
        index=content,
        verdicts=shown,
        clusters=sorted({run.cluster for run in content.runs}),
        letters=LETTERS,
        mutants=_ordered(cell.mutant for cell in content.power),
        sought_with=_ordered(cell.scenario for cell in content.power),
        cells={(cell.mutant, cell.scenario): cell for cell in content.power},
        **embedded("index.js"),
    )


def index(folder: Path, findings: Path | None = None, most: int | None = MOST_RUNS) -> Index:
    """Read a folder; `findings` is the folder of past failures, which says what is known. `most`: of so many runs each has a row."""
    unreadable: list[str] = []
    runs = sorted(_runs(folder, unreadable), key=lambda run: (run.began, run.run_id), reverse=True)
    placed_nights = sorted(_nights(folder, unreadable), key=lambda placed: placed[1].began, reverse=True)
    found_nights = [night for _, night in placed_nights]
    probes = _probes(runs, placed_nights)
    sensitivity = _sensitivity(folder, found_nights, unreadable)
    shown = runs if most is None else _shown(runs, most)
    return Index(
        title=folder.resolve().name,
        runs=shown,
        left_out=len(runs) - len(shown),
        counts={str(verdict): count for verdict in Verdict if (count := sum(run.verdict == verdict for run in runs))},
        scenarios=_scenarios(runs),
        signatures=_signatures(runs, found_nights, _kept(findings, unreadable)),
        power=_power(folder, found_nights, unreadable),
        sensitivity={name: figure for name, figure in sensitivity.figures.items() if figure.injected},
        measured_in=len(dict.fromkeys(sensitivity.runs)),
        probes=sorted(probes.items(), key=lambda item: (-item[1], item[0])),
        cold=sorted({name for night in found_nights for name in night.cold if not probes.get(name)}),
        guards=_cold_guards(found_nights),
        nights=found_nights,
        unreadable=unreadable,
        trends=list(_trends(found_nights)),
    )


def _shown(runs: Sequence[RunRow], most: int) -> list[RunRow]:
    """Return at most so many runs in their order: what is no success before any that is one, the newest of each."""
    good = (Verdict.PASS, Verdict.PERMITTED)
    chosen = sorted(range(len(runs)), key=lambda place: (runs[place].verdict in good, place))[:most]
    return [runs[place] for place in sorted(chosen)]


def _trends(found_nights: Sequence[Night]) -> Iterator[Trend]:
    """Yield each figure of two nights or more of one name, those here and those that they remember; shards of one night are not compared."""
    several = len({night.name for night in found_nights}) > 1
    for name in _ordered(night.name for night in found_nights):
        own = _whole(night for night in reversed(found_nights) if night.name == name)
        series: dict[str, dict[str, float]] = {}
        for night in own:
            for began, figures in (*((one.began, one.figures) for one in night.before), (night.began, night.figures)):
                for figure, value in figures.items():
                    series.setdefault(figure, {})[began] = value
        for figure, by_night in series.items():
            if len(by_night) > 1:
                yield _trend(f"{name}: {figure}" if several else figure, sorted(by_night.items()))


def _whole(nights: Iterable[Night]) -> list[Night]:
    """Leave out shards of a night that is there as a whole; return none where there are shards that nobody has merged.

    The same shard twice is of two nights that began on one day.
    """
    groups: dict[tuple[str, int, str], list[Night]] = {}
    for night in nights:
        groups.setdefault((night.commit, night.first_seed, night.shard.partition("/")[2]), []).append(night)
    merged = {
        (night.commit, night.first_seed, night.began)
        for own in groups.values()
        for night in own
        if night.shard == WHOLE
    }
    found: list[Night] = []
    for (commit, first_seed, _), own in groups.items():
        if len({night.shard for night in own}) == 1:
            found += own
        elif not any((commit, first_seed, night.began) in merged for night in own):
            return []
    return sorted(found, key=lambda night: night.began)


def _trend(name: str, nights: Sequence[tuple[str, float]]) -> Trend:
    values = [value for _, value in nights]
    low, span = min(values), (max(values) - min(values)) or 1.0
    places = [
        (round(4 + 192 * number / (len(values) - 1), 1), round(24 - 20 * (value - low) / span, 1))
        for number, value in enumerate(values)
    ]
    return Trend(
        name=name,
        values=values,
        points=" ".join(f"{x},{y}" for x, y in places),
        dots=[
            (x, y, f"{began}: {significant(value, 4)}") for (x, y), (began, value) in zip(places, nights, strict=True)
        ],
    )


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yield files of a name, without going into recordings and disks."""
    for place, folders, files in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(one for one in folders if one not in ("recording", "nodes", "logs") and depth < DEPTH)
        if name in files:
            yield Path(place) / name


def _runs(folder: Path, unreadable: list[str]) -> Iterator[RunRow]:
    for path in _files(folder, "verdict.json"):
        try:
            yield _row(folder, path.parent, load(path))
        except (OSError, *UNREADABLE) as problem:
            unreadable.append(f"{path.relative_to(folder)}: {problem}")


def _row(folder: Path, run_dir: Path, verdict: RunVerdict) -> RunRow:
    made, simulation = _made(run_dir), simulation_of(run_dir)
    return RunRow(
        run_id=verdict.run_id,
        place=run_dir.relative_to(folder).as_posix(),
        has_report=(run_dir / "report.html").is_file(),
        verdict=str(verdict.verdict),
        claim=verdict.claim,
        scenario=made.scenario or UNKNOWN,
        cluster=made.cluster or UNKNOWN,
        seed=made.seed,
        began=_began(verdict.run_id),
        mutants=made.mutants,
        signatures=texts(sorted({one.signature for one in verdict.violations})),
        probes={} if simulation is None else simulation.probes,
    )


def _began(run_id: str) -> str:
    """Return a run's start as its name gives it, `20261121T062120Z`; nothing for other names."""
    stamp = run_id[:16]
    return stamp if len(stamp) == 16 and stamp[8] == "T" and stamp[15] == "Z" and stamp[:8].isdecimal() else ""


class _Made(msgspec.Struct, frozen=True):
    """What of a manifest stands in the list of runs; it writes null for what it does not say."""

    scenario: str | None = None
    cluster: str | None = None
    seed: int | None = None
    mutants: list[str] = []


def _made(run_dir: Path) -> _Made:
    try:
        return msgspec.json.decode((run_dir / "manifest.json").read_bytes(), type=_Made)
    except (OSError, *UNREADABLE):
        return _Made()


class _KeptFinding(msgspec.Struct, frozen=True):
    """What of a kept finding stands in the list of signatures."""

    name: str
    signature: str
    state: Literal["fixed", "known"]


def _nights(folder: Path, unreadable: list[str]) -> Iterator[tuple[str, Night]]:
    """Yield nights, each with its place in the folder."""
    for path in _files(folder, "nightly.json"):
        try:
            yield path.parent.relative_to(folder).as_posix(), load_night(path)
        except (OSError, *UNREADABLE) as problem:
            unreadable.append(f"{path.relative_to(folder)}: {problem}")


def _kept(findings: Path | None, unreadable: list[str]) -> dict[str, tuple[str, str]]:
    """Return what is kept of past failures: signature -> (name, state)."""
    kept: dict[str, tuple[str, str]] = {}
    for path in sorted(findings.glob("*.json")) if findings is not None else ():
        try:
            finding = msgspec.json.decode(path.read_bytes(), type=_KeptFinding)
        except (OSError, *UNREADABLE):
            unreadable.append(f"{path.name}: not a finding")
        else:
            kept[renewed(finding.signature)] = (finding.name, finding.state)
    return kept


def _scenarios(runs: Sequence[RunRow]) -> list[ScenarioRow]:
    by_name: dict[str, list[RunRow]] = {}
    for run in reversed(runs):
        by_name.setdefault(run.scenario, []).append(run)
    return [
        ScenarioRow(
            scenario=name,
            runs=len(own),
            counts={str(verdict): sum(run.verdict == verdict for run in own) for verdict in Verdict},
            latest=own[-MOST_MARKS:],
        )
        for name, own in sorted(by_name.items())
    ]


def _signatures(
    runs: Sequence[RunRow], found_nights: Sequence[Night], kept: Mapping[str, tuple[str, str]]
) -> list[Signature]:
    """Group what runs and nights found; known bugs that were switched on on purpose are power, not findings."""
    by_name: dict[str, list[RunRow]] = {}
    for run in reversed(runs):
        for name in run.signatures if not run.mutants else ():
            by_name.setdefault(name, []).append(run)
    of_nights = _found_by(found_nights)
    result = []
    for name in sorted({**by_name, **of_nights}):
        own, (found, night) = by_name.get(name, []), of_nights.get(name, (None, None))
        known_as, state = kept.get(name, ("", ""))
        result.append(
            Signature(
                signature=name,
                state={"fixed": "regressed", "known": "known", "": "new"}[state] if found is None else found.state,
                known_as=known_as or ("" if found is None else found.known_as),
                count=max(len(own), 0 if found is None else found.count),
                first=own[0].began if own else "" if found is None or night is None else found.since or night.began,
                last=own[-1].began if own else "" if night is None else night.began,
                scenarios=_ordered([*(run.scenario for run in own), *([] if found is None else found.scenarios)]),
                example=own[-1] if own else None,
                again="" if found is None else found.again,
                in_hand=""
                if found is None or not found.owner
                else f"{', '.join(filter(None, (found.owner, found.link)))} until {found.expires}",
            )
        )
    gone = [(name, one) for name, one in kept.items() if name not in {entry.signature for entry in result}]
    result += [
        Signature(
            signature=name, state=state, known_as=known_as, count=0, first="", last="", scenarios=[], example=None
        )
        for name, (known_as, state) in gone
    ]
    order = {"new": 0, "regressed": 1, "expired": 1, "known": 2, "fixed": 3}
    return sorted(result, key=lambda one: (order.get(one.state, 9), -one.count, one.signature))


def _found_by(found_nights: Iterable[Night]) -> dict[str, tuple[FoundTonight, Night]]:
    """Return each signature as the newest night has it that found it: what shards of one night found is one finding.

    found_nights:  the newest first.
    """
    groups: list[dict[str, Night]] = []
    newest: dict[tuple[str, str, int, str], dict[str, Night]] = {}
    for night in reversed([*found_nights]):
        key = (night.name, night.commit, night.first_seed, night.shard.partition("/")[2])
        own = newest.get(key)
        if own is None or night.shard in own:  # the same shard once more is of the next such night
            own = newest[key] = {}
            groups.append(own)
        own[night.shard] = night
    return {
        one.signature: (one, [*own.values()][-1])
        for own in groups
        for one in merged_findings(one for night in own.values() for one in night.found)
    }


class _Sought(msgspec.Struct, frozen=True, kw_only=True):
    """A row of power.json: a known bug sought with a scenario."""

    mutant: str
    scenario: str
    found: bool
    seen_by: list[str]
    seeds: int
    seconds: float


def _power(folder: Path, found_nights: Sequence[Night], unreadable: list[str]) -> list[PowerCell]:
    """Return each mutant sought with each scenario once, the latest first seen wins; where no seed ended, nothing was sought."""
    cells: dict[tuple[str, str], PowerCell] = {}
    rows: list[Canary | _Sought] = [canary for night in found_nights for canary in night.canaries]
    for path in _files(folder, "power.json"):
        try:
            raw = msgspec.json.decode(path.read_bytes(), type=list[msgspec.Raw])
        except (OSError, *UNREADABLE) as problem:
            unreadable.append(f"{path.relative_to(folder)}: {problem}")
            continue
        for one in raw:
            try:
                rows.append(msgspec.json.decode(one, type=_Sought))
            except UNREADABLE as problem:
                unreadable.append(f"a row of power: {problem!r}")
    for row in (row for row in rows if row.found or row.seeds):
        cell = PowerCell(
            mutant=row.mutant, scenario=row.scenario, found=row.found, seconds=row.seconds, seeds=row.seeds,
            seen_by="; ".join(row.seen_by), shade=_shade(row.seconds if row.found else None),
        )  # fmt: skip
        cells.setdefault((cell.mutant, cell.scenario), cell)
    return [cells[key] for key in sorted(cells)]


class _Measured(msgspec.Struct, frozen=True):
    """What counts of sensitivity.json."""

    runs: list[str]
    figures: dict[str, Figure]

    def kept(self) -> Sensitivity:
        """Return it without its misses, which are no sentences here."""
        return Sensitivity(runs=self.runs, figures=self.figures)


def _sensitivity(folder: Path, found_nights: Sequence[Night], unreadable: list[str]) -> Sensitivity:
    """Return what was measured here (sensitivity.json, as `tribunal calibrate --out` keeps it) and by the latest night that measured any."""
    parts = [night.sensitivity for night in found_nights if night.sensitivity.total.injected][:1]
    for path in _files(folder, "sensitivity.json"):
        try:
            parts.append(msgspec.json.decode(path.read_bytes(), type=_Measured).kept())
        except (OSError, *UNREADABLE) as problem:
            unreadable.append(f"{path.relative_to(folder)}: {problem}")
    return Sensitivity(runs=[run for part in parts for run in part.runs], figures=added(part.figures for part in parts))


def _shade(seconds: float | None) -> int:
    """Return how dark a cell is: 0 for a bug that was not found."""
    return 0 if seconds is None else 1 + sum(seconds <= limit for limit in (600, 120, 30, 10))


def _probes(runs: Iterable[RunRow], placed_nights: Iterable[tuple[str, Night]]) -> Counter[str]:
    """Return how often each rare state was reached. A night has counted the runs below its folder, unless an earlier night left them there."""
    nights = dict(placed_nights)
    kept: dict[str, Counter[str]] = {place: Counter() for place in nights}
    alone = Counter[str]()
    for run in runs:
        above = (str(one) for one in PurePosixPath(run.place).parents)
        kept.get(next((place for place in above if place in nights), ""), alone).update(run.probes)
    for place, night in nights.items():
        alone += kept[place] | Counter(night.probes)
    return alone


def _cold_guards(found_nights: Sequence[Night]) -> ColdGuards | None:
    """Return what no night of the newest commit reached, of those that counted; None: none did."""
    counted = [night for night in found_nights if night.guards_known]
    if not counted:
        return None
    own = [night for night in counted if night.commit == counted[0].commit]
    everywhere = set.intersection(*(set(night.guards_cold) for night in own))
    by_part: dict[str, list[str]] = {}
    for name in own[0].guards_cold:
        if name in everywhere:
            by_part.setdefault(".".join(name.split(".")[:2]), []).append(name)
    return ColdGuards(own[0].commit, len(own), own[0].guards_known, by_part)


def _ordered(names: Iterable[str]) -> list[str]:
    return sorted(dict.fromkeys(names))
